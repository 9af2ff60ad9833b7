"""Collectives on pretended devices: what is run, counted, kept and refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_suite import QUICK

from roofline_helpers import BadValue, device
from roofline_helpers.device.multi_device import (
    KINDS,
    collective_cases,
    network_bytes,
)

pytest.importorskip("jax")

PROGRAM = """
import json, sys
from roofline_helpers.cli import main
from roofline_helpers.device import (multi_device as devices)

place, out = devices.device_mesh(), {}
for kind in devices.KINDS:
    parts = devices._arrays(kind, 256, "fp32", place, 3)
    program = devices._started(kind, place, *parts)
    out[kind] = [len(parts), program.call.as_text()]
print(json.dumps(out))
typed = ["measure", "--collectives", "--quick", "--out", sys.argv[1]]
typed += ["--only", "all-reduce 64 KiB over 4"]
raise SystemExit(main(typed))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str]:
    out = tmp_path_factory.mktemp("collectives") / "four.json"
    flags = {"xla_force_host_platform_device_count": 4, **QUICK}
    typed = " ".join(f"--{name}={value}".lower() for name, value in flags.items())
    environment = {**os.environ, "XLA_FLAGS": typed, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    first, _, rest = done.stdout.partition("\n")
    return json.loads(first), out, rest


# One process compiles and runs them for all tests that look at what it gave
apart = pytest.mark.slow
by_kind = [pytest.param(kind, marks=apart) for kind in KINDS]


@pytest.mark.parametrize("kind", by_kind)
def test_each_collective_is_in_the_program_as_often_as_asked(ran: Any, kind: str) -> None:
    many, text = ran[0][kind]
    name = "collective-permute" if kind.startswith("permute") else kind
    assert len(re.findall(rf" {name}(?:-start)?\(", text)) == many == 3
    pairs = {"permute": "{0,1},{1,2},{2,3},{3,0}", "permute back": "{0,3},{1,0},{2,1},{3,2}"}
    if kind in pairs:
        assert f"source_target_pairs={{{pairs[kind]}}}" in text


@pytest.mark.slow
def test_the_command_writes_a_record_of_links(ran: Any) -> None:
    _, out, printed = ran
    record = device.load(out)
    assert record.device["count"] == 4
    assert {each.group for each in record.samples} == {"collectives"}
    assert [each.error for each in record.samples if each.error] == []
    assert "times mean nothing" in record.notes[-1]
    assert "link GB/s" in printed
    sample = record.sample("all-reduce 64 KiB over 4")
    assert sample.network == 2 * 2**16 * 3 / 4
    assert sample.link_bandwidth == pytest.approx(sample.network / sample.seconds)


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
def test_what_a_device_sends(kind: str, share: float) -> None:
    assert network_bytes(kind, 1024, 4) == 1024 * share


def test_one_device_is_refused_with_the_way_to_pretend() -> None:
    with pytest.raises(BadValue, match=r"at least 2 devices, got .*force_host_platform"):
        collective_cases(devices=[object()])
