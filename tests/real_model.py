"""The packaged model as `transformers` reads it: once for all tests, without asking twice.

That reader parses the file three times and looks up its 272 names in 397 tables made anew for each.
Here it is given the same parsed file and the same table again; what it makes of them is its own.
"""

import functools
import os
from types import SimpleNamespace

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import gguf
import numpy as np
import torch
from gguf import gguf_reader
from tokenizers import pre_tokenizers

from src.today.gguf_models import packaged_file


class Numpy(SimpleNamespace):
    """NumPy, but for a file that is read instead of mapped: to cut pieces of it is three times as
    fast."""

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def memmap(path, mode):
        return np.fromfile(path, np.uint8)


def read_by_transformers(monkeypatch):
    """(model, tokenizer) of `transformers`."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    monkeypatch.setattr(gguf_reader, "np", Numpy())
    for name in ("GGUFReader", "get_tensor_name_map"):
        monkeypatch.setattr(gguf, name, functools.cache(getattr(gguf, name)))
    path = packaged_file()
    named = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**named, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(**named)


def cutting_digits(backend):
    """A tokenizer of the library that cuts digits one by one, as the model was published.

    To `transformers` a GGUF file of byte pairs is one of GPT-2's words, whatever it says: it
    leaves the step out.
    """
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.encode_special_tokens = True
    return backend
