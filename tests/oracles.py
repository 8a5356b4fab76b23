"""What the tests of `src` share: something to compute with, and how far two results are apart."""

import torch


def normal(*shape, seed=1):
    """Standard normal numbers of 64 bits, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def greatest_difference(ours, theirs):
    """The greatest absolute difference of two tensors, printed (`pytest -rP` shows it)."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} against {tuple(theirs.shape)}"
    difference = float((ours.detach() - theirs.detach()).abs().max())
    print(f"greatest difference {difference:.2e}")
    return difference


def gradients(output, *inputs):
    """The gradients of a fixed, uneven sum of the outputs with respect to the inputs."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weights).sum(), inputs, retain_graph=True)
