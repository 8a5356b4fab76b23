"""What must be kept so that a training run can be resumed, used, and repeated by somebody else?

    folder/run.toml          every setting, versions, date, and the checksum of the text
    folder/tokenizer.json    text to ids
    folder/last.pt           the whole state of the run: to resume
    folder/best.pt           the weights of the least validation loss: to use
    folder/log.csv           a line for each validation: to see how it went

Commands that only use a model take a folder in the released format of GPT-2 or Llama, too.
`release` makes such a folder of a run, and adds `run.toml`. To open a folder executes no code from
it.

Used by all commands that train. `src.gpt.released` opens such a folder to use its model.
"""

import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import tomli_w
import torch
from torch import Tensor

from src.gpt.gpt2 import GPT
from src.gpt.released import Run, loses_text, read_toml, scores_of_ids
from src.gpt.training import changed_settings
from src.likelihood.batches import Batches
from src.likelihood.evaluation import Score
from src.likelihood.fitting import History
from src.texts import corpora
from src.tokens import files as tokenizer_files
from src.tokens.bytes import END, UNKNOWN, Tokenizer, stream_of
from src.tools.files import write_text

from . import gpus, llama, run_log
from .engines import CHANGEABLE, check_last, train
from .processes import Team, locked, team
from .run_config import KNOWN, OF_TEXT, TOKENIZERS, RunConfig
from .run_log import RunLog, sample_of
from .token_folders import TokenFolder, TokenStream

Source = TokenFolder | corpora.Split  # of a run: tokens on a disk, or a text in three parts
_CHANGEABLE = {n if "." in n else f"training.{n}" for n in CHANGEABLE} | {"made.processes"}


def train_run(
    config: RunConfig,
    folder: Path | str,
    *,
    device: torch.device,
    resume: bool = False,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
    changed: Callable[[str], None] | None = None,
    sample_tokens: int = 0,
) -> History:
    """Train a tokenizer and a GPT on a text, and keep everything in a folder.

    Under torchrun all processes call this alike, inside `processes.joined()`.

    Args:
        say: called with a line for each validation, in the first process.
        changed: as in `engines.train`; None: every changed setting is an error.
        sample_tokens: how long a text is drawn and said after each validation; 0: none.

    Raises:
        FileExistsError: the folder holds a run that is not to be resumed, or something else.
        FileNotFoundError: the run to be resumed has lost its last checkpoint.
        ValueError: settings, text or model cannot be, or are not those of the run to be resumed.
        TokensError: a file of a folder of tokens is missing, damaged or changed.
        FloatingPointError: the loss is no longer finite.
    """
    folder, together = Path(folder), team()
    parts = config.training.accumulation * together.size
    if config.data.batch_size < parts:
        raise ValueError(f"expected a batch_size of at least {parts}, accumulation times processes")
    together.check_shared(folder)
    begun = (folder / "run.toml").exists()
    if begun and not resume:
        raise FileExistsError(f"{folder} holds a run already: --resume, or choose another folder")
    if not begun:
        check_free(folder)
    first = None
    if config.data.init_from and not (folder / "last.pt").exists():
        first = llama.open_run(config.data.init_from, device=device)
        config = replace(config, model=_model_table(first.model))
    source = config.token_folder() or config.parts()
    if isinstance(source, TokenFolder):
        if first and _spellings(first.tokenizer) != _spellings(source.tokenizer):
            raise ValueError(f"expected tokens of the first model's tokenizer in {source.folder}")
        source.check()
    made = None
    if begun:
        _resume(config, folder, source, together, free=_CHANGEABLE if changed else set())
    else:
        made = _begin(config, folder, source, together, first)
    tokenizer = tokenizer_files.load(folder / "tokenizer.json")
    model = first.model if first else _model(config, tokenizer, device)
    batches, held_out = made or batches_of(config, tokenizer, source)
    # A model in shares is gathered block by block, for which the others would have to draw, too.
    drawn = sample_tokens and say and not (together.size > 1 and config.training.engine == "fsdp")
    log = RunLog(
        folder,
        steps=config.training.steps,
        rate=config.training.rate,
        tokens_per_byte=_tokens_per_byte(source, tokenizer, len(held_out.ids) - 1),
        flops_per_token=3 * model.config.flops_per_token(),
        peak=gpus.peak_flops(device, config.training.precision, together.size),
        sample=partial(sample_of, model, tokenizer, sample_tokens) if drawn else None,
        say=say,
    )
    torch.manual_seed(config.data.seed)  # dropout draws from the global generator
    return train(
        model,
        batches,
        config.training,
        validation=list(islice(held_out, config.data.validation_batches)),
        folder=folder,
        resume=resume,
        changed=changed,
        log=log,
        progress=progress,
    )


