"""Conclusions of the chapter step-without-chips: each test would refute one."""

import re

import pytest
from conclusions import kept

import roofline
from roofline import xla


def waits(report, axes=()):
    chosen = (e for e in report.exchanges if not axes or e.collective.axis in axes)
    return sum(exchange.exposed for exchange in chosen)


def test_a_hand_count_misses_scores_computed_again_and_up_to_half_of_the_exchanges():
    cube, pod = (kept()[f"whole-llama-{name}", "v5p"] for name in ("64x1", "512x8"))
    place = roofline.network.topology("v5p", "4x4x4")
    hand = roofline.training.step("llama-3-8b", place, {"fsdp": 64}, batch=512, seq=4096)
    sent = sum(each.seconds for each in cube.exchanges)
    assert hand.hidden + hand.exposed == pytest.approx(0.53 * sent, rel=0.02)
    backward = [row for row in cube.rows if re.match("attention_d(q|kv)_kernel", row.name)]
    again = sum(row.matrix_flops * row.launches for row in backward)
    once = 2**46  # four matmuls of half the scores: 32 layers, 8 × 32 × 4096² × 128
    assert again - once == pytest.approx(cube.flops - hand.flops / 64, rel=0.05)
    assert 0.6 < waits(pod, axes=("tensor",)) / waits(pod) < 0.7
    # the head's kernel writes logits in fp32 and bf16, another their gradient in bf16
    logits = 2.0**15 * 128256
    largest = sorted(sum(row.written.values()) for row in cube.rows)[-2:]
    assert largest == pytest.approx([2 * logits, 6 * logits], rel=1e-3)


@pytest.mark.slow
def test_a_gather_of_one_s_own_compiles_to_the_all_reduces_of_the_cube():
    import jax
    from jax.sharding import AbstractMesh, AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    if missing := xla.can_compile("v5p"):
        pytest.skip(f"NOT TESTED for v5p: {missing}")

    def compiled(topology, devices):
        mesh = AbstractMesh((devices,), ("fsdp",), axis_types=(AxisType.Auto,))
        shapes = ((8, 4096, 14336), P(None, "fsdp")), ((8192, 4096), P("fsdp"))
        w, x = (
            jax.ShapeDtypeStruct(shape, "bfloat16", sharding=NamedSharding(mesh, spec))
            for shape, spec in shapes
        )
        whole = jax.shard_map(
            lambda shard: jax.lax.all_gather(shard, "fsdp", axis=0, tiled=True),
            mesh=mesh, in_specs=P("fsdp"), out_specs=P(), check_vma=False,
        )  # fmt: skip

        def step(w, x):
            return jax.lax.scan(lambda x, w: (x @ (m := whole(w)) @ m.T, None), x, w)[0]

        report = roofline.analyze(step, w, x, chip="v5p", topology=topology)
        return {each.collective.kind for each in report.exchanges}

    assert compiled("4x4x4", 64) == {"all-reduce"}
    assert "all-reduce" not in compiled("2x2x4", 16)
