"""Work that nobody needs is named, ranked by seconds that follow from counts, and else nothing is.

This machine's compiler makes the programs, which are read and not timed: rows take what their roofs
say, or the seconds that a test gives them.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clean_programs import CLEAN
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P
from test_diagnosis_causes import compiled, named, spec, timed
from test_diagnosis_findings import H200

import roofline
import roofline_helpers as rh
from roofline import xla
from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.findings import Case, Finding, detect, findings
from roofline.diagnosis.findings.again import CHEAPER
from roofline.diagnosis.findings.causes import Claim
from roofline.diagnosis.modelled import modelled_case
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import BETWEEN, GAP, HOST, TimedRow, waterfall
from roofline.xla import can_compile
from roofline.xla.causes import (
    AGAIN,
    MOVED,
    REPEATED,
    UNUSED,
    ZEROS,
)

BF16 = jnp.bfloat16

# --- the seconds by which causes are ordered ------------------------------------------------------


def one_kernel(**work: Any) -> Case:
    row = TimedRow("k", seconds=100e-6, busy=100e-6, launches=1.0, kernel=xla.Row("k", **work))
    row = H200.under_roofs(row, row.kernel)
    return Case((row,), {}, H200, "gpu", 100e-6)


def test_a_kernel_saves_the_share_by_which_its_roof_shrinks() -> None:
    case = one_kernel(read={"hbm": 300 * 2**20}, written={"hbm": 100 * 2**20})
    row = case.rows[0]
    fewer = replace(row.kernel, read={"hbm": 0})  # a quarter of the bytes, so of the roof
    more = replace(row.kernel, read={"hbm": 700 * 2**20})
    assert case.saved(row, fewer) == pytest.approx(75e-6, rel=1e-3)
    assert case.saved(row, more) == 0
    assert case.without_bytes(row, read=200 * 2**20) == pytest.approx(50e-6, rel=1e-3)
    assert case.without_bytes(row, written=400 * 2**20) == pytest.approx(25e-6, rel=1e-3)
    busy = one_kernel(flops=xla.Flops(matrix=10**11), read={"hbm": 2**20}, matrix_types=("bf16",))
    assert busy.without_bytes(busy.rows[0], read=2**20) == 0  # its arithmetic bounds it
    third = replace(busy.rows[0].kernel, flops=xla.Flops(matrix=10**11 / 3))
    assert busy.saved(busy.rows[0], third) == pytest.approx(100e-6 * 2 / 3, rel=1e-3)


# --- the nine kinds, each on programs of its own --------------------------------------------------


def by_weights(product: Callable[..., Any]) -> Callable[..., Any]:
    def f(w: Any, *others: Any) -> Any:
        return jax.grad(lambda w: (product(w, *others).astype(jnp.float32) ** 2).sum())(w)

    return f


def depthwise(w: Any, x: Any) -> Any:
    layout = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(
        x, w, (1,), "SAME", dimension_numbers=layout, feature_group_count=x.shape[-1]
    )


def heavy_or_nothing(chosen: Any, x: Any) -> Any:
    return jax.vmap(lambda c, x: lax.cond(c, lambda x: jnp.tanh(x @ x) @ x, lambda x: x, x))(
        chosen, x
    )


def by_all_experts(x: Any, w: Any, chosen: Any) -> Any:
    y = jnp.einsum("td,edf->etf", x, w)
    return jnp.einsum("etf,te->tf", y, jax.nn.one_hot(chosen, 8))


def experts(x: Any, w: Any, chosen: Any) -> Any:
    spread = jnp.einsum("td,te->etd", x, jax.nn.one_hot(chosen, 16))
    return jnp.einsum("etd,edf->tf", spread, w)


def hessian(c: Any) -> Any:
    def energy(v: Any) -> Any:
        square = v.reshape(16, 16)
        return jnp.sum(jnp.tanh(square @ square))

    return jnp.diagonal(jax.hessian(energy)(c))


def of_a_slice(w: Any, x: Any) -> Any:
    return jax.grad(lambda w: ((x @ w)[:64] ** 2).sum())(w)


def two_rows(i: Any, table: Any) -> Any:
    return (jax.nn.one_hot(i[:, 0], 4096) + jax.nn.one_hot(i[:, 1], 4096)) @ table


def rewritten(cache: Any, new: Any, at: Any) -> Any:
    here = (jnp.arange(cache.shape[1])[None] == at[:, None])[..., None]
    return jnp.where(here, new[:, None], cache)


def shifted(cache: Any, new: Any, q: Any) -> Any:
    cache = jnp.concatenate([cache[:, 1:], new[:, None]], 1)
    return cache, jnp.einsum("bd,btd->bt", q, cache)


def restacked(cache: Any, new: Any) -> Any:
    return jnp.stack([cache[layer].at[:, 3].set(new) for layer in range(cache.shape[0])])


def updated(table: Any, i: Any, g: Any) -> Any:
    return table - 0.1 * jnp.zeros_like(table).at[i].add(g)


def carried(c: Any) -> Any:
    def step(c: Any, i: Any) -> Any:
        n = c.at[i].add(1.0)
        return n, (c * n).sum()

    return lax.scan(step, c, jnp.arange(20))


def swapped(a: Any, b: Any) -> Any:
    def step(c: Any) -> Any:
        return c[0] + 1, c[2], c[1].at[c[0]].set(c[2][c[0]])

    return lax.while_loop(lambda c: c[0] < 50, step, (0, a, b))


def correlated(x: Any) -> Any:
    spectrum = jnp.fft.fft(x)
    return jnp.fft.ifft(spectrum * jnp.conj(spectrum)).real


def forgotten(layers: Any, x: Any) -> Any:
    def loss(layers: Any) -> Any:
        y = x
        for w in layers:
            y = y + jax.checkpoint(lambda y, w: jnp.tanh(jnp.tanh(y @ w) @ w.T))(y, w)
        return (y**2).mean()

    return jax.grad(loss)(layers)


def lengthened(x: Any) -> Any:
    kept, total = x[0], 0.0
    for n in range(1, 60):
        kept = jnp.concatenate([kept, jnp.tanh(x[n] + kept.mean(0))])
        total += (kept * kept).sum()
    return kept, total


def dropped(key: Any, x: Any) -> Any:
    keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0)


def attended(q: Any, k: Any, v: Any, times: int = 4) -> Any:
    k, v = (jnp.repeat(heads, times, axis=2) for heads in (k, v))
    p = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", q, k))
    return jnp.einsum("bht,bthd->bhd", p, v)


def ints(*shape: int) -> jax.ShapeDtypeStruct:
    return spec(*shape, dtype=jnp.int32)


def narrow(*shape: int) -> jax.ShapeDtypeStruct:
    return spec(*shape, dtype=BF16)


# function, arguments, kind, cause, least share of the call, what its sentence has, its line
Kind = tuple[Callable[..., Any], tuple[Any, ...], str, str, float, str, str]
NAMED: dict[str, Kind] = {
    "some columns": (
        lambda x, w: (x @ w)[:, :16],
        (spec(1024, 512), spec(512, 2048)),
        *(UNUSED, "read-in-part", 0.9, "1 in 128 is read", "(x @ w)[:, :16]"),
    ),
    "the gradient of a depthwise convolution": (
        by_weights(depthwise),
        (spec(5, 1, 256), spec(8, 256, 256)),
        *(UNUSED, "done-densely", 0.8, "1 in 256 of it is used", ")"),
    ),
    "all experts": (
        by_all_experts,
        (spec(512, 256), spec(8, 256, 256), ints(512)),
        *(UNUSED, "done-densely", 0.7, "1 in 8 of it is used", "etf,te->tf"),
    ),
    "a thin Gram matrix": (
        lambda u, x: u @ u.T @ x,
        (spec(2048, 16), spec(2048, 64)),
        *(UNUSED, "dearer-order", 0.8, "by way of f32[2048,2048], which takes 80 times", "u @ u.T"),
    ),
    "linear attention": (
        lambda q, k, v: jnp.einsum("hqk,hkd->hqd", jnp.einsum("hqd,hkd->hqk", q, k) / 8, v),
        (spec(4, 1024, 32),) * 3,
        *(UNUSED, "dearer-order", 0.8, "takes 32 times the FLOPs", "hqd,hkd->hqk"),
    ),
    "a sort for a part": (
        lambda x: jnp.sort(x, -1)[:, :4],
        (spec(256, 8192),),
        *(UNUSED, "sort", 0.9, "1 in 2,048 is read", "jnp.sort"),
    ),
    "a branch or nothing": (
        heavy_or_nothing,
        (spec(64, dtype=jnp.bool_), spec(64, 128, 128)),
        *(UNUSED, "both-branches", 0.7, "is one of two values", "lax.cond"),
    ),
    "one-hot rows": (
        lambda i, t: jax.nn.one_hot(i, 4096) @ t,
        (ints(512), spec(4096, 256)),
        *(
            ZEROS,
            "one-hot",
            0.9,
            "multiplied by 4,096, of which one isn't zero",
            "one_hot(i, 4096)",
        ),
    ),
    "rows of an identity": (
        lambda i, t: jnp.eye(2048)[i].reshape(8, 64, 2048) @ t,
        (ints(512), spec(2048, 256)),
        *(ZEROS, "one-hot", 0.8, "multiplied by 2,048, of which one isn't zero", "jnp.eye(2048)"),
    ),
    "a dense gradient of rows": (
        lambda i, g: jnp.eye(2048)[i].T @ g,
        (ints(512), spec(512, 256)),
        *(ZEROS, "zeros", 0.8, "multiplied by 512, of which one isn't zero", "jnp.eye(2048)"),
    ),
    "two of them": (
        two_rows,
        (ints(512, 2), spec(4096, 256)),
        *(ZEROS, "one-hot", 0.8, "of which 2 aren't zero", "one_hot(i[:, 0], 4096)"),
    ),
    "padding": (
        lambda x, w: jnp.pad(x, ((0, 768), (0, 0))) @ w,
        (spec(256, 512), spec(512, 512)),
        *(ZEROS, "zeros", 0.6, "of which 128 aren't zero", "jnp.pad"),
    ),
    "the gradient of a slice": (
        of_a_slice,
        (spec(512, 512), spec(2048, 512)),
        *(ZEROS, "zeros", 0.8, "multiplied by 2,048, of which 64 aren't zero", "(x @ w)[:64]"),
    ),
    "a Hessian's basis": (
        hessian,
        (spec(256),),
        *(ZEROS, "zeros", 0.6, "93.8% of", "jax.hessian(energy)"),
    ),
    "an autocorrelation": (
        correlated,
        (spec(256, 4096),),
        *(ZEROS, "real-as-complex", 0.4, "has no imaginary part", "jnp.fft.fft(x)"),
    ),
    "the gradient of a ragged matmul by its weights": (
        by_weights(lambda w, x, sizes: lax.ragged_dot(x, w, sizes)),
        (narrow(16, 256, 512), narrow(1024, 256), ints(16)),
        *(ZEROS, "ragged", 0.7, "multiplied by 4,096, of which 256 aren't zero", "lax.ragged_dot"),
    ),
    "a cache by a mask": (
        rewritten,
        (spec(16, 1024, 256), spec(16, 256), ints(16)),
        *(MOVED, "rewritten", 0.9, "written anew to change a part", "jnp.where(here"),
    ),
    "a cache that moves on": (
        shifted,
        (spec(16, 1024, 256), spec(16, 256), spec(16, 256)),
        *(MOVED, "joined", 0.5, "copies of argument 0", "jnp.concatenate"),
    ),
    "a cache put together": (
        restacked,
        (spec(8, 64, 512, 64), spec(64, 64)),
        *(MOVED, "joined", 0.9, "copies of argument 0", "jnp.stack"),
    ),
    "a table's dense gradient": (
        updated,
        (spec(65536, 256), ints(256), spec(256, 256)),
        *(MOVED, "rewritten", 0.5, "written anew to change a part", "return table - 0.1"),
    ),
    "a carry of scan": (
        carried,
        (spec(4_000_000),),
        *(MOVED, "carry-copy", 0.3, "20 copies of f32[4000000], 16 MB each", "c.at[i].add"),
    ),
    "a carry of while": (
        swapped,
        (spec(2048, 2048), spec(2048, 2048)),
        *(MOVED, "carry-copy", 0.9, "50 copies of f32[2048,2048]", ""),
    ),
    "an array that grows": (
        lengthened,
        (spec(60, 8, 512),),
        *(MOVED, "joined", 0.4, "holds copies of ", "jnp.concatenate"),
    ),
    "repeated keys and values": (
        attended,
        (spec(8, 32, 128), spec(8, 1024, 8, 128), spec(8, 1024, 8, 128)),
        *(REPEATED, "repeated", 0.7, "holds everything 4 times", "jnp.repeat"),
    ),
    "random numbers": (
        dropped,
        (spec(2, dtype=jnp.uint32), spec(2048, 2048)),
        *(AGAIN, "random", 0.8, "draw them", "jax.random.bernoulli"),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_in_vain_is_named_with_its_kind_its_share_and_its_line(name: str) -> None:
    fn, args, kind, cause, share, evidence, line = NAMED[name]
    case = compiled(fn, *args)
    found = [finding for finding in findings(case) if finding.named]
    first = next((finding for finding in found if finding.cause == cause), None)
    assert first, found
    assert found.index(first) < 2
    assert first.kind == kind
    assert first.seconds >= share * case.wall
    assert evidence in first.evidence
    file, _, number = first.source.rpartition(":")
    assert file.endswith("test_diagnosis_kinds.py")
    assert line in Path(__file__).read_text("utf-8").splitlines()[int(number) - 1]


def test_a_cheaper_generator_is_all_that_helps_where_a_result_is_drawn() -> None:
    def drawn(key: Any) -> Any:
        return jax.random.uniform(jax.random.wrap_key_data(key), (1024, 1024))

    args = spec(2, dtype=jnp.uint32), spec(1024, 1024)
    one_of_two = compiled(lambda key, x: (drawn(key), x * 2), *args)
    used = compiled(lambda key, x: (drawn(key) * x, x * 2), *args)
    found = [named(case)["random"].remedy for case in (one_of_two, used)]
    assert found == [CHEAPER, ""]


def on_an_h200(fn: Callable[..., Any], *args: Any, ceilings: Ceilings = H200) -> Case:
    """Return a function as this machine's compiler makes it, with an H200's launches and rates."""
    lowered = jax.jit(fn).lower(*args)
    written = lowered.compiler_ir("hlo").as_hlo_module().to_string()
    return modelled_case(
        Program(str(lowered.compile().as_text()), "gpu", written=written), ceilings, 1.7e-6
    )


def test_a_checkpoint_is_in_vain_only_where_memory_would_hold_its_values() -> None:
    args = [spec(1024, 1024)] * 4, spec(1024, 1024)
    found = named(on_an_h200(forgotten, *args))["checkpoint"]
    assert found.kind == AGAIN
    assert found.seconds > 0
    memory = H200.chip.memory["hbm"]
    full = replace(memory, capacity=replace(memory.capacity, value=2**25))
    chip = replace(H200.chip, memory={**H200.chip.memory, "hbm": full})
    assert "checkpoint" not in named(on_an_h200(forgotten, *args, ceilings=Ceilings(chip)))


@pytest.mark.parametrize("name", ["one-hot rows", "some columns", "an autocorrelation", "padding"])
def test_what_is_known_is_told_as_an_interval_within_the_call(name: str) -> None:
    fn, args, *_ = NAMED[name]
    case = timed(compiled(fn, *args), 1.5)
    first = next(finding for finding in findings(case) if finding.known)
    low, high = first.saves
    assert 0 <= low <= first.seconds / 1.5
    assert first.seconds <= high <= case.wall - case.floor
    assert not any(finding.saves for finding in findings(case) if not finding.known)


@pytest.mark.parametrize("name", ["one-hot rows", "some columns", "a cache by a mask", "padding"])
def test_no_second_is_claimed_twice_and_no_line_has_two_findings(name: str) -> None:
    fn, args, *_ = NAMED[name]
    case = compiled(fn, *args)
    found = findings(case)
    assert sum(f.seconds for f in found) <= case.wall * (1 + 1e-9)
    lines = [f.source for f in found if f.kind and f.source]
    assert len(lines) == len({*lines})


@pytest.mark.parametrize(
    ("shares", "found"),
    [((0.7, 0.5, 0.2), [0.7, 0.3]), ((0.3, 0.1), [0.3, 0.1])],  # the third finds nothing left
)
def test_what_one_cause_has_claimed_is_gone_for_the_next(
    shares: tuple[float, ...], found: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = one_kernel(read={"hbm": 30 * 2**20})  # 7 of its 100 µs by its roof
    row = case.rows[0]

    def claiming(cause: str, share: float) -> Any:
        return lambda _: iter([Claim(cause, ((row, share * row.seconds),), "", source=cause)])

    causes = ("read-in-part", "one-hot", "sort")
    detectors = [claiming(cause, share) for cause, share in zip(causes, shares, strict=False)]
    monkeypatch.setattr(detect, "_DETECTORS", tuple(detectors))
    most = 1 - case.floor / row.seconds  # no call takes less than the host's own time
    claimed = [f.seconds / row.seconds for f in findings(case) if f.named]
    assert claimed == pytest.approx([min(share, most) for share in found])
    assert sum(f.seconds for f in findings(case)) <= row.seconds * (1 + 1e-9)


LIBRARY: dict[str, tuple[Any, ...]] = {
    "cumulative sum": (lambda x: jnp.cumsum(x, axis=0), spec(2048, 2048)),
    "cumulative maximum": (lambda x: lax.cummax(x, axis=0), spec(2048, 1024)),
    "median": (lambda x: jnp.median(x, 0), spec(2048, 256)),
    "interpolation": (jnp.interp, spec(2**18), spec(512), spec(512)),
    "eigenvectors": (jnp.linalg.eigh, spec(128, 128)),
    "QR": (jnp.linalg.qr, spec(256, 256)),
}


REPAIRED: dict[str, Callable[..., Any]] = {
    "some columns": lambda x, w: x @ w[:, :16],
    "padding": lambda x, w: jnp.pad(x @ w, ((0, 768), (0, 0))),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_what_is_left_is_what_the_repair_takes(name: str) -> None:
    """The kernels of both, by the same model."""
    fn, args, *_ = NAMED[name]
    before, after = compiled(fn, *args), compiled(REPAIRED[name], *args)
    first = findings(before)[0]
    assert first.known
    assert before.wall - first.seconds == pytest.approx(after.wall, rel=0.35)


def test_another_algorithm_has_no_gain() -> None:
    for name in ("a sort for a part", "random numbers", "a branch or nothing"):
        fn, args, *_ = NAMED[name]
        assert not findings(compiled(fn, *args))[0].known


@pytest.mark.skipif(can_compile("v5e") is not None, reason="no compiler for TPUs here")
def test_devices_that_lost_the_batch_do_the_same() -> None:
    mesh = AbstractMesh((4,), ("data",))

    def at(*shape: int, axes: tuple[Any, ...] = ()) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, BF16, sharding=NamedSharding(mesh, P(*axes)))

    def f(x: Any, w: Any) -> Any:
        h = jnp.tanh(x @ w)
        h = lax.with_sharding_constraint(h, NamedSharding(mesh, P()))  # lost
        return jnp.tanh(h @ w) @ w

    report = roofline.analyze(f, at(64, 256, 512, axes=("data",)), at(512, 512), chip="v5e")
    first = next(found for found in report.findings if found.cause == "on-each-device")
    assert first is report.findings[0]
    assert "each of 4 devices computes the same" in first.evidence
    line = int(first.source.rpartition(":")[2])
    assert "# lost" in Path(__file__).read_text("utf-8").splitlines()[line - 1]
    assert "with_sharding_constraint" in first.advice


# --- what needs a clock, or another device --------------------------------------------------------


def test_what_only_slowness_shows() -> None:
    """Convolutions over zeros, sums in int8, a transposed read: at twenty times their roof."""

    def spread(x: Any, w: Any) -> Any:
        return lax.conv_transpose(x, w, (4, 4), "SAME")

    def turned(x: Any) -> Any:
        return jnp.tanh(jnp.transpose(x.reshape(64, 64, 256), (2, 1, 0)).reshape(1024, 1024))

    def segments(x: Any, where: Any) -> Any:
        return jax.ops.segment_sum(x, where, 256)

    narrow = spec(256, 256, dtype=jnp.int8)
    for cause, fn, args in (
        ("dilated", spread, (spec(2, 16, 16, 32), spec(4, 4, 32, 32))),
        ("slow-type", jnp.matmul, (narrow, narrow)),
        ("reordered", turned, (spec(1024, 1024),)),
        ("collisions", segments, (spec(2**16), spec(2**16, dtype=jnp.int32))),
    ):
        case = compiled(fn, *args)
        assert cause not in named(timed(case))
        found = findings(timed(case, times=20))[0]
        assert found.cause == cause
    sums = compiled(lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32), narrow, narrow)
    assert "slow-type" not in named(timed(sums, times=20))


def test_a_convolution_meets_data_whichever_operand_it_spreads() -> None:
    """A compiler exchanges the operands where the kernel is longer, and pads it instead.

    Of 199·16 + 512 places of the result, each of 200 frames then meets 512: 1 in 7.
    """
    layout = ("NWC", "WIO", "NWC")

    def upsampled(x: Any, w: Any) -> Any:
        return lax.conv_transpose(x, w, (16,), "VALID", dimension_numbers=layout)

    def atrous(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1,), "SAME", rhs_dilation=(16,), dimension_numbers=layout
        )

    for frames, kernel, times in ((512, 16, 16), (200, 512, 7)):
        case = compiled(upsampled, spec(1, frames, 1), spec(kernel, 1, 1))
        found = findings(timed(case, times=20))[0]
        assert found.cause == "dilated"
        assert f"{times - 1} of {times} places it reads are zeros" in found.evidence
    case = compiled(atrous, spec(4, 40, 8), spec(3, 8, 8))  # its own dilation is no waste
    assert "dilated" not in named(timed(case, times=20))


def test_places_that_count_up_are_a_slice() -> None:
    """What data choose, or what counts backwards or in twos, isn't."""
    at, where = spec(dtype=jnp.int32), spec(4096, dtype=jnp.int32)
    x, rows = spec(3 * 4096), spec(3 * 4096, 64)

    def count() -> jax.Array:
        return jnp.arange(4096)

    for fn, args, is_slice in (
        (lambda x: x[count() + 5], (x,), True),
        (lambda x: x[count() + 5], (rows,), True),
        (lambda x, k: x[k + count()], (x, at), True),
        (lambda x: x[4095 - count()], (x,), False),
        (lambda x: x[2 * count()], (x,), False),
        (lambda x, i: x[i], (x, where), False),
        (lambda x, i: x[i + count()], (x, where), False),
    ):
        found = findings(timed(compiled(fn, *args), times=20))[0]
        assert found.cause == "gather"
        assert ("take a slice in their place" in found.advice) is is_slice


