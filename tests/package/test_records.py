"""Records: what is saved is what is read, and whatever isn't a record is refused in words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_helpers import records
from roofline_helpers.records import BadRecord

SCHEMA = "roofline_helpers.tests/2"
FIELDS = {"schema": str, "name": str, "seconds": records.positive, "samples": [{"n": int}]}
GOOD: dict[str, Any] = {"schema": SCHEMA, "name": "µ", "seconds": 0.5, "samples": [{"n": 1}]}

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=12
)


@given(st.dictionaries(st.text(), values))
def test_text_holds_what_was_given(data: dict[str, Any]) -> None:
    assert json.loads(records.dumps(data)) == data


def test_saved_and_loaded(tmp_path: Path) -> None:
    path = records.save(tmp_path / "a.json", GOOD)
    assert records.load(path, SCHEMA, FIELDS) == GOOD
    assert os.listdir(tmp_path) == ["a.json"]
    assert records.load(str(path), SCHEMA) == GOOD


def test_what_cannot_be_json_leaves_the_earlier_record(tmp_path: Path) -> None:
    path = records.save(tmp_path / "a.json", GOOD)
    for bad in (float("nan"), float("inf"), {1, 2}, object()):
        with pytest.raises(BadRecord, match="can't be recorded"):
            records.save(path, {**GOOD, "bad": bad})
    with pytest.raises(BadRecord, match="no schema"):
        records.save(path, {"name": "x"})
    with pytest.raises(BadRecord, match=r"the record to save must be an object, got \[1\]"):
        records.save(path, [1])  # type: ignore[arg-type]
    assert records.load(path, SCHEMA, FIELDS) == GOOD


def test_a_link_and_the_mode_of_a_file_stay(tmp_path: Path) -> None:
    path = records.save(tmp_path / "a.json", GOOD)
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to("a.json")
    assert records.save(link, {**GOOD, "name": "new"}) == link
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert records.load(path, SCHEMA)["name"] == "new"


@pytest.mark.parametrize("point", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_the_earlier_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, error: type[BaseException]
) -> None:
    path = records.save(tmp_path / "a.json", GOOD)

    def stop(*_: Any) -> None:
        raise error

    monkeypatch.setattr(os, point, stop)
    with pytest.raises(error):
        records.save(path, {**GOOD, "name": "new"})
    monkeypatch.undo()
    assert records.load(path, SCHEMA, FIELDS) == GOOD
    assert os.listdir(tmp_path) == ["a.json"], "a half-written file is left behind"


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    text = records.dumps(GOOD)
    path = tmp_path / "a.json"
    for end in range(len(text) - 2):  # without the last line break it is still whole
        path.write_text(text[:end], "utf-8")
        with pytest.raises(BadRecord, match=r"a\.json"):
            records.load(path, SCHEMA, FIELDS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ("3", "must be a JSON object"),
        ("{}", "no schema"),
        ('{"schema": 3}', "no schema"),
        ('{"schema": "tests"}', "no schema"),
        ('{"schema": "other.family/2"}', "another kind: 'other.family'"),
        ('{"schema": "roofline_helpers.tests/1"}', "an older record: version 1.*Measure again"),
        ('{"schema": "roofline_helpers.tests/3"}', "a newer record: version 3.*Update"),
        ('{"schema": "roofline_helpers.tests/2"}', "lacks 'name'"),
        ('{"schema": "roofline_helpers.tests/2", "name": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "not JSON|nested too deeply"),
    ],
)
def test_what_is_no_record_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, "utf-8")
    with pytest.raises(BadRecord, match=f"bad.json: .*(?:{said})"):
        records.load(path, SCHEMA, FIELDS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 3}, "name of the record must be of type str, got 3"),
        ({"name": None}, "lacks 'name'"),
        ({"seconds": 0}, "seconds of the record must be a positive"),
        ({"seconds": -1}, "must be a positive"),
        ({"seconds": "1"}, "must be a positive"),
        ({"seconds": True}, "must be a positive"),
        ({"samples": {}}, "samples of the record must be a list"),
        ({"samples": [{"n": 1}, {"n": True}]}, "n of item 1 of samples .* must be of type int"),
        ({"samples": [3]}, "item 0 of samples of the record must be an object"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        records.check({**GOOD, **change}, FIELDS)


def test_optional_fields() -> None:
    records.check({}, {"note?": str})
    records.check({"note": None}, {"note?": str})
    with pytest.raises(BadRecord, match="note"):
        records.check({"note": 3}, {"note?": str})
    records.check({"a": 0, "b": 2.5}, records.table_of(records.natural))
    with pytest.raises(BadRecord, match="b must be zero or a positive"):
        records.check({"a": 0, "b": -2}, records.table_of(records.natural))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=r"nowhere\.json: can't be read: No such file"):
        records.load(tmp_path / "nowhere.json", SCHEMA)
    with pytest.raises(BadRecord, match="can't be read"):
        records.load(tmp_path, SCHEMA)
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadRecord, match="not UTF-8"):
        records.load(tmp_path / "a.json", SCHEMA)
    with pytest.raises(OSError, match="No such file"):
        records.save(tmp_path / "no folder" / "a.json", GOOD)


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.x.json", "a.json", "notes.txt"):
        (tmp_path / name).write_text("{}")
    assert list(records.files(tmp_path)) == ["a", "b.x"]
    assert records.files(tmp_path / "nowhere") == {}
