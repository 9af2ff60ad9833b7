"""Workloads to time: streams, matmuls, multiply-adds and kernels; and the run over them."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline import terminal
from roofline.measure.machine import (
    busy,
    device_facts,
    free_memory,
    host_facts,
    last_cache,
    now,
    on_cpu,
    software_versions,
)
from roofline.measure.timing import SECONDS, Launchable, clock, jax_program, reason
from roofline_helpers import work
from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    RooflineError,
    name_of,
    needed,
    shown,
    single,
    whole,
)
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.show import si
from roofline_helpers.measured.record import Record, Sample
from roofline_helpers.work import Work

if TYPE_CHECKING:
    from jax import Array

# --- One thing to measure, and the arrays that it takes ------------------------------------------

JAX_DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
    "int32": "int32",
}
"""JAX's names of the data types that are measured."""


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Parameters
    ----------
    name : str
        Unique within a record.
    group : str
        "memory", "levels", "compute" and "vector" are ceilings; any other name is a set of kernels.
    work : Work
        FLOPs and bytes, counted by hand.
    make : callable
        Returns the arguments, anew in each pass.
    fn : callable, optional
        A JAX function of those arguments.
    start : callable, optional
        In place of `fn`: takes the arguments, returns a `Launchable`.
    needs : float
        Bytes of memory that it takes at the same time; by default twice `work.bytes`.
    loops : int
        How often one call does the work, inside the compiled program.
    warm : float
        Seconds to run before the first sample (`clock`).
    options : mapping
        Further arguments of `jax_program`.

    Examples
    --------
    >>> from roofline.measure.workloads import matmul_case
    >>> case = matmul_case(512, 512, 512)
    >>> case.name, case.work.flops
    ('matmul 512×512×512 bf16', 268435456)
    """

    name: str
    group: str
    work: Work
    make: Callable[[], tuple[Any, ...]]
    fn: Callable[..., Any] | None = None
    start: Callable[..., Launchable] | None = None
    needs: float | None = None
    loops: int = 1
    warm: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def program(self, args: tuple[Any, ...]) -> Launchable:
        """Return the program that `clock` times, on the arguments that `make` returned.

        Raises
        ------
        BadValue
            The case has neither `fn` nor `start`.
        """
        if self.fn is not None:
            return jax_program(self.fn, args, **self.options)
        if self.start is not None:
            return self.start(*args)
        raise BadValue(f"nothing to run: {self.name} has neither fn nor start")


def kind_of(dtype: str) -> np.dtype[Any]:
    """Return JAX's data type of one of `JAX_DTYPES`."""
    import jax.numpy as jnp

    return jnp.dtype(JAX_DTYPES[name_of("data type to measure", dtype_of(dtype), JAX_DTYPES)])


def array(*shape: int, dtype: str = "fp32") -> Array:
    """Return an array of normally distributed numbers on the default device.

    The numbers repeat after 1,048,583, a prime, so that no two rows are the same. Zeros would give
    wrong times: matmuls of zeros take less power and run faster.

    Examples
    --------
    >>> array(2, 3, dtype="bf16").shape
    (2, 3)
    """
    import jax
    import jax.numpy as jnp

    kind = kind_of(dtype)
    n = math.prod(shape)
    pool = np.random.default_rng(0).standard_normal(min(1_048_583, n), np.float32)
    pool = (np.rint(pool * 20) if kind.kind in "iu" else pool).astype(kind)
    if on_cpu():
        return jax.device_put(np.resize(pool, shape))
    return jnp.resize(jax.device_put(pool), shape)  # sent once, repeated there


# --- Cases: streams for the memory ceiling, matmuls, multiply-adds, and kernels ------------------


def memory_cases(size: int, dtype: str = "fp32") -> list[Case]:
    """Return the streaming kernels whose best is the memory ceiling; tensors of `size` bytes.

    Bytes are counted as STREAM does, each tensor once. A cache that fetches a line before it is
    written moves more, so copy, add and triad show a lower bandwidth; "scale in place" is free
    of that.

    Examples
    --------
    >>> [case.name for case in memory_cases(2**20)][:3]
    ['read 1 MiB fp32', 'write 1 MiB fp32', 'copy 1 MiB fp32']
    """
    import jax.numpy as jnp

    kind = kind_of(dtype)
    n = size // kind.itemsize
    half = kind.type(0.5)

    def case(fn: Callable[..., Any], count: int, job: Work, **options: Any) -> Case:
        def make() -> tuple[Array, ...]:
            return tuple(array(n if job.reads else 1, dtype=dtype) for _ in range(count))

        name, needs = f"{job.name} {size_in_words(size)} {dtype}", 4.0 * size
        return Case(name, "memory", job, make, fn, needs=needs, options=options)

    def stream(name: str, flops: int, reads: int = 1) -> Work:
        return work.elementwise(n, reads, 1, flops, dtype, name=name)

    write = Work("write", {}, {"y": n * kind.itemsize}, dtype=dtype)
    return [
        case(lambda x: jnp.max(x), 1, replace(work.reduction(1, n, dtype), name="read")),
        case(lambda s: jnp.broadcast_to(s, (n,)) + half, 1, write),
        case(lambda x: jnp.copy(x), 1, stream("copy", 0)),
        case(lambda x: x * half, 1, stream("scale", 1)),
        case(lambda x: x * half + half, 1, stream("scale in place", 2), inplace=True),
        case(lambda x, y: x + y, 2, stream("add", 1, 2)),
        case(lambda x, y: x + half * y, 2, stream("triad", 2, 2)),
    ]