def test_constant_places_of_a_scatter_are_read_by_their_inverse() -> None:
    lower = np.flatnonzero(np.tril(np.ones((79, 79))))

    def placed(x: Any) -> Any:
        return jnp.zeros((800, 79 * 79)).at[:, lower].add(x)

    found = findings(timed(compiled(placed, spec(800, lower.size)), times=20))[0]
    assert found.cause == "gather"
    assert "x[inverse]" in found.advice


def test_a_transform_serves_all_places_unless_few_are_read() -> None:
    """Half of a convolution by Fourier transforms is cut off; 32 of 8,192 places are few."""

    def convolved(x: Any, k: Any) -> Any:
        spectra = (jnp.fft.rfft(each, 8192) for each in (x, k))
        return jnp.fft.irfft(next(spectra) * next(spectra), 8192)[:, :4096]

    args = spec(64, 4096), spec(64, 4096)
    assert "read-in-part" not in named(compiled(convolved, *args))
    few = compiled(lambda x: jnp.fft.irfft(x, 8192)[:, :32], spec(64, 4097, dtype=jnp.complex64))
    assert "read-in-part" in named(few)


def test_an_index_made_in_each_turn_isnt_what_its_gather_takes() -> None:
    """The heat equation with indices: their sums are all the FLOPs of the kernel that gathers."""

    def heat(y: Any) -> Any:
        def step(_: Any, y: Any) -> Any:
            at = jnp.arange(1, y.size - 1)
            return y.at[at].add(0.1 * jnp.abs(y[at - 1] - 2 * y[at] + y[at + 1]))

        return lax.fori_loop(0, 20, step, y)

    first = findings(timed(compiled(heat, spec(100_000)), times=20))[0]
    assert first.cause == "gather"
    assert "take a slice in their place" in first.advice


