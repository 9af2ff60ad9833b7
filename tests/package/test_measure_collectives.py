"""Collectives and spread layers on pretended devices: what is run, counted, kept and refused."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_suite import QUICK

from roofline import measure
from roofline.measure import multi_device
from roofline.measure.multi_device import CannotRun, collective_cases, network_bytes
from roofline_helpers import BadValue


@pytest.mark.slow
def test_the_command_writes_a_record_of_links(tmp_path):
    flags = {"xla_force_host_platform_device_count": 4, **QUICK}
    typed = " ".join(f"--{name}={value}".lower() for name, value in flags.items())
    environment = {**os.environ, "XLA_FLAGS": typed, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "roofline", "measure", "--collectives", "--quick"]
    command += ["--only", "all-reduce 64 KiB over 4", "--out", str(tmp_path / "four.json")]
    subprocess.run(command, env=environment, check=True)
    record = measure.load(tmp_path / "four.json")
    assert record.device["count"] == 4
    sample = record.sample("all-reduce 64 KiB over 4")
    assert sample.error is None
    assert sample.network == 2 * 2**16 * 3 / 4
    shown = float(record.table()["link GB/s"].iloc[0])
    assert shown == pytest.approx(sample.network / sample.seconds / 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("all-gather", 3 / 4),
        ("reduce-scatter", 3 / 4),
        ("all-reduce", 3 / 2),
        ("all-to-all", 3 / 16),
        ("permute", 1 / 4),
    ],
)
def test_what_a_device_sends(kind, share):
    assert network_bytes(kind, 1024, 4) == 1024 * share


@pytest.mark.parametrize(("left", "refused"), [(0, True), (1, True), (2, False), (3, True)])
def test_a_time_of_collectives_that_xla_combined_is_refused(monkeypatch, left, refused):
    """Of two, as in the text of the program that is timed: others are its operands."""
    line = "  %a = f32[8] all-reduce-start(%x), calls=%all-reduce\n"
    call = SimpleNamespace(as_text=lambda: left * line)
    monkeypatch.setattr(multi_device, "lower", lambda *_: None)
    monkeypatch.setattr(multi_device, "executable_of", lambda *_: call)
    monkeypatch.setattr(multi_device, "chain", lambda *_: lambda x: x)
    if refused:
        with pytest.raises(CannotRun, match=f"{left} of 2 all-reduces are left"):
            multi_device._program("all-reduce", None, 1, 2)
    else:
        assert multi_device._program("all-reduce", None, 1, 2).call is call


def test_one_device_is_refused_with_the_way_to_pretend():
    with pytest.raises(BadValue, match="force_host_platform"):
        collective_cases(devices=[object()])


@pytest.mark.parametrize(("count", "kinds"), [(2, 5), (4, 6)])
def test_cases_of_links(monkeypatch, count, kinds):
    mesh = SimpleNamespace(devices=np.arange(count))
    monkeypatch.setattr(multi_device, "device_mesh", lambda devices=None: mesh)
    small, middle, large = (collective_cases([size])[0] for size in (2**10, 2**25, 2**28))
    assert len(collective_cases([2**10])) == kinds  # of two devices both ways are one
    assert [case.name for case in (small, middle, large)] == [
        f"all-gather {size} over {count}" for size in ("1 KiB", "32 MiB", "256 MiB")
    ]
    assert [case.loops for case in (small, middle, large)] == [32, 8, 4]
    assert middle.needs == 3 * 8 * 2**25
    assert dict(middle.work.reads) == {"part": 2**25 / count}
    assert middle.work.others["network"] == 2**25 * (count - 1) / count


def test_cases_are_over_all_devices_and_halves_of_them(monkeypatch):
    mesh = SimpleNamespace(devices=np.arange(7))
    monkeypatch.setattr(multi_device, "device_mesh", lambda: mesh)
    over = []

    def listed(sizes, devices):
        over.append((sizes, len(devices)))
        return []

    monkeypatch.setattr(multi_device, "collective_cases", listed)
    for quick in (False, True):
        multi_device.multi_device_cases(quick)
    powers = tuple(4**n for n in range(5, 16))  # 1 KiB to 1 GiB
    assert over == [(s, n) for s in (powers, (2**10, 2**16, 2**20)) for n in (7, 3)]
