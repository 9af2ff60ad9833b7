"""What is known of the values of small programs that were worked out by hand."""

import json
import re
from pathlib import Path

import pytest
from hlo_texts import ADD, lines_of, listed

from roofline.xla.facts import facts_of
from roofline.xla.graph import Graph
from roofline.xla.hlo import parse
from roofline.xla.needs import needs_of

OPCODES = "add or xor maximum minimum multiply and subtract".split()
APPLIED = [ADD.replace("%add (", f"%{op} (").replace("add(", f"{op}(") for op in OPCODES]
TEXT = (Path(__file__).parents[1] / "data" / "values_known.txt").read_text("utf-8")
_, GIVEN, *TABLES = TEXT.strip().split("\n\n")
SHORT = {
    " ROWS": ", offset_dims={1}, collapsed_slice_dims={0}, slice_sizes={1,10}, index_vector_dim=1",
    " SUMMED": ", lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    " ADDED": ", dimensions={0}, to_apply=%add",
    " STATED": ", custom_call_has_side_effect=true",
    " HERE": ", metadata={stack_frame_id=5}",
    " THERE": ", metadata={stack_frame_id=6}",
}


def known(entry):
    """Return what is known of the value y of these lines, or of the last one."""
    graph = read(entry, "last = tanh(x)")
    [y] = [node for node in graph.nodes if node.instruction and node.instruction.name == "y"]
    return facts_of(graph)[y]


def read(entry, last):
    """Return these lines and a last one, after those that are given, as a graph."""
    lines = [*GIVEN.replace("\n", "; ").split("; "), *entry.split("; "), last]
    text = ""
    for line in lines:
        line = line if " = " in line.partition("(")[0] else f"y = {line}"
        typed = "[" in line.partition("(")[0] or " = (" in line
        text += (line if typed else line.replace(" = ", " = f32[6,10] ", 1)) + "\n"
    for word, meant in SHORT.items():
        text = text.replace(word, meant)
    return Graph(parse(lines_of(text.strip(), *APPLIED)))


def entries(title):
    """Return each value of a table of the file with what is known of it."""
    [table] = [table for table in TABLES if table.startswith(title)]
    rows = [line.split(": ", 1) for line in table.splitlines()[1:]]
    return [(entry, known) for known, line in rows for entry in line.split(" | ")]


KEEP_ZERO = (
    "negate sine tan tanh sqrt cbrt abs sign floor ceil round-nearest-even round-nearest-afz real "
    "imag erf sinh asin atan asinh atanh exponential-minus-one log-plus-one popcnt copy convert "
    "reduce-precision bitcast-convert"
).split()
START = {
    "o": [5, 5, 5, 5, 5, 5, 5, 10],
    "low": [10, 10, 10, 5, 5, 5, 5, 10],
    "one": 8 * [10],
    "f": 8 * [10],
}
REDUCED = [
    (f"f32[10] reduce(a, {start}), dimensions={{0}}, to_apply=%{op}", count)
    for start, counts in START.items()
    for op, count in zip(OPCODES, counts, strict=True)
]


@pytest.mark.parametrize(
    ("entry", "elements"),
    [*entries("elements that can"), *REDUCED, *((f"{op}(a)", 30) for op in KEEP_ZERO)],
)
def test_elements_that_can_differ_from_zero(entry, elements):
    assert known(entry).nonzero.elements == float(elements)


@pytest.mark.parametrize(("entry", "limits"), entries("most"))
def test_how_many_along_an_axis_can_differ_from_zero(entry, limits):
    assert listed(known(entry).most) == limits


@pytest.mark.parametrize(("entry", "axes"), entries("axes"))
def test_axes_along_which_a_value_differs(entry, axes):
    it = known(entry)
    assert f"{' '.join(map(str, sorted(it.varies))) or '-'}; {it.distinct:g}" == axes


@pytest.mark.parametrize(("entry", "origin"), entries("where"))
def test_origin_of_zeros(entry, origin):
    it = known(entry)
    assert str(it.zeros and it.zeros.op) == origin


@pytest.mark.parametrize(("entry", "asked"), entries("its type"))
def test_types_without_accidents(entry, asked):
    it = known(entry)
    assert f"{it.asked} {it.widened.instruction.name if it.widened else '-'}" == asked


@pytest.mark.parametrize(("entry", "elements"), entries("elements that are needed"))
def test_elements_that_are_needed(entry, elements):
    shape = re.match(r"[a-z]\d+\[([\d,]+)\]", entry.split("; ")[-1])
    *sizes, _, _ = map(int, shape[1].split(",")) if shape else (6, 10)
    bounds = ", ".join([*(f"[0:{size}]" for size in sizes), "[1:3], [2:5]"])
    made = ",".join(map(str, [*sizes, 2, 3]))
    graph = read(entry, f"last = f32[{made}] slice(y), slice={{{bounds}}}")
    needs = needs_of(facts_of(graph))
    x, w = (node for node in graph.parameters if node.instruction.name in "xw")
    assert f"{needs[x].elements:g} {needs[w].elements:g}" == elements


