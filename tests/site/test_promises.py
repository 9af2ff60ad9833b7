"""The page of promises says what the record says, and the record what its programs say."""

import tarfile

import pytest

import page_promises
from measurements.pairs import PAIRS
from measurements.promises import PAIRS_RUN
from page_promises import BEATEN, BROKEN, CLEAN, LEAST, SAME, pairs
from roofline import evidence, xla
from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.findings import findings
from roofline.diagnosis.modelled import modelled_case
from roofline.diagnosis.program import Program
from roofline.xla.causes import CAUSES, KINDS
from roofline_helpers import chips

RECORD = evidence.load("repairs")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return page_promises.promises()


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    with tarfile.open(PAIRS_RUN) as tar:
        files = {entry.name: tar.extractfile(entry) for entry in tar if entry.name.endswith(".hlo")}
        return {name: file.read().decode() for name, file in files.items() if file}


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


def test_what_programs_need_is_computed_from_their_text(programs: dict[str, str]) -> None:
    assert len(programs) == 4 * len(RECORD["pairs"])
    for row in RECORD["pairs"]:
        needed = xla.minimum.needed(programs[f"{row['name']}/before/written.hlo"])
        assert needed.seconds(chips.chip("h200")) == pytest.approx(row["needed"]), row["name"]
        assert needed.refused == row["refused"]


BY_CLOCK = {"short-kernels", "gather", "in-each-turn", "collisions"}
"""Causes that show in what a kernel takes, and not in what it should."""
BY_RUNTIME = {"stacked-weights"}
"""Pairs whose copies the runtime makes of slices: the compiled text has no kernel for them."""


def test_causes_are_named_in_the_programs_and_less_of_them_in_the_repaired_ones(
    programs: dict[str, str],
) -> None:
    """By what kernels should take, without the record's clock; with the line of each."""
    h200, checked = Ceilings(chips.chip("h200")), 0
    for row in RECORD["pairs"]:
        told = []
        for side in ("before", "after"):
            made, written = (
                programs[f"{row['name']}/{side}/{text}.hlo"] for text in ("compiled", "written")
            )
            case = modelled_case(Program(made, "gpu", written=written), h200, 1.7e-6)
            told.append([found for found in findings(case) if found.named])
        for found in row["now"]:
            if found["kind"] and found["seconds"] > row["before"] / 4:
                before, after = (
                    [one for one in each if one.cause == found["cause"]] for each in told
                )
                lost, left = (sum(one.seconds for one in each) for each in (before, after))
                assert left < 0.8 * lost or not before, row["name"]
                if found["cause"] not in BY_CLOCK and row["name"] not in BY_RUNTIME:
                    checked += 1
                    assert found["line"] in {one.source for one in before}, row["name"]
    assert checked > 15


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
