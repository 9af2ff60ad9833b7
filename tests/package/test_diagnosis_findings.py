"""Findings that need a GPU's program or a profiler's details: from HLO text, and from rows."""

import re
from dataclasses import replace

import pytest
from hlo_texts import ADD

import roofline_helpers as rh
from roofline import xla
from roofline.diagnosis.ceilings import Ceilings, Roofs
from roofline.diagnosis.findings import Case, findings
from roofline.diagnosis.findings.again import large_between
from roofline.diagnosis.findings.moved import repeats
from roofline.diagnosis.findings.small import communication, turn_by_turn
from roofline.diagnosis.findings.vain import dearer_orders
from roofline.diagnosis.modelled import modelled_case
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow, with_program
from roofline.xla.display import numbered

H200 = Ceilings(rh.chip("h200"))

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


def test_an_exchange_has_its_bytes_also_between_buffers_on_the_chip() -> None:
    text = """HloModule turned, num_partitions=8
ENTRY %main (x: bf16[512,4096]) -> bf16[512,4096] {
  %x = bf16[512,4096]{1,0:S(1)} parameter(0)
  ROOT %y = bf16[512,4096]{1,0:S(1)} all-to-all(%x), replica_groups=[1,8]<=[8]
}"""
    ahead = modelled_case(Program(text, "tpu"), Ceilings(rh.chip("v6e")), 1e-6)
    found = next(f for f in findings(ahead) if f.cause == "communication")
    assert found.evidence.startswith("all-to-all of 4.19 MB")


@pytest.mark.parametrize("known", [True, False])
def test_a_loop_that_runs_as_one_kernel_has_a_roof_only_with_a_known_count(known: bool) -> None:
    count = ', backend_config={"known_trip_count":{"n":"7"}}' if known else ""
    text = f"""HloModule turning
%more (c: f32[1024]) -> pred[] {{
  %c = f32[1024]{{0}} parameter(0)
  ROOT %p = pred[] custom-call(%c), custom_call_target="ask"
}}
%turn (c: f32[1024]) -> f32[1024] {{
  %c = f32[1024]{{0}} parameter(0)
  ROOT %t = f32[1024]{{0}} tanh(%c)
}}
ENTRY %main (x: f32[1024]) -> f32[1024] {{
  %x = f32[1024]{{0}} parameter(0)
  ROOT %w = f32[1024]{{0}} while(%x), condition=%more, body=%turn{count}
}}"""
    cpu = Ceilings(measured=Roofs(reached={"fp32": 1e11, "hbm": 1e10, "vector": 2e10}))
    row = with_program(TimedRow("w", seconds=1e-3, busy=1e-3), Program(text, "cpu"), cpu)
    assert (row.reachable is not None, row.limit != "", row.bandwidth is not None) == (known,) * 3
    assert ("nobody says how often w turns" in row.kernel.at_least) != known


@pytest.mark.parametrize(
    ("reachable", "cause", "words"),
    [
        (1e-6, "slow-by-cycles", "by the compiler's cycles, 10.0 times its roof"),
        (0.0, "slow-by-cycles", "by the compiler's cycles, and moves nothing"),
        (5e-6, "least-memory-bound", "by the compiler's cycles, 2.0 times its roof, bound by"),
        (1e-5, "least-memory-bound", "by the roofline, bound by"),
    ],
)
def test_a_kernel_that_the_compiler_expects_to_be_slow(
    reachable: float, cause: str, words: str
) -> None:
    text = """HloModule broadcast
ENTRY %main () -> f32[8,128] {
  %zero = f32[] constant(0)
  ROOT %y = f32[8,128]{1,0:S(1)} broadcast(%zero), dimensions={}
}"""
    ahead = modelled_case(Program(text, "tpu"), Ceilings(rh.chip("v6e")), 1e-6)
    (row,) = ahead.rows
    few = xla.Flops(vector=1024, transcendentals=1024)  # not what takes 10 µs
    slow = xla.Row("y", "tanh", operations={"tanh": 1}, flops=few, cycles=17_510)  # at 1.751 GHz
    row = replace(row, kernel=slow, seconds=1e-5, least=reachable, reachable=reachable)
    (found,) = findings(replace(ahead, rows=(row,), wall=1e-5))
    assert (found.cause, words in found.evidence) == (cause, True)


