"""Which settings does a run have, and how does a TOML file say them?

    [data]       what is read, and how
    [model]      fields of `GPTConfig`
    [training]   fields of `RunTraining`
    [world]      fields of `MicroWorld`, for the text "micro-world"

Used by `runs`, and so by the command line.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from src.gpt.gpt2 import GPTConfig
from src.gpt.released import MICRO_WORLD, world_of
from src.texts import corpora
from src.texts.microworld import MicroWorld
from src.tokens.bpe import BytePairTokenizer
from src.tokens.bytes import WordTokenizer

from .engines import RunTraining
from .token_folders import TokenFolder

OF_TEXT = ("separator", "tokenizer", "vocabulary_size", "validation", "test")  # not of tokens
TOKENIZERS: dict[str, type[BytePairTokenizer | WordTokenizer]] = {
    "byte-pair": BytePairTokenizer,
    "words": WordTokenizer,
}


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
            released model. Model and tokenizer are then those of the folder, and what is said
            about them here is not looked at. "": random weights.
    Raises:
        ValueError: another tokenizer, `whole` is not a bool, or a number cannot be.
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
        if self.tokenizer not in TOKENIZERS:
            raise ValueError(f"expected a tokenizer among {[*TOKENIZERS]}, got {self.tokenizer!r}")
        if self.whole is not True and self.whole is not False:
            raise ValueError(f"expected whole to be true or false, got {self.whole!r}")
        least = {"vocabulary_size": 1, "batch_size": 1, "validation_batches": 1, "seed": 0}
        for name, least_of_it in least.items():
            value = getattr(self, name)
            if type(value) is not int or not least_of_it <= value < 1 << 63:
                raise ValueError(f"expected {name} from {least_of_it} to below 2^63, got {value!r}")


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
    training: RunTraining = field(
        default_factory=lambda: RunTraining(steps=2_000, learning_rate=3e-3, warm_up=100)
    )
    world: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_tables(cls, *tables: Mapping[str, Mapping[str, Any]]) -> "RunConfig":
        """The defaults, changed by each of the tables in turn: {"training": {"steps": 100}}.

        Raises:
            ValueError: an unknown table or setting, or a value that cannot be.
        """
        settings = cls().tables()
        for changes in tables:
            for table, values in changes.items():
                if table not in KNOWN:
                    raise ValueError(f"expected tables among {list(KNOWN)}, got [{table}]")
                if not isinstance(values, Mapping):
                    raise ValueError(f"expected a table [{table}], got {table} = {values!r}")
                for name, value in values.items():
                    if (table, name, value) == ("training", "sharded", False):  # of version 0.2
                        continue
                    if name not in (known := KNOWN[table]):
                        raise ValueError(f"expected {sorted(known)} in [{table}], got {name!r}")
                    settings[table][name] = value
        of_training = settings["training"]
        asked_for = any("warm_up" in changes.get("training", {}) for changes in tables)
        if not asked_for and type(steps := of_training["steps"]) is int and steps > 0:
            of_training["warm_up"] = min(of_training["warm_up"], steps // 2)
        try:
            made = cls(
                DataConfig(**settings["data"]),
                settings["model"],
                RunTraining(**settings["training"]),
                settings["world"],
            )
            made.gpt(2)  # its own checks
            made.micro_world()
            if made.model.get("global_every") and not made.model.get("window"):
                raise ValueError("expected a window beside global_every, which sees past it")
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
                raise ValueError(f'expected [world] for the text "{MICRO_WORLD}" only')
            return None
        if not (type(count := self._documents) is int and count > 0):
            raise ValueError(f"expected a number of documents above 0, got {count!r}")
        return world_of(self.tables())

    def corpus(self) -> corpora.Corpus:
        """The text of the run."""
        if (world := self.micro_world()) is None:
            return corpora.load(self.data.text, document_separator=self.data.separator or None)
        generator = torch.Generator().manual_seed(self.data.seed)
        return world.corpus(self._documents, generator=generator)

    def token_folder(self) -> TokenFolder | None:
        """The tokens of the run, if its text is a folder of them.

        Raises:
            FileNotFoundError, TokensError: as `TokenFolder`.
        """
        if self.data.text in (MICRO_WORLD, *corpora.NAMES):
            return None
        folder = Path(self.data.text).expanduser()
        begun = folder.with_name(folder.name + ".partial").is_dir()  # by a process that was killed
        return TokenFolder(folder) if folder.is_dir() or (begun and not folder.exists()) else None

    def parts(self) -> corpora.Split:
        """The text of the run in its three parts.

        Raises:
            ValueError: a part would be empty.
        """
        return corpora.split(self.corpus(), validation=self.data.validation, test=self.data.test)

    @property
    def _documents(self) -> int:
        return self.world.get("documents", 50_000)

    def gpt(self, vocabulary_size: int) -> GPTConfig:
        """The configuration of the model."""
        return GPTConfig(vocabulary_size, **self.model)


KNOWN = {
    "data": {f.name for f in fields(DataConfig)},
    "model": {f.name for f in fields(GPTConfig)} - {"vocabulary_size"},
    "training": {f.name for f in fields(RunTraining)},
    "world": {f.name for f in fields(MicroWorld)} | {"documents"},
}
