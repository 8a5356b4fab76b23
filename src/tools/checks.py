"""Is this what a model can read? The checks that models of several rooms share.

They refuse with a message that names what was expected and what came instead. A model calls them
before it computes, so that a wrong id or a missing axis is not found out many lines later. What a
tensor holds is looked at where that costs nothing: on the CPU.
"""

import torch
from torch import Tensor


def readable(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor may be looked at in passing.

    A look at those on a GPU waits until it has done all its work, and inside torch.compile it would
    cut the program in two. There torch's own kernels refuse a wrong id, in words of their own.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def outside(numbers: Tensor, least: int, most: int) -> bool:
    """Whether any of the numbers, if they are `readable`, is below `least` or above `most`."""
    if not readable(numbers) or not numbers.numel():
        return False
    return not least <= int(numbers.min()) <= int(numbers.max()) <= most


def check_batch(ids: Tensor, vocabulary_size: int) -> None:
    """Refuse what is not a batch of texts, (B, T), of token ids below the vocabulary size.

    Raises:
        ValueError: another shape or type, or an id outside the vocabulary, if they are `readable`.
    """
    if ids.ndim != 2 or ids.dtype != torch.long:
        raise ValueError(
            f"expected ids of shape (B, T) and type torch.int64, got {tuple(ids.shape)} of type "
            f"{ids.dtype}; a single text needs a batch axis: ids[None]"
        )
    check_ids(ids, vocabulary_size)


def check_ids(ids: Tensor, vocabulary_size: int) -> None:
    """Refuse what are not whole numbers, or not below the vocabulary size, if `readable`."""
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"expected integer token ids, got {ids.dtype}")
    if outside(ids, 0, vocabulary_size - 1):
        raise ValueError(
            f"expected token ids from 0 to {vocabulary_size - 1}, got ids from {ids.min()} to "
            f"{ids.max()}; was the text encoded with another tokenizer?"
        )


def check_end(end: int | None, vocabulary_size: int) -> None:
    """Refuse an end token outside of the vocabulary."""
    if end is not None and not 0 <= end < vocabulary_size:
        raise ValueError(f"expected an end token from 0 to {vocabulary_size - 1}, got {end}")
