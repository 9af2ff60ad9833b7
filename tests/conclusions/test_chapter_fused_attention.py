"""Conclusions of the chapter fused-attention: each test would refute one."""

import jax
import jax.numpy as jnp
import pytest
from conclusions import kept

import roofline
import roofline_helpers as rh
from roofline import xla

ATTENTION = {"batch": 4, "heads": 32, "head_dim": 128}


def test_what_xla_s_attention_moves_besides_is_its_result_in_another_layout():
    for name, length, passes in (("attention", 2048, 3), ("attention-512", 512, 0)):
        report, scores = kept()[name, "v6e"], 4 * 32 * length**2 * 2
        relaid = report.rows[-1]
        assert relaid.role == "change of layout"
        least = rh.work.flash_attention(q_len=length, **ATTENTION).bytes
        assert report.hbm_bytes == passes * scores + least + relaid.bytes
    assert set(kept()["attention-512", "v5e"].rows[-1].read) == {"vmem"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "tokens"),
    [
        ("v5e", 131072),
        ("v6e", 131072),
        ("v7x", 65536),
    ],
)
def test_attention_s_lengths_have_an_end(chip, tokens):
    """Keys and values of a head and of the next one don't fit into VMEM; a single head's do."""
    if missing := xla.can_compile(chip):
        pytest.skip(f"NOT TESTED for {chip}: {missing}")
    one, two = ([jax.ShapeDtypeStruct((1, n, tokens, 128), "bfloat16")] * 3 for n in (1, 2))
    assert xla.analyze(roofline.kernels.attention, *one, chip=chip).flops > 0
    with pytest.raises(xla.DoesNotFit, match="vmem"):
        xla.analyze(roofline.kernels.attention, *two, chip=chip)


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "times"), [("v5e", 1), ("v5p", 2), ("v6e", 1)])
def test_xla_keeps_small_scores_on_the_chip_but_for_v5p(chip, times):
    """A megabyte of scores, part of which crosses HBM in v5p's program alone."""
    if missing := xla.can_compile(chip):
        pytest.skip(f"NOT TESTED for {chip}: {missing}")

    def attention(q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 128**-0.5
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)

    q = jax.ShapeDtypeStruct((1, 8, 256, 128), "bfloat16")
    moved = xla.analyze(attention, q, q, q, chip=chip).hbm_bytes
    assert moved == pytest.approx(times * 4 * 8 * 256 * 128 * 2, rel=0.05)
