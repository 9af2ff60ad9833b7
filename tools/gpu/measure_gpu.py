"""Measure an NVIDIA GPU with JAX, PyTorch, Triton and hardware counters, and write one record.

    python -m tools.gpu.measure_gpu --out h100.json

Needs JAX for CUDA; PyTorch, Triton, pynvml and Nsight Compute (ncu) are used where they are. A
kernel that fails is recorded with its reason. What there is so far is kept beside the record, in
FILE.json.partial, so that a run which is cut off isn't lost.

Everything is measured in three passes, JAX and PyTorch in turn. Between the first and the second,
ncu counts the DRAM bytes of the ledger's kernels in a process of its own, in which each kernel
runs often enough that what one launch leaves in the L2 is written back during the next. It needs
no change of the GPU's settings, and makes none.

--runs N measures everything in N processes, one after another: each compiles and tunes anew, and
the record keeps the median of each run beside the passes. --only GROUP (repeatable: memory,
levels, compute, vector, skinny, batched, decode, elementwise, reductions, normalisations, gather,
attention, chain, backward) with --merge FILE.json measures some groups again and keeps the rest
of that record.

Other options: --tiny (every size small: a rehearsal, on any device), --passes N, --seconds S (for
each case and pass), --deadline S (of all runs together), --no-counters, --counter-time S (no
kernel is counted after that), --counters-only FILE.json (add counters to that record).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import functools
import importlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

# Each kernel must show by itself, and another framework needs memory too
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_gpu_enable_command_buffer="]
).strip()
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")

import jax
import jax.numpy as jnp
import numpy as np

from roofline_helpers import kernels, measure, work
from roofline_helpers.measure import Case, array
from roofline_helpers.work import Work

EPS, RATE = 1e-5, 0.1
LAUNCHES = 5
"""Of each kernel under ncu; the median of the last three counts."""

MARKER = "spin_kernel"
"""What PyTorch's `torch.cuda._sleep` launches: it stands before each kernel in ncu's list."""


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


# --- the cases ----------------------------------------------------------------------------------


class Suite:
    """Builds the list of cases, at full size or tiny."""

    def __init__(self, tiny: bool) -> None:
        self.tiny = tiny
        self.torch = torch_or_none()
        self.found: list[Case] = []

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

        self.found.append(
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
        self.found.append(
            Case(name, group, job, make, start=begin, source=source, needs=0.0, warm=warm)
        )

    # -- ceilings --

    def memory(self) -> None:
        """JAX's streaming kernels, and PyTorch's copy and add beside them."""
        n = self.elements(2**30)
        for dtype, width in (("fp32", 4), ("bf16", 2)):
            size = n * width
            found = measure.memory_cases(size, dtype)
            self.found += found
            label = found[0].name.removeprefix("read ")
            copied = work.elementwise(n, 1, 1, 0, dtype, name="copy")
            self.jax(f"copy {label}", "memory", copied, pallas_copy, (n,), dtype=dtype,
                     source="pallas", needs=2.0 * size)  # fmt: skip
            for op, flops in (("copy", 0), ("add one", 1)):
                job = work.elementwise(n, 1, 1, flops, dtype, name=op)

                def start(x: Any, op: str = op) -> Callable[[], Any]:
                    out = self.torch.empty_like(x)
                    if op == "copy":
                        return lambda: out.copy_(x)
                    return lambda: self.torch.add(x, 1, out=out)

                self.pytorch(f"{op} {label}", "memory", job, start, (n,), dtype=dtype)
        low, high = (12, 14) if self.tiny else (16, 30)
        self.found += measure.level_cases([2**e for e in range(low, high + 1, 2)])

    def matmul(
        self, m: int, n: int, k: int, dtype: str, group: str, *, batch: int = 1, torch: bool = False
    ) -> None:
        """A product in JAX, and in PyTorch right after it."""
        case = measure.matmul_case(m, n, k, dtype, batch=batch, group=group)
        self.found.append(case)

        def start(a: Any, b: Any) -> Callable[[], Any]:
            out = self.torch.matmul(a, b)
            return lambda: self.torch.matmul(a, b, out=out)

        if torch:
            lead = (batch,) if batch > 1 else ()
            shapes = ((*lead, m, k), (*lead, k, n))
            self.pytorch(case.name, group, case.work, start, *shapes, dtype=dtype, warm=case.warm)

    def compute(self) -> None:
        """Square products, by data type, and the multiply-add chain."""
        sides = (16, 32, 64) if self.tiny else [2**e for e in range(6, 15)]
        for side in sides:
            self.matmul(side, side, side, "bf16", "compute", torch=side >= 1024 or self.tiny)
        for side in (32,) if self.tiny else (4096, 8192, 16384):
            turned = replace(
                measure.matmul_case(side, side, side, "bf16", label=", B transposed"),
                fn=lambda a, b: a @ b.T,
            )
            self.found.append(turned)

            def start(a: Any, b: Any) -> Callable[[], Any]:
                out = a @ b.T
                return lambda: self.torch.matmul(a, b.T, out=out)

            shape = (side, side)
            self.pytorch(turned.name, "compute", turned.work, start, shape, shape, warm=turned.warm)
        side = self.size(8192)
        self.matmul(side, side, side, "fp16", "compute", torch=True)
        for dtype in ("fp8", "int8", "tf32"):
            self.matmul(side, side, side, dtype, "compute")
        half = self.size(4096)
        self.matmul(half, half, half, "fp32", "compute", torch=True)
        for dtype in ("fp32", "bf16"):
            self.found.append(measure.vector_case(dtype, self.elements(2**24)))

    # -- kernels --

    def shapes(self) -> None:
        """Products that aren't square: skinny, batched, one vector."""
        n = self.size(8192)
        for m in (1, 8, 16, 64, 128, 256, 512):
            self.matmul(m, n, n, "bf16", "skinny", torch=m in (1, 16, 128) or self.tiny)
        self.matmul(n, n, self.size(64), "bf16", "skinny", torch=True)
        for batch, side in ((64, self.size(1024)), (1024, self.size(128))):
            self.matmul(side, side, side, "bf16", "batched", batch=batch, torch=True)
        self.matmul(1, self.size(28672), n, "bf16", "decode", torch=True)

    def elementwise(self) -> None:
        """x + 1 from tiny to huge, exp, GELU, reductions, normalisations, softmax, gather."""
        for e in (8, 10) if self.tiny else (12, 16, 20, 22, 24, 26, 28):
            n = 2**e
            job = work.elementwise(n, 1, 1, 1, "bf16")
            self.jax(f"x + 1 on 2^{e} bf16", "elementwise", job, lambda x: x + 1, (n,))
        n = self.elements(2**28)
        special = work.elementwise(n, 1, 1, 1, "bf16", transcendentals=1, name="exp")
        self.jax(f"exp on {n} bf16", "elementwise", special, jnp.exp, (n,))
        self.jax(f"GELU on {n} bf16", "elementwise", work.gelu(n), jax.nn.gelu, (n,))
        side = self.size(16384)
        for axis, name in ((1, "row sums"), (0, "column sums")):
            self.jax(
                f"{name} {side}×{side} fp32",
                "reductions",
                work.reduction(side, side, "fp32"),
                lambda x, axis=axis: x.sum(axis),
                (side, side),
                dtype="fp32",
            )
        for rows, columns in ((65536, 4096), (8192, 1024)):
            r, c = self.size(rows), self.size(columns)
            name = f"LayerNorm {r}×{c} bf16"
            job = work.layernorm(r, c)
            self.jax(name, "normalisations", job, layernorm, (r, c), (c,), (c,))

            def norm(x: Any, g: Any, b: Any) -> Callable[[], Any]:
                return lambda: self.torch.nn.functional.layer_norm(x, x.shape[-1:], g, b, EPS)

            self.pytorch(name, "normalisations", job, norm, (r, c), (c,), (c,))
        for rows, columns in ((8192, 8192), (262144, 1024)):
            r, c = self.size(rows), self.size(columns)
            name = f"softmax {r}×{c} bf16"
            self.jax(name, "normalisations", work.softmax(r, c), jax.nn.softmax, (r, c))

            def soft(x: Any) -> Callable[[], Any]:
                return lambda: self.torch.softmax(x, -1)

            self.pytorch(name, "normalisations", work.softmax(r, c), soft, (r, c))
        self.gather()

    def gather(self) -> None:
        """Rows of a table, and single elements, in random order."""
        rows, width = self.size(2**18), self.size(1024)
        table, taken = rows * width * 2, rows * width * 2
        job = Work("gather rows", {"table": table, "index": rows * 4}, {"y": taken}, dtype="bf16")

        def index(n: int, below: int) -> Callable[[], Any]:
            return lambda: jax.device_put(
                np.random.default_rng(1).integers(0, below, n, dtype=np.int32)
            )

        self.jax(
            f"gather {rows} rows of {width} bf16",
            "gather",
            job,
            lambda t, i: jnp.take(t, i, axis=0, mode="clip"),
            (rows, width),
            index(rows, rows),
        )
        n, m = self.elements(2**28), self.elements(2**25)
        job = Work("gather elements", {"x": 4 * m, "index": 4 * m}, {"y": 4 * m}, dtype="fp32")
        self.jax(
            f"gather {m} elements of {n} fp32",
            "gather",
            job,
            lambda x, i: jnp.take(x, i, mode="clip"),
            (n,),
            index(m, n),
            dtype="fp32",
            needs=8.0 * n,
        )

    def attention(self) -> None:
        """Naive and flash attention over lengths: XLA, cuDNN, our Pallas kernel, PyTorch."""
        batch, heads, width = (1, 1, 16) if self.tiny else (2, 16, 128)

        for length in (16, 32) if self.tiny else (512, 1024, 2048, 4096, 8192):
            three = work.naive_attention(batch, length, heads=heads, head_dim=width)
            flash = work.flash_attention(batch, length, heads=heads, head_dim=width)
            shape = (batch, heads, length, width)
            label = f"attention {batch}×{heads}×{length}×{width} bf16"
            scores = 8.0 * batch * heads * length * length
            job = work.total(*three, name="naive attention")
            self.jax(f"naive {label}", "attention", job, naive, *[shape] * 3, needs=scores)
            turned = (batch, length, heads, width)
            self.jax(f"flash {label}", "attention", flash, cudnn, *[turned] * 3, source="cudnn")
            self.jax(f"flash {label}", "attention", flash, pallas_attention, *[shape] * 3,
                     source="pallas")  # fmt: skip

            self.pytorch(f"flash {label}", "attention", flash, self.sdpa, *[shape] * 3)
        for length in (32,) if self.tiny else (2048, 8192):
            causal = work.flash_attention(batch, length, heads=heads, head_dim=width, causal=True)
            shape = (batch, heads, length, width)
            turned = (batch, length, heads, width)
            label = f"causal flash attention {batch}×{heads}×{length}×{width} bf16"
            f = functools.partial(cudnn, causal=True)
            self.jax(label, "attention", causal, f, *[turned] * 3, source="cudnn")
            f = functools.partial(pallas_attention, causal=True)
            self.jax(label, "attention", causal, f, *[shape] * 3, source="pallas")
            start = functools.partial(self.sdpa, causal=True)
            self.pytorch(label, "attention", causal, start, *[shape] * 3)

    def sdpa(self, q: Any, k: Any, v: Any, causal: bool = False) -> Callable[[], Any]:
        """PyTorch's attention, which picks FlashAttention-2 or cuDNN."""
        f = self.torch.nn.functional.scaled_dot_product_attention
        return lambda: f(q, k, v, is_causal=causal)

    # -- gradients --

    def backward(self) -> None:
        """Gradients alone: of the chain from its inputs, of attention from what forward saved."""
        rows, columns = self.size(65536), self.size(4096)
        job = chain_backward_work(rows, columns)
        label = f"{rows}×{columns} bf16"
        shapes: list[Any] = [(rows, columns), (columns,), (columns,), chain_mask(rows, columns)]
        shapes.append((rows, columns))
        for name, chain, source in (
            ("one jit", one_jit, "jax"),
            ("pallas", pallas_chain, "pallas"),
        ):
            self.jax(f"chain backward {name} {label}", "backward", job, gradient(chain), *shapes,
                     source=source, needs=9.0 * rows * columns * 2)  # fmt: skip
        for name, compiled, source in (
            ("op by op", False, "torch"), ("compiled", True, "torch.compile"),
        ):  # fmt: skip
            start = functools.partial(self.torch_chain_backward, compiled=compiled)
            whole, row = (rows, columns), (columns,)
            self.pytorch(f"chain backward {name} {label}", "backward", job, start,
                         whole, row, row, whole, whole, source=source)  # fmt: skip

        batch, heads, width = (1, 1, 16) if self.tiny else (2, 16, 128)
        for length, causal in ((32, False), (32, True)) if self.tiny else (
            (2048, False), (4096, False), (4096, True),
        ):  # fmt: skip
            shape, turned = (batch, heads, length, width), (batch, length, heads, width)
            word = "causal " if causal else ""
            label = f"attention backward {batch}×{heads}×{length}×{width} bf16"
            naive_job, job = attention_backward_work(batch, heads, length, width, causal)
            scores = 16.0 * batch * heads * length * length
            if not causal:
                self.attention_backward(
                    f"naive {label}", naive_job, naive, shape, "jax", needs=scores
                )
            for f, source, its in ((cudnn, "cudnn", turned), (pallas_attention, "pallas", shape)):
                f = functools.partial(f, causal=causal)
                self.attention_backward(f"{word}flash {label}", job, f, its, source)
            start = functools.partial(self.torch_attention_backward, causal=causal)
            self.pytorch(f"{word}flash {label}", "backward", job, start, *[shape] * 4)

    def attention_backward(
        self, name: str, job: Work, f: Any, shape: tuple[int, ...], source: str, needs: Any = None
    ) -> None:
        """Add the gradient of an attention, from what its forward pass saved."""
        kept: dict[str, Any] = {}  # the shape of what is saved: known once forward has run

        def make() -> tuple[Any, ...]:
            q, k, v, do = (array(*shape, dtype="bf16", scale=s) for s in (1, 0.9, 0.8, 0.7))
            saved = jax.jit(lambda q, k, v: jax.vjp(f, q, k, v)[1])(q, k, v)
            leaves, kept["tree"] = jax.tree.flatten(saved)
            return tuple(leaves), do

        def run(leaves: Any, do: Any) -> Any:
            return jax.tree.unflatten(kept["tree"], leaves)(do)

        self.found.append(
            Case(
                name, "backward", replace(job, dtype="bf16"), make, run, source=source, needs=needs
            )
        )

    def torch_chain_backward(
        self, x: Any, g: Any, b: Any, m: Any, dy: Any, compiled: bool
    ) -> Callable[[], Any]:
        """PyTorch's gradient of the chain: autograd over each operation, or compiled."""
        torch = self.torch
        kept = (m > -1.2816).to(m.dtype)
        eager = torch_eager(torch)
        f = eager
        if compiled:
            # what forward saved must outlive a backward that is run again and again
            config: Any = importlib.import_module("torch._functorch.config")
            config.donated_buffer = False
            f = torch.compile(eager)

        def pull(f: Any, *tensors: Any) -> Callable[[], Any]:
            x, g, b, kept, dy = tensors
            with torch.enable_grad():
                given = [t.detach().requires_grad_() for t in (x, g, b)]
                y = f(*given, kept, torch.zeros_like(x))
            return lambda: torch.autograd.grad(y, given, dy, retain_graph=True)

        call = pull(f, x, g, b, kept, dy)
        few = (x[:512].float(), g.float(), b.float(), kept[:512].float(), dy[:512].float())
        right(call()[0][:512], pull(eager, *few)()[0])
        return call

    def torch_attention_backward(
        self, q: Any, k: Any, v: Any, do: Any, causal: bool
    ) -> Callable[[], Any]:
        """PyTorch's gradient of its attention."""
        torch = self.torch
        with torch.enable_grad():
            given = [t.detach().requires_grad_() for t in (q, k, v)]
            o = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)
        return lambda: torch.autograd.grad(o, given, do, retain_graph=True)

    # -- the chain --

    def chain(self) -> None:
        """LayerNorm → GELU → dropout → residual in all its variants."""
        rows, columns = self.size(65536), self.size(4096)
        four = work.fusion_chain(rows, columns)
        counts = {
            4: work.total(*four, name="chain, four kernels"),
            2: work.total(work.fuse(*four[:2]), work.fuse(*four[2:]), name="chain, two kernels"),
            1: work.fuse(*four, name="chain, one kernel"),
        }

        shapes: list[Any] = [(rows, columns), (columns,), (columns,), chain_mask(rows, columns)]
        shapes.append((rows, columns))

        def add(name: str, kernels: int, fn: Any, source: str = "jax", **options: Any) -> None:
            label = f"chain {name} {rows}×{columns} bf16"
            self.jax(label, "chain", counts[kernels], fn, *shapes, source=source,
                     needs=9.0 * rows * columns * 2, **options)  # fmt: skip

        norm, soft, drop, plus = (jax.jit(f) for f in (layernorm, gelu, dropout, jnp.add))
        head = jax.jit(lambda x, g, b: gelu(layernorm(x, g, b)))
        tail = jax.jit(lambda x, mask, residual: dropout(x, mask) + residual)
        add("op by op", 4, op_by_op, jit=False)
        add(
            "four kernels",
            4,
            lambda x, g, b, m, r: plus(drop(soft(norm(x, g, b)), m), r),
            jit=False,
        )
        add("two kernels", 2, lambda x, g, b, m, r: tail(head(x, g, b), m, r), jit=False)
        add("one jit", 1, one_jit)
        add("pallas", 1, pallas_chain, "pallas")
        if self.torch is not None:
            self.torch_chain(rows, columns, counts)

    def torch_chain(self, rows: int, columns: int, counts: Mapping[int, Work]) -> None:
        """The same in PyTorch: eager, compiled, and as a Triton kernel of our own."""
        torch = self.torch
        eager = torch_eager(torch)

        def masked(start: Callable[..., Any]) -> Callable[..., Any]:
            def begin(x: Any, g: Any, b: Any, m: Any, r: Any) -> Any:
                kept = (m > -1.2816).to(m.dtype)  # of a normal distribution: nine in ten
                call = start(x, g, b, kept, r)
                wanted = eager(*(t.float() for t in (x[:512], g, b, kept[:512], r[:512])))
                right(call()[:512], wanted)
                return call

            return begin

        def plain(*tensors: Any) -> Callable[[], Any]:
            return lambda: eager(*tensors)

        def compiled(*tensors: Any) -> Callable[[], Any]:
            made = torch.compile(eager)
            return lambda: made(*tensors)

        def own(*tensors: Any, shared: int = -1) -> Any:
            module = importlib.import_module("tools.gpu.triton_chain")
            return module.start(*tensors, EPS, RATE, torch.empty_like, shared)

        shapes = [(rows, columns), (columns,), (columns,), (rows, columns), (rows, columns)]
        label = f"{rows}×{columns} bf16"
        for name, count, start, source in (
            ("op by op", 4, plain, "torch"),
            ("compiled", 1, compiled, "torch.compile"),
            ("Triton", 1, own, "triton"),
            # As XLA launches: what is left as cache is too small for γ and β
            ("Triton, L1 as shared memory", 1, functools.partial(own, shared=100), "triton"),
        ):
            job = counts[count]
            self.pytorch(f"chain {name} {label}", "chain", job, masked(start), *shapes,
                         source=source)  # fmt: skip


