"""Conclusions of labs, the self-test and pages beside the chapters: each test would refute one."""

import re
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


def test_loops_of_tiny_steps_gain_most_from_fewer_turns() -> None:
    rows = {row["name"]: row for row in roofline.evidence.load("repairs")["pairs"]}
    for name, turns in (("short-turns", 512), ("linear-recurrence", 1024)):
        assert 5e-6 < rows[name]["before"] / turns < 2e-5  # some launches a turn
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
