"""The comparison with STREAM and NumPy: that it counts what they count, and the committed one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roofline_helpers import device
from roofline_helpers.common.records import BadRecord
from tools.evidence import stream

pytest.importorskip("jax")
SIZE = 2**16


def test_stream_counts_the_bytes_that_we_count(tmp_path: Path) -> None:
    try:
        program = stream.compile_stream(tmp_path)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"STREAM is not compared, it does not compile here: {error}")
    theirs = stream.stream(program, SIZE, 2)
    ours = {case.work.name: case.work.bytes for case in device.workloads.memory_cases(SIZE, "fp32")}
    for name, (moved, _) in theirs.items():
        assert moved == ours[name.removesuffix("_past_cache")], name
    assert set(theirs) - {"copy_past_cache"} == {"copy", "scale", "add", "triad"}


def test_the_committed_comparison_can_be_read_and_both_agree() -> None:
    comparison = device.compared()
    assert [run["cores"] for run in comparison["runs"]] == [comparison["host"]["cores"], 1]
    for run in comparison["runs"]:
        memory = run["memory"]
        assert memory["ratio of the best"] == pytest.approx(
            max(memory["jax"].values()) / max(memory["stream"].values())
        )
        assert min(memory["ratio of the best"], run["compute"]["ratio of the best"]) > 0.9
    with pytest.raises(BadRecord, match="nothing"):
        device.compared("nothing")
