"""A judge of kernels for a TPU that needn't be here: the same result, at most so many bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from roofline.xla.analysis import analyze
from roofline.xla.compiler import CannotCompile
from roofline.xla.lower import CannotTrace, pallas_kernels
from roofline.xla.pallas import PallasKernel
from roofline.xla.targets import can_compile, other_libtpu
from roofline_helpers.common.show import si

VMEM = 16 * 2.0**20
"""Bytes of VMEM that a kernel may take on a v5e, unless its author raises the compiler's limit."""


def judge(
    fn: Callable[..., Any],
    *args: Any,
    expected: Any,
    hbm_bytes: float,
    vmem: float = VMEM,
    chip: str = "v5e",
) -> str:
    """Judge a function that does all its work in Pallas kernels for a TPU, which needn't be here.

    The kernels run interpreted. Their bytes are those that block specs and index maps fetch, which
    is exact on a TPU. Where its compiler is installed, it has to accept the program, and the
    program may move no more than `hbm_bytes` either; where it isn't, the verdict says so.

    Parameters
    ----------
    fn, *args
        The function, which calls `pallas_call` itself, and its arguments: arrays.
    expected : array or pytree of arrays
        The result. Floats may differ by 10⁻⁴ of the largest, or 2⁻⁷ in bf16, whole numbers of
        8 bits by 1, others not.
    hbm_bytes, vmem : float
        The most bytes that may cross HBM, and that blocks and scratch of one kernel may take.
    chip : str
        The TPU whose compiler is asked.

    Returns
    -------
    str
        "passes: …" with the bytes, or "refused: …" with the reason.

    Raises
    ------
    CannotTrace
        JAX can't trace the function with these arguments.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jax.experimental import pallas as pl
    >>> def double(x_ref, y_ref):
    ...     y_ref[...] = 2 * x_ref[...]
    >>> def twice(x):
    ...     return pl.pallas_call(double, out_shape=x)(x)
    >>> x = jnp.ones((512, 128))
    >>> judge(twice, x, expected=2 * x, hbm_bytes=5e5)
    'refused: 524 kB cross HBM, 24.3 kB too many'
    >>> judge(twice, x, expected=3 * x, hbm_bytes=6e5)
    'refused: the result at (0, 0) is 2, and should be 3'
    >>> judge(lambda x: 2 * twice(x), x, expected=4 * x, hbm_bytes=6e5)
    'refused: mul outside kernels; all work has to be in kernels'
    >>> judge(twice, x, expected=2 * x, hbm_bytes=6e5, vmem=1e6)
    'refused: a kernel takes 1.05 MB of VMEM, and 1 MB are allowed'
    """
    import jax
    from jax.experimental.pallas import tpu as pltpu

    kernels = pallas_kernels(fn, *args)
    given, wanted = jax.tree.leaves(args), jax.tree.leaves(expected)
    found = Counter(_operations(jax.make_jaxpr(fn)(*args).jaxpr))
    if outside := sorted(found.keys() - {"pallas_call", "reshape", "squeeze"}):
        return f"refused: {', '.join(outside)} outside kernels; all work has to be in kernels"
    if not kernels or found["pallas_call"] > len(kernels):
        return "refused: there is no kernel, or one whose bytes can't be counted"
    jax.clear_caches()  # a trace that JAX has kept isn't interpreted
    with pltpu.force_tpu_interpret_mode():
        results = jax.tree.leaves(fn(*args))
    jax.clear_caches()
    moved = sum(kernel.bytes for kernel in kernels)
    vmem_used = max(kernel.vmem for kernel in kernels)
    reason = _wrong(results, wanted)
    if reason is None and any(kernel.most is not None for kernel in kernels):
        reason = "data decide how many bytes it moves: there is no exact count"
    if reason is None and moved > hbm_bytes:
        said = f"{si(moved, 'B')} cross HBM, {si(moved - hbm_bytes, 'B')} too many"
        reason = "\n  ".join([said, *_excess(kernels, given, wanted)])
    if reason is None and vmem_used > vmem:
        reason = f"a kernel takes {si(vmem_used, 'B')} of VMEM, and {si(vmem, 'B')} are allowed"
    missing = can_compile(chip) or next(other_libtpu(), None)
    if reason is None and missing is None:
        try:
            whole = analyze(fn, *args, chip=chip).hbm_bytes
            if whole > hbm_bytes:
                reason = f"compiled for {chip}, the program moves {si(whole, 'B')}"
        except (CannotTrace, CannotCompile) as error:
            reason = str(error)
    if reason is not None:
        return f"refused: {reason}"
    unsure = f", but not compiled for {chip}: {missing}" if missing else ""
    return f"passes: {si(moved, 'B')} of {si(hbm_bytes, 'B')}{unsure}"


def _operations(jaxpr: Any) -> Iterator[str]:
    """Yield the names of the operations that a function does, each kernel as one."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("jit", "pjit"):
            yield from _operations(equation.params["jaxpr"].jaxpr)
        else:
            yield equation.primitive.name


def _wrong(results: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    """Return in words how results are wrong; None where they aren't."""
    import jax
    import jax.numpy as jnp

    has, form = (", ".join(jax.typeof(a).str_short() for a in part) for part in (results, wanted))
    if has != form:
        return f"the result is {has}, and should be {form}"
    for result, want in zip(results, wanted, strict=True):
        a, b = (np.asarray(x, np.float64) for x in (result, want))
        error = np.nan_to_num(np.abs(a - b), nan=np.inf)
        if jnp.issubdtype(want.dtype, jnp.floating):
            close = max(1e-4, jnp.finfo(want.dtype).eps) * np.abs(b).max()
        else:  # a half may be rounded up or down to 8 bits; other whole numbers are exact
            close = float(want.dtype.itemsize == 1 and want.dtype != bool)
        if error.max() > close:
            at = np.unravel_index(error.argmax(), a.shape)
            where = ", ".join(map(str, at))
            return f"the result at ({where}) is {a[at]:.4g}, and should be {b[at]:.4g}"
    return None


def _excess(
    kernels: Sequence[PallasKernel], args: Sequence[Any], results: Sequence[Any]
) -> Iterator[str]:
    """Yield the operands that move notably more than each argument, and each result, once."""
    numbered = list(enumerate(kernels, 1))
    for result, arrays, order in ((False, args, numbered), (True, results, numbered[::-1])):
        once = Counter(float(array.nbytes) for array in arrays)
        for at, operand in ((at, o) for at, k in order for o in k.operands if o.result == result):
            once[operand.size] -= 1
            extra = operand.moved - (operand.size if once[operand.size] >= 0 else 0.0)
            if extra > 0.01 * sum(kernel.bytes for kernel in kernels):
                does = f"kernel {at} {'writes' if result else 'reads'} {operand.name}"
                yield f"{does}: {si(operand.moved, 'B')}, {si(extra, 'B')} more than needed"
