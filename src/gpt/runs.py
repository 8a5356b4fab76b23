"""What must be kept so that a training run can be resumed, used, and repeated by somebody else?

    folder/run.toml          every setting, versions, date, and the checksum of the text
    folder/tokenizer.json    text to ids
    folder/last.pt           the whole state of the run: to resume
    folder/best.pt           the weights of the least validation loss: to use
    folder/log.csv           a line for each validation: to see how it went

A folder in GPT-2's released format (`config.json`, weights, and as its tokenizer `vocab.json` with
`merges.txt` or the `tokenizer.json` of Hugging Face) can be used in its place, and so can what
`release` makes of a run: the same, with `run.toml` and our `tokenizer.json`. Reading a folder runs
none of its contents.

Used by the command line, `next-token`, and by the chapters that show recorded runs.
"""

import hashlib
import platform
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
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
from ..texts import corpora, microworld_words
from ..texts.microworld import Floor, MicroWorld
from ..tokens.bpe import BytePairTokenizer
from ..tokens.bpe import load as load_tokenizer
from ..tokens.bytes import END, Tokenizer, WordTokenizer, stream_of
from ..tokens.folders import kinds_in, open_tokenizer
from ..tokens.shards import ShardedStream, ShardError, Shards
from ..tools import checkpoints, parallel
from ..tools.files import write_text
from . import pretrained, training
from .gpt2 import GPT, GPTConfig
from .run_log import RunLog
from .training import TrainConfig, train

MICRO_WORLD = "micro-world"
OF_TEXT = ("separator", "tokenizer", "vocabulary_size", "validation", "test")  # not of tokens
_TOKENIZERS: dict[str, type[BytePairTokenizer | WordTokenizer]]
_TOKENIZERS = {"byte-pair": BytePairTokenizer, "words": WordTokenizer}


