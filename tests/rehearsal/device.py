"""A device to rehearse on, where there is no GPU.

Its tensors say that they are on `rehearsed:0`. Their numbers are on the CPU, out of reach: torch
hands every operation on them to `Rehearsed.__torch_dispatch__`, which refuses what a GPU refuses,
and computes the rest on the CPU.

- All tensors of an operation are on one device. A CPU tensor without axes is a number, and may meet
  others element by element; indices on the CPU may pick from a tensor of the device, as in `x[i]`.
- What is drawn for the device comes from random numbers of its own. A generator of the CPU is
  refused.
- NumPy, and so matplotlib, cannot see the numbers before `.cpu()`.

torch keeps a name for devices that it does not know, PrivateUse1, and lets Python say what such a
device does: `install`.
"""

from copy import deepcopy
from functools import cache, partial
from typing import NamedTuple

import torch
from torch._decomp.decompositions import lstm_impl
from torch.utils import _foreach_utils, backend_registration
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten
NAME = "rehearsed"
ACROSS = {aten._to_copy.default, aten.copy_.default}  # from one device to another
PUTS = {aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
PICKS = {aten.index.Tensor, aten._unsafe_index.Tensor} | PUTS
FILLS = {getattr(aten, f).Tensor for f in ("fill", "fill_", "masked_fill", "masked_fill_")}
INSTEAD = {aten.lstm.input: lstm_impl}  # torch itself would look for a GPU's kernel

# What makes a tensor; other ways of making one come down to these.
MAKES = "empty.memory_format empty_strided linspace eye eye.m arange arange.start arange.start_step"
# What autocast computes in the short type, and what in 32 bits, as on a GPU (autocast_mode.h).
SHORT = (
    "linear matmul mm mv bmm addmm addmv addbmm baddbmm einsum "
    "convolution conv1d conv2d scaled_dot_product_attention"
)
PRECISE = (
    "exp log log2 log1p expm1 rsqrt pow.Tensor_Scalar softplus logsumexp softmax.int "
    "log_softmax.int cumsum cumprod prod sum sum.dim_IntList "
    "layer_norm nll_loss kl_div mse_loss binary_cross_entropy_with_logits"
)


class Rehearsed(torch.Tensor):
    """A tensor of the rehearsed device; its `numbers` are a tensor on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers):
        size, stride, offset = numbers.size(), numbers.stride(), numbers.storage_offset()
        options = {"dtype": numbers.dtype, "device": torch.device(NAME, 0)}
        made = torch.Tensor._make_wrapper_subclass(cls, size, stride, offset, **options)
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})

    # torch's own methods look at the memory, where nothing lies.

    def numpy(self, *, force=False):
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        return self.detach().cpu().numpy()

    def tolist(self):
        return self.detach().cpu().tolist()

    def untyped_storage(self):
        return self.numbers.untyped_storage()

    def data_ptr(self):
        return self.numbers.data_ptr()

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support deepcopy")
        if id(self) not in memo:
            copied = memo[id(self)] = Rehearsed(deepcopy(self.numbers, memo))
            copied.requires_grad_(self.requires_grad).grad = deepcopy(self.grad, memo)
            copied._is_param = getattr(self, "_is_param", False)
        return memo[id(self)]

    def __format__(self, spec):
        return format(self.numbers.detach(), spec)

    def __repr__(self, **_):
        return f"{self.numbers.detach()!r} on {self.device}"

    def __reduce_ex__(self, protocol):
        """What `torch.save` keeps: the numbers, and on which device they were."""
        parts = self.detach().cpu(), self.dtype, str(self.device), self.requires_grad
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, parts


# ---- one operation ----------------------------------------------------------------------------


class Nature(NamedTuple):
    """What is to be known of an operation.

    Attributes:
        composite: whether it is made of others.
        draws: whether random numbers decide.
        elementwise: whether elements meet, and so a number from the CPU may come.
        returns: places of the arguments that it writes to and returns; None: it writes to none.
    """

    composite: bool
    draws: bool
    elementwise: bool
    returns: list[int] | None


@cache
def nature(func):
    aliases = [each.alias_info for each in func._schema.returns]
    if func._schema.is_mutable and not all(info and info.is_write for info in aliases):
        raise NotImplementedError(f"the rehearsed device cannot do {func} yet")
    sets = [a.alias_info and a.alias_info.before_set for a in func._schema.arguments]
    return Nature(
        func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd),
        torch.Tag.nondeterministic_seeded in func.tags,
        torch.Tag.pointwise in func.tags or func in PUTS | FILLS,
        [sets.index(i.before_set) for i in aliases] if func._schema.is_mutable else None,
    )


def computed(func, args, kwargs):
    """What an operation gives, if a GPU does it."""
    composite, draws, _, returns = nature(func)
    if composite:  # in inference mode only; else torch has taken it to pieces before
        return INSTEAD.get(func, func.decompose)(*args, **kwargs)
    if func.is_view and torch.is_inference_mode_enabled() and not args[0].is_inference():
        with torch.inference_mode(False):  # a view is of inference mode if its tensor is
            return computed(func, args, kwargs)
    refuse(func, args, kwargs)
    inside = {name: numbers_of(value) for name, value in kwargs.items() if name != "pin_memory"}
    target = inside.get("device") or torch.device(NAME)
    if "device" in inside:
        inside["device"] = torch.device("cpu")
    compute = partial(func, *map(numbers_of, args), **inside)
    result = random.spent(compute) if draws and not inside.get("generator") else compute()
    if torch.Tag.inplace_view in func.tags:  # the shape changes, and with it what the tensor says
        return return_and_correct_aliasing(func, args, kwargs, result)
    if returns is not None:
        return written(func, returns, args, kwargs)
    return on_device(result) if torch.device(target).type == NAME else result


def written(func, places, args, kwargs):
    """The arguments that an operation wrote to."""
    names = [argument.name for argument in func._schema.arguments]
    found = [args[i] if i < len(args) else kwargs[names[i]] for i in places]
    for tensor in tensors_in(found):
        if isinstance(tensor, Rehearsed) and tensor.shape != tensor.numbers.shape:
            raise NotImplementedError(f"the rehearsed device cannot change a shape: {func}")
    return found[0] if len(found) == 1 else tuple(found) or None


def tensors_in(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def numbers_of(value):
    if isinstance(value, Rehearsed):
        return value.numbers
    return type(value)(map(numbers_of, value)) if isinstance(value, list | tuple) else value


def on_device(result):
    if isinstance(result, torch.Tensor):
        return Rehearsed(result)
    return type(result)(map(on_device, result)) if isinstance(result, list | tuple) else result


# ---- what a GPU refuses -----------------------------------------------------------------------


def refuse(func, args, kwargs):
    """Raise what torch raises on a GPU, if it would."""
    values = (*args, *kwargs.values())
    if any(isinstance(g, torch.Generator) and g.device.type == "cpu" for g in values):
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
    tensors = list(tensors_in(values))
    if func in ACROSS or all(isinstance(tensor, Rehearsed) for tensor in tensors):
        return
    into_cpu = not isinstance(tensors[0], Rehearsed)
    if func in PICKS:
        if into_cpu:
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        tensors = tensors_in(args[2:3])  # what is put there
    _, _, elementwise, returns = nature(func)
    axes = [tensor.dim() for tensor in tensors if not isinstance(tensor, Rehearsed)]
    if any(axes) or (axes and not elementwise) or (returns and into_cpu):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{NAME}:0 and cpu! (in {func})"
        )


# ---- the device as a whole --------------------------------------------------------------------


class Backend(backend_registration._DummyBackendModule):
    """`torch.rehearsed`: what torch asks of a device, and the device's random numbers."""

    def __init__(self):
        self.manual_seed_all(0)

    def manual_seed_all(self, seed):
        self.state = torch.Generator().manual_seed(seed).get_state()

    def get_rng_state(self, device=None):
        return self.state.clone()

    def set_rng_state(self, state, device=None):
        self.state = state.clone()

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    def synchronize(self, device=None):
        """Nothing to wait for."""

    def spent(self, compute):
        """What is computed with the device's random numbers as the global ones."""
        outside = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            return compute()
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(outside)


random = Backend()
libraries = []  # what is registered lives as long as they do


def install():
    """Make the device known to torch, in this process and for good; return it."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=random)
    _foreach_utils._foreach_supported_types.append(Rehearsed)  # optimisers work as on a GPU
    torch.__future__.set_swap_module_params_on_conversion(True)  # `.to` keeps the parameters
    ours, all_else = (torch.library.Library(name, "IMPL") for name in ("aten", "_"))
    libraries.extend((ours, all_else))
    for name in MAKES.split():
        ours.impl(name, partial(made, operation(name)), "PrivateUse1")
    ours.impl("_copy_from", copy_from, "PrivateUse1")  # this and the next: in torch.tensor(…)
    ours.impl("_local_scalar_dense", lambda tensor: tensor.numbers.item(), "PrivateUse1")
    ours.impl("lstm.input", lstm_impl, "AutogradPrivateUse1")
    all_else.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, precise in ((SHORT, False), (PRECISE, True)):
        for name in names.split():
            ours.impl(name, partial(cast, operation(name), precise), "AutocastPrivateUse1")
    return torch.device(NAME, 0)


def operation(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def made(func, *args, device=None, pin_memory=None, **kwargs):
    """A new tensor of the device."""
    return Rehearsed(func(*args, device="cpu", **kwargs))


def copy_from(source, target, non_blocking=False):
    numbers_of(target).copy_(numbers_of(source))
    return target


def cast(func, precise, *args, **kwargs):
    """An operation inside of `torch.autocast`."""
    dtype = torch.float32 if precise else torch.get_autocast_dtype(NAME)

    def one(value):
        if isinstance(value, list | tuple):
            return type(value)(map(one, value))
        eligible = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if eligible and value.dtype != torch.float64 else value

    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    with torch._C._ExcludeDispatchKeyGuard(autocast):
        return func(*map(one, args), **{name: one(value) for name, value in kwargs.items()})
