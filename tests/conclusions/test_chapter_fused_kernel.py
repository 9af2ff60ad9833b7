"""Conclusions of the chapter fused-kernel: each test would refute one."""

from typing import Any

import jax
import pytest

from roofline import xla


@pytest.mark.parametrize(("stays", "fetches"), [(False, 64), (True, 36)])
def test_a_step_that_does_nothing_fetches_its_block_unless_the_index_stays(
    stays: bool, fetches: int
) -> None:
    from jax.experimental import pallas as pl

    def lower(x: Any) -> Any:
        at = (lambda i, k: (i, jax.numpy.minimum(i, k))) if stays else (lambda i, k: (i, k))

        def body(x_ref: Any, y_ref: Any) -> None:
            @pl.when(pl.program_id(1) <= pl.program_id(0))
            def _() -> None:
                y_ref[...] = x_ref[...]

        row = pl.BlockSpec((128, 128), lambda i, k: (i, 0))
        out = jax.ShapeDtypeStruct((1024, 128), "float32")
        block = pl.BlockSpec((128, 128), at)
        return pl.pallas_call(body, grid=(8, 8), in_specs=[block], out_specs=row, out_shape=out)(x)

    (one,) = xla.pallas_kernels(lower, jax.ShapeDtypeStruct((1024, 1024), "float32"))
    assert one.operands[0].fetches == fetches