def torch_eager(torch: Any) -> Callable[..., Any]:
    """Return the chain in PyTorch's own operations."""
    f = torch.nn.functional

    def eager(x: Any, g: Any, b: Any, m: Any, r: Any) -> Any:
        y = f.gelu(f.layer_norm(x, x.shape[-1:], g, b, EPS), approximate="tanh")
        return r + y * m * (1 / (1 - RATE))

    return eager


def right(got: Any, wanted: Any) -> None:
    """Raise ValueError if a PyTorch result is off by more than a percent."""
    error = float((got.float() - wanted).norm() / wanted.norm())
    if not error < 1e-2:
        raise ValueError(f"wrong result: relative error {error:.3g}")


def chain_mask(rows: int, columns: int) -> Callable[[], Any]:
    """Return what makes a mask of ones and zeros in bf16, nine in ten of them ones."""

    def mask() -> Any:
        kept = np.random.default_rng(2).random((1021, columns)) >= RATE
        return jnp.resize(jnp.asarray(kept, jnp.bfloat16), (rows, columns))

    return mask


def chain_backward_work(rows: int, columns: int) -> Work:
    """Count the chain's gradient: x, mask and dy are read and dx is written, 4 tensors."""
    tensor, row = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((rows, columns), (columns,)))
    job = kernels._backward_work([tensor, row, row, tensor, tensor], 1)
    return replace(job, name="chain backward", dtype="bf16")


