"""Loops: how often what they hold counts."""

from itertools import product, takewhile
from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pytest
from hlo_texts import program

from roofline import xla
from roofline.xla.hlo import parse
from roofline.xla.loops import (
    _Test,
    chosen_in,
    in_each_turn,
    number_of,
    same_in_all,
    turns,
    values_of,
)


def loop(
    condition: str = "compare(%i, %n), direction=LT",
    step: str = "add(%i, %one)",
    start: str = "constant(0)",
    bound: str = "constant(7)",
    config: str = "",
) -> str:
    """Return a program with a loop whose body takes the tanh of 64 numbers."""
    tuple_of = "(s32[], f32[64]{0})"
    return program(
        f"  %x = f32[64]{{0}} parameter(0)\n  %s = s32[] {start}\n"
        f"  %t = {tuple_of} tuple(%s, %x)\n"
        f"  %w = {tuple_of} while(%t), condition=%cond, body=%body{config}\n"
        "  ROOT %y = f32[64]{0} get-tuple-element(%w), index=1",
        f"%cond (t: {tuple_of}) -> pred[] {{\n  %t = {tuple_of} parameter(0)\n"
        f"  %i = s32[] get-tuple-element(%t), index=0\n  %n = s32[] {bound}\n"
        f"  ROOT %c = pred[] {condition}\n}}",
        f"%body (t: {tuple_of}) -> {tuple_of} {{\n  %t = {tuple_of} parameter(0)\n"
        "  %i = s32[] get-tuple-element(%t), index=0\n  %one = s32[] constant(2)\n"
        f"  %j = s32[] {step}\n  %v = f32[64]{{0}} get-tuple-element(%t), index=1\n"
        f"  %u = f32[64]{{0}} tanh(%v)\n  ROOT %r = {tuple_of} tuple(%j, %u)\n}}",
    )


COUNTED = {
    "0, 2, 4, 6": ({}, 4),
    "≤ 7": ({"condition": "compare(%i, %n), direction=LE"}, 4),
    "≠ 8": ({"bound": "constant(8)", "condition": "compare(%i, %n), direction=NE"}, 4),
    "down from 9": (
        {
            "start": "constant(9)",
            "step": "subtract(%i, %one)",
            "bound": "constant(0)",
            "condition": "compare(%i, %n), direction=GT",
        },
        5,
    ),
    "stated": ({"config": ', backend_config={"known_trip_count":{"n":"31"}}'}, 31),
}


def test_trip_counts() -> None:
    ledgers = {name: xla.kernels(loop(**changes)) for name, (changes, _) in COUNTED.items()}
    assert {
        name: [(row.name, row.launches) for row in ledger.rows] for name, ledger in ledgers.items()
    } == {name: [("u", turns)] for name, (_, turns) in COUNTED.items()}
    assert not any("unknown" in note for ledger in ledgers.values() for note in ledger.notes)


def test_a_loop_of_single_numbers_is_named_after_its_dearest_operation() -> None:
    """A tanh beside four additions, one of them the counter's."""
    text = loop().replace("f32[64]{0}", "f32[]")
    text = text.replace("tanh(%v)", "tanh(%a)\n  %a = f32[] fusion(%v), kind=kLoop, calls=%sums")
    sums = "%p = f32[] parameter(0)\n %b = f32[] add(%p, %p)\n %c = f32[] add(%b, %b)"
    sums = f"%sums (p: f32[]) -> f32[] {{\n {sums}\n ROOT %d = f32[] add(%c, %p)\n}}\n"
    [row] = xla.kernels(text.replace("%body (", f"{sums}%body (")).rows
    assert (row.name, row.launches) == ("u", 4)
    assert (row.flops.vector, row.flops.transcendentals) == (5, 1)


UNKNOWN = {
    "a counter that is multiplied": {"step": "multiply(%i, %one)"},
    "an unknown start": {"start": "parameter(1)"},
    "0, 2, 4, 6, 8 … never meets 7": {"condition": "compare(%i, %n), direction=NE"},
}


def test_a_trip_count_that_is_unknown_is_said_to_be() -> None:
    ledgers = {name: xla.kernels(loop(**changes)) for name, changes in UNKNOWN.items()}
    found = {
        name: ([r.launches for r in ledger.rows], ledger.notes) for name, ledger in ledgers.items()
    }
    hint = "State it with turns={'w': n}"
    counted_once = ([1], (f"loop w: its trip count is unknown; counted once. {hint}",))
    assert found == dict.fromkeys(UNKNOWN, counted_once)


# --- known values ---------------------------------------------------------------------------------

