"""Runs notebooks in a kernel of their own."""

import os

import jupyter_client
import nbclient
import pytest
from jupyter_client import kernelspec


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Runs every cell in a kernel of this Python, whatever kernels are installed."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    environment = {
        **os.environ,
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # as kernels set it
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    folder = tmp_path / "working"
    folder.mkdir()

    def run(notebook):
        kernels = kernelspec.KernelSpecManager(kernel_dirs=[])
        client = nbclient.NotebookClient(
            notebook,
            km=jupyter_client.AsyncKernelManager(kernel_spec_manager=kernels),
            timeout=300,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(cleanup_kc=True, env=environment)
        assert not list(folder.iterdir())

    return run
