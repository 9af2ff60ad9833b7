"""What `analyze` refuses, and in which words."""

import importlib

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import mesh, sharded, spec
from compiled_reports import needs
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding, PartitionSpec

from roofline import xla
from roofline.xla import targets
from roofline_helpers.common.checks import BadType, BadValue, UnknownName


def test_an_unknown_chip():
    with pytest.raises(UnknownName, match="'v7x'"):
        xla.analyze(jnp.sin, spec(8), chip="v6x")


def test_a_chip_without_a_compiler_here(monkeypatch):
    with pytest.raises(xla.NoCompiler, match="NVIDIA H100"):
        xla.analyze(jnp.sin, spec(8), chip="h100")
    with monkeypatch.context() as patch:
        patch.setattr(targets.sys, "platform", "darwin")
        with pytest.raises(xla.NoCompiler, match=r"Linux.*darwin") as raised:
            xla.analyze(jnp.sin, spec(8), chip="v6e")
        assert not [stem for stem, _ in xla.records() if stem in str(raised.value)]
    find = targets.importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr(targets.sys, "platform", "linux")
        patch.setattr(targets.host, "machine", lambda: "x86_64")
        patch.setattr(
            targets.importlib.util, "find_spec", lambda n: None if n == "libtpu" else find(n)
        )
        with pytest.raises(xla.NoCompiler, match=r"pip install 'jax\[tpu\]'"):
            xla.analyze(jnp.sin, spec(8), chip="v6e")


def test_functions_that_do_not_trace():
    x = spec(3, 4)
    for fn, args, message in (
        (lambda a, b: a @ b, (x, spec(5, 6)), r"bf16\[3,4\], bf16\[5,6\].*contracting"),
        (lambda a: 1 if a.sum() > 0 else 2, (x,), "TracerBoolConversionError"),
        (lambda a: a, ({1: x, "a": x},), r"take these arguments: .*sorting"),
        (jnp.sin, (sharded((8, 8)),), "no devices here: give chip="),
    ):
        with pytest.raises(xla.CannotTrace, match=message):
            xla.analyze(fn, *args)


def test_layouts_and_meshes_that_a_chip_does_not_have():
    needs("v6e")
    with pytest.raises(xla.NoCompiler, match="v6e:3x5"):
        xla.analyze(jnp.sin, spec(8), chip="v6e", topology="3x5")
    with pytest.raises(BadValue, match=r"at most 16x16.*got '2x2x2'"):
        xla.analyze(jnp.sin, spec(8), chip="v6e", topology="2x2x2")

    def over(devices):
        sharding = NamedSharding(mesh(devices), PartitionSpec("data"))
        return jax.ShapeDtypeStruct((48, 128), jnp.bfloat16, sharding=sharding)

    with pytest.raises(BadValue, match=r"6.*2x4"):
        xla.analyze(lambda a: a @ a.T, over(6), chip="v6e")
    with pytest.raises(BadValue, match=r"2.*4"):
        xla.analyze(lambda a, b: a + b, over(2), over(4), chip="v6e")


def test_a_kernel_for_gpus_is_not_one_for_a_tpu():
    needs("v6e")
    for backend in ("triton", "mosaic_gpu"):
        params = importlib.import_module(f"jax.experimental.pallas.{backend}").CompilerParams()
        call = pl.pallas_call(lambda x, y: None, out_shape=spec(8, 8), compiler_params=params)
        with pytest.raises(BadValue, match=backend.replace("_", " ")):
            xla.analyze(call, spec(8, 8), chip="v6e")


def test_bad_options():
    with pytest.raises(BadType, match="got 3"):
        xla.analyze(3, chip="v6e")
    with pytest.raises(UnknownName, match="auto, compiler, record"):
        xla.analyze(jnp.sin, spec(8), use="live")
    with pytest.raises(BadValue, match=r"\.\./x"):
        xla.analyze(jnp.sin, spec(8), record="../x")
    with pytest.raises(BadType, match="static_argnums"):
        xla.analyze(jax.jit(jnp.sin), spec(8), static_argnums=1)


def test_what_is_evaluated_while_tracing_runs_here():
    needs("v6e")

    def first(x):
        with jax.ensure_compile_time_eval():
            n = int(jnp.asarray(3) + jnp.linalg.norm(jnp.ones(1)))
        return x[:n] * 2

    assert xla.analyze(first, spec(8, dtype="float32"), chip="v6e").vector_flops == 4