def attention_backward_work(
    batch: int, heads: int, length: int, width: int, causal: bool
) -> tuple[Work, Work]:
    """Count attention's gradient, naive from saved probabilities, and in one kernel.

    Products: naive 4 (dV, dP, dQ, dK), flash 5, since it works the scores out again, where forward
    has 2. Naive kernels read or write an S × S matrix 7 times: P for dV, dP out, P and dP in, dS
    out, dS for dQ, dS for dK. Flash reads q, k, v, o, dO and a number a row, and writes dQ, dK, dV.
    """
    forward = work.flash_attention(batch, length, heads=heads, head_dim=width, causal=causal)
    tensor, matrix = 2 * batch * heads * length * width, 2 * batch * heads * length**2
    writes = {"dQ": tensor, "dK": tensor, "dV": tensor}
    saved = dict.fromkeys(("q", "k", "v", "dO"), tensor)
    flash = replace(
        forward,
        name="flash attention backward",
        reads={**saved, "o": tensor, "lse": 4 * batch * heads * length},
        writes=writes,
        matrix_flops=forward.matrix_flops * 5 // 2,
    )
    naive = replace(
        forward,
        name="naive attention backward",
        reads={**saved, "dO again": tensor, "S × S": 5 * matrix},
        writes={**writes, "S × S": 2 * matrix},
        matrix_flops=forward.matrix_flops * 2,
    )
    return naive, flash


