"""What must lie beside a trained model so that somebody else can use it, and repeat its score?

    folder/model.safetensors, config.json     the weights, in GPT-2's or Llama's format
    folder/tokenizer.json                     text to ids (or vocab.json and merges.txt)
    folder/run.toml                           every setting, and the checksum of the text

In the folder of a run that was not released the weights are `best.pt`: those of the least
validation loss. Somebody else's model has no `run.toml`. To open a folder executes no code from
it.

No chapter derives it; the page `architecture` says why it is here all the same.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..likelihood.evaluation import Score, document_scores
from ..likelihood.models import device_of
from ..texts import microworld_words
from ..texts.corpora import Document
from ..texts.microworld import Floor, MicroWorld
from ..tokens.bytes import END, UNKNOWN, Tokenizer, stream_of
from ..tokens.files import open_tokenizer
from . import pretrained, training
from .gpt2 import GPT, GPTConfig

MICRO_WORLD = "micro-world"


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
    def world(self) -> MicroWorld | None:
        """The language of the micro-world on which the model was trained; None for other texts."""
        return world_of(self.tables)

    @property
    def end(self) -> int:
        """The end token's id."""
        return self.tokenizer.specials[END]


def open_run(
    folder: Path | str,
    *,
    device: torch.device | str = "cpu",
    read_tokenizer: Callable[[Path], Tokenizer] = open_tokenizer,
    load: Callable[[Path], GPT] = pretrained.load,
) -> Run:
    """The model and the tokenizer of a run, or of a folder in a released format.

    Args:
        folder: of the run, or of the released model.
        device: where the model is put.
        read_tokenizer: finds the tokenizer in the folder.
        load: reads the model of a folder in a released format.

    Raises:
        FileNotFoundError: the folder holds neither, or no tokenizer.
        ValueError: a file in it is damaged, or not of this model; or model and tokenizer do not
            have the same number of tokens.
    """
    folder = Path(folder)
    released, begun = (folder / "config.json").exists(), (folder / "run.toml").exists()
    if not released and not begun:
        held = ", ".join(sorted(each.name for each in folder.glob("*"))[:3]) or "nothing"
        expected = "the folder of a run (run.toml) or of a released model (config.json)"
        raise FileNotFoundError(f"expected {expected}, found {held} in {folder}: name another")
    tables = read_toml(folder / "run.toml") if begun else {}
    tokenizer = read_tokenizer(folder)
    if released:
        model, step = load(folder), tables.get("made", {}).get("step")
        size, known = model.config.vocabulary_size, tokenizer.vocabulary_size
        if size != known:  # it could be asked for, or could draw, what has no meaning
            expected = f"expected in {folder} a model for the {known:,} tokens of its tokenizer"
            raise ValueError(f"{expected}, got one for {size:,}: are they of two models?")
    else:
        try:
            config = GPTConfig(tokenizer.vocabulary_size, **tables["model"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected a model in {folder / 'run.toml'}, got {error}") from error
        model = GPT(config, generator=torch.Generator())  # of weights that are overwritten
        step = training.load_best(model, folder)
    return Run(model.to(device).eval(), tokenizer, tables, step)


def scores(run: Run, documents: Sequence[Document], *, stride: int | None = None) -> list[Score]:
    """The score of each document under the model of a run.

    Their bytes are in it, unless the tokenizer loses text: what is lost would count as free.

    Args:
        stride: by how many tokens the windows advance; None: half of the context.
    """
    lossy = loses_text(run.tokenizer, documents)
    n_bytes = None if lossy else [document.n_bytes for document in documents]
    texts = [stream_of([document], run.tokenizer) for document in documents]
    return scores_of_ids(run, texts, stride=stride, n_bytes=n_bytes)


def scores_of_ids(
    run: Run, texts: Sequence[Tensor], *, stride: int | None, n_bytes: Sequence[int] | None
) -> list[Score]:
    """The same of M documents in ids, (T_m + 1,) each, from an end token to the next.

    Args:
        stride: as of `scores`.
        n_bytes: of each document; None: its tokenizer loses text.
    """
    context_length = run.model.config.context_length
    return document_scores(
        run.model,
        [text.to(device_of(run.model)) for text in texts],
        context_length=context_length,
        stride=max(1, context_length // 2) if stride is None else stride,
        n_bytes=n_bytes,
    )


def loses_text(tokenizer: Tokenizer, documents: Iterable[Document]) -> bool:
    """Whether some document does not come back from its ids, as with unknown words."""
    return UNKNOWN in tokenizer.specials and any(
        tokenizer.decode(tokenizer.encode(document.text)) != document.text for document in documents
    )


def world_of(tables: Mapping[str, Any]) -> MicroWorld | None:
    """The language of a run or a recipe whose text is "micro-world"; None for any other text.

    Raises:
        ValueError: a setting of the micro-world cannot be.
    """
    if tables.get("data", {}).get("text") != MICRO_WORLD:
        return None
    world = tables.get("world", {})
    return MicroWorld(**{name: value for name, value in world.items() if name != "documents"})


def floor_of(tables: Mapping[str, Any], documents: Sequence[Document]) -> Floor | None:
    """What a perfect model scores on documents of a run's micro-world; None for any other text.

    Args:
        tables: of the run, as in its `run.toml`.
    """
    if (world := world_of(tables)) is None:
        return None
    return world.floor_of([[*each.text.split(), microworld_words.END] for each in documents])


def read_toml(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        FileNotFoundError: there is none. ValueError: it is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected TOML in {path}, got something else: {error}") from error
