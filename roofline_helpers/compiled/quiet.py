"""Keep the TPU compiler's C++ code quiet, and the environment as it was."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # don't ask the cloud's metadata server
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # other processes may compile at the same time
    "TPU_ACCELERATOR_TYPE": None,  # set, it makes cost_analysis of libtpu 0.0.23 abort
}
_lock = threading.RLock()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep C++ code from writing to stderr, with the environment that the TPU compiler needs.

    Afterwards the environment is what it was. On a machine with a TPU it is left alone.
    """
    with _lock, contextlib.ExitStack() as stack:
        if not _has_tpu():
            stack.enter_context(environment(_ENVIRONMENT))
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        sink = stack.enter_context(tempfile.TemporaryFile())
        with contextlib.suppress(OSError):  # no stderr to silence
            saved = os.dup(2)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, 2)
            os.dup2(sink.fileno(), 2)
        yield


@contextlib.contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables, None to unset one, and put them back afterwards."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _has_tpu() -> bool:
    """Return whether this machine has a TPU of its own, without starting it."""
    return any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev/vfio").glob("[0-9]*"))
