"""What do the commands of `next-token` do that need a model? All but `tokenize`.

Every setting of a run can stand in a TOML file (tables [data], [model], [training], [world]), and
most can be a flag, which wins. `NEXT_TOKEN_DEVICE` chooses the device. Several train together under
`torchrun --nproc_per_node=2 -m next_token train …`.

Used by `__main__`, which imports it only for these commands.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from src.gpt import gpt1_finetuning, pretrained, sampling
from src.gpt.gpt1_finetuning import FinetuneConfig
from src.gpt.released import Run, floor_of, read_toml, scores
from src.likelihood.evaluation import bootstrap, total
from src.texts import corpora, labelled
from src.tokens.files import naming
from src.tools import runtime

from . import gpus, llama, run_log, runs
from . import tuned as tuned_models
from .folders import open_tokenizer
from .pages import write_page
from .processes import joined
from .run_config import KNOWN, OF_TEXT, RunConfig
from .runs import config_in, train_run
from .streams import check_plain, unescaped
from .token_folders import MANIFEST, TokenFolder
from .yardsticks import yardsticks

# Adds a command, which is called as its function is: (function, options of argparse) -> its parser.
Add = Callable[..., argparse.ArgumentParser]

# Settings that have a flag: (table, name, type, what it is).
FLAGS = [
    ("data", "tokenizer", str, "byte-pair, or words; trained on the text"),
    ("data", "vocabulary_size", int, "the most tokens that the tokenizer may have"),
    ("data", "batch_size", int, "texts in a batch"),
    ("data", "seed", int, "of the weights, the order of the batches, and dropout"),
    ("data", "separator", str, "what stands between two documents; '\\n': a newline, '\\t': a tab"),
    ("model", "context_length", int, "the longest text that the model sees, in tokens"),
    ("model", "layers", int, "how many blocks"),
    ("model", "heads", int, "attention heads in a block; they divide the channels"),
    ("model", "channels", int, "width of the model"),
    ("model", "dropout", float, "share of activations dropped while training"),
    ("model", "norm_kind", str, "layer, or rms"),
    ("model", "activation", str, "gelu, gelu_tanh, relu or silu"),
    ("model", "gated", bool, "a gate in each feed-forward network"),
    ("model", "experts", int, "feed-forward networks a block, from which each token chooses"),
    ("model", "experts_used", int, "how many of them it uses (default 2)"),
    ("model", "experts_shift", float, "how fast shifts balance them, such as 0.001 (default 0)"),
    ("model", "positions", str, "learnt, rotary or none"),
    ("model", "kv_heads", int, "heads of keys and values, which divide the heads; 1: multi-query"),
    ("model", "qk_norm", bool, "norms of queries and keys"),
    ("model", "latent", int, "channels of latent attention, in place of keys and values"),
    ("model", "window", int, "how many tokens a local layer sees"),
    ("model", "global_every", int, "every n-th layer sees all, the others a window"),
    ("training", "steps", int, "how many updates"),
    ("training", "learning_rate", float, "the greatest; reached at the end of the warm-up"),
    ("training", "warm_up", int, "steps in which the rate rises; unless given, half at most"),
    ("training", "weight_decay", float, "of the matrices"),
    ("training", "end", float, "the share of the learning rate that is left at the last step"),
    ("training", "beta2", float, "of AdamW: how long it remembers the squares of gradients"),
    ("training", "clip", float, "the greatest norm of the gradient; inf: no limit"),
    ("training", "accumulation", int, "in how many parts a batch is taken: more need less memory"),
    ("training", "precision", str, "float32, or bfloat16 for the products of matrices"),
    ("training", "engine", str, "of several processes: sum, ddp or fsdp (least memory)"),
    ("training", "every", int, "steps between two validations"),
    ("training", "save_every", int, "steps between two checkpoints"),
]

FINETUNE_FLAGS = [
    ("steps", int, "how many updates"),
    ("learning_rate", float, "the greatest"),
    ("batch_size", int, "examples in a batch"),
    ("auxiliary", float, "weight of the language model's loss beside the task's"),
    ("frozen", int, "how many of the lowest blocks stay as they are, with the embeddings"),
    ("head_first", int, "steps before the others, in which only what is new learns"),
    ("every", int, "steps between two validations"),
    ("seed", int, "of the head, the order of the batches, dropout, and which labels are drawn"),
]


def train(options: argparse.Namespace) -> None:
    """Train a tokenizer and a GPT on a text; keep them in a folder."""
    flags = flags_of(options)
    kept = options.folder / "run.toml"
    precision = gpus.fast_precision(runtime.device(options.device))
    tables: list[dict] = [{"training": {"precision": precision}}, *settings_of(options, kept)]
    config = RunConfig.from_tables(*tables, flags)
    said = {name for t in (*tables, flags) for name in (*t.get("model", {}), *t.get("data", {}))}
    of_model = {*KNOWN["model"], "tokenizer", "vocabulary_size"}
    if config.data.init_from and not options.resume and (own := sorted(said & of_model)):
        raise ValueError(f"expected no {', '.join(own)} beside init_from, which has its own")
    if not options.resume:
        check_plain(config.data.text)
    if (refused := sorted(flags["data"].keys() & set(OF_TEXT))) and config.token_folder():
        raise ValueError(f"expected no {', '.join(refused)} for tokens: tokenize again")
    afresh = options.resume and not kept.exists()
    with joined() as team:
        if afresh and team.rank == 0:
            print(f"note: no run in {options.folder}: begun afresh", file=sys.stderr)
        device = runtime.device(options.device)
        history = train_run(
            config,
            options.folder,
            device=device,
            resume=options.resume,
            progress=not options.quiet,
            say=None if options.quiet else partial(print, flush=True),
            changed=lambda what: print(f"note: {what}", file=sys.stderr),
            sample_tokens=options.sample_tokens,
        )
        if team.rank == 0:
            best = history.best_step
            print(f"{config.training.steps:,} steps on {device}; least validation loss")
            print(f"{history.validation[best]:.4f} nats per token after {best:,} steps.")
            folder = shlex.quote(str(options.folder))
            print(f"Next: next-token sample {folder}   or   evaluate {folder}")


def settings_of(options: argparse.Namespace, kept: Path) -> list[dict]:
    """The tables that a run goes on with, and those of --config, which win.

    Args:
        kept: the file with the settings of what is in the folder.
    Raises:
        FileNotFoundError: there is nothing to go on with, and no text of something new.
    """
    found = [read_toml(options.config)] if options.config else []
    if options.resume and kept.exists():
        return [{t: v for t, v in read_toml(kept).items() if t in KNOWN}, *found]
    if options.resume and not options.text and not any("text" in t.get("data", {}) for t in found):
        raise FileNotFoundError(f"expected a run in {options.folder} to go on with, found none")
    return found


def flags_of(options: argparse.Namespace) -> dict[str, dict]:
    """The settings that stand on the line of `train`, by table."""
    flags: dict[str, dict] = {"data": {"text": options.text} if options.text else {}}
    for table, name, _, _ in FLAGS:
        if (value := getattr(options, name)) is not None:
            value = unescaped(value) if name == "separator" else value
            flags.setdefault(table, {})[name] = value
    if options.init_from is not None:
        flags["data"]["init_from"] = options.init_from
    if options.compile is not None:
        flags.setdefault("training", {})["compile"] = options.compile
    return flags


def evaluate(options: argparse.Namespace) -> None:
    """Score a text: the test part of the run's own, or any other."""
    run = _opened(options.folder)
    own = None if options.text or not run.tables else config_in(run.tables)
    token_folder, documents = own.token_folder() if own else None, []
    if own is not None:
        name = f"the test part of {own.data.text}"
        n_bytes = token_folder.parts["test"].bytes if token_folder else 0
        documents = [] if token_folder else list(runs.parts_of(run.tables).test)
        if not documents and not n_bytes:
            raise ValueError(f"{name} is empty: name a text")
    else:
        name = options.text or "python-docs"
        check_plain(name)
        documents = list(corpora.load(name))
    if token_folder:
        scored = runs.scores_of_tokens(run, token_folder, stride=options.stride)
    else:
        scored = scores(run, documents, stride=options.stride)
        n_bytes = sum(document.n_bytes for document in documents)
    score = total(scored)
    print(f"{name}: {len(scored)} documents, {n_bytes:,} bytes, {score.tokens:,} tokens")
    if score.n_bytes is None:
        unit = "nats per token"
        print(f"{score.loss:.4f} nats per token")
        print("no bits per byte: the tokenizer loses text, and what is lost would count as free")
    else:
        unit = "bits per byte"
        print(f"{score.loss:.4f} nats per token, {score.bits_per_byte:.4f} bits per byte")
    if len(scored) > 1:
        interval = bootstrap(scored, generator=torch.Generator().manual_seed(0), unit=unit)
        low, high = f"{interval.low:.4f}", f"{interval.high:.4f} {unit}"
        print(f"95 % of resamples of the documents: {low} to {high}")
    if own is not None and (floor := floor_of(run.tables, documents)):
        words = sum(len(document.text.split()) + 1 for document in documents)
        each = floor.loss * words / score.tokens  # the floor is per word
        print(f"a perfect model: {each:.4f} nats per token on these very documents")