def naive(q: Any, k: Any, v: Any) -> Any:
    """Attention as it is written in books: scores, softmax, product."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    p = jax.nn.softmax(scores.astype(jnp.float32)).astype(q.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", p, v)


def cudnn(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention of NVIDIA's library, called by JAX: [batch, length, heads, width]."""
    # elsewhere than on a GPU, in a rehearsal, JAX's own
    which = "cudnn" if jax.default_backend() == "gpu" else "xla"
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=which)


def gradient(chain: Callable[..., Any]) -> Callable[..., Any]:
    """Return the chain's gradient by x, γ and β. That by the residual is dy itself."""

    def backward(x: Any, g: Any, b: Any, mask: Any, dy: Any) -> Any:
        # the gradient needs no value of the residual: any array of its shape will do
        return jax.vjp(lambda x, g, b: chain(x, g, b, mask, dy), x, g, b)[1](dy)

    return backward


def layernorm(x: Any, g: Any, b: Any) -> Any:
    """LayerNorm over the last axis, in fp32 inside."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPS)
    return (normal * g + b).astype(x.dtype)


def gelu(x: Any) -> Any:
    """GELU in its tanh form, in fp32 inside."""
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


def dropout(x: Any, mask: Any) -> Any:
    """x · mask / (1 − rate)."""
    return x * mask * jnp.asarray(1 / (1 - RATE), x.dtype)


def one_jit(x: Any, g: Any, b: Any, mask: Any, residual: Any) -> Any:
    """The chain, left to XLA."""
    return dropout(gelu(layernorm(x, g, b)), mask) + residual


def op_by_op(x: Any, g: Any, b: Any, mask: Any, residual: Any) -> Any:
    """The chain with every operation launched by itself: call it without jit."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPS)
    y = (normal * g + b).astype(x.dtype)
    inner = math.sqrt(2 / math.pi) * (y + 0.044715 * (y * y * y))
    z = 0.5 * y * (1 + jnp.tanh(inner))
    return z * mask * jnp.asarray(1 / (1 - RATE), x.dtype) + residual


