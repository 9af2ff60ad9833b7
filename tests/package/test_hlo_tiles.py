"""Cycles and tiles, as the TPU compiler notes them."""

from __future__ import annotations

from hlo_programs import BF16, fixture, one, program

from roofline_helpers import xla


def test_cycles_are_read() -> None:
    rows = xla.kernels(fixture("matmul-square.v6e.jax-0.10.2"), strict=True).rows
    (product,) = [row for row in rows if row.matrix_types]
    assert product.matrix_types == ("bf16",)
    assert product.cycles > 1024**3 * 2 / (2 * 4 * 256**2)  # not faster than four 256² units


def tiled(iteration: str, windows: tuple[str, str, str], k: int = 2048) -> xla.Row:
    """Return the product [4096, k] · [k, 1024], in these windows and iterations."""
    names = ("input", "kernel", "output")
    bounds = [f'"{n}_window_bounds":[{w}]' for n, w in zip(names, windows, strict=True)]
    bounds += ['"estimated_cycles":"7"', f'"iteration_bounds":[{iteration}]']
    config = f'{{"window_config":{{{",".join(bounds)}}}}}'
    layout = "{1,0:T(8,128)(2,1)}"
    return one(
        program(
            f"  %a = bf16[4096,{k}]{layout} parameter(0)\n"
            f"  %b = bf16[{k},1024]{layout} parameter(1)\n"
            f"  ROOT %y = bf16[4096,1024]{layout} convolution(%a, %b), dim_labels=bf_io->bf, "
            f"backend_config={config}"
        )
    )


def test_tiles_say_how_often_operands_are_fetched() -> None:
    a, b = BF16 * 4096 * 2048, BF16 * 2048 * 1024
    # m in 4 steps, n in 2, k in 8: a once for each n, b once for each m
    row = tiled('"2","4","8"', ('"128","2"', '"32","4"', '"128","4"'))
    assert row.tile_read == 2 * a + 4 * b
    # the whole of k in one window: b waits while m turns
    row = tiled('"2","4","1"', ('"128","16"', '"256","4"', '"128","4"'))
    assert row.tile_read == 2 * a + b
    # n not cut: everything once
    row = tiled('"1","4","1"', ('"128","16"', '"256","8"', '"128","8"'))
    assert row.tile_read == a + b
