"""Kernels are spoken to through sockets that are files, and these are gone when the kernel is."""

import socket
import tempfile
from pathlib import Path

import jupyter_client
import kernels
import nbformat
import nbval.kernel
import pytest
from nbclient import execute

TRANSPORT = "from ipykernel.kernelapp import IPKernelApp; print(IPKernelApp.instance().transport)"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, with Jupyter as it is before `use_local_sockets`."""
    manager = jupyter_client.manager
    monkeypatch.setattr(nbval.kernel, "KernelManager", manager.KernelManager)
    monkeypatch.setattr(jupyter_client, "AsyncKernelManager", manager.AsyncKernelManager)
    monkeypatch.setattr(kernels.LocalSockets, "place", None)
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def transport_in(folder):
    """The transport of a kernel of nbclient that runs in `folder`, as the kernel knows it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(TRANSPORT)])
    execute(notebook, cwd=str(folder))
    return notebook.cells[0].outputs[0].text.strip()


def test_a_kernel_of_the_builder_warns_of_nothing(temporary, tmp_path, capfd):
    kernels.use_local_sockets()
    assert transport_in(tmp_path) == "ipc"
    assert capfd.readouterr().err == ""
    assert list(temporary.iterdir()) == list(tmp_path.iterdir()) == []


def test_a_kernel_of_nbval_keeps_its_sockets_in_a_folder_of_its_own(temporary, tmp_path):
    kernels.use_local_sockets()
    kernel = nbval.kernel.RunningKernel("python3", cwd=str(tmp_path))
    (folder,) = temporary.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert sum(path.is_socket() for path in folder.iterdir()) == 5
    kernel.restart()
    kernel.await_reply(kernel.execute_cell_input("1"), timeout=60)
    kernel.stop()
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="the system has no such sockets")
def test_a_name_that_is_too_long_for_a_socket_is_avoided(temporary):
    deep = temporary / ("x" * 100)
    deep.mkdir()
    assert kernels.place_of_sockets((deep, temporary / "absent", temporary)) == temporary
    assert kernels.place_of_sockets((deep,)) is None
    assert list(deep.iterdir()) == []


def test_where_no_socket_can_be_opened_kernels_are_left_as_they_are(temporary, monkeypatch):
    monkeypatch.setattr(kernels, "place_of_sockets", lambda: None)
    kernels.use_local_sockets()
    assert transport_in(temporary) == "tcp"
