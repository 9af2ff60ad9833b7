"""Records: what is saved is what is read, and whatever isn't a record is refused in words."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NotRequired, TypedDict

import msgspec
import pytest

from roofline import storage
from roofline_helpers.common import records
from roofline_helpers.common.records import BadRecord

SCHEMA = "roofline_helpers.tests/2"


class Item(TypedDict):
    """One sample."""

    n: int


class Good(TypedDict):
    """The smallest record."""

    schema: str
    name: str
    seconds: records.Positive
    samples: list[Item]


GOOD = {"schema": SCHEMA, "name": "µ", "seconds": 0.5, "samples": [{"n": 1}]}


def test_saved_and_loaded(tmp_path):
    path = storage.save(tmp_path / "a.json", GOOD)
    assert storage.load(path, SCHEMA, Good) == GOOD
    assert os.listdir(tmp_path) == ["a.json"]
    assert storage.load(str(path), SCHEMA, dict) == GOOD


def test_more_than_a_dozen_members_are_a_table():
    for count, lines in ((12, 3), (13, 17)):
        text = storage.dumps({"numbers": {str(n): n for n in range(count)}})
        assert text.count("\n") == lines


@pytest.mark.parametrize("point", ["fsync", "replace"])
def test_an_interruption_leaves_the_earlier_record(tmp_path, monkeypatch, point):
    path = storage.save(tmp_path / "a.json", GOOD)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, point, stop)
    with pytest.raises(KeyboardInterrupt):
        storage.save(path, {**GOOD, "name": "new"})
    monkeypatch.undo()
    assert storage.load(path, SCHEMA, Good) == GOOD
    assert os.listdir(tmp_path) == ["a.json"], "a half-written file is left behind"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "no schema"),
        ('{"schema": "other.family/2"}', "another kind: 'other.family'"),
        ('{"schema": "roofline_helpers.tests/1"}', "an older record: version 1.*Measure again"),
        ('{"schema": "roofline_helpers.tests/3"}', "a newer record: version 3.*Update"),
        ('{"schema": "roofline_helpers.tests/2"}', "missing required field `name`"),
    ],
)
def test_what_is_no_record_is_said(tmp_path, text, said):
    path = tmp_path / "bad.json"
    path.write_text(text, "utf-8")
    with pytest.raises(BadRecord, match=f"bad.json: .*(?:{said})"):
        storage.load(path, SCHEMA, Good)


class Part(TypedDict):
    """An object with a member that may be missing."""

    n: records.Count
    note: NotRequired[str | None]


@dataclass(frozen=True)
class Sampled:
    """One item of a list."""

    name: str
    seconds: records.Positive
    rates: Mapping[str, records.Natural] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    part: Part | None = None


class Kept(msgspec.Struct):
    """A record."""

    schema: str
    samples: tuple[Sampled, ...]


ITEM = {
    "name": "µ",
    "seconds": 1,
    "rates": {"a": 0, "b": 2.5},
    "shape": [1, 2],
    "part": {"n": 1},
}


def kept(*changed):
    """Return a record whose first sample is good, and the others are changed."""
    samples = [ITEM, *({**ITEM, **change} for change in changed)]
    return json.dumps({"schema": SCHEMA, "samples": samples})


def test_a_record_becomes_what_it_is_a_record_of(tmp_path):
    path = storage.write(tmp_path / "a.json", kept({"part": None}))
    read = storage.load(path, SCHEMA, Kept)
    wanted = Sampled("µ", 1.0, {"a": 0.0, "b": 2.5}, (1, 2), {"n": 1})
    assert read == Kept(SCHEMA, (wanted, replace(wanted, part=None)))
    assert type(read.samples[0].seconds) is float
    assert storage.loads('{"schema": "a/1", "samples": []}', "a/1", Kept).samples == ()


def test_a_field_that_is_wrong_is_named():
    wrong = {
        "samples[1].name: expected `str`, got `int`": {"name": 3},
        "samples[1].seconds: expected `float`, got `str`": {"seconds": "1"},
        "samples[1].rates[...]: expected `float` >= 0.0": {"rates": {"a": 0, "b": -2}},
        "samples[1].part: object missing required field `n`": {"part": {"note": "x"}},
        "samples[1].part.n: expected `int` >= 1": {"part": {"n": 0}},
        "samples[1] has an unknown member 'colour'": {"colour": 1},
        "samples[1].part has an unknown member 'm'": {"part": {"n": 1, "m": 2}},
    }
    for message, change in wrong.items():
        with pytest.raises(BadRecord) as caught:
            storage.loads(kept(change), SCHEMA, Kept)
        assert str(caught.value) == message
