"""Shares of a run: nested and overlapping events, gaps, and that nothing counts twice."""

import math
import random

import pytest

from roofline.diagnosis.rows import GAP, HOST, KERNEL, LOOP, TimedRow, shares, waterfall
from roofline.diagnosis.trace import Event


def event(op, start, end, line="1"):
    return Event(op, "jit_f", start, end, line)


def shares_of(events, start=0.0, end=10.0):
    ordered = sorted(events, key=lambda e: (e.start, -e.end))
    return shares(ordered, start, end, lambda e: e.op, lambda e: e.op.startswith("while"))


def test_a_loop_has_what_its_kernels_leave():
    parts = shares_of([event("while", 1, 9), event("a", 2, 4), event("b", 4, 7)])
    assert parts.busy == pytest.approx({"while": 3, "a": 2, "b": 3})
    assert (parts.before, sum(parts.gaps), parts.after) == pytest.approx((1, 0, 1))


def test_overlapping_streams_share_an_instant():
    parts = shares_of([event("a", 0, 6), event("copy", 2, 4, "2"), event("b", 6, 10)])
    assert parts.busy == pytest.approx({"a": 5, "copy": 1, "b": 4})


def test_gaps_are_told_apart():
    parts = shares_of([event("a", 1, 3), event("b", 4, 5), event("a", 7, 8)])
    assert (parts.before, parts.after) == pytest.approx((1, 2))
    assert parts.gaps == pytest.approx([1, 2])


@pytest.mark.parametrize("seed", range(20))
def test_shares_always_add_up(seed):
    chance = random.Random(seed)
    events = []
    for line in "123":
        at = -1.0
        while at < 11:
            start = at + chance.random()
            at = start + chance.random() * 2
            events.append(event(chance.choice(["a", "b", "while"]), start, at, line))
            if chance.random() < 0.5:
                events.append(event("inner", start + 0.1 * (at - start), at, line))
    parts = shares_of(events)
    seconds = [*parts.busy.values(), parts.before, *parts.gaps, parts.after]
    assert sum(seconds) == pytest.approx(10, abs=1e-9)


# --- the waterfall --------------------------------------------------------------------------------


def some_rows(chance):
    def kernel(n):
        least = chance.random()
        reachable = least * (0.9 + chance.random())
        seconds = chance.random() * 3
        roofless = chance.random() < 0.2
        known = (None, None) if roofless else (least, reachable)
        return TimedRow(f"k{n}", KERNEL, seconds, least=known[0], reachable=known[1])

    rest = [TimedRow("w", LOOP, 0.1), TimedRow("g", GAP, 0.2), TimedRow("h", HOST, 0.3)]
    return [*(kernel(n) for n in range(12)), *rest]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("hand", [None, 0.7])
def test_bars_add_up_exactly(seed, hand):
    rows = some_rows(random.Random(seed))
    wall = sum(row.seconds for row in rows) * 1.02
    bars = waterfall(rows, wall, hand)
    assert math.fsum(bar.seconds for bar in bars) == pytest.approx(wall, rel=1e-15)
    assert bars[-1].name == "nothing explains it"
    unexplained = wall - math.fsum(row.seconds for row in rows)
    assert bars[-1].seconds == pytest.approx(unexplained, rel=1e-9)
