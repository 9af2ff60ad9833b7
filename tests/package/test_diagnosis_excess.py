"""Work that nobody needs is named, ranked by seconds that follow from counts, and else nothing is.

This machine's compiler makes the programs, which are read and not timed: rows take what their roofs
say, or the seconds that a test gives them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import planted_causes as planted
import pytest
from jax import lax
from test_diagnosis_causes import compiled, named, spec, timed
from test_diagnosis_findings import H200

import roofline
import roofline_helpers as rh
from roofline import xla
from roofline.diagnosis.findings import Case, Finding, findings
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import BETWEEN, GAP, HOST, TimedRow, waterfall
from roofline.xla import can_compile

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


# --- what is named, with the right number ---------------------------------------------------------


def depthwise(w: Any, x: Any) -> Any:
    layout = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(
        x, w, (1,), "SAME", dimension_numbers=layout, feature_group_count=x.shape[-1]
    )


def by_weights(product: Callable[..., Any]) -> Callable[..., Any]:
    def f(w: Any, *others: Any) -> Any:
        return jax.grad(lambda w: (product(w, *others).astype(jnp.float32) ** 2).sum())(w)

    return f


def carried(c: Any) -> Any:
    def step(c: Any, i: Any) -> Any:
        n = c.at[i].add(1.0)
        return n, (c * n).sum()

    return lax.scan(step, c, jnp.arange(20))


def swapped(a: Any, b: Any) -> Any:
    def step(c: Any) -> Any:
        return c[0] + 1, c[2], c[1].at[c[0]].set(c[2][c[0]])

    return lax.while_loop(lambda c: c[0] < 50, step, (0, a, b))


def both(x: Any, up: Any, choice: Any) -> Any:
    def cheap(x: Any) -> Any:
        return jnp.sin(x) @ up

    def dear(x: Any) -> Any:
        return jnp.tanh(x @ up) @ up @ up

    return jax.vmap(lambda x, c: lax.cond(c, dear, cheap, x))(x, choice)


def dropped(key: Any, x: Any) -> Any:
    keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0)


def attended(q: Any, k: Any, v: Any, times: int = 4) -> Any:
    k, v = (jnp.repeat(heads, times, axis=2) for heads in (k, v))
    p = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", q, k))
    return jnp.einsum("bht,bthd->bhd", p, v)


def lengthened(x: Any) -> Any:
    kept, total = x[0], 0.0
    for n in range(1, 60):
        kept = jnp.concatenate([kept, jnp.tanh(x[n] + kept.mean(0))])
        total += (kept * kept).sum()
    return kept, total


def experts(x: Any, w: Any, chosen: Any) -> Any:
    spread = jnp.einsum("td,te->etd", x, jax.nn.one_hot(chosen, 16))
    return jnp.einsum("etd,edf->tf", spread, w)


ROWS = spec(1024, 256, dtype=BF16), spec(16, dtype=jnp.int32)
NAMED = {
    "the gradient of a ragged matmul by its weights": (
        by_weights(lambda w, x, sizes: lax.ragged_dot(x, w, sizes)),
        (spec(16, 256, 512, dtype=BF16), *ROWS),
        ("ragged", 0.8, "each row 16 times, 15 of them zeros"),
    ),
    "experts by a one-hot product": (
        experts,
        (spec(512, 256), spec(16, 256, 256), spec(512, dtype=jnp.int32)),
        ("ragged", 0.8, "each row 16 times"),
    ),
    "the gradient of a depthwise convolution": (
        by_weights(depthwise),
        (spec(5, 1, 256), spec(8, 256, 256)),
        ("done-densely", 0.8, "1 in 256 of it is used"),
    ),
    "the trace of a product": (
        lambda a, b: jnp.trace(a @ b),
        (spec(1024, 512), spec(512, 1024)),
        ("done-densely", 0.7, "1 in 1024 of it is used"),
    ),
    "a carry of scan": (
        carried,
        (spec(4_000_000),),
        ("carry-copy", 0.6, "20 copies of f32[4000000], 16 MB each"),
    ),
    "a carry of while": (
        swapped,
        (spec(2048, 2048), spec(2048, 2048)),
        ("carry-copy", 0.9, "50 copies of f32[2048,2048]"),
    ),
    "random numbers": (
        dropped,
        (spec(2, dtype=jnp.uint32), spec(2048, 2048)),
        ("random", 0.8, "part of the generator"),
    ),
    "repeated keys and values": (
        attended,
        (spec(8, 32, 128), spec(8, 1024, 8, 128), spec(8, 1024, 8, 128)),
        ("repeated", 0.7, "is written 4 times"),
    ),
    "an array that grows": (lengthened, (spec(60, 8, 512),), ("growing", 0.4, "concatenate of ")),
}


@pytest.mark.parametrize("kind", NAMED)
def test_what_is_not_needed_is_named_with_its_share(kind: str) -> None:
    fn, args, (cause, share, evidence) = NAMED[kind]
    case = compiled(fn, *args)
    found = named(case)
    assert cause in found, findings(case)
    assert found[cause].seconds >= share * case.wall
    assert evidence in found[cause].evidence


def test_the_cheaper_of_two_branches_is_lost() -> None:
    """Three matmuls on one side and one on the other: a quarter of the four."""
    case = compiled(both, spec(64, 256, 256), spec(256, 256), spec(64, dtype=jnp.bool_))
    matmuls = [row.seconds for row in case.rows if row.kernel.matrix_types]
    assert len(matmuls) == 4
    found = named(case)["both-branches"]
    assert max(matmuls) <= found.seconds < 0.4 * sum(matmuls)
    assert "f32[64,256,256] is one of two values" in found.evidence


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
    assert {f.kernels for f in by_cause["below-roof"]} == {("slow0",), ("slow1",)}
    assert len(by_cause["idle"]) == 2
    assert by_cause["many-kernels"][0].seconds == pytest.approx(30 * 0.002)
    shown = [bar for bar in waterfall(rows, 1.0) if bar.seconds > 0.05]
    assert len(shown) == 1 + len(found)  # the compiled program is no loss


def test_near_its_roof_is_only_said_of_what_ran() -> None:
    case = compiled(jnp.matmul, spec(512, 512), spec(512, 512))
    assert "near" not in findings(case)[0].title
    assert findings(case)[0].cause == "least-compute-bound"
    assert "near" in findings(timed(case))[0].title


def test_what_no_matmul_reads_is_no_layout_of_one() -> None:
    turned = compiled(lambda x: jnp.cumsum(x, axis=0), spec(2048, 2048))
    assert "reordered" in named(turned)


# --- clean programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in planted.CLEAN if "Pallas" not in name])
def test_nothing_is_named_in_a_clean_program(name: str) -> None:
    fn, args, how = planted.CLEAN[name]
    case = compiled(fn, *args, **how)
    assert not named(case), findings(case)


@pytest.mark.skipif(can_compile("v6e") is not None, reason="no compiler for TPUs here")
@pytest.mark.parametrize("name", ["matmuls", "training", "decode", "Pallas attention"])
def test_nothing_is_named_in_a_clean_program_for_a_tpu(name: str) -> None:
    fn, args, how = planted.CLEAN[name]
    why = roofline.explain(fn, *args, chip="v6e", progress=False, **how)
    assert not [f for f in why.findings if f.named], why.findings
