"""Conclusions of labs, the self-test and pages beside the chapters: each test would refute one."""

import re
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conclusions import kept, outputs, path, prose
from jax._src.ad_checkpoint import saved_residuals

import page_gpus
import roofline
import roofline_helpers as rh
from roofline.diagnosis import ladder
from roofline.labs.labs import TODAY
from roofline_helpers.common.show import significant
from tools import books
from tools.notebooks import run as notebooks


def test_the_design_lab_s_python_has_the_settings_of_the_page() -> None:
    cells = notebooks.load(path("lab-design-challenge")).cells
    (source,) = (cell.source for cell in cells if "server = {" in cell.source)
    told: dict[str, Any] = {"rh": rh, "roofline": roofline}
    exec(source, told)
    step = roofline.serving.step(rh.models.LLAMA_3_8B, "h100", **TODAY)
    assert told["today"].seconds == step.seconds
    assert told["today"].memory.reserve == step.memory.reserve
    story = significant(step.tokens_per_second)
    assert f"{story} tokens per second" in outputs("lab-design-challenge")


@pytest.mark.parametrize(
    ("page", "files"),
    [
        ("pytorch", ["torch_chain.py"]),
        ("decode-step-made-fast", ["llama_decode/model.py", "llama_decode/steps.py"]),
    ],
)
def test_quoted_code_is_the_example_s(page: str, files: list[str]) -> None:
    example = "".join((books.ROOT / "examples" / name).read_text("utf-8") for name in files)
    blocks = re.findall(r"```python\n(.*?)```", prose(page), re.DOTALL)[page == "pytorch" :]
    assert len(blocks) >= 4
    assert [block for block in blocks if bare(block) not in bare(example)] == []


def bare(code: str) -> str:
    """Return code without its indentation: what is quoted begins at the left."""
    return "".join(f"{line.strip()}\n" for line in code.splitlines())


def test_the_self_test_s_answers_hold_on_the_chips_of_the_table() -> None:
    wide = rh.work.matmul(16, 8192, 8192, "bf16")
    ridges = [chip.roofline("bf16").ridge for chip in rh.all_chips() if "bf16" in chip.matrix]
    assert min(ridges) / wide.intensity > 1.9  # so with half of the bytes it is about twice as fast
    known = rh.measured.seconds_like(rh.work.matmul(4096, 4096, 4096, "bf16"), "h100")
    took = np.quantile(known, 0.6)
    least = rh.chip("h100").roofline("bf16").time(rh.work.matmul(4096, 4096, 4096, "bf16"))
    assert 0.2 < 1 - least / took < 0.25
    assert took < 1.05 * np.median(known)


def test_saving_all_products_saves_the_scores_of_attention_by_einsum() -> None:
    def attention(w: Any, x: Any) -> Any:
        q = (x @ w).reshape(2, 64, 4, 16)
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, q))
        return jnp.einsum("bhqk,bkhd->bqhd", scores, q).sum()

    def kept(policy: str) -> set[tuple[int, ...]]:
        layer = jax.checkpoint(attention, policy=getattr(jax.checkpoint_policies, policy))
        saved = saved_residuals(layer, jnp.ones((64, 64)), jnp.ones((2, 64, 64)))
        return {shape.shape for shape, _ in saved}

    scores = (2, 4, 64, 64)
    assert scores in kept("dots_saveable")
    assert scores not in kept("dots_with_no_batch_dims_saveable")


def test_no_flag_of_xla_saved_three_percent_of_a_training_step() -> None:
    saved = page_gpus.flags()
    assert len(saved) == 12
    assert 0.02 < max(saved.values()) < 0.03
    assert min(saved, key=saved.__getitem__) == "gpus_few_channels_all_kept_2_h100"
    steps = {step.rung: step.why for step in ladder.committed()["train-step"].steps}
    first, last = steps["as first written"], steps["all kept"]
    assert 0.3 < 1 - last.wall / first.wall < 1 / 3  # "nearly a third", by changes of the program
    for why in (first, last):
        assert max(saved.values()) < page_gpus.exposed(why) / why.wall < 0.1
    assert all(0.97 < share < 1.07 for share in page_gpus.graphs())


def test_the_page_on_gpus_has_every_flag_that_was_timed() -> None:
    text = prose("jax-on-gpus")
    assert [name for name in page_gpus.gpus() if f"{{{{ {name} }}}}" not in text] == []


def test_graphs_pay_for_short_kernels_in_queued_calls() -> None:
    for row in roofline.evidence.load("settings")["graphs"]:
        inside, plain = row["graphs"], row["plain"]
        gain = 1 - inside["queued"]["median"] / plain["queued"]["median"]
        short = plain["kernels"] / plain["launches"] < 5e-6
        assert gain > 0.2 if short else abs(gain) < 0.05, row["program"]
        assert inside["kernels"] == pytest.approx(plain["kernels"], rel=0.2)  # as long in either
        alone = inside["alone"]["median"] / plain["alone"]["median"]
        assert (alone > 1.05) == (row["program"] in ("small training step", "decode, width 4,096"))
        # what explain says of a call in graphs is what the clock says of queued ones
        assert row["explain"]["wall"] == pytest.approx(inside["queued"]["median"], rel=0.2)