@dataclass(frozen=True)
class DataConfig:
    """What is read, and how.

    Attributes:
        text: a name that `corpora.load` knows, the path of a UTF-8 file, "micro-world", or a folder
            of tokens that `next-token tokenize` made. Such a folder has been cut into documents and
            parts, and has its tokenizer: separator, tokenizer, vocabulary_size, validation and test
            are then not looked at.
        separator: what stands between two documents of a file; "": cut at blank lines.
        tokenizer: "byte-pair" or "words"; it is trained on the training part.
        vocabulary_size: of the tokenizer, at most.
        batch_size: texts in a batch, all processes together.
        whole: whether each text in a batch begins where a document does; otherwise, anywhere.
        validation, test: the shares of the text that are not trained on.
        validation_batches: how many batches the validation loss is taken of.
        seed: of the initial weights, the order of the batches, dropout, and the documents of the
            micro-world.
        init_from: a folder that `open_run` opens, whose model is trained further: a run, or a
            released GPT-2. Model and tokenizer are then those of the folder, and what is said
            about them here is not looked at. "": random weights.
    Raises:
        ValueError: another tokenizer.
    """

    text: str = "python-docs"
    separator: str = ""
    tokenizer: str = "byte-pair"
    vocabulary_size: int = 2_048
    batch_size: int = 8
    whole: bool = False
    validation: float = 0.1
    test: float = 0.1
    validation_batches: int = 20
    seed: int = 0
    init_from: str = ""

    def __post_init__(self) -> None:
        if self.tokenizer not in _TOKENIZERS:
            raise ValueError(f"expected a tokenizer among {[*_TOKENIZERS]}, got {self.tokenizer!r}")


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run: the tables [data], [model], [training] and [world] of a TOML file.

    The defaults fit a laptop's minute or two; a warm-up that nobody asked for takes at most half of
    the steps. `model` holds fields of `GPTConfig` but for the
    vocabulary size, which the tokenizer decides. `world`, for the text "micro-world" only, holds
    fields of `MicroWorld`, and `documents`: how many are drawn.
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: Mapping[str, Any] = field(
        default_factory=lambda: {"context_length": 128, "layers": 3, "heads": 4, "channels": 128}
    )
    training: TrainConfig = field(
        default_factory=lambda: TrainConfig(steps=2_000, learning_rate=3e-3, warm_up=100)
    )
    world: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_tables(cls, *tables: Mapping[str, Mapping[str, Any]]) -> "RunConfig":
        """The defaults, changed by each of the tables in turn: {"training": {"steps": 100}}.

        Settings of [training] may have the names that other programs use, too: `OTHER_NAMES`, and
        `min_lr`, the learning rate of the last step.

        Raises:
            ValueError: an unknown table or setting, or a value that cannot be.
        """
        settings, min_lr = cls().tables(), None
        for changes in tables:
            for table, values in changes.items():
                known = _KNOWN.get(table)
                if known is None:
                    raise ValueError(f"expected tables among {list(_KNOWN)}, got [{table}]")
                for given, value in values.items():
                    name = OTHER_NAMES.get(given, given) if table == "training" else given
                    if name == "min_lr" and table == "training":
                        min_lr = value
                        continue
                    if name == "end" and table == "training":
                        min_lr = None
                    if name not in known:
                        raise ValueError(
                            f"expected settings among {sorted(known)} in [{table}], got {name!r}"
                        )
                    settings[table][name] = value
        of_training = settings["training"]
        if min_lr is not None:
            of_training["end"] = _share(min_lr, of_training["learning_rate"])
        asked_for = any("warm_up" in changes.get("training", {}) for changes in tables)
        if not asked_for and type(steps := of_training["steps"]) is int and steps > 0:
            of_training["warm_up"] = min(of_training["warm_up"], steps // 2)
        try:
            made = cls(
                DataConfig(**settings["data"]),
                settings["model"],
                TrainConfig(**settings["training"]),
                settings["world"],
            )
            made.gpt(2)  # its own checks
            made.micro_world()
        except TypeError as error:
            raise ValueError(str(error)) from error
        return made

    def tables(self) -> dict[str, dict[str, Any]]:
        """The settings as plain values, by table."""
        data = asdict(self.data)
        return {
            "data": data if self.data.init_from else {k: data[k] for k in data if k != "init_from"},
            "model": dict(self.model),
            "training": asdict(self.training),
            "world": dict(self.world),
        }

    def micro_world(self) -> MicroWorld | None:
        """The language of the text "micro-world"; None for any other text.

        Raises:
            ValueError: a setting of the micro-world cannot be, or stands beside another text.
        """
        if self.data.text != MICRO_WORLD:
            if self.world:
                raise ValueError(
                    f'expected [world] for the text "{MICRO_WORLD}" only, got it for '
                    f"{self.data.text!r}"
                )
            return None
        if not (type(count := self._documents) is int and count > 0):
            raise ValueError(f"expected a number of documents above 0, got {count!r}")
        return MicroWorld(**{k: v for k, v in self.world.items() if k != "documents"})

    def corpus(self) -> corpora.Corpus:
        """The text of the run."""
        if (world := self.micro_world()) is None:
            return corpora.load(self.data.text, document_separator=self.data.separator or None)
        generator = torch.Generator().manual_seed(self.data.seed)
        drawn = world.sample(self._documents, generator=generator)
        texts = (" ".join(each.words[:-1]) for each in drawn)  # `stream_of` writes the end
        documents = (corpora.Document(str(number), text) for number, text in enumerate(texts))
        return corpora.Corpus(MICRO_WORLD, tuple(documents))

    def shards(self) -> Shards | None:
        """The tokens of the run, if its text is a folder of them.

        Raises:
            FileNotFoundError, ShardError: as `Shards`.
        """
        if self.data.text in (MICRO_WORLD, *corpora.NAMES):
            return None
        folder = Path(self.data.text).expanduser()
        begun = folder.with_name(folder.name + ".partial").is_dir()  # by a process that was killed
        return Shards(folder) if folder.is_dir() or (begun and not folder.exists()) else None

    def parts(self) -> corpora.Split:
        """The text of the run in its three parts.

        Raises:
            ValueError: there is no text, but a folder of tokens; or a part would be empty.
        """
        if self.shards():
            raise ValueError(
                f"expected a text, {self.data.text} holds tokens, whose parts were cut when they "
                "were made: name a text"
            )
        return corpora.split(self.corpus(), validation=self.data.validation, test=self.data.test)

    @property
    def _documents(self) -> int:
        return self.world.get("documents", 50_000)

    def gpt(self, vocabulary_size: int) -> GPTConfig:
        """The configuration of the model."""
        return GPTConfig(vocabulary_size, **self.model)


# What other programs call settings of [training], here and as flags.
OTHER_NAMES = {
    "max_steps": "steps",
    "eval_interval": "every",
    "gradient_accumulation": "accumulation",
    "grad_clip": "clip",
    "dtype": "precision",
}

_KNOWN = {
    "data": {f.name for f in fields(DataConfig)},
    "model": {f.name for f in fields(GPTConfig)} - {"vocabulary_size"},
    "training": {f.name for f in fields(TrainConfig)},
    "world": {f.name for f in fields(MicroWorld)} | {"documents"},
}


_CHANGEABLE = {n if "." in n else f"training.{n}" for n in training.CHANGEABLE}
_CHANGEABLE |= {"made.processes"}


@dataclass
class Run:
    """A trained model with all that is needed to use it.

    Attributes:
        model: in evaluation mode.
        tokenizer: its own.
        tables: what `run.toml` holds; empty for a released model.
        step: after how many steps the weights were taken; None: not known.
    """

    model: GPT
    tokenizer: Tokenizer
    tables: dict[str, Any]
    step: int | None

    @property
    def config(self) -> RunConfig | None:
        """The settings of the run; None for a model that somebody else released."""
        return _config_in(self.tables) if self.tables else None

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
) -> History:
    """Train a tokenizer and a GPT on a text, and keep everything in a folder.

    Under torchrun all processes call this alike, inside `parallel.joined()`.

    Args:
        say: called with a line for each validation, in the first process.
        changed: as in `training.train`; None: every changed setting is an error.

    Raises:
        FileExistsError: the folder holds a run, and it is not to be resumed.
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
    first = None
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
            tokenizer = _TOKENIZERS[config.data.tokenizer].train(
                (document.text for document in parts.train), config.data.vocabulary_size
            )
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(folder / "tokenizer.json")
        write_text(folder / "run.toml", _toml(tables))
    team.wait()
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    model = first.model if first else _model(config, tokenizer, device)
    options = {
        "context_length": model.config.context_length,
        "batch_size": config.data.batch_size,
        "seed": config.data.seed,
        "first": tokenizer.specials[END] if config.data.whole else None,
    }
    of_training, of_validation = (
        _batches(
            shards.parts[name] if shards else stream_of(getattr(parts, name), tokenizer),
            {"train": "training"}.get(name, name),
            **options,
        )
        for name in ("train", "validation")
    )
    told = shards.parts["validation"].told if shards else None
    n_bytes = told.bytes if told else parts.validation.n_bytes
    log = RunLog(
        folder,
        steps=config.training.steps,
        rate=config.training.rate,
        tokens_per_byte=(len(of_validation.ids) - 1) / n_bytes,
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


def open_run(folder: Path | str, *, device: torch.device | str = "cpu") -> Run:
    """The model and the tokenizer of a run, or of a folder in GPT-2's released format.

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
    model = _model(_config_in(tables), tokenizer, device)
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

    The weights are in GPT-2's released format, and as few files as can be: `config.json`,
    `model.safetensors`, `tokenizer.json`, `run.toml`. `open_run` opens them.

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


