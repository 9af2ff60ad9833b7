"""A list of cases in the making, at full size or tiny: what an experiment adds its cases to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from roofline_helpers import device
from roofline_helpers.device.workloads import Case, array
from roofline_helpers.work import Work
from tools.gpu.pytorch import Torch, torch_or_none


class Suite:
    """The cases so far, and how to add one in JAX or in PyTorch.

    Parameters
    ----------
    tiny : bool
        Whether every size is small: a rehearsal, on any device.
    """

    def __init__(self, tiny: bool) -> None:
        self.tiny = tiny
        self.torch = torch_or_none()
        self.cases: list[Case] = []

    def size(self, n: int, least: int = 16) -> int:
        """Return a dimension, shrunk for a rehearsal."""
        return max(min(n, 64), least) if self.tiny else n

    def elements(self, n: int) -> int:
        """Return a number of elements, shrunk for a rehearsal."""
        return min(n, 2**14) if self.tiny else n

    def jax(
        self,
        name: str,
        group: str,
        job: Work,
        fn: Callable[..., Any],
        *shapes: tuple[int, ...] | Callable[[], Any],
        dtype: str = "bf16",
        source: str = "jax",
        needs: float | None = None,
        **options: Any,
    ) -> None:
        """Add a JAX function of arrays of these shapes."""

        def make() -> tuple[Any, ...]:
            return tuple(s() if callable(s) else array(*s, dtype=dtype) for s in shapes)

        self.cases.append(
            Case(
                name,
                group,
                replace(job, dtype=dtype),
                make,
                fn,
                source=source,
                needs=needs,
                options=options,
            )
        )

    def pytorch(
        self,
        name: str,
        group: str,
        job: Work,
        start: Callable[..., Callable[[], Any]],
        *shapes: tuple[int, ...],
        dtype: str = "bf16",
        source: str = "torch",
        warm: float = 0.0,
    ) -> None:
        """Add a PyTorch function: `start` takes the tensors and returns what to call."""
        torch = self.torch
        if torch is None:
            return
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]

        def make() -> tuple[Any, ...]:
            return tuple(
                torch.randn(s, device="cuda", dtype=torch.float32).to(kind) for s in shapes
            )

        def begin(*tensors: Any) -> Torch:
            return Torch(start(*tensors))

        job = replace(job, dtype=dtype)
        self.cases.append(
            Case(name, group, job, make, start=begin, source=source, needs=0.0, warm=warm)
        )

    def matmul(
        self, m: int, n: int, k: int, dtype: str, group: str, *, batch: int = 1, torch: bool = False
    ) -> None:
        """Add a product in JAX, and in PyTorch right after it."""
        case = device.workloads.matmul_case(m, n, k, dtype, batch=batch, group=group)
        self.cases.append(case)

        def start(a: Any, b: Any) -> Callable[[], Any]:
            out = self.torch.matmul(a, b)
            return lambda: self.torch.matmul(a, b, out=out)

        if torch:
            lead = (batch,) if batch > 1 else ()
            shapes = ((*lead, m, k), (*lead, k, n))
            self.pytorch(case.name, group, case.work, start, *shapes, dtype=dtype, warm=case.warm)
