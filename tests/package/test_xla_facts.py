"""What is known of the values of small programs that were worked out by hand."""

import json
from pathlib import Path

import pytest
from hlo_texts import ADD, lines_of, listed

from roofline.xla.facts import facts_of
from roofline.xla.graph import Graph
from roofline.xla.hlo import parse

OPCODES = "add or xor maximum minimum multiply and subtract".split()
APPLIED = [ADD.replace("%add (", f"%{op} (").replace("add(", f"{op}(") for op in OPCODES]
TEXT = (Path(__file__).parents[1] / "data" / "values_known.txt").read_text("utf-8")
_, GIVEN, *TABLES = TEXT.strip().split("\n\n")
SHORT = {
    " ROWS": ", offset_dims={1}, collapsed_slice_dims={0}, slice_sizes={1,10}, index_vector_dim=1",
    " SUMMED": ", lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    " ADDED": ", dimensions={0}, to_apply=%add",
    " HERE": ", metadata={stack_frame_id=5}",
    " THERE": ", metadata={stack_frame_id=6}",
}


def known(entry):
    """Return what is known of the value y of these lines, or of the last one."""
    lines = [*GIVEN.replace("\n", "; ").split("; "), *entry.split("; "), "last = tanh(x)"]
    text = ""
    for line in lines:
        line = line if " = " in line.partition("(")[0] else f"y = {line}"
        typed = "[" in line.partition("(")[0]
        text += (line if typed else line.replace(" = ", " = f32[6,10] ", 1)) + "\n"
    for word, meant in SHORT.items():
        text = text.replace(word, meant)
    graph = Graph(parse(lines_of(text.strip(), *APPLIED)))
    facts = facts_of(graph)
    [y] = [node for node in graph.nodes if node.instruction and node.instruction.name == "y"]
    return facts[y]


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
    [*entries("elements"), *REDUCED, *((f"{op}(a)", 30) for op in KEEP_ZERO)],
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


COUNTED = TABLES[-1].partition("\n")[2].replace("\n", " | ").split(" | ")


@pytest.mark.parametrize(("entry", "values"), [line.rsplit(" = ", 1) for line in COUNTED])
def test_values_that_are_known(entry, values):
    found = known(entry).values
    assert found is None if values == "None" else found.tolist() == json.loads(values)