def level_cases(sizes: Sequence[int], dtype: str = "fp32") -> list[Case]:
    """Return "scale in place" over working sets of these bytes, repeated inside one program.

    Each cache level shows as a step. The repetition keeps the launch, which takes longer than a
    pass over a small cache, out of the result.

    Raises
    ------
    BadType, BadValue
        A size that isn't a whole number from 1.

    Examples
    --------
    >>> [case.work.bytes for case in level_cases([2**20])]
    [2097152]
    """
    import jax

    kind, cpu = kind_of(dtype), on_cpu()
    half = kind.type(0.5)

    def body(_: int, x: Array) -> Array:
        return x * half + half

    def looped(x: Array, turns: Array) -> Array:
        # the trip count is an argument, so that XLA can't merge iterations
        return jax.lax.fori_loop(0, turns, body, x)

    def fixed(turns: int, x: Array) -> Array:
        # an iteration of a loop costs an accelerator microseconds: so it is unrolled, with barriers
        # so that XLA can't merge iterations
        for _ in range(turns):
            x = jax.lax.optimization_barrier(body(0, x))
        return x

    def arguments(n: int, turns: int) -> tuple[Any, ...]:
        x = array(n, dtype=dtype)
        return (x, np.int32(turns)) if cpu else (x,)

    cases = []
    for size in (whole("a size of sizes", size) for size in sizes):
        n = max(size // kind.itemsize, 1)
        loops = min(max(2**26 // size, 1), 2**10 if cpu else 2**6)
        job = work.elementwise(n, 1, 1, 2, dtype, name="scale in place, looped")
        cases.append(
            Case(
                f"scale in place, looped {size_in_words(size)} {dtype}",
                "levels",
                job,
                functools.partial(arguments, n, loops),
                looped if cpu else functools.partial(fixed, loops),
                needs=3 * size,
                loops=loops,
                options={"inplace": True},
            )
        )
    return cases


def matmul_case(
    m: int, n: int, k: int, dtype: str = "bf16", *, batch: int = 1, transposed: bool | None = None
) -> Case:
    """Return C[m, n] = A[m, k] · B[k, n], `batch` of them; `transposed`: B is stored as [n, k].

    In 8 bits that is the default. The kernels of NVIDIA's library read it in that order, and XLA
    would otherwise transpose it in every call: on an H100 half as long as the matmul.
    int8 matmuls accumulate in int32. "tf32" is fp32 at JAX's default precision, which is TF32 on
    NVIDIA GPUs; "fp32" asks for full precision.

    Examples
    --------
    >>> matmul_case(512, 512, 512, "fp32").work.flops
    268435456
    >>> matmul_case(512, 512, 512, "fp8").name
    'matmul 512×512×512 fp8, B transposed'
    """
    import jax
    import jax.numpy as jnp

    out = {"int8": "int32", "fp8": "bf16", "tf32": "fp32"}.get(dtype, dtype)
    stored = "fp32" if dtype == "tf32" else dtype
    preferred = kind_of(out)
    # On accelerators JAX's default for fp32 is the matrix unit's tf32 or bf16
    exact = jax.lax.Precision.HIGHEST if dtype in ("fp32", "fp64") else None

    transposed = kind_of(stored).itemsize == 1 if transposed is None else transposed

    def product(a: Array, b: Array) -> Array:
        b = jnp.swapaxes(b, -1, -2) if transposed else b
        return jnp.matmul(a, b, precision=exact, preferred_element_type=preferred)

    lead = (batch,) if batch > 1 else ()
    size = f"{batch} × " * (batch > 1) + f"{m}×{n}×{k}"
    counted = work.matmul(m, n, k, dtype, out=out, batch=batch)
    second = (n, k) if transposed else (k, n)
    return Case(
        f"matmul {size} {dtype}" + ", B transposed" * transposed,
        "compute",
        counted,
        lambda: (array(*lead, m, k, dtype=stored), array(*lead, *second, dtype=stored)),
        product,
        warm=1.0 if counted.flops > 1e11 and not on_cpu() else 0.0,
    )


def vector_case(dtype: str = "fp32", n: int = 2**20, steps: int = 256) -> Case:
    """Return a chain of multiply-adds on the vector unit: 2 · steps FLOPs for each element.

    If the compiler doesn't fuse multiply and add, the result is at most half of a peak that counts
    a fused multiply-add as two: on an H100, 31.5 of 67 TFLOP/s in fp32. XLA doesn't: Nsight Compute
    counts as many FMUL as FADD there, and no FFMA (JAX 0.11.2; in bf16 HMUL2 and HADD2).

    Examples
    --------
    >>> vector_case(n=1024, steps=16).work.flops
    32768
    """

    def chain(x: Array, a: Array, b: Array) -> Array:
        for _ in range(steps):
            x = x * a + b
        return x

    job = work.elementwise(n, {"x": dtype}, {"y": dtype}, 2 * steps, dtype, name="multiply-add")
    numbers = np.array([0.5], np.float32)
    return Case(
        f"{steps} multiply-adds on {n} {dtype}",
        "vector",
        job,
        lambda: (
            array(n, dtype=dtype),
            *(array(1, dtype=dtype) * 0 + v for v in numbers.repeat(2)),
        ),
        chain,
        options={"cold": False},
    )


def kernel_cases(rows: int, columns: int, dtype: str = "fp32") -> list[Case]:
    """Return a small set of kernels to place under the roof: rows × columns elements each.

    Examples
    --------
    >>> kernel_cases(1024, 512)[0].name
    'GELU 1024×512 fp32'
    """
    import jax
    import jax.numpy as jnp

    n = rows * columns
    seq, width = min(columns, 1024), 64
    heads = max(n // (seq * width * 4), 1)
    scores = work.total(*work.naive_attention(1, seq, heads=heads, head_dim=width, dtype=dtype))

    def case(name: str, job: Work, fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
        return Case(
            f"{name} {dtype}",
            "kernels",
            replace(job, dtype=dtype),
            lambda: tuple(array(*shape, dtype=dtype) for shape in shapes),
            fn,
            needs=6.0 * float(job.bytes),
        )

    size, full, row = f"{rows}×{columns}", (rows, columns), (columns,)
    sums, norm = work.reduction(rows, columns, dtype), work.layernorm(rows, columns, dtype)
    product = work.matmul(1, columns, columns, dtype)
    attention = functools.partial(jax.nn.dot_product_attention, implementation="xla")
    return [
        case(f"GELU {size}", work.gelu(n, dtype), jax.nn.gelu, full),
        case(f"row sums {size}", sums, lambda x: x.sum(1), full),
        case(f"softmax {size}", work.softmax(rows, columns, dtype), jax.nn.softmax, full),
        case(
            f"LayerNorm {size}", norm, lambda x, g, b: jax.nn.standardize(x) * g + b, full, row, row
        ),
        case(f"attention {heads}×{seq}×{width}", scores, attention, *[(seq, heads, width)] * 3),
        case(f"matvec {columns}×{columns}", product, jnp.matmul, (1, columns), (columns, columns)),
    ]


def cases(quick: bool = False) -> list[Case]:
    """Return the cases of `run`, sized for the default device.

    Parameters
    ----------
    quick : bool
        Fewer sizes and data types.

    Examples
    --------
    >>> cases(quick=True)[0].group
    'memory'
    """
    cpu = on_cpu()
    budget = free_memory() or 4 * 2**30
    # A launch leaves a gap of some 10 µs on a GPU: 4 GiB tensors make that less than a percent
    size = max(4 * last_cache(), 2**27 if cpu else 2**32)
    size = 2 ** math.ceil(math.log2(size))
    while 4 * size > budget / 2 and size > 2**20:
        size //= 2
    chosen = memory_cases(size)
    if not quick:
        powers = range(14, int(math.log2(size)) + 1, 1 if cpu else 2)
        chosen += level_cases([2**power for power in powers])
    if cpu:
        side = [512, 1024, 2048] if quick else [256, 512, 1024, 2048, 3072]
        chosen += [matmul_case(s, s, s, "fp32") for s in side]
        chosen += [matmul_case(512, 512, 512, "fp32", batch=8)]
        chosen += [] if quick else [matmul_case(s, s, s, "bf16") for s in (256, 512, 1024)]
        chosen += [vector_case("fp32", 2**16)]
        chosen += kernel_cases(2048, 2048) if quick else kernel_cases(4096, 4096)
    else:
        side = [4096, 8192] if quick else [1024, 2048, 4096, 8192]
        for dtype in ("bf16", "fp32") if quick else ("bf16", "fp16", "fp8", "int8", "fp32"):
            chosen += [matmul_case(s, s, s, dtype) for s in side]
        chosen += [] if quick else [matmul_case(1024, 1024, 1024, "bf16", batch=64)]
        chosen += [vector_case(dtype, 2**24) for dtype in ("fp32", "bf16")]
        chosen += kernel_cases(16384, 8192, "bf16")
    return chosen


def size_in_words(size: int) -> str:
    """Return bytes with a binary prefix where they are a whole number of eighths: 4 KiB."""
    for prefix, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size >= factor and size % (factor // 8) == 0:
            return f"{size / factor:g} {prefix}B"
    return f"{size} B"


# --- Run the cases, and return the record --------------------------------------------------------

BUDGETS = {False: 0.3, True: 0.15}
"""Seconds for which each case is measured in each pass: usually, and in quick runs."""


def run(
    quick: bool = False,
    *,
    chosen: Sequence[Case] | None = None,
    passes: int = 1,
    seconds: float | None = None,
    progress: bool = True,
    command: str | None = None,
) -> Record:
    """Measure the default device, and return the record.

    A case that fails (no memory, no such data type) is recorded with its reason.

    Parameters
    ----------
    quick : bool
        Fewer cases, each measured for a shorter time.
    chosen : sequence of Case, optional
        Cases of this module, in place of the usual ones.
    passes : int
        How often all are measured, forwards and backwards in turn, for the spread between passes.
    seconds : float, optional
        About how long to measure each case in each pass.
    progress : bool
        Whether to show a status line on a terminal.
    command : str, optional
        The command that the record names as its origin.

    Raises
    ------
    BadType, BadValue
        A budget that isn't a positive number; passes that aren't a whole number from 1.

    Examples
    --------
    >>> record = run(quick=True)  # doctest: +SKIP
    """
    needed("measuring", "jax")
    todo = cases(quick) if chosen is None else chosen
    if not isinstance(todo, Sequence) or not all(isinstance(case, Case) for case in todo):
        raise BadType(f"chosen must be a sequence of Case, got {shown(chosen)}")
    rounds = whole("passes", passes)
    budget = single("seconds", BUDGETS[bool(quick)] if seconds is None else seconds)
    samples, notes = [unmeasured(case) for case in todo], list(busy())
    done = 0
    with terminal.progress(progress) as say:
        for number in range(rounds):
            # Forwards and backwards in turn, since an earlier case may warm or slow the chip
            order = list(range(len(todo)))
            for index in order if number % 2 == 0 else reversed(order):
                case = todo[index]
                say(f"{done} of {rounds * len(todo)}: {case.name}")
                done += 1
                samples[index] = _attempt(case, samples[index], budget)
    return Record(
        device=device_facts(),
        host=host_facts(),
        software=software_versions(),
        date=now(),
        command=command or "roofline.measure.run()",
        samples=tuple(samples),
        notes=tuple(dict.fromkeys([*notes, *busy()])),
        flags={k: os.environ[k] for k in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") if os.environ.get(k)},
    )


def unmeasured(case: Case) -> Sample:
    """Return the sample of a case before its first pass."""
    return Sample(
        name=case.name,
        group=case.group,
        source="jax",
        dtype=case.work.dtype,
        flops=float(case.work.flops),
        matrix_flops=float(case.work.matrix_flops),
        bytes=float(case.work.bytes),
        network=float(case.work.others["network"]) if "network" in case.work.others else None,
    )


def _attempt(case: Case, sample: Sample, seconds: float) -> Sample:
    """Return the sample with one more pass, or why there is none."""
    if sample.error:
        return sample
    needs = 2 * float(case.work.bytes) if case.needs is None else case.needs
    free = free_memory()
    if free is not None and needs > 0.8 * free:
        error = f"not enough memory: needs {si(needs, 'B')}, {si(free, 'B')} are free"
        return replace(sample, error=error)
    try:
        begun = perf_counter()
        program = case.program(case.make())
        timing = clock(program, seconds=seconds, warm=case.warm, begun=begun)
    except Exception as failure:  # a failing kernel must not stop the others
        why = str(failure) if isinstance(failure, RooflineError) else reason(failure)
        if not sample.passes:
            return replace(sample, error=why)
        return replace(sample, notes=(*sample.notes, f"failed in a later pass: {why}"))
    if case.loops > 1:
        timing = replace(timing, **{n: getattr(timing, n) / case.loops for n in SECONDS})
    return replace(
        sample,
        passes=(*sample.passes, timing),
        notes=tuple(dict.fromkeys([*sample.notes, *getattr(program, "notes", ())])),
    )
