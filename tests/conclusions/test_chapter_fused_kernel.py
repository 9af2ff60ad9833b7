"""Conclusions of the chapter fused-kernel: each test would refute one."""

from typing import Any

import jax
import pytest
from conclusions import path

from roofline import xla
from tools.notebooks import run as notebooks


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


@pytest.mark.parametrize(("dtype", "share"), [("bfloat16", 2), ("int8", 1)])
def test_half_of_a_square_block_s_side_is_the_intensity_in_two_bytes_only(
    dtype: str, share: int
) -> None:
    """The chapter's own tiled matmul, counted by its specs."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    names: dict[str, Any] = {"jax": jax, "jnp": jax.numpy, "pl": pl, "pltpu": pltpu}
    for cell in notebooks.load(path("fused-kernel")).cells:
        if cell.source.startswith(("def tile_kernel", "def matmul")):
            exec(cell.source, names)
    square = jax.ShapeDtypeStruct((8192, 8192), dtype)
    for side in (512, 1024):
        (one,) = xla.pallas_kernels(
            lambda x, y, side=side: names["matmul"](x, y, side, side, 256), square, square
        )
        assert one.flops / one.bytes == pytest.approx(side / share, rel=0.07)
