"""Whole results of steps, loads, answers, judgements and expected times, as they were accepted."""

import pytest

from tools import accepted

ALONE = [name for name in accepted.cases() if name not in accepted.WITH_BOARD]


@pytest.mark.parametrize("name", ALONE)
def test_a_whole_result_is_the_one_that_was_accepted(name):
    assert accepted.changed(name) == []


def test_no_result_is_kept_without_its_setting():
    assert [*accepted.kept()] == [*accepted.cases()]


def test_a_difference_is_found_wherever_it_is():
    one = {"a": [1.0, {"b": 2, "c": None}], "d": "text"}
    assert [*accepted.differing(one, {"a": [1 + 1e-10, {"b": 2, "c": None}], "d": "text"})] == []
    for other in (
        {"a": [1.0 + 1e-7, {"b": 2, "c": None}], "d": "text"},
        {"a": [1.0, {"c": None, "b": 2}], "d": "text"},
        {"a": [1.0], "d": "text"},
        {"a": [1.0, {"b": 2, "c": 0}], "d": "text"},
        {"a": [1.0, {"b": True, "c": None}], "d": "text"},
        {"a": [1.0, {"b": 2, "c": None}], "d": "texts"},
    ):
        assert len([*accepted.differing(one, other)]) == 1
