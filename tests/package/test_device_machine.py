"""What the machine is said to be: caches and free memory of devices that are not here."""

from __future__ import annotations

from typing import Any

import pytest

import roofline_helpers as rh
from roofline_helpers.device.machine import last_cache

jax = pytest.importorskip("jax")


class Device:
    """A device as JAX shows it."""

    def __init__(self, platform: str, kind: str, stats: Any = None) -> None:
        self.platform, self.device_kind, self.stats = platform, kind, stats

    def memory_stats(self) -> Any:
        if self.stats is None:
            raise NotImplementedError("no statistics")
        return self.stats


def test_the_last_cache_is_the_chip_table_s(monkeypatch: pytest.MonkeyPatch) -> None:
    v5e = rh.chip("v5e").memory["vmem"].capacity.value
    for device, size in (
        (Device("gpu", "NVIDIA H100 80GB HBM3"), rh.chip("h100").memory["l2"].capacity.value),
        (Device("tpu", "TPU v5 lite"), v5e),
        (Device("gpu", "Unheard-of 9000"), 128 * 2**20),
    ):
        monkeypatch.setattr(jax, "devices", lambda device=device: [device])
        assert last_cache() == size, device.device_kind
