"""What must be kept so that a training run can be resumed, used, and repeated by somebody else?

    folder/run.toml          every setting, versions, date, and the checksum of the text
    folder/tokenizer.json    text to ids
    folder/last.pt           the whole state of the run: to resume
    folder/best.pt           the weights of the least validation loss: to use
    folder/log.csv           a line for each validation: to see how it went

A folder in the released format of GPT-2 or Llama (`config.json`, weights, and as its tokenizer
`vocab.json` with `merges.txt` or the `tokenizer.json` of Hugging Face) can be used in its place,
and so can what `release` makes of a run: the same, with `run.toml` and our `tokenizer.json`.
Reading a folder runs none of its contents.

Used by the command line, `next-token`, and by the chapters that show recorded runs.
"""

import hashlib
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from ..likelihood.batches import Batches
from ..likelihood.evaluation import Score, document_scores
from ..likelihood.fitting import History
from ..likelihood.models import device_of
from ..texts import corpora
from ..texts.microworld import Floor
from ..tokens.bpe import load as load_tokenizer
from ..tokens.bytes import END, UNKNOWN, Tokenizer, stream_of
from ..tokens.folders import kinds_in, open_tokenizer
from ..tokens.shards import ShardedStream, ShardError, Shards
from ..tools import checkpoints, parallel, runtime
from ..tools.files import write_text
from . import pretrained, run_log, training
from .gpt2 import GPT
from .run_config import KNOWN, OF_TEXT, TOKENIZERS, RunConfig, read_toml
from .run_log import RunLog, sample_of
from .training import train

_CHANGEABLE = {n if "." in n else f"training.{n}" for n in training.CHANGEABLE}
_CHANGEABLE |= {"made.processes"}


