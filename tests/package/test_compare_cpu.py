"""The comparison with STREAM and NumPy: that it counts what they count, and the committed one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roofline_helpers import measure
from roofline_helpers.records import BadRecord
from tools.cpu import compare

pytest.importorskip("jax")
SIZE = 2**16


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return compare.compile_stream(tmp_path_factory.mktemp("stream"))
    except compare.NoCompiler as error:
        pytest.skip(f"STREAM is not compared: {error}")


def test_stream_counts_the_bytes_that_we_count(program: Path) -> None:
    done = subprocess.run([program, str(SIZE), "2"], capture_output=True, text=True, check=True)
    theirs = {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}
    ours = {each.work.name: each.work.bytes for each in measure.memory_cases(SIZE, "fp32")}
    for name, moved in theirs.items():
        assert moved == ours[name.removesuffix("_past_cache")], name
    assert set(theirs) - {"copy_past_cache"} == {"copy", "scale", "add", "triad"}


def test_the_committed_comparison_can_be_read_and_both_agree() -> None:
    comparison = measure.compared()
    assert [run["cores"] for run in comparison["runs"]] == [comparison["host"]["cores"], 1]
    for run in comparison["runs"]:
        memory = run["memory"]
        assert memory["ratio of the best"] == pytest.approx(
            max(memory["jax"].values()) / max(memory["stream"].values())
        )
        assert min(memory["ratio of the best"], run["compute"]["ratio of the best"]) > 0.9
    with pytest.raises(BadRecord, match="nothing"):
        measure.compared("nothing")
