"""What results need, as a whole: small programs as written, worked out by hand."""

import pytest
from hlo_texts import ADD, program

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
UNKNOWN_CALL = (
    "nothing says what secret needs: count it by hand, or write it in JAX's own operations"
)


def need(body, step="add", **options):
    """Return what the last of these lines needs."""
    *before, last = body.splitlines()
    lines = [*(f"  {line}" for line in before), f"  ROOT {last}"]
    return needed(program("\n".join(lines), *COMPUTATIONS).replace("STEP", step), **options)


PRODUCT = f"""x = bf16[3,5] parameter(0)
w = bf16[5,7] parameter(1)
b = f32[7] parameter(2)
d = f32[3,7] dot(x, w), {IN_A_ROW}
s = f32[3,7] broadcast(b), dimensions={{1}}
y = f32[3,7] add(d, s)"""
TABLE = "c = f32[11,7] parameter(0)\nn = f32[2,7] parameter(1)\n"
CHOICE = """x = f32[3,5] parameter(0)
p = pred[] parameter(1)
i = s32[] convert(p)
z = s32[] constant(0)
c = pred[] compare(i, z), direction=EQ
m = pred[3,5] broadcast(c), dimensions={}
a = f32[3,5] tanh(x)
b = f32[3,5] sine(a)
d = f32[3,5] negate(x)
"""
ROWS = """x = f32[11,5] parameter(0)
v = f32[11,5] parameter(1)
n = s32[11,5] iota(), iota_dimension=0
k = s32[] constant(4)
s = s32[11,5] broadcast(k), dimensions={}
c = pred[11,5] compare(n, s), direction=LT
e = f32[11,5] tanh(v)
"""


