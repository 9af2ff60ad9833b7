"""Reports as text, as HTML, as a table."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest
from compiled_programs import spec
from compiled_reports import report_of
from kept_records import kept_report

from roofline import xla
from roofline.xla import Flops, Row


@pytest.mark.parametrize(
    ("name", "devices", "reason"),
    [
        ("dot", 4, "4 devices do some of the same"),
        ("dot", 1, "done twice, or on zeros"),
        ("dot.remat2", 4, "the compiler computes 200 FLOP again"),
    ],
)
def test_more_matmuls_than_asked_for_have_their_true_reason(
    name: str, devices: int, reason: str
) -> None:
    """What `jax.checkpoint` computes again was asked for, so it is never the reason."""
    again = "jit(f)/jit(main)/rematted_computation/dot_general"
    row = Row(name, "dot", op_name=again, flops=Flops(matrix=200))
    report = replace(kept_report("ledger-matmul", "v6e"), rows=(row,), devices=devices)
    report = replace(report, requested_flops=100.0 * devices)
    assert row.step == "recomputed"
    told = " ".join(report.describe().split())
    assert f"2.00 times the 100 FLOP of matmuls asked for: {reason}" in told


def test_unknown_flops_are_unknown() -> None:
    report = report_of("attention", "v6e")
    kernel = report.kernels[-1]  # libtpu's own kernel, of which nothing was traced
    assert (kernel.flops, kernel.intensity, kernel.bound) == (None, None, None)
    assert report.unknown == (kernel.name,)
    assert "at least" in report.describe()
    picked = xla.analyze(lambda x: jax.lax.top_k(x, 8), spec(128, 8192), chip="v6e")
    assert (picked.bounds, picked.unknown) == ((), ("custom-call",))  # its bytes are in VMEM
