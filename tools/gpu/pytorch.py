"""PyTorch, where it is: its functions as programs that the clock can time, and their results."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def torch_or_none() -> Any:
    """Return PyTorch if it is here and sees a GPU."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.set_grad_enabled(False)
    return torch


class Torch:
    """A PyTorch function as something that `measure.clock` can time."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call

    def launch(self, calls: int) -> None:
        """Queue the calls on the current stream."""
        for _ in range(calls):
            self.call()

    def wait(self) -> None:
        """Wait for the stream."""
        importlib.import_module("torch").cuda.synchronize()


def right(got: Any, wanted: Any) -> None:
    """Raise ValueError if a PyTorch result is off by more than a percent."""
    error = float((got.float() - wanted).norm() / wanted.norm())
    if not error < 1e-2:
        raise ValueError(f"wrong result: relative error {error:.3g}")
