"""Ordinary wrong arguments: each is refused in the package's own words, or means what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import (
    BadType,
    RooflineError,
    UnknownName,
    ask,
    compiled,
    measure,
    plot,
    records,
    work,
)
from roofline_helpers.records import BadRecord

jax = pytest.importorskip("jax")

JOB, ROOF = work.matmul(8, 8, 8), rh.chip("h100").roofline()
RECORD = measure.measured()["h100"]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: measure.time(lambda x: x, np.array(["a"])), BadType, "can't take these arguments"),
        (lambda: measure.run(chosen=["copy"]), BadType, "a sequence of Case, got ['copy']"),
        (lambda: measure.run(chosen=3), BadType, "a sequence of Case, got 3"),
        (
            lambda: measure.combine(RECORD),
            BadType,
            "(measure.load) are needed, got <NVIDIA",
        ),
        (lambda: measure.combine([3]), BadType, "are needed, got [3]"),
        (lambda: measure.merge(RECORD, None), BadType, "None]"),
        (lambda: RECORD.draw(beside=3), BadType, "beside must be a Record, got 3"),
        (lambda: measure.array(3, dtype="fp4"), UnknownName, "data type to measure 'fp4'"),
        (lambda: measure.memory_cases(2**20, "fp6"), UnknownName, "'fp6'"),
        (
            lambda: plot.roofline(ROOF, {"a": 1}, achieved=[1]),
            BadType,
            "achieved must be a",
        ),
        (lambda: plot.compare(3), BadType, "Roofline is needed, got 3"),
        (lambda: plot.heatmap([JOB], 3), BadType, "chip must be a name (str), got 3"),
        (lambda: plot.fusion(3, JOB, JOB), BadType, "Roofline is needed, got 3"),
        (
            lambda: compiled.analyze(lambda a: a, np.ones(3), static_argnums=9),
            compiled.CannotTrace,
            "static_argnums=(9,)",
        ),
        (lambda: ask.number("?", solution=1, key="k", feedback=None), BadType, "pairs of value"),
        (lambda: ROOF.time(rh.Work), BadType, "a kernel (roofline_helpers.work) is needed"),
        (lambda: records.save("a.json", [1]), BadRecord, "must be an object, got [1]"),
    ],
)
def test_a_wrong_argument_is_refused(
    call: Callable[[], Any], error: type[RooflineError], says: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    plt.close("all")
    assert says in str(caught.value)


def test_whole_numbers_may_be_floats_and_samples_an_array() -> None:
    assert rh.si(3.1415, "B", digits=3.0) == rh.si(3.1415, "B")
    assert rh.show.significant(3.1415, 2.0) == "3.1"
    assert measure.summary(np.array([0.1, 0.3])).median == 0.2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--out", "a\0.json"], "--out must be"), (["--passes", str(10**19)], "--passes must be")],
)
def test_a_wrong_option_of_the_command_is_refused_before_it_measures(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(measure.command, "run", lambda *_, **__: pytest.fail("it measured"))
    try:
        status = measure.main(["measure", *arguments])
    except SystemExit as stop:
        status = stop.code
    assert status
    assert says in capsys.readouterr().err
