"""`analyze` against counts by hand, on every TPU generation whose compiler is here."""

from collections import Counter
from typing import Any

import jax
import pytest
from compiled_reports import needs, per_chip, report_of
from compiled_suite import SUITE

import roofline


def wrongly_counted(name: str, chip: str) -> dict[str, Any]:
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
def test_counts_agree_with_the_hand(chip: str) -> None:
    needs(chip)
    wrong = {name: wrongly_counted(name, chip) for name in SUITE}
    assert {name: counts for name, counts in wrong.items() if counts} == {}


def test_a_whole_model_is_the_sum_of_its_kernels() -> None:
    report = report_of("transformer-block-step", "v6e")
    sums: Counter[str] = Counter()
    for kernel in report.kernels:
        sums.update(kernel.traffic)
    assert report.traffic == sums
    assert report.hbm_bytes == sums["hbm"] == report.read_bytes + report.written_bytes
    # each argument is read, and nothing exceeds XLA's own total, which counts every memory
    _, args, _ = SUITE["transformer-block-step"].call
    into = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(args))
    assert report.read_bytes >= into
    assert sum(report.traffic.values()) <= 1.01 * report.xla_bytes


def test_an_unrolled_loop_reads_each_layer_s_weights() -> None:
    """XLA puts two matmuls into one fusion: each cuts another slice out of the stack."""
    needs("v7x")
    x = jax.ShapeDtypeStruct((16, 2048), "bfloat16")
    stack = jax.ShapeDtypeStruct((4, 2048, 2048), "bfloat16")

    def layers(x: jax.Array, stack: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (x @ w, None), x, stack, unroll=True)[0]

    report = roofline.analyze(layers, x, stack, chip="v7x")
    assert report.hbm_bytes == pytest.approx(2 * (2 * x.size + stack.size), rel=1e-3)


def test_products_name_the_type_that_they_run_in() -> None:
    types = {
        name: {t for row in report_of(name, "v6e").rows for t in row.matrix_types}
        for name in ("matmul-square", "matmul-fp32", "matmul-fp8", "matmul-int8")
    }
    assert types["matmul-square"] == {"bf16"}
    assert types["matmul-fp32"] == {"f32"}
    assert types["matmul-fp8"] == {"f8e4m3fn"}
    assert types["matmul-int8"] == {"s8"}
