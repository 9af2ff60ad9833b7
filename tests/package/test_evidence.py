"""What the records of evidence say: cycles of the TPU compiler, measured decode steps."""

import pytest

from measurements import cycles
from roofline import evidence as files
from roofline import serving
from roofline.xla import can_compile
from roofline_helpers import models


@pytest.mark.parametrize("side", [128, pytest.param(4096, marks=pytest.mark.weekly)])
def test_cycles_are_those_of_the_file(side):
    pytest.importorskip("jax")
    why = can_compile("v7x")
    if why:
        pytest.skip(f"the compiler's cycles were NOT estimated again: {why}")
    import jax

    x = jax.ShapeDtypeStruct((side, side), "bfloat16")
    name = f"matmul {side}×{side}×{side} bf16"
    [row] = [row for row in files.load("cycles")["rows"] if row["program"] == name]
    assert cycles._of("v7x", lambda a, b: a @ b, x, x)["cycles"] == row["cycles"]


def test_no_measured_decode_step_beats_the_model_s():
    kept = files.decode()
    for row in kept["steps"]:
        setting = {"reached": True, "resident": True, "fusion": "epilogue"}
        step = serving.step(
            models.LLAMA_3_8B, kept["device"]["chip"], batch=row["batch"], **setting
        )
        assert 1 < row["kernels of our own"] / step.seconds < 1.2
        bare = step.but(reached=False, resident=False, floor=False)
        assert bare.seconds < step.seconds
