"""Rows of single instructions as a whole, worked out by hand, with no two sizes alike."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hlo_texts import ADD, UPDATE, by_hand, fused, only_row, program

from roofline import xla
from roofline.xla.flops import Flops, reorders
from roofline.xla.forms import Form
from roofline.xla.hlo import Site, parse
from roofline.xla.metadata import SourceLine
from roofline_helpers.common.checks import BadValue

TWO = """%two (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %e = f32[] exponential(%a)
  ROOT %m = f32[] multiply(%e, %b)
}"""
GIVEN = """  %x = f32[3,5,7]{2,1,0} parameter(0)
  %i = s32[3,2]{1,0} parameter(1)
  %u = f32[2,9]{1,0} parameter(2)
  %t = f32[5,9]{1,0} parameter(3)
  %w = f32[2,4]{1,0} parameter(4)
  %z = f32[] constant(0)
"""


@pytest.mark.parametrize(
    ("line", "times", "more", "read", "written"),
    [
        # the computation has two operations, of which one is transcendental
        ("f32[3,7]{1,0} reduce(%x, %z), dimensions={1}", 105, 0, 420, 84),
        ("f32[3,5,7]{2,1,0} map(%x), dimensions={0,1,2}", 105, 0, 420, 420),
        # old values of two rows, six indices, and the new ones
        ("f32[5,9]{1,0} scatter(%t, %i, %u), update_window_dims={1}", 18, 0, 72 + 24 + 72, 72),
        (
            "f32[2,9]{1,0} reduce-window(%t, %z), window={size=3x1 stride=2x1}",
            2 * 9 * 3,
            0,
            180,
            72,
        ),
        # each window holds the whole dimension, so that it is reduced once
        ("f32[5,9]{1,0} reduce-window(%t, %z), window={size=1x17 pad=0_0x8_8}", 45, 0, 180, 180),
        (
            "f32[5,9]{1,0} select-and-scatter(%t, %w, %z), window={size=3x3 stride=2x2}",
            *(8, 9 * 8, 180 + 32, 180),  # nine compares, and one sum, for each of eight windows
        ),
        ("f32[5,9]{1,0} sort(%t), dimensions={0}", 45 * 3, 0, 180, 180),
        ("f32[5,9]{1,0} sort(%t), dimensions={1}", 45 * 4, 0, 180, 180),
    ],
)
def test_what_applies_a_computation_counts_it_each_time(line, times, more, read, written):
    name = "scatter" if "select" in line else "to_apply"
    row = only_row(program(f"{GIVEN}  ROOT %y = {line}, {name}=%two", TWO))
    assert row.flops == Flops(vector=2 * times + more, transcendentals=times)
    assert (row.read, row.written) == ({"hbm": read}, {"hbm": written})


def call(target, operands, result, config=None, more=""):
    """Return a program of one custom call on parameters of these shapes."""
    lines = [f"  %p{n} = {shape} parameter({n})\n" for n, shape in enumerate(operands)]
    names = ", ".join(f"%p{n}" for n in range(len(operands)))
    config = f", backend_config={json.dumps(config)}" if config else ""
    text = f'{result} custom-call({names}), custom_call_target="{target}"{more}{config}'
    return program(f"{''.join(lines)}  ROOT %y = {text}")


GEMM = {"gemm_backend_config": {"dot_dimension_numbers": {"lhs_contracting_dimensions": ["1"]}}}
DECLARED = {"flops": "80", "transcendentals": "6", "bytes_accessed": "88"}
PICTURES = "f32[2,9,10,3]{3,2,1,0}", "f32[2,3,3,7]{3,2,1,0}", "f32[2,4,3,7]{3,2,1,0}"
STEPS = ", window={size=2x3 stride=2x3}, dim_labels=b01f_01io->b01f"
MACS = 2 * 4 * 3 * 7 * (2 * 3 * 3)
READ_OF_PICTURE = round(2160 * 8 / 9 * 9 / 10)  # the last row and the last column in no window


@pytest.mark.parametrize(
    ("text", "flops", "moved", "matmul", "form"),
    [
        (
            call(
                "__cublas$gemm",
                ("f16[3,5]{1,0}", "f16[5,7]{1,0}"),
                "(f16[3,7]{1,0}, s8[4096]{0})",
                GEMM,
            ),
            Flops(matrix=2 * 3 * 5 * 7),
            (2 * (15 + 35), 2 * 21),
            (3, 7, 5),
            Form("matmul", (3, 5, 7), 16),
        ),
        *(
            (
                call(f"__cudnn$conv{way}", sides[:2], f"({sides[2]}, u8[64]{{0}})", more=STEPS),
                Flops(matrix=2 * MACS),
                moved,
                (),
                Form("convolution", sizes, 32),
            )
            for way, sides, moved, sizes in (
                ("Forward", PICTURES, (READ_OF_PICTURE + 504, 672), (24, 18, 7)),
                ("BackwardInput", (*PICTURES[:0:-1], PICTURES[0]), (672 + 504, 2160), (24, 18, 7)),
                (
                    "BackwardFilter",
                    (*PICTURES[::2], PICTURES[1]),
                    (READ_OF_PICTURE + 672, 504),
                    (24, 18, 7),
                ),
            )
        ),
        (
            call(
                "mine",
                ("f32[3,5]{1,0}",),
                "f32[7]{0}",
                {"custom_call_config": {"cost_estimate": DECLARED}},
            ),
            Flops(declared=80, vector=6, transcendentals=6),
            (60, 28),
            (),
            Form("", (), 32),
        ),
        *(
            (
                call(target, (f"f32[{shape}]", "f32[7]"), "f64[2,3,5]"),
                Flops(unknown=(target,)),
                (148, 240),
                (),
                Form(kind, sizes, 32),
            )
            for target, shape, kind, sizes in (
                ("cusolver_getrf", "2,3,5", "LU", (2, 3, 7)),
                ("cusolver_geqrf", "6,5", "QR", (1, 6, 7)),
                ("cu_lu_pivots", "6,5", "pivots", (6, 5, 7)),
            )
        ),
    ],
)
def test_a_call_of_a_library_counts_what_it_states(text, flops, moved, matmul, form):
    row = only_row(text, "gpu")
    assert (row.flops, (row.read_bytes, row.written_bytes)) == (flops, moved)
    assert (row.matmul, row.form) == (matmul, form)


ONE = "  %n = s32[2,1]{1,0} parameter(5)\n  %v = bf16[5,9]{1,0} parameter(6)\n"
ONE += "  %c = bf16[2,9]{1,0} parameter(7)\n"


@pytest.mark.parametrize(("line", "form"), by_hand("kernel_forms.txt"))
def test_forms_have_the_sizes_that_laws_go_by(line, form):
    it = only_row(program(f"{GIVEN}{ONE}  ROOT %y = {line}", ADD, TWO), "gpu").form
    assert f"{it.kind}; {' '.join(map(str, it.sizes)) or '-'}; {it.bits}" == form


SCORES = {"intermediate_tensor_shape": {"dimensions": ["2", "8", "512", "500"]}}


@pytest.mark.parametrize(
    ("target", "operand", "form"),
    [
        ("__cudnn$fmhaSoftmax", "2,512,8,64", Form("attention", (16, 512, 64), 16)),
        (
            "__cudnn$fmhaSoftmaxBackward",
            "2,512,8,64",
            Form("attention backward", (16, 512, 64), 16),
        ),
        ("xla.gpu.ext.cub_sort_keys_ffi", "3,5", Form("radix sort", (3, 5, 1), 16)),
        ("__gpu$TopK", "3,4,5", Form("top-k", (12, 5, 1), 16)),
        ("cusolver_potrf_ffi", "2,6,5", Form("Cholesky", (2, 6, 5), 16)),
        ("cusolver_gesvd_ffi", "7", Form("singular values", (1, 7, 7), 16)),
        ("secret", "3,5", Form("", (), 16)),
    ],
)
def test_forms_of_calls(target, operand, form):
    text = call(target, (f"bf16[{operand}]",), "f32[9]", {"cudnn_fmha_backend_config": SCORES})
    assert only_row(text, "gpu").form == form


@pytest.mark.parametrize(("times", "kind"), [(9, "stream"), (10, "random bits")])
def test_ten_exclusive_ors_make_random_bits(times, kind):
    names = ["p", *(f"v{n}" for n in range(times))]
    lines = [f"%{new} = u32[64] xor(%{old}, %{old})" for old, new in pairwise(names)]
    inner = "\n  ".join(["  %p = u32[64] parameter(0)", *lines[:-1], f"ROOT {lines[-1]}"])
    text = fused(inner, "  %x = u32[64] parameter(0)", "%x", "u32[64]")
    assert only_row(text, "gpu").form == Form(kind, (64,), 32)


def test_an_update_in_place_makes_what_is_new():
    text = fused(
        f"{UPDATE}  ROOT %d = f32[1000,64]{{1,0}} dynamic-update-slice(%p, %u, %i, %z)",
        "  %x = f32[1000,64]{1,0} parameter(0)\n  %v = f32[1,64]{1,0} parameter(1)\n"
        "  %j = s32[] parameter(2)",
        "%x, %v, %j",
        "f32[1000,64]{1,0}",
    )
    assert only_row(text, "gpu").form == Form("stream", (64,), 32)


@pytest.mark.parametrize(("declared", "noted"), [(80, True), (88, False), (96, True)])
def test_a_declared_cost_that_differs_is_noted(declared, noted):
    cost = {"custom_call_config": {"cost_estimate": {**DECLARED, "bytes_accessed": declared}}}
    notes = xla.kernels(call("mine", ("f32[3,5]",), "f32[7]", cost)).notes
    said = f"y: its author declares {declared} bytes, it moves 88; the latter count"
    assert notes == ((said,) if noted else ())


FUSED = """%inner (a: bf16[3,5]) -> f32[3,7] {
  %a = bf16[3,5]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[5,7]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  %d = f32[3,7]{1,0:T(8,128)} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
operand_precision={highest,highest}, metadata={op_name="jit(f)/mlp/up/dot_general" \
source_file="/me/model.py" source_line=7}
  ROOT %t = f32[3,7]{1,0:T(8,128)} tanh(%d)
}"""


def test_a_row_of_a_tpu_as_a_whole():
    text = program(
        """  %x = bf16[3,5]{1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[5,7]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  ROOT %y = f32[3,7]{1,0:T(8,128)} fusion(%x, %w), kind=kOutput, calls=%inner, \
backend_config={"window_config":{"estimated_cycles":"1234"}}""",
        FUSED,
    )
    row = xla.Row(
        "y",
        "fusion",
        "matmul of mlp.up",
        SourceLine("me/model.py", 7),
        "jit(f)/mlp/up/dot_general",
        {"dot": 1, "tanh": 1},
        Flops(matrix=210, vector=21, transcendentals=21),
        {"hbm": 30, "vmem": 70},
        {"hbm": 84},
        cycles=1234,
        padding=2 * (8 * 128 - 15) + 4 * (8 * 128 - 21),
        matrix_types=("bf16 highest",),
        matmul=(3, 7, 5),
    )
    assert only_row(text) == row
    for unknown in ("0", str(2**62)):
        assert only_row(text.replace("1234", unknown)) == replace(row, cycles=None)


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ("f32[1,5,9]{2,0,1} copy(%x)", False),  # only an axis of one place
        ("f32[1,5,9]{1,2,0} copy(%x)", True),
        ("f32[5,1,9]{2,1,0} transpose(%x), dimensions={1,0,2}", False),
        ("f32[5,1,9]{2,0,1} transpose(%x), dimensions={1,0,2}", False),
        ("f32[9,1,5]{2,1,0} transpose(%x), dimensions={2,0,1}", True),
        ("f32[9,1,5]{0,2,1} transpose(%x), dimensions={2,0,1}", False),
        ("f32[1,5,9]{1,2,0} negate(%x)", False),
    ],
)
def test_what_changes_the_order_in_memory(line, moves):
    module = parse(program(f"  %x = f32[1,5,9]{{2,1,0}} parameter(0)\n  ROOT %y = {line}"))
    assert reorders(Site(module, module.entry, module.entry.root)) is moves


@pytest.mark.parametrize(("columns", "kind"), [(5, "normalisation"), (4, "reduction")])
def test_a_reduction_that_writes_half_of_what_it_reads_is_a_normalisation(columns, kind):
    made = f"f32[6,{columns}]"
    text = fused(
        "  %p = f32[6,10] parameter(0)\n  %z = f32[] constant(0)\n"
        "  %r = f32[6] reduce(%p, %z), dimensions={1}, to_apply=%add\n"
        f"  ROOT %b = {made} broadcast(%r), dimensions={{0}}",
        "  %x = f32[6,10] parameter(0)",
        *("%x", made),
    )
    assert only_row(text, "gpu").form == Form(kind, (6, 10, 1), 32)


# --- a program's rows in order: how often each runs, and what is beside it -----------------------

PAIR = "(s32[], f32[64])"
HELD = f"""  t = {PAIR} parameter(0)
  i = s32[] get-tuple-element(t), index=0
  h = f32[64] get-tuple-element(t), index=1
"""
LOOPS = (
    ADD,
    "%called (p: f32[64]) -> f32[64] {\n  p = f32[64] parameter(0)\n  ROOT x = f32[64] tanh(p)\n}",
    f"%few (t: f32[]) -> pred[] {{\n{HELD}  n = s32[] constant(3)\n"
    "  ROOT q = pred[] compare(i, n), direction=LT\n}",
    f"%inner (t: f32[]) -> {PAIR} {{\n{HELD}  o = s32[] constant(1)\n  j = s32[] add(i, o)\n"
    f"  g = f32[64] sine(h)\n  ROOT r = {PAIR} tuple(j, g)\n}}",
    f"%until (t: f32[]) -> pred[] {{\n{HELD}  z = f32[] constant(0)\n"
    "  s = f32[] reduce(h, z), dimensions={0}, to_apply=%add\n"
    "  ROOT q = pred[] compare(s, z), direction=LT\n}",
    f"%outer (t: f32[]) -> {PAIR} {{\n{HELD}  o = s32[] constant(0)\n"
    f"  u = {PAIR} tuple(o, h)\n  v = {PAIR} while(u), condition=%few, body=%inner\n"
    "  k = f32[64] get-tuple-element(v), index=1\n  m = f32[64] negate(k)\n"
    f"  ROOT r = {PAIR} tuple(i, m)\n}}",
)
FAST = "f32[64]{0:S(1)}"
WALK = program(
    f"""  x = f32[64]{{0}} parameter(0), metadata={{op_name="params[\\'up\\']"}}
  y = f32[64]{{0}} parameter(1)
  a = ((f32[64]), f32[64], u32[]) async-start(x), calls=%called
  f = f32[64]{{0}} custom-call(y), custom_call_target="Sharding"
  c = f32[64]{{0}} cosine(f)
  b = f32[64]{{0}} async-done(a)
  s = ({FAST}, f32[64]{{0}}, u32[]) copy-start(c)
  i = s32[] constant(5)
  t = {PAIR} tuple(i, b)
  w = {PAIR} while(t), condition=%until, body=%outer, metadata={{LINE}}
  d = {FAST} copy-done(s)
  e = f32[64]{{0}} get-tuple-element(w), index=1
  unused = ({FAST}, f32[64]{{0}}, u32[]) copy-start(x)
  gone = {FAST} copy-done(unused)
  g = f32[64]{{0}} call(e), to_apply=%called
  k = f32[64]{{0}} custom-call(g), custom_call_target="secret"
  l = f32[64]{{0}} custom-call(k), custom_call_target="secret"
  ROOT r = f32[64]{{0}} add(l, d)""",
    *LOOPS,
).replace("{LINE}", '{source_file="/a/b.py" source_line=30}')


@pytest.mark.parametrize(("stated", "often"), [({}, 0), ({"w": 7}, 7), ({"b.py:30": 7}, 7)])
def test_a_walk_adds_each_kernel_as_often_as_it_runs(stated, often):
    ledger = xla.kernels(WALK, turns=stated)
    loop = "" if often else "w"
    assert [
        (row.name, row.role, row.launches, row.behind, row.overlaps, row.loop)
        for row in ledger.rows
    ] == [
        ("x", "tanh on params['up']", 1, 1, True, ""),
        ("c", "cosine", 1, 0, False, ""),
        ("s", "copy to VMEM", 1, 3, True, ""),
        ("s", "sum", (often or 1) + 1, 0, False, loop),  # a condition is asked once more
        ("g", "sine", 3 * (often or 1), 0, False, loop),
        ("m", "negate", often or 1, 0, False, loop),
        ("x", "tanh", 1, 0, False, ""),
        ("k", "custom call secret", 1, 0, False, ""),
        ("l", "custom call secret", 1, 0, False, ""),
        ("r", "add", 1, 0, False, ""),
    ]
    told = "its trip count is unknown; counted once. State it with turns={'w': n}"
    assert ledger.notes == (
        f"loop w (a/b.py:30): {'its body counts 7 times, as stated' if often else told}",
        "loop v: its body counts 3 times",
        "unused fetches a value into fast memory for the next run of the program, which then finds "
        "it there: counted once, not twice",
        "2 calls of secret: their FLOPs are unknown (it declares none)",
    )


def test_turns_of_no_such_loop_are_refused():
    with pytest.raises(BadValue, match=r"names 'v', which .* Such loops: w \(a/b.py:30\)"):
        xla.kernels(WALK, turns={"v": 3, "w": 2})


# --- roles: of a fusion of p and q, of which one is the argument "params" -------------------------

ROLES = """
tanh on params: tanh(p)
add and multiply on params: a = add(p, q); multiply(a, p)
elementwise work on params: a = add(p, q); b = tanh(a); multiply(a, b)
transpose of params: f32[10,6] transpose(p) | a = bf16[6,10] convert(p); transpose(a)
conversion of params: bf16[6,10] convert(p)
padding of params: f32[6,12] pad(p, z), padding=0_0x1_1
reversal of params: reverse(p), dimensions={0}
concatenation of params: f32[12,10] concatenate(p, q), dimensions={0}
slice of params: f32[6,4] slice(p), slice={[0:6], [0:4]}
copy of params: copy(p)
change of layout of params: f32[6,10]{0,1} copy(p)
broadcast of params: f32[6,10,3] broadcast(p), dimensions={0,1}
counting up of params: s32[6,10] iota(), iota_dimension=0
sum on params: f32[6] reduce(p, z) OF %add | a = f32[6] reduce(p, z) OF %add; f32[6] tanh(a)
maximum on params: f32[6] reduce(p, z) OF %maximum
minimum on params: f32[6] reduce(p, z) OF %minimum
product on params: f32[6] reduce(p, z) OF %multiply
reduction on params: f32[6] reduce(p, z) OF %and
sum of exponentials on params: a = exponential(p); f32[6] reduce(a, z) OF %add
sum of exponentials on params: a = exponential-minus-one(p); f32[6] reduce(a, z) OF %add
softmax on params: a = exponential(p); b = f32[6] reduce(a, z) OF %add; divide(a, b)
SiLU on params: a = logistic(p); multiply(a, p)
add and logistic on params: a = logistic(p); add(a, p)
GELU on params: a = erf(p); multiply(a, p)
add and erf on params: a = erf(p); add(a, p)
ReLU on params: a = maximum(p, q) AT jit(relu)/max; negate(a)
GELU on params: a = tanh(p) AT tanh; b = multiply(a, a) AT integer_pow; multiply(a, b) AT mul
multiply and tanh on params: a = tanh(p) AT tanh; multiply(a, a) AT mul
sort on params: a = f32[6] reduce(p, z) OF %add; f32[6] sort(a), dimensions={0}, to_apply=%add
matmul of mlp.up: dot(p, q) AT mlp/up/dot_general
2 matmuls with params: a = dot(p, q); b = dot(p, p); add(a, b)
matmul of mlp.up, with its SiLU: a = dot(p, q) AT mlp/up/d; b = logistic(a); multiply(a, b)
matmul of mlp.up, with a reduction: a = dot(p, q) AT mlp/up/d; f32[6] reduce(a, z) OF %add
matmul of u, with b and c: a = dot(p, q) AT u/d; b = abs(a) AT b/e; c = abs(b) AT c/e; abs(c) AT f/e
tanh of mlp (backward): tanh(p) AT transpose(jvp(mlp))/tanh
tanh of mlp (recomputed): tanh(p) AT rematted_computation/mlp/tanh
"""
APPLIED = [
    ADD.replace("%add (", f"%{op} (").replace("add(", f"{op}(")
    for op in "add maximum minimum multiply and".split()
]


@pytest.mark.parametrize(
    ("role", "entry"),
    [
        (role, entry)
        for role, entries in (line.split(": ", 1) for line in ROLES.strip().splitlines())
        for entry in entries.split(" | ")
    ],
)
def test_roles_of_fusions(role, entry):
    inner = "  p = f32[6,10] parameter(0)\n  q = f32[6,10] parameter(1)\n  z = f32[] constant(0)\n"
    *before, last = entry.split("; ")
    for line in [*before, f"ROOT y = {last}"]:
        value, _, name = line.partition(" AT ")
        if "[" not in value.partition("(")[0]:
            value = value.replace(" = ", " = f32[6,10] ", 1)
        inner += f"  {value}" + (f', metadata={{op_name="jit(f)/{name}"}}' if name else "") + "\n"
    inner = inner.replace(" OF ", ", dimensions={1}, to_apply=")
    made = last.partition(" ")[0] if "[" in last.partition("(")[0] else "f32[6,10]"
    text = program(
        '  x = f32[6,10] parameter(0), metadata={op_name="params"}\n  w = f32[6,10] parameter(1)\n'
        f"  ROOT f = {made} fusion(x, w), kind=kLoop, calls=%inner",
        *APPLIED,
        f"%inner (p: f32[]) -> f32[] {{\n{inner}}}",
    )
    assert only_row(text, "gpu").role == role