def test_a_condition_on_data_costs_a_turn_more_than_its_launches() -> None:
    turn = page_gpus._turn
    for body in ("elementwise", "reduce", "matmul", "big matmul"):
        assert turn("condition", body) > turn("fori", body) + 1e-5
    assert turn("fori", "elementwise") < turn("fori", "reduce")
    rows = {(row["loop"], row["body"]): row for row in roofline.evidence.load("settings")["loops"]}
    for body in ("elementwise", "reduce"):
        assert rows["fori", body]["kernels"] < turn("fori", body) / 2  # most of it is launches
    five = rows["fori", "reduce4"]
    assert turn("fori", "reduce4") < turn("fori", "reduce") < five["plain"][1] / 400 / 3


def test_odd_sizes_run_at_a_third_of_their_speed_at_worst() -> None:
    record = roofline.evidence.load("settings")
    rates = {
        (row["m"], row["k"], row["n"]): (row["default by"], _rate(row, row["default"]))
        for row in record["products"]
    }
    full = rates[4096, 4096, 4096][1]
    for (_, k, n), (by, rate) in rates.items():
        multiples = k % 8 == 0 and n % 8 == 0
        assert (by == "cuBLAS") == multiples
        if (k % 8 or n % 2) and rate > 1e14:
            assert full / 3.2 < rate < full / 2.4
    took = {(row["setting"], row["program"]): row["seconds"] for row in record["compiling"]}
    for (m, k, n), (by, _) in rates.items():
        usual = took.get(("as JAX does it", f"{m}×{k}×{n}"))  # by the clock of "no Triton"
        if usual and by == "Triton":
            gain = statistics.median(usual) / statistics.median(took["no Triton", f"{m}×{k}×{n}"])
            assert 1.8 < gain < 2.5 if k % 8 or n % 2 else 0.9 < gain < 1.05


def test_between_tf32_and_float32_are_algorithms_of_which_one_is_none() -> None:
    for side in (4096, 8192):
        rows = [r for r in roofline.evidence.load("settings")["precisions"] if r["side"] == side]
        took = {row["asked"]: statistics.median(row["seconds"]) for row in rows}
        off = {row["asked"]: row["error"] for row in rows}
        for same in ("high", "BF16_BF16_F32_X9"):  # they are TF32
            assert off[same] == pytest.approx(off["default"], rel=1e-3)
        assert took["high"] == pytest.approx(took["default"], rel=0.06)
        assert took["BF16_BF16_F32_X9"] > 2 * took["default"]
        assert took["highest"] > 6.5 * took["default"]
        assert took["BF16_BF16_F32_X3"] < 2 * took["default"]
        assert off["BF16_BF16_F32_X3"] < off["default"] / 14
        assert took["BF16_BF16_F32_X6"] < 0.6 * took["highest"]
        assert off["BF16_BF16_F32_X6"] < 10 * off["highest"]


def _rate(size: dict[str, int], seconds: list[float]) -> float:
    return float(2 * size["m"] * size["k"] * size["n"] / statistics.median(seconds))


def test_no_setting_gains_what_steps_of_a_run_differ() -> None:
    record = roofline.evidence.load("settings")
    steps = {row["setting"]: row["steps"][5:] for row in record["step"]}
    usual = steps.pop("as JAX does it")
    for seconds in steps.values():
        gain = statistics.median(usual) - statistics.median(seconds)
        assert abs(gain) < max(usual) - min(usual)


def test_weights_in_the_hosts_memory_are_not_fetched_beside_the_matmuls() -> None:
    *copies, scan = roofline.evidence.load("settings")["offload"]
    largest = copies[-1]
    crosses = statistics.median(largest["up"]) * scan["layers"] * scan["bytes"] / largest["bytes"]
    near, fetched = (statistics.median(scan[way]) for way in ("near", "fetched"))
    assert crosses < near  # they could be
    assert fetched - near > 0.8 * crosses


def test_a_ragged_exchange_is_as_fast_as_a_padded_one_in_many_pieces_only() -> None:
    rows = [r for r in roofline.evidence.load("settings")["ragged"] if r["share"] == 0.5]
    slower = {
        row["experts"]: statistics.median(row["ragged"]) / statistics.median(row["padded"])
        for row in rows
    }
    assert slower[1] > 30
    assert slower[1] > slower[4] > slower[16] > slower[64] > 1.2
    assert slower[256] < 1.1


def test_loops_of_tiny_steps_gain_most_from_fewer_turns() -> None:
    rows = {row["name"]: row for row in roofline.evidence.load("repairs")["pairs"]}
    for name, turns in (("short-turns", 512), ("linear-recurrence", 1024)):
        assert 5e-6 < rows[name]["before"] / turns < 2.5e-5  # some launches a turn
        assert rows[name]["before"] > 10 * rows[name]["after"]
    assert rows["many-arrays"]["after"] > rows["many-arrays"]["before"]


def test_resharding_sends_what_the_page_says() -> None:
    """Of an array of 8192² in bf16 on four chips, with the least bytes of each exchange."""
    whole = 8192 * 8192 * 2
    least = {
        "rows-columns": ("all-to-all", whole * 3 / 16),
        "rows-whole": ("all-gather", whole * 3 / 4),
        "whole-rows": ("", 0.0),
        "columns-rows-whole": ("all-reduce", whole * 6 / 4),
        "columns-rows-rows": ("reduce-scatter", whole * 3 / 4),
    }
    for name, (kind, sent) in least.items():
        found = [each.collective for each in kept()[f"reshard-{name}", "v5e"].exchanges]
        assert sum(one.link_bytes for one in found) == pytest.approx(sent, rel=0.02)
        assert kind in {one.kind for one in found} | {""}
