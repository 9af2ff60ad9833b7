"""Joules that are committed: of one device, under load."""

from __future__ import annotations

from roofline.diagnosis import ladder


def test_a_busy_gpu_takes_more_than_an_idle_one() -> None:
    """No committed reading of joules is that of a neighbour that did nothing."""
    readings = [
        step.why.energy
        for each in ladder.committed().values()
        for step in each.steps
        if step.why is not None and step.why.energy is not None
    ]
    assert len(readings) >= 7
    assert all(one.watts > 3 * one.idle for one in readings)
