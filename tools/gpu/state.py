"""The device's state while it is busy."""

from __future__ import annotations

import contextlib
import importlib
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

READS, APART = 6, 0.005
"""How often the clock is read, and seconds from one read to the next."""


def probe() -> Callable[[], Mapping[str, Any]] | None:
    """Return a function that reads clock, power and temperature, if pynvml is here."""
    device = jax.devices()[0]
    # NVML counts all GPUs, CUDA those that it is shown: where some are hidden the numbers differ
    if device.platform != "gpu" or "CUDA_VISIBLE_DEVICES" in os.environ:
        return None
    try:
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(device.local_hardware_id)
    except Exception:  # no library, no driver, no permission: there is nothing to read then
        return None

    def clock(kind: int) -> float:
        return float(pynvml.nvmlDeviceGetClockInfo(handle, kind)) * 1e6

    def look() -> Mapping[str, Any]:
        state: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            seen = []
            for _ in range(READS):
                seen.append(clock(pynvml.NVML_CLOCK_SM))
                time.sleep(APART)
            state["clock"] = statistics.mean(seen)
            state["memory_clock"] = clock(pynvml.NVML_CLOCK_MEM)
            state["power"] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
            state["temperature"] = pynvml.nvmlDeviceGetTemperature(handle, 0)
            state["throttle"] = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return state

    return look
