"""The command line: ``next-token COMMAND``, see ``next-token --help``.

``python -m next_token COMMAND`` is the same, and so is ``torchrun -m next_token COMMAND``. What a
command does is in `run_commands` and `model_commands`; only ``tokenize`` is here, which has no use
for torch, nor have the processes that it starts: they import this module, too. Exit status: 0 done,
1 it could not be done (the message says why), 2 the command was not understood, 130 interrupted,
141 nobody reads the output any more.
"""

import argparse
import io
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .streams import unescaped
from .tokenizing import tokenize_files

CONTEXT = 128  # tokens, of a model unless told otherwise; `RunConfig` would bring in torch
IN_FLAGS = {"document_separator": "--separator", "cut=True": "--cut"}  # how `src` calls them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser(light=arguments[:1] == ["tokenize"]).parse_args(arguments)
    warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"  # no line of source
    if isinstance(sys.stdout, io.TextIOWrapper):  # which may not know all characters of a sample
        sys.stdout.reconfigure(errors="replace")
    try:
        options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads the output has seen enough, as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("\ninterrupted; a run that was saved goes on with --resume", file=sys.stderr)
        return 130
    except (OSError, ValueError, MemoryError, FloatingPointError) as error:
        message = str(error)
        for argument, flag in IN_FLAGS.items():
            message = message.replace(argument, flag)
        print(f"error: {message}", file=sys.stderr)
        return 1
    return 0


def tokenize(options: argparse.Namespace) -> None:
    """Write the tokens of files of any size to a folder, from which `train` reads them."""
    made = tokenize_files(
        options.files,
        options.folder,
        tokenizer=options.tokenizer,
        separator=unescaped(options.separator) if options.separator else None,
        field=options.field,
        validation=options.validation,
        test=options.test,
        processes=options.processes,
        progress=not options.quiet,
    )
    print(f"{made.tokenizer.vocabulary_size:,} different tokens")
    for name, part in made.parts.items():
        print(f"{name}: {part}")
    held, folder = made.parts["validation"].tokens, shlex.quote(str(options.folder))
    if held <= CONTEXT:
        print(
            f"`train` cannot read this folder: its validation part has {held:,} tokens, and needs "
            f"more than the context ({CONTEXT} unless told otherwise). Give more text, a larger "
            "--validation, or a --separator that makes more documents of it"
        )
    else:
        print(f"Next: next-token train {folder} --folder RUN")


def _parser(*, light: bool) -> argparse.ArgumentParser:
    """The parser of all commands, or of those that need no torch."""
    parser = argparse.ArgumentParser(
        prog="next-token",
        description="Train, score and sample small GPTs; the companion of the book The Next Token.",
        epilog="NEXT_TOKEN_DEVICE=cpu|cuda|mps chooses the device. "
        "Status: 0 done, 1 could not be done, 2 not understood, 130 interrupted.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(
        function: Callable[[argparse.Namespace], None], **options: Any
    ) -> argparse.ArgumentParser:
        text = (function.__doc__ or "").strip()
        added = commands.add_parser(function.__name__, help=text, description=text, **options)
        added.set_defaults(command=function)
        return added

    one = command(tokenize)
    what = "UTF-8 text, or JSON objects by line (.jsonl); .gz, .zst"
    one.add_argument("files", nargs="+", help=what)
    one.add_argument("--folder", type=Path, required=True, help="where the tokens are kept: new")
    what = "bytes, characters, gpt2, a folder that holds one, or a number: the size of a "
    what += "vocabulary, whose merges are learnt (default 8192)"
    one.add_argument("--tokenizer", default="8192", help=what)
    what = "what stands between two documents of plain text; '\\n': a newline, '\\t': a tab "
    what += "(default: cut at blank lines, into blocks of 16,384 characters or more)"
    one.add_argument("--separator", help=what)
    one.add_argument("--field", default="text", help="where an object has its text (default text)")
    for name in ("validation", "test"):
        what = "share of the documents (default 0.1)"
        one.add_argument(f"--{name}", type=float, default=0.1, help=what)
    one.add_argument("--processes", type=int, help="how many encode (default: one for each core)")
    one.add_argument("--quiet", action="store_true", help="no progress bar")
    if not light:
        from . import model_commands as of_models
        from . import run_commands as of_runs

        of_models.add_to(command, of_runs.add_to(command))
    return parser


if __name__ == "__main__":
    sys.exit(main())
