"""What the records of evidence say: cycles of the TPU compiler, measured decode steps."""

from typing import Any

import pytest

from measurements import cycles
from roofline import evidence as files
from roofline import serving
from roofline.xla import can_compile
from roofline.xla.expected import worth_of_cycles
from roofline_helpers import models


def test_cycles_are_a_constant_for_large_products_only() -> None:
    ticks = {
        row["program"]: row["cycles"] / row["published"] / 1e9
        for row in files.load("cycles")["rows"]
        if row["chip"] == "v7x" and row["published"]
    }
    large = [ticks[f"matmul {n}×{n}×{n} bf16"] for n in (4096, 16384)]
    assert 2.05 < min(large) < max(large) < 2.14
    assert ticks["copy of 1024 MiB"] == pytest.approx(5.05, abs=0.01)
    assert ticks["matmul 128×128×128 bf16"] > 1.5 * max(large)
    worth = worth_of_cycles()
    assert (worth.least, worth.largest) == pytest.approx((0.44, 1.22), abs=0.005)
    assert "matmuls took 0.63 to 1.22 of that, copies 0.44 to 0.91" in worth.why


@pytest.mark.parametrize("side", [128, pytest.param(4096, marks=pytest.mark.weekly)])
def test_cycles_are_those_of_the_file(side: int) -> None:
    pytest.importorskip("jax")
    why = can_compile("v7x")
    if why:
        pytest.skip(f"the compiler's cycles were NOT estimated again: {why}")
    import jax

    x = jax.ShapeDtypeStruct((side, side), "bfloat16")
    name = f"matmul {side}×{side}×{side} bf16"
    [row] = [row for row in files.load("cycles")["rows"] if row["program"] == name]
    assert cycles._of("v7x", lambda a, b: a @ b, x, x)["cycles"] == row["cycles"]


def test_no_measured_decode_step_beats_the_model_s() -> None:
    kept = files.decode()
    for row in kept["steps"]:
        setting: dict[str, Any] = {"reached": True, "resident": True, "fusion": "epilogue"}
        step = serving.step(
            models.LLAMA_3_8B, kept["device"]["chip"], batch=row["batch"], **setting
        )
        assert 1 < row["kernels of our own"] / step.seconds < 1.2
        bare = step.but(reached=False, resident=False, floor=False)
        assert bare.seconds < step.seconds
