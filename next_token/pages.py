"""What does `next-token page` write? A model of one's own on one page, which runs in any browser.

The page holds the weights, the tokenizer, and the scripts of `live/` that let it write; it asks
nothing of the network. What stands in a run is data there: a tag in a token shows as text.
"""

import json
import math
import tempfile
from base64 import b64encode
from html import escape
from pathlib import Path

from src.tools.files import write_text
from src.tools.places import place_of

SCRIPTS = ("numbers", "attention", "sampling", "gpt", "write_on")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{name} writes</title><style>
:root {{ color-scheme: light dark; --pst-color-primary: #176; --pst-color-border: #8888;
  --pst-color-surface: #8881; --pst-color-text-base: canvastext }}
* {{ box-sizing: border-box; overflow-wrap: anywhere }}
body {{ font-family: sans-serif; max-width: 42rem; margin: 1rem auto; padding: 0 1rem }}
{style}
.written, .word {{ white-space: pre-wrap }} .word {{ width: max-content; max-width: 50vw }}
</style></head>
<body><h1><bdi>{name}</bdi> writes</h1><p>{says}</p><main class="touch write_on"></main>
{scripts}<script>nextToken.figures.write_on(document.querySelector("main"))</script></body></html>
"""


def as_script(folder: Path) -> str:
    """The model of a folder in GPT-2's format, with its tokenizer, as `live/gpt.js` reads it."""
    found = {k: json.loads((folder / f"{k}.json").read_bytes()) for k in ("config", "tokenizer")}
    found["weights"] = b64encode((folder / "model.safetensors").read_bytes()).decode()
    said = json.dumps(found).replace("<", "\\u003c")  # so that no token ends the script
    return f"globalThis.nextToken ??= {{}};\nnextToken.model = {said};\n"


def write_page(folder: Path, to: Path, *, order: int | None) -> None:
    """Write the page of a run.

    Args:
        folder: of a run, or of a model in GPT-2's format.
        to: a new file.
        order: n of an n-gram model whose loss is told beside the run's; None: without one.
    Raises:
        ValueError: the model is none of GPT-2's blocks, or its tokens are no byte pairs.
        FileExistsError: there is such a file. OSError: it cannot be written.
    """
    from src.gpt import pretrained
    from src.tokens import files
    from src.tokens.bpe import BytePairTokenizer

    from . import llama, run_log
    from .yardsticks import yardsticks

    if to.exists():
        raise FileExistsError(f"expected a new file, got {to}: choose another name")
    rows = run_log.read(folder / "log.csv")
    if order is not None and not rows:
        raise ValueError(f"expected log.csv of `train` beside --ngram, found no lines in {folder}")
    run = llama.open_run(folder)
    if not isinstance(run.tokenizer, BytePairTokenizer):
        kind = type(run.tokenizer).__name__
        raise ValueError(f"expected byte pairs, which the page can spell, got {kind}")
    with tempfile.TemporaryDirectory() as place:
        pretrained.save(run.model, place, end=run.end)
        files.save(run.tokenizer, Path(place) / "tokenizer.json")
        model = as_script(Path(place))
    losses: dict[str, float] = {}
    if rows:
        losses["this model"] = min(row["validation_loss"] or math.inf for row in rows)
        losses |= yardsticks(folder, order=order)
    told = [f"{sum(p.numel() for p in run.model.parameters()):,} weights"]
    told += [f"{name} {nats:.2f} nats per token" for name, nats in losses.items()]
    live = place_of("live")
    scripts = [(live / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    scripts.insert(-1, model)
    content = PAGE.format(
        name=escape(folder.resolve().name.encode(errors="replace").decode()),
        says=escape("; ".join(told)),
        style=(live / "touch.css").read_text(encoding="utf-8"),
        scripts="".join(f"<script>{text}</script>\n" for text in scripts),
    )
    try:
        write_text(to, content)
    except OSError as error:
        raise OSError(f"expected to write {to}, got {error.strerror}: choose another") from error
