"""`analyze` against counts by hand, on every TPU generation whose compiler is here."""

import jax
import pytest
from compiled_reports import needs, per_chip, report_of
from compiled_suite import SUITE

import roofline


def wrongly_counted(name, chip):
    """Return what differs from the count by hand, with both counts."""
    case, report = SUITE[name], report_of(name, chip)
    hand = case.by_version.get((chip, jax.__version__), case.hand)(chip)
    counts = {
        "read": report.read_bytes,
        "written": report.written_bytes,
        "matrix": report.matrix_flops,
        "vector": report.vector_flops,
        "transcendentals": report.transcendentals,
    }
    return hand.differs(counts, report.unknown)


@per_chip
def test_counts_agree_with_the_hand(chip):
    needs(chip)
    wrong = {name: wrongly_counted(name, chip) for name in SUITE}
    assert {name: counts for name, counts in wrong.items() if counts} == {}


def test_an_unrolled_loop_reads_each_layer_s_weights():
    """XLA puts two matmuls into one fusion: each cuts another slice out of the stack."""
    needs("v7x")
    x = jax.ShapeDtypeStruct((16, 2048), "bfloat16")
    stack = jax.ShapeDtypeStruct((4, 2048, 2048), "bfloat16")

    def layers(x, stack):
        return jax.lax.scan(lambda x, w: (x @ w, None), x, stack, unroll=True)[0]

    report = roofline.analyze(layers, x, stack, chip="v7x")
    assert report.hbm_bytes == pytest.approx(2 * (2 * x.size + stack.size), rel=1e-3)
