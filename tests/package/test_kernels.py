"""The Pallas kernels against fp64 references, interpreted here and compiled for every TPU.

Tolerances are worked out, never tuned. A value that is stored in a type of unit roundoff u carries
u times its size. Work inside is fp32: a sum of n terms adds (16 + √n) · 2⁻²⁴ times the sum of
their sizes, the 16 for the dozen operations around it. Where a kernel rounds an intermediate to
the arrays' type, as attention does with the weights, that rounding counts the same way.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import compiled
from roofline_helpers._checks import BadType, BadValue, UnknownName

jax = pytest.importorskip("jax", reason="JAX is not installed: no kernel can run")
jnp = jax.numpy
from roofline_helpers import kernels  # noqa: E402

TPUS = ("v5e", "v5p", "v6e", "v7x")
MISSING = {chip: compiled.can_compile(chip) for chip in TPUS}
ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
INSIDE = 2.0**-24
RATE = 0.25
KEEP = 1 / (1 - RATE)

QUICK = {"xla_backend_optimization_level": 0}  # half of the time here is XLA compiling for the CPU


def x64() -> Any:
    """Return a context in which JAX computes in fp64."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64()


def compiled_quickly(function: Any, *arrays: Any) -> Any:
    return jax.jit(function).lower(*arrays).compile(compiler_options=QUICK)(*arrays)


def wide(array: Any) -> Any:
    return np.asarray(array.astype("float32") if hasattr(array, "astype") else array, np.float64)


def near(found: Any, wanted: Any, tolerance: Any) -> None:
    """Assert that all elements are within their tolerance; NaN never is."""
    error = np.abs(wide(found) - np.asarray(wanted, np.float64))
    assert error.shape == np.shape(wanted)
    worst = float(np.max(error / (tolerance + np.zeros_like(error))))
    assert worst <= 1, f"the worst error is {worst:.3g} times what its arithmetic explains"


# --- the LayerNorm chain ------------------------------------------------------------------------


