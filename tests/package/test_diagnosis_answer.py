"""The answer in words: what it claims of committed records, and what it doesn't."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from kept_records import LADDERS, step_of

import roofline_helpers as rh
from roofline.diagnosis import Explanation
from roofline.diagnosis.answer import PARTS, answer, parts_of
from roofline.diagnosis.pictures import roofline
from roofline.diagnosis.rows import TimedRow
from roofline.xla.flops import Flops
from roofline.xla.ledger import Row
from roofline.xla.metadata import SourceLine
from roofline_helpers.common.show import si

FIRST = ("decode", 0)


def every() -> list[Explanation]:
    return [s.why for one in LADDERS().values() for s in one.steps if s.why is not None]


def test_the_parts_of_a_call_add_up_to_it() -> None:
    for why in every():
        parts = parts_of(why)
        assert {*parts} == {*PARTS}
        assert min(parts.values()) >= 0
        assert math.fsum(parts.values()) == pytest.approx(max(why.wall, why.covered))


def test_the_first_decode_rung_is_bound_by_memory() -> None:
    """Its bytes at the stream's rate, added up here: 63% of the call, where 16% would do."""
    why = step_of(*FIRST, batch=16)
    rate = rh.chip("h200").roofline("bf16", reached=True).bandwidth
    alone = [row for row in why.rows if row.limit == "hbm" and row.busy <= 1.2 * row.seconds]
    seconds = math.fsum(min(row.bytes / rate, row.seconds) for row in alone)
    assert parts_of(why)["memory"] == pytest.approx(seconds, rel=0.01)
    assert answer(why)[3].startswith(
        f"This call is bound by memory: {seconds / why.wall:.0%} of it"
    )


def test_a_part_of_less_than_a_twentieth_is_not_told() -> None:
    def kernel(limit: str, seconds: float) -> TimedRow:
        times = {"least": seconds, "reachable": seconds}
        return TimedRow(limit, "kernel", *[seconds] * 4, limit=limit, **times)

    rows = kernel("hbm", 0.48), kernel("matrix", 0.46), TimedRow("", "gap", 0.04), kernel("", 0.02)
    why = Explanation("f", (), "gpu", "NVIDIA H200", "measured", runs=(1.0,), rows=rows)
    told = next(said for said in answer(why) if said.startswith("This call has no one bound"))
    assert told == (
        f"This call has no one bound: of its time go 48% to {PARTS['memory']}, "
        f"46% to {PARTS['compute']}."
    )


def test_the_kernel_that_loses_most_is_the_one_to_look_at() -> None:
    """One whose roof isn't known, the longest here, loses nothing that anybody knows."""

    def kernel(name: str, seconds: float, reachable: float | None) -> TimedRow:
        times = {"least": reachable, "reachable": reachable}
        return TimedRow(name, "kernel", *[seconds] * 4, limit="hbm", **times)

    rows = kernel("long", 0.3, 0.05), kernel("slow", 0.29, 0.01), kernel("untold", 0.41, None)
    why = Explanation("f", (), "gpu", "NVIDIA H200", "measured", runs=(1.0,), rows=rows)
    told = answer(why)
    assert any(said.startswith("Look at slow first: that is 280 ms") for said in told), told


def test_a_function_has_the_line_of_its_longest_kernel() -> None:
    def row(line: int, op_name: str, seconds: float) -> TimedRow:
        kernel = Row("k", "fusion", op_name=op_name, source=SourceLine("model.py", line, "mlp"))
        return TimedRow(f"k{line}", "kernel", *[seconds] * 4, kernel=kernel)

    forward, backward = "jit(f)/jvp(layer_1)/mlp/dot", "jit(f)/transpose(jvp(layer_2))/mlp/dot"
    rows = row(18, forward, 0.1), row(20, backward, 0.3), row(30, "jit(f)/head/dot", 0.6)
    why = Explanation("f", (), "gpu", "NVIDIA H200", "trace", runs=(1.0,), rows=rows)
    told = why.table(by="function")[["ms", "share", "backward ms", "line"]]
    assert told.loc["layer_#.mlp"].to_list() == [400.0, "40.0%", 300.0, "model.py:20"]
    assert told.index[0] == "head"


def test_what_is_in_no_row_is_told_where_it_is_the_largest_loss() -> None:
    why = step_of(*FIRST, batch=16)
    largest = max(finding.seconds for finding in why.findings)
    for times in (0.9, 1.1):
        longer = replace(why, runs=(why.covered + times * largest,))
        said = f"The largest loss, {si(times * largest, 's')}, is in no row."
        assert (answer(longer)[-1] == said) is (times > 1)


ALONE = TimedRow(
    "copy",
    "kernel",
    1e-3,
    1e-3,
    kernel=Row("copy", "copy", read={"hbm": round(4.8e12 * 0.9e-3)}),
    limit="hbm",
    least=0.9e-3,
    reachable=0.95e-3,
)
"""A copy at the published rate of an H200, which takes 0.9 ms of 1 ms."""