BLOCKED = """HloModule m
ENTRY %e (q: bf16[4096,1024]) -> bf16[4096,1024] {
  %q = bf16[4096,1024]{1,0} parameter(0)
  ROOT %k = bf16[4096,1024]{1,0} custom-call(%q), custom_call_target="tpu_custom_call"
}
"""


def test_blocks_that_are_read_again_are_named() -> None:
    program = Program(BLOCKED, "tpu")
    held = 2 * 4096 * 1024 * 2
    for moved, wasteful in ((1.5 * held, False), (9 * held, True)):
        kernel = replace(
            program.rows["k"], read={"hbm": round(moved)}, written={}, flops=xla.Flops()
        )
        seconds = moved / 1e12
        row = TimedRow("k", seconds=seconds, busy=seconds, launches=1.0, program="m", kernel=kernel)
        ceilings = replace(H200, chip=rh.chip("v6e"))
        row = ceilings.under_roofs(row, kernel)
        found = named(Case((row,), {"m": program}, ceilings, "tpu", seconds))
        assert ("small-blocks" in found) == wasteful
        if wasteful:
            assert found["small-blocks"].seconds == pytest.approx(seconds * 8 / 9, rel=0.01)
            assert "moves 151.0 MB a launch" in found["small-blocks"].evidence


