"""Conclusions of the chapter fusion: each test would refute one."""

import roofline_helpers as rh


def test_the_next_matmul_adds_little_where_the_bytes_are_weights():
    up = rh.work.matmul(256, 16_384, 4096, names=("x", "W", "u"))
    act = rh.fuse(up, rh.work.gelu(256 * 16_384, x="u", y="h"))
    down = rh.work.matmul(256, 4096, 16_384, names=("h", "V", "y"))
    roof = rh.chip("h100").roofline("bf16")
    assert roof.time(act, down) / roof.time(rh.fuse(act, down)) < 1.07
