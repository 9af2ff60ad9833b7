"""Every way in which people write JAX gives a program for the TPU that was asked for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compiled_programs import spec
from compiled_reports import needs, per_chip
from compiled_ways import N

import roofline_helpers as rh
from roofline import xla
from roofline.network.topology import slice_of
from roofline_helpers.common.checks import BadValue

SCRIPT = Path(__file__).with_name("compiled_ways.py")

WHOLE, PART = 2 * N**3, 2 * N**3 // 4
REDUCED = [["all-reduce", "model", 2]]
SUMMED = [["all-reduce", "data", 2]]
EXPECTED = {
    "set_mesh": {"devices": 4, "matrix": PART},
    "in_shardings": {"devices": 4, "matrix": 2 * PART, "collectives": REDUCED},
    "shard_map_on_a_concrete_mesh": {"devices": 4, "collectives": SUMMED},
    "pmap_over_more_devices_than_here": {
        "devices": 8,
        "matrix": WHOLE,
        "collectives": [["all-reduce", "batch", 8]],
    },
}


@pytest.fixture(scope="module")
def outcomes():
    """What each way gave, in a process that has four devices."""
    needs("v6e")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    around = {**os.environ, **flags, "PYTHONPATH": str(SCRIPT.parents[2])}
    done = subprocess.run([sys.executable, SCRIPT], env=around, capture_output=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_way(name, outcomes):
    outcome = outcomes[name]
    wanted = {"target": "v6e", "tiled": True, **EXPECTED[name]}
    assert {key: outcome[key] for key in wanted} == wanted
    assert outcome["memory"] > 0


def test_names_of_slices():
    assert slice_of("v6e-8") == (rh.chip("v6e"), "2x4")
    assert slice_of("v5litepod-16") == (rh.chip("v5e"), "4x4")
    assert slice_of("tpu7x-8") == (rh.chip("v7x"), "2x2x1")
    assert slice_of("v5p-64") == (rh.chip("v5p"), "2x4x4")
    with pytest.raises(BadValue, match="v6e-7"):
        slice_of("v6e-7")


@per_chip
def test_what_does_not_fit_says_by_how_much_and_the_capacity_is_the_table_s(chip):
    needs(chip)
    capacity = rh.chip(chip).per_device().memory["hbm"].capacity.value
    argument = spec(round(capacity / 2**19), 2**19)  # twice the capacity, and the result
    with pytest.raises(xla.DoesNotFit) as caught:
        xla.analyze(lambda a: a * 2, argument, chip=chip)
    assert caught.value.capacity == pytest.approx(capacity, rel=1e-4)
    assert caught.value.needed == pytest.approx(4 * capacity, rel=0.01)


def test_memory_of_a_program():
    needs("v6e")
    for donated, aliased in ((None, 0), (0, 2 * 1024**2)):
        report = xla.analyze(
            lambda a, b: a + b,
            spec(1024, 1024),
            spec(1024, 1024),
            chip="v6e",
            donate_argnums=donated,
        )
        assert report.memory.arguments == 2 * 2 * 1024**2
        assert report.memory.results == 2 * 1024**2
        assert report.memory.aliased == aliased
