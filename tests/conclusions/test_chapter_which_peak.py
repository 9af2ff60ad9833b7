"""Conclusions of the chapter which-peak: each test would refute one."""

import re

from conclusions import prose

import roofline_helpers as rh
from roofline.diagnosis import ladder
from tools import books

RECORDS = rh.measured.device_records()


def test_quoted_fp8_programs_are_the_compilers():
    compiled_text = (books.ROOT / "roofline_helpers/data/measured/fp8.hlo.txt").read_text("utf-8")
    for part in (
        "%wrapped_transpose = f8e4m3fn[8192,8192]{0,1} fusion(%bitcast.7.0), kind=kLoop",
        "custom-call(%args_0_.1, %wrapped_transpose, %constant, %constant)",
        'custom_call_target="__cublas$lt$matmul$f8"',
    ):
        assert part in compiled_text
        assert part in prose("which-peak")


def test_power_cuts_off_the_corner_of_the_roofline():
    """The lowest clock is near the ridge, in JAX's matmuls and in PyTorch's."""
    name = re.compile(r"matmul .* bf16, clock counted")
    for source in ("jax", "torch"):
        counted = [s for s in RECORDS["h200"].samples if s.source == source]
        clocks = {s.name: (s.state or {})["clock"] for s in counted if name.fullmatch(s.name)}
        assert min(clocks, key=clocks.__getitem__).startswith("matmul 192×")


def test_steps_lie_above_the_long_run():
    for step in ladder.committed()["train-step"].steps:
        if step.why and step.rung != "fp8":
            rows = [row for row in step.why.kernels if "cuBLAS" in row.title]
            rate = sum(row.matrix_flops for row in rows) / sum(row.seconds for row in rows)
            assert 1 < rate / RECORDS["h200"].peaks["bf16"] < 1.12, step.rung
