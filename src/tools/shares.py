"""How does a run save a model that no single process could hold, and go on training meanwhile?

    last.pt            settings, step, random states, losses, and the name of a folder
    step-00000100/     each process's share of weights and moments, in files of its own

Each process copies its share to the CPU's memory, and a thread of it writes the copy while the next
steps are taken (`torch.distributed.checkpoint`). When all shares are on the disk, `last.pt` is
replaced, which names them; until then it names those before. The shares of any number of processes
are read by any other number: each reads what it needs of each tensor.

Used by `gpt/training`, for `sharded = true`.
"""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import distributed, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer

from .parallel import Team

_FOLDERS = "step-*"


class Shares:
    """The folders of shares in the folder of a run.

    All processes make one, and call its methods alike.
    """

    def __init__(self, folder: Path, team: Team):
        self.folder, self.team = folder, team
        # Threads that write talk to each other while the processes that train do, too.
        self._group = distributed.new_group(backend="gloo") if team.size > 1 else None
        if team.size == 1:  # which torch says aloud at each checkpoint, in the thread that writes
            warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")
        self._writing: Any = None
        self._then: Callable[[], None] | None = None

    def write(
        self, step: int, model: nn.Module, optimiser: Optimizer, then: Callable[[str], None]
    ) -> None:
        """Begin to write; wait for what was begun before.

        Args:
            then: called with the name of the folder when all is on the disk, by `look` or `wait`.
        """
        self.wait()
        name = f"step-{step:08}"
        if self.team.rank == 0:
            shutil.rmtree(self.folder / name, ignore_errors=True)  # what a killed run has left
        self.team.wait()

        def written() -> None:
            then(name)
            for old in self.folder.glob(_FOLDERS) if self.team.rank == 0 else ():
                if old.name != name:
                    shutil.rmtree(old)

        state = _state(model, optimiser, with_moments=bool(optimiser.state))
        self._writing = checkpoint.async_save(
            state, checkpoint_id=self.folder / name, process_group=self._group
        )
        self._then = written

    def look(self) -> None:
        """Do what is to be done when all is on the disk, if it is."""
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Go on when all is on the disk."""
        if self._writing:
            self._writing.result()
            self._writing = None
        if self._then:
            then, self._then = self._then, None
            then()

    def read(self, name: str, model: nn.Module, optimiser: Optimizer, *, moments: bool) -> None:
        """Give each process its share of what any number of processes wrote.

        Args:
            moments: whether the optimiser had any: not before its first step.
        Raises:
            ValueError: the folder is missing or damaged.
        """
        place = self.folder / name
        state = _state(model, optimiser, with_moments=moments)
        try:
            checkpoint.load(state, checkpoint_id=place, process_group=self._group)
        except (checkpoint.api.CheckpointException, OSError, RuntimeError) as error:
            raise ValueError(
                f"expected in {place} the shares of a checkpoint, which last.pt names, could not "
                f"read them: {error}"
            ) from error
        if moments:
            set_state_dict(
                model,
                optimiser,
                model_state_dict=state["model"],
                optim_state_dict=state["optimiser"],
            )
        else:
            model.load_state_dict(state["model"])


def _state(model: nn.Module, optimiser: Optimizer, *, with_moments: bool) -> dict[str, Any]:
    """Each process's share; without moments torch would take a step to have some."""
    if not with_moments:
        return {"model": model.state_dict()}
    weights, moments = get_state_dict(model, optimiser)
    return {"model": weights, "optimiser": moments}
