"""MFU: the FLOPs of a token against what pages print, the peak, published runs, what can't be."""

import json
from statistics import median

import pytest

from roofline import cli, training, validation
from roofline.validation import PublishedStep, mfu
from roofline.validation.utilization import TEXTS, runs
from roofline_helpers import BadValue, UnknownName

ROWS = [step for step in validation.steps() if isinstance(step, PublishedStep)]
RUNS = runs()


def of_row(row, **more):
    rate = row.batch * row.seq / row.seconds
    chips = row.topology.chips
    return mfu(row.model, row.chip, rate, chips=chips, seq=row.seq, dtype=row.dtype, **more)


def test_it_is_the_mfu_of_the_scoreboard():
    board = validation.scoreboard()
    for row in ROWS:
        assert of_row(row).mfu == pytest.approx(board.MFU[row.key], rel=1e-12), row.key


def test_the_flops_of_a_token_are_those_that_pages_print():
    """Of pages with tokens/s and TFLOP/s of a chip; the others count something of their own."""
    printed = [row for row in ROWS if {"tokens", "tflops"} <= row.printed.keys()]
    judged = [row for row in printed if row.count != "own"]
    off = {}
    for row in judged:
        count = of_row(row).counts["whole" if row.count == "whole" else "attention"]
        off[row.key] = count / (row.printed["tflops"] * 1e12 / row.printed["tokens"]) - 1
    assert len(off) > 50
    assert sum(abs(error) < 0.003 for error in off.values()) > 0.8 * len(off)
    assert max(map(abs, off.values())) < 0.03


@pytest.mark.parametrize("how", ["none", "attention", "full"])
def test_what_is_computed_again_is_in_the_hfu(how):
    row = validation.published_step("v5p-512-llama-3.1-405b")
    assert isinstance(row, PublishedStep)
    run = of_row(row, recompute=how)
    cube, shape = row.topology, {"batch": row.batch, "seq": row.seq}
    step = training.step(row.model, cube, row.mesh, **shape, recompute=how)
    assert run.flops + run.recomputed == pytest.approx(step.flops / (row.batch * row.seq))
    assert run.hfu / run.mfu == pytest.approx(step.flops / step.model_flops())


def test_counts_by_hand():
    run = mfu("llama-3-8b", "h100", 1.0, seq=8192)
    assert run.counts["6N"] == 6 * 8_030_261_248
    assert run.counts["6N"] - run.counts["matmuls"] == pytest.approx(
        6 * (128256 * 4096 + 65 * 4096)  # the embedding and the norms
    )
    # PaLM's 12 L H Q T
    assert run.counts["whole"] - run.counts["matmuls"] == 12 * 32 * 32 * 128 * 8192
    assert run.counts["attention"] - run.counts["matmuls"] == 6 * 32 * 32 * 128 * 8193
    mixture = mfu("mixtral-8x7b", "h100", 1.0)
    assert mixture.counts["6N"] == 6 * mixture.model.active_parameters < 6 * 13e9


@pytest.mark.parametrize(
    ("name", "peak", "others"),
    [
        ("NVIDIA GB200", 2500, 0),
        ("NVIDIA B200", 2250, 0),
        ("NVIDIA B300 SXM6 AC", 2250, 0),
        ("NVIDIA H100 NVL", 835.5, 0),
        ("H100", 989, 2),
        ("gfx950", 2500, 1),
    ],
)
def test_the_peak_is_the_dense_one_of_the_device(name, peak, others):
    run = mfu("llama-3-8b", name, 1000, seq=4096)
    assert run.peak.value == peak * 1e12
    assert sum("The name fits" in doubt for doubt in run.doubts()) == others
    assert run.mfu == pytest.approx(1000 * run.flops / (peak * 1e12))


def test_more_than_the_peak_is_explained():
    run = mfu("llama-3-8b", "NVIDIA H100 80GB HBM3", 96_000, seq=8192)
    assert not run.possible
    first, total, *_ = run.faults()
    assert first.startswith("More than the peak is impossible")
    eighth = mfu("llama-3-8b", "NVIDIA H100 80GB HBM3", 96_000, chips=8, seq=8192)
    assert f"Of 8: {100 * eighth.mfu:.1f}%" in total
    assert [*eighth.faults()] == []
    half = mfu("llama-3-8b", "NVIDIA H100 80GB HBM3", 17_500, seq=8192)
    assert "no whole step is as fast" in next(
        half.faults()
    )  # between the fastest matmul and the peak
    narrow = mfu("llama-3-8b", "NVIDIA H100 80GB HBM3", 25_000, seq=8192)
    assert any("fp8? Their peak is 1,979" in fault for fault in narrow.faults())


def test_no_published_run_is_called_impossible_or_little():
    for row in ROWS:
        run = of_row(row)
        assert [*run.faults()] == [], row.key
        assert TEXTS["little"] not in run.doubts(), row.key


def test_bad_calls():
    with pytest.raises(UnknownName, match="a part of a GPU"):
        mfu("llama-3-8b", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 1000)
    with pytest.raises(UnknownName, match="no bf16 peak"):
        mfu("llama-3-8b", "Tesla T4", 1000, dtype="bf16")
    with pytest.raises(BadValue, match="tokens_per_second"):
        mfu("llama-3-8b", "h100", -1)
    with pytest.raises(UnknownName, match="recompute"):
        mfu("llama-3-8b", "h100", 1, recompute="some")


def test_the_command(capsys):
    words = ["mfu", "llama-3-8b", "--chip", "NVIDIA H100 80GB HBM3", "--seq", "8192"]
    assert cli.main([*words, "--tokens-per-second", "9000", "--recompute", "full"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "MFU 46.8%, HFU 58.1%" in printed
    assert "published runs of dense models on this chip" in printed
    assert cli.main([*words, "--tokens-per-second", "72000", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["MFU"] == pytest.approx(8 * 0.4686, rel=1e-3)
    assert data["faults"][0].startswith("More than the peak")
    assert data["published"]["runs"][0]["url"].startswith("https://")


def test_what_the_page_says_of_published_runs():
    h100 = [run for run in RUNS if run.chip == "h100" and not run.experts]
    narrow = [run.mfu for run in h100 if run.dtype == "fp8"]
    assert all(run.mfu > max(narrow) for run in h100 if run.dtype == "bf16")
    assert len(narrow) == len(h100) - 1
    middle = {}
    for chip in {run.chip for run in RUNS}:
        for experts in (False, True):
            found = [run.mfu for run in RUNS if (run.chip, run.experts) == (chip, experts)]
            if found:
                middle[chip, experts] = median(found)
    mixtures = [chip for chip, experts in middle if experts]
    assert len(mixtures) > 5
    assert all(middle[chip, True] < middle[chip, False] for chip in mixtures)