@dataclass
class Run:
    """A trained model with all that is needed to use it.

    Attributes:
        model: in evaluation mode.
        tokenizer: its own.
        tables: what `run.toml` holds; empty for a model that somebody else released.
        step: after how many steps the weights were taken; None: not known.
    """

    model: GPT
    tokenizer: Tokenizer
    tables: dict[str, Any]
    step: int | None

    @property
    def config(self) -> RunConfig | None:
        """The settings of the run; None for a model that somebody else released."""
        return config_in(self.tables) if self.tables else None

    @property
    def end(self) -> int:
        """The end token's id."""
        return self.tokenizer.specials[END]


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

    Under torchrun all processes call this alike, inside `parallel.joined()`.

    Args:
        say: called with a line for each validation, in the first process.
        changed: as in `training.train`; None: every changed setting is an error.
        sample_tokens: how long a text is drawn and said after each validation; 0: none.

    Raises:
        FileExistsError: the folder holds a run that is not to be resumed, or something else.
        FileNotFoundError: the run to be resumed has lost its last checkpoint.
        ValueError: settings, text or model cannot be, or are not those of the run to be resumed.
        ShardError: a file of a folder of tokens is missing, damaged or changed.
        FloatingPointError: the loss is no longer finite.
    """
    folder, team = Path(folder), parallel.team()
    team.check_shared(folder)
    begun = (folder / "run.toml").exists()
    if begun and not resume:
        raise FileExistsError(
            f"{folder} holds a run already: resume it, or choose another folder for a new one"
        )
    if not begun:
        check_free(folder)
    first = batches = None
    if config.data.init_from and not (folder / "last.pt").exists():
        first = open_run(config.data.init_from, device=device)
        config = replace(config, model=_model_table(first.model))
    shards = config.shards()
    if shards:
        _check_tokenizers(shards, first)
        _check_together(shards, team)
        tables = config.tables() | {"made": _made_of_shards(shards, team.size)}
        tables["data"] = {k: v for k, v in tables["data"].items() if k not in OF_TEXT}
    else:
        parts = config.parts()
        tables = config.tables() | {"made": _made(parts, team.size)}
    if begun:
        training.check_last(folder, logged=bool(run_log.read(folder / "log.csv")))
        path = folder / "run.toml"
        kept = read_toml(path)
        differ = checkpoints.check_same(
            _compared(kept), _compared(tables), source=path, free=_CHANGEABLE if changed else ()
        )
        tables["made"] = kept.get("made", {}) | {"processes": team.size}
    team.wait()  # nobody writes before all have looked
    if begun and differ and team.rank == 0:
        write_text(folder / "run.toml", _toml(tables))
    if team.rank == 0 and not begun:
        if first:
            tokenizer = first.tokenizer
        elif shards:
            tokenizer = shards.tokenizer
        else:
            tokenizer = TOKENIZERS[config.data.tokenizer].train(
                (document.text for document in parts.train), config.data.vocabulary_size
            )
        batches = batches_of(config, tokenizer, shards or parts)  # what it refuses leaves no folder
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(folder / "tokenizer.json")
        write_text(folder / "run.toml", _toml(tables))
    team.wait()
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    model = first.model if first else _model(config, tokenizer, device)
    of_training, of_validation = batches or batches_of(config, tokenizer, shards or parts)
    if shards:
        lossy, n_bytes = UNKNOWN in tokenizer.specials, shards.parts["validation"].told.bytes
    else:
        lossy, n_bytes = loses_text(tokenizer, parts.validation), parts.validation.n_bytes
    # A model in shares is gathered block by block, for which the others would have to draw, too.
    drawn = sample_tokens and say and not (team.size > 1 and config.training.engine == "fsdp")
    log = RunLog(
        folder,
        steps=config.training.steps,
        rate=config.training.rate,
        tokens_per_byte=None if lossy else (len(of_validation.ids) - 1) / n_bytes,
        flops_per_token=3 * model.config.flops_per_token(),
        peak=runtime.peak_flops(device, config.training.precision, team.size),
        sample=partial(sample_of, model, tokenizer, sample_tokens) if drawn else None,
        say=say,
    )
    torch.manual_seed(config.data.seed)  # dropout draws from the global generator
    return train(
        model,
        of_training,
        config.training,
        validation=list(islice(of_validation, config.data.validation_batches)),
        folder=folder,
        resume=resume,
        changed=changed,
        keepers=[log],
        progress=progress,
    )


def batches_of(
    config: RunConfig, tokenizer: Tokenizer, source: Shards | corpora.Split
) -> tuple[Batches, Batches]:
    """The batches of a run, endless: of the training part, and of the validation part.

    Raises:
        ValueError: a part is shorter than one piece.
    """
    made = []
    for part, name in (("train", "training"), ("validation", "validation")):
        ids: Tensor | ShardedStream
        if isinstance(source, Shards):
            ids = source.parts[part]
        else:
            ids = stream_of(getattr(source, part), tokenizer)
        try:
            made.append(
                Batches(
                    ids,
                    context_length=config.model["context_length"],
                    batch_size=config.data.batch_size,
                    seed=config.data.seed,
                    first=tokenizer.specials[END] if config.data.whole else None,
                )
            )
        except ValueError as error:
            raise ValueError(
                f"the {name} part of the text has {len(ids):,} tokens: {error}; use a longer text "
                "or a shorter context"
            ) from error
    return made[0], made[1]


def open_run(folder: Path | str, *, device: torch.device | str = "cpu") -> Run:
    """The model and the tokenizer of a run, or of a folder in a released format.

    Raises:
        FileNotFoundError: the folder holds neither, or no tokenizer.
        ValueError: a file in it is damaged, or not of this model; or model and tokenizer do not
            have the same number of tokens.
    """
    folder = Path(folder)
    released, begun = kinds_in(folder)
    tables = read_toml(folder / "run.toml") if begun else {}
    tokenizer = open_tokenizer(folder)
    if released:
        model, step = pretrained.load(folder).to(device), tables.get("made", {}).get("step")
        _check_sizes(model.config.vocabulary_size, tokenizer.vocabulary_size, folder)
        return Run(model, tokenizer, tables, step)
    model = _model(config_in(tables), tokenizer, device)
    step = training.load_best(model, folder)
    return Run(model.eval(), tokenizer, tables, step)


def _check_sizes(of_model: int, of_tokenizer: int, folder: Path) -> None:
    """Refuse a model that could be asked for, or could draw, what its tokenizer does not know."""
    if of_model == of_tokenizer:
        return
    cause = "it cannot read them all; are they of two models?"
    if of_model > of_tokenizer:
        cause = "it could draw ids that stand for no text; was its table padded? Cut it to size"
    raise ValueError(
        f"expected in {folder} a model for the {of_tokenizer:,} tokens of its tokenizer, got one "
        f"for {of_model:,}: {cause}"
    )


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
    pretrained.save(run.model, folder)
    run.tokenizer.save(folder / "tokenizer.json")
    made = run.tables["made"] | {"step": run.step}
    write_text(folder / "run.toml", _toml(run.tables | {"made": made}))


_HELD = {
    "run.toml": "a run",
    "config.json": "a released model",
    "task.json": "a fine-tuned model",
    "adapter.toml": "an adapter",
    "manifest.json": "tokens",
}


def check_free(folder: Path) -> None:
    """Raise a FileExistsError if a folder holds a model or tokens, which a new run would spoil."""
    for name, held in _HELD.items():
        if (folder / name).exists():
            raise FileExistsError(f"{folder} holds {held} already: choose another folder")


def parts_of(tables: Mapping[str, Mapping[str, Any]]) -> corpora.Split:
    """The parts of the text that a run was trained on.

    Args:
        tables: of the run, as in its `run.toml`.
    Raises:
        ValueError: the text has changed since. Then it is cut in other places, and its test part
            may hold what was trained on.
    """
    config = config_in(tables)
    parts = config.parts()
    known = tables.get("made", {}).get("sha256")
    if known and _made(parts, 1)["sha256"] != known:
        raise ValueError(
            f"expected {config.data.text} as it was when the run was trained, got another text: "
            "its test part may hold what was trained on. Put the old text back, or name a text to "
            "score"
        )
    return parts


def scores(
    run: Run, documents: Sequence[corpora.Document], *, stride: int | None = None
) -> list[Score]:
    """The score of each document under the model of a run.

    Their bytes are in it, unless the tokenizer loses text: what is lost would count as free.

    Args:
        stride: by how many tokens the windows advance; None: half of the context.
    """
    device = device_of(run.model)
    texts = [stream_of([document], run.tokenizer).to(device) for document in documents]
    context_length = run.model.config.context_length
    return document_scores(
        run.model,
        texts,
        context_length=context_length,
        stride=max(1, context_length // 2) if stride is None else stride,
        n_bytes=None
        if loses_text(run.tokenizer, documents)
        else [document.n_bytes for document in documents],
    )


def loses_text(tokenizer: Tokenizer, documents: Iterable[corpora.Document]) -> bool:
    """Whether some document does not come back from its ids, as with unknown words."""
    return UNKNOWN in tokenizer.specials and any(
        tokenizer.decode(tokenizer.encode(document.text)) != document.text for document in documents
    )


def floor_of(run: Run, documents: Sequence[corpora.Document]) -> Floor | None:
    """What a perfect model scores on documents of the micro-world; None for any other text."""
    return run.config.floor_of(documents) if run.config else None


def config_in(tables: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """The settings of a run, of the tables in its `run.toml`."""
    return RunConfig.from_tables({name: tables[name] for name in KNOWN.keys() & tables.keys()})


def _model(config: RunConfig, tokenizer: Tokenizer, device: torch.device | str) -> GPT:
    generator = torch.Generator().manual_seed(config.data.seed)
    return GPT(config.gpt(tokenizer.vocabulary_size), generator=generator).to(device)


def _compared(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All that a resumed run must have in common with the one before, by name: its text, too."""
    made = {f"made.{name}": tables.get("made", {}).get(name) for name in ("sha256", "processes")}
    return made | {
        f"{table}.{name}": value for table in KNOWN for name, value in tables.get(table, {}).items()
    }


