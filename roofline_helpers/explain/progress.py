"""One line that says what is being done: on a terminal and in a notebook, nowhere else."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Self


class Progress:
    """A line that is written over; it is gone at the end.

    Parameters
    ----------
    shown : bool, optional
        By default on a terminal and in a notebook's kernel.
    """

    def __init__(self, shown: bool | None = None) -> None:
        self._cell: Any = None
        kernel = "ipykernel" in sys.modules
        terminal = bool(getattr(sys.stderr, "isatty", lambda: False)())
        self._notebook = kernel and shown is not False
        self._terminal = not kernel and (terminal if shown is None else shown)

    def __enter__(self) -> Self:
        return self

    def __call__(self, doing: str) -> None:
        """Say what is being done now."""
        self._write(f"explain: {doing} …")

    def _write(self, line: str) -> None:
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif self._notebook:
            with contextlib.suppress(ImportError):
                from IPython.display import display

                shown = {"text/plain": line}
                if self._cell is None:
                    self._cell = display(shown, raw=True, display_id=True)
                elif self._cell is not None:
                    self._cell.update(shown, raw=True)

    def __exit__(self, *_: object) -> None:
        if self._terminal or self._cell is not None:
            self._write("")
