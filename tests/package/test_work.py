"""The class that every count by hand returns."""

import math

import pytest

from roofline_helpers import BadValue, UnknownName, Work, work
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


def test_a_kernel_shows_its_counts():
    job = matmul([200, 300], 30, 50).with_traffic(L2=7000)
    assert repr(job) == (
        "<matmul in bf16: 600 kFLOP to 900 kFLOP, 35 kB to 51 kB, 7 kB, 17.1 FLOP/byte to "
        "17.6 FLOP/byte>"
    )
    assert repr(relu(250, "fp32")) == "<relu in fp32: 250 FLOP, 2 kB, 0.125 FLOP/byte>"


def test_what_never_crosses_the_main_memory():
    inside = Work("inside", {}, {}, 8, others={"vmem": 4})
    assert (inside.intensity, inside.intensity_at("vmem")) == (math.inf, 2)
    with pytest.raises(BadValue, match="at least one byte"):
        Work("sent", {}, {}, 8, others={"network": 4})
    with pytest.raises(BadValue, match=r"passes over x must be at least 1, got 0\.5"):
        relu(8).reading(x=0.5)


GROUPED = "tokens=6 hidden=8 inter=4 experts=3 top_k=2 local_experts=1"
NAMED = [  # the name and the sizes under which measured kernels and laws are found
    (matmul(2, 3, 5, b="int8"), "matmul m=2 n=3 k=5 weight_bits=8"),
    (matmul(2, 3, 5, batch=7), " m=2 n=3 k=5 weight_bits=16"),
    (
        work.grouped_matmul(6, 8, 4, 3, 2, local_experts=1),
        f"grouped_matmul {GROUPED} weight_bits=16",
    ),
    (
        work.grouped_matmul(6, 8, 4, 3, 2, local_experts=1, weights="fp8"),
        f"grouped_matmul {GROUPED} weight_bits=8",
    ),
    *((op(8), op.__name__) for op in (relu, work.gelu, work.swiglu, work.add)),
    (work.dropout(8), ""),
    *(
        (op(8, 100), f"{op.__name__} columns=100")
        for op in (work.reduction, work.layernorm, work.rmsnorm, softmax)
    ),
    *(
        (
            flash_attention(3, queries, keys, 12, 32, 2, causal=causal, kv_dtype=stored),
            f"{kind} batch=3 q_len={queries} kv_len={keys} heads=12 head_dim=32 kv_heads=2 "
            f"kv_bits={16 if stored is None else 8}",
        )
        for queries, keys, causal, stored, kind in (
            (1, 16, False, "fp8", "decode_attention"),
            (7, 7, True, None, "prefill_attention"),
            (7, 7, False, None, ""),
            (7, 9, True, None, ""),
        )
    ),
    *(
        (
            work.latent_attention(3, queries, 16, 5, kv_dtype="fp8"),
            f"{kind} batch=3 q_len={queries} kv_len=16 heads=5 kv_bits=8",
        )
        for queries, kind in ((1, "decode_mla"), (16, "prefill_mla"))
    ),
    (fuse(relu(8, y="t"), relu(8, x="t")), ""),
]


@pytest.mark.parametrize(("job", "named"), NAMED)
def test_the_name_and_the_sizes_that_laws_know(job, named):
    assert " ".join([job.kind, *(f"{name}={n}" for name, n in job.dims.items())]) == named