def plot(options: argparse.Namespace) -> None:
    """Draw the validation losses of runs as an SVG."""
    if options.to.suffix.lower() != ".svg":
        raise ValueError(f"expected the name of an SVG after --to, got {options.to}")
    curves, unit, tokenizers = {}, "nats per token", set()
    for folder in options.folders:
        rows = run_log.read(folder / "log.csv")
        if not rows:
            raise FileNotFoundError(f"expected {folder / 'log.csv'} of `train`, found no lines")
        curves[str(folder)] = rows
        tokenizers.add((folder / "tokenizer.json").read_bytes())
    lines = yardsticks(options.folders[0], order=options.ngram)
    column = "validation_loss"
    if len(tokenizers) > 1:  # a token is not the same for all
        column, unit = "bits_per_byte", "bits per byte"
        if lossy := [name for name, rows in curves.items() if rows[0][column] is None]:
            raise ValueError(f"expected bits per byte, got {lossy[0]}, whose tokenizer loses text")
        first = curves[str(options.folders[0])][0]
        per_nat = (first[column] or 0) / (first["validation_loss"] or 1)
        lines = {name: height * per_nat for name, height in lines.items()}
    points = {
        n: ([r["step"] for r in rows], [r[column] for r in rows]) for n, rows in curves.items()
    }
    options.to.write_text(_drawn(points, f"validation loss ({unit})", lines), "utf-8")
    print(f"{options.to}: the runs {', '.join(curves)}")
    for name, height in lines.items():
        print(f"{name}: {height:.4f} {unit}")