def test_what_several_kernels_of_a_line_show_is_told_once() -> None:
    text = """HloModule lines
ENTRY %main (x: f32[8,128]) -> (f32[8,128], f32[8,128], f32[8,128]) {
  %x = f32[8,128]{1,0} parameter(0)
  %a = f32[8,128]{1,0} tanh(%x), metadata={source_file="m.py" source_line=3}
  %b = f32[8,128]{1,0} exponential(%x), metadata={source_file="m.py" source_line=3}
  %c = f32[8,128]{1,0} sine(%x), metadata={source_file="m.py" source_line=4}
  ROOT %t = (f32[8,128]{1,0}, f32[8,128]{1,0}, f32[8,128]{1,0}) tuple(%a, %b, %c)
}"""
    ahead = modelled_case(Program(text, "tpu"), Ceilings(rh.chip("v6e")), 1e-6)
    lines = {"a": "m.py:3", "b": "m.py:3", "c": "m.py:4"}
    rows = tuple(
        replace(
            row,
            kernel=xla.Row(row.name, row.name, cycles=17_510, source=lines[row.name]),
            seconds=1e-5,
            least=1e-7,
            reachable=1e-7,
        )
        for row in ahead.rows
    )
    found = findings(replace(ahead, rows=rows, wall=3e-5))
    assert sorted((f.cause, f.source, f.kernels) for f in found) == [
        ("slow-by-cycles", "m.py:3", ("a", "b")),
        ("slow-by-cycles", "m.py:4", ("c",)),
    ]
    assert found[0].evidence.endswith(", and 1 more like it")
    assert found[0].share == pytest.approx(2 / 3)
    told = [told.advice for _, told in numbered(found)[1]]
    assert told[1] == "the same" != told[0]


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
    found = findings(modelled_case(Program(text, "gpu"), H200))
    by_cause = {finding.cause: finding for finding in found if finding.named}
    assert set(by_cause) == {cause}
    same = findings(modelled_case(Program(plain, "gpu"), H200))[0]
    assert by_cause[cause].seconds == pytest.approx(same.seconds, rel=1e-6)
    assert by_cause[cause].evidence == same.evidence


def test_activations_between_matmuls_are_no_scores() -> None:
    """A gate's exponential and a norm's sum of squares, as in a step whose attention is cuDNN's."""
    gate = ATTENTION.replace("T[", "bf16[").replace("reduce(%c, %zero)", "reduce(%squares, %zero)")
    squares = "  %squares = f32[32,4096,4096]{2,1,0} multiply(%wide, %wide)\n"
    wide = "  %wide = f32[32,4096,4096]{2,1,0} convert(%p)\n"
    gate = gate.replace("  %zero = ", f"{wide}{squares}  %zero = ")
    plain = Program(ATTENTION.replace("T[", "bf16["), "gpu")
    assert "attention" in {f.cause for f in findings(modelled_case(plain, H200))}
    others = {f.cause for f in findings(modelled_case(Program(gate, "gpu"), H200)) if f.named}
    assert others <= {"large-between"}  # as they are


