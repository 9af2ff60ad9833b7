"""Findings that need a GPU's program or a profiler's details: from HLO text, and from rows."""

from __future__ import annotations

import re

import pytest

import roofline_helpers as rh
from roofline_helpers import xla
from roofline_helpers.device.ceilings import Ceilings, Reached
from roofline_helpers.device.explain import case_ahead
from roofline_helpers.device.findings import Case, findings
from roofline_helpers.device.program import Program
from roofline_helpers.device.rows import TimedRow

H200 = Ceilings(rh.chip("h200"), None)

ATTENTION = """HloModule attention, is_scheduled=true
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
%softmax (p: T[32,4096,4096]) -> T[32,4096,4096] {
  %p = T[32,4096,4096]{2,1,0} parameter(0)
  %e = T[32,4096,4096]{2,1,0} exponential(%p)
  %c = f32[32,4096,4096]{2,1,0} convert(%e)
  %zero = f32[] constant(0)
  %s = f32[32,4096]{1,0} reduce(%c, %zero), dimensions={2}, to_apply=%add
  %w = f32[32,4096,4096]{2,1,0} broadcast(%s), dimensions={0,1}
  %d = f32[32,4096,4096]{2,1,0} divide(%c, %w)
  ROOT %o = T[32,4096,4096]{2,1,0} convert(%d)
}
ENTRY %main (q: T[32,4096,128], k: T[32,4096,128], v: T[32,4096,128]) -> T[32,4096,128] {
  %q = T[32,4096,128]{2,1,0} parameter(0)
  %k = T[32,4096,128]{2,1,0} parameter(1)
  %v = T[32,4096,128]{2,1,0} parameter(2)
  %scores = T[32,4096,4096]{2,1,0} dot(%q, %k), BATCHED, rhs_contracting_dims={2}
  %soft = T[32,4096,4096]{2,1,0} fusion(%scores), kind=kInput, calls=%softmax
  ROOT %out = T[32,4096,128]{2,1,0} dot(%soft, %v), BATCHED, rhs_contracting_dims={1}
}
""".replace("BATCHED", "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}")


@pytest.mark.parametrize(("dtype", "cause"), [("bf16", "attention"), ("f32", "scores")])
def test_attention_in_pieces_on_a_gpu(dtype: str, cause: str) -> None:
    case = case_ahead(Program(ATTENTION.replace("T[", f"{dtype}["), "gpu"), H200)
    by_cause = {each.cause: each for each in findings(case) if each.named}
    assert set(by_cause) == {cause}
    assert by_cause[cause].kernels == ("scores", "soft", "out")
    # what remains is the roof of q, k, v and the result
    assert 0 < by_cause[cause].seconds < case.wall
    width = 2 if dtype == "bf16" else 4
    assert by_cause[cause].bytes == 4 * 32 * 4096 * 4096 * width


CUBLAS = (
    "%call.NAME = (RESULT, s8[33554432]{0}) custom-call(OPERANDS), custom_call_target="
    '"__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{'
    '"lhs_batch_dimensions":BATCH,"lhs_contracting_dimensions":["LEFT"],"rhs_batch_dimensions":BATCH,'
    '"rhs_contracting_dimensions":["INNER"]}}}\n'
    "  NAMED = RESULT get-tuple-element(%call.NAME), index=0"
)


def with_cublas(text: str, batch: str = '["0"]', left: str = "2") -> str:
    """Return a program with the calls of a library in place of its products, as GPUs run them."""
    dot = re.compile(
        r"((?:ROOT )?%(\w+)) = (\w+\[[\d,]+\]\{[\d,]+\}) dot\((.*?)\), .*"
        r"rhs_contracting_dims=\{(\d)\}"
    )

    def call(match: re.Match[str]) -> str:
        named, name, result, operands, inner = match.groups()
        text = CUBLAS.replace("NAMED", named).replace("NAME", name).replace("RESULT", result)
        text = text.replace("BATCH", batch).replace("LEFT", left)
        return text.replace("OPERANDS", operands).replace("INNER", inner)

    return dot.sub(call, text)


