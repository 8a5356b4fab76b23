"""Kernels that are spoken to through sockets in a private folder, where the system has such.

By default a kernel listens on TCP ports, which every user of the machine may connect to, and it
says so in a warning, once for each chapter. The sockets of IPC are files, and the folder of these
is open to nobody else. It is in `/tmp`, for the name of a socket may not be long.
"""

import socket
import tempfile
from pathlib import Path

import jupyter_client
import nbval.kernel


class LocalSockets:
    """What a manager of kernels does otherwise: each kernel has its own folder, while it runs."""

    _folder = None

    def _transport_default(self):
        return "ipc"

    def write_connection_file(self, **more):
        if not self._connection_file_written:
            self._folder = tempfile.TemporaryDirectory(prefix="kernel-", dir="/tmp")
            self.connection_file = str(Path(self._folder.name, "connection.json"))
            self.ip = str(Path(self._folder.name, "s"))
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


def use_local_sockets():
    """Let nbval and nbclient start their kernels so; neither has a setting for it."""
    if hasattr(socket, "AF_UNIX"):
        nbval.kernel.KernelManager = LocalKernelManager
        jupyter_client.AsyncKernelManager = AsyncLocalKernelManager