def pallas_chain(x: Any, g: Any, b: Any, mask: Any, residual: Any) -> Any:
    """The chain in our own kernel."""
    return kernels.layernorm_gelu_dropout_residual(x, g, b, mask, residual, rate=RATE, eps=EPS)


def pallas_copy(x: Any) -> Any:
    """A copy in Pallas: many loads in flight for each thread, where XLA's kernel has one."""
    from jax.experimental import pallas as pl

    block = min(8192, x.size)

    def kernel(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = x_ref[...]

    options: dict[str, Any] = {"interpret": True}
    if jax.default_backend() == "gpu":
        triton = importlib.import_module("jax.experimental.pallas.triton")
        options = {"compiler_params": triton.CompilerParams(num_warps=8)}
    spec = pl.BlockSpec((block,), lambda i: (i,))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        kernel,
        out_shape=out,
        grid=(x.size // block,),
        in_specs=[spec],
        out_specs=spec,
        **options,
    )(x)


def pallas_attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention in our own kernel."""
    return kernels.attention(q, k, v, causal=causal)


def suite(tiny: bool = False, only: Sequence[str] = ()) -> list[Case]:
    """Return all cases, or those of some groups."""
    made = Suite(tiny)
    for part in (made.chain, made.backward, made.memory, made.compute, made.shapes,
                 made.elementwise, made.attention):  # fmt: skip
        part()
    return [case for case in made.found if not only or case.group in only]


def counted(case: Case) -> bool:
    """Return whether the hardware's counters are read for this case: the ledger and the chain."""
    if case.group == "chain" or case.name.startswith("chain "):
        return True
    wanted = (
        "matmul 64×64×64 bf16",
        "matmul 1024×1024×1024 bf16",
        "matmul 2048×2048×2048 bf16",
        "matmul 4096×4096×4096 bf16",
        "matmul 8192×8192×8192 bf16",
        "matmul 1×28672×8192 bf16",
        "softmax 8192×8192 bf16",
        "LayerNorm 65536×4096 bf16",
        "x + 1 on 2^28 bf16",
        "triad 4 GiB fp32",
        "copy 4 GiB fp32",
        "row sums 16384×16384 fp32",
        "gather 33554432 elements of 268435456 fp32",
        "naive attention 2×16×2048×128 bf16",
        "flash attention 2×16×2048×128 bf16",
        "causal flash attention 2×16×2048×128 bf16",
        "flash attention backward 2×16×2048×128 bf16",
        "naive attention backward 2×16×2048×128 bf16",
    )
    return case.name in wanted


# --- hardware counters --------------------------------------------------------------------------


def count_here(cases: Sequence[Case], report: Path, seconds: float) -> None:
    """Run each case LAUNCHES times, a marker before each, between the profiler's start and stop.

    This is the process that ncu watches. `report` gets the names, in order, of those that ran. No
    case is begun after these seconds: ncu has nothing to tell before the process ends.
    """
    begun = perf_counter()
    torch = torch_or_none()
    if torch is None:
        raise SystemExit("counting needs PyTorch: its marker tells the kernels apart")
    ran: list[tuple[str, str]] = []
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    for case in cases:
        if perf_counter() - begun > seconds:
            print(f"not counted: {case.name} ({case.source}): no time", file=sys.stderr)
            continue
        try:
            args = case.make()
            if case.fn is not None:
                program: Any = measure.jax_program(case.fn, args, **case.options)
            else:
                assert case.start is not None
                program = case.start(*args)
            del args
            program.launch(3)
            program.wait()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"not counted: {case.name} ({case.source}): {error}", file=sys.stderr)
            continue
        torch.cuda.cudart().cudaProfilerStart()
        torch.cuda._sleep(1000)
        torch.cuda.synchronize()
        program.launch(LAUNCHES)
        program.wait()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        ran.append(case.key)
        report.write_text(json.dumps(ran), encoding="utf-8")
        del program
        torch.cuda.empty_cache()


METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum")


def count(arguments: Sequence[str], timeout: float) -> tuple[dict[tuple[str, str], Any], list[str]]:
    """Run this script under ncu; return the counters of each case, and notes."""
    ncu = shutil.which("ncu") or next(
        iter(map(str, Path("/opt/nvidia").glob("nsight-compute/*/ncu"))), None
    )
    if ncu is None:
        return {}, ["no hardware counters: Nsight Compute (ncu) is not on this machine"]
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "names.json"
        command = [ncu, "--clock-control", "none", "--cache-control", "none", "--csv"]
        command += ["--print-units", "base", "--profile-from-start", "off"]
        command += ["--target-processes", "all", "--metrics", ",".join(METRICS)]
        command += [sys.executable, __file__, "--count-into", str(names), *arguments]
        command += ["--counter-time", str(timeout)]
        environment = {**os.environ, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25"}
        log = Path(folder) / "ncu.csv"
        notes = []
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment,
                start_new_session=True,
            )  # fmt: skip
            try:
                _, said = process.communicate(timeout=timeout + 180)
                notes += [line for line in said.split("\n") if line.startswith("not counted")]
                if process.returncode:
                    notes.append(f"ncu ended with {process.returncode}: {said[-300:]}")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # ncu, and what it watches
                process.communicate()
                notes.append(f"ncu was stopped after {timeout + 180:.0f} s")
        text = log.read_text("utf-8", errors="replace")
        try:
            ran = [tuple(each) for each in json.loads(names.read_text("utf-8"))]
        except (OSError, ValueError):
            return {}, [*notes, f"no hardware counters: {text[-300:]}"]
    return parse(text, ran), notes


