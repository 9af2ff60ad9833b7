"""Rows of single instructions as a whole, worked out by hand, with no two sizes alike."""

import json

import pytest
from hlo_texts import only_row, program

from roofline.xla.flops import Flops
from roofline.xla.forms import Form

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
        (
            call("cusolver_getrf", ("f32[2,3,5]{2,1,0}", "f32[7]{0}"), "f64[2,3,5]{2,1,0}"),
            Flops(unknown=("cusolver_getrf",)),
            (148, 240),
            (),
            Form("LU", (2, 3, 7), 32),
        ),
    ],
)
def test_a_call_of_a_library_counts_what_it_states(text, flops, moved, matmul, form):
    row = only_row(text, "gpu")
    assert (row.flops, (row.read_bytes, row.written_bytes)) == (flops, moved)
    assert (row.matmul, row.form) == (matmul, form)
