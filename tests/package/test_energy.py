"""Joules of a call: whose they are, and how they are counted by what stands in for NVML."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Iterator
from typing import Any

import pytest

from roofline_helpers.device import ladder, runner
from roofline_helpers.device.runner import _idle_watts, energy_of


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


class Meter:
    """NVML's counter and power meter: each call of the program costs three joules."""

    def __init__(self) -> None:
        self.calls = 0
        self.asked = 0

    def run(self, queue: int) -> None:
        self.calls += queue

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        return 3000 * self.calls

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        self.asked += 1
        return 75_000


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meter]:
    meter = Meter()
    handle = ctypes.pointer(ctypes.c_int(0))  # as pynvml's: it can't be hashed
    monkeypatch.setattr(runner, "open_nvml", lambda: (meter, handle))
    monkeypatch.setattr(runner, "LOOP", 0.05)
    now = iter(range(10**6))
    monkeypatch.setattr(runner, "perf_counter", lambda: next(now) / 100)
    monkeypatch.setattr(runner, "sleep", lambda seconds: None)
    _idle_watts.cache_clear()
    yield meter
    _idle_watts.cache_clear()


def test_joules_of_a_call_and_the_idle_power_asked_once(meter: Meter) -> None:
    called: Any = types.SimpleNamespace(run=meter.run)
    first, again = energy_of(called, 4), energy_of(called, 4)
    assert first is not None
    assert again is not None
    assert first.joules == pytest.approx(3)
    assert first.idle == pytest.approx(75)
    assert meter.asked == 10
