"""Small kernels and loops: rows and programs made up here, seconds worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofline import xla
from roofline.diagnosis.ceilings import Ceilings, Roofs
from roofline.diagnosis.findings import Case, small
from roofline.diagnosis.modelled import modelled_case
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import BETWEEN, GAP, HOST, KERNEL, TimedRow

HERE = Ceilings(measured=Roofs(reached={"fp32": 1e11, "hbm": 1e10, "vector": 2e10}))
US = 1e-6


def told(claims):
    """Return evidence, microseconds by kernel and those beside them, and the line."""
    for claim in claims:
        parts = {row.name: pytest.approx(lost / US, abs=1e-3) for row, lost in claim.parts}
        yield claim.evidence, parts, pytest.approx(claim.more / US), claim.source


def timed(name, seconds, launches, reachable):
    kernel, took = xla.Row(name, source=f"m.py:{name}"), seconds * US
    roof, often = reachable * US, float(launches)
    return TimedRow(name, seconds=took, busy=took, launches=often, reachable=roof, kernel=kernel)


FEW, OFTEN = timed("a", 35, 8, 20), timed("b", 60, 14, 70)  # 4.4 and 4.3 µs a launch
WHOLE = replace(timed("w", 119, 1, 59), inside=20.0)


@pytest.mark.parametrize(
    ("rows", "how", "claims"),
    [
        (
            (FEW, OFTEN),
            {},
            [("22 launches of less than 6 µs each", {"a": 15, "b": 0}, 44, "m.py:b")],
        ),
        ((FEW, OFTEN), {"platform": "tpu"}, []),  # where 3 µs are short
        ((FEW, OFTEN), {"measured": False}, []),  # outside of loops, one may wait for the other
        ((FEW, replace(OFTEN, launches=11.0)), {}, []),  # 19 in all
        ((FEW, replace(OFTEN, kind=HOST)), {}, []),
        ((timed("c", 121, 20, 1),), {}, []),
        ((WHOLE,), {}, [("20 kernels inside a loop take 119 µs", {"w": 60}, 0, "")]),
        ((replace(WHOLE, inside=19.0),), {}, []),
        ((replace(WHOLE, busy=121 * US),), {}, []),
        ((replace(WHOLE, reachable=60 * US),), {}, []),
    ],
)
def test_many_short_kernels(rows, how, claims) -> None:
    rows = (*rows, timed("long", 600, 6, 600))
    gaps = 2 * US * sum(row.launches for row in rows if row.kind == KERNEL)  # 2 µs a launch
    case = Case(
        (*rows, TimedRow(BETWEEN, GAP, gaps)), {}, HERE, **{"platform": "gpu", "wall": 1} | how
    )
    found = list(small.short_kernels(case))
    assert list(told(found)) == claims
    assert all(claim.sure == (0.5 if claim.source else 1) for claim in found)


TYPES = "s32[], f32[], f32[8,4096], f32[4096], f32[8,4096], f32[4096], f32[32,32]"
LOOP = (Path(__file__).resolve().parents[1] / "data/turns.hlo").read_text("utf-8")
PRODUCT = "dot(%matrix, %matrix), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SAME = {
    "COUNT": '"known_trip_count":{"n":"8"}',
    "FROM": "%all",
    "TOTAL": "%grown",
    "GROWN": "add(%total, %half)",
    "WIDENED": "%half",
    "STACK": "%stack",
    "LAST": "%last",
    "MATRIX": "%matrix",
    "SQUARED": "negate(%matrix)",
    "TYPES": TYPES,
}


def looping(kernels, took=100, platform="gpu", **text):
    """Return a loop that ran: these kernels took so many µs each, and a gap takes 1 µs."""
    made = LOOP
    for name, value in (SAME | text).items():
        made = made.replace(name, value)
    case = modelled_case(Program(made, platform), HERE)
    times = {"seconds": took * US, "busy": took * US}
    rows = [replace(row, **times) for row in case.rows if row.name in kernels.split()]
    gaps = TimedRow(BETWEEN, GAP, US * sum(row.launches for row in rows))
    return replace(case, rows=(*rows, gaps), wall=1e-3, measured=True)


STACKED = {"kernels": "x y filled", "MADE": "add(%v, %fixed)", "STACK": "%filled"}
ADDED = {"kernels": "x y", "MADE": "add(%v, %last)", "LAST": "%y"}
ALONE = {"kernels": "y square", "MADE": "tanh(%last)", "LAST": "%y", "SQUARED": PRODUCT}
AT_ONCE = "8 turns of 3 kernels, though none needs another's"
SCALED = "each of 8 turns only scales what the last one made, and adds to it"
GAINED = {"x": 100, "y": 100 * 7 / 24, "filled": 100}
"""The sum reads 16 KiB of each turn and 16 that stay, and writes 16: 17 are left of 24 in all."""


@pytest.mark.parametrize(
    ("how", "evidence", "lost", "more"),
    [
        (STACKED, AT_ONCE, GAINED, 24),
        (
            STACKED | {"COUNT": SAME["COUNT"].replace("8", "4")},
            AT_ONCE.replace("8", "4"),
            GAINED | {"y": 25},
            12,
        ),
        (STACKED | {"COUNT": SAME["COUNT"].replace("8", "3")}, "", {}, 0),
        # with its gaps it must gain 30% of the kernels' time
        (
            STACKED | {"kernels": "y", "took": 900},
            AT_ONCE.replace("3 kernels", "1 kernel"),
            {"y": 262.5},
            8,
        ),
        (STACKED | {"kernels": "y", "took": 1000}, "", {}, 0),
        (STACKED | {"GROWN": "multiply(%total, %half)"}, "", {}, 0),
        (STACKED | {"WIDENED": "%total"}, "", {}, 0),  # a turn looks at the sum
        (STACKED | {"FROM": "%stack"}, "", {}, 0),
        (STACKED | {"STACK": "%copied"}, AT_ONCE, GAINED, 24),
        # 4 × 655,360 bytes, and 6 kernels of 3 µs with a gap each: 286 µs, of 600 µs and of 560
        (ADDED | {"took": 300}, SCALED, {"x": 156.928, "y": 156.928}, 16),
        (ADDED | {"took": 280}, "", {}, 0),
        # 8 products of 0.66 µs, where each takes 3 µs to launch
        (
            ALONE,
            "dot f32[32,32] in each of 8 turns, though none needs another's",
            {"square": 78.1547},
            0,
        ),
        (ALONE | {"MATRIX": "%square"}, "", {}, 0),
    ],
)
def test_turns_that_need_no_other(how, evidence, lost, more) -> None:
    expected = [(evidence, lost, more, "")] if evidence else []
    claims = list(small.turn_by_turn(looping(**how)))
    assert (list(told(claims)), all(claim.known for claim in claims)) == (expected, True)


@pytest.mark.parametrize(
    ("how", "known", "ahead"),
    [
        (STACKED | {"took": 47}, [True], [False]),
        (STACKED | {"took": 49}, [], []),
        (STACKED | {"took": 39, "platform": "cpu"}, [False], [False]),
        (STACKED | {"took": 47, "SQUARED": PRODUCT, "MATRIX": "%square"}, [False], []),  # it waits
    ],
)
def test_short_kernels_of_a_loop(how, known, ahead) -> None:
    """Turns become fewer, known of a GPU that ran, unless a product needs the last one's."""
    case = looping(**how)
    assert [claim.known for claim in small.short_kernels(case)] == known
    rows = tuple(replace(row, reachable=0.0) for row in case.rows)
    modelled = replace(case, rows=rows, measured=False)
    assert [claim.known for claim in small.short_kernels(modelled)] == ahead
