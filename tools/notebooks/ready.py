"""What each kernel would do again is done once, where kernels are forked (`tools.notebooks.warm`).

The book's questions and the kept programs are read; and what is there so far is set aside from the
collection of garbage, which would walk all modules, and copy their memory, in each kernel. A kernel
ends soon: it looks for garbage more rarely than Python does by itself.
"""

from __future__ import annotations

import contextlib
import gc

from roofline_helpers.ask import bank
from tools import programs


def read() -> None:
    """Read what most kernels read; where that fails, the kernel that needs it says so."""
    for reading in (bank.bank, programs.kept):
        with contextlib.suppress(Exception):
            reading()


read()
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 10, 10)