UNDECLARED = replace(ALONE.kernel, flops=Flops(unknown=("a call",)))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "memory"),
        ({"busy": 1.19e-3}, "memory"),
        ({"busy": 1.21e-3}, "overlapping"),
        ({"least": 1.01e-3}, "cached"),
        ({"least": 1.01e-3, "busy": 1.21e-3}, "overlapping"),
        ({"least": 0.917e-3}, "memory"),  # of which its bytes take 98.1%
        ({"least": 0.92e-3}, "ceilings"),  # 97.8%
        ({"limit": "matrix"}, "ceilings"),
        ({"limit": "matrix", "least": 0.92e-3}, "compute"),
        ({"limit": "vector", "least": 0.92e-3}, "vector"),
        ({"limit": "hbm or vector"}, "data"),
        ({"reachable": None}, "no roof"),
        ({"reachable": 0.0}, "above"),
        ({"kernel": UNDECLARED, "reachable": 0.81e-3}, "memory"),
        ({"kernel": UNDECLARED, "reachable": 0.79e-3}, "undeclared"),
        ({"label": "ncclDevKernel_AllReduce"}, "network"),
        ({"kind": "gap"}, "idle"),
        ({"kind": "host"}, "idle"),
        ({"kind": "loop"}, "idle"),
        ({"kind": "wait"}, "wait"),
        ({"kind": "transfer"}, "transfer"),
    ],
)
def test_a_bound_is_claimed_only_if_it_survives(
    decode_step: Explanation, changes: dict[str, Any], part: str
) -> None:
    row = replace(ALONE, **changes)
    why = replace(decode_step, rows=(row,), runs=(row.seconds,), findings=(), hand=None)
    parts = parts_of(why)
    reached = (row.reachable or 0.0) if part in ("memory", "compute", "vector") else 1e-3
    assert {name: took for name, took in parts.items() if took} == pytest.approx(
        {part: reached} | ({"above": 1e-3 - reached} if reached < 1e-3 else {})
    )
    assert answer(why)[0] == "No cause of lost time found."
    longest = part if reached > 0.5e-3 else "above"
    assert PARTS[longest] in answer(why)[1]


def test_the_words_come_first_on_one_page_of_100_columns() -> None:
    order = ["WHAT TO CHANGE", "FROM THE ROOF TO THE CLOCK", "WHAT WAS MEASURED", "BY KERNEL"]
    reasons = {"faster than the roof", "slower when profiled", "counted in kernels without a roof"}
    for why in every():
        text = why.describe()
        assert max(map(len, text.splitlines())) <= 100
        titles = " ".join(row.title for row in why.groups[:12])
        assert {*titles.split()} <= {*text.split()}, "a name is cut off"
        found = [text.index(head) for head in order if head in text]
        assert found == sorted(found)
        assert text.partition("\nWHAT WAS")[0].count("\n") <= 50
        assert all(row.title.strip() for row in why.groups)
        below = {bar.name for bar in why.waterfall if bar.seconds < -1e-6}
        known = {"ceilings as reached", "the compiled program needs less"}
        assert below <= reasons | known, "less than nothing, and no reason"
        assert answer(why)[0].split()[0] in text.partition("WHAT")[0]


def test_markdown_for_an_issue(tmp_path):
    why = step_of("train-step", 0)
    text = why.save(tmp_path / "why.md").read_text("utf-8")
    assert text.startswith("**as first written on 4 × NVIDIA H200, 316 ms a call**\n")
    assert text.index("### What to change") < text.index("### What was measured")
    assert "costs 40.5 ms to 42.3 ms, by 2 pairs" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 3  # three tables
    hostile = replace(why, notes=("<script> and *one* | two",))
    assert "\\<script> and \\*one\\* \\| two" in hostile.save(tmp_path / "a.md").read_text("utf-8")


def test_the_longest_matmul_says_the_type_and_the_longest_kernels_are_in_the_picture() -> None:
    names = {"f32": "fp32", "bf16": "bf16"}
    mixed = 0
    for why in every():
        products = [row for row in why.kernels if row.kernel.matrix_types[:1]]
        types = {row.kernel.matrix_types[0] for row in products}
        if len(types) > 1 and types <= {*names}:
            longest = max(products, key=lambda row: row.seconds)
            assert why.dtype == names[longest.kernel.matrix_types[0]]
            mixed += longest.kernel.matrix_types != products[-1].kernel.matrix_types
    assert mixed
    shown = " ".join(text.get_text() for text in roofline(step_of(*FIRST, batch=16)).texts)
    assert "matmul of layer, 1.92 ms" in shown
    assert "sum of layer, 1.72 ms" in shown
    assert "softmax of layer" not in shown  # 93 µs