def _model_table(model: GPT) -> dict[str, Any]:
    """The settings of a model as the table [model] has them."""
    table = model.config.settings
    return {k: v for k, v in table.items() if k != "vocabulary_size" and v is not None}


def _check_tokenizers(shards: Shards, first: Run | None) -> None:
    """Refuse tokens whose ids mean something else to the model that is trained further."""
    if first is None:
        return
    one, other = first.tokenizer, shards.tokenizer
    same = one.vocabulary_size == other.vocabulary_size and one.specials == other.specials
    if not same or any(
        one.token_bytes(i) != other.token_bytes(i) for i in range(one.vocabulary_size)
    ):
        raise ValueError(
            f"expected in {shards.folder} tokens of the tokenizer that the model to begin with has "
            f"({one.vocabulary_size:,} tokens), got another's ({other.vocabulary_size:,}): "
            "tokenize again with --tokenizer and that model's folder"
        )


def _check_together(shards: Shards, team: parallel.Team) -> None:
    """Compare all files with their SHA-256, each process some; what one finds, all raise."""
    found = ""
    try:
        shards.check(shards.files[team.rank :: team.size])
    except ShardError as error:
        found = str(error)
    for why in filter(None, team.gather(found)):
        raise ShardError(why)


def _made_of_shards(shards: Shards, processes: int) -> dict[str, Any]:
    """The same as `_made` of a folder of tokens, whose manifest has the sum of every file."""
    told = [part.told for part in shards.parts.values()]
    return _versions(processes) | {
        "documents": sum(part.documents for part in told),
        "bytes": sum(part.bytes for part in told),
        "sha256": shards.sha256,
    }


def _versions(processes: int) -> dict[str, Any]:
    return {
        "on": str(date.today()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processes": processes,
    }


def _made(parts: corpora.Split, processes: int) -> dict[str, Any]:
    """Where a run comes from: what else somebody needs who wants to repeat it."""
    documents = [document for part in parts for document in part]
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.text.encode() + b"\0")
    return _versions(processes) | {
        "documents": len(documents),
        "bytes": sum(document.n_bytes for document in documents),
        "sha256": digest.hexdigest(),
    }


def _toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of plain values as TOML, which has no word for None."""
    return tomli_w.dumps(
        {name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()}
    )
