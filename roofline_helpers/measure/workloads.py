"""What is measured: streams for the memory ceiling, products, multiply-adds, and kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from roofline_helpers import work
from roofline_helpers._checks import whole
from roofline_helpers.measure.case import Case, array, kind_of
from roofline_helpers.measure.machine import free_memory, last_cache
from roofline_helpers.work import Work


def _stream(name: str, n: int, dtype: str, tensors: int, flops: int) -> Work:
    reads = {f"x{i}": dtype for i in range(tensors - 1)} if tensors > 1 else {}
    return work.elementwise(n, reads, {"y": dtype}, flops, dtype, name=name)


def memory_cases(size: int, dtype: str = "fp32") -> list[Case]:
    """Return the streaming kernels whose best is the memory ceiling; tensors of `size` bytes.

    Bytes are counted as STREAM does: each tensor once. A cache that fetches a line before it is
    written moves more, which shows as a lower bandwidth of copy, add and triad; "scale in place"
    writes what it has read, and so is free of that.

    Examples
    --------
    >>> [case.name for case in memory_cases(2**20)][:3]
    ['read 1 MiB fp32', 'write 1 MiB fp32', 'copy 1 MiB fp32']
    """
    import jax.numpy as jnp

    kind = kind_of(dtype)
    n = size // kind.itemsize
    half = kind.type(0.5)

    def vectors(count: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: tuple(array(n, dtype=dtype) for _ in range(count))

    def one(name: str, count: int, tensors: int, flops: int, fn: Any, **options: Any) -> Case:
        job = _stream(name, n, dtype, tensors, flops)
        label = f"{name} {_bytes(size)} {dtype}"
        return Case(label, "memory", job, vectors(count), fn, needs=4 * size, options=options)

    read = replace(work.reduction(1, n, dtype), name="read")
    write = Case(
        f"write {_bytes(size)} {dtype}",
        "memory",
        Work("write", {}, {"y": n * kind.itemsize}, dtype=dtype),
        lambda: (array(1, dtype=dtype),),
        lambda s: jnp.broadcast_to(s, (n,)) + half,
        needs=2 * size,
    )
    return [
        Case(
            f"read {_bytes(size)} {dtype}",
            "memory",
            read,
            vectors(1),
            lambda x: jnp.max(x),
            needs=2 * size,
        ),
        write,
        one("copy", 1, 2, 0, lambda x: jnp.copy(x)),
        one("scale", 1, 2, 1, lambda x: x * half),
        one("scale in place", 1, 2, 2, lambda x: x * half + half, inplace=True),
        one("add", 2, 3, 1, lambda x, y: x + y),
        one("triad", 2, 3, 2, lambda x, y: x + half * y),
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

    kind = kind_of(dtype)
    half = kind.type(0.5)

    def body(_: Any, x: Any) -> Any:
        return x * half + half

    on_cpu = jax.devices()[0].platform == "cpu"

    def looped(x: Any, turns: Any) -> Any:
        # the number of turns is an argument, so that XLA can't merge them
        return jax.lax.fori_loop(0, turns, body, x)

    def fixed(turns: int, x: Any) -> Any:
        # an accelerator takes microseconds to turn a loop: written out, with a barrier so that
        # XLA can't merge the turns
        for _ in range(turns):
            x = jax.lax.optimization_barrier(body(0, x))
        return x

    def arguments(n: int, turns: int) -> tuple[Any, ...]:
        return (array(n, dtype=dtype), *((np.int32(turns),) if on_cpu else ()))

    cases = []
    for size in (whole("a size of sizes", each) for each in sizes):
        n = max(size // kind.itemsize, 1)
        loops = min(max(2**26 // size, 1), 2**10 if on_cpu else 2**6)
        job = _stream("scale in place, looped", n, dtype, 2, 2)
        cases.append(
            Case(
                f"scale in place, looped {_bytes(size)} {dtype}",
                "levels",
                job,
                functools.partial(arguments, n, loops),
                looped if on_cpu else functools.partial(fixed, loops),
                needs=3 * size,
                loops=loops,
                options={"inplace": True},
            )
        )
    return cases


def matmul_case(
    m: int,
    n: int,
    k: int,
    dtype: str = "bf16",
    *,
    batch: int = 1,
    group: str = "compute",
    turned: bool = False,
    **options: Any,
) -> Case:
    """Return C[m, n] = A[m, k] · B[k, n], `batch` of them; `turned`: B is stored as [n, k].

    In 8 bits B is always stored as [n, k]. The kernels of NVIDIA's library read it in that order,
    and XLA would otherwise transpose it in every call: on an H100 half as long as the product.
    int8 products sum in int32. "tf32" is fp32 at JAX's default precision, which means that on
    GPUs of NVIDIA's; "fp32" asks for all of its bits.

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

    turned = turned or kind_of(stored).itemsize == 1

    def product(a: Any, b: Any) -> Any:
        b = jnp.swapaxes(b, -1, -2) if turned else b
        return jnp.matmul(a, b, precision=exact, preferred_element_type=preferred)

    lead = (batch,) if batch > 1 else ()
    size = f"{batch} × " * (batch > 1) + f"{m}×{n}×{k}"
    counted = work.matmul(m, n, k, dtype, out=out, batch=batch)
    on_cpu = jax.devices()[0].platform == "cpu"
    second = (n, k) if turned else (k, n)
    return Case(
        f"matmul {size} {dtype}" + ", B transposed" * turned,
        group,
        counted,
        lambda: (array(*lead, m, k, dtype=stored), array(*lead, *second, dtype=stored)),
        product,
        warm=1.0 if counted.flops > 1e11 and not on_cpu else 0.0,
        options=options,
    )