def chain(x: Any, gamma: Any, beta: Any, mask: Any, residual: Any) -> Any:
    """Compute the chain in plain JAX, in the type that the arrays have."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    u = centred / jnp.sqrt(variance + 1e-5) * gamma + beta
    gelu = 0.5 * u * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
    return residual + gelu * mask * KEEP


def chain_arrays(
    shape: tuple[int, ...], dtype: str, mean: float = 0.0, mask: str = "int8", seed: int = 0
) -> list[Any]:
    """Return x, γ, β, mask, residual and dy."""
    rng = np.random.default_rng([seed, *shape])
    kept = jnp.asarray(rng.random(shape) > RATE, mask)
    x, residual, dy = (jnp.asarray(rng.normal(size=shape), dtype) for _ in range(3))
    gamma, beta = (jnp.asarray(rng.normal(size=shape[-1:]), dtype) for _ in range(2))
    if mean:
        x = jnp.asarray(mean + rng.normal(size=shape), dtype)
    return [x, gamma, beta, kept, residual, dy]


def chain_tolerances(arrays: list[Any], results: Any) -> list[Any]:
    """Return what rounding explains in y, dx, dγ, dβ and d residual."""
    x, gamma, beta, mask, residual, dy = (wide(each) for each in arrays)
    columns, rows = x.shape[-1], x.size // x.shape[-1]
    spread = 1 / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)
    normal = np.abs(x - x.mean(axis=-1, keepdims=True)) * spread
    along, down = ((16 + math.sqrt(n)) * INSIDE for n in (columns, rows))
    gelu = np.abs(normal * gamma) + np.abs(beta)  # gelu'' and gelu' stay below 1.13
    d = 1.13 * np.abs(dy) * mask * KEEP * (1 + gelu)  # gelu' carries an error of u's own size
    g = np.abs(d * gamma)
    over = tuple(range(x.ndim - 1))
    sizes = [
        along * (np.abs(residual) + 1.13 * gelu * mask * KEEP * (1 + normal.max())),
        along * spread * (g + g.mean(axis=-1, keepdims=True) * (1 + normal) * (1 + normal.max())),
        (along * (1 + normal.max()) + down) * np.sum(d * normal, axis=over),
        (along * (1 + normal.max()) + down) * np.sum(d, axis=over),
        np.zeros_like(x),
    ]
    stored = [ROUNDOFF[str(arrays[i].dtype)] for i in (0, 0, 1, 2, 4)]
    return [
        size + roundoff * np.abs(result) + 1e-30
        for size, roundoff, result in zip(sizes, stored, results, strict=True)
    ]


def chain_reference(arrays: list[Any]) -> list[Any]:
    """Return y, dx, dγ, dβ and d residual in fp64: the gradients by jax.grad."""

    def both(x: Any, gamma: Any, beta: Any, mask: Any, residual: Any, dy: Any) -> Any:
        y, pull = jax.vjp(lambda x, g, b, r: chain(x, g, b, mask, r), x, gamma, beta, residual)
        return [y, *pull(dy)]

    with x64():
        wanted = [np.asarray(each) for each in compiled_quickly(both, *map(wide, arrays))]
    assert wanted[0].dtype == np.float64
    return wanted


def chain_results(arrays: list[Any], **options: Any) -> list[Any]:
    def both(x: Any, gamma: Any, beta: Any, mask: Any, residual: Any, dy: Any) -> Any:
        def run(x: Any, gamma: Any, beta: Any, residual: Any) -> Any:
            return kernels.layernorm_gelu_dropout_residual(
                x, gamma, beta, mask, residual, rate=RATE, **options
            )

        y, pull = jax.vjp(run, x, gamma, beta, residual)
        return [y, *pull(dy)]

    return list(compiled_quickly(both, *arrays))


CHAINS = [  # layout, shape, type, mask, blocks, mean
    ("tpu", (1, 1), "float32", "int8", None, 0.0),
    ("gpu", (1, 1), "bfloat16", "int8", None, 0.0),
    ("tpu", (1, 130), "bfloat16", "int8", None, 0.0),
    ("gpu", (7, 1), "float32", "float32", None, 0.0),
    ("tpu", (2, 9, 33), "float32", "int8", None, 1e4),
    ("gpu", (17, 33), "bfloat16", "bfloat16", kernels.Blocks(rows=4, step=2), 0.0),
    ("gpu", (3, 3000), "float32", "int8", None, 1e4),
    ("tpu", (32, 40), "float32", "float32", kernels.Blocks(rows=16, step=8), -1e4),
    ("tpu", (3, 3000), "float16", "int8", None, 0.0),
]


@pytest.mark.parametrize(("layout", "shape", "dtype", "mask", "blocks", "mean"), CHAINS)
def test_chain_and_its_gradients(
    layout: str, shape: Any, dtype: str, mask: str, blocks: Any, mean: float
) -> None:
    arrays = chain_arrays(shape, dtype, mean, mask)
    wanted = chain_reference(arrays)
    found = chain_results(arrays, layout=layout, blocks=blocks)
    assert [str(each.dtype) for each in found] == [dtype] * 5
    for result, reference, tolerance in zip(
        found, wanted, chain_tolerances(arrays, wanted), strict=True
    ):
        near(result, reference, tolerance)


def faulty(fault: str) -> Any:
    def standardise(self: Any, x: Any, i: Any) -> Any:
        mean = self.mean(x)
        if fault == "naive variance":  # mean(x²) − mean²
            variance = jnp.maximum(self.mean(x * x) - mean * mean, 0.0)
        elif fault == "masked lanes count":  # each adds mean²
            variance = self.mean((x - mean) ** 2)
        else:  # the mean's own rounding is left in
            variance = self.mean(jnp.where(self.inside(i), x - mean, 0.0) ** 2)
        inverse = jax.lax.rsqrt(variance + self.eps)
        return jnp.where(self.inside(i), (x - mean) * inverse, 0.0), inverse

    return standardise


@pytest.mark.parametrize("fault", ["naive variance", "masked lanes count", "slip left in"])
def test_the_tolerance_finds_wrong_variances(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels._Rows, "standardise", faulty(fault))
    arrays = chain_arrays((3, 3000), "float32", mean=1e4, seed=1)
    jax.clear_caches()
    try:
        y = kernels.layernorm_gelu_dropout_residual(*arrays[:5], rate=RATE, layout="gpu")
    finally:
        jax.clear_caches()
    wanted = chain_reference(arrays)
    with pytest.raises(AssertionError, match="the worst error"):
        near(y, wanted[0], chain_tolerances(arrays, wanted)[0])


@pytest.mark.parametrize("layout", kernels.LAYOUTS)
def test_layernorm_gelu_is_the_chain_without_its_end(layout: str) -> None:
    arrays = chain_arrays((5, 77), "float32")
    x, gamma, beta, *_, dy = arrays
    ends = [*arrays[:3], jnp.ones_like(x) / KEEP, jnp.zeros_like(x), dy]
    wanted = chain_reference(ends)

    def run(x: Any, gamma: Any, beta: Any) -> Any:
        return kernels.layernorm_gelu(x, gamma, beta, layout=layout)

    y, pull = jax.vjp(run, x, gamma, beta)
    tolerances = chain_tolerances(ends, wanted)
    for result, reference, tolerance in zip((y, *pull(dy)), wanted[:4], tolerances, strict=False):
        near(result, reference, tolerance)


def test_a_constant_row_gives_beta() -> None:
    x, gamma, beta, *_ = chain_arrays((3, 100), "float32")
    y = kernels.layernorm_gelu(jnp.full_like(x, 12345.678), gamma, beta)
    u = wide(beta)
    wanted = 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
    near(y, np.broadcast_to(wanted, x.shape), 16 * INSIDE * (1 + np.abs(u)) ** 2)


def test_a_cpu_takes_any_step() -> None:
    x, one = jnp.linspace(-3, 3, 40 * 8).reshape(40, 8), jnp.ones(8)

    def sum_of(x: Any, blocks: Any) -> Any:
        return kernels.layernorm_gelu(x, one, one, blocks=blocks).sum()

    value = jax.value_and_grad(sum_of)
    for got, want in zip(value(x, kernels.Blocks(step=24)), value(x, None), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_gelu_at_its_ends() -> None:
    u = jnp.asarray([-1e4, -40.0, -6.0, 0.0, 6.0, 40.0, 1e4], jnp.float32)
    value, slope = kernels._gelu(u)
    assert value[:2].tolist() == [0, 0]
    assert value[3:].tolist() == pytest.approx([0, 6, 40, 1e4], rel=1e-6)
    assert float(value[2]) == pytest.approx(-6 / (1 + math.exp(1.5957691216 * 15.65844)), rel=1e-4)
    assert slope[:2].tolist() == [0, 0]
    assert slope[3:].tolist() == pytest.approx([0.5, 1, 1, 1], rel=1e-6)


def test_bool_and_integer_masks_agree() -> None:
    x, gamma, beta, mask, residual, _ = chain_arrays((4, 50), "bfloat16")
    first = [
        kernels.layernorm_gelu_dropout_residual(x, gamma, beta, m, residual, rate=RATE)
        for m in (mask, mask.astype(bool), mask.astype("bfloat16"))
    ]
    assert all(np.array_equal(wide(first[0]), wide(each)) for each in first[1:])


# --- attention ----------------------------------------------------------------------------------


def visible(q_len: int, kv_len: int, causal: bool, mask: Any) -> Any:
    seen = np.zeros((q_len, kv_len)) if mask is None else mask
    if not causal:
        return seen
    later = np.arange(kv_len) > np.arange(q_len)[:, None] + kv_len - q_len
    return np.where(later, -np.inf, seen)


def plain_attention(q: Any, k: Any, v: Any, hidden: Any) -> tuple[Any, Any, Any]:
    """Compute attention with all scores at once; rows that see nothing give zeros."""
    group = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, group, axis=1), jnp.repeat(v, group, axis=1)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[3]) + hidden
    highest = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - jax.lax.stop_gradient(jnp.where(jnp.isinf(highest), 0, highest)))
    total = jnp.sum(weights, axis=-1, keepdims=True)
    weights = weights / jnp.where(total == 0, 1, total)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v), weights, scores


def attention_tolerances(
    q: Any, k: Any, v: Any, do: Any, weights: Any, scores: Any, results: Any
) -> list[Any]:
    """Return what rounding explains in O, dQ, dK and dV."""
    dtype = str(q.dtype)
    q, k, v, do = (wide(each) for each in (q, k, v, do))
    group = q.shape[1] // k.shape[1]
    scale, stored = 1 / math.sqrt(q.shape[3]), ROUNDOFF[dtype]
    seen = np.isfinite(scores)
    # A score's own error is the error of a weight, relative to it
    size = scale * np.einsum("bhqd,bhkd->bhqk", np.abs(q), np.abs(np.repeat(k, group, 1)))
    score = (16 + math.sqrt(q.shape[3])) * INSIDE * (1 + 2 * np.max(size * seen, initial=0))
    inside = score + (16 + math.sqrt(max(q.shape[2], k.shape[2]))) * INSIDE
    step = inside + (stored if dtype != "float32" else 0)  # weights and dS, rounded for a product
    wide_v, wide_k = np.repeat(np.abs(v), group, 1), np.repeat(np.abs(k), group, 1)
    out = np.einsum("bhqk,bhkd->bhqd", weights, wide_v)
    # dS = P ∘ (dO·Vᵀ − δ): twice the sizes of both, δ = dO·O is worked out from O as it is stored
    d_weights = np.einsum("bhqd,bhkd->bhqk", np.abs(do), wide_v)
    d_scores = weights * (d_weights + np.sum(np.abs(do) * out, axis=-1, keepdims=True))

    def shared(each: Any) -> Any:
        return each.reshape(k.shape[0], k.shape[1], group, *each.shape[2:]).sum(axis=2)

    sizes = [
        out,
        2 * scale * np.einsum("bhqk,bhkd->bhqd", d_scores, wide_k),
        2 * scale * shared(np.einsum("bhqk,bhqd->bhkd", d_scores, np.abs(q))),
        shared(np.einsum("bhqk,bhqd->bhkd", weights, np.abs(do))),
    ]
    return [
        step * each + stored * np.abs(result) + 1e-30
        for each, result in zip(sizes, results, strict=True)
    ]


# layout, (batch, heads, kv_heads, q_len, kv_len, head_dim), type, causal, mask, blocks
ATTENTIONS = [
    ("tpu", (1, 1, 1, 1, 1, 1), "float32", False, None, None),
    ("gpu", (1, 2, 1, 1, 17, 5), "bfloat16", True, None, None),
    ("gpu", (2, 4, 2, 37, 51, 20), "float32", True, "bool", kernels.Blocks(q=16, kv=16)),
    ("tpu", (1, 2, 2, 130, 140, 8), "float32", True, None, kernels.Blocks(q=128, kv=128)),
    ("tpu", (2, 2, 1, 33, 200, 16), "bfloat16", False, "heads", kernels.Blocks(q=128, kv=128)),
    ("gpu", (1, 1, 1, 70, 20, 16), "float16", True, None, kernels.Blocks(q=16, kv=16)),
    # blocks before the diagonal, on it and beyond; wider than high, and higher than wide
    ("gpu", (1, 1, 1, 100, 133, 16), "float32", True, None, kernels.Blocks(q=16, kv=32)),
    ("gpu", (1, 1, 1, 133, 133, 16), "float32", True, None, kernels.Blocks(q=64, kv=16)),
]


@pytest.mark.parametrize(("layout", "shape", "dtype", "causal", "masked", "blocks"), ATTENTIONS)
def test_attention_and_its_gradients(
    layout: str, shape: Any, dtype: str, causal: bool, masked: str | None, blocks: Any
) -> None:
    batch, heads, kv_heads, q_len, kv_len, width = shape
    rng = np.random.default_rng(shape)
    q, do = (jnp.asarray(rng.normal(size=(batch, heads, q_len, width)), dtype) for _ in range(2))
    k, v = (jnp.asarray(rng.normal(size=(batch, kv_heads, kv_len, width)), dtype) for _ in "kv")
    mask, added = None, None
    if masked == "bool":
        seen = rng.random((batch, 1, q_len, kv_len)) > 0.4
        seen[:, :, 3] = False  # a row that sees nothing
        mask, added = jnp.asarray(seen), np.where(seen, 0, -np.inf)
    elif masked == "heads":  # one for each head, floats, the same for all queries
        added = np.where(rng.random((heads, 1, kv_len)) > 0.4, 0.5, -np.inf)
        mask = jnp.asarray(added, dtype)
    hidden = visible(q_len, kv_len, causal, added)

    def reference(q: Any, k: Any, v: Any, do: Any) -> Any:
        def run(*qkv: Any) -> Any:
            o, weights, scores = plain_attention(*qkv, hidden)
            return o, (weights, scores)

        o, pull, (weights, scores) = jax.vjp(run, q, k, v, has_aux=True)
        return [weights, scores, o, *pull(do)]

    def both(q: Any, k: Any, v: Any, do: Any) -> Any:
        def run(*qkv: Any) -> Any:
            return kernels.attention(*qkv, causal=causal, mask=mask, layout=layout, blocks=blocks)

        o, pull = jax.vjp(run, q, k, v)
        return [o, *pull(do)]

    with x64():
        every = compiled_quickly(reference, *map(wide, (q, k, v, do)))
        weights, scores, *wanted = map(np.asarray, every)
    found = compiled_quickly(both, q, k, v, do)
    blind = ~np.isfinite(scores).any(axis=-1)
    assert blind.any() == (masked == "bool" or q_len > kv_len)
    assert not wide(found[0])[blind].any()
    assert not wide(found[1])[blind].any()
    tolerances = attention_tolerances(q, k, v, do, weights, scores, wanted)
    for result, reference, tolerance in zip(found, wanted, tolerances, strict=True):
        assert str(result.dtype) == dtype
        near(result, np.where(np.isnan(reference), 0, reference), tolerance)


def test_attention_survives_large_scores() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(1, 1, 16, 16)), "float32") for _ in "qkv")
    o = kernels.attention(100 * q, 100 * k, v)
    nearest = np.argmax(wide(q)[0, 0] @ wide(k)[0, 0].T, axis=1)
    near(o[0, 0], wide(v)[0, 0][nearest], 1e-6)


# --- three ways to run --------------------------------------------------------------------------


def spec(*shape: int, dtype: Any = "bfloat16") -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def needs(chip: str) -> None:
    if MISSING[chip] is not None:
        pytest.skip(f"NOT TESTED for {chip}: {MISSING[chip]}")


def total(arrays: Any) -> Any:
    return sum(jnp.sum(each.astype(jnp.float32)) for each in jax.tree.leaves(arrays))


@pytest.mark.parametrize("chip", TPUS)
def test_a_tpu_runs_the_chain_in_one_kernel(chip: str) -> None:
    needs(chip)
    rows, columns = 16384, 4096
    x, vector = spec(rows, columns), spec(columns)
    report = compiled.analyze(
        lambda *a: kernels.layernorm_gelu_dropout_residual(*a, rate=0.1),
        x,
        vector,
        vector,
        x,
        x,
        chip=chip,
    )
    job = kernels.chain_work(rows, columns, "bf16")
    assert isinstance(job, rh.Work)
    assert report.hbm_bytes == pytest.approx(job.bytes, rel=0.001)
    assert report.flops == pytest.approx(job.flops, rel=0.001)
    assert report.transcendentals == pytest.approx(job.transcendentals, rel=0.001)


@pytest.mark.parametrize("chip", TPUS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(1, 1), (17, 3000)])
def test_a_tpu_compiles_the_chain_and_its_gradient(chip: str, dtype: str, shape: Any) -> None:
    needs(chip)
    x, vector = spec(*shape, dtype=dtype), spec(shape[1], dtype=dtype)

    def loss(x: Any, gamma: Any, beta: Any, mask: Any, residual: Any) -> Any:
        return total(
            kernels.layernorm_gelu_dropout_residual(x, gamma, beta, mask, residual, rate=0.1)
        )

    mask = spec(*shape, dtype="int8")
    compiled.analyze(jax.value_and_grad(loss, (0, 1, 2, 4)), x, vector, vector, mask, x, chip=chip)


@pytest.mark.parametrize("chip", TPUS)
@pytest.mark.parametrize(("dtype", "masked"), [("bfloat16", True), ("float32", False)])
def test_a_tpu_compiles_attention_and_its_gradient(chip: str, dtype: str, masked: bool) -> None:
    needs(chip)
    q, k = spec(2, 4, 300, 64, dtype=dtype), spec(2, 2, 450, 64, dtype=dtype)
    mask = [spec(2, 1, 300, 450, dtype="bool")] * masked

    def loss(q: Any, k: Any, v: Any, *mask: Any) -> Any:
        return total(kernels.attention(q, k, v, causal=True, mask=mask[0] if mask else None))

    compiled.analyze(jax.value_and_grad(loss, (0, 1, 2)), q, k, k, *mask, chip=chip)


def some_gpu() -> Any:
    """Return a context in which JAX from 0.11 on takes a GPU for granted, as its lowering asks."""
    try:
        from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

        device = AbstractDevice("NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu")
        return use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device))
    except (ImportError, TypeError):  # before that it does not ask
        return contextlib.nullcontext()


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_gpu_gets_triton(dtype: str) -> None:
    pytest.importorskip("jax.experimental.pallas.triton", reason="no Triton in this jaxlib")
    x, vector, mask = (
        spec(*s, dtype=t) for s, t in (((17, 3000), dtype), ((3000,), dtype), ((17, 3000), "int8"))
    )
    q, k = spec(2, 4, 300, 80, dtype=dtype), spec(2, 2, 450, 80, dtype=dtype)

    def chain_loss(x: Any, gamma: Any, beta: Any, mask: Any, residual: Any) -> Any:
        return total(
            kernels.layernorm_gelu_dropout_residual(x, gamma, beta, mask, residual, rate=0.1)
        )

    def attention_loss(q: Any, k: Any, v: Any) -> Any:
        return total(kernels.attention(q, k, v, causal=True))

    for loss, arguments, launches in (
        (chain_loss, (x, vector, vector, mask, x), 2),
        (attention_loss, (q, k, k), 3),
    ):
        with some_gpu():
            traced = jax.jit(jax.value_and_grad(loss, (0, 1, 2))).trace(*arguments)
            text = traced.lower(lowering_platforms=("cuda",)).as_text()
        assert text.count("xla.gpu.triton") == launches
        assert "stablehlo.while" not in text  # which is what interpretation would be


def test_interpretation_can_be_forced_and_refused() -> None:
    x, gamma, beta, *_ = chain_arrays((4, 8), "float32")
    default, forced = (
        kernels.layernorm_gelu(x, gamma, beta, interpret=each) for each in (None, True)
    )
    assert np.array_equal(default, forced)
    with pytest.raises(ValueError, match=r"[Ii]nterpret"):
        kernels.layernorm_gelu(x, gamma, beta, interpret=False)


def test_importing_the_package_does_not_import_jax() -> None:
    code = "import sys, roofline_helpers; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- counts, and what is refused ----------------------------------------------------------------


def test_work_of_the_chain() -> None:
    four, one = kernels.chain_work(1024, 512, fused=False), kernels.chain_work(1024, 512)
    assert isinstance(four, tuple)
    assert isinstance(one, rh.Work)
    tensor, vectors = 1024 * 512 * 2, 2 * 512 * 2
    assert [job.bytes for job in four] == [2 * tensor + vectors, 2 * tensor, *[3 * tensor] * 2]
    assert one.bytes == 4 * tensor + vectors
    assert one.flops == sum(job.flops for job in four)
    assert kernels.chain_work(1024, 512, mask="int8").bytes == one.bytes - tensor // 2


X = jnp.ones((4, 8))
V = jnp.ones(8)
Q = jnp.ones((1, 2, 4, 8))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: kernels.layernorm_gelu([1.0], V, V), BadType, "x must be a JAX or NumPy array"),
        (lambda: kernels.layernorm_gelu(X.astype(int), V, V), BadType, "float32, bfloat16"),
        (lambda: kernels.layernorm_gelu(X[:0], V, V), BadValue, "at least one element"),
        (lambda: kernels.layernorm_gelu(X, V[:5], V), BadValue, r"gamma must have shape \(8,\)"),
        (lambda: kernels.layernorm_gelu(X, V, V, eps=-1.0), BadValue, "eps"),
        (lambda: kernels.layernorm_gelu(X, V, V, layout="gpus"), UnknownName, "Nearest: 'gpu'"),
        (lambda: kernels.layernorm_gelu(X, V, V, interpret="yes"), BadType, "True or False"),
        (lambda: kernels.layernorm_gelu(X, V, V, blocks=4), BadType, "Blocks"),
        (
            lambda: kernels.layernorm_gelu_dropout_residual(X, V, V, X, X, rate=1.0),
            BadValue,
            "rate must be from 0 to below 1",
        ),
        (
            lambda: kernels.layernorm_gelu_dropout_residual(X, V, V, X[0], X, rate=0.1),
            BadValue,
            r"mask must have x's shape \(4, 8\)",
        ),
        (lambda: kernels.attention(Q[0], Q, Q), BadValue, "batch, heads, length, head_dim"),
        (lambda: kernels.attention(Q, Q.astype("bfloat16"), Q), BadType, "of q's type"),
        (lambda: kernels.attention(Q, Q, Q[:, :1]), BadValue, "one shape"),
        (lambda: kernels.attention(Q[:, :1], Q, Q), BadValue, "multiple"),
        (lambda: kernels.attention(Q, Q, Q, mask=X), BadValue, r"broadcast to \(1, 2, 4, 4\)"),
        (lambda: kernels.attention(Q, Q, Q, mask=X[:, :4].astype(int)), BadType, "mask must be"),
        (lambda: kernels.attention(Q, Q, Q, scale=math.inf), BadValue, "scale"),
        (
            lambda: kernels.attention(Q, Q, Q, scale="x"),
            BadType,
            r"scale must be one .*'x' \(str\)",
        ),
        (lambda: kernels.attention(Q, Q, Q, scale=X), BadType, "scale must be one number"),
        (
            lambda: jax.jit(lambda s: kernels.attention(Q, Q, Q, scale=s))(2.0),
            BadType,
            "scale must be one number, static under jax.jit",
        ),
        (
            lambda: kernels.layernorm_gelu(X, V, V, layout="gpu", blocks=kernels.Blocks(step=24)),
            BadValue,
            "power of two of rows, got a step of 24",
        ),
        (lambda: kernels.Blocks(q=20), BadValue, "power of two from 16"),
        (lambda: kernels.Blocks(rows=0), BadValue, "rows"),
    ],
)
def test_what_is_refused(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call()