def parse(text: str, ran: Sequence[Any]) -> dict[tuple[str, str], Any]:
    """Return the counters of one call of each case, from ncu's CSV with its markers.

    Of each kernel the median over the last LAUNCHES − 2 calls counts.
    """
    lines = text.splitlines()
    header = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        return {}
    launches: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[header:]))):
        if row.get("Metric Name") in METRICS:
            one = launches.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
            one[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    groups: list[list[dict[str, Any]]] = []
    for _, one in sorted(launches.items(), key=lambda item: int(item[0])):
        if MARKER in one["kernel"]:
            groups.append([])
        elif groups:
            groups[-1].append(one)
    found: dict[tuple[str, str], Any] = {}
    for key, group in zip(ran, groups, strict=False):
        kernels, odd = divmod(len(group), LAUNCHES)
        if odd or not kernels:
            continue
        calls = [group[n * kernels : (n + 1) * kernels] for n in range(2, LAUNCHES)]
        sums = {
            metric: sorted(sum(one.get(metric, 0.0) for one in call) for call in calls)
            for metric in METRICS
        }
        middle = {metric: (v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2 for metric, v in sums.items()}
        found[key] = {
            "dram_read": middle[METRICS[0]],
            "dram_written": middle[METRICS[1]],
            "seconds": middle[METRICS[2]] / 1e9,
            "kernels": kernels,
            "names": [one["kernel"][:80] for one in calls[0]],
        }
    return found


# --- the device's state -------------------------------------------------------------------------


def probe() -> Callable[[], Mapping[str, Any]] | None:
    """Return a function that reads clock, power and temperature, if pynvml is here."""
    try:
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # no library, no driver
        return None

    def look() -> Mapping[str, Any]:
        state: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            state["clock"] = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) * 1e6
            state["memory_clock"] = (
                pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM) * 1e6
            )
            state["power"] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
            state["temperature"] = pynvml.nvmlDeviceGetTemperature(handle, 0)
            state["throttle"] = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return state

    return look


# --- the command --------------------------------------------------------------------------------