def vector_case(dtype: str = "fp32", n: int = 2**20, steps: int = 256) -> Case:
    """Return a chain of multiply-adds on the vector unit: 2 · steps FLOPs for each element.

    Where the compiler keeps multiply and add apart, half of a peak that counts a fused
    multiply-add as two is the most that can come out: on an H100, 31.5 of 67 TFLOP/s in fp32.

    Examples
    --------
    >>> vector_case(n=1024, steps=16).work.flops
    32768
    """

    def chain(x: Any, a: Any, b: Any) -> Any:
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

    n = rows * columns
    seq, width = min(columns, 1024), 64
    heads = max(n // (seq * width * 4), 1)
    scores = work.total(*work.naive_attention(1, seq, heads=heads, head_dim=width, dtype=dtype))

    def one(name: str, job: Work, fn: Any, *shapes: tuple[int, ...]) -> Case:
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
    return [
        one(f"GELU {size}", work.gelu(n, dtype), jax.nn.gelu, full),
        one(f"row sums {size}", sums, lambda x: x.sum(1), full),
        one(f"softmax {size}", work.softmax(rows, columns, dtype), jax.nn.softmax, full),
        one(f"LayerNorm {size}", norm, _layernorm, full, row, row),
        one(f"attention {heads}×{seq}×{width}", scores, _attention, *[(heads, seq, width)] * 3),
        one(
            f"matvec {columns}×{columns}", product, lambda x, w: x @ w, (1, columns), (columns,) * 2
        ),
    ]


def _layernorm(x: Any, g: Any, b: Any) -> Any:
    import jax

    wide = x.astype("float32")
    centred = wide - wide.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return (scaled * g + b).astype(x.dtype)


def _attention(q: Any, k: Any, v: Any) -> Any:
    import jax
    import jax.numpy as jnp

    scores = jnp.einsum("hqd,hkd->hqk", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def cases(quick: bool = False) -> list[Case]:
    """Return what `run` measures on the default device, sized for it.

    Parameters
    ----------
    quick : bool
        Fewer sizes and data types.

    Examples
    --------
    >>> cases(quick=True)[0].group
    'memory'
    """
    import jax

    on_cpu = jax.devices()[0].platform == "cpu"
    budget = free_memory() or 4 * 2**30
    # A launch leaves a gap of some 10 µs on a GPU: 4 GiB tensors make that less than a percent
    size = max(4 * last_cache(), 2**27 if on_cpu else 2**32)
    size = 2 ** math.ceil(math.log2(size))
    while 4 * size > budget / 2 and size > 2**20:
        size //= 2
    chosen = memory_cases(size)
    if not quick:
        # half the size may still half fit the cache: it shows that, and is no ceiling
        chosen += [replace(case, group="levels") for case in memory_cases(size // 2)]
        chosen += level_cases(
            [2**e for e in range(14, int(math.log2(size)) + 1, 1 if on_cpu else 2)]
        )
    if on_cpu:
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


def _bytes(size: int) -> str:
    for prefix, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size >= factor and size % (factor // 8) == 0:
            return f"{size / factor:g} {prefix}B"
    return f"{size} B"
