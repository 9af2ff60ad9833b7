"""Reports as text, as HTML, as a table."""

from __future__ import annotations

import pytest
from compiled_reports import report_of


def test_text_and_table() -> None:
    report = report_of("layernorm", "v6e")
    text = str(report)
    assert text.startswith(
        "layernorm(bf16[4096,4096], bf16[4096], bf16[4096]) compiled for TPU v6e"
    )
    for part in ("HBM", "bound by memory", "compiler's cycles", "clock", "cost_analysis"):
        assert part in text
    assert "\n  role " in text  # XLA's "fusion.33" tells a reader nothing
    frame = report.table()
    assert len(frame) == len(report.kernels)
    assert frame["read MB"].sum() == pytest.approx(report.read_bytes / 1e6)
    page = report._repr_html_()
    assert page.count("<table") == 2
    assert "&lt;" not in page.replace("&lt;lambda", "")
    assert "None" not in text + page


def test_unknown_flops_are_unknown() -> None:
    report = report_of("attention", "v6e")
    kernel = report.kernels[-1]  # libtpu's own kernel, of which nothing was traced
    assert (kernel.flops, kernel.intensity, kernel.bound) == (None, None, None)
    assert report.unknown == (kernel.name,)
    assert "unknown" in str(report)
    assert "at least" in str(report)