def test_a_library_call_that_widens_one_side_is_named() -> None:
    text = """HloModule widened, is_scheduled=true
ENTRY %main (x: bf16[4096,4096], w: f32[4096,4096]) -> f32[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %w = f32[4096,4096]{1,0} parameter(1)
  %wide = f32[4096,4096]{1,0} convert(%x), metadata={op_name="jit(f)/convert_element_type"}
  ROOT %y = f32[4096,4096]{1,0} dot(%wide, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    for way in (text, with_cublas(text, batch="[]", left="1")):
        by_cause = {f.cause: f for f in findings(modelled_case(Program(way, "gpu"), H200))}
        assert "float32" in by_cause, by_cause
        assert "wide" in by_cause["float32"].kernels


def kernel(blocks: int, seconds: float = 1e-4, reachable: float = 4e-5) -> TimedRow:
    details = (
        f"regs:128 static_shared:0 dynamic_shared:0 grid:{blocks},1,1 block:256,1,1 occ_pct:25"
    )
    return TimedRow("k", seconds=seconds, busy=seconds, reachable=reachable, details=details)


def tails(row: TimedRow) -> list[float]:
    case = Case((row,), {}, H200, "gpu", row.seconds, processors=132)
    return [finding.seconds for finding in findings(case) if finding.cause == "tail"]


def test_a_last_wave_that_is_nearly_empty() -> None:
    # 25% of 2048 threads are two blocks of 256: 264 blocks a wave
    assert tails(kernel(270)) == [pytest.approx(1e-4 * (1 - 270 / 264 / 2))]
    assert tails(kernel(270, reachable=7e-5)) == [pytest.approx(3e-5)]  # no more than it loses
    assert tails(kernel(528)) == []
    assert tails(kernel(100_000)) == []


@pytest.mark.parametrize(("types", "peak"), [(("f32",), 4e14), (("f32 highest",), 5e13)])
def test_float32_products_of_a_gpu_are_held_against_tf32(types, peak):
    rates = {"hbm": 4e12, "fp32": 5e13, "tf32": 4e14, "bf16": 7e14}
    roof = Ceilings(measured=Roofs(reached=rates)).roof(xla.Row("dot", "dot", matrix_types=types))
    assert roof is not None
    assert roof.peak == peak


def test_a_large_array_between_is_named_unless_it_is_only_scattered() -> None:
    """The 134 MB of a product of a column and a row, which is summed as well or isn't."""
    text = """HloModule spread
ADD
ENTRY %main (a: f32[1024], b: f32[32768], i: s32[1024,1], t: f32[4,32768]) -> f32[4,32768] {
  %a = f32[1024]{0} parameter(0)
  %b = f32[32768]{0} parameter(1)
  %i = s32[1024,1]{1,0} parameter(2)
  %t = f32[4,32768]{1,0} parameter(3)
  %column = f32[1024,32768]{1,0} broadcast(%a), dimensions={0}
  %row = f32[1024,32768]{1,0} broadcast(%b), dimensions={1}
  %y = f32[1024,32768]{1,0} multiply(%column, %row)
  %zero = f32[] constant(0)
  %s = f32[4,32768]{1,0} scatter(%t, %i, %y), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add
  %r = f32[1024]{0} reduce(%y, %zero), dimensions={1}, to_apply=%add
  ROOT %o = (f32[4,32768]{1,0}, f32[1024]{0}) tuple(%s, %r)
}""".replace("ADD", ADD)
    alone = text.replace("reduce(%y", "reduce(%column")
    for way, named in ((text, True), (alone, False)):
        case = modelled_case(Program(way.replace("},\n    s", "}, s"), "gpu"), H200)
        assert ("y" in {claim.parts[0][0].name for claim in large_between(case)}) == named


@pytest.mark.parametrize(("rows", "named"), [(2, True), (1, False)])
def test_an_array_written_twice_over_is_repeated(rows: int, named: bool) -> None:
    """4 MB of a table of 2 MB, or of as many, which two kernels read."""
    text = """HloModule repeated
ENTRY %main (x: f32[524288]) -> (f32[R,524288], f32[R,524288]) {
  %x = f32[524288]{0} parameter(0)
  %y = f32[524288]{0} tanh(%x)
  %both = f32[R,524288]{1,0} broadcast(%y), dimensions={1}
  %a = f32[R,524288]{1,0} sine(%both)
  %b = f32[R,524288]{1,0} cosine(%both)
  ROOT %t = (f32[R,524288]{1,0}, f32[R,524288]{1,0}) tuple(%a, %b)
}""".replace("[R,", f"[{rows},")
    claims = list(repeats(modelled_case(Program(text, "gpu"), H200)))
    written = {claim.parts[0][0].name for claim in claims}
    assert ("both" in written) == named


