"""What noise of the same shape and scale is, and rows in another order, for values of any kind."""

import copy
import inspect
import random

DRAWS = random.Random(0)  # a changed run is a fork, so each begins here; no two calls draw alike


class UnchangedError(Exception):
    """The value is of a kind that noise does not reach: this was no mutation."""


def noise(value):
    """Noise of the same shape and scale: numbers drawn anew, choices made anew, texts shuffled."""
    return altered(value, DRAWS, rows=False)


def rows(value):
    """The same numbers in another order, along the first axis."""
    return altered(value, DRAWS, rows=True)


def altered(value, rng, *, rows):
    result = reordered(value, rng) if rows else noisy(value, rng)
    if result is None:
        raise UnchangedError(type(value).__name__)
    return result


def noisy(value, rng):
    kind = type(value).__module__.split(".")[0]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-2, -1, 1, 2, 3))
    if isinstance(value, float):
        return value * rng.uniform(-1, 2) if value else rng.gauss(0, 1)
    if isinstance(value, str):
        return reordered(value, rng)
    if isinstance(value, list | tuple | set | frozenset) and value:
        parts = [noisy(each, rng) for each in value]
        parts = [old if new is None else new for new, old in zip(parts, value, strict=True)]
        return rebuilt(value, parts)
    if isinstance(value, dict) and value:
        return rebuilt(value, dict(zip(value, noisy([*value.values()], rng), strict=True)))
    if kind == "numpy" and hasattr(value, "shape"):
        return noisy_array(value, rng)
    if kind == "torch" and hasattr(value, "is_floating_point"):
        return noisy_tensor(value, rng)
    if hasattr(value, "state_dict") and hasattr(value, "parameters"):
        return noisy_model(value, rng)
    if hasattr(value, "__dict__") and not callable(value) and not inspect.ismodule(value):
        other = copy.copy(value)
        for name, old in vars(value).items():
            new = noisy(old, rng)
            if new is not None:
                object.__setattr__(other, name, new)
        return other
    return None


def rebuilt(like, parts):
    """A container of the same class around new parts: a named tuple, a counter, …"""
    if hasattr(like, "_fields"):
        return type(like)(*parts)
    try:
        return type(like)(parts)
    except TypeError:
        other = copy.copy(like)
        other.clear()
        other.update(parts)
        return other


def noisy_array(value, rng):
    import numpy as np

    draw = np.random.default_rng(rng.randrange(2**32))
    if not value.size:
        return None
    if value.dtype == bool:
        return draw.random(value.shape) < 0.5
    if np.issubdtype(value.dtype, np.integer):
        return draw.integers(value.min(), value.max() + 2, value.shape).astype(value.dtype)
    if not np.issubdtype(value.dtype, np.floating):
        return None
    finite = value[np.isfinite(value)]
    mean, spread = (finite.mean(), finite.std()) if finite.size else (0.0, 1.0)
    spread = spread if spread > 0 else abs(mean) or 1.0
    return (mean + spread * draw.standard_normal(value.shape)).astype(value.dtype)


def noisy_tensor(value, rng):
    import torch

    plain = value.detach().cpu()
    array = noisy_array((plain.double() if plain.is_floating_point() else plain).numpy(), rng)
    if array is None:
        return None
    new = torch.as_tensor(array).to(value.device, value.dtype)
    return value - value.detach() + new if value.requires_grad else new  # the gradient goes on


def noisy_model(value, rng):
    import torch

    other = copy.deepcopy(value)
    with torch.no_grad():
        for each in other.parameters():
            each.copy_(noisy_tensor(each.detach(), rng))
    return other


def reordered(value, rng):
    if isinstance(value, str | list | tuple) and len(value) > 1 and not hasattr(value, "_fields"):
        parts = [*value]
        for _ in range(10):
            rng.shuffle(parts)
            if parts != [*value]:
                break
        return "".join(parts) if isinstance(value, str) else type(value)(parts)
    if isinstance(value, dict) and len(value) > 1:
        values = [*value.values()]
        return rebuilt(value, dict(zip(value, values[1:] + values[:1], strict=True)))
    if hasattr(value, "shape") and len(value.shape) and value.shape[0] > 1:
        order = [*range(value.shape[0])]
        rng.shuffle(order)
        return value[order]
    return None
