"""Causes that were missed or wrong, each as the smallest program that shows it.

What this machine's compiler makes is read and not timed: rows take what their roofs say, or the
seconds that a test gives them.
"""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import roofline_helpers as rh
from measurements.kernels import cases
from roofline.diagnosis import ladder
from roofline.diagnosis.ceilings import Ceilings, Roofs
from roofline.diagnosis.findings import CAUSES, findings
from roofline.diagnosis.modelled import modelled_case
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import GAP, HOST, TimedRow, waterfall

CPU = Ceilings(measured=Roofs(reached={"fp32": 1e11, "hbm": 1e10, "vector": 2e10}))


def spec(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def compiled(fn, *args, **jit):
    """Return a function as this machine's compiler makes it: rows take what their roofs say."""
    lowered = jax.jit(fn, **jit).lower(*args)
    text = str(lowered.compile().as_text())
    written = lowered.compiler_ir("hlo").as_hlo_module().to_string()
    return modelled_case(Program(text, "cpu", written=written), CPU)


def timed(case, times=1.0, idle=0.0):
    """Return a case whose kernels took so many times their roofs, and the host so long."""
    rows = tuple(replace(row, seconds=times * row.seconds) for row in case.rows)
    rows += (TimedRow("before the first kernel", HOST, idle),) if idle else ()
    wall = sum(row.seconds for row in rows)
    return replace(case, rows=rows, wall=wall, measured=True)


def named(case):
    return {finding.cause: finding for finding in findings(case) if finding.named}


# --- there is always a last finding ---------------------------------------------------------------


def test_a_kernel_far_below_its_roof_leads_though_nothing_explains_it():
    case = timed(compiled(lambda x: jnp.cumsum(jnp.sort(x)), spec(2**16)), times=15.8)
    first = findings(case)[0]
    assert first.cause == "below-roof"
    assert "sort" in first.evidence
    assert "reaches 6% of its roof" in first.evidence
    assert first.seconds == max(finding.seconds for finding in findings(case))


@pytest.mark.parametrize(("times", "cause"), [(1.0, "usual"), (8.0, "below-roof")])
def test_a_sort_that_takes_what_sorts_take_is_normal(times, cause):
    """On an H100, as it was timed there: a tenth of its roof, which no sort reaches."""
    large = (one for one in cases("h100") if one["family"] == "sort" and one["result_bytes"] > 1e7)
    one = next(large)
    took = Counter[str]()
    for name, _, _, _, seconds, _ in one["kernels"]:
        took[name] += seconds
    program, ceilings = Program(one["hlo"], "gpu"), Ceilings(rh.chip("h100").per_device())
    case = modelled_case(program, ceilings)
    rows = tuple(replace(row, seconds=times * took[row.name], busy=0.0) for row in case.rows)
    wall = sum(row.seconds for row in rows)
    first = findings(replace(case, rows=rows, wall=wall, measured=True))[0]
    assert first.cause == cause, first
    said = "such kernels take" if times == 1 else "times what is normal"
    assert said in first.evidence


@pytest.mark.parametrize(
    ("fn", "args", "cause"),
    [
        (lambda x: x + 1, [spec(2**22)], "memory-bound"),
        (jnp.matmul, [spec(1024, 1024)] * 2, "compute-bound"),
        (lambda x: jnp.sort(x), [spec(2**16)], "vector-bound"),
    ],
)
def test_a_kernel_at_its_roof_says_which(fn, args, cause):
    last = findings(timed(compiled(fn, *args)))[-1]
    assert last.cause == cause
    assert "reaches 100% of its roof" in last.evidence


def test_a_kernel_that_beats_the_memory_has_the_cache_in_its_line():
    """On a CPU, whose least time nobody publishes, and on a chip of which it is published."""
    case = timed(compiled(lambda x: x + 1, spec(2**22)), times=1 / 4.27)
    for published, share in ((None, "of its roof"), (3.8, "of the published one")):
        rows = (replace(row, least=published and published * row.seconds) for row in case.rows)
        last = findings(replace(case, rows=tuple(rows)))[-1]
        assert f"{share}: a cache holds what it reads" in last.evidence


def test_exponentials_are_the_reason_only_where_their_work_fills_the_time():
    case = compiled(lambda x: jnp.sin(jnp.exp(jnp.tanh(x))), spec(2**20))
    many = sum(row.kernel.flops.transcendentals for row in case.rows)
    filled = 20 * many / CPU.roofs.reached["vector"] / case.wall  # times the roof
    assert 1.5 < filled / 2 < filled
    assert named(timed(case, filled))["transcendentals"].seconds > 0
    assert "transcendentals" not in named(timed(case, 3 * filled))  # something else is slow too
    plain = compiled(lambda x: x * 2 + 1, spec(2**20))
    assert "transcendentals" not in named(timed(plain, filled))


# --- more than was asked for ----------------------------------------------------------------------


def test_a_ragged_matmul_made_dense_is_named():
    sizes = spec(8, dtype=jnp.int32)
    args = spec(512, 256), spec(8, 256, 512), sizes
    case = compiled(lax.ragged_dot, *args)
    found = named(case)
    assert "multiplied by 2,048, of which 256 aren't zero" in found["ragged"].evidence
    assert found["ragged"].seconds > 0.6 * case.wall
    padded = compiled(jnp.matmul, spec(8, 64, 256), spec(8, 256, 512))
    assert "ragged" not in named(padded)


WIDE = """HloModule wide, is_scheduled=true
ENTRY %main (x: f64[1024,1024], w: f64[1024,1024]) -> f64[1024,1024] {
  %x = f64[1024,1024]{1,0} parameter(0)
  %w = f64[1024,1024]{1,0} parameter(1)
  %y = f64[1024,1024]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %z = f64[1024,1024]{1,0} tanh(%y)
}
"""


@pytest.mark.parametrize(("platform", "chip"), [("cpu", None), ("gpu", "h200"), ("tpu", "v6e")])
def test_float64_is_named_and_has_a_roof_of_its_own(platform, chip):
    ceilings = CPU if chip is None else Ceilings(rh.chip(chip))
    wide = modelled_case(Program(WIDE, platform), ceilings)
    narrow = modelled_case(Program(WIDE.replace("f64", "f32"), platform), ceilings)
    assert findings(wide)[0].cause == "float64"
    assert "argument 0 is f64[1024,1024]" in findings(wide)[0].evidence
    assert "float64" not in named(narrow)
    if chip is None:
        assert wide.rows[0].reachable == pytest.approx(2 * 2 * 1024**3 / 1e11)


def test_a_cache_that_is_kept_is_copied_first():
    def append(cache, new, i):
        cache = lax.dynamic_update_slice(cache, new, (0, i, 0))
        return jnp.sum(cache[:, :64], axis=(1, 2)), cache

    args = spec(8, 4096, 256), spec(8, 1, 256), spec(dtype=jnp.int32)
    assert set(named(compiled(append, *args))) == {"not-donated"}
    assert not named(compiled(append, *args, donate_argnums=0))


# --- seconds that somebody checked ----------------------------------------------------------------


def gained():
    """Return what each cause's removal gained, over its seconds: in the ladders, on an H200.

    A pair counts if nothing else on the list went with the cause.
    """
    shares = {}
    steps = [
        step
        for rungs in ladder.committed().values()
        for step in sorted(rungs.steps, key=lambda step: str(step.setting))
    ]
    for before, after in pairwise(steps):
        if before.why is None or after.why is None or before.setting != after.setting:
            continue
        causes = Counter[str]()
        left = {finding.cause for finding in after.why.findings}
        for finding in before.why.findings:
            causes[finding.cause] += finding.seconds
        gone = {cause: seconds for cause, seconds in causes.items() if cause not in left}
        for cause, seconds in gone.items():
            if sum(gone.values()) < 1.1 * seconds:
                shares.setdefault(cause, []).append((before.why.wall - after.why.wall) / seconds)
    return shares


def test_what_steps_of_a_ladder_gained_is_within_what_is_told():
    shares = gained()
    for cause in ("layout-copy", "scan-copy", "attention", "not-donated"):
        within = CAUSES[cause].within
        assert all(1 / within <= share <= within for share in shares[cause])


def test_what_rounding_leaves_is_no_time():
    rows = tuple(TimedRow(f"k{n}", seconds=0.1, reachable=0.1, least=0.1) for n in range(3))
    assert waterfall(rows, wall=0.1 + 0.1 + 0.1)[-1].seconds == 0.0
    assert waterfall(rows, wall=0.4)[-1].seconds == pytest.approx(0.1)


def test_what_kernels_lose_is_not_taken_off_the_time_without_kernels():
    case = compiled(lambda x: jnp.sin(jnp.exp(jnp.tanh(x))), spec(2**20))
    many = sum(row.kernel.flops.transcendentals for row in case.rows)
    times = 20 * many / CPU.roofs.reached["vector"] / case.wall
    idle = 0.5 * times * case.wall
    case = timed(case, times)
    case = replace(case, rows=(*case.rows, TimedRow("", GAP, idle)), wall=case.wall + idle)
    found = {finding.cause: finding for finding in findings(case)}
    assert found["transcendentals"].seconds > 0
    assert found["idle"].seconds == pytest.approx(idle)
