"""Kernels that are spoken to through sockets in a private folder, where the system has such.

By default a kernel listens on TCP ports, which every user of the machine may connect to, and it
says so in a warning, once for each chapter. The sockets of IPC are files, and the folder of these
is open to nobody else. Jupyter leaves their place to whoever starts a kernel: the name of a socket
may not be long, and it must not depend on the folder in which one happens to be.
"""

import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import jupyter_client
import nbval.kernel

PREFIX = "kernel-"  # of the folder; the system adds eight characters
SOCKETS = "s"  # Jupyter adds a number to it, from 1 to 5


class LocalSockets:
    """What a manager of kernels does otherwise: each kernel has its own folder, while it runs."""

    place = None  # the folder in which such folders are made
    _folder = None

    def _transport_default(self):
        return "ipc"

    def write_connection_file(self, **more):
        if not self._connection_file_written:
            self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=self.place)
            self.connection_file = str(Path(self._folder.name, "connection.json"))
            self.ip = str(Path(self._folder.name, SOCKETS))
        super().write_connection_file(**more)

    def cleanup_connection_file(self):
        super().cleanup_connection_file()
        if self._folder:
            self._folder.cleanup()
            self._folder = None


class LocalKernelManager(LocalSockets, jupyter_client.KernelManager):
    """One kernel, for nbval."""


class AsyncLocalKernelManager(LocalSockets, jupyter_client.AsyncKernelManager):
    """One kernel, for nbclient, by which the builder and its cache execute a chapter."""


def place_of_sockets(folders=(None, "/tmp")):
    """A folder below which a socket can be opened, or None; as a rule that of temporary files."""
    if hasattr(socket, "AF_UNIX"):
        for folder in (each or tempfile.gettempdir() for each in folders):
            with (
                suppress(OSError),  # no such folder, or a name that is too long for a socket
                tempfile.TemporaryDirectory(prefix=PREFIX, dir=folder) as made,
                socket.socket(socket.AF_UNIX) as tried,
            ):
                tried.bind(str(Path(made, f"{SOCKETS}-1")))
                return folder
    return None


def use_local_sockets():
    """Let nbval and nbclient start their kernels so; neither has a setting for it."""
    LocalSockets.place = place_of_sockets()
    if LocalSockets.place:
        nbval.kernel.KernelManager = LocalKernelManager
        jupyter_client.AsyncKernelManager = AsyncLocalKernelManager
