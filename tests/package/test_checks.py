"""Bad input: each call fails with an error that says what was given, allowed, and nearest."""

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, Roofline, UnknownName, Work, work
from roofline_helpers.common import checks
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


def test_quantities_are_from_1e_60_to_1e60():
    assert [checks.quantity("q", x) for x in (1e60, 1.1e-60)] == [1e60, 1.1e-60]
    assert checks.quantity("q", [0, 2], zero=True).tolist() == [0, 2]
    for value in (1.1e60, 0.9e-60, 10**60 + 10**45, 0):
        with pytest.raises(BadValue, match=r"q must be a positive finite number \(1e-60 to 1e60\)"):
            checks.quantity("q", value)
    with pytest.raises(BadValue, match="q must be zero or a positive"):
        checks.quantity("q", -1, zero=True)
    with pytest.raises(BadValue, match="levels must name each once"):
        Roofline(1, {"L2": 1, "l-2": 2})
    with pytest.raises(BadType, match="bandwidth of hbm must be one number, got an array of 2"):
        Roofline(1, {"hbm": [1, 2]})


def test_real_numbers_may_be_any_and_finite_ones_no_more():
    assert [checks.real("x", x) for x in (-2, np.float32(0.5), -np.inf)] == [-2, 0.5, -np.inf]
    assert checks.finite("x", -2) == -2
    wrong = True, [1.0], np.array([1.0]), np.array([1.0, 2.0]), "1"
    for value, error in (*((one, BadType) for one in wrong), (np.nan, BadValue)):
        with pytest.raises(error, match="x must be a"):
            checks.finite("x", value)
    assert [checks.ceil_div(*pair) for pair in ((6, 3), (7, 3), (10**20 + 1, 10**20))] == [2, 3, 2]


def test_a_name_is_found_in_any_spelling_and_the_nearest_is_told():
    aliases = {"float 8": "fp8", "FP4": "nvfp4"}
    names = {"B-F16": "bf16", "bf_16": "bf_16", "Float-8": "fp8", "fp4": "fp4"}
    allowed = ["bf_16", "bf16", "fp8", "fp4", "nvfp4"]
    assert {said: checks.name_of("type", said, allowed, aliases) for said in names} == names
    for cut_off in ("fp8-", "_fp8"):
        with pytest.raises(UnknownName, match=f"unknown type '{cut_off}'. Nearest: 'fp8'"):
            checks.name_of("type", cut_off, allowed)
    sizes = ["Llama 70 big", "Llama 8B"]
    with pytest.raises(UnknownName, match="Nearest: 'Llama 8B'"):  # one word says more
        checks.name_of("model", "llama 70B 8B", sizes)
    many = [f"name{n:03}" for n in range(100)]
    with pytest.raises(UnknownName, match=r"name043 and 56 more$"):
        checks.name_of("name", "x", many)
    assert [len(checks.shown("x" * n)) for n in (78, 79)] == [80, 80]
    assert checks.shown("x" * 78)[-2:] == "x'"
    assert checks.shown("x" * 79)[-4:] == "x..."
    with pytest.raises(checks.NotInstalled, match=r"^it needs no_such: pip install no_such$"):
        checks.needed("it", "json", "no_such")
