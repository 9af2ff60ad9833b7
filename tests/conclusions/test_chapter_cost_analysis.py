"""Conclusions of the chapter cost-analysis: each test would refute one."""

import json

import jax
import pytest
from conclusions import kept

from tools import books


def test_xla_and_inductor_fuse_alike_on_a_gpu_but_after_a_matmul():
    text = (books.ROOT / "roofline/data/compared/compilers.json").read_text("utf-8")
    gpu, tensor = json.loads(text)["programs"], 2 * 8192**2
    records = {"x.T + y": "transpose", "x[::2] + y": "slice", "x[indices] + y": "gather"}
    records |= {"softmax(x)": "softmax", "layernorm(x)": "layernorm"}
    for name, one in gpu.items():
        on_gpu = sum(size > tensor / 1000 for size in one["xla"].values())
        inductor = sum("_per_" not in kernel for kernel in one["inductor"])
        ratio = one["inductor_seconds"] / one["xla_seconds"]
        assert (on_gpu == inductor) == (name not in ("gelu(x @ w) · (x @ w)", "relu(x @ w + b)"))
        if "@" not in name:
            assert 1.5 < ratio < 2 if name == "softmax(x)" else 0.9 < ratio < 1.1
        if name in records:
            tpu = kept()[f"fuse-{records[name]}", "v6e"]
            on_tpu = sum(kernel.hbm_bytes > tensor / 1000 for kernel in tpu.kernels)
            assert on_tpu > on_gpu == 1
    twice, epilogue = gpu["gelu(x @ w) · (x @ w)"], gpu["relu(x @ w + b)"]
    assert twice["xla_seconds"] < 0.55 * twice["inductor_seconds"]
    assert epilogue["inductor_seconds"] < 1.05 * epilogue["xla_seconds"]


def test_two_matmuls_are_one_kernel_where_the_rows_between_them_fit():
    """Chapter 6: with 256 rows on v6e and v7x, not on v5e, and not with 8192 rows."""

    def matmuls(name, chip):
        counts = [k.work.operations.get("convolution", 0) for k in kept()[name, chip].kernels]
        return [count for count in counts if count]

    assert {chip: matmuls("fuse-thin", chip) for chip in ("v5e", "v6e", "v7x")} == {
        "v5e": [1, 1],
        "v6e": [2],
        "v7x": [2],
    }
    assert matmuls("fuse-matmuls", "v6e") == [1, 1]


def test_lowered_counts_that_mislead():
    """Chapter 6: windowed sums and masks are counted whole; of rows only a compiled table is."""

    def lowered(fn, *shapes):
        return jax.jit(fn).lower(*shapes)

    shape = jax.ShapeDtypeStruct
    running = lowered(jax.numpy.cumsum, shape((8192,), "float32"))
    assert running.cost_analysis()["flops"] > 8000 * 8191
    assert running.compile().cost_analysis()["flops"] < 100 * 8191
    qkv = shape((1, 256, 16, 128), "float32")

    def causal(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    half = 2 * 2 * 16 * 256**2 * 128 / 2
    assert lowered(causal, qkv, qkv, qkv).cost_analysis()["flops"] == pytest.approx(
        2 * half, rel=0.05
    )
    for dtype, width in (("bfloat16", 2), ("float32", 4)):
        rows = lowered(lambda t, i: t[i], shape((32000, 256), dtype), shape((64,), "int32"))
        moved = 2 * 64 * 256 * width
        assert rows.cost_analysis()["bytes accessed"] == pytest.approx(moved, rel=0.06)
        assert rows.compile().cost_analysis()["bytes accessed"] > 32000 * 256 * width
