"""Numbers and tables for people."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest

import roofline_helpers as rh
from roofline import terminal
from roofline_helpers.common.show import (
    Fields,
    cell,
    facts_html,
    many,
    readable,
    shortened,
    significant,
    span,
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((1000, "B"), "1 kB"),
        ((999.4, "B"), "999 B"),
        ((999.9999, "B"), "1 kB"),
        ((0.5, "B"), "500 mB"),
        ((0, "B"), "0 B"),
        ((-2346, "B"), "-2.35 kB"),
        ((1.234e-12, "s"), "0.00123 ns"),
        ((4.56e21, "FLOP"), "4,560 EFLOP"),
        ((float("inf"), "B"), "inf B"),
        ((0.0123456, "s", "u", 2), "12,000 µs"),
        ((2_345_678, "B", "k", 5), "2,345.7 kB"),
        ((1210.0, "s"), "1,210 s"),  # nobody says kiloseconds
    ],
)
def test_the_prefix_leaves_one_to_a_thousand(given, text):
    assert rh.si(*given) == text


def test_one_or_several():
    counted = [many(n, noun) for n, noun in ((1, "key"), (2, "key"), (2, "day"), (1200, "box"))]
    assert counted == ["1 key", "2 keys", "2 days", "1,200 boxes"]
    assert [span(ends, str) for ends in ([3, 1, 2], [2, 2], 5)] == ["1.0 to 3.0", "2.0", "5.0"]


def test_what_an_object_shows_of_its_fields_is_short():
    @dataclass(repr=False)
    class Some(Fields):
        name: str
        rate: float
        none: None = None
        empty: tuple = ()
        few: tuple = (1, 2, 3)
        more: tuple = (1, 2, 3, 4)
        table: Any = field(default_factory=lambda: {"a": 1})
        text: str = "x" * 41

    assert repr(Some("some", 1234.5)) == (
        f"<some: rate 1.23e+03, few (1, 2, 3), more 4 entries, table 1 entries, text {'x' * 39}…>"
    )
    assert len(repr(Some("n" * 300, 1))) == 199
    rows = facts_html("a <b>", {"rate": "1 & 2"}).replace("\n", "").replace(" ", "")
    assert "<th>a&lt;b&gt;</th>" in rows
    assert "<tr><th>rate</th><td>1&amp;2</td></tr>" in rows
    assert "style" not in rows


def test_a_text_is_shortened_to_so_many_characters_and_no_further():
    assert [shortened("roofline", most) for most in (9, 8, 7)] == [
        "roofline",
        "roofline",
        "roofli…",
    ]


def test_significant_digits():
    assert [significant(1234.5, 6), significant(9.9999)] == ["1,234.5", "10"]


def test_less_than_a_table_shows_is_said_of_gains_alone():
    values = (2e-9, -2e-9, 1e-4, 9e-5, -0.25, 12.345, 1235.7, -1235.7, -123.4, 0.0)
    assert [cell(value) for value in values] == [
        *("<0.0001", "0", "0.0001", "<0.0001", "-0.25", "12.3", "1,236", "-1,236", "-123", "0"),
    ]


def test_a_table_for_reading():
    frame = rh.table(
        [
            {
                "kernel": "a",
                "n": 12345,
                "x": 0.123456,
                "ok": True,
                "note": "yes",
            },
            {"kernel": "b", "n": np.int64(1000), "x": float("nan"), "ok": np.bool_(False)},
            {
                "kernel": "c",
                "n": None,
                "x": np.float32(2.5),
                "ok": None,
                "note": None,
            },
        ]
    )
    assert (frame.columns.name, frame.index.name) == ("kernel", None)
    assert frame.loc["a"].tolist() == ["12,345", "0.123", "yes", "yes"]
    assert frame.loc["b"].tolist() == ["1,000", "–", "no", "–"]
    assert frame.loc["c"].tolist() == ["–", "2.5", "–", "–"]


def test_progress_is_for_terminals_whatever_the_environment_says(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels of notebooks have it
    with terminal.progress() as say:
        say("compiling")
    assert capsys.readouterr() == ("", "")


def test_a_named_index_names_the_rows_even_if_its_numbers_are_evenly_spaced():
    by_batch = {1: {"TB/s": 3.0, "share": 0.96}, 16: {"TB/s": 3.1, "share": 0.974}}
    shown = readable(pd.DataFrame(by_batch).T.rename_axis("batch"))
    assert (shown.index.tolist(), shown.columns.name) == (["1", "16"], "batch")


def test_a_table_of_the_terminal_has_the_columns_that_find_room():
    wide = terminal.Grid(
        ["kernel", "ms", *terminal.OPTIONAL, "why"],
        [["k" * 20, "1234567", *["123456"] * len(terminal.OPTIONAL), "w" * 22]],
    )
    head, row = terminal.text_of(wide).splitlines()
    assert head.split() == "kernel ms line lost ms cycles µs kernels launches why".split()
    assert len(row) == 100
    assert row.startswith("k" * 20 + "  1234567  123456   123456     123456   123456    123456  w")
    wider = wide._replace(rows=[[*wide.rows[0][:-1], "w" * 23]])  # one that is narrower still fits
    head = terminal.text_of(wider).splitlines()[0]
    assert head.split() == "kernel ms line lost ms cycles µs kernels HBM MB why".split()
    least = [terminal._least([text, "b"]) for text in ("a bb", "a " * 10 + "bb", "x" * 21)]
    assert least == [4, 20, 21]  # a short text stays in one line, a long word whole
    small = terminal.Grid(["a", "b", "c"], [["one two", "1", "x y"], ["z", "10", "w"]])
    lines = ["first", "", "WHERE", "a         b  c", "one two   1  x y", "z        10  w"]
    assert terminal.text_of("first", terminal.Heading("where"), small) == "\n".join(lines)
    left = terminal.text_of(small._replace(right=False)).splitlines()
    assert left == ["a        b   c", "one two  1   x y", "z        10  w"]


def test_markdown_of_the_same():
    table = terminal.Grid(["a", "b", "c"], [["one", "1", "x*y"]])
    steps = terminal.Grid(["", ""], [["1.", "do\nthat"], ["note", "x|y"]])
    said = terminal.markdown("first *x*", "a_b", terminal.Heading("where"), table, steps)
    assert said.splitlines() == [
        *(
            "**first \\*x\\***",
            "a\\_b",
            "",
            "### Where",
            "",
            "| a | b | c |",
            "| :-- | --: | :-- |",
        ),
        *("| one | 1 | x\\*y |", "1. do  ", "   that", "- note: x\\|y"),
    ]
    left = terminal.markdown("x", table._replace(right=False)).splitlines()
    assert left[2] == "| :-- | :-- | :-- |"