def _drawn(curves: Mapping[str, tuple], label: str, lines: Mapping[str, float]) -> str:
    """Curves by name, each (steps, losses), as the text of an SVG, and heights as dashed lines."""
    try:
        from src.tools import figures
    except ModuleNotFoundError as error:
        raise ValueError(
            f"expected the extra for figures ({error}): install next-token[figures]"
        ) from error
    with figures.mpl.rc_context():
        figures.use_style()
        figure = figures.Figure()
        axes = figure.subplots()
        for name, points in curves.items():
            axes.plot(*np.array(points, dtype=float), label=name)
        for name, height in lines.items():
            figures.baseline(axes, height, name)
        axes.set(xlabel="steps", ylabel=label)
        axes.legend()
        return figures.svg_of(figure)


def filters_of(options: argparse.Namespace) -> list[sampling.Filter]:
    """What --temperature, --top-k, --top-p and --min-p do to the logits, in this order."""
    filters: list[sampling.Filter] = [partial(sampling.temperature, t=options.temperature)]
    if options.top_k is not None:
        filters.append(partial(sampling.top_k, k=options.top_k))
    if options.top_p is not None:
        filters.append(partial(sampling.nucleus, p=options.top_p))
    if options.min_p is not None:
        filters.append(partial(sampling.min_p, p=options.min_p))
    return filters


