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
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from src.gpt import training
from src.gpt.gpt2 import GPT
from src.gpt.released import Run, loses_text, read_toml, scores_of_ids
from src.gpt.training import train
from src.likelihood.batches import Batches
from src.likelihood.evaluation import Score
from src.likelihood.fitting import History
from src.texts import corpora
from src.tokens import files as tokenizer_files
from src.tokens.bytes import END, UNKNOWN, Tokenizer, stream_of
from src.tools import checkpoints, parallel
from src.tools.files import locked, write_text

from . import gpus, llama, run_log
from .run_config import KNOWN, OF_TEXT, TOKENIZERS, RunConfig
from .run_log import RunLog, sample_of
from .token_folders import TokenFolder, TokensError, TokenStream

_CHANGEABLE = {n if "." in n else f"training.{n}" for n in training.CHANGEABLE}
_CHANGEABLE |= {"made.processes"}


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
        TokensError: a file of a folder of tokens is missing, damaged or changed.
        FloatingPointError: the loss is no longer finite.
    """
    folder, team = Path(folder), parallel.team()
    parts_of_batch = config.training.accumulation * team.size
    if config.data.batch_size < parts_of_batch:
        raise ValueError(
            f"expected a batch_size of at least {parts_of_batch}, accumulation times processes, "
            f"got {config.data.batch_size}"
        )
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
        first = llama.open_run(config.data.init_from, device=device)
        config = replace(config, model=_model_table(first.model))
    source = config.token_folder() or config.parts()
    tables = config.tables() | {"made": _made(source, team.size)}
    if isinstance(source, TokenFolder):
        _check_tokenizers(source, first)
        _check_together(source, team)
        tables["data"] = {k: v for k, v in tables["data"].items() if k not in OF_TEXT}
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
        with locked(folder):
            write_text(folder / "run.toml", _toml(tables))
    if team.rank == 0 and not begun:
        if first:
            tokenizer = first.tokenizer
        elif isinstance(source, TokenFolder):
            tokenizer = source.tokenizer
        else:
            tokenizer = TOKENIZERS[config.data.tokenizer].train(
                (document.text for document in source.train), config.data.vocabulary_size
            )
        batches = batches_of(config, tokenizer, source)  # what it refuses leaves no folder
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer_files.save(tokenizer, folder / "tokenizer.json")
        write_text(folder / "run.toml", _toml(tables))
    team.wait()
    tokenizer = tokenizer_files.load(folder / "tokenizer.json")
    model = first.model if first else _model(config, tokenizer, device)
    of_training, of_validation = batches or batches_of(config, tokenizer, source)
    if isinstance(source, TokenFolder):
        lossy, n_bytes = UNKNOWN in tokenizer.specials, source.parts["validation"].bytes
    else:
        lossy, n_bytes = loses_text(tokenizer, source.validation), source.validation.n_bytes
    # A model in shares is gathered block by block, for which the others would have to draw, too.
    drawn = sample_tokens and say and not (team.size > 1 and config.training.engine == "fsdp")
    log = RunLog(
        folder,
        steps=config.training.steps,
        rate=config.training.rate,
        tokens_per_byte=None if lossy else (len(of_validation.ids) - 1) / n_bytes,
        flops_per_token=3 * model.config.flops_per_token(),
        peak=gpus.peak_flops(device, config.training.precision, team.size),
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
    config: RunConfig, tokenizer: Tokenizer, source: TokenFolder | corpora.Split
) -> tuple[Batches, Batches]:
    """The batches of a run, endless: of the training part, and of the validation part.

    Raises:
        ValueError: a part is shorter than one piece.
    """
    made = []
    for part, name in (("train", "training"), ("validation", "validation")):
        ids: Tensor | TokenStream
        if isinstance(source, TokenFolder):
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


_HELD = {
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
        raise ValueError(
            f"expected {token_folder.folder} as it was when the run was trained, got other tokens: "
            "name a text to score"
        )
    part = token_folder.parts["test"]
    starts = [*map(part.start_of, range(part.documents)), len(part) - 1]  # of the end tokens
    texts = [torch.from_numpy(part.piece(a, b + 1 - a)) for a, b in pairwise(starts)]
    spelled = run.tokenizer.decode
    return scores_of_ids(
        run,
        texts,
        stride=stride,
        n_bytes=None
        if UNKNOWN in run.tokenizer.specials
        else [len(spelled(text[1:-1].tolist()).encode()) for text in texts],
    )


def check_free(folder: Path) -> None:
    """Raise a FileExistsError if a folder holds a model or tokens, which a new run would spoil."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"expected a folder, {folder} is a file: choose another name")
    for name, held in _HELD.items():
        if (folder / name).exists():
            raise FileExistsError(f"{folder} holds {held} already: choose another folder")


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
        raise ValueError(
            f"expected {config.data.text} as it was when the run was trained, got another text: "
            "its test part may hold what was trained on. Put the old text back, or name a text to "
            "score"
        )
    return parts


