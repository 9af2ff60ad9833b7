"""Collectives and spread layers on pretended devices: what is run, counted, kept and refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofline_helpers import BadValue, measure
from roofline_helpers.measure import collectives, spread

pytest.importorskip("jax")

PROGRAM = """
import json, re, sys
import jax, numpy as np
from roofline_helpers.measure import collectives, command, spread

place, out = collectives.mesh(), {}
for kind in collectives.KINDS:
    parts = collectives._arrays(kind, 256, "fp32", place, 3)
    program = collectives._started(kind, place, *parts)
    out[kind] = [len(parts), program.compiled.as_text()]
for case in spread.cases((8,), width=16, hidden=32, dtype="fp32"):
    program = case.start(*case.make())
    program.launch(1)
    program.wait()
    out[case.name] = np.asarray(program.result).tolist()
print(json.dumps(out))
typed = ["measure", "--collectives", "--quick", "--out", sys.argv[1]]
raise SystemExit(command.main(typed))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str]:
    out = tmp_path_factory.mktemp("collectives") / "four.json"
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    first, _, rest = done.stdout.partition("\n")
    return json.loads(first), out, rest


# One process compiles and runs them for all tests that look at what it gave
apart = [pytest.mark.slow, pytest.mark.xdist_group("collectives")]
by_kind = [pytest.param(kind, marks=apart) for kind in collectives.KINDS]


@pytest.mark.parametrize("kind", by_kind)
def test_each_collective_is_in_the_program_as_often_as_asked(ran: Any, kind: str) -> None:
    many, text = ran[0][kind]
    name = "collective-permute" if kind.startswith("permute") else kind
    assert len(re.findall(rf" {name}(?:-start)?\(", text)) == many == 3
    pairs = {"permute": "{0,1},{1,2},{2,3},{3,0}", "permute back": "{0,3},{1,0},{2,1},{3,2}"}
    if kind in pairs:
        assert f"source_target_pairs={{{pairs[kind]}}}" in text


@pytest.mark.slow
@pytest.mark.xdist_group("collectives")
def test_a_layer_spread_is_the_layer(ran: Any) -> None:
    found = {name: made for name, made in ran[0].items() if name.startswith("MLP")}
    whole = [made for name, made in found.items() if "alone" not in name]
    assert len(found) == 4
    assert len(whole) == 2
    for row, other in zip(*whole, strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.xdist_group("collectives")
def test_the_command_writes_a_record_of_links(ran: Any) -> None:
    _, out, said = ran
    record = measure.load(out)
    assert record.device["count"] == 4
    assert {each.group for each in record.samples} == {"collectives", "spread"}
    assert [each.error for each in record.samples if each.error] == []
    assert "times mean nothing" in record.notes[-1]
    assert "link GB/s" in said
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
    assert collectives.network_bytes(kind, 1024, 4) == 1024 * share


def test_what_a_spread_layer_computes_and_sends() -> None:
    parallel = spread._work("tensor-parallel", 64, 128, 256, 4, alone=False)
    sharded = spread._work("FSDP", 64, 128, 256, 4, alone=False)
    assert parallel.flops == sharded.flops == 4 * 64 * 128 * 256 / 4
    assert parallel.others["network"] == 2 * 2 * 64 * 128 * 3 / 4  # an all-reduce of y
    assert sharded.others["network"] == 2 * 2 * 128 * 256 * 3 / 4  # both matrices gathered
    assert spread._work("FSDP", 64, 128, 256, 4, alone=True).others == {}


def test_one_device_is_refused_with_the_way_to_pretend() -> None:
    with pytest.raises(BadValue, match=r"at least 2 devices, got .*force_host_platform"):
        collectives.cases(devices=[object()])