@pytest.mark.parametrize(("dtype", "cause"), [("bf16", "attention"), ("f32", "scores")])
def test_attention_in_calls_of_a_library(dtype: str, cause: str) -> None:
    plain = ATTENTION.replace("T[", f"{dtype}[")
    text = with_cublas(plain)
    assert text.count("custom-call(") == 2
    found = findings(case_ahead(Program(text, "gpu"), H200))
    by_cause = {each.cause: each for each in found if each.named}
    assert set(by_cause) == {cause}
    same = findings(case_ahead(Program(plain, "gpu"), H200))[0]
    assert by_cause[cause].seconds == pytest.approx(same.seconds, rel=1e-6)
    assert by_cause[cause].evidence == same.evidence


def test_a_library_call_that_widens_one_side_is_named() -> None:
    text = """HloModule widened, is_scheduled=true
ENTRY %main (x: bf16[4096,4096], w: f32[4096,4096]) -> f32[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %w = f32[4096,4096]{1,0} parameter(1)
  %wide = f32[4096,4096]{1,0} convert(%x), metadata={op_name="jit(f)/convert_element_type"}
  ROOT %y = f32[4096,4096]{1,0} dot(%wide, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    for each in (text, with_cublas(text, batch="[]", left="1")):
        by_cause = {one.cause: one for one in findings(case_ahead(Program(each, "gpu"), H200))}
        assert "float32" in by_cause, by_cause
        assert "wide" in by_cause["float32"].kernels


CACHE = """HloModule step, is_scheduled=trueALIAS
%turn (p: bf16[64,2048,8,128]) -> bf16[64,8,2048,128] {
  %p = bf16[64,2048,8,128]{3,2,1,0} parameter(0)
  ROOT %t = bf16[64,8,2048,128]{3,2,1,0} transpose(%p), dimensions={0,2,1,3}
}
%add (old: bf16[64,8,2048,128], new: bf16[64,8,1,128], at: s32[]) -> bf16[64,8,2048,128] {
  %old = bf16[64,8,2048,128]{3,2,1,0} parameter(0)
  %new = bf16[64,8,1,128]{3,2,1,0} parameter(1)
  %at = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %u = bf16[64,8,2048,128]{3,2,1,0} dynamic-update-slice(%old, %new, %zero, %zero, %at, %zero)
}
%back (q: bf16[64,8,2048,128], n: bf16[64,8,1,128], at: s32[]) -> bf16[64,2048,8,128] {
  %q = bf16[64,8,2048,128]{3,2,1,0} parameter(0)
  %n = bf16[64,8,1,128]{3,2,1,0} parameter(1)
  %at = s32[] parameter(2)
  %zero = s32[] constant(0)
  %v = bf16[64,8,2048,128]{3,2,1,0} dynamic-update-slice(%q, %n, %zero, %zero, %at, %zero)
  ROOT %b = bf16[64,2048,8,128]{3,2,1,0} transpose(%v), dimensions={0,2,1,3}
}
"""

BY_TOKEN = """ENTRY %main (cache: bf16[64,2048,8,128], one: bf16[64,8,1,128], q: bf16[64,8,4,128], \
i: s32[]) -> (f32[64,8,4,2048], bf16[64,2048,8,128]) {
  %cache = bf16[64,2048,8,128]{3,2,1,0} parameter(0)
  %one = bf16[64,8,1,128]{3,2,1,0} parameter(1)
  %q = bf16[64,8,4,128]{3,2,1,0} parameter(2)
  %i = s32[] parameter(3)
  %turned = bf16[64,8,2048,128]{3,2,1,0} fusion(%cache), kind=kLoop, calls=%turn
  %mine = bf16[64,8,2048,128]{3,2,1,0} copy(%turned)
  %keys = bf16[64,8,2048,128]{3,2,1,0} fusion(%mine, %one, %i), kind=kLoop, calls=%add
  %s = f32[64,8,4,2048]{3,2,1,0} dot(%q, %keys), BATCHED
  %after = bf16[64,2048,8,128]{3,2,1,0} fusion(%turned, %one, %i), kind=kLoop, calls=%back
  ROOT %all = (f32[64,8,4,2048]{3,2,1,0}, bf16[64,2048,8,128]{3,2,1,0}) tuple(%s, %after)
}
"""

BY_HEAD = """ENTRY %main (cache: bf16[64,8,2048,128], one: bf16[64,8,1,128], q: bf16[64,8,4,128], \
i: s32[]) -> (f32[64,8,4,2048], bf16[64,8,2048,128]) {
  %cache = bf16[64,8,2048,128]{3,2,1,0} parameter(0)
  %one = bf16[64,8,1,128]{3,2,1,0} parameter(1)
  %q = bf16[64,8,4,128]{3,2,1,0} parameter(2)
  %i = s32[] parameter(3)
  %keys = bf16[64,8,2048,128]{3,2,1,0} fusion(%cache, %one, %i), kind=kLoop, calls=%add
  %s = f32[64,8,4,2048]{3,2,1,0} dot(%q, %keys), BATCHED
  ROOT %all = (f32[64,8,4,2048]{3,2,1,0}, bf16[64,8,2048,128]{3,2,1,0}) tuple(%s, %keys)
}
"""


def of_cache(entry: str) -> Case:
    batched = "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}"
    entry = entry.replace("BATCHED", batched + ", rhs_contracting_dims={3}")
    alias = ", input_output_alias={ {1}: (0, {}, may-alias) }, entry_computation_layout={}"
    return case_ahead(Program(CACHE.replace("ALIAS", alias) + entry, "gpu"), H200)


def test_a_cache_in_the_wrong_order_is_named_with_all_that_it_costs() -> None:
    """As XLA for GPUs does it: into the product's order, once more for the update, and back."""
    case = of_cache(BY_TOKEN)
    copies = [each for each in findings(case) if each.cause == "layout-copy"]
    assert {name for each in copies for name in each.kernels} == {"turned", "mine", "after"}
    rows = {row.name: row.seconds for row in case.rows}
    wanted = rows["turned"] + rows["mine"] + rows["after"]
    assert sum(each.seconds for each in copies) == pytest.approx(wanted, rel=0.01)
    assert [each.cause for each in findings(of_cache(BY_HEAD))] == ["memory-bound"]


