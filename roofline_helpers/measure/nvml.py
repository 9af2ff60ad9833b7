"""NVIDIA's management library, NVML, for the GPU that JAX uses and no other.

NVML numbers all GPUs of a machine in the order of their bus addresses. CUDA numbers those that
``CUDA_VISIBLE_DEVICES`` leaves, in an order that ``CUDA_DEVICE_ORDER`` sets. The same number may
mean different GPUs, so they are matched by bus address, which CUDA's driver is asked for.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any


@functools.cache
def opened() -> tuple[Any, Any] | None:
    """Return `pynvml` and its handle of the GPU that JAX uses.

    Returns
    -------
    tuple or None
        None without such a GPU, without pynvml or the driver, and where the GPU can't be told.
    """
    try:
        import jax

        device = jax.devices()[0]
        if device.platform != "gpu":
            return None
        address = bus_address(ctypes.CDLL("libcuda.so.1"), device.local_hardware_id)
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(address)
    except Exception:  # no library, no driver, no permission: there is nothing to read then
        return None


def bus_address(driver: Any, ordinal: int) -> bytes:
    """Return the bus address of a GPU by its number among those that CUDA sees here.

    Parameters
    ----------
    driver : ctypes.CDLL
        CUDA's driver.
    ordinal : int
        CUDA's number, JAX's ``local_hardware_id``.

    Raises
    ------
    OSError
        The driver refuses.
    """
    text = ctypes.create_string_buffer(32)
    for failed in (
        driver.cuInit(0),
        driver.cuDeviceGetPCIBusId(text, len(text), ordinal),
    ):
        if failed:
            raise OSError(f"CUDA's driver doesn't tell GPU {ordinal}'s bus address: error {failed}")
    return text.value
