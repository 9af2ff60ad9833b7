"""FLOPs and bytes of products of matrices, against counts written out by hand."""

import numpy as np

from roofline_helpers.work import grouped_matmul, matmul


def test_matmul():
    counts = [  # sizes, options, FLOPs, bytes
        ((2048, 2048, 2048, "bf16"), {}, 17179869184, 25165824),
        ((600, 600, 600), {}, 432_000_000, 2_160_000),
        ((2, 3, 5, "fp32"), {}, 60, 4 * (10 + 15 + 6)),
        ((2, 3, 5, "fp8"), {}, 60, 10 + 15 + 6),
        ((2, 3, 5, "int4"), {}, 60, 5 + 8 + 3),  # 15 half bytes take 8
        ((2, 3, 5), {"b": "int8", "out": "fp32"}, 60, 20 + 15 + 24),
        ((2, 3, 5), {"batch": 7}, 420, 2 * 7 * (10 + 15 + 6)),
    ]
    for sizes, options, flops, nbytes in counts:
        job = matmul(*sizes, **options)
        assert (job.flops, job.matrix_flops, job.vector_flops) == (flops, flops, 0), sizes
        assert job.bytes == nbytes, (sizes, options)
        assert type(job.flops) is type(job.bytes) is int


def test_the_unit_computes_in_the_wider_type():
    units = {
        ("bf16", None): "bf16",
        ("fp8", "bf16"): "bf16",
        ("bf16", "int8"): "bf16",
        ("int8", "int4"): "int8",
    }
    assert {(a, b): matmul(2, 2, 2, a, b=b).dtype for a, b in units} == units


def test_experts_multiply_the_pairs_that_come_to_them():
    # 6 tokens, 2 of 3 experts each: 12 pairs, through two matrices of 8 x 4, a gate, one of 4 x 8;
    # the gate: negate, exp, + 1, divide, multiply
    every = grouped_matmul(6, 8, 4, 3, 2)
    assert every.matrix_flops == 12 * (2 * 2 * 8 * 4 + 2 * 4 * 8)
    assert (every.vector_flops, every.transcendentals) == (12 * 4 * 5, 12 * 4)
    assert every.bytes == 2 * (12 * 8 + 3 * 3 * 8 * 4 + 12 * 8)
    one = grouped_matmul(6, 8, 4, 3, 2, local_experts=1, weights="fp8")
    assert one.flops == every.flops / 3
    assert one.bytes == 2 * 4 * 8 + 3 * 8 * 4 + 2 * 4 * 8
    few = grouped_matmul(1, 8, 4, 64, 2)  # only two experts have a token
    assert few.reads["weights"] == 2 * 2 * 3 * 8 * 4
    # of 5 tokens' 15 choices among 7 experts, two experts get 4.3; one of 64 hardly any
    for given, pairs, busy in (((5, 8, 4, 7, 3), 4, 2), ((1, 8, 4, 64, 2), 1, 1)):
        some = grouped_matmul(*given, local_experts=busy)
        assert (some.matrix_flops, some.reads["x"]) == (6 * pairs * 32, 2 * pairs * 8)
        assert some.reads["weights"] == 2 * 3 * busy * 32


def test_tiles_read_operands_again():
    job = matmul(100, 60, 8, "bf16", tile=(30, 25))  # 4 rows of tiles, 3 columns
    assert dict(job.passes) == {"a": 3, "b": 4}
    assert job.bytes == 2 * (3 * 800 + 4 * 480 + 6000)
    whole = matmul(100, 60, 8, "bf16", tile=(100, 60))
    assert (
        whole.bytes == matmul(100, 60, 8, "bf16", tile=[128, 128]).bytes == 2 * (800 + 480 + 6000)
    )
    sizes = matmul(100, 60, 8, tile=(np.array([100, 30]), 60))
    assert sizes.bytes.tolist() == [2 * (800 + 480 + 6000), 2 * (800 + 4 * 480 + 6000)]
