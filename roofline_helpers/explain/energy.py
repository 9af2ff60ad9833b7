"""Joules of a call, where the device reports them: NVIDIA's NVML, through pynvml."""

from __future__ import annotations

import functools
from time import perf_counter, sleep
from typing import Any

from roofline_helpers.explain.explanation import Energy
from roofline_helpers.explain.running import CannotRun, Runner
from roofline_helpers.measure import nvml

LOOP = 2.0
"""Seconds that the loop takes: the counter is refreshed ten to fifty times a second."""


def energy_of(runner: Runner, queue: int) -> Energy | None:
    """Return what a call costs while calls follow on one another; None where nothing reports it.

    Parameters
    ----------
    runner : Runner
        What is called.
    queue : int
        Calls that are queued before one is awaited.
    """
    counter = _counter()
    if counter is None:
        return None
    try:
        return _measured(runner, queue, *counter)
    except CannotRun:
        raise
    except Exception:  # NVML fell silent: a call's joules are no reason to lose its times
        return None


def _measured(runner: Runner, queue: int, library: Any, handle: Any) -> Energy | None:
    idle = _idle_watts()
    warm = perf_counter() + 0.5
    while perf_counter() < warm:
        runner.run(queue)
    calls, begun, before = 0, perf_counter(), _joules(library, handle)
    while perf_counter() - begun < LOOP:
        runner.run(queue)
        calls += queue
    took, used = perf_counter() - begun, _joules(library, handle) - before
    clock = _clock(library, handle)
    if used <= 0:
        return None
    return Energy(used / calls, idle, took / calls, took, clock or None)


def _counter() -> tuple[Any, Any] | None:
    """Return NVML and the GPU's handle; None where nothing counts joules."""
    there = nvml.opened()
    if there is not None:
        try:
            _joules(*there)
        except Exception:  # older GPUs have power, but no counter
            return None
    return there


def _joules(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3


@functools.cache
def _idle_watts() -> float:
    """Return the mean power of a device that has done nothing for a second: once a process.

    It takes no argument, since NVML's handle is a pointer of ctypes and can't be a cache's key.
    """
    opened = nvml.opened()
    assert opened is not None  # whoever asks has the counter
    library, handle = opened
    sleep(1.0)
    seen = []
    for _ in range(10):
        seen.append(float(library.nvmlDeviceGetPowerUsage(handle)) / 1e3)
        sleep(0.05)
    return sum(seen) / len(seen)


def _clock(library: Any, handle: Any) -> float:
    try:
        return float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)) * 1e6
    except Exception:
        return 0.0
