"""The capacity of each TPU is what its compiler lets a program take, asked with one too large."""

from __future__ import annotations

import re

import pytest

import roofline_helpers as rh

jax = pytest.importorskip("jax")

from roofline.xla import can_compile  # noqa: E402
from roofline.xla.targets import all_devices, layout_for  # noqa: E402


@pytest.mark.parametrize("key", ["v4", "v5e", "v5p", "v6e", "v7x"])
def test_the_compiler_s_limit_is_the_capacity(key: str) -> None:
    chip = rh.chip(key)
    why = can_compile(chip)
    if why:
        pytest.skip(f"the capacity of {chip.name} was NOT held against the compiler: {why}")
    from jax.sharding import SingleDeviceSharding

    device = chip.per_device()
    columns = 65536
    rows = int(1.3 * device.memory["hbm"].capacity.value) // (4 * columns)
    sharding = SingleDeviceSharding(all_devices(chip, layout_for(chip, 1))[0])
    x = jax.ShapeDtypeStruct((rows, columns), "float32", sharding=sharding)
    with pytest.raises(Exception, match="exceeds available HBM") as error:
        jax.jit(lambda x: x + 1).lower(x).compile()
    [gib] = re.findall(r"exceeds available HBM \(([\d.]+)G\)", str(error.value))
    assert device.memory["hbm"].capacity.value == pytest.approx(float(gib) * 2**30, rel=1e-4)
