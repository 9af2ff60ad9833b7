"""A machine that has libtpu, the TPU compiler, and no TPU: whoever starts JAX there is told so.

Three lines of C++ on stderr ("INVALID_ARGUMENT: unexpected worker hostname …") look like errors of
the reader's program, and are none. Where the environment says that there is one worker, libtpu says
nothing, and JAX goes on with the CPU or the GPU as it did.
"""

import importlib.util
import os
from pathlib import Path

ALONE = {
    "TPU_SKIP_MDS_QUERY": "1",  # don't ask the cloud's metadata server
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_PROCESS_BOUNDS": "1,1,1",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
}


def has_tpu() -> bool:
    """Return whether this machine has a TPU of its own, without starting it."""
    return any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def keep_quiet() -> None:
    """Set what the environment doesn't say, where libtpu is installed and no TPU is."""
    if importlib.util.find_spec("libtpu") is not None and not has_tpu():
        for name, value in ALONE.items():
            os.environ.setdefault(name, value)
