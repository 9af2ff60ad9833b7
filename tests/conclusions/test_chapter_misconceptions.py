"""Conclusions of the chapter misconceptions: each test would refute one."""

import roofline_helpers as rh


def test_what_is_faster_than_an_h100_s_roof_fits_into_its_cache():
    rows = rh.measured.table("matmul").query("chip == 'h100' and dtype == 'bf16'")
    job = rh.work.matmul(*(rows[side].to_numpy() for side in "mnk"))
    h100 = rh.chip("h100")
    faster = h100.roofline("bf16").without_floor().time(job) > rows["seconds"]
    assert faster.sum() == 38
    assert job.bytes[faster].max() < h100.memory["l2"].capacity.value