def config_in(tables: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """The settings of a run, of the tables in its `run.toml`."""
    return RunConfig.from_tables({name: tables[name] for name in KNOWN.keys() & tables.keys()})


def _model(config: RunConfig, tokenizer: Tokenizer, device: torch.device | str) -> GPT:
    generator = torch.Generator().manual_seed(config.data.seed)
    return GPT(config.gpt(tokenizer.vocabulary_size), generator=generator).to(device)


def _compared(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All that a resumed run must have in common with the one before, by name: its text, too."""
    made = {f"made.{name}": tables.get("made", {}).get(name) for name in ("sha256", "processes")}
    gone = {f"training.{name}": value for name, value in training.GONE.items()}
    return (
        made
        | gone
        | {
            f"{table}.{name}": value
            for table in KNOWN
            for name, value in tables.get(table, {}).items()
        }
    )


def _model_table(model: GPT) -> dict[str, Any]:
    """The settings of a model as the table [model] has them."""
    table = model.config.settings
    return {k: v for k, v in table.items() if k != "vocabulary_size" and v is not None}


def _check_tokenizers(token_folder: TokenFolder, first: Run | None) -> None:
    """Refuse tokens whose ids mean something else to the model that is trained further."""
    if first is None:
        return
    one, other = first.tokenizer, token_folder.tokenizer
    same = one.vocabulary_size == other.vocabulary_size and one.specials == other.specials
    if not same or any(
        one.token_bytes(i) != other.token_bytes(i) for i in range(one.vocabulary_size)
    ):
        raise ValueError(
            f"expected in {token_folder.folder} tokens of the tokenizer that the first model "
            f"has ({one.vocabulary_size:,} tokens), got another's ({other.vocabulary_size:,}): "
            "tokenize again with --tokenizer and that model's folder"
        )


def _check_together(token_folder: TokenFolder, team: parallel.Team) -> None:
    """Compare all files with their SHA-256, each process some; what one finds, all raise."""
    found = ""
    try:
        token_folder.check(token_folder.files[team.rank :: team.size])
    except TokensError as error:
        found = str(error)
    for why in filter(None, team.gather(found)):
        raise TokensError(why)


def _made(source: TokenFolder | corpora.Split, processes: int) -> dict[str, Any]:
    """Where a run comes from: what else somebody needs who wants to repeat it."""
    held: list[Any]
    if isinstance(source, TokenFolder):  # its manifest has the sum of every file
        held, sha256 = [*source.parts.values()], source.sha256
        documents, n_bytes = sum(part.documents for part in held), sum(part.bytes for part in held)
    else:
        held, digest = [document for part in source for document in part], hashlib.sha256()
        for document in held:
            digest.update(document.text.encode() + b"\0")
        documents, n_bytes = len(held), sum(document.n_bytes for document in held)
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
