"""Bad input: each call fails with an error that says what was given, allowed, and nearest."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, Roofline, RooflineError, UnknownName, Work, work
from roofline_helpers.common.checks import name_of, quantity, size, sizes
from roofline_helpers.common.dtypes import dtype, nbytes

ROOF = Roofline(100.0, {"hbm": 10.0, "vmem": 20.0})
CHIP = rh.chip("h100")
JOB = work.matmul(8, 8, 8)
TWO, THREE = np.array([1, 2]), np.array([1, 2, 3])

# What no size and no rate can be
NUMBERS: list[tuple[Any, type[RooflineError], str]] = [
    (-1, BadValue, "-1"),
    (float("nan"), BadValue, "nan"),
    (10**400, BadValue, "10**400"),
    ([1, -1], BadValue, "[1, -1]"),
    (True, BadType, "True (bool)"),
    ("8", BadType, "'8' (str)"),
    (None, BadType, "None"),
    (3j, BadType, "3j (complex)"),
    ([[1, 2], [3]], BadType, "[[1, 2], [3]]"),
    ([], BadType, "[]"),
]
# One argument of each function that counts or compares, by the name that its message has
NUMERIC: dict[str, Callable[[Any], Any]] = {
    "m": lambda x: work.matmul(x, 8, 8),
    "batch": lambda x: work.matmul(8, 8, 8, batch=x),
    "n": lambda x: work.elementwise(x),
    "rows": lambda x: work.softmax(x, 8),
    "columns": lambda x: work.layernorm(8, x),
    "q_len": lambda x: work.flash_attention(1, x, 8),
    "seq": lambda x: work.transformer_block(1, x, 8, 2, 8, kv_len=8),
    "elements": lambda x: work.all_gather(x, 2),
    "chips": lambda x: work.all_reduce(8, x),
    "peak": lambda x: Roofline(x, 1),
    "bandwidth of hbm": lambda x: Roofline(1, {"hbm": x}),
    "passes['a']": lambda x: JOB.reading(a=x),
    "intensity": lambda x: ROOF.attainable(x),
    "achieved FLOP/s": lambda x: ROOF.mfu(x),
    "reads['x']": lambda x: Work("w", {"x": x}, {"y": 1}),
}


@pytest.mark.parametrize("name", NUMERIC)
def test_no_number_gives_a_wrong_one(name: str) -> None:
    for value, error, text in NUMBERS:
        with pytest.raises(error) as caught:
            NUMERIC[name](value)
        assert str(caught.value).startswith(f"{name} must be ")
        assert text in str(caught.value)


# call, error, parts of the message
CALLS: list[tuple[Callable[[], Any], type[RooflineError], list[str]]] = [
    # near misses
    (lambda: rh.chip("v7z"), UnknownName, ["unknown chip 'v7z'", "Nearest: 'v7x'", "mi300x"]),
    (lambda: dtype("bf17"), UnknownName, ["data type 'bf17'", "Nearest: 'bf16'", "int4"]),
    (lambda: work.matmul(8, 8, 8, b="int9"), UnknownName, ["Nearest: 'int8'"]),
    (lambda: CHIP.peak("bf16", "vectro"), UnknownName, ["unit", "Nearest: 'vector'"]),
    (lambda: CHIP.roofline(levels=["hmb"]), UnknownName, ["NVIDIA H100 SXM", "Nearest: 'hbm'"]),
    (lambda: CHIP.roofline(network="nvlnk"), UnknownName, ["Nearest: 'nvlink'", "nic"]),
    (lambda: ROOF.attainable(1, "hbn"), UnknownName, ["memory level", "Nearest: 'hbm'"]),
    (lambda: JOB.reading(aa=2), UnknownName, ["read by matmul", "Nearest: 'a'"]),
    (lambda: work.fuse(JOB, keep=["cc"]), UnknownName, ["made in this chain", "Nearest: 'c'"]),
    # no names, no flags
    (lambda: rh.chip(5), BadType, ["5", "Allowed: v2"]),
    (lambda: rh.chip(SimpleNamespace(device_kind="cpu")), UnknownName, ["'cpu'"]),
    (lambda: dtype({}), BadType, ["{} (dict)", "Allowed: fp64"]),
    (lambda: work.matmul(8, 8, 8, shared_b=1), BadType, ["shared_b must be True or False"]),
    (lambda: work.relu(8, x=3), BadType, ["3 (int)"]),
    # sizes
    (lambda: work.matmul(1.5, 8, 8), BadValue, ["m must be a whole number", "1.5"]),
    (lambda: work.matmul(0, 8, 8), BadValue, ["from 1", "0 (int)"]),
    (lambda: nbytes(1e61, "bf16"), BadValue, ["elements", "1e+61"]),
    (lambda: work.matmul(TWO, THREE, 8), BadValue, ["broadcast", "m (2,)", "n (3,)"]),
    (lambda: work.total(work.relu(TWO), work.relu(THREE)), BadValue, ["(2,)", "(3,)"]),
    (lambda: work.matmul(8, 8, 8, splits=9), BadValue, ["splits", "at most k (8", "9"]),
    (lambda: work.matmul(8, 8, 8, tile=(1, 2, 3)), BadType, ["sequence of 2", "(1, 2, 3)"]),
    (lambda: work.attention_scores(1, 8, heads=8, kv_heads=3), BadValue, ["multiple", "3"]),
    (lambda: work.flash_attention(1, 9, 8, causal=True), BadValue, ["q_len ≤ kv_len"]),
    (lambda: work.transformer_block(1, 8, 9, 2, 8), BadValue, ["d_model (9)", "heads (2)"]),
    (lambda: work.all_reduce(8, 1), BadValue, ["at least 2", "1"]),
    # tensors
    (lambda: Work("w", {}, {}), BadValue, ["at least one byte", "none"]),
    (lambda: Work("w", 5, {}), BadType, ["reads must be a mapping", "5"]),
    (lambda: Work("w", {"x": 1}, {}, passes={"z": 2}), UnknownName, ["'z'", "Allowed: x"]),
    (lambda: Work("w", {"x": 1}, {}, others={"hbm": 2}), BadValue, ["reads and writes"]),
    (lambda: work.elementwise(8, flops=1, transcendentals=2), BadValue, ["16", "8"]),
    (lambda: work.elementwise(8, 1001), BadValue, ["reads", "0 to 1000", "1001"]),
    (lambda: JOB.reading(a=0.5), BadValue, ["at least 1", "0.5"]),
    (lambda: work.fuse(), BadType, ["at least one kernel is needed"]),
    (lambda: work.total(5), BadType, ["must be a Work", "5"]),
    # rooflines
    (lambda: Roofline(1, {}), BadValue, ["at least one memory level"]),
    (lambda: Roofline([1, 2], 1), BadType, ["peak", "one number"]),
    (lambda: ROOF.measured(), BadType, ["at least one of peak, levels"]),
    (lambda: ROOF.attainable({"l2": 1}), UnknownName, ["'l2'", "Allowed: hbm, vmem"]),
    (lambda: ROOF.attainable(JOB, "hbm"), BadValue, ["plain intensity", "Work"]),
    (lambda: ROOF.efficiency(1, 0), BadValue, ["intensity 0"]),
    (lambda: ROOF.time(rh.Work), BadType, ["a kernel (roofline_helpers.work) is needed"]),
    # what a chip hasn't
    (lambda: CHIP.peak("int4"), UnknownName, ["H100", "int4", "Allowed: fp64"]),
    (lambda: rh.chip("v7x").roofline("int8"), UnknownName, ["v7x", "int8", "bf16, fp8"]),
    (lambda: CHIP.roofline(network="ici"), UnknownName, ["'ici'", "Allowed: nvlink"]),
    # showing
    (lambda: rh.si("5", "s"), BadType, ["value", "real number", "'5'"]),
    (lambda: rh.si(1, "s", digits=0), BadValue, ["digits", "0"]),
    (lambda: rh.table([1]), BadType, ["rows", "[1]"]),
]


@pytest.mark.parametrize("case", range(len(CALLS)))
def test_a_bad_call_is_refused_in_words_that_help(case: int) -> None:
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
    assert size("n", 17, 17) == 17
    assert [value if np.ndim(value) == 0 else value.tolist() for value in sizes(a=1, b=[2, 3])] == [
        1,
        [2, 3],
    ]


def test_an_array_given_is_never_changed():
    array = np.array([1.0, 2.0])
    kept = quantity("x", array)
    kept[0] = 5
    assert array.tolist() == [1, 2]


def test_names_go_by_spelling_and_exact_ones_first():
    assert name_of("level", "x_1", ["x1", "x_1"]) == "x_1"
    assert name_of("level", "X-1", ["x_1"]) == "x_1"
    assert name_of("level", "Two Words", ["b"], {"two_words": "b"}) == "b"
    with pytest.raises(UnknownName, match=r"unknown level 'zzz' \(str\)\. Allowed: a, b$"):
        name_of("level", "zzz", ["a", "b"])
    with pytest.raises(UnknownName, match=r"Allowed: \(none\)"):
        name_of("level", "zzz", [])
    with pytest.raises(
        UnknownName, match=r"level 'X 1' \(str\) may be any of x1, x_1: spell it out"
    ):
        name_of("level", "X 1", ["x1", "x_1", "x2"])
