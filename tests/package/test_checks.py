"""Bad input: each call fails with an error that says what was given, allowed, and nearest."""

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, Roofline, UnknownName, Work, work
from roofline_helpers.common.checks import size
from roofline_helpers.common.dtypes import nbytes

ROOF = Roofline(100.0, {"hbm": 10.0, "vmem": 20.0})
CHIP = rh.chip("h100")
JOB = work.matmul(8, 8, 8)
TWO = np.array([1, 2])
THREE = np.array([1, 2, 3])

# What no size and no rate can be
NUMBERS = [
    (-1, BadValue, "-1"),
    (float("nan"), BadValue, "nan"),
    (10**400, BadValue, "1000"),
    ([1, -1], BadValue, "[1, -1]"),
    (True, BadType, "True (bool)"),
    ("8", BadType, "'8'"),
    (None, BadType, "None"),
    (3j, BadType, "3j (complex)"),
    (
        [
            [1, 2],
            [3],
        ],
        BadType,
        "[[1, 2], [3]]",
    ),
    ([], BadType, "[]"),
]
# One argument of each function that counts or compares, by the name that its message has
NUMERIC = {
    "m": lambda x: work.matmul(x, 8, 8),
    "batch": lambda x: work.matmul(8, 8, 8, batch=x),
    "n": lambda x: work.elementwise(x),
    "rows": lambda x: work.softmax(x, 8),
    "columns": lambda x: work.layernorm(8, x),
    "q_len": lambda x: work.flash_attention(1, x, 8),
    "elements": lambda x: work.all_reduce(x, 2),
    "chips": lambda x: work.all_reduce(8, x),
    "peak": lambda x: Roofline(x, 1),
    "bandwidth of hbm": lambda x: Roofline(1, {"hbm": x}),
    "passes['a']": lambda x: JOB.reading(a=x),
    "intensity": lambda x: ROOF.attainable(x),
    "achieved FLOP/s": lambda x: ROOF.mfu(x),
    "reads['x']": lambda x: Work("w", {"x": x}, {"y": 1}),
    "window": lambda x: rh.models.Local(x, 2),
}


@pytest.mark.parametrize("name", NUMERIC)
def test_no_number_gives_a_wrong_one(name):
    for value, error, text in NUMBERS:
        with pytest.raises(error) as caught:
            NUMERIC[name](value)
        assert str(caught.value).startswith(f"{name} must be ")
        assert text in str(caught.value)


# call, error, parts of the message
CALLS = [
    # near misses
    (lambda: rh.chip("v7z"), UnknownName, ["unknown chip 'v7z'", "Nearest: 'v7x'", "h100"]),
    (lambda: CHIP.peak("bf16", "vectro"), UnknownName, ["unit", "Nearest: 'vector'"]),
    (lambda: CHIP.roofline(levels=["hmb"]), UnknownName, ["NVIDIA H100 SXM", "Nearest: 'hbm'"]),
    (lambda: ROOF.ridge_at("hbn"), UnknownName, ["memory level", "Nearest: 'hbm'"]),
    (lambda: work.fuse(JOB, keep=["cc"]), UnknownName, ["made in this chain", "Nearest: 'c'"]),
    # no names, no flags
    (lambda: rh.chip(5), BadType, ["5", "Allowed: v2"]),
    (lambda: CHIP.roofline(levels=None), BadType, ["a name or a sequence of names", "None"]),
    (lambda: work.fuse(JOB, keep="c"), BadType, ["a sequence of tensor names", "'c'"]),
    (lambda: rh.plot.traffic({}), BadValue, ["at least one variant"]),
    (lambda: work.flash_attention(1, 8, causal=1), BadType, ["causal must be True or False"]),
    # sizes
    (lambda: work.matmul(1.5, 8, 8), BadValue, ["m must be a whole number", "1.5"]),
    (lambda: work.matmul(0, 8, 8), BadValue, ["from 1", "0 (int)"]),
    (lambda: nbytes(1e61, "bf16"), BadValue, ["elements", "1e+61"]),
    (lambda: work.matmul(TWO, THREE, 8), BadValue, ["broadcast", "m (2,)", "n (3,)"]),
    (lambda: work.flash_attention(1, 9, 8, causal=True), BadValue, ["q_len ≤ kv_len"]),
    (
        lambda: work.flash_attention(1, 8, heads=3, kv_heads=2),
        BadValue,
        ["heads (3)", "kv_heads (2)"],
    ),
    # tensors
    (lambda: Work("w", {}, {}), BadValue, ["at least one byte", "none"]),
    (lambda: Work("w", {"x": TWO}, {"y": THREE}), BadValue, ["broadcast", "reads['x'] (2,)"]),
    (lambda: Work("w", {"x": 1}, {}, others={"hbm": 2}), BadValue, ["reads and writes"]),
    (lambda: work.fuse(), BadType, ["at least one kernel is needed"]),
    # rooflines
    (lambda: Roofline(1, {}), BadValue, ["at least one memory level"]),
    (lambda: Roofline([1, 2], 1), BadType, ["peak", "one number"]),
    (lambda: ROOF.time(rh.Work), BadType, ["a kernel (roofline_helpers.work) is needed"]),
    # what a chip hasn't
    (lambda: CHIP.peak("int4"), UnknownName, ["H100", "int4", "Allowed: fp64"]),
    # showing
    (lambda: rh.si("5", "s"), BadType, ["value", "real number", "'5'"]),
    (lambda: rh.table([1]), BadType, ["rows", "[1]"]),
]


@pytest.mark.parametrize("case", range(len(CALLS)))
def test_a_bad_call_is_refused_in_words_that_help(case):
    call, error, parts = CALLS[case]
    with pytest.raises(error) as caught:
        call()
    told = str(caught.value)
    assert [part for part in parts if part not in told] == [], told
    assert len(told) < 500


# --- the checks themselves ------------------------------------------------------------------------


def test_sizes_stay_exact():
    assert size("n", 10**18) == 10**18
    assert size("n", np.int64(2**53 + 1)) == 2**53 + 1
    assert type(size("n", 3.0)) is int
    assert size("n", [1, 2]).tolist() == [1, 2]
    with pytest.raises(
        BadValue, match=r"n must be a whole number from 1 to 1e\+18, got 1000000000"
    ):
        size("n", 10**18 + 1)
