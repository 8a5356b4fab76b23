"""Is this what a model can read? The checks that models of several rooms share.

They refuse with a message that names what was expected and what came instead. A model calls them
before it computes, so that a wrong id or a missing axis is not found out many lines later.
"""

import torch
from torch import Tensor


def check_batch(ids: Tensor, vocabulary_size: int) -> None:
    """Refuse what is not a batch of texts, (B, T), of token ids below the vocabulary size.

    Inside torch.compile only shape and type are looked at: a look at the ids would cut the program.

    Raises:
        ValueError: another shape or type, or an id outside the vocabulary.
    """
    if ids.ndim != 2 or ids.dtype != torch.long:
        raise ValueError(
            f"expected ids of shape (B, T) and type torch.int64, got {tuple(ids.shape)} of type "
            f"{ids.dtype}; a single text needs a batch axis: ids[None]"
        )
    if not torch.compiler.is_compiling():
        check_ids(ids, vocabulary_size)


def check_ids(ids: Tensor, vocabulary_size: int) -> None:
    """Refuse what are not whole numbers, or not below the vocabulary size."""
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"expected integer token ids, got {ids.dtype}")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary_size:
        raise ValueError(
            f"expected token ids from 0 to {vocabulary_size - 1} (a vocabulary of "
            f"{vocabulary_size}), got ids from {int(ids.min())} to {int(ids.max())}; "
            "was the text encoded with another tokenizer?"
        )


def check_end(end: int | None, vocabulary_size: int) -> None:
    """Refuse an end token outside of the vocabulary."""
    if end is not None and not 0 <= end < vocabulary_size:
        raise ValueError(
            f"expected an end token from 0 to {vocabulary_size - 1}, the vocabulary, got {end}"
        )


def check_sizes(**sizes: int) -> None:
    """Refuse sizes below 1, by their names."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"expected {name} to be at least 1, got {size}")
