"""FLOPs and bytes of operations on elements and along rows, against counts by hand."""

import pytest

from roofline_helpers.work import (
    add,
    dropout,
    elementwise,
    gelu,
    layernorm,
    reduction,
    relu,
    rmsnorm,
    softmax,
    swiglu,
)


def test_elementwise_counts():
    job = elementwise(1000, reads=2, writes=3, flops=7, dtype="bf16", transcendentals=2)
    assert (job.flops, job.vector_flops, job.transcendentals) == (7000, 7000, 2000)
    assert (job.read_bytes, job.written_bytes) == (4000, 6000)
    assert [*job.reads, *job.writes] == ["x0", "x1", "y0", "y1", "y2"]
    assert job.intensity == 0.7
    copy = elementwise(1000, flops=0, dtype="fp32")
    assert (copy.flops, copy.bytes, copy.dtype) == (0, 8000, "fp32")
    assert [*copy.reads, *copy.writes] == ["x", "y"]


def test_pointwise_operations():
    counts = {  # FLOPs and transcendentals on an element, tensors read
        relu: (1, 0, ["x"]),
        gelu: (9, 1, ["x"]),
        swiglu: (5, 1, ["g", "u"]),
        add: (1, 0, ["x0", "x1"]),
        dropout: (2, 0, ["x", "mask"]),
    }
    for operation, (flops, transcendentals, reads) in counts.items():
        job = operation(100)
        wide = operation(100, "fp32")
        name = operation.__name__
        assert (
            [*job.reads],
            [*job.writes],
        ) == (reads, ["y"]), name
        assert (job.bytes, wide.bytes) == (200 * (len(reads) + 1), 400 * (len(reads) + 1)), name
        assert (job.flops, job.vector_flops) == (100 * flops, 100 * flops), name
        assert job.transcendentals == 100 * transcendentals, name
        assert (job.matrix_flops, job.dtype, wide.dtype) == (0, "bf16", "fp32"), name
        assert job.name == name


ROWS = [  # of 8 rows of 100: FLOPs, transcendentals, what is read and written in bf16
    (reduction, {}, 800, 0, {"x": 1600}, {"y": 16}),
    (layernorm, {"tag": "1"}, 8 * (700 + 4), 8, {"x": 1600, "γ1": 200, "β1": 200}, {"y": 1600}),
    (rmsnorm, {"tag": "2"}, 8 * (400 + 3), 8, {"x": 1600, "γ2": 200}, {"y": 1600}),
    (softmax, {}, 4000, 800, {"x": 1600}, {"y": 1600}),
]


@pytest.mark.parametrize(("operation", "tag", "flops", "special", "reads", "writes"), ROWS)
def test_operations_along_rows(operation, tag, flops, special, reads, writes):
    job = operation(8, 100, **tag)
    assert (job.flops, job.vector_flops, job.transcendentals) == (flops, flops, special)
    assert (dict(job.reads), dict(job.writes)) == (reads, writes)
    assert (job.name, job.dtype) == (operation.__name__, "bf16")
    wide = operation(8, 100, "fp32", x="a", y="b")
    assert (wide.bytes, wide.dtype, wide.flops) == (2 * job.bytes, "fp32", flops)
    assert ("a" in wide.reads, "b" in wide.writes) == (True, True)
