"""FLOPs and bytes of products of matrices, against counts written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from roofline_helpers import BadValue
from roofline_helpers.work import fuse, matmul


def test_matmul():
    counts = [  # sizes, options, FLOPs, bytes
        ((2048, 2048, 2048, "bf16"), {}, 17179869184, 25165824),
        ((600, 600, 600), {}, 432_000_000, 2_160_000),
        ((2, 3, 5, "fp32"), {}, 60, 4 * (10 + 15 + 6)),
        ((2, 3, 5, "fp8"), {}, 60, 10 + 15 + 6),
        ((2, 3, 5, "int4"), {}, 60, 5 + 8 + 3),  # 15 half bytes take 8
        ((2, 3, 5), {"b": "int8", "out": "fp32"}, 60, 20 + 15 + 24),
        ((2, 3, 5), {"batch": 7}, 420, 2 * 7 * (10 + 15 + 6)),
        ((2, 3, 5), {"batch": 7, "shared_b": True}, 420, 2 * (70 + 15 + 42)),
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


def test_tiles_read_a_shared_operand_again_in_each_product():
    batched = matmul(64, 256, 128, batch=8, shared_b=True, tile=(64, 64))
    assert batched.read_bytes == matmul(8 * 64, 256, 128, tile=(64, 64)).read_bytes == 1048576
    assert batched.bytes == matmul(64, 256, 128, batch=8, tile=(64, 64)).bytes
    some = matmul(100, 60, 8, batch=np.array([1, 3]), shared_b=True, tile=(30, 60))
    assert some.passes["b"].tolist() == [4, 12]
    with pytest.raises(BadValue, match=r"got batch \(2,\), tile rows \(3,\)"):
        matmul(9, 9, 9, batch=[1, 2], shared_b=True, tile=([1, 2, 3], 9))


def test_splits_write_partial_sums_and_read_them():
    job = matmul(4, 6, 64, "bf16", splits=8)
    partial = 8 * 24 * 4
    assert job.bytes == 2 * (256 + 384 + 24) + 2 * partial
    assert (job.matrix_flops, job.vector_flops) == (2 * 4 * 6 * 64, 8 * 24)
    assert job.writes["partial sums of c"] == job.reads["partial sums of c, again"] == partial
    assert matmul(4, 6, 64, splits=1).bytes == 2 * (256 + 384 + 24)
    assert matmul(4, 6, 64, splits=2, accumulator="bf16").bytes == 2 * 664 + 2 * 96
    assert matmul(4, 6, 64, splits=64).vector_flops == 64 * 24
    two = fuse(
        matmul(4, 6, 64, splits=2, names=("x", "w1", "h")),
        matmul(4, 8, 6, splits=2, names=("h", "w2", "y")),
    )
    assert two.bytes == 2 * (256 + 384 + 48 + 32) + 2 * 2 * 4 * (24 + 32)
