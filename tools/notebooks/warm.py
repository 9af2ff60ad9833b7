"""Kernels forked from one process that has already imported what most notebooks import.

A notebook of this book spends seconds on importing JAX, pandas and Matplotlib, the same ones each
time. Here one process imports them once, and each kernel begins as a copy of it: with modules
loaded, but with no backend of JAX started, no figure drawn, and a namespace of its own. Only the
checks execute notebooks so (`tools.notebooks.once`); what is committed comes from new processes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext
from queue import Empty
from typing import Any

import matplotlib
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

PRELOADED = [
    "IPython.core.pylabtools",
    "PIL.JpegImagePlugin",
    "ipykernel.debugger",  # which every kernel imports, though nobody debugs it
    "ipykernel.kernelapp",
    "jax._src.pallas.mosaic_gpu.interpret.interpret_pallas_call",  # Pallas kernels that run here
    "jax.experimental.pallas.tpu",
    "jax.experimental.pallas.triton",
    "jax.experimental.topologies",
    "jax.numpy",
    "jaxlib.mlir.dialects.mhlo",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "pandas.io.formats.html",
    "pandas.io.formats.string",
    "roofline_helpers.ask",
    "roofline_helpers.compiled",
    "roofline_helpers.explain",
    "roofline_helpers.kernels",
    "roofline_helpers.lab",
    "roofline_helpers.measure",
    "roofline_helpers.plot",
    "roofline_helpers.published",
    "tools.notebooks.inside",
    # what builds a book, too: the tests build small ones
    "jupyter_book.cli.main",
    "jupyter_book.sphinx",
    "myst_nb.sphinx_ext",
    "sphinx.builders.html",
    "sphinx.ext.autodoc",
    "sphinxcontrib.bibtex",
    "tools.notebooks.ready",  # after all others: it sets them aside
]


def context() -> ForkServerContext:
    """Return what starts processes as copies of the one that has imported everything."""
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(PRELOADED)
    return forkserver


def begin(arguments: list[str], environment: dict[str, str], folder: str | None) -> None:
    """Become a kernel: what a process of its own is given when it is started, this one sets."""
    from ipykernel import kernelapp

    os.setsid()
    threading.Thread(target=end_with_parent, daemon=True).start()
    surround(environment)
    if folder:
        os.chdir(folder)
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [one for one in named if one and one not in sys.path]
    sys.argv = ["ipykernel_launcher.py", *arguments]
    # 1: it has a parent, but not one that its own way of watching would find
    kernelapp.launch_new_instance([*arguments, "--IPKernelApp.parent_handle=1"])


def surround(environment: Mapping[str, str]) -> None:
    """Give this process an environment; Matplotlib has read the one of the process it copies."""
    os.environ.clear()
    os.environ.update(environment)
    matplotlib.rcParams["backend"] = environment.get("MPLBACKEND", "agg")


def end_with_parent() -> None:
    """End when the process that asked for this kernel does: the one it was forked from may stay."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Forked:
    """A kernel's process, with what its manager uses of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, command: list[str], env: dict[str, str], cwd: str | None) -> None:
        arguments = command[command.index("-m") + 2 :]
        self.process = context().Process(target=begin, args=(arguments, env, cwd), daemon=True)
        self.process.start()
        assert self.process.pid
        self.pid: int = self.process.pid

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self.process.exitcode

    def wait(self) -> int | None:
        """Wait until it has ended, and return its exit status."""
        self.process.join()
        return self.process.exitcode

    def send_signal(self, signum: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Client(AsyncKernelClient):
    """Talks to a kernel, and waits no longer than it must before the first cell."""

    async def wait_for_ready(self, timeout: float | None = None) -> None:
        """Wait until a kernel has answered and what it publishes arrives.

        Jupyter's own goes on to wait until nothing has been published for 0.2 s.

        Raises
        ------
        RuntimeError
            The kernel died, or has not answered in `timeout` seconds.
        """
        begun = time.monotonic()
        while await self.is_alive() and time.monotonic() - begun < (timeout or float("inf")):
            asked = self.kernel_info()
            with contextlib.suppress(Empty):
                await self.get_shell_msg(timeout=1)
                while not ends(await self.get_iopub_msg(timeout=0.05), asked):
                    pass
                return
        raise RuntimeError("Kernel died before replying to kernel_info, or was too slow to")


def ends(message: Mapping[str, Any], asked: str) -> bool:
    """Return whether a kernel publishes that it has done what a message asked."""
    answers = message["parent_header"].get("msg_id") == asked
    return bool(answers and message["content"].get("execution_state") == "idle")


class Manager(AsyncKernelManager):
    """Starts kernels as copies of the process that has imported everything."""

    client_factory = Client

    async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
        local: Any = self.provisioner
        local.process = Forked(kernel_cmd, options["env"], options.get("cwd"))
        local.pid = local.pgid = local.process.pid
        self._reconcile_connection_info(local.connection_info)

    async def _async_wait(self, pollinterval: float = 0.1) -> None:
        """Look more often than Jupyter does whether a kernel has ended."""
        await super()._async_wait(pollinterval / 10)
