"""Which tokenizer belongs to a folder, and where is GPT-2's own to be had? No weights are read.

    a run              run.toml         tokenizer.json, ours
    shards of tokens   manifest.json    tokenizer.json, ours
    a released model   config.json      vocab.json with merges.txt, or tokenizer.json, its format

Source: the names are those of OpenAI's `encoder.py` (Radford et al. 2019) and of `transformers`.
Used by `gpt/runs`, and by `next_token/shards_of_files`, whose processes have no use for torch.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..tools import downloads
from .bpe import BytePairTokenizer, load
from .bytes import END, Tokenizer

TOKENIZER = "tokenizer.json"
SHARDS = "manifest.json"
SOURCE = "https://huggingface.co/openai-community"
GPT2_FILES = {  # SHA-256 of OpenAI's encoder.json and vocab.bpe, under the names they have there
    "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}


def gpt2_tokenizer(
    folder: str | os.PathLike[str] | None = None, *, source: str = SOURCE
) -> BytePairTokenizer:
    """GPT-2's own tokenizer, fetched unless its two files are there already. 1.5 MB.

    Args:
        folder: where they are kept; None: the cache of `src.tools.downloads`.
        source: an address below which `gpt2/resolve/main/vocab.json` lies, and `merges.txt`.
    Raises:
        src.tools.downloads.DownloadError: a file could not be fetched as it was published.
    """
    folder = Path(folder) if folder else downloads.cache_folder() / "gpt2"
    fetch_gpt2_files(folder, f"{source}/gpt2/resolve/main")
    return BytePairTokenizer.load_gpt2(folder)


def fetch_gpt2_files(folder: Path, place: str) -> None:
    """Fetch both files of GPT-2's tokenizer, which all its sizes share, from an address."""
    for name, known in GPT2_FILES.items():
        downloads.download(f"{place}/{name}", folder / name, sha256=known)


def open_tokenizer(folder: Path | str) -> Tokenizer:
    """The tokenizer of a run, of shards of tokens, or of a released model, without any weights.

    Raises:
        FileNotFoundError: the folder holds none of these, or no tokenizer.
        ValueError: its files are damaged.
    """
    folder = Path(folder)
    if (folder / SHARDS).exists():
        return load(folder / TOKENIZER)
    released, begun = kinds_in(folder)
    if released and not begun:
        return _released_tokenizer(folder)
    return load(folder / TOKENIZER)


def kinds_in(folder: Path) -> tuple[bool, bool]:
    """Whether a folder holds a model in the released format, and whether it holds a run."""
    released, begun = (folder / "config.json").exists(), (folder / "run.toml").exists()
    if not released and not begun:
        raise FileNotFoundError(
            f"expected a run (run.toml) or a released model (config.json) in {folder}, found "
            "neither; `train` makes a run"
        )
    return released, begun


def _released_tokenizer(folder: Path) -> BytePairTokenizer:
    """The tokenizer of a released model, from whichever of the two forms the folder holds."""
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        return BytePairTokenizer.load_gpt2(folder)
    if (path := folder / TOKENIZER).exists():
        return BytePairTokenizer.load_hugging_face(path, (END,))
    raise FileNotFoundError(
        f"expected a tokenizer in {folder}, vocab.json and merges.txt or tokenizer.json, found "
        "neither; `src.gpt.pretrained.download` fetches one together with the weights"
    )
