"""Joules of a call, where the device reports them: NVIDIA's NVML, through pynvml."""

from __future__ import annotations

import functools
from time import perf_counter, sleep
from typing import Any

from roofline_helpers.explain.explanation import Energy
from roofline_helpers.explain.running import Runner

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
    device = _device()
    if device is None:
        return None
    nvml, handle = device
    idle = _idle_watts()
    warm = perf_counter() + 0.5
    while perf_counter() < warm:
        runner.run(queue)
    calls, begun, before = 0, perf_counter(), _joules(nvml, handle)
    while perf_counter() - begun < LOOP:
        runner.run(queue)
        calls += queue
    took, used = perf_counter() - begun, _joules(nvml, handle) - before
    clock = _clock(nvml, handle)
    if used <= 0:
        return None
    return Energy(used / calls, idle, took / calls, took, clock or None)


@functools.cache
def _device() -> Any:
    """Return NVML and the handle of the GPU that JAX uses; None without."""
    try:
        import jax
        import pynvml  # type: ignore[import-not-found]

        if jax.devices()[0].platform != "gpu":
            return None
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(jax.devices()[0].id)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        return pynvml, handle
    except Exception:
        return None


def _joules(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3


@functools.cache
def _idle_watts() -> float:
    """Return the mean power of a device that has done nothing for a second: once a process."""
    nvml, handle = _device()
    sleep(1.0)
    seen = []
    for _ in range(10):
        seen.append(float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3)
        sleep(0.05)
    return sum(seen) / len(seen)


def _clock(nvml: Any, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)) * 1e6
    except Exception:
        return 0.0
