"""Reports as text, as HTML, as a table."""

from __future__ import annotations

import jax
import pytest
from compiled_programs import spec
from compiled_reports import report_of

from roofline import terminal, xla


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
