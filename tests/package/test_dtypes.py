"""Data types: names, aliases, bytes."""

import re

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers.common.dtypes import BITS, COMPUTED, computed_as, dtype, nbytes, width


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("bf16", "bf16"),
        ("bfloat16", "bf16"),
        ("float8_e4m3fn", "fp8"),
        ("f8e5m2", "fp8"),
        ("s4", "int4"),
        (np.float32, "fp32"),
        (np.dtype("int8"), "int8"),
        (float, "fp64"),
        (np.zeros(2, "float16"), "fp16"),
    ],
)
def test_one_name_for_every_spelling(given, name):
    assert dtype(given) == name


def test_a_type_has_the_bits_of_its_name():
    assert nbytes(1000, "bool") == 1000
    plain = BITS.keys() - COMPUTED.keys() - {"bool"}
    assert len(plain) == 12
    for name in plain - {"tf32"}:
        assert nbytes(1000, name) == 1000 * int(re.search(r"\d+", name)[0]) // 8


def test_scales_take_bytes_and_no_peak_of_their_own():
    """MX: 32 elements and an 8-bit scale; NVFP4: 16 and a scale of fp8."""
    assert [nbytes(32, name) for name in ("mxfp8", "mxfp4")] == [32 + 1, 16 + 1]
    assert [nbytes(n, "nvfp4") for n in (16, 17)] == [8 + 1, 10]  # whole bytes
    assert [width(name) for name in ("mxfp4", "tf32", "int64")] == [17 / 32, 4, 8]
    assert nbytes(2**60, "mxfp4") == 17 * 2**55  # exact
    assert {computed_as(name) for name in COMPUTED} == {"fp8", "fp4"}
    b200 = rh.chip("b200")
    trainium = rh.chip("trainium-3")
    assert b200.peak("nvfp4") == b200.peak("fp4")
    assert rh.chip("mi355x").peak("mxfp4") == rh.chip("mi355x").peak("fp4")
    with pytest.raises(rh.UnknownName, match="has no nvfp4 peak"):
        rh.chip("mi355x").roofline("nvfp4")
    assert trainium.roofline("mxfp8").peak == trainium.matrix["fp8"].value
    weights = rh.work.matmul(1, 4096, 4096, "bf16", b="nvfp4").reads["b"]
    assert weights == 4096**2 * 9 / 16
