"""Parts of arrays, and places along an axis, against lists of places."""

import math
from itertools import product

import pytest

from roofline.xla.parts import TURNS, Part, Places, Steps, nothing, part, whole

DIMS = (4, 6, 10)
WIDER = (4, 15, 10)
ALL = whole(DIMS)
ROWS, COLUMNS = frozenset({1}), frozenset({2})


def rows(*places):
    return ALL.only({1: range(*places)})


def some(axes, count, name=5):
    """Return a part of which only is known how many places it has along some axes."""
    return part(DIMS, {frozenset(axes): {name: count}})


@pytest.mark.parametrize(("start", "step", "length"), list(product((0, 3), (1, 2, 5), (1, 4))))
def test_steps_place_and_take(start, step, length):
    steps = Steps(start, step)
    at = [start + step * n for n in range(length)]
    assert list(steps.all(length)) == at
    back = Steps(at[-1], -step)
    assert list(back.all(length)) == at
    for first, last, by in product(range(length), range(1, length + 1), (1, 2)):
        chosen = range(first, last, by)
        assert list(steps.placed(chosen)) == [at[n] for n in chosen]
    for first, last, by in product((0, 2, 4), (3, 9, 20), (1, 2, 3)):
        longer = range(first, last, by)
        for each, places in ((steps, at), (back, at[::-1])):
            found = [n for n, place in enumerate(places) if place in longer]
            taken = each.taken(longer, length)
            assert (taken if isinstance(taken, int) else list(taken)) in (found, len(found))


def spread(name):
    """Return two of six unknown rows, as an operation of this name places them among fifteen."""
    return some({1}, 2).placed(WIDER, {1: Steps(3)}, name)


SETS = {  # what is left along each group of axes
    "both": (rows(1, 4) & rows(2, 6), {ROWS: {range(2, 4): 2}}),
    "apart": (rows(0, 2) & rows(3, 6), {TURNS: {}}),
    "other axes": (
        rows(1, 4) & ALL.only({2: range(7)}),
        {ROWS: {range(1, 4): 3}, COLUMNS: {range(7): 7}},
    ),
    "the smaller of one axis": (some({1}, 2) & some({1}, 3, 6), {ROWS: {5: 2}}),
    "a group in place of its axes": (
        rows(0, 3) & some({1, 2}, 20),
        {frozenset({1, 2}): {5: 20}},  # of 60, less than a half
    ),
    "axes in place of a group": (some({1, 2}, 20) & rows(0, 1), {ROWS: {range(1): 1}}),
    "next to each other": (rows(0, 2) | rows(2, 5), {ROWS: {range(5): 5}}),
    "overlapping": (rows(1, 4) | rows(2, 5), {ROWS: {range(1, 5): 4}}),
    "apart, either": (rows(0, 2) | rows(4, 5), {ROWS: {range(2): 2, range(4, 5): 1}}),
    "all": (rows(0, 3) | rows(2, 6), {}),
    "nothing": (nothing(DIMS) | rows(2, 3), {ROWS: {range(2, 3): 1}}),
    "the same name": (some({1}, 2) | some({1}, 3), {ROWS: {5: 3}}),
    "two names": (some({1}, 2) | some({1}, 3, 6), {ROWS: {5: 2, 6: 3}}),
    "one axis alike": (
        (rows(1, 3) & ALL.only({2: range(4)})) | (rows(1, 3) & ALL.only({2: range(4, 9)})),
        {ROWS: {range(1, 3): 2}, COLUMNS: {range(9): 9}},
    ),
    "too many": (part(DIMS, {ROWS: dict.fromkeys(range(33), 0.1)}), {}),
    "32": (
        part(DIMS, {ROWS: dict.fromkeys(range(32), 0.1)}),
        {ROWS: dict.fromkeys(range(32), 0.1)},
    ),
    "reversed": (rows(0, 2).mirrored([1], 1), {ROWS: {range(4, 6): 2}}),
}


@pytest.mark.parametrize("name", SETS)
def test_sets_along_groups_of_axes(name):
    found, along = SETS[name]
    assert found == Part(DIMS, along)


@pytest.mark.parametrize(
    ("found", "elements"),
    [
        # rows 2 and 3 of six, of rows of ten: 20 of 60 in a row
        (rows(2, 4).turned((4, 60), 1), 4 * 20),
        (rows(2, 4).turned((24, 10), 1), 8 * 10),
        (some({1}, 2).turned((24, 10), 1), 8 * 10),
        (some({1}, 2).turned((2, 2, 6, 10), 1), 4 * 2 * 10),
        ((some({1}, 2) & ALL.only({2: range(3)})).turned((4, 60), 1), 4 * 2 * 3),
        (some({0, 1}, 7).turned((24, 10), 1), 70),
        (some({0, 2}, 7).turned((240,), 1), 6 * 7),
        # onto an array of other axes: lost ones have any, new ones all
        (rows(1, 4).onto((6, 9), {1: 0}, 1), 3 * 9),
        (rows(1, 4).onto((9, 10), {2: 1}, 1), 90),
        (some({1, 2}, 4).onto((4, 6), {0: 0, 1: 1}, 1), 4 * 4),
        (some({1, 2}, 20).onto((4, 6), {0: 0, 1: 1}, 1), 4 * 6),
        (nothing(DIMS).onto((6, 9), {1: 0}, 1), 0),
        # into a larger array, and out of a smaller one
        (ALL.placed((4, 15, 10), {1: Steps(2, 2)}, 1), ALL.elements),
        (rows(1, 4).placed((4, 15, 10), {1: Steps(2, 2)}, 1), 4 * 3 * 10),
        (rows(1, 4).placed((4, 15, 10), {1: 77}, 1), 4 * 3 * 10),
        # places that nobody knows: two moves of them differ, and one is itself
        (some({1}, 2).placed(WIDER, {1: Steps(2)}, 1) | spread(2), 4 * (2 + 2) * 10),
        (some({1}, 2).placed(WIDER, {1: Steps(2)}, 2) | spread(2), 4 * 2 * 10),
        (rows(1, 4).taken((4, 2, 10), {1: Steps(3)}, 1), 4 * 10),
        (rows(1, 4).taken((4, 2, 10), {1: 77}, 1), 4 * 2 * 10),
        (rows(1, 4).taken((4, 2, 10), {1: Steps(4)}, 1), 0),
        # in each of three turns: known places are the same, others may differ
        (rows(1, 3).in_turns(3, 1), 4 * 2 * 10),
        (some({1}, 1).in_turns(3, 1), 4 * 3 * 10),
        (some({1}, 1, Places(8)).in_turns(3, 1), 4 * 10),
        (some({1}, 2).in_turns(math.inf, 1), 240),
        (part(DIMS, {TURNS: {5: 0.25}}), 60),
        (part(DIMS, {TURNS: {5: 0.25}}).in_turns(3, 1), 240),
        (part(DIMS, {TURNS: {5: 0.25}}) | part(DIMS, {TURNS: {6: 0.5}}), 180),
        (part(DIMS, {TURNS: {5: 0.25}}) | rows(0, 2), 240),  # no less than what is needed
        (part(DIMS, {TURNS: {5: 0.25}}) | rows(0, 0), 60),
    ],
)
def test_elements_after_a_move(found, elements):
    assert found.elements == pytest.approx(elements)
