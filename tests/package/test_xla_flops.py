"""FLOPs of single instructions."""

import math
from itertools import product

import pytest
from hlo_texts import ADD, dot, only_row, program

from roofline.xla.windows import Window


def test_elementwise_work():
    lines = {  # vector FLOPs, transcendentals
        "add(%x, %x)": (64, 0),
        "compare(%x, %x), direction=LT": (64, 0),
        "select(%x, %x, %x)": (64, 0),
        "exponential(%x)": (64, 64),
        "rsqrt(%x)": (64, 64),
        "copy(%x)": (0, 0),
        "convert(%x)": (0, 0),
        "transpose(%x), dimensions={0}": (0, 0),
    }
    x = "  %x = f32[64]{0} parameter(0)\n"
    rows = {line: only_row(program(f"{x}  ROOT %y = f32[64]{{0}} {line}")) for line in lines}
    flops = {line: (row.flops.vector, row.flops.transcendentals) for line, row in rows.items()}
    assert flops == lines
    assert {(row.flops.matrix, row.bytes) for row in rows.values()} == {(0, 2 * 64 * 4)}


def test_complex_numbers_cost_what_their_real_parts_do():
    lines = {  # of an element, by hand: (a + ib)(c + id) has four products, two sums
        "c64[64]{0} add(%x, %x)": 2,
        "c64[64]{0} multiply(%x, %x)": 6,
        "c64[64]{0} divide(%x, %x)": 6 + 3 + 2,
        "f32[64]{0} abs(%x)": 4,
        "f32[64]{0} real(%x)": 0,
        "c64[64]{0} fft(%x), fft_type=FFT, fft_length={64}": 5 * 6,
        "f32[126]{0} fft(%x), fft_type=IRFFT, fft_length={126}": 2.5 * 126 * math.log2(126) / 64,
    }
    x = "  %x = c64[64]{0} parameter(0)\n"
    rows = {line: only_row(program(f"{x}  ROOT %y = {line}")) for line in lines}
    assert {line: row.flops.vector / 64 for line, row in rows.items()} == pytest.approx(lines)
    summed = program(
        f"{x}  %z = c64[] constant(0)\n"
        "  ROOT %y = c64[] reduce(%x, %z), dimensions={0}, to_apply=%add",
        ADD.replace("f32", "c64"),
    )
    assert only_row(summed).flops.vector == 2 * 64
    product = dot().replace("f32", "c64")
    assert only_row(product).flops.matrix == 8 * 4 * 8 * 16 * 32
    (unknown,) = only_row(program(f"{x}  ROOT %y = c64[64]{{0}} tan(%x)")).flops.unknown
    assert unknown == "complex tan"


def test_a_convolution_of_single_channels_is_the_vector_unit_s():
    channels = "f32[8,32,16]", "f32[5,1,16]", "f32[8,28,16]"
    groups = {
        "feature_group_count=16, dim_labels=b0f_0io->b0f": channels,
        # its gradient by the weights: each channel's pictures are a batch of their own
        "batch_group_count=16, dim_labels=f0b_i0o->0bf": (
            "f32[8,32,16]",
            "f32[8,28,16]",
            "f32[5,1,16]",
        ),
    }
    for attributes, (left, right, out) in groups.items():
        size = 5 if "feature" in attributes else 28
        row = only_row(
            program(
                f"  %x = {left}{{2,1,0}} parameter(0)\n  %w = {right}{{2,1,0}} parameter(1)\n"
                f"  ROOT %y = {out}{{2,1,0}} convolution(%x, %w), window={{size={size}}}, "
                f"{attributes}"
            )
        )
        assert (row.flops.vector, row.flops.matrix, row.matrix_types) == (
            2 * 8 * 28 * 16 * 5,
            0,
            (),
        )


CONVOLUTIONS = {
    "a product without a window": (
        ("f32[8,32]", "f32[32,16]", "f32[8,16]"),
        "dim_labels=bf_io->bf",
        2 * 8 * 16 * 32,
    ),
    "a product whose batch is a window": (
        ("f32[4,8,32]", "f32[4,32,16]", "f32[4,8,16]"),
        "window={size=4 stride=3 lhs_dilate=4}, dim_labels=0bf_0io->0bf",
        2 * 4 * 8 * 16 * 32,
    ),
    "a padded picture: corners meet 4 taps, sides 6, the rest 9": (
        ("f32[1,5,5,2]", "f32[3,3,2,7]", "f32[1,5,5,7]"),
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        2 * 2 * 7 * (3 * 5 - 2) ** 2,
    ),
    "groups: each output channel sees its group's inputs only (the kernel's i)": (
        ("f32[1,4,8]", "f32[1,1,8]", "f32[1,4,8]"),
        "window={size=1}, dim_labels=b0f_0io->b0f, feature_group_count=8",
        2 * 4 * 8,
    ),
}


def test_convolutions_count_the_taps_that_meet_data():
    counted = {}
    for name, ((lhs, rhs, out), attributes, _) in CONVOLUTIONS.items():
        sides = f"  %a = {lhs} parameter(0)\n  %b = {rhs} parameter(1)\n"
        line = f"  ROOT %y = {out} convolution(%a, %b), {attributes}"
        flops = only_row(program(sides + line)).flops
        counted[name] = flops.matrix + flops.vector
    assert counted == {name: flops for name, (*_, flops) in CONVOLUTIONS.items()}


def test_taps_are_counted_as_by_enumeration():
    out, wrong = 6, []
    for size, *window in product((1, 4, 7), (1, 2, 5), (1, 2, 3), (-1, 0, 2), (1, 2, 6), (1, 2)):
        data = {i * window[3] for i in range(size)}
        moving = Window(*window)
        by_hand = sum(
            o * moving.stride + k * moving.dilation - moving.low in data
            for o in range(out)
            for k in range(moving.size)
        )
        if moving.taps(size, out) != by_hand:
            wrong.append((size, moving, by_hand))
    assert wrong == []
