"""Count the Pallas kernels of a function that is traced, and neither compiled nor run."""

from __future__ import annotations

from typing import Any
from unittest import mock

from roofline_helpers._checks import name_of
from roofline_helpers.compiled import lowering, pallas
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.hlo.blocks import PallasKernel


def pallas_kernels(
    fn: Any, *args: Any, platform: str = "tpu", **kwargs: Any
) -> tuple[PallasKernel, ...]:
    """Return the Pallas kernels that a function launches, counted; nothing is compiled or run.

    FLOPs are the body's, over the grid. Bytes are what the block specs and their index maps fetch:
    on a TPU, whose grid runs in order, a block whose index stays is not fetched again; on a GPU
    each program asks for its own, and the caches keep what they can.

    Parameters
    ----------
    fn : callable
        A plain function, or one that `jax.jit` made. A kernel in a loop is counted once.
    *args, **kwargs
        Its arguments: arrays, `jax.ShapeDtypeStruct` objects, pytrees of them; what JAX can't
        trace, such as a function, is held fixed.
    platform : {"tpu", "gpu"}
        Where kernels run that don't say it themselves, and what a function sees that asks.

    Returns
    -------
    tuple of PallasKernel
        In the order in which they are launched. A grid that depends on data, or has more than
        `pallas.MOST_STEPS` steps, can't be counted: its kernel is left out.

    Raises
    ------
    CannotTrace
        JAX can't trace the function with these arguments.
    UnknownName
        No such platform.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jax.experimental import pallas as pl
    >>> def double(x_ref, y_ref):
    ...     y_ref[...] = 2 * x_ref[...]
    >>> rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
    >>> x = jax.ShapeDtypeStruct((64, 128), jnp.float32)
    >>> call = pl.pallas_call(double, grid=(8,), in_specs=[rows], out_specs=rows, out_shape=x)
    >>> [kernel] = pallas_kernels(call, x)
    >>> kernel.flops, kernel.bytes, kernel.operands[0].fetches
    (8192.0, 65536.0, 8)
    """
    import jax

    platform = name_of("platform", platform, ["tpu", "gpu"])
    with (
        lowering.errors_of(fn),
        mock.patch.object(jax, "default_backend", return_value=platform),
    ):
        traced, _ = lowering.trace(fn, Arguments(args, kwargs), {})
    return pallas.counted(traced.jaxpr, platform)