def test_another_order_saves_only_its_part_of_a_kernel_that_has_other_products() -> None:
    """Of the kernel's 2 * 2048**2 * (64 + 2048) FLOPs the first product has one in 33."""
    text = """HloModule ordered
%both (u: f32[2048,64], w: f32[2048,2048]) -> (f32[2048,2048], f32[2048,2048]) {
  %u = f32[2048,64]{1,0} parameter(0)
  %w = f32[2048,2048]{1,0} parameter(1)
  %g = f32[2048,2048]{1,0} dot(%u, %u), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %h = f32[2048,2048]{1,0} dot(%w, %w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT %t = (f32[2048,2048]{1,0}, f32[2048,2048]{1,0}) tuple(%g, %h)
}
ENTRY %main (u: f32[2048,64], v: f32[2048,32], w: f32[2048,2048]) -> f32[2048,32] {
  %u = f32[2048,64]{1,0} parameter(0)
  %v = f32[2048,32]{1,0} parameter(1)
  %w = f32[2048,2048]{1,0} parameter(2)
  %f = (f32[2048,2048]{1,0}, f32[2048,2048]{1,0}) fusion(%u, %w), kind=kOutput, calls=%both
  %g = f32[2048,2048]{1,0} get-tuple-element(%f), index=0
  %h = f32[2048,2048]{1,0} get-tuple-element(%f), index=1
  %o = f32[2048,32]{1,0} dot(%g, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (f32[2048,32]{1,0}, f32[2048,2048]{1,0}) tuple(%o, %h)
}"""
    case = modelled_case(Program(text, "gpu"), H200)
    (claim,) = dearer_orders(case)
    second, first = (case.by_name["ordered", name].seconds for name in ("o", "f"))
    left = 1.725e-6  # of u.T @ v, and of u with it
    saved = 1 - left / (second + first / 33)
    found = {row.name: seconds for row, seconds in claim.parts}
    assert found == pytest.approx({"o": saved * second, "f": saved * first / 33}, rel=1e-3)


def test_what_a_kernel_reads_twice_in_parts_is_needed_in_both() -> None:
    text = """HloModule parts
%some (x: f32[256,64]) -> (f32[64,64], f32[32,64]) {
  %x = f32[256,64]{1,0} parameter(0)
  %first = f32[64,64]{1,0} slice(%x), slice={[0:64], [0:64]}
  %last = f32[32,64]{1,0} slice(%x), slice={[224:256], [0:64]}
  %a = f32[64,64]{1,0} tanh(%first)
  %b = f32[32,64]{1,0} negate(%last)
  ROOT %t = (f32[64,64]{1,0}, f32[32,64]{1,0}) tuple(%a, %b)
}
ENTRY %main (x: f32[256,64]) -> (f32[64,64], f32[32,64]) {
  %x = f32[256,64]{1,0} parameter(0)
  ROOT %f = (f32[64,64]{1,0}, f32[32,64]{1,0}) fusion(%x), kind=kLoop, calls=%some
}"""
    flow = Program(text, "gpu").flow
    kept = flow.kept("f", 256 * 64 * 4, flow.needs.useful)
    assert (kept.flops, kept.read, kept.written) == (1.0, (64 + 32) / 256, 1.0)


@pytest.mark.parametrize(
    ("size", "turns", "evidence", "remedy"),
    [
        ("", 1, "all-reduce of 4 B, by itself", "put what follows it before it"),
        ("", 7, "all-reduce of 28 B, by itself in each of 7 turns", "let each device loop"),
        ("1024", 7, "all-reduce of 28.7 kB, by itself in each of 7 turns", "let each device"),
        ("1025", 1, "all-reduce of 4.1 kB, by itself", ""),
    ],
)
def test_an_exchange_of_next_to_nothing_has_its_remedy(size, turns, evidence, remedy) -> None:
    text = """HloModule turned, num_partitions=8
ADD
%more (c: f32[]) -> pred[] {
  %c = f32[] parameter(0)
  ROOT %p = pred[] custom-call(%c), custom_call_target="ask"
}
%turn (c: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  ROOT %r = f32[] all-reduce(%c), replica_groups=[1,8]<=[8], to_apply=%add
}
ENTRY %main (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %w = f32[] while(%x), condition=%more, body=%turn, KNOWN
}""".replace("ADD", ADD).replace("f32[]", f"f32[{size}]")
    text = text.replace("KNOWN", f'backend_config={{"known_trip_count":{{"n":"{turns}"}}}}')
    (claim,) = communication(modelled_case(Program(text, "gpu"), H200))
    assert claim.evidence == evidence
    assert claim.remedy.startswith(remedy)
    assert bool(claim.remedy) == bool(remedy)