@pytest.mark.parametrize(
    ("body", "work"),
    [
        (PRODUCT, Needed(30 + 70 + 28 + 84, {"bf16": 2 * 3 * 5 * 7}, 21)),
        (  # two of six rows and four of seven columns
            f"x = f32[6,5] parameter(0)\nw = f32[5,7] parameter(1)\nd = f32[6,7] dot(x, w), "
            f"{IN_A_ROW}\ny = f32[2,4] slice(d), slice={{[1:3], [0:4]}}",
            Needed(4 * (2 * 5 + 5 * 4 + 2 * 4), {"f32": 2 * 2 * 5 * 4}, 0),
        ),
        (  # a cast by JAX, in the narrower type from the argument to the result
            "x = bf16[3,5] parameter(0)\nw = f32[5,7] parameter(1)\n"
            'c = f32[3,5] convert(x), metadata={op_name="jit(f)/dot_general"}\n'
            f"y = f32[3,7] dot(c, w), {IN_A_ROW}, operand_precision={{highest,highest}}",
            Needed(30 + 140 + 42, {"bf16 highest": 2 * 3 * 5 * 7}, 0),
        ),
        (  # of an update the new rows and their place
            f"{TABLE}i = s32[] parameter(2)\nz = s32[] constant(0)\ne = f32[2,7] tanh(n)\n"
            "y = f32[11,7] dynamic-update-slice(c, e, i, z)",
            Needed(56 + 4 + 56, {}, 14),
        ),
        (
            f"{TABLE}i = s32[2] parameter(2)\ny = f32[11,7] scatter(c, i, n), to_apply=%set, "
            "update_window_dims={1}, inserted_window_dims={0}, index_vector_dim=1",
            Needed(56 + 8 + 56, {}, 0),
        ),
        (  # nothing is left of what an update covers
            "c = f32[2,7] parameter(0)\nn = f32[2,7] parameter(1)\ni = s32[] parameter(2)\n"
            "y = f32[2,7] dynamic-update-slice(c, n, i, i)",
            Needed(56 + 4 + 56, {}, 0),
        ),
        (f"{ROWS}y = f32[11,5] select(c, e, x)", Needed(2 * 4 * 20, {}, 20)),
        (f"{ROWS}y = f32[11,5] select(c, x, e)", Needed(2 * 4 * 35, {}, 35)),
        (  # the second branch, although the third computes nothing that the first one doesn't
            "x = f32[3,5] parameter(0)\ni = s32[] parameter(1)\n"
            "y = f32[3,5] conditional(i, x, x, x), branch_computations={%dear, %kept, %dear}",
            Needed(60 + 4 + 60, {}, 15, notes=("conditional y#0: its cheapest branch counts",)),
        ),
        *(
            (
                f"{CHOICE}y = f32[3,5] select(m, {sides})",
                Needed(  # the cheaper side, the choice, and the comparison
                    *(60 + 1 + 60, {}, 15 + 15 + 1),
                    notes=("data choose between two values: the cheaper one counts",),
                ),
            )
            for sides in ("d, b", "b, d")
        ),
        # 0, 2 … 10: six products, six sums and comparisons of the counter, one sine
        (LOOP, Needed(60 + 100 + 60, {"f32": 6 * 2 * 3 * 5 * 5}, 25 + 6 + 6)),
        (
            "x = f32[2,7,7] parameter(0)\ny = f32[2,7,7] cholesky(x)",
            Needed(2 * 392, {"f32": 2 * 7**3 / 3}, 0),
        ),
        (
            "x = f32[2,7,7] parameter(0)\nb = f32[2,7,3] parameter(1)\n"
            "y = f32[2,7,3] triangular-solve(x, b), lower=true",
            Needed(392 + 2 * 168, {"f32": 2 * 3 * 7**2}, 0),
        ),
        (
            "x = f32[5,9] parameter(0)\ny = f32[5,9] sort(x), dimensions={1}, to_apply=%add",
            Needed(2 * 180, {}, 45),
        ),
        (
            "x = f32[5,9] parameter(0)\nz = f32[] constant(0)\n"
            "y = f32[5,7] reduce-window(x, z), window={size=1x3}, to_apply=%add",
            Needed(180 + 140, {}, 45),
        ),
        (  # nine equal sums
            "x = f32[5] parameter(0)\nz = f32[] constant(0)\nb = f32[5,9] broadcast(x), "
            "dimensions={0}\ny = f32[9] reduce(b, z), dimensions={0}, to_apply=%add",
            Needed(20 + 36, {}, 5),
        ),
        (
            "x = c64[3,8] parameter(0)\ny = c64[3,8] fft(x), fft_type=FFT, fft_length={8}",
            Needed(2 * 192, {}, 5 * 24 * 3),
        ),
        (  # of real numbers
            "x = f32[3,8] parameter(0)\nc = c64[3,8] convert(x)\n"
            "y = c64[3,8] fft(c), fft_type=FFT, fft_length={8}",
            Needed(96 + 192, {}, 5 * 24 * 3 / 2),
        ),
        (  # one of the two
            'x = f32[3,5] parameter(0)\na = f32[3,5] tanh(x), metadata={op_name="a"}\n'
            'b = f32[3,5] tanh(x), metadata={op_name="b"}\ny = f32[3,5] multiply(a, b)',
            Needed(60 + 60, {}, 15 + 15),
        ),
        (  # three of seven rows, which need no product
            "x = f32[7,5] parameter(0)\ni = s32[3] parameter(1)\n"
            "n = s32[3,7] iota(), iota_dimension=1\ns = s32[3,7] broadcast(i), dimensions={0}\n"
            "c = pred[3,7] compare(s, n), direction=EQ\nm = f32[3,7] convert(c)\n"
            f"y = f32[3,5] dot(m, x), {IN_A_ROW}",
            Needed(60 + 12 + 60, {}, 3),
        ),
        (
            'x = f32[3,5] parameter(0)\ny = f32[3,5] custom-call(x), custom_call_target="secret"',
            Needed(60 + 60, {}, 0, refused=UNKNOWN_CALL),
        ),
    ],
)
def test_what_a_result_needs(body, work):
    assert need(body) == work


def test_turns_and_devices():
    once = Needed(220, {"f32": 2 * 3 * 5 * 5}, 25 + 1 + 1, refused=UNKNOWN_TURNS)
    assert need(LOOP, "multiply") == once
    assert need(LOOP, "multiply", turns={"l": 9}) == Needed(220, {"f32": 9 * 150}, 25 + 9 + 9)
    assert need(PRODUCT, devices=3) == Needed(212 / 3, {"bf16": 70}, 7)
