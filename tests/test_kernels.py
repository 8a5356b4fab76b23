"""Kernels are spoken to through sockets that are files, and these are gone when the kernel is."""

from pathlib import Path

import jupyter_client
import kernels
import nbformat
import nbval.kernel
import pytest
from nbclient import execute

TRANSPORT = "from ipykernel.kernelapp import IPKernelApp; print(IPKernelApp.instance().transport)"


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Jupyter is left as it was before `use_local_sockets`."""
    manager = jupyter_client.manager
    monkeypatch.setattr(nbval.kernel, "KernelManager", manager.KernelManager)
    monkeypatch.setattr(jupyter_client, "AsyncKernelManager", manager.AsyncKernelManager)


def test_a_kernel_of_the_builder_warns_of_nothing(tmp_path, capfd):
    kernels.use_local_sockets()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(TRANSPORT)])
    execute(notebook, cwd=str(tmp_path))
    assert notebook.cells[0].outputs[0].text == "ipc\n"
    assert "WARNING" not in capfd.readouterr().err.upper()
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_of_nbval_keeps_its_sockets_in_a_folder_of_its_own(tmp_path):
    kernels.use_local_sockets()
    kernel = nbval.kernel.RunningKernel("python3", cwd=str(tmp_path))
    folder = Path(kernel.km.ip).parent
    assert folder.stat().st_mode & 0o077 == 0
    assert sum(path.is_socket() for path in folder.iterdir()) == 5
    kernel.restart()
    kernel.await_reply(kernel.execute_cell_input("1"), timeout=60)
    kernel.stop()
    assert not folder.exists()
