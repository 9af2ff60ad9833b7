"""Custom calls, and instructions that the reader does not know."""

from __future__ import annotations

import pytest
from hlo_texts import fixture, one, program, shape

from roofline_helpers import xla


def test_what_a_custom_call_does_not_declare_is_unknown() -> None:
    ledger = xla.kernels(fixture("pallas.v6e.jax-0.10.2"))
    (row,) = ledger.rows
    assert row.flops.unknown
    assert "FLOPs are unknown" in ledger.notes[0]
    (declared,) = xla.kernels(fixture("pallas-declared.v6e.jax-0.10.2")).rows
    assert (declared.flops.declared, declared.flops.unknown) == (2 * 1024**2, ())


@pytest.mark.parametrize(
    ("target", "result", "flops"),
    [
        ("Forward", "bf16[2,5,5,7]", 2 * 2 * 3 * 7 * (3 * 5 - 2) ** 2),
        ("BackwardInput", "bf16[2,5,5,3]", 2 * 2 * 3 * 7 * (3 * 5 - 2) ** 2),
        ("BackwardFilter", "bf16[7,3,3,3]", 2 * 2 * 3 * 7 * (3 * 5 - 2) ** 2),
    ],
)
def test_convolutions_of_cudnn_state_their_dimensions(target: str, result: str, flops: int) -> None:
    sides = {"x": "bf16[2,5,5,3]", "w": "bf16[7,3,3,3]", "y": "bf16[2,5,5,7]"}
    used = {"Forward": "xw", "BackwardInput": "yw", "BackwardFilter": "xy"}[target]
    inputs = "".join(f"  %{n} = {sides[n]} parameter({i})\n" for i, n in enumerate(used))
    row = one(
        program(
            f"{inputs}  ROOT %c = ({result}, u8[4096]{{0}}) custom-call(%{used[0]}, %{used[1]}), "
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, "
            f'custom_call_target="__cudnn$conv{target}"'
        ),
        "gpu",
    )
    assert (row.flops.matrix, row.matrix_types) == (flops, ("bf16",))
    assert row.written["hbm"] == shape(result).bytes  # scratch memory is no result


def test_an_unknown_instruction_is_named() -> None:
    text = program("  %x = f32[64]{0} parameter(0)\n  ROOT %y = f32[64]{0} frobnicate(%x)")
    (row,) = xla.kernels(text).rows
    assert (row.flops.unknown, row.bytes) == (("the opcode frobnicate",), 512)
    assert xla.kernels(text).notes == (
        "y: its FLOPs are unknown (the opcode frobnicate declares none)",
    )
