"""The breaks of `python -m tools.breaks` still break something, each what its words say."""

from __future__ import annotations

import pytest

from tools import books
from tools.breaks import BREAKS


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_changes_its_file_and_its_tests_are_there(name: str) -> None:
    one = BREAKS[name]
    sound = (books.ROOT / one.file).read_text("utf-8")
    assert one.change(sound) != sound
    files = [books.ROOT / test.partition("::")[0] for test in one.tests]
    assert [file for file in files if not file.is_file()] == []