def test_a_donation_in_vain_is_a_finding_and_its_copy_no_row() -> None:
    why = roofline.explain(
        lambda s: s.astype(BF16),
        jnp.ones((512, 512)),
        donate_argnums=0,
        seconds=0.1,
        progress=False,
    )
    assert not any("copy" in row.name for row in why.rows)
    ahead = compiled(lambda s: s.astype(BF16), spec(512, 512))
    text = "argument 0, float32[512,512]: no result that is left has its shape and type"
    evidence = [f.evidence for f in why.findings if f.cause == "donation-unused"]
    assert evidence == [text] or any(text in note for note in why.notes)  # of a busy machine
    found = findings(replace(ahead, unused=(text,)))
    assert found[-1].title == "a donated argument isn't reused"


# --- no bar of the waterfall without a finding ----------------------------------------------------


def test_every_bar_above_a_twentieth_has_a_finding() -> None:
    names = [f"k{n}" for n in range(30)]
    rows = [TimedRow(name, seconds=0.02, busy=0.02, reachable=0.018, launches=1) for name in names]
    rows += [
        TimedRow(f"slow{n}", seconds=0.1, busy=0.1, reachable=0.02, launches=1) for n in (0, 1)
    ]
    rows += [TimedRow(BETWEEN, GAP, 0.1), TimedRow("after the last kernel", HOST, 0.1)]
    case = Case(tuple(rows), {}, H200, "gpu", 1.0, unsteady=0.5)
    found = findings(case)
    by_cause: dict[str, list[Finding]] = {}
    for finding in found:
        by_cause.setdefault(finding.cause, []).append(finding)
    assert {f.kernels for f in by_cause["no-roof"]} == {("slow0",), ("slow1",)}  # nobody judged
    assert len(by_cause["idle"]) == 2
    assert by_cause["many-kernels"][0].seconds == pytest.approx(30 * 0.002)
    shown = [bar for bar in waterfall(rows, 1.0) if bar.seconds > 0.05]
    assert len(shown) == 1 + len(found)  # the compiled program is no loss