def scores(
    run: Run, documents: Sequence[corpora.Document], *, stride: int | None = None
) -> list[Score]:
    """The score of each document under the model of a run, with its bytes.

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
        n_bytes=[document.n_bytes for document in documents],
    )


def floor_of(run: Run, documents: Sequence[corpora.Document]) -> Floor | None:
    """What a perfect model scores on documents of the micro-world; None for any other text."""
    world = run.config.micro_world() if run.config else None
    if world is None:
        return None
    return world.floor_of(
        [[*document.text.split(), microworld_words.END] for document in documents]
    )


def read_toml(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        FileNotFoundError: there is none. ValueError: it is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected TOML in {path}, got something else: {error}") from error


def _share(min_lr: Any, learning_rate: Any) -> float:
    """The learning rate of the last step as a share of the greatest."""
    numbers = all(type(each) in (int, float) for each in (min_lr, learning_rate))
    if not numbers or not 0 <= min_lr <= learning_rate or not learning_rate:
        raise ValueError(
            f"expected min_lr from 0 to the learning rate, {learning_rate!r}, got {min_lr!r}"
        )
    return min_lr / learning_rate


def _config_in(tables: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    return RunConfig.from_tables({name: tables[name] for name in _KNOWN.keys() & tables.keys()})


def _model(config: RunConfig, tokenizer: Tokenizer, device: torch.device | str) -> GPT:
    generator = torch.Generator().manual_seed(config.data.seed)
    return GPT(config.gpt(tokenizer.vocabulary_size), generator=generator).to(device)


def _batches(stream: Tensor | ShardedStream, part: str, **options: Any) -> Batches:
    try:
        return Batches(stream, **options)
    except ValueError as error:
        raise ValueError(
            f"the {part} part of the text has {len(stream):,} tokens: {error}; use a longer text "
            "or a shorter context"
        ) from error


def _compared(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All that a resumed run must have in common with the one before, by name: its text, too."""
    made = {f"made.{name}": tables.get("made", {}).get(name) for name in ("sha256", "processes")}
    return made | {
        f"{table}.{name}": value
        for table in _KNOWN
        for name, value in tables.get(table, {}).items()
    }


def _model_table(model: GPT) -> dict[str, Any]:
    """The settings of a model as the table [model] has them."""
    table = asdict(model.config)
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
