"""The GPU tools, as far as a machine without one goes: cases, counts, ncu's table, processes."""

from __future__ import annotations

import pytest

from roofline_helpers import work
from tools.gpu import attention, chain, counters, experiments

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.slow  # kernels are interpreted, processes started


def test_ncu_s_table_is_read() -> None:
    lines = ["==PROF== Connected", '"ID","Process ID","Kernel Name","Metric Name","Metric Value"']
    number = 0

    def launch(kernel: str, read: float, written: float) -> None:
        nonlocal number
        values = (read, written, 1000.0)
        for metric, value in zip(counters.METRICS, values, strict=True):
            lines.append(f'"{number}","1","{kernel}","{metric}","{value:,.0f}"')
        number += 1

    for name, kernels in (("a", 1), ("b", 2), ("odd", 1)):
        launch("spin_kernel(long)", 5, 5)
        for turn in range(counters.LAUNCHES + (name == "odd")):
            for _ in range(kernels):
                launch(f"{name}<float, 4>", (9e9 if turn < 2 else 1e6) + 1e5 * turn, 2e6)
    ran = [("a", "jax"), ("b", "torch"), ("odd", "jax")]
    parsed = counters.parse("\n".join(lines), ran)
    assert set(parsed) == {("a", "jax"), ("b", "torch")}
    assert parsed["a", "jax"]["dram_read"] == 1.3e6  # the median of turns 2, 3 and 4
    assert parsed["b", "torch"]["dram_read"] == 2.6e6
    assert parsed["b", "torch"]["dram_written"] == 4e6
    assert parsed["b", "torch"]["kernels"] == 2
    assert parsed["a", "jax"]["seconds"] == 1e-6
    assert counters.parse("==ERROR== no permission", ran) == {}


def test_cases_are_told_apart_and_every_experiment_has_some() -> None:
    cases = experiments.suite()
    keys = [each.key for each in cases]
    assert len(set(keys)) == len(keys)
    assert {each.group for each in cases} == set(experiments.GROUPS)
    assert [each.key for each in experiments.suite(only=["gather"])] == [
        each.key for each in cases if each.group == "gather"
    ]
    chains = {each.name.split()[1]: each.work.bytes for each in cases if each.group == "chain"}
    assert chains["four"] / chains["one"] == pytest.approx(2.5, rel=1e-3)


def test_the_backward_cases_are_counted() -> None:
    job = chain.chain_backward_work(65536, 4096)
    assert job.bytes / (2 * 65536 * 4096) == pytest.approx(4, rel=1e-3)
    for causal in (False, True):
        forward = work.flash_attention(2, 2048, heads=16, causal=causal)
        naive, flash = attention.attention_backward_work(2, 16, 2048, 128, causal)
        assert (flash.matrix_flops / forward.matrix_flops, flash.bytes > forward.bytes) == (2.5, 1)
        assert naive.bytes > 7 * 2 * 2 * 16 * 2048**2