def add_sampling(parser: argparse.ArgumentParser, *, tokens: int, temperature: float) -> None:
    """The flags that say how a text is drawn, with two of their defaults."""
    of_temperature = f"0: the likeliest (default {temperature:g})"
    parser.add_argument("--tokens", type=int, default=tokens, help=f"at most (default {tokens})")
    parser.add_argument("--temperature", type=float, default=temperature, help=of_temperature)
    parser.add_argument("--top-k", type=int, help="only from the k likeliest tokens")
    parser.add_argument("--top-p", type=float, help="only from the nucleus of this probability")
    parser.add_argument("--min-p", type=float, help="only so many times as likely as the best")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same text")


def sample(options: argparse.Namespace) -> None:
    """Draw texts that go on from a prompt."""
    run = _opened(options.folder)
    filters = filters_of(options)
    prompt = [run.end, *run.tokenizer.encode(options.prompt)]
    texts = sampling.generate(
        run.model,
        [prompt] * options.texts,
        max_new_tokens=options.tokens,
        filters=filters,
        stop=run.end,
        generator=torch.Generator().manual_seed(options.seed),
    )
    for number, text in enumerate(texts):
        if number:
            print("-" * 72)
        ids = [token for token in text.tolist() if token != run.end]
        print(run.tokenizer.decode(ids))


def fetch(options: argparse.Namespace) -> None:
    """Fetch a published text or model, once; later commands find it."""
    if options.name in corpora.REMOTES:
        corpus = corpora.load(options.name)
        print(f"{options.name}: {corpus.n_bytes:,} bytes")
        print(f"Next: next-token train {options.name} --folder RUN")
    else:
        folder = pretrained.download(pretrained.SIZES[options.name], options.folder)
        print(folder)
        folder = shlex.quote(str(folder))
        print(f"Next: next-token sample {folder}   or   train TEXT --init-from {folder}")


def tokens(options: argparse.Namespace) -> None:
    """Show the tokens of a text, one a line: id and spelling."""
    tokenizer = open_tokenizer(options.folder)
    text = sys.stdin.read() if options.text == "-" else options.text
    ids = tokenizer.encode(text)
    for token in ids:
        print(f"{token:6}  {tokenizer.token_bytes(token).decode('utf-8', 'backslashreplace')!r}")
    n_bytes = len(text.encode())
    print(f"{len(ids)} tokens, {n_bytes} bytes")


def info(options: argparse.Namespace) -> None:
    """Say what a folder holds."""
    folder, tables = options.folder, {}
    if (folder / MANIFEST).exists():
        held = TokenFolder(folder)
        print(f"{held.tokenizer.vocabulary_size:,} different tokens")
        for name, part in held.parts.items():
            print(f"{name}: {part}")
    elif (folder / "task.json").exists():
        tuned = tuned_models.load(folder)
        parameters = sum(each.numel() for each in tuned.model.parameters())
        print(f"{parameters:,} parameters, fine-tuned")
        print(f"{tuned.forms.family}: {', '.join(tuned.forms.labels)}")
    elif (adapter := folder / "adapter.toml").exists():
        print("an adapter: low-rank maps beside a model")
        tables = read_toml(adapter)
    else:
        run = _opened(folder)
        config, tables = run.model.config, run.tables
        print(f"{config.parameters:,} parameters, {config.flops_per_token():,} operations a token")
        print(config)
        if run.step is not None:
            print(f"weights of step {run.step:,}")
    for table, values in tables.items():
        print(f"[{table}]", *(f"{name} = {value!r}" for name, value in values.items()), sep="\n  ")


