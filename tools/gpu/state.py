"""The device's state while it is busy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from roofline_helpers.measure import nvml


def probe() -> Callable[[], Mapping[str, Any]] | None:
    """Return a function that reads clock, power and temperature, if pynvml is here."""
    there = nvml.opened()
    if there is None:
        return None
    pynvml, handle = there

    def look() -> Mapping[str, Any]:
        state: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            state["clock"] = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) * 1e6
            state["memory_clock"] = (
                pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM) * 1e6
            )
            state["power"] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
            state["temperature"] = pynvml.nvmlDeviceGetTemperature(handle, 0)
            state["throttle"] = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return state

    return look
