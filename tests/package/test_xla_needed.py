"""What results need, as a whole: small programs as written, worked out by hand."""

import pytest
from hlo_texts import ADD, by_hand, lines_of, listed

from roofline.xla.minimum import Needed, needed, needed_seconds
from roofline.xla.roofs import chip_roofline
from roofline_helpers import chips

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
    assert need(LOOP) == Needed(220, {"f32": 6 * 150}, 25 + 6 + 6)  # 0, 2 … 10
    assert need(LOOP, "multiply", turns={"l": 9}) == Needed(220, {"f32": 9 * 150}, 25 + 9 + 9)
    assert need(PRODUCT, devices=3) == Needed(212 / 3, {"bf16": 70}, 7)


GIVEN = """x = f32[11,7] parameter(0)
u = f32[2,7] parameter(1)
v = f32[11,7] parameter(2)
m = pred[11,7] parameter(3)
q = pred[] parameter(4)
i = s32[] parameter(5)
b = bf16[7,5] parameter(6)
s = s8[7,5] parameter(7)
r = f32[1,5] parameter(8)
z = s32[] constant(0)
o = f32[] constant(0)
nought = f32[11,7] broadcast(o), dimensions={}
n = s32[11,7] iota(), iota_dimension=0
k = s32[] constant(4)
four = s32[11,7] broadcast(k), dimensions={}
c = pred[11,7] compare(n, four), direction=LT
d = f32[11,7] dynamic-update-slice(x, u, i, z)"""
FFT = "fft_type=FFT, fft_length={7}"
OUTER = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
PARTS = {
    # of an argument, moved or cast to its own type, only what an update changes
    "y = f32[11,7] copy(d)": "116; -; 0",
    "a = f32[11,7] copy(x); y = f32[11,7] dynamic-update-slice(a, u, i, z)": "116; -; 0",
    "a = f32[11,7] convert(x); y = f32[11,7] dynamic-update-slice(a, u, i, z)": "116; -; 0",
    "a = f32[77] reshape(x); e = f32[14] reshape(u); "
    "y = f32[77] dynamic-update-slice(a, e, i)": "116; -; 0",
    "a = f32[7,11]{0,1} bitcast(x); e = f32[7,2]{0,1} bitcast(u); "
    "y = f32[7,11]{0,1} dynamic-update-slice(a, e, z, i)": "116; -; 0",
    "a = bf16[11,7] convert(x); e = bf16[2,7] convert(u); "
    "y = bf16[11,7] dynamic-update-slice(a, e, i, z)": "522; -; 0",
    "a = f32[11,7] tanh(x); y = f32[11,7] dynamic-update-slice(a, u, i, z)": "676; -; 77",
    "e = f32[2,7] tanh(u); y = f32[11,7] dynamic-update-slice(x, e, i, z)": "116; -; 14",
    "y = f32[11,7] dynamic-update-slice(d, u, z, z)": "172; -; 0",
    # a mask's four rows, and what else differs
    "e = f32[11,7] tanh(v); y = f32[11,7] select(c, e, x)": "224; -; 28",
    "e = f32[11,7] tanh(v); y = f32[11,7] select(c, x, e)": "392; -; 49",
    "y = f32[11,7] select(c, v, d)": "340; -; 0",
    "y = f32[11,7] select(c, d, v)": "284; -; 0",
    "y = f32[11,7] select(m, v, x)": "1001; -; 77",
    "y = f32[11,7] select(q, v, x)": "925; -; 77",
    # types, sums of one term, factors that are 0 or 1
    f"y = f32[11,5] dot(x, b), {IN_A_ROW}": "488; bf16:770; 0",
    f"y = f32[11,5] dot(x, s), {IN_A_ROW}": "563; f32×s8:770; 0",
    f"y = s32[5,5] dot(s, s), {OUTER}": "135; s8:350; 0",
    f"y = f32[5,5] dot(r, r), {OUTER}": "120; f32:25; 0",
    f"a = f32[11,7] convert(m); y = f32[7,7] dot(a, x), {OUTER}": "581; f32:539; 0",
    "a = f32[11,7] convert(m); e = f32[11,7] copy(a); "
    f"y = f32[7,7] dot(x, e), {OUTER}": "581; f32:539; 0",
    # a transform of real numbers
    f"a = c64[11,7] complex(x, v); y = c64[11,7] fft(a), {FFT}": "1232; -; 1080.83",
    f"a = c64[11,7] complex(x, nought); y = c64[11,7] fft(a), {FFT}": "924; -; 540.416",
}