COUNTED = TABLES[-1].partition("\n")[2].replace("\n", " | ").split(" | ")


@pytest.mark.parametrize(("entry", "values"), [line.rsplit(" = ", 1) for line in COUNTED])
def test_values_that_are_known(entry, values):
    found = known(entry).values
    assert found is None if values == "None" else found.tolist() == json.loads(values)


BATCHED = "dim_labels=b0f_0io->b0f, window={size=8 stride=7 lhs_dilate=8}"
TURNED = BATCHED.replace("size=8 stride=7", "size=8 stride=9 pad=7_7").replace(
    "}", " rhs_reversal=1}"
)
SPACES = {  # of a product: sizes of both sides and of the result; where its axes are
    (
        "2,3,5 5,7,2 2,3,7 dot",
        "lhs_batch_dims={0}, rhs_batch_dims={2}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    ): "2 3 7 5; 00 11 23; 20 12 03",
    (
        "5,3,4 6,4,5 3,6 dot",
        "lhs_contracting_dims={0,2}, rhs_contracting_dims={2,1}",
    ): "3 6 5 4; 10 02 23; 01 22 13",
    ("5,3 5,4 12 dot", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"): None,
    (
        "4,9,3 2,3,7 4,8,7 convolution",
        "dim_labels=b0f_0io->b0f, window={size=2}",
    ): "4 8 7 2 3; 00 24; 22 14 03",
    (
        "9,3,4 7,3,2 7,4,8 convolution",
        "dim_labels=0fb_oi0->fb0, window={size=2}",
    ): "7 4 8 2 3; 21 14; 00 14 23",
    (
        "4,9,3 1,3,7 4,9,7 convolution",
        "dim_labels=b0f_0io->b0f, window={size=1}",
    ): "4 9 7 1 3; 00 24 11; 22 14 03",
    (
        "4,9,3 1,3,7 4,5,7 convolution",
        "dim_labels=b0f_0io->b0f, window={size=1 stride=2}",
    ): "4 5 7 1 3; 00 24; 22 14 03",
    (
        "4,9,3 1,3,7 4,9,7 convolution",
        "dim_labels=b0f_0io->b0f, window={size=1 pad=1_-1}",
    ): "4 9 7 1 3; 00 24; 22 14 03",
    (
        "4,9,3 1,3,7 4,17,7 convolution",
        "dim_labels=b0f_0io->b0f, window={size=1 lhs_dilate=2}",
    ): "4 17 7 1 3; 00 24; 22 14 03",
    (
        "4,9,3 2,1,6 4,8,6 convolution",
        "dim_labels=b0f_0io->b0f, window={size=2}, feature_group_count=3",
    ): "4 8 6 2 1; 00; 22 14 03",
    (
        "4,9,3 2,3,6 2,8,6 convolution",
        "dim_labels=b0f_0io->b0f, window={size=2}, batch_group_count=2",
    ): "2 8 6 2 3; 24; 22 14 03",
    (
        "4,5,6,3 2,3,3,7 4,4,4,7 convolution",
        "dim_labels=b01f_01io->b01f, window={size=2x3}",
    ): "4 4 4 7 2 3 3; 00 36; 33 26 04 15",
    ("4,8,3 8,3,7 4,8,7 convolution", BATCHED): "4 8 7 8 3; 00 24 11; 22 14 01",
    ("4,8,3 8,3,7 4,8,7 convolution", TURNED): "4 8 7 8 3; 00 24 11; 22 14 01",
    ("4,8,3 8,3,7 4,8,7 convolution", BATCHED.replace("=7", "=8")): "4 8 7 8 3; 00 24; 22 14 03",
    (
        "4,8,3 8,3,7 4,8,7 convolution",
        TURNED.replace("rhs_reversal=1", ""),
    ): "4 8 7 8 3; 00 24; 22 14 03",
}


@pytest.mark.parametrize(("sizes", "attributes"), SPACES)
def test_the_axes_of_a_product(sizes, attributes):
    first, second, made, op = sizes.split()
    text = f"a = f32[{first}] parameter(0)\nb = f32[{second}] parameter(1)\n"
    graph = Graph(parse(lines_of(f"{text}c = f32[{made}] {op}(a, b), {attributes}")))
    space, expected = facts_of(graph).spaces.get(2), SPACES[sizes, attributes]
    if space is None or expected is None:
        assert space is expected
    else:
        sides = (" ".join(f"{axis}{place}" for axis, place in s.items()) for s in space.sides)
        assert "; ".join([" ".join(map(str, space.dims)), *sides]) == expected
        assert space.result == made.count(",") + 1
