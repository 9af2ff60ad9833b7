"""Collectives and spread layers on pretended devices: what is run, counted, kept and refused."""

import os
import subprocess
import sys

import pytest
from kernel_suite import QUICK

from roofline import measure
from roofline.measure.multi_device import collective_cases, network_bytes
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


def test_one_device_is_refused_with_the_way_to_pretend():
    with pytest.raises(BadValue, match="force_host_platform"):
        collective_cases(devices=[object()])