def kernel(blocks: int, seconds: float = 1e-4, reachable: float = 4e-5) -> TimedRow:
    details = (
        f"regs:128 static_shared:0 dynamic_shared:0 grid:{blocks},1,1 block:256,1,1 occ_pct:25"
    )
    return TimedRow("k", seconds=seconds, busy=seconds, reachable=reachable, details=details)


def tails(row: TimedRow) -> list[float]:
    case = Case((row,), {}, H200, "gpu", row.seconds, processors=132)
    return [each.seconds for each in findings(case) if each.cause == "tail"]


def test_a_last_wave_that_is_nearly_empty() -> None:
    # 25 % of 2048 threads are two blocks of 256: 264 blocks a wave
    assert tails(kernel(270)) == [pytest.approx(1e-4 * (1 - 270 / 264 / 2))]
    assert tails(kernel(270, reachable=7e-5)) == [pytest.approx(3e-5)]  # no more than it loses
    assert tails(kernel(528)) == []
    assert tails(kernel(100_000)) == []


def test_a_second_is_claimed_once() -> None:
    program = Program(ATTENTION.replace("T[", "bf16["), "gpu")
    case = case_ahead(program, H200)
    assert sum(each.seconds for each in findings(case)) <= case.wall * (1 + 1e-9)


@pytest.mark.parametrize(("types", "peak"), [(("f32",), 4e14), (("f32 highest",), 5e13)])
def test_float32_products_of_a_gpu_are_held_against_tf32(
    types: tuple[str, ...], peak: float
) -> None:
    reached = Reached(4e12, {"fp32": 5e13, "tf32": 4e14, "bf16": 7e14})
    assert reached.roof(xla.Row("dot", "dot", matrix_types=types)).peak == peak
