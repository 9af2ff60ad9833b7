"""Joules: the model's identities, and whose joules they are."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import numpy as np
import pytest

from roofline_helpers.device import ladder
from roofline_helpers.device.machine import open_nvml
from roofline_helpers.device.runner import _counter, _joules
from roofline_helpers.roofline import EnergyRoofline, Roofline

ROOF = Roofline(100e12, {"hbm": 1e12})
COST = EnergyRoofline(ROOF, per_flop=2e-12, per_byte=100e-12, idle=50.0)
CAPPED = EnergyRoofline(ROOF, 2e-12, 100e-12, 50.0, limit=200.0)


def test_joules_add_up_where_times_overlap() -> None:
    flops, moved = 100e12, 1e12
    assert COST.seconds(flops, moved) == 1
    assert COST.joules(flops, moved) == pytest.approx(200 + 100 + 50)
    assert COST.joules(flops, moved, 2.0) == pytest.approx(200 + 100 + 100)
    assert COST.joules(0, moved) == pytest.approx(100 + 50)
    assert COST.balance == 50  # FLOP/byte: half the ridge


def test_the_arch_has_no_corner_and_half_its_height_at_the_balance() -> None:
    still = EnergyRoofline(ROOF, 2e-12, 100e-12, idle=0.0)
    most = 1 / still.per_flop
    assert still.flops_per_joule(still.balance) == pytest.approx(most / 2)
    intensity = np.geomspace(0.1, 1e5, 200)
    arch = COST.flops_per_joule(intensity)
    assert (np.diff(arch) > 0).all()
    assert arch[-1] < 1 / (COST.per_flop + COST.idle / ROOF.peak)
    rate = COST.flops_per_second(intensity)
    assert rate == pytest.approx(ROOF.attainable(intensity))
    assert COST.watts(intensity) == pytest.approx(rate / arch)


def test_power_is_most_at_the_ridge_and_the_limit_cuts_it_there() -> None:
    intensity = np.geomspace(1, 1e4, 401)
    watts = COST.watts(intensity)
    assert intensity[watts.argmax()] == pytest.approx(ROOF.ridge, rel=0.03)
    assert COST.watts(ROOF.ridge) == pytest.approx(50 + 200 + 100)
    assert CAPPED.watts(intensity).max() == pytest.approx(200)
    assert CAPPED.flops_per_second(ROOF.ridge) == pytest.approx(50e12)  # 150 W above idle, not 300
    assert CAPPED.flops_per_second(1.0) == ROOF.attainable(1.0)  # far from the ridge it never binds


class Driver:
    """CUDA's driver on a machine with several GPUs, of which it sees some."""

    def __init__(self, seen: list[bytes]) -> None:
        self.seen = seen

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetPCIBusId(self, text: Any, size: int, ordinal: int) -> int:
        if ordinal >= len(self.seen):
            return 101
        text.value = self.seen[ordinal]
        return 0


class Library(types.ModuleType):
    """NVML, which sees all GPUs, by the bus: the second has used twice as many joules."""

    ALL = (b"0000:18:00.0", b"0000:2A:00.0")

    def __init__(self) -> None:
        super().__init__("pynvml")

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByPciBusId(self, address: bytes) -> int:
        return self.ALL.index(address)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return 1000 * (handle + 1)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two GPUs, of which the process sees the second: its number 0."""
    import jax

    gpu = types.SimpleNamespace(platform="gpu", id=0, local_hardware_id=0)
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    monkeypatch.setitem(sys.modules, "pynvml", Library())
    driver = Driver([Library.ALL[1]])
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    open_nvml.cache_clear()
    yield driver
    open_nvml.cache_clear()


def test_the_joules_are_those_of_the_gpu_that_jax_uses(machine: Driver) -> None:
    counter = _counter()
    assert counter is not None
    assert _joules(*counter) == 2.0


def test_no_joules_rather_than_those_of_another_gpu(machine: Driver) -> None:
    machine.seen.clear()
    assert open_nvml() is None
    assert _counter() is None


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
