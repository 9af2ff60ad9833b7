"""Collectives and spread layers on pretended devices: what is run, counted, kept and refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_suite import QUICK

from roofline_helpers import BadValue, device
from roofline_helpers.device.multi_device import (
    KINDS,
    collective_cases,
    mlp_layer,
    network_bytes,
    ways,
    work_of,
)

pytest.importorskip("jax")

PROGRAM = """
import json, re, sys
import jax, numpy as np
from roofline_helpers import models
from roofline_helpers.cli import main
from roofline_helpers.device import (multi_device as devices)

place, out = devices.device_mesh(), {}
for kind in devices.KINDS:
    parts = devices._arrays(kind, 256, "fp32", place, 3)
    program = devices._started(kind, place, *parts)
    out[kind] = [len(parts), program.compiled.as_text()]
small = models.Decoder("Small", 1, 16, 4, 4, 4, 32, 64)
for case in devices.layer_cases((devices.decoder_layer(small, 4, 6),), dtype="fp32"):
    if re.search("tensor-parallel, |both, arithmetic|FSDP, exchanges", case.name):
        continue  # others of the kind are looked at
    program = case.start(*case.make())
    program.launch(1)
    program.wait()
    values = [np.asarray(each).tolist() for each in jax.tree.leaves(program.result)]
    out[case.name] = [values, program.compiled.as_text()]
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


LAYER = "Small layer 4×6, "


@pytest.mark.slow
def test_a_layer_cut_in_any_way_is_the_layer(ran: Any) -> None:
    made = {
        way: ran[0][f"{LAYER}{way} over 4"][0][0] for way in ("tensor-parallel", "FSDP", "both")
    }
    first = np.array(made.pop("FSDP"))
    assert first.shape == (4, 6, 16)
    for each in made.values():
        assert np.array(each) == pytest.approx(first, rel=1e-4, abs=1e-4)
    alone = np.array(ran[0][f"{LAYER}FSDP, arithmetic alone over 4"][0][0])
    assert alone == pytest.approx(first[:1], rel=1e-4, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "gathers", "sums"),
    [
        ("tensor-parallel", 0, 2),
        ("FSDP", 7, 0),
        ("FSDP, arithmetic alone", 0, 0),
        ("both", 7, 2),
        ("both, exchanges alone", 7, 2),
    ],
)
def test_a_layers_exchanges(ran: Any, variant: str, gathers: int, sums: int) -> None:
    text = ran[0][f"{LAYER}{variant} over 4"][1]
    assert len(re.findall(r" all-gather\(", text)) == gathers
    assert len(re.findall(r" all-reduce\(", text)) == sums
    if variant == "both":
        assert re.search(r"all-gather\(.*replica_groups=(\{\{0,2\}|\[2,2\]<=\[2,2\]T)", text)
        assert re.search(r"all-reduce\(.*replica_groups=(\{\{0,1\}|\[2,2\]<=\[4\])", text)


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


def test_what_a_cut_layer_computes_and_sends() -> None:
    mlp, cut = mlp_layer(64, 128, 256), ways(4)
    parallel = work_of(mlp, cut["tensor-parallel"])
    sharded = work_of(mlp, cut["FSDP"])
    assert parallel.flops == sharded.flops == 4 * 64 * 128 * 256 / 4
    assert parallel.others["network"] == 2 * 2 * 64 * 128 * 3 / 4  # an all-reduce of y
    assert sharded.others["network"] == 2 * 2 * 128 * 256 * 3 / 4  # both matrices gathered
    both = work_of(mlp, cut["both"])
    assert both.others["network"] == 2 * 2 * 128 * 128 / 2 + 2 * 2 * 32 * 128 / 2
    assert both.bytes == 2 * (2 * 32 * 128 + 2 * 128 * 128)
    assert work_of(mlp, cut["FSDP"], "arithmetic alone").others == {}
    alone = work_of(mlp, cut["FSDP"], "exchanges alone")
    assert (alone.flops, alone.others) == (0, sharded.others)


def test_one_device_is_refused_with_the_way_to_pretend() -> None:
    with pytest.raises(BadValue, match=r"at least 2 devices, got .*force_host_platform"):
        collective_cases(devices=[object()])
