"""HLO text: shapes, instructions, and lines that XLA breaks."""

import pytest
from hlo_texts import program, shape

from roofline import xla
from roofline.xla.hlo import UnreadableProgram, brief


def test_a_shape_has_type_size_memory_and_tiles():
    it = shape("bf16[2048,1000]{1,0:T(8,128)(2,1)S(1)}")
    assert (it.dtype, it.dims, it.space, it.tile, it.order) == (
        "bf16",
        (2048, 1000),
        1,
        (8, 128),
        (0, 1),
    )
    assert it.bytes == 2048 * 1000 * 2
    assert it.padded_bytes == 2048 * 1024 * 2
    assert str(it) == "bf16[2048,1000]"
    assert shape("f32[100]{0:T(8,128)}").padded_bytes == 4 * 128
    assert shape("f32[3,5,9]{0,2,1:T(4,8)}").padded_bytes == 4 * 5 * 12 * 8


def test_bytes_of_a_shape():
    sizes = {
        "f32[]": 4,
        "f32[0,7]": 0,
        "pred[16]{0}": 16,
        "s4[16]{0}": 16,
        "s4[16]{0:E(4)}": 8,
        "f8e4m3fn[3,5]{1,0}": 15,
        "c64[4]{0}": 32,
        "f32[<=8,2]{1,0}": 64,
        "token[]": 0,
        "(f32[2]{0}, (bf16[3]{0}, s32[]))": 18,
        "()": 0,
    }
    assert {text: shape(text).bytes for text in sizes} == sizes


@pytest.mark.parametrize("text", ["", "hello", "HloModule empty\n", None, 3])
def test_text_that_is_no_program_is_refused(text):
    with pytest.raises(UnreadableProgram, match="HLO"):
        xla.parse(text)


# as XLA prints a kernel that JAX gave metadata, splash attention for instance
BROKEN = """  %x = f32[8]{0} parameter(0)
  %k = f32[8]{0} custom-call(%x), custom_call_target="tpu_custom_call", \
frontend_attributes={kernel_metadata={
"two":"x{",
"xprof_metadata":"{\\"block_q\\": 512}"
}}, metadata={op_name="jit(f)/pallas_call"}, backend_config={"custom_call_config":\
{"cost_estimate":{"flops":"80","transcendentals":"0","bytes_accessed":"64"}}}
  ROOT %y = f32[8]{0} tanh(%k)"""


def test_a_line_that_is_broken_inside_brackets_is_one_instruction():
    ledger = xla.kernels(program(BROKEN))
    assert [(row.name, row.matrix_flops, row.vector_flops) for row in ledger.rows] == [
        ("k", 80, 0),
        ("y", 0, 8),
    ]
    assert ledger.rows[0].op_name == "jit(f)/pallas_call"
    short = brief(program(BROKEN))
    assert short.splitlines() == [
        "ENTRY %main () -> f32[] {",
        "  %x = f32[8]{0} parameter(0)",
        '  %k = f32[8]{0} custom-call(%x), custom_call_target="tpu_custom_call"',
        "  ROOT %y = f32[8]{0} tanh(%k)",
        "}",
    ]
    assert brief(short) == short
