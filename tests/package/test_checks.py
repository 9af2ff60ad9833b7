"""Bad input: every call of `bad_arguments` fails with an error that helps; none gives a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from bad_arguments import JOB, NAMES, NUMERIC, OTHERS, ROOF, not_names_for, numbers_for

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, Roofline, RooflineError, UnknownName, work
from roofline_helpers._checks import fitting, flag, name_of, quantity, shown, size, sizes
from roofline_helpers.dtypes import dtype
from roofline_helpers.show import significant

PARENTS = {BadValue: ValueError, BadType: TypeError, UnknownName: KeyError}


def fault(
    call: Callable[..., Any],
    *arguments: Any,
    error: type[RooflineError],
    start: str = "",
    parts: Iterable[str] = (),
) -> str | None:
    """Return what is wrong with how a call fails; None if it fails in the right words."""
    try:
        result = call(*arguments)
    except Exception as caught:
        told = str(caught)
        if not isinstance(caught, error) or not isinstance(caught, PARENTS.get(error, error)):
            return f"{type(caught).__name__}, not {error.__name__}: {told}"
        good = told.startswith(start) and all(part in told for part in parts) and len(told) < 500
        return None if good else told
    return f"no error, but {result!r}"


def only_faults(tried: Iterable[tuple[Any, str | None]]) -> dict[Any, str]:
    """Return what failed otherwise than it should, by what was tried."""
    return {key: text for key, text in tried if text is not None}


def test_bad_numbers() -> None:
    def tried(name: str, call: Callable[..., Any]) -> Iterator[tuple[Any, str | None]]:
        start = f"{name.partition(': ')[2]} must be "
        for value, error, text in numbers_for(name):
            yield (name, text), fault(call, value, error=error, start=start, parts=[text])

    assert only_faults(chain.from_iterable(tried(*each) for each in NUMERIC.items())) == {}


def test_near_misses_name_the_nearest() -> None:
    def tried(name: str) -> str | None:
        call, miss, nearest, allowed = NAMES[name]
        start = f"unknown {name.partition(': ')[2]} {miss!r} "
        parts = [f"Nearest: {nearest!r}. Allowed: ", allowed]
        return fault(call, miss, error=UnknownName, start=start, parts=parts)

    assert only_faults((name, tried(name)) for name in NAMES) == {}


def test_names_are_strings() -> None:
    def tried(name: str) -> Iterator[tuple[Any, str | None]]:
        for value, text in not_names_for(name):
            yield (name, text), fault(NAMES[name][0], value, error=BadType, parts=[text])

    assert only_faults(chain.from_iterable(map(tried, NAMES))) == {}


def test_other_bad_calls() -> None:
    tried = (fault(call, error=error, parts=parts) for call, error, parts in OTHERS)
    assert only_faults(enumerate(tried)) == {}


def test_many_bad_calls_are_tried() -> None:
    tried = [*map(numbers_for, NUMERIC), *map(not_names_for, NAMES), NAMES, OTHERS]
    assert sum(map(len, tried)) > 2000


EMPTY: list[tuple[Callable[[], Any], str]] = [
    (lambda: work.fuse(), "at least one kernel is needed, got none"),
    (lambda: work.total(), "at least one kernel is needed, got none"),
    (lambda: ROOF.time(), "time() needs at least one kernel, got none"),
    (
        lambda: ROOF.measured(),
        "at least one of peak, levels, vector, network, floor is needed, got none",
    ),
    (lambda: Roofline(1, {}), "a roofline needs at least one memory level, got none"),
    (
        lambda: ROOF.attainable({}),
        "a mapping of intensities needs at least one level, got none",
    ),
    (
        lambda: ROOF.efficiency(1, 0),
        "the roof at intensity 0 is 0 FLOP/s: compare bytes per second there",
    ),
    (
        lambda: JOB.with_traffic(hbm=1),
        "traffic at hbm follows from reads and writes: change those",
    ),
    (lambda: Roofline(1, 5 * [1]), "bandwidth of hbm must be one number, got an array of 5"),
    (
        lambda: work.elementwise(8, reads="x"),
        "reads must be a count of tensors from 0 to 1000, or a mapping of names to data types, "
        "got 'x' (str)",
    ),
    (
        lambda: work.elementwise(8, writes=-1),
        "writes must be a count of tensors from 0 to 1000, or a mapping of names to data types, "
        "got -1 (int)",
    ),
    (
        lambda: dtype(None),
        "a data type must be a name or a NumPy or JAX dtype, got None (NoneType). "
        "Allowed: fp64, fp32, tf32",
    ),
    (lambda: ROOF.attainable({3: 1}), "a name in intensity must be a name (str), got 3 (int)"),
    (lambda: Roofline(1, {3: 1}), "a name in levels must be a name (str), got 3 (int)"),
    (
        lambda: rh.check(1, 1, tolerance=[0.1]),
        "tolerance must be a real number, got array([0.1]) (ndarray)",
    ),
    (lambda: rh.check(1, 1, tolerance=0), "tolerance must be a positive finite number"),
    (lambda: rh.check("x", 1), "your answer must be a real number"),
    (lambda: rh.check([1], 1), "your answer must be a real number, got [1] (list)"),
    (lambda: rh.check(1, "x"), "the solution must be a real number, got 'x' (str)"),
    (lambda: rh.si("x", "s"), "value must be a real number, got 'x' (str)"),
    (lambda: significant("x"), "value must be a real number, got 'x' (str)"),
]


def test_some_messages_in_full() -> None:
    tried = ((text, fault(call, error=RooflineError, start=text)) for call, text in EMPTY)
    assert only_faults(tried) == {}


@pytest.mark.parametrize(
    ("call", "error"),
    [(lambda: 3, BadType), (lambda: int("x"), BadValue), (lambda: shown(), BadType)],
)
def test_a_call_that_fails_otherwise_is_noticed(
    call: Callable[[], Any], error: type[RooflineError]
) -> None:
    assert fault(call, error=error)


# --- the checks themselves ------------------------------------------------------------------------


def test_quantities():
    assert quantity("x", 3) == 3
    assert type(quantity("x", np.int64(3))) is int
    assert type(quantity("x", 2.5)) is float
    assert type(quantity("x", np.float32(2.5))) is float
    assert quantity("x", [1, 2]).dtype == np.float64
    assert quantity("x", np.array(4.0)) == 4
    assert quantity("x", 0, zero=True) == 0
    assert quantity("x", [0, 1.5], zero=True).tolist() == [0, 1.5]
    assert quantity("x", 10**59) == 10**59
    assert quantity("x", 1e60) == 1e60
    assert quantity("x", 1.01e-60) == 1.01e-60
    for beyond in (10**60 + 10**45, 1.01e60, 0.99e-60, -1e-60):
        with pytest.raises(BadValue, match="x must be a positive finite number"):
            quantity("x", beyond)
    with pytest.raises(BadValue, match="x must be zero or a positive finite number"):
        quantity("x", -1, zero=True)


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


def test_a_float_too_wide_for_ours_gives_an_error_and_no_warning(recwarn):
    with pytest.raises(BadValue, match="finite"):
        quantity("x", np.longdouble("1e400"))
    assert not recwarn


def test_an_array_given_is_never_changed():
    array = np.array([1.0, 2.0])
    kept = quantity("x", array)
    kept[0] = 5
    assert array.tolist() == [1, 2]


def test_flags_and_shapes():
    assert flag("f", True) is True
    with pytest.raises(BadValue, match=r"got a \(2,\), b \(3,\)$"):
        fitting([("a", np.ones(2)), ("b", np.ones(3)), ("c", 1)])
    assert flag("f", np.bool_(False)) is False
    fitting([("a", 1), ("b", np.ones((2, 1))), ("c", np.ones(3))])


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


def test_what_was_given_is_shown_short():
    assert shown("abc") == "'abc' (str)"
    assert shown(10**39) == f"1{'0' * 39} (int)"
    assert shown(-(10**40)) == "an integer of about -10**40"
    assert shown(10**41) == "an integer of about 10**41"
    assert len(shown("x" * 1000)) < 100
    assert shown([10**5000]) == "something too long to print (list)"
    assert shown("y" * 78) == repr("y" * 78) + " (str)"
    assert shown("y" * 79) == f"'{'y' * 76}... (str)"
