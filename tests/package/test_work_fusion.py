"""Kernels fused, and added up."""

from dataclasses import replace

import numpy as np
import pytest

from roofline_helpers import UnknownName, Work
from roofline_helpers.work import all_reduce, fuse, fusion_chain, gelu, matmul, relu, softmax, total

SIDE = 4096
TENSOR = 2 * SIDE**2  # bytes of one tensor of the chain
PARAMETERS = 2 * 2 * SIDE  # γ and β


def chain():
    """LayerNorm → GELU → dropout → + residual, all bf16: a, b and c lead from one to the next."""
    return fusion_chain(SIDE, SIDE)


def test_the_chain_goes_from_ten_tensors_to_four():
    kernels, fused = chain(), fuse(*chain())
    assert sum(kernel.bytes for kernel in kernels) == 10 * TENSOR + PARAMETERS
    assert set(fused.reads) == {"x", "γ", "β", "mask", "residual"}
    assert set(fused.writes) == {"y"}
    assert fused.bytes == 4 * TENSOR + PARAMETERS
    assert total(*kernels).bytes / fused.bytes == pytest.approx(2.5, rel=2e-4)


def test_fused_kernels_add_their_flops():
    fused = fuse(*chain())
    n = SIDE**2
    assert fused.flops == fused.vector_flops == n * (7 + 9 + 2 + 1) + SIDE * 4
    assert fused.transcendentals == n + SIDE
    mixed = fuse(matmul(2, 3, 4, names=("a", "b", "h")), relu(6, x="h"), name="linear")
    assert (mixed.matrix_flops, mixed.vector_flops, mixed.name) == (48, 6, "linear")
    assert dict(mixed.writes) == {"y": 12}


def test_what_is_needed_outside_is_written():
    kernels = chain()
    kept = fuse(*kernels, keep=["a", "B"])
    assert kept.bytes == fuse(*kernels).bytes + 2 * TENSOR
    assert set(kept.writes) == {"a", "b", "y"}
    assert fuse(*kernels, keep={"y"}).bytes == fuse(*kernels).bytes
    with pytest.raises(UnknownName, match=r"tensor made in this chain 'x'.*Allowed: a, b, c, y"):
        fuse(*kernels, keep=("x",))


def test_the_widest_type_counts_and_that_of_matrix_work_first():
    assert fuse(relu(4, "bf16"), gelu(8, "fp32", x="q", y="z")).dtype == "fp32"
    assert fuse(relu(4, "bf16"), gelu(4, "bf16", x="y", y="z")).dtype == "bf16"
    assert total(relu(1, "fp32"), Work("w", {"z": 1}, {}, 1, dtype="fp8")).dtype == "fp8"


def test_total_adds_everything():
    jobs = matmul(2, 3, 4), softmax(8, 100).reading(x=3), all_reduce(100, 4)
    whole = total(*jobs)
    assert [*whole.reads, *whole.writes] == ["all that is read", "all that is written"]
    assert (whole.matrix_flops, whole.vector_flops) == (48, 4000 + 75)
    assert whole.transcendentals == 800
    assert whole.read_bytes == 2 * (8 + 12) + 3 * 1600 + 200
    assert whole.written_bytes == 12 + 1600 + 200
    assert whole.traffic["network"] == 300
    mixed = total(relu(np.array([1, 2])), Work("w", {}, {"y": 3}))
    assert mixed.bytes.tolist() == [7, 11]


def test_a_fused_kernel_reads_as_often_as_the_kernel_with_the_most_passes():
    first = Work("first", {"x": 16, "w": 6}, {"t": 16}, passes={"x": 2, "w": 4})
    second = Work("second", {"t": 16, "x": 16}, {"y": 16}, passes={"t": 5, "x": 3})
    for pair in ((first, second), (replace(second, reads={"x": 16}, passes={"x": 3}), first)):
        fused = fuse(*pair)
        assert dict(fused.passes) == {"x": 3, "w": 4}
        assert fused.read_bytes == 3 * 16 + 4 * 6