GIVEN = """  %i = s32[] constant(7)
  %j = s32[] constant(-3)
  %k = s32[] constant(2)
  %o = s32[] constant(0)
  %h = u8[] constant(200)
  %t = s32[4]{0} constant({11, 13, 17, 19})
  %x = s32[] parameter(0)
"""
TWICE = """%twice (a: s32[], b: s32[]) -> s32[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %d = s32[] add(%a, %a)
}"""


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("s32[] add(%i, %j)", 4),
        ("s32[] subtract(%j, %i)", -10),
        ("s32[] multiply(%i, %j)", -21),
        ("s32[] divide(%i, %j)", -2),  # towards zero
        ("s32[] divide(%i, %o)", None),
        ("s32[] remainder(%j, %k)", -1),  # with the sign of the first
        ("s32[] remainder(%j, %o)", None),
        ("s32[] negate(%i)", -7),
        ("s32[] abs(%j)", 3),
        ("s32[] sign(%j)", -1),
        ("s32[] maximum(%i, %j)", 7),
        ("s32[] minimum(%i, %j)", -3),
        ("s32[] and(%i, %j)", 5),
        ("s32[] or(%k, %j)", -1),
        ("s32[] xor(%i, %j)", -6),
        ("s32[] not(%i)", -8),
        ("s32[] shift-left(%i, %k)", 28),
        ("s32[] shift-left(%i, %i)", 896),
        ("s32[] shift-left(%i, %j)", None),
        ("s32[] shift-right-arithmetic(%j, %k)", -1),
        ("s32[] shift-right-logical(%j, %k)", (2**32 - 3) // 4),
        ("s32[] clamp(%k, %j, %i)", 2),
        ("s32[] select(%p, %i, %j)", -3),
        ("u8[] add(%h, %h)", 144),
        ("s8[] convert(%h)", -56),
        ("pred[] convert(%h)", 1),
        ("pred[] not(%p)", 1),
        ("f32[] convert(%i)", 7),
        ("f32[] tanh(%i)", None),
        ("s32[] dynamic-slice(%t, %k), dynamic_slice_sizes={1}", 17),
        ("s32[] dynamic-slice(%t, %i), dynamic_slice_sizes={1}", 19),  # at most the last
        ("s32[] dynamic-slice(%t, %j), dynamic_slice_sizes={1}", 11),
        ("s32[2] dynamic-slice(%t, %k), dynamic_slice_sizes={2}", None),
        ("s32[] shift-left(%i, %o)", 7),
        ("%n = s32[] constant(31); s32[] shift-left(%i, %n)", -(2**31)),
        ("%n = s32[] constant(32); s32[] shift-left(%i, %n)", None),
        ("%n = s32[] constant(100000); s32[] multiply(%n, %n)", 10**10 - 2 * 2**32),
        ("%n = s64[] constant(100000); s64[] multiply(%n, %n)", 10**10),
        ("%n = f32[] convert(%i); f32[] add(%n, %n)", 14),
        ("%n = f32[] convert(%i); f32[] multiply(%n, %n)", None),
        ("s32[] copy(%i)", 7),
        ("s32[] bitcast(%i)", 7),
        ("s32[] reduce-precision(%i)", None),
        ("s32[] call(%i, %x), to_apply=%twice", 14),
        ("s32[] fusion(%i, %x), kind=kLoop, calls=%twice", 14),
        ("s32[] call(%x, %i), to_apply=%twice", None),
        ("%n = s32[4] iota(), iota_dimension=0; AT", 2),
        ("%n = s32[4] multiply(%t, %t); AT", 17 * 17),
        ("%n = s32[4] broadcast(%i), dimensions={}; AT", 7),
        ("%n = s32[4] broadcast(%x), dimensions={}; AT", None),
        ("%n = s32[2,2] iota(), iota_dimension=0; AT", None),
        ("%n = s32[2,2] constant({{1, 2}, {3, 4}}); AT", None),
    ],
)
def test_numbers_that_are_known(line, value) -> None:
    p = "  %p = pred[] compare(%i, %k), direction=LT\n"
    line = line.replace("AT", "s32[] dynamic-slice(%n, %k), dynamic_slice_sizes={1}")
    *before, line = line.split("; ")
    lines = "".join(f"  {each}\n" for each in before)
    module = parse(program(f"{GIVEN}{p}{lines}  ROOT %y = {line}", TWICE))
    assert number_of(values_of(module, module.entry, ())["y"]) == value


@pytest.mark.parametrize("direction", ["LT", "LE", "GT", "GE", "NE", "EQ"])
def test_turns_are_those_that_pass(direction) -> None:
    passes = {"LT": lt, "LE": le, "GT": gt, "GE": ge, "NE": ne, "EQ": eq}[direction]
    for first, step in product((-7, -6, -1, 0, 1, 6, 9), (-3, -1, 0, 1, 2, 3)):
        numbers = (first + step * turn for turn in range(100))
        passed = len(list(takewhile(lambda n: passes(n, 0), numbers)))
        assert turns(first, step, direction) in ((None,) if passed == 100 else (passed, None))
    ends = {"LT": (-7, 2), "LE": (-6, 2), "GT": (7, -2), "GE": (6, -2), "NE": (-8, 2)}
    assert [turns(*ends[each], each) for each in ends] == [4] * 5
    assert turns(12, -3, "NE") == 4


def test_a_counter_has_a_number_for_each_turn_of_the_loops_around() -> None:
    """Four turns from 1, then four from 5, each two further."""
    module = parse(loop())
    start = [np.array([1, 5]), "x"]
    numbers, other = in_each_turn(module, module.entry.by_name["w"], start, 4, 2)
    assert list(numbers) == [1, 3, 5, 7, 5, 7, 9, 11]
    assert other is None  # it changes
    assert in_each_turn(module, module.entry.by_name["w"], [3, None], 2, 1)[0].tolist() == [3, 5]
    kept = parse(loop().replace("tuple(%j, %u)", "tuple(%j, %v)"))
    start = [0, np.array([3, 4])]
    assert in_each_turn(kept, kept.entry.by_name["w"], start, 2, 2)[1].tolist() == [3, 3, 4, 4]


def test_what_is_the_same_in_all_turns_and_what_some_have():
    numbers = np.array([4, 5, 6])
    given = [1, numbers, "x", [2, numbers], _Test(1, 2, "LT"), _Test(1, numbers, "LT")]
    assert same_in_all(given) == [1, None, "x", [2, None], _Test(1, 2, "LT"), None]
    one, some, name, (two, more), _, test = chosen_in(given, np.array([True, False, True]))
    assert (one, name, two) == (1, "x", 2)
    assert [each.tolist() for each in (some, more, test.right)] == [[4, 6]] * 3
