"""What is said of kept programs is what was accepted, word by word, in its order.

After a change of what is said: `python -m tools.diagnoses` and `python -m measurements.promises`,
and read the difference.
"""

import json

import pytest

from measurements import promises
from roofline import evidence
from tools import diagnoses

ACCEPTED = json.loads(diagnoses.ACCEPTED.read_text("utf-8"))
ROWS = {row["name"]: row for row in evidence.load("repairs")["pairs"]}
LONG = {"widened-residual", "many-arrays", "linear-recurrence", "part-of-a-permutation"}
"""Pairs that take seconds each."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return folder, {row["name"]: row for row in promises.kept(folder)["rows"]}


def near(value):
    """Return a value whose numbers may differ by rounding."""
    if isinstance(value, dict):
        return {key: near(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [near(one) for one in value]
    return pytest.approx(value, rel=1e-9, abs=0) if isinstance(value, float) else value


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.weekly] * (n in LONG)) for n in ROWS]
)
def test_pairs_of_programs(kept, name):
    folder, rows = kept
    why = promises.explanation_of(folder, rows[name])
    assert diagnoses.of_pair(folder, rows[name], why) == ACCEPTED["pairs"][name]
    assert json.loads(json.dumps(promises.row_of(rows[name], why))) == near(ROWS[name])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "queue"), diagnoses.QUEUES.items())
def test_recorded_traces(recorded, name, queue):
    assert diagnoses.of_run(recorded(name, queue)) == ACCEPTED["traces"][name]


@pytest.mark.slow
def test_programs_for_a_tpu():
    """Those that a test no longer compiles are left out until all is accepted anew."""
    texts, accepted = diagnoses.texts(), ACCEPTED["for a TPU"]
    said = {key: diagnoses.of_text(texts[key], "", "v6e") for key in accepted if key in texts}
    assert len(said) > 40
    assert said == {key: accepted[key] for key in said}