@pytest.mark.parametrize("name", LIBRARY)
def test_what_a_library_does_inside_is_not_the_reader_s(name: str) -> None:
    fn, *args = LIBRARY[name]
    case = compiled(fn, *args)
    assert not [f for f in named(case).values() if f.seconds > 0.1 * case.wall], findings(case)


# --- clean programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CLEAN if "Pallas" not in name])
def test_nothing_is_named_in_a_clean_program(name: str) -> None:
    fn, args, how = CLEAN[name]
    case = compiled(fn, *args, **how)
    found = [f for f in named(case).values() if f.seconds > 0.1 * case.wall]
    assert not found, findings(case)


@pytest.mark.skipif(can_compile("v6e") is not None, reason="no compiler for TPUs here")
@pytest.mark.parametrize("name", ["matmuls", "training", "decode", "Pallas attention"])
def test_nothing_is_named_in_a_clean_program_for_a_tpu(name: str) -> None:
    fn, args, how = CLEAN[name]
    why = roofline.explain(fn, *args, chip="v6e", progress=False, **how)
    assert not [f for f in why.findings if f.named], why.findings


def test_no_pallas_kernel_is_advised_on_a_cpu() -> None:
    """Pallas compiles nothing for a CPU."""

    def transported(cost: Any, a: Any, b: Any) -> Any:
        gain = -cost / 0.1

        def step(_: Any, pair: Any) -> Any:
            f, g = pair
            f = a - jax.nn.logsumexp(gain + g[None], 1)
            return f, b - jax.nn.logsumexp(gain + f[:, None], 0)

        return lax.fori_loop(0, 20, step, (jnp.zeros_like(a), jnp.zeros_like(b)))

    case = compiled(transported, spec(600, 600), spec(600), spec(600))
    split = [found for found in findings(case) if found.cause == "unfused"]
    assert split
    assert all("Pallas" not in found.advice for found in split)
