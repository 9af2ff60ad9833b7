"""What a result needs: no repair beats it, and what isn't known is refused."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import spec
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from roofline import xla
from roofline.xla.lower import Arguments, lower
from roofline.xla.minimum import needed, needed_of
from roofline.xla.targets import target_of
from roofline_helpers import chips

Function = Callable[..., Any]


def need(f, *arguments, chip=None, turns=None):
    return needed_of(lower(f, Arguments(arguments), {}, target_of(chip)), turns)


def wide(*shape):
    return spec(*shape, dtype=jnp.float32)


def ints(*shape):
    return spec(*shape, dtype=jnp.int32)


# --- no repair beats it ---------------------------------------------------------------------------


def scanned(loss):
    def total(x, rows, z):
        return lax.scan(lambda c, y: (loss(c, x, y, z), None), jnp.zeros_like(z), rows)[0].sum()

    return jax.grad(total)


def step(c, x, y, z):
    return c + x * jnp.sin(y + z)


def filters_by_example(x, w):
    y = lax.conv_general_dilated(x, w, (1, 1), "VALID")
    return y[jnp.arange(16), jnp.arange(16)]


def filters_in_groups(x, w):
    one = lax.conv_general_dilated(
        x.reshape(1, 16, 20, 20), w, (1, 1), "VALID", feature_group_count=16
    )
    return one[0]


def rewritten(cache, new, at):
    rows = jnp.arange(cache.shape[0])[:, None] == at
    return jnp.where(rows, new, cache)


def repeated_heads(q, k):
    return jnp.einsum("bhe,bshe->bhs", q, jnp.repeat(k, 4, 2))


def shared_heads(q, k):
    grouped = q.reshape(4, 2, 4, 32)
    return jnp.einsum("bgqe,bsge->bgqs", grouped, k).reshape(4, 8, 128)


PAIRS = {
    "one-hot": (
        lambda t, i: jax.nn.one_hot(i, 512) @ t,
        lambda t, i: t[i],
        (wide(512, 64), ints(32)),
    ),
    "last row": (
        lambda h, w: (jnp.tanh(h) @ w)[:, -1],
        lambda h, w: jnp.tanh(h[:, -1]) @ w,
        (wide(4, 64, 32), wide(32, 128)),
    ),
    "diagonal": (
        lambda a, b: jnp.diagonal(a @ b),
        lambda a, b: jnp.einsum("ij,ji->i", a, b),
        (wide(64, 64), wide(64, 64)),
    ),
    "residuals": (
        scanned(step),
        scanned(jax.checkpoint(step)),
        (wide(), wide(20), wide(64, 64)),
    ),
    "filters": (filters_by_example, filters_in_groups, (wide(16, 1, 20, 20), wide(16, 1, 5, 5))),
    "repeated heads": (repeated_heads, shared_heads, (wide(4, 8, 32), wide(4, 128, 2, 32))),
    "a row of a cache": (
        rewritten,
        lambda cache, new, at: lax.dynamic_update_slice(cache, new, (at, 0)),
        (wide(256, 64), wide(1, 64), ints()),
    ),
    "computed twice": (
        lambda x, w: jnp.tanh(x @ w) + jax.checkpoint(lambda x: jnp.sin(x @ w))(x),
        lambda x, w: (lambda y: jnp.tanh(y) + jnp.sin(y))(x @ w),
        (wide(64, 64), wide(64, 64)),
    ),
    "in each turn": (
        lambda x, w: lax.fori_loop(0, 9, lambda i, c: c + jnp.tanh(x @ w), jnp.zeros((64, 64))),
        lambda x, w: (lambda y: lax.fori_loop(0, 9, lambda i, c: c + y, jnp.zeros((64, 64))))(
            jnp.tanh(x @ w)
        ),
        (wide(64, 64), wide(64, 64)),
    ),
    "real transform": (
        lambda x: jnp.fft.fft(x.astype(jnp.complex64))[:, :33].real,
        lambda x: jnp.fft.rfft(x).real,
        (wide(32, 64),),
    ),
    "widened": (
        lambda x, w: (x * np.float32(2)) @ w,
        lambda x, w: (x * 2) @ w,
        (spec(64, 64), spec(64, 64)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_no_repair_beats_it(name):
    planted, repaired, arguments = PAIRS[name]
    least, report = need(planted, *arguments), xla.analyze(repaired, *arguments)
    assert not least.refused
    assert 0 < least.bytes <= report.hbm_bytes
    assert least.flops <= report.flops * 1.001


@pytest.mark.parametrize("name", ["last row", "diagonal", "widened", "computed twice", "filters"])
def test_the_repair_needs_as_much(name):
    planted, repaired, arguments = PAIRS[name]
    first, second = need(planted, *arguments), need(repaired, *arguments)
    assert first.bytes == pytest.approx(second.bytes, rel=0.01)
    assert first.flops == pytest.approx(second.flops, rel=0.01)


def test_as_written_nothing_is_left_out():
    def f(x, up, down):
        return jax.nn.relu(x @ up) @ down

    least = need(f, spec(512, 256), spec(256, 1024), spec(1024, 256))
    assert least.matrix == {"bf16": 2 * 2 * 512 * 256 * 1024}
    assert least.bytes == 2 * (2 * 512 * 256 + 2 * 256 * 1024)
    assert least.vector == 512 * 1024
    h100 = least.times(chips.chip("h100"))  # 67 and 989 TFLOP/s, 3.35 TB/s
    assert h100["vector"] == pytest.approx(512 * 1024 / 67e12)
    assert h100["matrix"] == pytest.approx(2 * 2 * 512 * 256 * 1024 / 989e12)
    assert h100["hbm"] == pytest.approx(least.bytes / 3.35e12)


def test_what_a_loop_computes_again_is_needed_once():
    key = jax.random.key(0, impl="rbg")

    def drawn():
        return jnp.sin(jax.random.uniform(key, (64,)))

    def again(x):
        return lax.fori_loop(0, 8, lambda _, c: c + drawn(), x + drawn())

    def once(x):
        y = drawn()
        return lax.fori_loop(0, 8, lambda _, c: c + y, x + y)

    assert need(again, wide(64)).vector == need(once, wide(64)).vector


@pytest.mark.skipif(xla.can_compile("v5e") is not None, reason="no TPU compiler here")
def test_each_of_many_factorisations_counts():
    six, one = (need(jnp.linalg.cholesky, wide(n, 30, 30), chip="v5e").flops for n in (6, 1))
    assert one > 30**3 / 6
    assert six == pytest.approx(6 * one)


# --- types ----------------------------------------------------------------------------------------


def test_accidents_count_in_the_narrow_type():
    x, w = spec(64, 64), spec(64, 64)
    scale = np.sqrt(np.float32(64))

    def widened(x, w):
        y = x * scale  # float32 from here on
        return jnp.tanh(y @ w) @ w

    def asked(x, w):
        y = x.astype(jnp.float32)
        return jnp.tanh(y @ w.astype(jnp.float32)) @ w.astype(jnp.float32)

    def summed(x, w):
        return jnp.einsum("ij,jk->ik", x, w, preferred_element_type=jnp.float32)

    assert set(need(widened, x, w).matrix) == {"bf16"}
    assert set(need(asked, x, w).matrix) == {"f32"}
    assert set(need(summed, x, w).matrix) == {"bf16"}
    assert need(summed, x, w).bytes == 2 * 2 * 64 * 64 + 4 * 64 * 64  # the sums are asked for
    assert need(widened, x, w).bytes == 3 * 2 * 64 * 64


# --- what isn't known -----------------------------------------------------------------------------


def until(x):
    return lax.while_loop(lambda c: jnp.sum(c * c) > 1.0, lambda c: c * 0.5, x)


def test_refused_by_name():
    least = need(until, wide(64))
    assert "while" in least.refused
    assert "turns=" in least.refused
    assert f"{__name__}.py" in least.refused  # its line
    assert least.seconds(chips.chip("v6e")) is None
    assert not need(until, wide(64), turns={f"{__name__}.py:{_line()}": 7}).refused
    inverse = need(jnp.linalg.inv, wide(64, 64))
    assert "lapack" in inverse.refused


SCAN = """HloModule t
%add (a: f32[16], b: f32[16]) -> (f32[16], f32[16]) {
  %a = f32[16]{0} parameter(0)
  %b = f32[16]{0} parameter(1)
  %c = f32[16]{0} add(%a, %b)
  ROOT %t = (f32[16]{0}, f32[16]{0}) tuple(%c, %c)
}
ENTRY %m (x: f32[512,16]) -> f32[] {
  %x = f32[512,16]{1,0} parameter(0)
  %zeros = f32[16]{0} constant(0)
  %s = (f32[512,16]{1,0}, f32[16]{0}) scan(%x, %zeros), dimensions={0}, num_carries=1, to_apply=%add
  %sums = f32[512,16]{1,0} get-tuple-element(%s), index=0
  %four = f32[512,4]{1,0} slice(%sums), slice={[0:512], [0:4]}
  %last = f32[16]{0} get-tuple-element(%s), index=1
  ROOT %result = () tuple(%RESULT)
}"""


@pytest.mark.parametrize(
    ("result", "elements", "moved"), [("sums", 512, 1024), ("four", 128, 256), ("last", 512, 513)]
)
def test_a_running_sum_needs_its_operand_once(result, elements, moved):
    """JAX 0.11 writes `jnp.cumsum` as an operation of its own for GPUs."""
    least = needed(SCAN.replace("RESULT", result))
    assert (least.refused, least.vector, least.bytes) == ("", 16 * elements, 16 * 4 * moved)
    (row,) = (row for row in xla.kernels(SCAN, "gpu").rows if row.opcode == "scan")
    assert (row.flops.vector, row.form.kind) == (512 * 16, "")  # which nobody measured as one


def _line():
    return until.__code__.co_firstlineno + 1


# --- several devices, and chips -------------------------------------------------------------------


def sharded(*shape, axes):
    mesh = AbstractMesh((4,), ("x",))
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*axes)))


@pytest.mark.skipif(xla.can_compile("v5e") is not None, reason="no TPU compiler here")
def test_each_device_does_its_part():
    def summed(x, w):
        mesh = AbstractMesh((4,), ("x",))
        part = P(None, "x"), P("x", None)
        body = jax.shard_map(
            lambda a, b: lax.psum(a @ b, "x"), mesh=mesh, in_specs=part, out_specs=P()
        )
        return body(x, w)

    x, w = sharded(256, 1024, axes=(None, "x")), sharded(1024, 512, axes=("x", None))
    for f in (jnp.matmul, summed):
        least = need(f, x, w, chip="v5e")
        assert least.matrix == {"bf16": 2 * 256 * 1024 * 512 / 4}
        assert least.bytes == 2 * (256 * 1024 + 1024 * 512 + 256 * 512) / 4


def test_seconds_on_a_chip():
    v6e = chips.chip("v6e")
    least = need(jnp.matmul, spec(4096, 4096), spec(4096, 4096))
    assert least.limit(v6e) == "matrix"
    assert least.seconds(v6e) == 2 * 4096**3 / v6e.roofline("bf16").peak
    few = need(jnp.matmul, spec(8, 4096), spec(4096, 4096))
    assert few.limit(v6e) == "hbm"
    assert few.seconds(v6e) == few.bytes / v6e.roofline("bf16").bandwidth
