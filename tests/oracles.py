"""What the tests of `src` share: how far two results are apart."""

import torch


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
