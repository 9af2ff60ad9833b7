"""Traces from elsewhere: real ones of an H200, broken ones, and what they carry along."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import roofline_helpers as rh
from roofline_helpers.device import CannotProfile, Explanation
from roofline_helpers.device.explain import dtypes
from roofline_helpers.device.program import Program
from roofline_helpers.device.trace import programs_dumped, programs_in, read_trace

TRACES = Path(__file__).parent / "data" / "traces"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for file in TRACES.glob("*.gz"):
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return folder


@pytest.fixture(scope="module")
def scan(traces: Path) -> Explanation:
    return rh.explain(traces / "h200-scan.xplane.pb", queue=3)


def test_kernels_of_a_gpu_have_their_line_and_their_roof(scan: Explanation) -> None:
    assert scan.device == "NVIDIA H200"
    first, second = scan.kernels[:2]
    for product in (first, second):
        assert product.launches == 3
        assert product.flops == 3 * 2 * 4096 * 4096 * 14336
        assert product.source.endswith("explain_sample.py:14")
        assert product.scope == "mlp"
    published = 2 * 4096 * 4096 * 14336 * 3 / 989.4e12
    assert first.least == pytest.approx(published, rel=0.01)
    assert first.matmul == (4096, 14336, 4096)
    assert "measured matmuls like 4,096 × 14,336 × 4,096 in bf16" in str(scan)


def test_what_runs_inside_an_asynchronous_fusion_is_found(scan: Explanation) -> None:
    slices = [row for row in scan.rows if row.name.startswith("fusion-start")]
    assert len(slices) == 2
    for row in slices:  # a layer's weights read and written, in each of three turns
        assert row.bytes == 3 * 2 * 4096 * 14336 * 2
    causes = {finding.cause: finding for finding in scan.findings}
    assert set(causes["scan-copy"].kernels) == {row.name for row in slices}
    assert causes["scan-copy"].seconds == pytest.approx(sum(row.seconds for row in slices))


def test_rows_of_a_trace_add_up_to_its_runs(scan: Explanation) -> None:
    assert scan.covered == pytest.approx(scan.wall, rel=0.03)
    assert sum(bar.seconds for bar in scan.waterfall) == pytest.approx(scan.wall, rel=1e-12)


def test_only_programs_that_ran_say_which_peaks_count(traces: Path) -> None:
    trace = read_trace(traces / "h200-scan.xplane.pb")
    ran = {name: each for name, each in programs_in(trace).items() if "stacked" in name}
    text = ran["jit_stacked"].text.replace("bf16", "f32")
    other = {name: Program(text, "gpu") for name in ("jit_other", "jit_other(9)")}
    assert dtypes({**ran, **other}, trace) == ["bf16"]
    assert dtypes({**ran, "jit_stacked": Program(text, "gpu")}, trace) == ["bf16", "fp32"]


def test_a_loop_of_calls_shows_transfers_and_the_host(traces: Path) -> None:
    why = rh.explain(traces / "h200-loop.xplane.pb")
    transfers = {row.name: row.launches for row in why.rows if row.kind == "transfer"}
    assert transfers == {"MemcpyH2D": 1, "MemcpyD2H": pytest.approx(1)}
    assert why.findings[0].cause == "host"
    assert why.findings[0].seconds > 0.9 * why.wall
    named = {row.program.split("(")[0] for row in why.rows if row.known}
    assert {"jit_stage", "jit__lambda", "jit_convert_element_type"} <= named


def test_a_call_of_a_library_has_a_bound_by_its_bytes(traces: Path) -> None:
    why = rh.explain(traces / "h200-cudnn.xplane.pb", queue=3)
    attention = next(row for row in why.rows if row.role.startswith("cuDNN attention"))
    assert attention.flops is None
    assert attention.reachable is not None
    assert attention.reachable == pytest.approx(
        attention.bytes / why.roofline().bandwidth, rel=0.01
    )


def test_programs_are_read_from_a_dump_too(traces: Path, tmp_path: Path) -> None:
    trace = read_trace(traces / "h200-scan.xplane.pb")
    carried = programs_in(trace)
    name = max(carried, key=lambda n: len(carried[n].text) if "stacked(" in n else 0)
    (tmp_path / "m.sm_9.0a_gpu_after_optimizations.txt").write_text(carried[name].text)
    assert list(programs_dumped(tmp_path, "gpu")) == ["jit_stacked"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "no such file or folder"), (b"", "no event of a device"), (b"\xff" * 100, "no trace")],
)
def test_what_is_no_trace_says_so(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "x.xplane.pb"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CannotProfile, match=reason):
        rh.explain(file)
