"""The class that every count by hand returns."""

import pytest

from roofline_helpers import BadValue, UnknownName, Work
from roofline_helpers.work import flash_attention, fuse, matmul, relu, softmax, total


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


def test_reading_more_than_once():
    job = softmax(4, 8, "fp32")
    assert job.reading(x=3).bytes == 4 * (3 * 32 + 32)
    assert job.reading(x=3).flops == job.flops
    with pytest.raises(UnknownName, match=r"tensor read by softmax 'z'.*Allowed: x"):
        job.reading(z=2)


def test_traffic_at_other_levels():
    job = matmul(2, 3, 4).with_traffic(vmem=96).with_traffic(network=8)
    assert job.traffic == {"hbm": 2 * (8 + 12 + 6), "vmem": 96, "network": 8}
    assert job.intensity_at("vmem") == 48 / 96
    with pytest.raises(BadValue, match="hbm follows from reads and writes"):
        job.with_traffic(hbm=1)
    assert total(relu(8).with_traffic(L2=1), relu(8).with_traffic(l2=2)).others == {"l2": 3}
    assert fuse(relu(8, y="t").with_traffic(Network=1), relu(8, x="t")).others == {"network": 1}


def test_transcendentals_are_part_of_the_vector_flops():
    assert Work("job", {"x": 1}, {}, vector_flops=5, transcendentals=5).flops == 5
    with pytest.raises(BadValue, match=r"at most the vector FLOPs, got 6.* and 5"):
        Work("job", {"x": 1}, {}, vector_flops=5, transcendentals=6)


def test_exact_integers_at_any_size():
    job = matmul(10**15 + 1, 3, 10**15 + 3)
    assert job.flops == 6 * (10**15 + 1) * (10**15 + 3)
    assert flash_attention(10**9 + 7, 3, 5, causal=True).transcendentals == (10**9 + 7) * 12