def with_counters(
    record: measure.Record, found: Mapping[tuple[str, str], Any], notes: Sequence[str]
) -> measure.Record:
    """Return the record with each sample's counters, and with what is to be said of them."""
    samples = []
    for sample in record.samples:
        counters = dict(found.get((sample.name, sample.source), {}))
        names = counters.pop("names", None)
        if counters:
            said = f"kernels: {', '.join(names)}"
            sample = replace(sample, counters=counters, notes=(*sample.notes, said))
        samples.append(sample)
    return replace(record, samples=tuple(samples), notes=(*record.notes, *notes))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure a GPU (see the head of this file).")
    parser.add_argument("--out", default="gpu.json", metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="GROUP")
    parser.add_argument("--runs", type=int, default=1, help="processes, one after another")
    parser.add_argument("--passes", type=int, default=None, help="3, or 1 with several --runs")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--deadline", type=float, default=None)
    parser.add_argument("--counter-time", type=float, default=120.0)
    parser.add_argument("--no-counters", action="store_true")
    parser.add_argument("--counters-only", metavar="FILE.json", help="add counters to this record")
    parser.add_argument("--merge", metavar="FILE.json", help="keep the rest of this record")
    parser.add_argument("--strict", action="store_true", help="fail if any case failed")
    parser.add_argument("--count-into", metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.runs < 1 or (given.passes is not None and given.passes < 1):
        parser.error("--runs and --passes must be at least 1")
    given.passes = given.passes or (3 if given.runs == 1 else 1)
    return given


def chosen_again(given: argparse.Namespace) -> list[str]:
    """Return the options that choose the cases, for a process of this script's own."""
    groups = [word for group in given.only for word in ("--only", group)]
    return [*(["--tiny"] if given.tiny else []), *groups]


def in_processes(given: argparse.Namespace, command: str) -> measure.Record:
    """Measure in several processes, one after another; count; return one record of all."""
    begun = perf_counter()
    found, notes = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.runs):
            out = Path(folder) / f"{number}.json"
            child = [sys.executable, __file__, *chosen_again(given), "--out", str(out)]
            child += ["--passes", str(given.passes), "--seconds", str(given.seconds)]
            child += ["--no-counters"]
            if given.deadline is not None:
                left = given.deadline - (perf_counter() - begun)
                child += ["--deadline", str(max(left / (given.runs - number), 1.0))]
            print(f"run {number + 1} of {given.runs}", file=sys.stderr, flush=True)
            done = subprocess.run(child, stdout=subprocess.DEVNULL)
            partial = out.with_name(out.name + ".partial")
            if done.returncode:
                notes.append(f"run {number + 1} of {given.runs} ended with {done.returncode}")
            for file in (out, partial):
                if file.exists():
                    found.append(measure.load(file))
                    break
            if found:  # what there is so far, should this be cut off
                kept = measure.combine(found)
                replace(kept, command=command).save(given.out + ".partial")
    if not found:
        raise SystemExit(f"nothing was measured: {'; '.join(notes)}")
    record = measure.combine(found)
    return replace(record, command=command, notes=(*record.notes, *notes))


def measured_here(given: argparse.Namespace, chosen: Sequence[Case], command: str) -> Any:
    """Measure in this process; return the record."""

    def between(number: int, record: measure.Record) -> measure.Record:
        if number or given.no_counters:
            return record
        torch = torch_or_none()
        if torch is not None:
            torch.cuda.empty_cache()  # the other process needs it
        return with_counters(record, *count(chosen_again(given), given.counter_time))

    return measure.run(
        chosen=chosen,
        passes=given.passes,
        seconds=given.seconds,
        deadline=given.deadline,
        command=command,
        partial=given.out + ".partial",
        probe=probe(),
        between=between,
    )


def main() -> int:
    """Measure, count, write the record and print what came out."""
    given = arguments()
    older = measure.load(given.merge) if given.merge else None
    if given.count_into:
        chosen = suite(given.tiny, given.only)
        wanted = chosen if given.tiny else [case for case in chosen if counted(case)]
        count_here(wanted, Path(given.count_into), given.counter_time)
        return 0
    if given.counters_only:
        record = measure.load(given.counters_only)
        if measure.device()["kind"] != record.device["kind"]:
            raise SystemExit(f"{given.counters_only} is of another device: {record!r}")
        record = with_counters(record, *count(chosen_again(given), given.counter_time))
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        note = f"hardware counters of a second run on a device of this kind, {now}"
        replace(record, notes=(*record.notes, note)).save(given.out)
        print(summary(record))
        return 0

    out = Path(given.out)
    files = (given.out, given.merge)
    shown = [Path(each).name if each in files else each for each in sys.argv[1:]]
    command = " ".join(["python -m tools.gpu.measure_gpu", *shown])
    if given.runs > 1:  # this process must not hold the device's memory, so it builds no case
        record = in_processes(given, command)
        if not given.no_counters:
            record = with_counters(record, *count(chosen_again(given), given.counter_time))
    else:
        record = measured_here(given, suite(given.tiny, given.only), command)
    if older is not None:
        record = measure.merge(older, record)
    record.save(out)
    out.with_name(out.name + ".partial").unlink(missing_ok=True)
    print(summary(record))
    failed = [sample for sample in record.samples if sample.error]
    for sample in failed:
        print(f"FAILED {sample.name} ({sample.source}): {sample.error}")
    return 1 if failed and given.strict else 0


def summary(record: measure.Record) -> str:
    """Return the record as short lines: one a sample."""
    lines = [repr(record), *record.notes]
    for s in record.samples:
        if not s.passes:
            continue
        line = f"{s.name} [{s.source}]: {s.seconds * 1e6:.1f} us, {s.bandwidth / 1e9:.0f} GB/s"
        line += f", {s.rate / 1e12:.1f} TF" if s.flops else ""
        line += f", ±{100 * s.spread:.1f}%"
        line += f", {len(s.runs)} runs ±{100 * s.between:.1f}%" if len(s.runs) > 1 else ""
        if s.counters:
            line += f", DRAM {s.dram_bytes / s.bytes:.3f} of hand"
        if s.xla_bytes:
            line += f", XLA {s.xla_bytes / s.bytes:.3f}"
        if s.state and "clock" in s.state:
            line += f", {s.state['clock'] / 1e6:.0f} MHz {s.state.get('power', 0):.0f} W"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
