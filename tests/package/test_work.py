"""FLOPs and bytes, held against counts written out by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, UnknownName, Work
from roofline_helpers.work import (
    COSTS,
    ROW_COSTS,
    TRANSCENDENTAL,
    add,
    all_gather,
    all_reduce,
    attention_scores,
    dropout,
    elementwise,
    flash_attention,
    fuse,
    fusion_chain,
    gelu,
    layernorm,
    matmul,
    naive_attention,
    reduction,
    relu,
    rmsnorm,
    softmax,
    swiglu,
    total,
    transformer_block,
)

M = 10**6


# --- Work itself ----------------------------------------------------------------------------------


def test_a_kernel_counts_its_tensors():
    job = Work(
        "job",
        reads={"x": 100, "w": 10},
        writes={"y": 40},
        matrix_flops=500,
        vector_flops=70,
        transcendentals=7,
        dtype="bfloat16",
        passes={"w": 3},
        others={"network": 5, "vmem": 400},
    )
    assert job.flops == 570
    assert (job.read_bytes, job.written_bytes, job.bytes) == (130, 40, 170)
    assert job.traffic == {"hbm": 170, "network": 5, "vmem": 400}
    assert job.intensity == 570 / 170
    assert job.intensity_at("vmem") == job.intensity_at("VMEM") == 570 / 400
    assert job.intensity_at("hbm") == 570 / 170
    assert job.dtype == "bf16"
    assert type(job.intensity) is float


def test_the_smallest_kernel():
    job = Work("read", {"x": 1}, {})
    assert (job.flops, job.bytes, job.dtype, job.intensity) == (0, 1, "fp32", 0)
    assert (job.matrix_flops, job.vector_flops, job.transcendentals) == (0, 0, 0)
    assert job.traffic == {"hbm": 1}
    assert Work("write", {}, {"y": 2}).bytes == 2


def test_a_kernel_keeps_lists_as_arrays():
    job = Work("job", {"x": [1, 2]}, {}, matrix_flops=[3, 8], passes={"x": [1, 2]})
    assert job.flops.tolist() == [3, 8]
    assert job.bytes.tolist() == [1, 4]
    assert job.intensity.tolist() == [3, 2]


def test_a_kernel_is_frozen_and_its_tensors_are():
    job = Work("job", {"x": 1}, {})
    with pytest.raises(AttributeError):
        job.name = "other"
    for group in (job.reads, job.writes, job.passes, job.others):
        assert isinstance(group, Mapping)
        with pytest.raises(TypeError):
            group["x"] = 2


def test_reading_more_than_once():
    job = softmax(4, 8, "fp32")
    assert job.reading(x=3).bytes == 4 * (3 * 32 + 32)
    assert job.reading(x=3).flops == job.flops
    assert job.reading(x=3).reading(x=2).bytes == 4 * (2 * 32 + 32)
    assert job.reading().bytes == job.bytes
    assert job.reading(X=2).passes == {"x": 2}
    with pytest.raises(UnknownName, match=r"tensor read by softmax 'z'.*Allowed: x"):
        job.reading(z=2)
    with pytest.raises(BadValue, match="passes must name each tensor once, got x, X"):
        job.reading(x=2, X=3)
    with pytest.raises(BadValue, match=r"passes over x must be at least 1, got 0\.5"):
        job.reading(x=0.5)


def test_traffic_at_other_levels():
    job = matmul(2, 3, 4).with_traffic(vmem=96).with_traffic(network=8)
    assert job.traffic == {"hbm": 2 * (8 + 12 + 6), "vmem": 96, "network": 8}
    assert job.intensity_at("vmem") == 48 / 96
    for hbm in ("hbm", "HBM", "H-B-M"):
        with pytest.raises(BadValue, match="hbm follows from reads and writes"):
            job.with_traffic(**{hbm: 1})
    assert job.with_traffic(VMEM=7, NetWork=9).others == {"vmem": 7, "network": 9}
    with pytest.raises(BadValue, match=r"others must name each once .* got VMEM, vmem"):
        job.with_traffic(VMEM=7, vmem=8)
    assert total(relu(8).with_traffic(L2=1), relu(8).with_traffic(l2=2)).others == {"l2": 3}
    assert fuse(relu(8, y="t").with_traffic(Network=1), relu(8, x="t")).others == {"network": 1}
    with pytest.raises(UnknownName, match=r"level of matmul 'l2'.*Allowed: hbm, vmem, network"):
        job.intensity_at("l2")


def test_transcendentals_are_part_of_the_vector_flops():
    assert Work("job", {"x": 1}, {}, vector_flops=5, transcendentals=5).flops == 5
    with pytest.raises(BadValue, match=r"at most the vector FLOPs, got 6.* and 5"):
        Work("job", {"x": 1}, {}, vector_flops=5, transcendentals=6)


def test_bytes_of_zero_are_for_some_of_an_array_only():
    assert Work("job", {"x": [0, 1]}, {"y": 1}).bytes.tolist() == [1, 2]
    with pytest.raises(BadValue, match="at least one byte, got none"):
        Work("job", {"x": [0, 1]}, {})
    with pytest.raises(BadValue, match="at least one byte, got none"):
        Work("job", {}, {})


# --- matrix products ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "options", "flops", "nbytes"),
    [
        ((2048, 2048, 2048, "bf16"), {}, 17179869184, 25165824),
        ((600, 600, 600), {}, 432_000_000, 2_160_000),
        ((2, 3, 5, "fp32"), {}, 60, 4 * (10 + 15 + 6)),
        ((2, 3, 5, "fp8"), {}, 60, 10 + 15 + 6),
        ((2, 3, 5, "int4"), {}, 60, 5 + 8 + 3),  # 15 half bytes take 8
        ((2, 3, 5), {"b": "int8", "out": "fp32"}, 60, 20 + 15 + 24),
        ((2, 3, 5), {"batch": 7}, 420, 2 * 7 * (10 + 15 + 6)),
        ((2, 3, 5), {"batch": 7, "shared_b": True}, 420, 2 * (70 + 15 + 42)),
    ],
)
def test_matmul(sizes, options, flops, nbytes):
    job = matmul(*sizes, **options)
    assert (job.flops, job.matrix_flops, job.vector_flops) == (flops, flops, 0)
    assert job.bytes == nbytes
    assert type(job.flops) is type(job.bytes) is int


def test_matmul_intensities():
    assert matmul(600, 600, 600, "bf16").intensity == 200
    assert matmul(600, 600, 600, "fp8").intensity == 400
    assert matmul(600, 600, 600, "fp32").intensity == 100
    decode = matmul(1, 4096, 4096, "bf16")
    assert decode.intensity == pytest.approx(4096 / (4096 + 2))  # mnk/(mk + kn + mn)


def test_matmul_tensors():
    job = matmul(2, 3, 5, "bf16", out="fp32")
    assert dict(job.reads) == {"a": 20, "b": 30}
    assert dict(job.writes) == {"c": 24}
    named = matmul(2, 3, 5, names=("x", "w", "y"))
    assert ([*named.reads], [*named.writes]) == (["x", "w"], ["y"])
    assert job.name == "matmul"


@pytest.mark.parametrize(
    ("a", "b", "unit"),
    [
        ("bf16", None, "bf16"),
        ("fp8", "bf16", "bf16"),
        ("bf16", "int8", "bf16"),
        ("int8", "int4", "int8"),
    ],
)
def test_the_unit_computes_in_the_wider_type(a, b, unit):
    assert matmul(2, 2, 2, a, b=b).dtype == unit


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


def test_splits_of_an_array_may_be_one():
    job = matmul(4, 6, 64, splits=np.array([1, 8]), batch=3)
    assert job.bytes.tolist() == [3 * 1328, 3 * (1328 + 2 * 768)]
    assert job.vector_flops.tolist() == [0, 3 * 192]


# --- elementwise operations, reductions, normalisations -------------------------------------------


def test_elementwise_counts():
    job = elementwise(1000, reads=2, writes=3, flops=7, dtype="bf16", transcendentals=2)
    assert (job.flops, job.vector_flops, job.transcendentals) == (7000, 7000, 2000)
    assert (job.read_bytes, job.written_bytes) == (4000, 6000)
    assert [*job.reads, *job.writes] == ["x0", "x1", "y0", "y1", "y2"]
    assert job.intensity == 0.7
    copy = elementwise(1000, flops=0, dtype="fp32")
    assert (copy.flops, copy.bytes, copy.dtype) == (0, 8000, "fp32")
    assert [*copy.reads, *copy.writes] == ["x", "y"]


def test_elementwise_with_named_tensors():
    job = elementwise(3, {"x": "fp32", "mask": "bool"}, {"y": "int4"}, dtype="fp32")
    assert dict(job.reads) == {"x": 12, "mask": 3}
    assert dict(job.writes) == {"y": 2}


def test_elementwise_may_only_read_or_only_write():
    assert elementwise(10, reads=np.int64(1), writes=0).bytes == 20
    assert elementwise(10, 0, 1).bytes == 20
    assert elementwise(10, 1000, 0).bytes == 20_000
    with pytest.raises(BadValue, match="at least one byte"):
        elementwise(10, 0, 0)
    with pytest.raises(BadValue, match=r"from 0 to 1000, or a mapping.*got 1001"):
        elementwise(10, 1001)


@pytest.mark.parametrize(
    ("operation", "flops", "transcendentals", "reads", "name"),
    [
        (relu, 1, 0, ["x"], "relu"),
        (gelu, 9, 1, ["x"], "gelu"),
        (swiglu, 5, 1, ["g", "u"], "swiglu"),
        (add, 1, 0, ["x0", "x1"], "add"),
        (dropout, 2, 0, ["x", "mask"], "dropout"),
    ],
)
def test_pointwise_operations(operation, flops, transcendentals, reads, name):
    job = operation(100)
    assert ([*job.reads], [*job.writes]) == (reads, ["y"])
    assert operation(100, "fp32").bytes == 400 * (len(reads) + 1)
    assert operation(100, "fp32").dtype == "fp32"
    assert (job.flops, job.vector_flops) == (100 * flops, 100 * flops)
    assert job.transcendentals == 100 * transcendentals
    assert job.bytes == 200 * (len(reads) + 1)
    assert (job.matrix_flops, job.dtype, job.name) == (0, "bf16", name)


def test_names_of_pointwise_tensors():
    assert [*relu(1).reads, *gelu(1, x="a", y="b").writes] == ["x", "b"]
    assert dict(add(2, "fp32", x="a", other="b", y="c").reads) == {"a": 8, "b": 8}


def test_a_mask_is_stored_in_its_own_type():
    assert dropout(100, "bf16", mask="bool").bytes == 200 + 100 + 200
    assert dict(dropout(9, "fp32", mask="int8", mask_name="m").reads) == {"x": 36, "m": 9}


def test_reduction():
    job = reduction(8, 100, "bf16", out="fp32", flops=2)
    assert (job.flops, job.vector_flops, job.transcendentals) == (1600, 1600, 0)
    assert (dict(job.reads), dict(job.writes)) == ({"x": 1600}, {"y": 32})
    assert reduction(8, 100).bytes == 1600 + 16
    assert reduction(8, 100).flops == 800
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
    assert (dict(job.reads), dict(job.writes)) == ({"x": 3200}, {"y": 3200})
    assert job.name == "softmax"


def test_costs_are_what_the_docstrings_say():
    sums = {op: sum(steps.values()) for op, steps in COSTS.items()}
    assert sums == {
        "add": 1,
        "relu": 1,
        "gelu": 9,
        "swiglu": 5,
        "dropout": 2,
        "softmax": 5,
        "layernorm": 7,
        "rmsnorm": 4,
    }
    assert {op: sum(steps.values()) for op, steps in ROW_COSTS.items()} == {
        "layernorm": 4,
        "rmsnorm": 3,
    }
    assert {"tanh", "exp", "rsqrt"} == TRANSCENDENTAL


# --- fusion ---------------------------------------------------------------------------------------


def chain(rows=4096, columns=4096):
    """LayerNorm → GELU → dropout → residual add, all bf16: the tensors have T bytes each."""
    n = rows * columns
    return (
        layernorm(rows, columns, y="n"),
        gelu(n, x="n", y="g"),
        dropout(n, x="g", y="d"),
        add(n, x="d", other="x", y="out"),
    )


def test_the_chain_goes_from_ten_tensors_to_four():
    n = 4096 * 4096
    kernels = chain()
    parameters = 2 * 4096 * 2  # γ and β
    assert sum(kernel.bytes for kernel in kernels) == 10 * 2 * n + parameters
    separate = (*kernels[:3], add(n, x="d", other="residual", y="out"))
    fused = fuse(*separate)
    assert set(fused.reads) == {"x", "γ", "β", "mask", "residual"}
    assert set(fused.writes) == {"out"}
    assert fused.bytes == 4 * 2 * n + parameters
    assert sum(kernel.bytes for kernel in kernels) / fused.bytes == pytest.approx(2.5, rel=2e-4)


@pytest.mark.parametrize("of", [np.int32, lambda n: np.array([n], np.int32), lambda n: [n]])
def test_the_chain_of_numpy_s_integers_and_of_lists(of):
    rows, columns = 65536, 65536  # their product is no int32
    exact = fusion_chain(rows, columns)
    for given, one in zip(fusion_chain(of(rows), of(columns)), exact, strict=True):
        assert (given.flops, given.bytes) == (one.flops, one.bytes)


def test_the_residual_costs_nothing_more_where_it_is_the_input():
    assert fuse(*chain()).bytes == 3 * 2 * 4096 * 4096 + 2 * 4096 * 2


def test_two_kernels_are_in_between():
    layer, act, drop, residual = chain()
    n = 2 * 4096 * 4096
    two = fuse(layer, act), fuse(drop, residual)
    assert [kernel.bytes for kernel in two] == [2 * n + 16384, 4 * n]


def test_with_the_mask_made_inside_nine_go_to_three():
    n = 4096 * 4096
    kernels = (
        layernorm(4096, 4096, y="n"),
        gelu(n, x="n", y="g"),
        elementwise(n, {"g": "bf16"}, {"d": "bf16"}, 2, name="dropout"),
        add(n, x="d", other="residual", y="out"),
    )
    assert sum(kernel.bytes for kernel in kernels) == 9 * 2 * n + 16384
    assert fuse(*kernels).bytes == 3 * 2 * n + 16384


def test_relu_of_a_scaled_and_shifted_x():
    kernels = (
        elementwise(M, {"x": "fp32"}, {"t": "fp32"}, dtype="fp32"),
        add(M, "fp32", x="t", other="bias", y="u"),
        relu(M, "fp32", x="u", y="y"),
    )
    assert sum(kernel.bytes for kernel in kernels) == 28 * M
    fused = fuse(*kernels)
    assert (fused.bytes, fused.flops) == (12 * M, 3 * M)
    assert fused.name == "elementwise+add+relu"


def test_fused_kernels_add_their_flops():
    fused = fuse(*chain())
    n = 4096 * 4096
    assert fused.flops == fused.vector_flops == n * (7 + 9 + 2 + 1) + 4096 * 4
    assert fused.transcendentals == n + 4096
    mixed = fuse(matmul(2, 3, 4, names=("a", "b", "h")), relu(6, x="h"), name="linear")
    assert (mixed.matrix_flops, mixed.vector_flops, mixed.name) == (48, 6, "linear")
    assert dict(mixed.writes) == {"y": 12}


def test_what_is_needed_outside_is_written():
    kernels = chain()
    n = 2 * 4096 * 4096
    kept = fuse(*kernels, keep=["n", "G"])
    assert kept.bytes == fuse(*kernels).bytes + 2 * n
    assert set(kept.writes) == {"n", "g", "out"}
    assert fuse(*kernels, keep={"out"}).bytes == fuse(*kernels).bytes
    with pytest.raises(UnknownName, match=r"tensor made in this chain 'x'.*Allowed: n, g, d, out"):
        fuse(*kernels, keep=("x",))


def test_passes_survive_only_for_tensors_that_enter():
    n = 800
    first = softmax(8, 100, y="p").reading(x=3)
    assert fuse(first, relu(n, x="p")).bytes == 2 * (3 * n + n)
    second = softmax(8, 100, x="p", y="z").reading(p=3)
    assert fuse(softmax(8, 100, y="p"), second).bytes == 2 * (n + n)
    both = fuse(relu(n, y="r").reading(x=2), add(n, x="r", other="x").reading(x=5))
    assert dict(both.passes) == {"x": 5}
    back = fuse(relu(n, y="r").reading(x=5), add(n, x="r", other="x"))
    assert dict(back.passes) == {"x": 5}
    assert back.bytes == 2 * (5 * n + n)


def test_a_tensor_changed_in_place_is_read_and_written():
    assert fuse(relu(10, y="x")).bytes == 40
    again = fuse(relu(10, y="t"), relu(10, x="t", y="x"))
    assert (dict(again.reads), dict(again.writes)) == ({"x": 20}, {"x": 20})


def test_fusion_keeps_what_is_sent_and_drops_other_levels():
    first = relu(10, y="t").with_traffic(network=7, vmem=100)
    second = relu(10, x="t").with_traffic(network=5)
    assert fuse(first, second).traffic == {"hbm": 40, "network": 12}
    assert total(first, second).traffic == {"hbm": 80, "network": 12, "vmem": 100}


def test_a_tensor_has_one_size():
    with pytest.raises(BadValue, match="tensor 'y' has 16 bytes and then 8"):
        fuse(relu(4, "fp32"), relu(4, "bf16", x="y", y="z"))


def test_the_widest_type_counts_and_that_of_matrix_work_first():
    assert fuse(relu(4, "bf16"), gelu(8, "fp32", x="q", y="z")).dtype == "fp32"
    assert fuse(relu(4, "bf16"), gelu(4, "bf16", x="y", y="z")).dtype == "bf16"
    kernels = (
        relu(4, "fp32"),
        matmul(2, 2, 2, "bf16"),
        matmul(2, 2, 2, "fp8", names=("p", "q", "r")),
    )
    assert total(*kernels).dtype == "bf16"
    assert total(*reversed(kernels)).dtype == "bf16"
    assert total(relu(1, "fp32"), Work("w", {"z": 1}, {}, 1, dtype="fp8")).dtype == "fp8"


def test_a_tensor_is_made_once():
    with pytest.raises(BadValue, match="'y' is made twice"):
        fuse(relu(4), relu(4))


def test_fusing_arrays():
    n = np.array([10, 20])
    fused = fuse(relu(n, y="t"), relu(n, x="t"))
    assert fused.bytes.tolist() == [40, 80]
    with pytest.raises(BadValue, match=r"has .* bytes and then"):
        fuse(relu(n, y="t"), relu(10, x="t"))
    with pytest.raises(BadValue, match=r"broadcast.*relu \(2,\).*relu \(3,\)"):
        fuse(relu(n, y="t"), relu(np.array([1, 2, 3]), x="t"))


def test_total_adds_everything():
    jobs = matmul(2, 3, 4), softmax(8, 100).reading(x=3), all_reduce(100, 4)
    whole = total(*jobs, name="layer")
    assert whole.name == "layer"
    assert [*whole.reads, *whole.writes] == ["all that is read", "all that is written"]
    assert (whole.matrix_flops, whole.vector_flops) == (48, 4000 + 75)
    assert whole.transcendentals == 800
    assert whole.read_bytes == 2 * (8 + 12) + 3 * 1600 + 200
    assert whole.written_bytes == 12 + 1600 + 200
    assert whole.traffic["network"] == 300
    assert dict(whole.passes) == {}
    assert total(relu(1)).name == "total"
    assert total(Work("only writes", {}, {"y": 3})).read_bytes == 0
    mixed = total(relu(np.array([1, 2])), Work("w", {}, {"y": 3}))
    assert mixed.bytes.tolist() == [7, 11]


# --- attention ------------------------------------------------------------------------------------

B, S, T, H, D, K = 2, 8, 16, 4, 32, 2  # batch, queries, keys, heads, head size, KV heads


def test_attention_scores():
    job = attention_scores(B, S, T, H, D, K, "bf16")
    assert job.flops == job.matrix_flops == 2 * B * H * S * T * D
    assert dict(job.reads) == {"q": 2 * B * H * S * D, "k": 2 * B * K * T * D}
    assert dict(job.writes) == {"scores": 2 * B * H * S * T}
    assert job.name == "Q·Kᵀ"


def test_keys_and_heads_default_to_the_queries():
    job = attention_scores(B, S)
    assert job.flops == 2 * B * S * S * 128
    assert job.bytes == 2 * B * (2 * S * 128 + S * S)
    assert attention_scores(B, S, heads=H).reads["k"] == 2 * B * H * S * 128
    naive, flash = naive_attention(B, S), flash_attention(B, S)
    assert sum(kernel.bytes for kernel in naive) == 2 * B * (4 * S * 128 + 4 * S * S)
    assert flash.bytes == 2 * B * 4 * S * 128
    assert flash.matrix_flops == sum(kernel.matrix_flops for kernel in naive) == 4 * B * S * S * 128


@pytest.mark.parametrize("name", ["fp32", "fp8"])
def test_every_kernel_of_attention_has_the_type(name):
    size = {"fp32": 4, "fp8": 1}[name]
    kernels = naive_attention(B, S, T, H, D, K, name)
    assert {kernel.dtype for kernel in kernels} == {name}
    assert [kernel.bytes for kernel in kernels] == [
        size * kernel.bytes // 2 for kernel in naive_attention(B, S, T, H, D, K)
    ]
    assert flash_attention(B, S, T, H, D, K, name).dtype == name


def test_naive_attention():
    scores, normalise, output = kernels = naive_attention(B, S, T, H, D, K, "bf16")
    pairs = B * H * S * T
    assert [kernel.name for kernel in kernels] == ["Q·Kᵀ", "scale+softmax", "P·V"]
    assert scores.matrix_flops == output.matrix_flops == 2 * pairs * D
    assert (normalise.vector_flops, normalise.transcendentals) == (6 * pairs, pairs)
    assert normalise.matrix_flops == output.vector_flops == 0
    q, kv = 2 * B * H * S * D, 2 * B * K * T * D
    assert [kernel.bytes for kernel in kernels] == [
        q + kv + 2 * pairs,
        2 * pairs + 2 * pairs,
        2 * pairs + kv + q,
    ]


def test_flash_attention_leaves_the_scores_inside():
    job = flash_attention(B, S, T, H, D, K, "bf16")
    naive = naive_attention(B, S, T, H, D, K, "bf16")
    assert job.bytes == 2 * (2 * B * H * S * D + 2 * B * K * T * D)
    assert sum(kernel.bytes for kernel in naive) - job.bytes == 4 * 2 * B * H * S * T
    assert job.flops == 4 * B * H * S * T * D + 6 * B * H * S * T
    assert job.name == "flash attention"
    assert (set(job.reads), set(job.writes)) == ({"q", "k", "v"}, {"o"})


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (5, 5), (4, 7), (7, 8)])
def test_causal_attention_counts_the_pairs_that_a_mask_leaves(queries, keys):
    pairs = sum(keys - queries + 1 + i for i in range(queries))  # the last query sees every key
    job = flash_attention(B, queries, keys, H, D, causal=True)
    assert job.matrix_flops == 4 * B * H * pairs * D
    assert job.vector_flops == 6 * B * H * pairs
    assert job.transcendentals == B * H * pairs
    assert job.bytes == flash_attention(B, queries, keys, H, D).bytes
    assert type(job.matrix_flops) is int


def test_causal_attention_of_arrays():
    lengths = np.array([5, 8])
    job = flash_attention(B, lengths, heads=H, head_dim=D, causal=True)
    assert job.matrix_flops.tolist() == [4 * B * H * D * 15, 4 * B * H * D * 36]
    with pytest.raises(BadValue, match="q_len ≤ kv_len, got 9 and 8"):
        flash_attention(B, 9, 8, causal=True)
    assert flash_attention(B, 9, 8).flops > 0


def test_keys_are_read_once_a_block_of_queries():
    job = flash_attention(B, S, T, H, D, K, block_q=3)  # 3 blocks of 8 queries
    assert job.bytes == 2 * (2 * B * H * S * D + 3 * 2 * B * K * T * D)
    assert flash_attention(B, S, T, H, D, K, block_q=S).passes["k"] == 1
    blocks = flash_attention(B, S, T, H, D, K, block_q=[1, 8])
    assert blocks.passes["v"].tolist() == [8, 1]


def test_llama_3_8b_reads_128_kib_of_cache_a_token():
    decode = flash_attention(64, 1, 2048, heads=32, head_dim=128, kv_heads=8, dtype="bf16")
    cache = 32 * (decode.reads["k"] + decode.reads["v"])  # 32 layers
    assert cache == 17_179_869_184
    assert cache // (64 * 2048) == 128 * 1024


def test_grouped_queries_change_bytes_and_not_flops():
    many, few = flash_attention(1, 64, heads=32), flash_attention(1, 64, heads=32, kv_heads=8)
    assert many.flops == few.flops
    assert many.reads["k"] == 4 * few.reads["k"]
    with pytest.raises(BadValue, match=r"heads \(32\) must be a multiple of kv_heads \(5\)"):
        attention_scores(1, 64, heads=32, kv_heads=5)


# --- a transformer block --------------------------------------------------------------------------


def test_a_block_of_the_original_kind():
    b, s, d, h, f = 2, 16, 64, 4, 256
    n = b * s
    names = [kernel.name for kernel in transformer_block(b, s, d, h, f, flash=False)]
    assert names == [
        "layernorm",
        "QKV projection",
        "Q·Kᵀ",
        "scale+softmax",
        "P·V",
        "output projection",
        "add",
        "layernorm",
        "up projection",
        "gelu",
        "down projection",
        "add",
    ]
    block = transformer_block(b, s, d, h, f)
    norm, qkv, attention, out, add1, norm2, up, act, down, add2 = block
    assert [kernel.matrix_flops for kernel in (qkv, attention, out, up, down)] == [
        2 * n * d * 3 * d,
        4 * b * s * s * d,
        2 * n * d * d,
        2 * n * d * f,
        2 * n * f * d,
    ]
    assert [kernel.bytes for kernel in block] == [
        2 * (2 * n * d + 2 * d),
        2 * (n * d + 3 * d * d + 3 * n * d),
        2 * 4 * n * d,
        2 * (2 * n * d + d * d),
        2 * 3 * n * d,
        2 * (2 * n * d + 2 * d),
        2 * (n * d + d * f + n * f),
        2 * 2 * n * f,
        2 * (n * f + f * d + n * d),
        2 * 3 * n * d,
    ]
    assert norm.flops == norm2.flops == 7 * n * d + 4 * n
    assert (act.flops, add1.flops, add2.flops) == (9 * n * f, n * d, n * d)
    assert dict(qkv.writes) == {"q": 2 * n * d, "k, new": 2 * n * d, "v, new": 2 * n * d}
    assert down.dtype == "bf16"


@pytest.mark.parametrize("gated", [False, True])
def test_every_kernel_of_a_block_has_the_type(gated):
    narrow = transformer_block(2, 16, 64, 4, 256, gated=gated)
    wide = transformer_block(2, 16, 64, 4, 256, gated=gated, dtype="fp32")
    assert {kernel.dtype for kernel in wide} == {"fp32"}
    assert [kernel.bytes for kernel in wide] == [2 * kernel.bytes for kernel in narrow]
    assert transformer_block(2, 16, 64, 4, 256, weights="fp32")[1].dtype == "fp32"
    assert [*transformer_block(2, 16, 64, 4, 256, weights="fp32")[1].writes.values()] == [4096] * 3
    assert transformer_block(2, 16, 64, 4, 256, weights="fp32")[-2].writes["f"] == 4096


def test_tensors_of_a_block():
    def tensors(**options):
        block = transformer_block(1, 4, 8, 2, 16, **options)
        return [(" ".join(kernel.reads), " ".join(kernel.writes)) for kernel in block]

    assert tensors() == [
        ("x γ1 β1", "n1"),
        ("n1 W QKV projection", "q k, new v, new"),
        ("q k v", "o"),
        ("o W output projection", "a"),
        ("x a", "x'"),
        ("x' γ2 β2", "n2"),
        ("n2 W up projection", "u"),
        ("u", "h"),
        ("h W down projection", "f"),
        ("x' f", "x''"),
    ]
    gated = tensors(gated=True)
    assert gated[0] == ("x γ1", "n1")
    assert gated[6:9] == [
        ("n2 W gate projection", "g"),
        ("n2 W up projection", "u"),
        ("g u", "h"),
    ]


def test_tensors_of_a_block_lead_from_one_kernel_to_the_next():
    for gated in (False, True):
        block = transformer_block(1, 4, 8, 2, 16, gated=gated)
        made = {"x", "k", "v"}
        for kernel in block:
            enter = [t for t in kernel.reads if not t.startswith(("W ", "γ", "β"))]
            assert set(enter) <= made
            made |= set(kernel.writes)
        fused = fuse(*block)
        assert "x''" in fused.writes
        assert "n1" not in fused.reads


def test_a_decode_step_of_llama_3_8b():
    block = transformer_block(
        4, 1, 4096, 32, 14336, kv_heads=8, kv_len=1000, gated=True, weights="int8"
    )
    norm, qkv, attention, out, _, norm2, gate, up, act, down, _ = block
    assert [kernel.name for kernel in (norm, gate, up, act)] == [
        "rmsnorm",
        "gate projection",
        "up projection",
        "swiglu",
    ]
    widths = [(4096, 6144), (4096, 4096), (4096, 14336), (4096, 14336), (14336, 4096)]
    for kernel, (k, n) in zip((qkv, out, gate, up, down), widths, strict=True):
        assert kernel.matrix_flops == 2 * 4 * k * n
        assert kernel.bytes == 2 * 4 * k + k * n + 2 * 4 * n
        assert kernel.dtype == "bf16"
    assert attention.matrix_flops == 4 * 4 * 32 * 1000 * 128
    assert attention.bytes == 2 * (2 * 4 * 4096 + 2 * 4 * 8 * 1000 * 128)
    assert act.flops == 5 * 4 * 14336
    assert norm2.flops == 4 * (4 * 4096 + 3)
    assert dict(qkv.writes) == {"q": 32768, "k, new": 8192, "v, new": 8192}


def test_a_head_size_of_its_own():
    _, qkv, _, out, *_ = transformer_block(1, 4, 48, 5, 96, head_dim=16)
    assert qkv.matrix_flops == 2 * 4 * 48 * 3 * 80
    assert out.matrix_flops == 2 * 4 * 80 * 48
    with pytest.raises(BadValue, match=r"d_model \(48\) must be a multiple of heads \(5\)"):
        transformer_block(1, 4, 48, 5, 96)
    with pytest.raises(BadValue, match=r"kv_len \(3\) must be at least seq \(4\)"):
        transformer_block(1, 4, 48, 4, 96, kv_len=3)
    assert transformer_block(1, 4, 48, 4, 96, kv_len=4)[2].flops > 0


def test_a_block_over_many_batches():
    batches = np.array([1, 2])
    block = transformer_block(batches, 16, 64, 4, 256)
    one, two = (transformer_block(n, 16, 64, 4, 256) for n in (1, 2))
    assert total(*block).bytes.tolist() == [total(*one).bytes, total(*two).bytes]
    assert total(*block).flops.tolist() == [total(*one).flops, total(*two).flops]


# --- collectives ----------------------------------------------------------------------------------


def test_all_gather():
    job = all_gather(1024, 4, "bf16")
    assert job.traffic == {"hbm": 512 + 2048, "network": 1536}
    assert (job.flops, job.name) == (0, "all-gather")
    assert (dict(job.reads), dict(job.writes)) == ({"shard": 512}, {"gathered": 2048})


def test_all_reduce():
    job = all_reduce(1024, 4, "fp32")
    assert job.traffic == {"hbm": 2 * 4096, "network": 2 * 3072}
    assert (job.flops, job.name, job.dtype) == (768, "all-reduce", "fp32")
    assert job.vector_flops == 768
    assert (dict(job.reads), dict(job.writes)) == ({"summand": 4096}, {"sum": 4096})
    assert all_reduce(8, 2).traffic == all_reduce(8, 2, "bf16").traffic
    assert all_gather(8, 2, "int8").dtype == all_reduce(8, 2, "int8").dtype == "int8"


def test_the_busiest_chip_of_an_uneven_ring_counts():
    assert all_gather(10, 4).traffic == {"hbm": 6 + 20, "network": 16}  # shards 3, 3, 2, 2
    assert all_reduce(10, 4).traffic["network"] == 32
    assert all_reduce(1, 2).traffic["network"] == 4
    assert all_gather(np.array([10, 1024]), 2).traffic["network"].tolist() == [10, 1024]
    assert all_gather(10, 2).traffic["network"] == 10
    with pytest.raises(BadValue, match="at least 2 chips, got 1"):
        all_reduce(1024, 1)


def test_a_network_ceiling_bounds_an_all_reduce():
    roof = rh.chip("v7x").roofline("bf16", network="ici")
    job = all_reduce(2**30, 4)
    assert roof.bound(job) == "network"
    assert roof.time(job) == pytest.approx(2 * 0.75 * 2**31 / 600e9)


def test_exact_integers_at_any_size():
    job = matmul(10**15 + 1, 3, 10**15 + 3)
    assert job.flops == 6 * (10**15 + 1) * (10**15 + 3)
    assert flash_attention(10**9 + 7, 3, 5, causal=True).transcendentals == (10**9 + 7) * 12
    with pytest.raises(BadType, match=r"names must be a sequence of 3, got \('a', 'b'\)"):
        matmul(1, 1, 1, names=("a", "b"))
