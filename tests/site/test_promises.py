"""The page of promises says what the record says; `test_diagnosis_accepted` makes it again."""

import pytest

import page_promises
from measurements.pairs import PAIRS
from page_promises import BEATEN, BROKEN, CLEAN, LEAST, SAME, pairs
from roofline import evidence
from roofline.xla.causes import CAUSES, KINDS

RECORD = evidence.load("repairs")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return page_promises.promises()


def test_every_pair_is_there_once_timed_or_named_as_not_run(texts: dict[str, str]) -> None:
    timed = [pair.name for pair in pairs()]
    assert sorted([*timed, *RECORD["not_run"]]) == sorted(PAIRS)
    assert len(timed) == len(texts["promises_table"].split("\n")) - 2 >= 40
    for row in RECORD["pairs"]:
        assert (row["kind"], row["source"]) == (PAIRS[row["name"]].kind, PAIRS[row["name"]].source)
        assert row["apart"] <= PAIRS[row["name"]].tolerance


def test_findings_of_the_record_are_of_the_closed_list() -> None:
    assert {SAME.get(row["kind"], row["kind"]) for row in RECORD["pairs"]} == {*KINDS, CLEAN}
    for finding in (finding for row in RECORD["pairs"] for finding in row["now"]):
        assert finding["kind"] == CAUSES[finding["cause"]].kind


def test_kept_promises_are_counted(texts: dict[str, str]) -> None:
    stated, kept, later, broken = 0, 0, [0, 0], set()
    for row in RECORD["pairs"]:
        gain = row["before"] - row["after"]
        graded = [f for f in row["now"] if f["grade"] == "known"]
        graded = [f for f in graded if f["seconds"] >= LEAST * row["before"]]
        if not graded:
            continue
        low, high = graded[0]["saves"]
        stated += 1
        kept += low <= gain <= high
        later[0] += low <= gain <= high and row["name"] not in RECORD["seen"]
        later[1] += row["name"] not in RECORD["seen"]
        broken |= set() if low <= gain <= high else {row["name"]}
    assert (texts["promises_stated"], texts["promises_kept"]) == (str(stated), str(kept))
    assert texts["promises_later"] == "{} of {}".format(*later)
    assert broken == set(BROKEN)  # each has its reason, and none that is kept
    assert kept >= 0.8 * stated
    assert later[0] / later[1] < kept / stated  # "expect less"
    assert len(RECORD["seen"]) == len([row for row in RECORD["pairs"] if row["first"]]) // 2


def test_the_picture_shows_which_way_promises_broke() -> None:
    """As its alternative text says: four, one of them too large."""
    broken = [pair for pair in pairs() if pair.promise is not None and not pair.kept]
    assert sorted(pair.gain < pair.ends[0] for pair in broken) == [False, False, False, True]


def test_no_repair_that_keeps_the_algorithm_beats_what_is_needed() -> None:
    beaten = {r["name"] for r in RECORD["pairs"] if r["needed"] and r["after"] < r["needed"]}
    assert beaten == set(BEATEN)


def test_no_alarm_on_clean_programs(texts: dict[str, str]) -> None:
    clean = [row for row in RECORD["pairs"] if row["kind"] == CLEAN]
    alarms = [
        row["name"]
        for row in clean
        if any(f["kind"] and f["seconds"] > 0.1 * row["before"] for f in row["now"])
    ]
    assert not alarms
    assert (texts["promises_clean"], texts["promises_alarms"]) == (str(len(clean)), "0")


def test_kinds_that_lead_are_counted(texts: dict[str, str]) -> None:
    found = {1: 0, 2: 0}
    for row in RECORD["pairs"]:
        kind = SAME.get(row["kind"], row["kind"])
        for many in found:
            found[many] += kind in [finding["kind"] for finding in row["now"][:many]]
    assert [int(texts["promises_first"]), int(texts["promises_two"])] == list(found.values())
