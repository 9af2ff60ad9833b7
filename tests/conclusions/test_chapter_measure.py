"""Conclusions of the chapter measure: each test would refute one."""

import roofline_helpers as rh


def test_the_bytes_explain_all_of_the_time_of_a_chain_that_nobody_fused() -> None:
    record = rh.measured.device_records()["h100"]
    slow = record.sample("chain op by op 65536×4096 bf16", "jax")
    needed = rh.fuse(*rh.work.fusion_chain(65536, 4096))
    assert slow.seconds * record.streams["copy"] < 1.05 * slow.dram_bytes
    assert slow.dram_bytes > 13 * needed.bytes
    assert rh.judge(needed, "h100", slow.seconds).verdict == "far off"
