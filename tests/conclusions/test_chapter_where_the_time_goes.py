"""Conclusions of the chapter where-the-time-goes: each test would refute one."""

import roofline_helpers as rh
from roofline.diagnosis import ladder


def test_no_matmul_beats_the_pipe_at_the_clock_that_power_allowed() -> None:
    """The peak at the SMs' counted clock is the roof of chapter 12's training step."""
    step = next(s for s in ladder.committed()["training"].steps if s.rung == "cuDNN")
    healthy, chip = step.why, rh.chip("h200")
    assert healthy is not None
    assert chip.clock
    allowed = step.setting["clock"] / chip.clock.value
    products = [r for r in healthy.kernels if r.matrix_flops and "attention" not in r.title]
    rates = [row.matrix_flops / row.seconds for row in products]
    assert 0.9 < max(rates) / (allowed * healthy.roofs.published["bf16"]) < 1
    # two bars of its waterfall: the slowest kernel, and twice that, ceilings as reached
    published = healthy.roofs.published["bf16"]
    missed, lower = {}, 0.0
    for row in healthy.kernels:
        reached = row.matrix_flops / (allowed * published) or row.reachable
        if reached:
            missed[row.title] = row.seconds - reached
            lower += reached - (row.matrix_flops / published or row.least)
    assert max(missed, key=missed.__getitem__) == "cuDNN attention of attend (backward)"
    assert lower > 2 * max(missed.values())
    record = rh.measured.device_records()["h200"]
    for one in record.group("clocks"):
        if one.name.startswith("matmul") and one.dtype in ("bf16", "fp16"):
            peak = chip.peak(one.dtype).value * one.state["clock"] / chip.clock.value
            assert one.rate < peak
            assert one.state["clock"] < step.setting["clock"] or "8192×8192×8192" not in one.name
            assert one.state["clock, NVML"] >= 0.995 * one.state["clock"]