def release(options: argparse.Namespace) -> None:
    """Write a run for others to use: weights in GPT-2's or Llama's format, settings, tokenizer."""
    runs.release(_opened(options.folder), options.to)
    size = sum(path.stat().st_size for path in options.to.iterdir())
    print(f"{options.to}: {size:,} bytes")


def page(options: argparse.Namespace) -> None:
    """Write one HTML file on which the model of a run writes; it opens from any folder."""
    write_page(options.folder, options.to, order=options.ngram)
    print(f"{options.to}: {options.to.stat().st_size:,} bytes")


def finetune(options: argparse.Namespace) -> None:
    """Teach a run a task from a file of labelled examples; keep the model in a folder."""
    runs.check_free(options.folder)
    given = {name: getattr(options, name) for name, _, _ in FINETUNE_FLAGS}
    config = FinetuneConfig(**{name: value for name, value in given.items() if value is not None})
    task = labelled.load(options.task)
    if options.labels is not None:
        generator = torch.Generator().manual_seed(config.seed)
        task = task.with_labels(options.labels, generator=generator)
    run = _opened(options.run)
    tuned = gpt1_finetuning.finetune(
        run.model, run.tokenizer, task, config, cut=options.cut, progress=not options.quiet
    )
    tuned_models.save(tuned, options.folder)
    best = tuned.history.best_step
    print(f"{task.family}: {', '.join(task.labels)}; {len(task.train):,} examples to learn from")
    loss = tuned.history.validation[best]
    print(f"least validation loss: {loss:.4f} nats per example, after {best:,} steps")
    for name, part in (("validation", task.validation), ("test", task.test)):
        if part:
            share = gpt1_finetuning.accuracy(tuned, part)
            print(f"{name}: {share:.1%} of {len(part):,} examples right")
    if task.test:
        print(f"chance: {task.chance:.1%}, the best constant answer on the test part")
    print(f"Next: next-token classify {shlex.quote(str(options.folder))} FILE")


def classify(options: argparse.Namespace) -> None:
    """Print label and probability for each line of a file; a blank line stays blank."""
    tuned = tuned_models.load(options.folder, device=runtime.device())
    if options.cut:
        tuned = replace(tuned, forms=replace(tuned.forms, cut=True))
    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_bytes().decode()
    text = text.removeprefix("\ufeff")  # a byte-order mark
    lines = text.removesuffix("\n").split("\n")  # splitlines would cut at U+2028 and others, too
    examples = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            with naming(f"line {number}"):
                examples.append(_texts(line, tuned.forms.family))
                tuned.forms.tensors(examples[-1:])  # refused here rather than among all others
    answers = iter(gpt1_finetuning.predict(tuned, examples))
    for line in lines:
        if not line.strip():
            print()
            continue
        probs = next(answers)
        best = int(probs.argmax())
        print(f"{tuned.forms.labels[best]}\t{float(probs[best]):.4f}")


def _texts(line: str, family: str) -> tuple[str, ...]:
    """The texts of a line: a JSON object as in a file of examples, or texts with tabs between."""
    if not line.lstrip().startswith("{"):
        return tuple(part.strip() for part in line.split("\t"))
    try:
        return labelled.texts_of(json.loads(line), family)
    except (json.JSONDecodeError, KeyError, RecursionError) as error:
        keys = ", ".join(labelled.KEYS[family])
        raise ValueError(f"expected a JSON object with {keys} for {family}: {error}") from error


def _opened(folder: Path) -> Run:
    return llama.open_run(folder, device=runtime.device())


