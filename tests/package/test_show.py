"""Numbers and tables for people."""

import numpy as np
import pandas as pd
import pytest

import roofline_helpers as rh
from roofline import terminal
from roofline_helpers.common.show import cell, readable, shortened, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000, "1 kB"),
        (999.9999, "1 kB"),
        (0.5, "500 mB"),
        (0, "0 B"),
    ],
)
def test_the_prefix_leaves_one_to_a_thousand(value, text):
    assert rh.si(value, "B") == text


def test_a_text_is_shortened_to_so_many_characters_and_no_further():
    assert [shortened("roofline", most) for most in (9, 8, 7)] == [
        "roofline",
        "roofline",
        "roofli…",
    ]


def test_significant_digits():
    assert [significant(1234.5, 6), significant(9.9999)] == ["1,234.5", "10"]
    assert rh.si(1210.0, "s") == "1,210 s"  # nobody says kiloseconds


def test_less_than_a_table_shows_is_said_of_gains_alone():
    assert [cell(value) for value in (2e-9, -2e-9, -0.25)] == ["<0.0001", "0", "-0.25"]


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
