"""How do several processes agree, and find each other again after one has died?

One process is a team of one, and waits for nobody. Processes on several machines need a file system
that all of them see: only the first writes checkpoints, and all read them. One that waits for the
others gives up after ten minutes, or after NEXT_TOKEN_TIMEOUT seconds. One that dies ends the run:
the others lose its connection, and torchrun stops them; with `--max-restarts` it starts all of them
again, which `train --resume` is made for.

Used by `engines`, `runs` and the command line. Source: Li et al. 2020, for the idea.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from src.tools import parallel


class Team(parallel.Team):
    """The processes that train together, and what they do together."""

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in place, in a single exchange.

        All processes pass tensors of the same shapes, in the same order.
        """
        if self.size == 1 or not tensors:
            return
        together = torch.cat([tensor.reshape(-1) for tensor in tensors])
        distributed.all_reduce(together)
        parts = together.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def share(self, model: nn.Module) -> None:
        """Give every process the parameters and buffers of the first."""
        if self.size > 1:
            for tensor in model.state_dict().values():
                distributed.broadcast(tensor, src=0)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in order of rank, in each of them."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Go on when all have come here."""
        if self.size > 1:
            distributed.barrier()

    def check_shared(self, folder: Path | str) -> None:
        """Raise a ValueError in all processes unless all see what the first writes to a folder."""
        if self.size == 1:
            return
        path = Path(folder) / f".{self.gather(secrets.token_hex(8))[0]}"
        if self.rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        self.wait()
        seen = self.gather(path.exists())
        if self.rank == 0:
            path.unlink()
        if not all(seen):
            blind = [rank for rank, sees in enumerate(seen) if not sees]
            raise ValueError(f"expected a shared file system, {folder} is not seen by {blind}")


def team() -> Team:
    """The processes that have joined: one alone, unless inside `joined()` under torchrun."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Team()
    return Team(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def joined() -> Iterator[Team]:
    """Inside the block, the processes that torchrun has started work together.

    On GPUs each takes the one of its local rank, and they talk by nccl; on CPUs, by gloo. In a
    program that torchrun has not started, nothing happens.

    Raises:
        ValueError: NEXT_TOKEN_TIMEOUT is no number above 0.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or team().size > 1:
        yield team()
        return
    on_gpu = torch.cuda.is_available() and os.environ.get("NEXT_TOKEN_DEVICE", "cuda") != "cpu"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    wait = _timeout()
    store, rank, size = next(distributed.rendezvous("env://", timeout=wait))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # Started again, processes find in torchrun's store the addresses of those that died. (On
        # several machines the counts may differ: there TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 helps.)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = distributed.PrefixStore(f"attempt {attempt}", store)
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
    try:
        yield team()
    finally:
        distributed.destroy_process_group()


@contextmanager
def locked(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Inside the block no other process gets in; when one is killed, its lock goes with it.

    Args:
        folder: which is made where it is missing; None: nothing is locked.
    Raises:
        BlockingIOError: another process is inside.
    """
    if folder is None or os.name != "posix":
        yield
        return
    import fcntl

    Path(folder).mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"expected to be alone in {folder}, another process trains there: wait until it "
                "ends, or choose another folder"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _timeout() -> timedelta:
    """How long a process waits for another before it gives up."""
    text = os.environ.get("NEXT_TOKEN_TIMEOUT", "600")
    if not (text.isdecimal() and int(text)):
        raise ValueError(f"expected NEXT_TOKEN_TIMEOUT in seconds, above 0, got {text!r}")
    return timedelta(seconds=int(text))