def add_to(command: Add) -> argparse.ArgumentParser:
    """Add all these commands to a parser; return that of `train`, which has more to it."""
    one = of_train = command(train)
    what = "a UTF-8 file, a folder that tokenize made, python-docs, shakespeare or micro-world"
    one.add_argument("text", nargs="?", help=what)
    one.add_argument("--folder", type=Path, required=True, help="where the run is kept")
    one.add_argument("--config", type=Path, help="a TOML file of settings")
    what = "go on with the run in the folder, with its settings; --steps, --batch-size, "
    what += "--accumulation, --precision, --compile, --engine, --every, --save-every may be others"
    one.add_argument("--resume", action="store_true", help=what)
    one.add_argument("--quiet", action="store_true", help="no progress bar, no lines")
    what = "how long a text is drawn after each validation; 0: none (default 40)"
    one.add_argument("--sample-tokens", type=int, default=40, metavar="INT", help=what)
    what = "turn model and loss into one program first, which takes a minute"
    one.add_argument("--compile", action=argparse.BooleanOptionalAction, help=what)
    what = "a run or a released model to train further, with its tokenizer; with --lora a GGUF file"
    one.add_argument("--init-from", metavar="FOLDER", help=what)
    one.add_argument("--device", help="cpu, cuda, cuda:1, mps (default: the best there is)")
    defaults = RunConfig().tables()
    for table, name, kind, what in FLAGS:
        default = defaults[table].get(name)
        values = {"type": kind, "metavar": kind.__name__.upper()}
        one.add_argument(
            f"--{name.replace('_', '-')}",
            **({"action": argparse.BooleanOptionalAction} if kind is bool else values),
            help=what + ("" if default in (None, "") else f" (default {default})"),
        )

    one = command(evaluate)
    _add_folder(one)
    one.add_argument("text", nargs="?", help="a UTF-8 file or a name; default: the run's test part")
    one.add_argument("--stride", type=int, help="tokens from window to window (default: half one)")

    one = command(plot)
    one.add_argument("folders", nargs="+", type=Path, metavar="folder", help="of a run")
    one.add_argument("--to", type=Path, default=Path("runs.svg"), help="default: runs.svg")
    what = "beside an n-gram model of N tokens, counted on the first run's training part"
    one.add_argument("--ngram", type=int, metavar="N", help=what)

    one = command(sample)
    _add_folder(one)
    one.add_argument("--prompt", default="", help="what the text begins with (default: nothing)")
    one.add_argument("--texts", type=int, default=1, help="how many (default 1)")
    add_sampling(one, tokens=200, temperature=1.0)

    one = command(fetch)
    one.add_argument("name", choices=[*corpora.REMOTES, *pretrained.SIZES], help="what is fetched")
    one.add_argument("--folder", type=Path, help="where to put a model (default: the user's cache)")

    one = command(tokens)
    _add_folder(one)
    one.add_argument("text", help="the text itself; - reads it from the standard input")

    _add_folder(command(info))

    one = command(release)
    _add_folder(one)
    one.add_argument("to", type=Path, help="a new folder")

    one = command(page)
    _add_folder(one)
    one.add_argument("--to", type=Path, required=True, help="the page: a new file")
    one.add_argument("--ngram", type=int, metavar="N", help="tell the loss of an n-gram model, too")

    one = command(finetune)
    one.add_argument("run", type=Path, help="folder of a run, or of a released model")
    one.add_argument("task", type=Path, help="examples, one JSON object a line")
    one.add_argument("--folder", type=Path, required=True, help="where the model is kept")
    one.add_argument("--labels", type=int, help="learn from so many examples (default: all)")
    _add_cut(one)
    one.add_argument("--quiet", action="store_true", help="no progress bar")
    for name, kind, what in FINETUNE_FLAGS:
        what += f" (default {getattr(FinetuneConfig, name)})"
        flag, metavar = f"--{name.replace('_', '-')}", kind.__name__.upper()
        one.add_argument(flag, type=kind, metavar=metavar, help=what)

    one = command(classify)
    one.add_argument("folder", type=Path, help="of a fine-tuned model")
    what = "lines as in a file of examples, or texts with tabs between (default -: standard input)"
    one.add_argument("file", nargs="?", default="-", help=what)
    _add_cut(one)
    return of_train


def _add_cut(one: argparse.ArgumentParser) -> None:
    one.add_argument("--cut", action="store_true", help="cut texts that are too long at their ends")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="of a run, or of a released model")