@pytest.mark.parametrize("lines", PARTS)
def test_what_small_programs_need(lines):
    found = need("\n".join([GIVEN, *lines.split("; ")]))
    assert f"{found.bytes:.10g}; {listed(found.matrix)}; {found.vector:g}" == PARTS[lines]


CARRIED = "(s32[], f32[11,7], f32[11,7], f32[1,1])"
ZEROS = "broadcast(o), dimensions={}"
ONE = "dynamic-update-slice(g, b, z, one)"


@pytest.mark.parametrize(
    ("start", "piece", "at", "work"),
    [  # in nine turns
        ("copy(x)", "tanh(g)", "i, z", (2 * 9 * 28, 9 * 7 + 18)),
        (ZEROS, "tanh(g)", "i, z", (11 * 28 + 9 * 28, 9 * 7 + 18)),
        (ZEROS, ONE, "i, z", (4 + 9 * 4, 18)),  # one number of each row, in its place
        (ZEROS, ONE, "one, z", (11 * 28 + 9 * 28 + 4, 18)),
        (ZEROS, "copy(g)", "i, z", (0, 18)),
    ],
)
def test_a_stack_that_turns_change(start, piece, at, work):
    condition = f"""%few (t: {CARRIED}) -> pred[] {{
 t = {CARRIED} parameter(0)
 i = s32[] get-tuple-element(t), index=0
 n = s32[] constant(9)
 ROOT q = pred[] compare(i, n), direction=LT
}}"""
    body = f"""%turn (t: {CARRIED}) -> {CARRIED} {{
 t = {CARRIED} parameter(0)
 i = s32[] get-tuple-element(t), index=0
 z = s32[] constant(0)
 one = s32[] constant(1)
 j = s32[] add(i, one)
 h = f32[11,7] get-tuple-element(t), index=1
 s = f32[11,7] get-tuple-element(t), index=2
 b = f32[1,1] get-tuple-element(t), index=3
 g = f32[1,7] dynamic-slice(s, i, z), dynamic_slice_sizes={{1,7}}
 e = f32[1,7] {piece}
 d = f32[11,7] dynamic-update-slice(h, e, {at})
 k = f32[11,7] copy(d)
 ROOT r = {CARRIED} tuple(j, k, s, b)
}}"""
    entry = f"""x = f32[11,7] parameter(0)
v = f32[11,7] parameter(1)
u = f32[1,1] parameter(2)
o = f32[] constant(0)
f = s32[] constant(0)
c = f32[11,7] {start}
t = {CARRIED} tuple(f, c, v, u)
w = {CARRIED} while(t), condition=%few, body=%turn
y = f32[11,7] get-tuple-element(w), index=1"""
    found = needed(lines_of(entry, condition, body))
    assert (found.bytes, found.vector) == pytest.approx(work)


def test_least_seconds_of_each_unit():
    chip = chips.chip("v6e")
    roof = chip_roofline(chip.per_device(), ("bf16",))
    work = Needed(1e9, {"bf16": 3e12, "int8": 4e12}, 5e10)
    twice = chip_roofline(chip.per_device(), ("int8",)).peak
    assert work.times(chip) == {
        "hbm": 1e9 / roof.bandwidth,
        "matrix": 3e12 / roof.peak + 4e12 / twice,
        "vector": 5e10 / (roof.vector or roof.peak),
    }
    assert work.flops == 7.05e12
    assert work.seconds(chip) == needed_seconds(work, chip) == work.times(chip)["matrix"]
    assert (work.limit(chip), Needed(1e9, {}, 5.0).limit(chip)) == ("matrix", "hbm")
    assert Needed(1e9, {}, 5.0, refused="unknown").seconds(chip) is None
    assert needed_seconds(None, chip) is needed_seconds(work, None) is None