@pytest.mark.parametrize(
    ("turn", "linear"),
    [
        ("add(%c, %a)", True),
        ("add(%a, %c)", True),
        ("add(%c, %c)", True),
        ("subtract(%a, %c)", True),
        ("multiply(%c, %a)", True),
        ("multiply(%a, %c)", True),
        ("multiply(%c, %c)", False),
        ("divide(%c, %a)", True),
        ("divide(%a, %c)", False),
        ("divide(%c, %c)", False),
        ("negate(%c)", True),
        ("tanh(%c)", False),
        ("maximum(%c, %a)", False),
        ("select(%p, %c, %a)", True),
        ("select(%p, %a, %c)", True),
        ("select(%q, %a, %a)", False),  # the last turn's numbers choose
    ],
)
def test_turns_that_scale_and_add_are_a_linear_recurrence(turn: str, linear: bool) -> None:
    text = """HloModule turning
%more (t: (s32[], f32[4096], f32[4096])) -> pred[] {
  %t = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(64)
  ROOT %l = pred[] compare(%i, %n), direction=LT
}
%turn (t: (s32[], f32[4096], f32[4096])) -> (s32[], f32[4096], f32[4096]) {
  %t = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %c = f32[4096]{0} get-tuple-element(%t), index=1
  %a = f32[4096]{0} get-tuple-element(%t), index=2
  %p = pred[4096]{0} compare(%a, %a), direction=GT
  %q = pred[4096]{0} compare(%c, %a), direction=GT
  %made = f32[4096]{0} TURN
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  ROOT %u = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%j, %made, %a)
}
ENTRY %main (c: f32[4096], a: f32[4096]) -> f32[4096] {
  %c = f32[4096]{0} parameter(0)
  %a = f32[4096]{0} parameter(1)
  %zero = s32[] constant(0)
  %t = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%zero, %c, %a)
  %w = (s32[], f32[4096]{0}, f32[4096]{0}) while(%t), condition=%more, body=%turn
  ROOT %o = f32[4096]{0} get-tuple-element(%w), index=1
}"""
    case = modelled_case(Program(text.replace("TURN", turn), "gpu"), H200, floor=2e-6)
    found = [(claim.cause, claim.evidence) for claim in turn_by_turn(case)]
    told = "each of 64 turns only scales what the last one made, and adds to it"
    assert found == ([("linear-recurrence", told)] if linear else [])


def test_a_kernel_of_two_loops_has_the_launches_of_both() -> None:
    text = """HloModule twice
%turn (c: f32[1024]) -> f32[1024] {
  %c = f32[1024]{0} parameter(0)
  ROOT %t = f32[1024]{0} tanh(%c)
}
%more (c: f32[1024]) -> pred[] {
  %c = f32[1024]{0} parameter(0)
  ROOT %p = pred[] custom-call(%c), custom_call_target="ask"
}
ENTRY %main (x: f32[1024]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0)
  %a = f32[1024]{0} while(%x), condition=%more, body=%turn, KNOWN{"n":"5"}}}
  %b = f32[1024]{0} while(%a), condition=%more, body=%turn, KNOWN{"n":"7"}}}
  ROOT %c = f32[1024]{0} call(%b), to_apply=%turn
}""".replace("KNOWN", 'backend_config={"known_trip_count":')
    text = text.replace("}}}", "}}")
    assert Program(text, "gpu").rows["t"].launches == 5 + 7 + 1
