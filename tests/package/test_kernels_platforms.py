"""One source, three ways to run: compiled for every TPU, lowered for a GPU, interpreted here."""

import contextlib
import functools

import pytest
from kernel_suite import jax, spec, total

import roofline_helpers as rh
from roofline import kernels, xla

pytestmark = pytest.mark.slow  # kernels are interpreted, processes started

TPUS = ("v5e", "v5p", "v6e", "v7x")
MISSING = {chip: xla.can_compile(chip) for chip in TPUS}


def needs(chip):
    if MISSING[chip] is not None:
        pytest.skip(f"NOT TESTED for {chip}: {MISSING[chip]}")


# Jitted here, so that JAX traces once what several chips compile
@jax.jit
def chain(*arrays):
    return kernels.layernorm_gelu_dropout_residual(*arrays, rate=0.1)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1, 2, 4))
def chain_gradient(*arrays):
    return total(chain(*arrays))


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
def attention_gradient(q, k, v):
    return total(kernels.attention(q, k, v, causal=True))


@pytest.mark.parametrize("chip", TPUS)
def test_a_tpu_runs_the_chain_in_one_kernel(chip):
    needs(chip)
    rows, columns = 16384, 4096
    x = spec(rows, columns)
    vector = spec(columns)
    report = xla.analyze(chain, x, vector, vector, x, x, chip=chip)
    job = rh.fuse(*rh.work.fusion_chain(rows, columns, "bf16"))
    assert report.hbm_bytes == pytest.approx(job.bytes, rel=0.001)
    declared = sum((call.declared or {})["flops"] for call in report.calls)
    assert declared == pytest.approx(job.flops, rel=0.001)
    # counted in the kernel's own body, which also scales what dropout keeps
    assert job.flops <= report.flops <= 1.06 * job.flops
    assert report.transcendentals == pytest.approx(job.transcendentals, rel=0.001)


# Each chip both types and both shapes, each pair of type and shape on two of them
ONE, WIDE = (1, 1), (17, 1000)
CHAINS = [("v5e", "bfloat16", ONE), ("v6e", "float32", WIDE), ("v7x", "bfloat16", WIDE)]


@pytest.mark.parametrize(("chip", "dtype", "shape"), CHAINS)
def test_a_tpu_compiles_the_chain_and_its_gradient(chip, dtype, shape):
    needs(chip)
    x = spec(*shape, dtype=dtype)
    vector = spec(shape[1], dtype=dtype)
    mask = spec(*shape, dtype="int8")
    xla.analyze(chain_gradient, x, vector, vector, mask, x, chip=chip)


# Whole blocks of 256 queries and 512 keys on the oldest and the newest; elsewhere smaller ones,
# which compile in half of the time
LARGE, SMALL = (300, 450), (100, 150)
ATTENTIONS = [("v5e", "float32", LARGE), ("v5p", "float32", SMALL), ("v7x", "bfloat16", LARGE)]


@pytest.mark.parametrize(("chip", "dtype", "lengths"), ATTENTIONS)
def test_a_tpu_compiles_attention_and_its_gradient(chip, dtype, lengths):
    needs(chip)
    q_len, kv_len = lengths
    q = spec(2, 4, q_len, 64, dtype=dtype)
    k = spec(2, 2, kv_len, 64, dtype=dtype)
    xla.analyze(attention_gradient, q, k, k, chip=chip)


def some_gpu():
    """Return a context in which JAX from 0.11 on takes a GPU for granted, as its lowering asks."""
    try:
        from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

        device = AbstractDevice("NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu")
        return use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device))
    except (ImportError, TypeError):  # before that it does not ask
        return contextlib.nullcontext()


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_gpu_gets_triton(dtype):
    pytest.importorskip("jax.experimental.pallas.triton", reason="no Triton in this jaxlib")
    x, vector, mask = (
        spec(*s, dtype=t) for s, t in (((17, 3000), dtype), ((3000,), dtype), ((17, 3000), "int8"))
    )
    q = spec(2, 4, 300, 80, dtype=dtype)
    k = spec(2, 2, 450, 80, dtype=dtype)

    for gradient, arguments, launches in (
        (chain_gradient, (x, vector, vector, mask, x), 2),
        (attention_gradient, (q, k, k), 3),
    ):
        with some_gpu():
            text = gradient.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
        assert text.count("xla.gpu.triton") == launches
        assert "stablehlo.while" not in text  # which is what interpretation would be
