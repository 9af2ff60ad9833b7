"""Conclusions of the chapter limitations: each test would refute one."""

import pytest

import roofline_helpers as rh
from roofline.diagnosis import ladder


def test_a_launch_costs_2_to_6_us_in_a_program_and_35_from_python() -> None:
    """Chapter 8: by a trace, the published matmuls, a profiler, and a clock."""
    [step] = [s.why for s in ladder.committed()["decode"].select(batch=1) if s.rung == "unrolled"]
    floor = rh.chip("h200").floor
    assert floor
    kernels = [row for row in step.rows if row.kind == "kernel"]
    small = [row for row in kernels if row.seconds / row.launches < floor.value]
    gaps = sum(row.seconds for row in step.rows if row.kind == "gap")
    each = (sum(row.seconds for row in small) + gaps) / sum(row.launches for row in small)
    assert 1.9e-6 < each < 2.1e-6
    for key, record in rh.measured.device_records().items():
        chip = rh.chip(key)
        assert chip.floor
        assert chip.dispatch
        assert 2.9e-6 < chip.floor.value < 3.2e-6
        timed = rh.measured.device_records("timed")[key]
        add = timed.sample("add 4×4096 bf16, cold", "jax")
        assert 2 * add.seconds == pytest.approx(chip.floor.value, rel=0.05)
        assert 4e-6 < record.sample("scale in place, looped 64 KiB fp32").seconds < 6e-6
        assert 35e-6 < chip.dispatch.value < 37e-6
