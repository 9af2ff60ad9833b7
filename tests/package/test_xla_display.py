"""Reports as text, as HTML, as a table."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import pytest
from compiled_programs import spec
from compiled_reports import report_of
from kept_records import kept_report

from roofline import xla
from roofline.xla import Flops, Row
from roofline.xla.causes import Finding
from roofline.xla.display import _range, answer, first_change, tables


@pytest.mark.parametrize(
    ("name", "devices", "reason"),
    [
        ("dot", 4, "4 devices do some of the same"),
        ("dot", 1, "done twice, or on zeros that the compiler adds (padding, groups"),
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


@pytest.mark.parametrize(
    ("lost", "left"), [(0.3e-3, "700 µs"), (0.7e-3, "600 µs"), (0.03e-3, None)]
)
def test_a_change_leaves_what_the_result_needs(lost: float, left: str | None) -> None:
    """Of 1 ms, 0.6 are needed; and what gains 3% is told without its gain."""
    found = Finding("zeros", lost, ("dot",), "half is zero", share=0.8, known=True)
    *_, remedy = first_change([found], 1e-3, 0.6e-3)
    assert remedy.endswith(f"Without it {left} are left of 1 ms.") is (left is not None)
    assert first_change([replace(found, share=0.04)], 1e-3, 0.6e-3) == [] or lost > 0.05e-3


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [
        (1e9, 1.01e9, "1 GB"),
        (1e9, 1.02e9, "1 GB to 1.02 GB"),
        (2e9, 1e9, "1 GB to 2 GB"),
        (1e9, math.inf, "at least 1 GB"),
    ],
)
def test_a_count_is_one_number_or_a_range(least: float, most: float, text: str) -> None:
    assert _range(least, most, "B") == text


def test_a_small_part_of_long_kernels_isnt_told_as_all_of_them() -> None:
    found = Finding("large-between", 0.1e-3, ("product",), "43 MB are written", share=0.96)
    assert first_change([found], 1e-3, 0.0)[0].endswith(", which costs 10% of the time.")
    most = first_change([replace(found, seconds=0.5e-3)], 1e-3, 0.0)[0]
    assert most.endswith(", in kernels that take 96% of the time.")


def test_the_kernel_to_look_at_first_is_furthest_above_its_roof() -> None:
    """One of 1 ms by its bytes, and one of 0.8 ms, by its cycles, that moves next to nothing."""
    second = Row("slow", "fusion", role="gather", read={"hbm": 10_000}, cycles=1_400_000)
    long = Row("long", "fusion", role="copy", read={"hbm": 1_600_000_000})
    report = replace(kept_report("ledger-matmul", "v6e"), rows=(long, second), findings=())
    assert report.likely[0].known > report.likely[1].known > 0.7e-3
    assert answer(report)[1].startswith("Look first at gather: ")
    # and its launches, the bound of a roof near nothing, aren't the answer: they take 3.2 µs
    report = replace(report, rows=(second, replace(second, name="short", cycles=None)))
    assert "latency" in report.bounds
    assert answer(report)[1].startswith("Look first at gather: ")


@pytest.mark.parametrize(
    ("kernels", "rest"),
    [
        (12, [""]),
        (13, ["… and 1 cheaper kernel"]),
        (14, ["… and 2 cheaper kernels"]),
        (24, ["", "… and 12 cheaper kernels"]),  # its groups come first
        (25, ["… and 1 cheaper group", "… and 13 cheaper kernels"]),
    ],
)
def test_a_table_says_how_many_rows_it_leaves_out(kernels: int, rest: list[str]) -> None:
    rows = tuple(
        Row(f"k{n}", "fusion", op_name=f"jit(f)/s{n}/add", read={"hbm": 1 + n})
        for n in range(kernels)
    )
    report = replace(kept_report("ledger-matmul", "v6e"), rows=rows, findings=())
    assert [below for _, _, below in tables(report)] == rest
