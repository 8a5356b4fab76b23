"""Kernels that are spoken to through sockets in a private folder, where the system has such.

By default a kernel listens on TCP ports, which every user of the machine may connect to, and it
says so in a warning, once for each chapter. The sockets of IPC are files, and the folder of these
is open to nobody else. It is in `/tmp`, for the name of a socket may not be long.
"""

import socket
import tempfile

import jupyter_client
import nbval.kernel


class LocalSockets:
    """What a manager of kernels does otherwise: each has a folder, as long as its kernel runs."""

    def __init__(self, **options):
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-", dir="/tmp")
        file = f"{self._folder.name}/s.json"  # the sockets get their names from it
        super().__init__(transport="ipc", connection_file=file, **options)

    def cleanup_connection_file(self):
        super().cleanup_connection_file()
        self._folder.cleanup()


class LocalKernelManager(LocalSockets, jupyter_client.KernelManager):
    """One kernel, for nbval."""


class AsyncLocalKernelManager(LocalSockets, jupyter_client.AsyncKernelManager):
    """One kernel, for nbclient, by which the builder and its cache execute a chapter."""


def use_local_sockets():
    """Let nbval and nbclient start their kernels so; neither has a setting for it."""
    if hasattr(socket, "AF_UNIX"):
        nbval.kernel.KernelManager = LocalKernelManager
        jupyter_client.AsyncKernelManager = AsyncLocalKernelManager
