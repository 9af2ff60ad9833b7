"""Reports as text, as HTML, as a table."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest
from compiled_programs import spec
from compiled_reports import report_of
from kept_records import kept_report

from roofline import terminal, xla
from roofline.xla import Flops, Row


def test_text_and_table() -> None:
    report = report_of("layernorm", "v6e")
    text = report.describe()
    assert text.startswith("layernorm, compiled for TPU v6e\n")
    assert "bf16[4096,4096], bf16[4096], bf16[4096]" in text
    for part in ("HBM", "needed  ", "compiled  ", "compiler's cycles", "clock", "cost_analysis"):
        assert part in text
    assert "\nrole " in text  # XLA's "fusion.33" tells a reader nothing
    frame = report.table()
    assert len(frame) == len(report.kernels)
    assert frame["read MB"].sum() == pytest.approx(report.read_bytes / 1e6)
    page = report._repr_html_()
    assert page.count("<table") == 1
    assert page.count("<dl>") == 1
    assert "&lt;" not in page.replace("&lt;lambda", "").replace("&lt;0.0001", "")
    assert "None" not in text + page


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


def test_no_word_breaks_at_80_columns_and_the_kernel_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of("layernorm", "v6e")
    words = report.describe().split()
    monkeypatch.setattr(terminal, "WIDE", 80)
    text = report.describe()
    assert set(text.split()) <= set(words)
    assert max(map(len, text.splitlines())) <= 80
    assert {kernel.name for kernel in report.kernels} <= set(text.split())
