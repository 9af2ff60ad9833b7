"""Custom calls, and instructions that the reader does not know."""

import pytest
from hlo_texts import only_row, program, shape

from roofline import xla


@pytest.mark.parametrize(
    ("target", "used", "made"),
    [("Forward", "xw", "y"), ("BackwardInput", "yw", "x"), ("BackwardFilter", "xy", "w")],
)
def test_convolutions_of_cudnn_state_their_dimensions(target, used, made):
    sides = {"x": "bf16[2,5,5,3]", "w": "bf16[7,3,3,3]", "y": "bf16[2,5,5,7]"}
    result = sides[made]
    inputs = "".join(f"  %{n} = {sides[n]} parameter({i})\n" for i, n in enumerate(used))
    row = only_row(
        program(
            f"{inputs}  ROOT %c = ({result}, u8[4096]{{0}}) custom-call(%{used[0]}, %{used[1]}), "
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, "
            f'custom_call_target="__cudnn$conv{target}"'
        ),
        "gpu",
    )
    taps = (3 * 5 - 2) ** 2  # those that meet no padding
    assert (row.flops.matrix, row.matrix_types) == (2 * 2 * 3 * 7 * taps, ("bf16",))
    assert row.written["hbm"] == shape(result).bytes  # scratch memory is no result


def test_an_unknown_instruction_is_named():
    text = program("  %x = f32[64]{0} parameter(0)\n  ROOT %y = f32[64]{0} frobnicate(%x)")
    (row,) = xla.kernels(text).rows
    assert (row.flops.unknown, row.bytes) == (("the opcode frobnicate",), 512)
    assert xla.kernels(text).notes == (
        "y: its FLOPs are unknown (the opcode frobnicate declares none)",
    )


CUDNN = """HloModule attention
ENTRY %main (q: bf16[2,512,8,64], k: bf16[2,512,8,64], v: bf16[2,512,8,128]) -> bf16[2,8,512,128] {
  %q = bf16[2,512,8,64]{3,2,1,0} parameter(0)
  %k = bf16[2,512,8,64]{3,2,1,0} parameter(1)
  %v = bf16[2,512,8,128]{3,2,1,0} parameter(2)
  %y = (bf16[2,8,512,128]{3,1,2,0}, u8[0]{0}) custom-call(%q, %k, %v), \
custom_call_target="TARGET", backend_config={"cudnn_fmha_backend_config": \
{"intermediate_tensor_shape": {"dimensions": ["2", "8", "512", "512"]}, "mask_type": "MASK", \
"sliding_window_length": WINDOW, "max_seg_per_batch": 1}}
  ROOT %out = bf16[2,8,512,128]{3,1,2,0} get-tuple-element(%y), index=0
}
"""


@pytest.mark.parametrize(
    ("target", "mask", "window", "matrix"),
    [
        ("__cudnn$fmhaSoftmax", "NO_MASK", 0, 2 * 16 * 512 * 512 * (64 + 128)),
        ("__cudnn$fmhaSoftmax", "CAUSAL", 0, 2 * 16 * (512 * 513 // 2) * (64 + 128)),
        ("__cudnn$fmhaSoftmax", "CAUSAL", 128, 2 * 16 * (128 * 513 - 128 * 129 // 2) * (64 + 128)),
        ("__cudnn$fmhaSoftmaxBackward", "NO_MASK", 0, 2 * 16 * 512 * 512 * (3 * 64 + 2 * 128)),
        ("__cudnn$fmhaSoftmax", "PADDING", 0, None),  # the lengths are data
    ],
)
def test_cudnns_attention_has_the_flops_of_its_sizes_and_mask(target, mask, window, matrix):
    text = CUDNN.replace("TARGET", target).replace("MASK", mask).replace("WINDOW", str(window))
    (row,) = xla.kernels(text, "gpu").rows
    assert row.flops.unknown == (() if matrix is not None else (target,))
    assert row.flops.matrix == (matrix or 0)
    assert row.matrix_types == (("bf16",) if matrix is not None else ())
