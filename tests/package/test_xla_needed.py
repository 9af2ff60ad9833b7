"""What results need, as a whole: small programs as written, worked out by hand."""

import pytest
from hlo_texts import ADD, by_hand, lines_of, listed

from roofline.xla.minimum import Needed, needed

STATE = "(s32[], f32[3,5], f32[5,5])"
COMPUTATIONS = (
    ADD,
    "%set (a: f32[]) -> f32[] {\n a = f32[] parameter(0)\n ROOT b = f32[] parameter(1)\n}",
    "%kept (p: f32[3,5]) -> f32[] {\n p = f32[3,5] parameter(0)\n ROOT o = f32[3,5] negate(p)\n}",
    "%dear (p: f32[3,5]) -> f32[3,5] {\n p = f32[3,5] parameter(0)\n t = f32[3,5] tanh(p)\n"
    " ROOT o = f32[3,5] sine(t)\n}",
    f"%cond (t: {STATE}) -> pred[] {{\n t = {STATE} parameter(0)\n"
    " i = s32[] get-tuple-element(t), index=0\n n = s32[] constant(11)\n"
    " ROOT c = pred[] compare(i, n), direction=LT\n}",
    f"%body (t: {STATE}) -> {STATE} {{\n t = {STATE} parameter(0)\n"
    " i = s32[] get-tuple-element(t), index=0\n k = s32[] constant(2)\n j = s32[] STEP(i, k)\n"
    " h = f32[3,5] get-tuple-element(t), index=1\n w = f32[5,5] get-tuple-element(t), index=2\n"
    " s = f32[5,5] sine(w)\n"
    " d = f32[3,5] dot(h, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    f" ROOT r = {STATE} tuple(j, d, w)\n}}",
)
IN_A_ROW = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
LOOP = f"""h = f32[3,5] parameter(0)
w = f32[5,5] parameter(1)
i = s32[] constant(0)
t = {STATE} tuple(i, h, w)
l = {STATE} while(t), condition=%cond, body=%body
y = f32[3,5] get-tuple-element(l), index=1"""
UNKNOWN_TURNS = "nothing says how often the loop l turns: state it with turns={'l': n}"


def need(body, step="add", **options):
    """Return what the last of these lines needs."""
    return needed(lines_of(body, *COMPUTATIONS).replace("STEP", step), **options)


PRODUCT = f"""x = bf16[3,5] parameter(0)
w = bf16[5,7] parameter(1)
b = f32[7] parameter(2)
d = f32[3,7] dot(x, w), {IN_A_ROW}
s = f32[3,7] broadcast(b), dimensions={{1}}
y = f32[3,7] add(d, s)"""


@pytest.mark.parametrize(("body", "work"), by_hand("needed_work.txt"))
def test_what_a_result_needs(body, work):
    found = need(body)
    parts = (
        f"{found.bytes:.10g} bytes",
        listed(found.matrix),
        f"{found.vector:g}",
        found.refused or "-",
        " ".join(found.notes) or "-",
    )
    assert "; ".join(parts) == work


def test_turns_and_devices():
    once = Needed(220, {"f32": 2 * 3 * 5 * 5}, 25 + 1 + 1, refused=UNKNOWN_TURNS)
    assert need(LOOP, "multiply") == once
    assert need(LOOP, "multiply", turns={"l": 9}) == Needed(220, {"f32": 9 * 150}, 25 + 9 + 9)
    assert need(PRODUCT, devices=3) == Needed(212 / 3, {"bf16": 70}, 7)
