"""FLOPs and bytes of operations on elements and along rows, against counts by hand."""

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


def test_reduction():
    job = reduction(8, 100, "bf16")
    assert (job.flops, job.vector_flops, job.transcendentals) == (800, 800, 0)
    assert (dict(job.reads), dict(job.writes)) == ({"x": 1600}, {"y": 16})
    assert [*reduction(8, 100, x="a").reads, *reduction(8, 100, y="b").writes] == ["a", "b"]
    assert (job.name, job.dtype) == ("reduction", "bf16")


def test_layernorm():
    job = layernorm(8, 100, "bf16", tag="1")
    assert job.flops == job.vector_flops == 8 * 100 * 7 + 8 * 4
    assert job.transcendentals == 8  # one square root a row
    assert dict(job.reads) == {"x": 1600, "γ1": 200, "β1": 200}
    assert dict(job.writes) == {"y": 1600}
    assert [*layernorm(8, 100).reads] == ["x", "γ", "β"]
    wide = layernorm(8, 100, "fp32", x="a", y="b")
    assert (wide.bytes, wide.dtype, wide.name) == (4 * (800 + 200 + 800), "fp32", "layernorm")
    assert ("a" in wide.reads, "b" in wide.writes) == (True, True)


def test_rmsnorm():
    job = rmsnorm(8, 100, "bf16", tag="2")
    assert job.flops == job.vector_flops == 8 * 100 * 4 + 8 * 3
    assert job.transcendentals == 8
    assert dict(job.reads) == {"x": 1600, "γ2": 200}
    assert [*rmsnorm(8, 100).reads, *rmsnorm(8, 100).writes] == ["x", "γ", "y"]


def test_softmax():
    job = softmax(8, 100, "fp32")
    assert (job.flops, job.transcendentals, job.bytes) == (4000, 800, 6400)
    assert (dict(job.reads), dict(job.writes)) == (
        {"x": 3200},
        {"y": 3200},
    )
    assert job.name == "softmax"
