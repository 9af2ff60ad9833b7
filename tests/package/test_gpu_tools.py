"""The GPU tools, as far as a machine without one goes: cases, counts, ncu's table, processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_suite import QUICK, compiled_quickly
from measure_suite import run

from roofline_helpers import measure, work
from tools.gpu import attention, chain, counters, experiments, measure_gpu

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.slow  # kernels are interpreted, processes started
jnp = jax.numpy


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


def test_what_is_counted_is_there() -> None:
    names = {each.name for each in experiments.suite()}
    assert set(experiments.COUNTED) - names == set()
    assert sum(map(experiments.counted, experiments.suite())) >= 15


def chain_arguments(seed: int) -> tuple[Any, ...]:
    """x, γ, β, mask, and residual or dy, for the chain and its gradient."""
    rng = np.random.default_rng(seed)
    x, other = (jnp.asarray(rng.standard_normal((8, 64)), jnp.float32) for _ in range(2))
    gamma, beta = (jnp.asarray(rng.standard_normal(64), jnp.float32) for _ in range(2))
    mask = jnp.asarray(rng.random((8, 64)) > chain.RATE, jnp.float32)
    return x, gamma, beta, mask, other


def test_the_chains_agree() -> None:
    args = chain_arguments(0)
    wanted = chain.op_by_op(*args)
    for each in (chain.one_jit, chain.pallas_chain):
        np.testing.assert_allclose(compiled_quickly(each, *args), wanted, rtol=1e-5, atol=1e-5)


def test_the_gradients_agree() -> None:
    args = chain_arguments(1)
    theirs, ours = (
        compiled_quickly(chain.gradient(each), *args)
        for each in (chain.one_jit, chain.pallas_chain)
    )
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_backward_cases_are_traced_and_one_is_run() -> None:
    """Their results are held against references in the tests of the kernels."""
    cases = [each for each in experiments.suite(True, ["backward"]) if each.fn]
    for each in cases:
        gradients = jax.eval_shape(lambda each=each: each.fn(*each.make()))
        assert len(gradients) == 3, each.name  # by x, γ and β, or by Q, K and V
    assert {each.source for each in cases} == {"jax", "pallas", "cudnn"}
    (naive,) = [each for each in cases if each.name.startswith("naive")]
    (sample,) = run(replace(naive, options={"compiler_options": QUICK})).samples
    assert (sample.error, len(sample.passes)) == (None, 1)


def test_the_backward_cases_are_counted() -> None:
    job = chain.chain_backward_work(65536, 4096)
    assert job.bytes / (2 * 65536 * 4096) == pytest.approx(4, rel=1e-3)
    for causal in (False, True):
        forward = work.flash_attention(2, 2048, heads=16, causal=causal)
        naive, flash = attention.attention_backward_work(2, 16, 2048, 128, causal)
        assert (flash.matrix_flops / forward.matrix_flops, flash.bytes > forward.bytes) == (2.5, 1)
        assert naive.bytes > 7 * 2 * 2 * 16 * 2048**2


def test_several_processes_make_one_record_and_another_run_is_merged_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu.json"
    typed = ["--tiny", "--only", "decode", "--seconds", "0.001", "--no-counters"]
    monkeypatch.setattr("sys.argv", ["x", *typed, "--runs", "2", "--out", str(out)])
    assert measure_gpu.main() == 0
    record = measure.load(out)
    assert [len(each.runs) for each in record.samples] == [2]
    assert record.command.endswith("--runs 2 --out gpu.json")
    assert "2 runs" in capsys.readouterr().out
    monkeypatch.setattr(
        "sys.argv", ["x", *typed[:2], "vector", *typed[3:], "--merge", str(out), "--out", str(out)]
    )
    assert measure_gpu.main() == 0
    merged = measure.load(out)
    assert {each.group: each.date for each in merged.samples}["decode"] == record.date
    assert merged.sample(record.samples[0].name).runs == record.samples[0].runs


def test_an_experiment_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["x", "--only", "decod"])
    with pytest.raises(SystemExit, match="2"):
        measure_gpu.main()
    assert "decode" in capsys.readouterr().err