def _begin(
    config: RunConfig, folder: Path, source: Source, together: Team, first: Run | None
) -> tuple[Batches, Batches] | None:
    """Make the folder of a run, by the first process, which gets the batches, too."""
    made = None
    together.wait()  # nobody writes before all have looked
    if together.rank == 0:
        if first:
            tokenizer = first.tokenizer
        elif isinstance(source, TokenFolder):
            tokenizer = source.tokenizer
        else:
            tokenizer = TOKENIZERS[config.data.tokenizer].train(
                (document.text for document in source.train), config.data.vocabulary_size
            )
        made = batches_of(config, tokenizer, source)  # what it refuses leaves no folder
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer_files.save(tokenizer, folder / "tokenizer.json")
        write_text(folder / "run.toml", _toml(_tables(config, source, together)))
    together.wait()
    return made


def _resume(
    config: RunConfig, folder: Path, source: Source, together: Team, *, free: set[str]
) -> None:
    """Compare a run with its folder, and write down what it goes on with, if that is another."""
    done = run_log.read(folder / "log.csv")
    check_last(folder, logged=bool(done))
    if done and config.training.steps < (least := int(done[-1]["step"] or 0)):
        raise ValueError(f"expected steps of at least {least:,}, as many as {folder} has taken")
    path, tables = folder / "run.toml", _tables(config, source, together)
    kept = read_toml(path)
    differ = changed_settings(_compared(kept), _compared(tables), source=path, free=free)
    tables["made"] = kept.get("made", {}) | {"processes": together.size}
    together.wait()  # nobody writes before all have looked
    if differ and together.rank == 0:
        with locked(folder):
            write_text(path, _toml(tables))
    together.wait()


class StreamBatches(Batches):
    """`Batches` of tokens on a disk: nothing is in memory but the batch that is asked for.

    Args:
        stream: the tokens; a piece begins anywhere, or where a document does.
        sizes: as of `Batches`.
    """

    def __init__(self, stream: TokenStream, **sizes: Any):
        self.stream = stream
        super().__init__(cast(Tensor, stream), **sizes)

    def _piece(self, start: int) -> Tensor:
        return torch.from_numpy(self.stream.piece(int(start), self.context_length + 1))

    def _starts(self, end: int) -> Sequence[int]:
        if self.first is None:
            return range(end)
        starts = self.stream.starts
        return cast(Sequence[int], starts[: np.searchsorted(starts, end)])

    def _checksum(self) -> str:
        return self.stream.checksum


def batches_of(config: RunConfig, tokenizer: Tokenizer, source: Source) -> tuple[Batches, Batches]:
    """The batches of a run, endless: of the training part, and of the validation part.

    Raises:
        ValueError: a part is shorter than one piece.
    """
    sizes = {
        "context_length": config.model["context_length"],
        "batch_size": config.data.batch_size,
        "seed": config.data.seed,
        "first": tokenizer.specials[END] if config.data.whole else None,
    }
    batches = []
    for part, name in (("train", "training"), ("validation", "validation")):
        ids: Any
        if isinstance(source, TokenFolder):
            ids, kind = source.parts[part], StreamBatches
        else:
            ids, kind = stream_of(getattr(source, part), tokenizer), Batches
        try:
            batches.append(kind(ids, **sizes))
        except ValueError as error:
            message = f"the {name} part: {error}; use a longer text or a shorter context"
            raise ValueError(message) from error
    return batches[0], batches[1]


def release(run: Run, folder: Path | str) -> None:
    """Write what others need to use a run, and to repeat it: weights that cannot run code.

    The weights are in GPT-2's released format, or in Llama's, and as few files as can be:
    `config.json`, `model.safetensors`, `tokenizer.json`, `run.toml`. `open_run` opens them.

    Raises:
        FileExistsError: the folder holds something. ValueError: the run was released already, or
            its model has something that the format cannot say.
    """
    folder = Path(folder)
    if "made" not in run.tables or "step" in run.tables["made"]:
        raise ValueError("expected a run of `train`, got a released model")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"expected an empty folder or none, {folder} holds something")
    llama.save(run.model, folder, end=run.end)
    tokenizer_files.save(run.tokenizer, folder / "tokenizer.json")
    data, made = run.tables["data"], run.tables["made"] | {"step": run.step}
    paths = {k: Path(data[k]).name for k in ("text", "init_from") if k in data}  # whose, is private
    write_text(folder / "run.toml", _toml(run.tables | {"data": data | paths, "made": made}))


_CHANGED = (
    "expected {} as it was when the run was trained, got another, whose test part may hold what "
    "was trained on: put the old one back, or name a text to score"
)
_HOLDS = {
    "run.toml": "a run",
    "config.json": "a released model",
    "task.json": "a fine-tuned model",
    "adapter.toml": "an adapter",
    "manifest.json": "tokens",
}


def scores_of_tokens(run: Run, token_folder: TokenFolder, *, stride: int | None) -> list[Score]:
    """The score of each document of the test part of tokens that a run was trained on.

    Raises:
        ValueError: they are no longer those of the run.
    """
    if token_folder.sha256 != run.tables["made"]["sha256"]:
        raise ValueError(_CHANGED.format(token_folder.folder))
    part = token_folder.parts["test"]
    starts = [*part.starts.tolist(), len(part) - 1]  # of the end tokens
    texts = [torch.from_numpy(part.piece(a, b + 1 - a)) for a, b in pairwise(starts)]
    spelled = run.tokenizer.decode
    lossy = UNKNOWN in run.tokenizer.specials
    n_bytes = None if lossy else [len(spelled(text[1:-1].tolist()).encode()) for text in texts]
    return scores_of_ids(run, texts, stride=stride, n_bytes=n_bytes)


def check_free(folder: Path) -> None:
    """Raise a FileExistsError if a folder holds a model or tokens, which a new run would spoil."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"expected a folder, {folder} is a file: choose another name")
    for name, kind in _HOLDS.items():
        if (folder / name).exists():
            raise FileExistsError(f"{folder} holds {kind} already: choose another folder")


def parts_of(tables: Mapping[str, Mapping[str, Any]]) -> corpora.Split:
    """The parts of the text that a run was trained on.

    Args:
        tables: of the run, as in its `run.toml`.
    Raises:
        FileNotFoundError: the text is not here.
        ValueError: the text has changed since. Then it is cut in other places, and its test part
            may hold what was trained on.
    """
    config = config_in(tables)
    try:
        parts = config.parts()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; the run's text is not here: name one to score") from None
    known = tables.get("made", {}).get("sha256")
    if known and _made(parts, 1)["sha256"] != known:
        raise ValueError(_CHANGED.format(config.data.text))
    return parts


def config_in(tables: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """The settings of a run, of the tables in its `run.toml`."""
    return RunConfig.from_tables({name: tables[name] for name in KNOWN.keys() & tables.keys()})


def _model(config: RunConfig, tokenizer: Tokenizer, device: torch.device | str) -> GPT:
    generator = torch.Generator().manual_seed(config.data.seed)
    return GPT(config.gpt(tokenizer.vocabulary_size), generator=generator).to(device)


def _tables(config: RunConfig, source: Source, together: Team) -> dict[str, dict[str, Any]]:
    """All that `run.toml` says of a run; of tokens not how they were made, which they know."""
    tables = config.tables() | {"made": _made(source, together.size)}
    if isinstance(source, TokenFolder):
        tables["data"] = {k: v for k, v in tables["data"].items() if k not in OF_TEXT}
    return tables


def _tokens_per_byte(source: Source, tokenizer: Tokenizer, tokens: int) -> float | None:
    """Of the validation part; None if the tokenizer loses text, which would count as free."""
    if isinstance(source, TokenFolder):
        lossy, n_bytes = UNKNOWN in tokenizer.specials, source.parts["validation"].bytes
    else:
        lossy, n_bytes = loses_text(tokenizer, source.validation), source.validation.n_bytes
    return None if lossy else tokens / n_bytes


def _compared(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All that a resumed run must have in common with the one before, by name: its text, too."""
    made = {f"made.{name}": tables.get("made", {}).get(name) for name in ("sha256", "processes")}
    settings = {f"{t}.{name}": value for t in KNOWN for name, value in tables.get(t, {}).items()}
    return {"training.sharded": False} | made | settings


def _model_table(model: GPT) -> dict[str, Any]:
    """The settings of a model as the table [model] has them."""
    table = model.config.settings
    return {k: v for k, v in table.items() if k != "vocabulary_size" and v is not None}


def _spellings(tokenizer: Tokenizer) -> tuple[Mapping[str, int], list[bytes]]:
    """What the ids of a tokenizer mean."""
    ids = range(tokenizer.vocabulary_size)
    return tokenizer.specials, [tokenizer.token_bytes(each) for each in ids]


def _made(source: Source, processes: int) -> dict[str, Any]:
    """Where a run comes from: what else somebody needs who wants to repeat it."""
    if isinstance(source, TokenFolder):
        parts, sha256 = source.parts.values(), source.sha256  # the manifest's, which has all others
        documents, n_bytes = sum(p.documents for p in parts), sum(p.bytes for p in parts)
    else:
        digest = hashlib.sha256()
        for part in source:
            for document in part:
                digest.update(document.text.encode() + b"\0")
        documents, n_bytes = sum(map(len, source)), sum(part.n_bytes for part in source)
        sha256 = digest.hexdigest()
    return {
        "on": str(date.today()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processes": processes,
        "documents": documents,
        "bytes": n_bytes,
        "sha256": sha256,
    }


def _toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of plain values as TOML, which has no word for None."""
    return tomli_w.dumps(
        {name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()}
    )
