"""The HLO reader, against text that XLA printed (data/hlo) and small programs by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from compiled_suite import SUITE, Hand

from roofline_helpers import hlo
from roofline_helpers._checks import BadType, BadValue

HERE = Path(__file__).resolve().parent
FIXTURES = sorted((HERE / "data" / "hlo").glob("*.hlo"))
BF16 = 2


def counted(ledger: hlo.Ledger) -> dict[str, float]:
    """Return the totals of a program."""
    rows = ledger.rows
    return {
        "matrix": sum((r.flops.matrix + r.flops.declared) * r.launches for r in rows),
        "vector": sum(r.flops.vector * r.launches for r in rows),
        "transcendentals": sum(r.flops.transcendentals * r.launches for r in rows),
        "read": sum(r.read.get("hbm", 0) * r.launches for r in rows),
        "written": sum(r.written.get("hbm", 0) * r.launches for r in rows),
    }


def expected(name: str, chip: str, version: str) -> Hand:
    """Return the count by hand; where a version of the compiler does otherwise, as it does."""
    return SUITE[name].by_version.get((chip, version), SUITE[name].hand)(chip)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_programs_of_xla_are_counted_as_by_hand(path: Path) -> None:
    name, chip, version = re.fullmatch(r"(.+)\.(\w+)\.jax-(.+)", path.stem).groups()
    hand = expected(name, chip, version)
    platform = {"h100": "gpu", "cpu": "cpu"}.get(chip, "tpu")
    ledger = hlo.kernels(path.read_text("utf-8"), platform, strict=True)
    found = counted(ledger)
    for field, value in found.items():
        wanted = getattr(hand, field)
        if wanted is not None:
            assert value == pytest.approx(wanted, rel=0.01), field
    assert any(row.flops.unknown for row in ledger.rows) == hand.unknown


def test_there_are_fixtures_of_every_version() -> None:
    versions = {path.stem.partition("jax-")[2] for path in FIXTURES}
    assert versions == {*hlo.TESTED_WITH, "0.11.2"}  # the last on an H100


def test_fixtures_name_no_place() -> None:
    for path in FIXTURES:
        assert not re.search(r"/(work|home|root|tmp|usr)/", path.read_text("utf-8")), path.name


def fixture(name: str) -> str:
    return (HERE / "data" / "hlo" / f"{name}.hlo").read_text("utf-8")


# --- shapes and text ----------------------------------------------------------------------------


def shape(text: str) -> hlo.Shape:
    found, end = hlo._shape(text, 0)
    assert end == len(text)
    return found


def test_a_shape_has_type_size_memory_and_tiles() -> None:
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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[]", 4),
        ("f32[0,7]", 0),
        ("pred[16]{0}", 16),
        ("s4[16]{0}", 16),
        ("s4[16]{0:E(4)}", 8),
        ("f8e4m3fn[3,5]{1,0}", 15),
        ("c64[4]{0}", 32),
        ("f32[<=8,2]{1,0}", 64),
        ("token[]", 0),
        ("(f32[2]{0}, (bf16[3]{0}, s32[]))", 18),
        ("()", 0),
    ],
)
def test_bytes_of_a_shape(text: str, size: int) -> None:
    assert shape(text).bytes == size


def test_padding_follows_the_order_in_memory() -> None:
    assert shape("f32[3,256]{0,1:T(8,128)}").padded_bytes == 4 * 256 * 128
    assert shape("f32[256,3]{1,0:T(8,128)}").padded_bytes == 4 * 256 * 128
    assert shape("f32[5]{0:T(1024)}").padded_bytes == 4 * 1024


@pytest.mark.parametrize("text", ["", "hello", "HloModule empty\n", None, 3])
def test_text_that_is_no_program_is_refused(text: Any) -> None:
    with pytest.raises(hlo.UnreadableProgram, match="HLO"):
        hlo.parse(text)


def test_attributes_are_split_outside_of_brackets_and_quotes() -> None:
    line = (
        '  ROOT %f = f32[8]{0} fusion(%a, %b), kind=kLoop, calls=%c, metadata={op_name="x, (y"}, '
        'backend_config={"k":[{"n":"1, }"}]}'
    )
    each = hlo._instruction(line)
    assert each is not None
    assert (each.name, each.opcode, each.operands, each.is_root) == (
        "f",
        "fusion",
        ("a", "b"),
        True,
    )
    assert each.config == {"k": [{"n": "1, }"}]}
    assert each.source == "x, (y"
    assert each.called("calls") == ("c",)


def test_operands_may_carry_shapes_and_names_without_percent() -> None:
    each = hlo._instruction("  y = f32[8]{0} add(f32[8]{0} a, f32[8]{0} %b)")
    assert each is not None
    assert each.operands == ("a", "b")


# --- FLOPs --------------------------------------------------------------------------------------


def program(body: str, *others: str) -> str:
    """Return a module whose entry has these lines; others are whole computations."""
    return "\n".join(["HloModule test", *others, "ENTRY %main () -> f32[] {", body, "}"])


def one(text: str, platform: str = "tpu") -> hlo.Row:
    (row,) = hlo.kernels(text, platform, strict=True).rows
    return row


ADD = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}"""


@pytest.mark.parametrize(
    ("line", "vector", "transcendentals"),
    [
        ("add(%x, %x)", 64, 0),
        ("compare(%x, %x), direction=LT", 64, 0),
        ("select(%x, %x, %x)", 64, 0),
        ("exponential(%x)", 64, 64),
        ("rsqrt(%x)", 64, 64),
        ("copy(%x)", 0, 0),
        ("convert(%x)", 0, 0),
        ("transpose(%x), dimensions={0}", 0, 0),
    ],
)
def test_elementwise_work(line: str, vector: int, transcendentals: int) -> None:
    row = one(program(f"  %x = f32[64]{{0}} parameter(0)\n  ROOT %y = f32[64]{{0}} {line}"))
    assert (row.flops.matrix, row.flops.vector) == (0, vector)
    assert row.flops.transcendentals == transcendentals
    assert row.bytes == 2 * 64 * 4


def test_a_sum_over_n_counts_n() -> None:
    text = program(
        "  %x = f32[8,100]{1,0} parameter(0)\n  %z = f32[] constant(0)\n"
        "  ROOT %y = f32[8]{0} reduce(%x, %z), dimensions={1}, to_apply=%add",
        ADD,
    )
    assert one(text).flops.vector == 800


def dot(batch: str = "") -> str:
    return program(
        "  %a = f32[4,8,32]{2,1,0} parameter(0)\n  %b = f32[4,32,16]{2,1,0} parameter(1)\n"
        "  ROOT %y = f32[4,8,16]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )


def test_a_dot_is_two_flops_for_each_multiply_add() -> None:
    assert one(dot()).flops.matrix == 2 * 4 * 8 * 16 * 32


def test_complex_numbers_are_noted() -> None:
    said = "complex numbers: an operation on one counts as one FLOP"
    turned = dot().replace("f32[", "c64[").replace("() -> c64[]", "() -> f32[]")
    assert hlo.kernels(turned).notes == (said,)
    assert hlo.kernels(turned).rows[0].flops == hlo.kernels(dot()).rows[0].flops
    assert hlo.kernels(dot()).notes == ()
    parts = "  %a = c64[8]{0} parameter(0)\n  ROOT %y = f32[8]{0} real(%a)"
    assert hlo.kernels(program(parts)).notes == ()


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "attributes", "flops"),
    [
        # the same product as a convolution: without a window, and with the batch as a window
        ("f32[8,32]", "f32[32,16]", "f32[8,16]", "dim_labels=bf_io->bf", 2 * 8 * 16 * 32),
        (
            "f32[4,8,32]",
            "f32[4,32,16]",
            "f32[4,8,16]",
            "window={size=4 stride=3 lhs_dilate=4}, dim_labels=0bf_0io->0bf",
            2 * 4 * 8 * 16 * 32,
        ),
        # a window over a padded picture: corners meet 4 taps, sides 6, the rest 9
        (
            "f32[1,5,5,2]",
            "f32[3,3,2,7]",
            "f32[1,5,5,7]",
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
            2 * 2 * 7 * (3 * 5 - 2) ** 2,
        ),
        # strides, and a window with holes
        (
            "f32[1,9,1]",
            "f32[3,1,1]",
            "f32[1,4,1]",
            "window={size=3 stride=2}, dim_labels=b0f_0io->b0f",
            2 * 4 * 3,
        ),
        (
            "f32[1,9,1]",
            "f32[3,1,1]",
            "f32[1,5,1]",
            "window={size=3 rhs_dilate=2}, dim_labels=b0f_0io->b0f",
            2 * 5 * 3,
        ),
        # groups: each output channel sees its group's inputs only (the kernel's i)
        (
            "f32[1,4,8]",
            "f32[1,1,8]",
            "f32[1,4,8]",
            "window={size=1}, dim_labels=b0f_0io->b0f, feature_group_count=8",
            2 * 4 * 8,
        ),
        (
            "f32[6,4,3]",
            "f32[1,3,8]",
            "f32[3,4,8]",
            "window={size=1}, dim_labels=b0f_0io->b0f, batch_group_count=2",
            2 * 3 * 4 * 3 * 8,
        ),
    ],
)
def test_convolutions_count_the_taps_that_meet_data(
    lhs: str, rhs: str, out: str, attributes: str, flops: int
) -> None:
    body = f"  %a = {lhs} parameter(0)\n  %b = {rhs} parameter(1)\n"
    assert one(
        program(f"{body}  ROOT %y = {out} convolution(%a, %b), {attributes}")
    ).flops.matrix == (flops)


def test_taps_are_counted_as_by_enumeration() -> None:
    for size in (1, 4, 7):
        for window in (1, 2, 5):
            for stride in (1, 2, 3):
                for low in (-1, 0, 2):
                    for base in (1, 2, 6):
                        for dilation in (1, 2):
                            out = 6
                            places = {i * base for i in range(size)}
                            wanted = sum(
                                o * stride + k * dilation - low in places
                                for o in range(out)
                                for k in range(window)
                            )
                            found = hlo._taps(size, out, window, stride, low, base, dilation)
                            assert found == wanted, (size, window, stride, low, base, dilation)


def test_a_window_that_holds_everything_is_one_reduction() -> None:
    text = program(
        "  %x = f32[4,100]{1,0} parameter(0)\n  %z = f32[] constant(0)\n"
        "  ROOT %y = f32[4,100]{1,0} reduce-window(%x, %z), window={size=1x199 pad=0_0x99_99}, "
        "to_apply=%add",
        ADD,
    )
    assert one(text).flops.vector == 400


# --- bytes --------------------------------------------------------------------------------------


def test_vmem_is_not_hbm() -> None:
    text = program(
        "  %x = f32[64]{0:T(8)} parameter(0)\n"
        "  %s = (f32[64]{0:T(8)S(1)}, f32[64]{0:T(8)}, u32[]{:S(2)}) copy-start(%x)\n"
        "  %d = f32[64]{0:T(8)S(1)} copy-done(%s)\n"
        "  ROOT %y = f32[64]{0:T(8)} negate(%d)"
    )
    copy, negate = hlo.kernels(text, strict=True).rows
    assert (dict(copy.read), dict(copy.written), copy.overlaps) == (
        {"hbm": 256},
        {"vmem": 256},
        True,
    )
    assert (dict(negate.read), dict(negate.written)) == ({"vmem": 256}, {"hbm": 256})


def test_a_gpu_counts_its_other_spaces_as_main_memory() -> None:
    text = program("  %x = f32[64]{0:S(1)} parameter(0)\n  ROOT %y = f32[64]{0} negate(%x)")
    assert one(text, "gpu").bytes == 512
    assert one(text, "tpu").bytes == 256


def test_an_unknown_space_keeps_its_number() -> None:
    text = program("  %x = f32[64]{0:S(9)} parameter(0)\n  ROOT %y = f32[64]{0} negate(%x)")
    assert dict(one(text).read) == {"S(9)": 256}


def test_a_platform_that_does_not_exist() -> None:
    with pytest.raises(BadValue, match=r"tpu, gpu, cpu.*'npu'"):
        hlo.kernels(dot(), "npu")
    with pytest.raises(BadValue, match=r"unknown_trips must be a whole number from 1 .* got 0"):
        hlo.kernels(dot(), unknown_trips=0)
    with pytest.raises(BadType, match="strict must be True or False, got 'yes'"):
        hlo.kernels(dot(), strict="yes")  # type: ignore[arg-type]


def test_padding_of_tiles_is_listed_apart() -> None:
    text = program(
        "  %x = f32[8,100]{1,0:T(8,128)} parameter(0)\n"
        "  ROOT %y = f32[8,100]{1,0:T(8,128)S(1)} negate(%x)"
    )
    row = one(text)
    assert (row.bytes, row.padding) == (3200, 8 * 28 * 4)  # of what lies in HBM


def test_the_same_buffer_twice_is_read_once() -> None:
    text = program("  %x = f32[64]{0} parameter(0)\n  ROOT %y = f32[64]{0} add(%x, %x)")
    assert one(text).bytes == 512


def fused(inner: str, parameters: str, operands: str, result: str = "f32[64]{0}") -> str:
    computation = f"%inner (p: f32[]) -> f32[] {{\n{inner}\n}}"
    outer = f"{parameters}\n  ROOT %f = {result} fusion({operands}), kind=kLoop, calls=%inner"
    return program(outer, ADD, computation)


BIG = "  %x = f32[1000,64]{1,0} parameter(0)\n  %i = s32[] parameter(1)"


def test_a_slice_inside_a_fusion_reads_the_slice() -> None:
    row = one(
        fused(
            "  %p = f32[1000,64]{1,0} parameter(0)\n  %i = s32[] parameter(1)\n"
            "  %z = s32[] constant(0)\n"
            "  %d = f32[1,64]{1,0} dynamic-slice(%p, %i, %z), dynamic_slice_sizes={1,64}\n"
            "  ROOT %b = f32[64]{0} bitcast(%d)",
            BIG,
            "%x, %i",
        )
    )
    assert (row.read["hbm"], row.written["hbm"]) == (256, 256)


def test_a_slice_of_something_computed_limits_both_bytes_and_flops() -> None:
    row = one(
        fused(
            "  %p = f32[1000,64]{1,0} parameter(0)\n  %t = f32[1000,64]{1,0} tanh(%p)\n"
            "  ROOT %s = f32[10,64]{1,0} slice(%t), slice={[0:10], [0:64]}",
            "  %x = f32[1000,64]{1,0} parameter(0)",
            "%x",
            "f32[10,64]{1,0}",
        )
    )
    assert row.read["hbm"] == pytest.approx(10 * 64 * 4)
    assert row.flops.transcendentals == pytest.approx(640)


def test_a_parameter_sliced_and_used_whole_is_read_whole() -> None:
    row = one(
        fused(
            "  %p = f32[100,64]{1,0} parameter(0)\n"
            "  %s = f32[1,64]{1,0} slice(%p), slice={[0:1], [0:64]}\n"
            "  %b = f32[100,64]{1,0} broadcast(%s), dimensions={0,1}\n"
            "  ROOT %a = f32[100,64]{1,0} add(%p, %b)",
            "  %x = f32[100,64]{1,0} parameter(0)",
            "%x",
            "f32[100,64]{1,0}",
        )
    )
    assert row.read["hbm"] == 100 * 64 * 4


def test_two_slices_add_up_and_the_same_slice_does_not() -> None:
    def read(second: str) -> int:
        return one(
            fused(
                "  %p = f32[100]{0} parameter(0)\n"
                "  %s = f32[10]{0} slice(%p), slice={[0:10]}\n"
                f"  %t = f32[10]{{0}} slice(%p), slice={{{second}}}\n"
                "  ROOT %a = f32[10]{0} add(%s, %t)",
                "  %x = f32[100]{0} parameter(0)",
                "%x",
                "f32[10]{0}",
            )
        ).read["hbm"]

    assert (read("[10:20]"), read("[0:10]")) == (80, 40)


def test_a_slice_of_a_broadcast_needs_all_that_is_broadcast() -> None:
    row = one(
        fused(
            "  %p = f32[64]{0} parameter(0)\n"
            "  %b = f32[100,64]{1,0} broadcast(%p), dimensions={1}\n"
            "  ROOT %s = f32[1,64]{1,0} slice(%b), slice={[0:1], [0:64]}",
            "  %x = f32[64]{0} parameter(0)",
            "%x",
            "f32[1,64]{1,0}",
        )
    )
    assert row.read["hbm"] == 256


UPDATE = (
    "  %p = f32[1000,64]{1,0} parameter(0)\n  %u = f32[1,64]{1,0} parameter(1)\n"
    "  %i = s32[] parameter(2)\n  %z = s32[] constant(0)\n"
)


def test_an_update_in_place_inside_a_fusion_moves_the_update() -> None:
    row = one(
        fused(
            f"{UPDATE}  ROOT %d = f32[1000,64]{{1,0}} dynamic-update-slice(%p, %u, %i, %z)",
            "  %x = f32[1000,64]{1,0} parameter(0)\n  %v = f32[1,64]{1,0} parameter(1)\n"
            "  %j = s32[] parameter(2)",
            "%x, %v, %j",
            "f32[1000,64]{1,0}",
        )
    )
    assert (row.read["hbm"], row.written["hbm"]) == (256, 256)


def test_a_scatter_in_a_fusion_inside_a_fusion_is_in_place() -> None:
    row = max(
        hlo.kernels(fixture("scatter-add.v7x.jax-0.12.0.1"), strict=True).rows,
        key=lambda row: row.bytes,
    )
    assert row.written["hbm"] == BF16 * 2048 * 1024


def test_an_update_whose_result_goes_on_is_not_in_place() -> None:
    row = one(
        fused(
            f"{UPDATE}  %d = f32[1000,64]{{1,0}} dynamic-update-slice(%p, %u, %i, %z)\n"
            "  ROOT %n = f32[1000,64]{1,0} negate(%d)",
            "  %x = f32[1000,64]{1,0} parameter(0)\n  %v = f32[1,64]{1,0} parameter(1)\n"
            "  %j = s32[] parameter(2)",
            "%x, %v, %j",
            "f32[1000,64]{1,0}",
        )
    )
    assert (row.read["hbm"], row.written["hbm"]) == (256_000 + 256, 256_000)


def test_outputs_of_a_fusion_count_each_where_it_lives() -> None:
    row = one(
        fused(
            "  %p = f32[64]{0} parameter(0)\n  %a = f32[64]{0:S(1)} negate(%p)\n"
            "  %b = f32[64]{0} tanh(%p)\n"
            "  ROOT %t = (f32[64]{0:S(1)}, f32[64]{0}) tuple(%a, %b)",
            "  %x = f32[64]{0} parameter(0)",
            "%x",
            "(f32[64]{0:S(1)}, f32[64]{0})",
        )
    )
    assert (dict(row.read), dict(row.written)) == ({"hbm": 256}, {"vmem": 256, "hbm": 256})


@pytest.mark.parametrize(
    ("line", "read", "written"),
    [
        ("f32[2,64]{1,0} slice(%x), slice={[0:2], [0:64]}", 512, 512),
        ("f32[4,64]{1,0} gather(%x, %r), offset_dims={1}, slice_sizes={1,64}", 1024 + 16, 1024),
        (
            "f32[1000,64]{1,0} dynamic-update-slice(%x, %u, %i, %i)",
            256,
            256,
        ),
        (
            "f32[1000,64]{1,0} scatter(%x, %r, %v), update_window_dims={1}, to_apply=%add",
            2 * 1024 + 16,
            1024,
        ),
        ("f32[64,1000,64]{2,1,0} broadcast(%x), dimensions={1,2}", 256_000, 64 * 256_000),
        ("f32[64000]{0} iota(), iota_dimension=0", 0, 256_000),
    ],
)
def test_bytes_of_single_instructions(line: str, read: int, written: int) -> None:
    inputs = (
        f"{BIG}\n  %r = s32[4]{{0}} parameter(2)\n  %u = f32[1,64]{{1,0}} parameter(3)\n"
        "  %v = f32[4,64]{1,0} parameter(4)\n"
    )
    row = one(program(f"{inputs}  ROOT %y = {line}", ADD))
    assert (row.read.get("hbm", 0), row.written.get("hbm", 0)) == (read, written)


def test_a_scatter_that_overwrites_does_not_read_what_it_overwrites() -> None:
    second = ADD.replace("add (", "second (").replace("add(%a, %b)", "copy(%b)")
    inputs = f"{BIG}\n  %r = s32[4]{{0}} parameter(2)\n  %v = f32[4,64]{{1,0}} parameter(3)\n"
    line = "f32[1000,64]{1,0} scatter(%x, %r, %v), update_window_dims={1}, to_apply=%second"
    row = one(program(f"{inputs}  ROOT %y = {line}", second))
    assert (row.read["hbm"], row.written["hbm"]) == (1024 + 16, 1024)


def test_asynchronous_pairs_count_once() -> None:
    text = program(
        "  %x = f32[1000]{0} parameter(0)\n"
        "  %s = ((f32[1000]{0}), f32[100]{0:S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:100]}\n"
        "  ROOT %d = f32[100]{0:S(1)} slice-done(%s)"
    )
    row = one(text)
    assert (row.opcode, dict(row.read), dict(row.written)) == ("slice", {"hbm": 400}, {"vmem": 400})


def test_a_computation_called_asynchronously_is_followed() -> None:
    text = program(
        "  %x = f32[64]{0} parameter(0)\n"
        "  %s = ((f32[64]{0}), f32[64]{0}, u32[]{:S(8)}) call-start(%x), to_apply=%inner\n"
        "  ROOT %d = f32[64]{0} call-done(%s)",
        "%inner (p: f32[64]) -> f32[64] {\n  %p = f32[64]{0} parameter(0)\n"
        "  ROOT %y = f32[64]{0} tanh(%p)\n}",
    )
    row = one(text)
    assert (row.name, row.bytes, row.flops.vector) == ("y", 512, 64)


# --- loops and branches -------------------------------------------------------------------------


def loop(
    condition: str = "compare(%i, %n), direction=LT",
    step: str = "add(%i, %one)",
    start: str = "constant(0)",
    bound: str = "constant(7)",
    config: str = "",
) -> str:
    """Return a program with a loop whose body takes the tanh of 64 numbers."""
    tuple_of = "(s32[], f32[64]{0})"
    return program(
        f"  %x = f32[64]{{0}} parameter(0)\n  %s = s32[] {start}\n"
        f"  %t = {tuple_of} tuple(%s, %x)\n"
        f"  %w = {tuple_of} while(%t), condition=%cond, body=%body{config}\n"
        "  ROOT %y = f32[64]{0} get-tuple-element(%w), index=1",
        f"%cond (t: {tuple_of}) -> pred[] {{\n  %t = {tuple_of} parameter(0)\n"
        f"  %i = s32[] get-tuple-element(%t), index=0\n  %n = s32[] {bound}\n"
        f"  ROOT %c = pred[] {condition}\n}}",
        f"%body (t: {tuple_of}) -> {tuple_of} {{\n  %t = {tuple_of} parameter(0)\n"
        "  %i = s32[] get-tuple-element(%t), index=0\n  %one = s32[] constant(2)\n"
        f"  %j = s32[] {step}\n  %v = f32[64]{{0}} get-tuple-element(%t), index=1\n"
        f"  %u = f32[64]{{0}} tanh(%v)\n  ROOT %r = {tuple_of} tuple(%j, %u)\n}}",
    )


@pytest.mark.parametrize(
    ("changes", "turns"),
    [
        ({}, 4),  # 0, 2, 4, 6
        ({"condition": "compare(%i, %n), direction=LE"}, 4),
        ({"bound": "constant(8)", "condition": "compare(%i, %n), direction=LE"}, 5),
        ({"condition": "compare(%n, %i), direction=GT"}, 4),
        ({"bound": "constant(8)", "condition": "compare(%i, %n), direction=NE"}, 4),
        ({"start": "constant(3)"}, 2),
        ({"start": "constant(9)"}, 0),
        (
            {
                "start": "constant(9)",
                "step": "subtract(%i, %one)",
                "bound": "constant(0)",
                "condition": "compare(%i, %n), direction=GT",
            },
            5,
        ),
        ({"config": ', backend_config={"known_trip_count":{"n":"31"}}'}, 31),
        ({"config": ', backend_config="{\\"known_trip_count\\":{\\"n\\":\\"5\\"}}"'}, 5),
    ],
)
def test_trip_counts(changes: dict[str, str], turns: int) -> None:
    ledger = hlo.kernels(loop(**changes), strict=True)
    assert [(row.name, row.launches) for row in ledger.rows] == [("u", turns)]
    assert not any("unknown" in note for note in ledger.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "multiply(%i, %one)"},
        {"condition": "not(%i)"},
        {"start": "parameter(1)"},
        {"condition": "compare(%i, %n), direction=NE"},  # 0, 2, 4, 6, 8 … never meets 7
        {"condition": "compare(%i, %n), direction=GT"},
        {"bound": "get-tuple-element(%t), index=0"},
    ],
)
def test_a_trip_count_that_is_unknown_is_said_to_be(changes: dict[str, str]) -> None:
    ledger = hlo.kernels(loop(**changes), strict=True)
    assert [row.launches for row in ledger.rows] == [1]
    assert ledger.notes == ("loop w: its trip count is unknown; counted once",)
    assumed = hlo.kernels(loop(**changes), strict=True, unknown_trips=50)
    assert [row.launches for row in assumed.rows] == [50]
    assert assumed.notes == ("loop w: its trip count is unknown; counted as 50 turns",)


def test_the_dearest_branch_counts() -> None:
    def branch(name: str, opcode: str) -> str:
        return (
            f"%{name} (p: f32[64]) -> f32[64] {{\n  %p = f32[64]{{0}} parameter(0)\n"
            f"  ROOT %{name}_y = f32[64]{{0}} {opcode}(%p)\n}}"
        )

    both = branch("little", "bitcast"), branch("dear", "tanh")
    text = program(
        "  %i = s32[] parameter(0)\n  %x = f32[64]{0} parameter(1)\n"
        "  ROOT %c = f32[64]{0} conditional(%i, %x, %x), branch_computations={%little, %dear}",
        *both,
    )
    ledger = hlo.kernels(text, strict=True)
    assert [row.name for row in ledger.rows] == ["dear_y"]
    assert ledger.notes == ("conditional c: the dearest of 2 branches counts (dear)",)


def test_of_branches_that_cost_the_same_the_one_with_more_work_counts() -> None:
    def branch(name: str, *opcodes: str) -> str:
        lines = [f"%{name} (p: f32[64]) -> f32[64] {{", "  %p = f32[64]{0} parameter(0)"]
        last = "p"
        for i, opcode in enumerate(opcodes):
            root = "ROOT " if i == len(opcodes) - 1 else ""
            lines.append(f"  {root}%{name}{i} = f32[64]{{0}} {opcode}(%{last})")
            last = f"{name}{i}"
        return "\n".join([*lines, "}"])

    text = program(
        "  %i = s32[] parameter(0)\n  %x = f32[64]{0} parameter(1)\n"
        "  ROOT %c = f32[64]{0} conditional(%i, %x, %x), branch_computations={%less, %more}",
        branch("less", "copy", "tanh"),
        branch("more", "tanh", "tanh"),
    )
    ledger = hlo.kernels(text, strict=True, price=lambda rows: len(rows))
    assert [row.name for row in ledger.rows] == ["more0", "more1"]


def test_loops_of_the_real_compiler_say_how_often_they_turn() -> None:
    ledger = hlo.kernels(fixture("nested-loops.v5p.jax-0.10.2"), strict=True)
    assert sorted({row.launches for row in ledger.rows}) == [1, 4, 20]
    notes = " ".join(ledger.notes)
    assert "counts 4 times" in notes
    assert "counts 5 times" in notes


# --- calls, unknown instructions ----------------------------------------------------------------


def test_what_a_custom_call_does_not_declare_is_unknown() -> None:
    ledger = hlo.kernels(fixture("pallas.v6e.jax-0.10.2"), strict=True)
    (row,) = ledger.rows
    assert row.flops.unknown
    assert not row.uncounted
    assert "FLOPs are unknown" in ledger.notes[0]
    (declared,) = hlo.kernels(fixture("pallas-declared.v6e.jax-0.10.2"), strict=True).rows
    assert (declared.flops.declared, declared.flops.unknown) == (2 * 1024**2, ())
    assert declared.declared_bytes == 12 * 1024**2


def test_declared_bytes_that_differ_are_noted() -> None:
    text = fixture("pallas-declared.v6e.jax-0.10.2")
    assert hlo.kernels(text, strict=True).notes == ()
    assert '"bytes_accessed":"12582912"' in text
    ledger = hlo.kernels(text.replace('"bytes_accessed":"12582912"', '"bytes_accessed":"7"'))
    assert "declares 7 bytes, its operands and results have 12,582,912" in ledger.notes[0]
    assert ledger.rows[0].bytes == 12_582_912


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


def test_an_unknown_instruction_is_an_error_or_a_named_row() -> None:
    text = program("  %x = f32[64]{0} parameter(0)\n  ROOT %y = f32[64]{0} frobnicate(%x)")
    with pytest.raises(hlo.UnknownInstruction, match="'frobnicate' of y"):
        hlo.kernels(text, strict=True)
    (row,) = hlo.kernels(text).rows
    assert (row.uncounted, row.flops.unknown, row.bytes) == (True, ("frobnicate",), 512)
    assert hlo.kernels(text).notes == ("y: opcode 'frobnicate' is unknown; FLOPs uncounted",)


# --- tiles, cycles, refills ---------------------------------------------------------------------


def test_cycles_and_windows_are_read() -> None:
    rows = hlo.kernels(fixture("matmul-square.v6e.jax-0.10.2"), strict=True).rows
    (product,) = [row for row in rows if row.matrix_types]
    assert product.matrix_types == ("bf16",)
    assert product.cycles > 1024**3 * 2 / (2 * 4 * 256**2)  # not faster than four 256² units
    assert len(product.windows["iteration_bounds"]) == 3


def tiled(iteration: str, windows: tuple[str, str, str], k: int = 2048) -> hlo.Row:
    names = ("input", "kernel", "output")
    bounds = [f'"{n}_window_bounds":[{w}]' for n, w in zip(names, windows, strict=True)]
    bounds += ['"estimated_cycles":"7"', f'"iteration_bounds":[{iteration}]']
    config = f'{{"window_config":{{{",".join(bounds)}}}}}'
    layout = "{1,0:T(8,128)(2,1)}"
    return one(
        program(
            f"  %a = bf16[4096,{k}]{layout} parameter(0)\n"
            f"  %b = bf16[{k},1024]{layout} parameter(1)\n"
            f"  ROOT %y = bf16[4096,1024]{layout} convolution(%a, %b), dim_labels=bf_io->bf, "
            f"backend_config={config}"
        )
    )


def test_tiles_say_how_often_operands_are_fetched() -> None:
    a, b = BF16 * 4096 * 2048, BF16 * 2048 * 1024
    # m in 4 steps, n in 2, k in 8: a once for each n, b once for each m
    row = tiled('"2","4","8"', ('"128","2"', '"32","4"', '"128","4"'))
    assert row.tile_read == 2 * a + 4 * b
    # the whole of k in one window: b waits while m turns
    row = tiled('"2","4","1"', ('"128","16"', '"256","4"', '"128","4"'))
    assert row.tile_read == 2 * a + b
    # n not cut: everything once
    row = tiled('"1","4","1"', ('"128","16"', '"256","8"', '"128","8"'))
    assert row.tile_read == a + b


def test_tiles_that_do_not_add_up_say_nothing() -> None:
    assert tiled('"2","4","9"', ('"128","2"', '"32","4"', '"128","4"')).tile_read is None


def test_a_refill_for_the_next_run_counts_once() -> None:
    text = program(
        "  %x = f32[64]{0} parameter(0)\n"
        "  %s = (f32[64]{0:S(1)}, f32[64]{0}, u32[]) copy-start(%x)\n"
        "  %d = f32[64]{0:S(1)} copy-done(%s)\n"
        "  %s2 = (f32[64]{0:S(1)}, f32[64]{0}, u32[]) copy-start(%x)\n"
        "  ROOT %y = f32[64]{0} negate(%d)\n"
        "  %d2 = f32[64]{0:S(1)} copy-done(%s2)"
    )
    ledger = hlo.kernels(text, strict=True)
    assert [row.name for row in ledger.rows] == ["s", "y"]
    assert ledger.notes[0].startswith("s2 fetches a value into fast memory for the next run")


# --- collectives --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "groups"),
    [
        ("replica_groups={{0,1},{2,3}}", {(0, 1), (2, 3)}),
        ("replica_groups=[2,2]<=[4]", {(0, 1), (2, 3)}),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", {(0, 2), (1, 3)}),
        (
            "replica_groups=mesh['a'=1,'b'=2,'c'=2], device_ids=([2,2]T(1,0)) {'b'}",
            {(0, 1), (2, 3)},
        ),
        ("replica_groups=mesh['b'=2,'c'=2] {'b'}", {(0, 2), (1, 3)}),
    ],
)
def test_groups_of_devices(attribute: str, groups: set[tuple[int, ...]]) -> None:
    text = program(
        "  %x = f32[64]{0} parameter(0)\n"
        f"  ROOT %y = f32[64]{{0}} all-reduce(%x), {attribute}, to_apply=%add",
        ADD,
    )
    exchange = one(text).collective
    assert exchange is not None
    assert {tuple(sorted(group)) for group in exchange.groups} == groups
    assert (exchange.kind, exchange.group_size, exchange.link_bytes) == ("all-reduce", 2, 256)


@pytest.mark.parametrize("version", ["0.7.2", "0.10.2"])
def test_the_all_reduce_of_a_sharded_product(version: str) -> None:
    ledger = hlo.kernels(fixture(f"sharded-matmul.v6e.jax-{version}"), strict=True)
    (exchange,) = [row.collective for row in ledger.rows if row.collective]
    assert (exchange.kind, exchange.group_size) == ("all-reduce", 2)
    assert exchange.bytes_in == exchange.bytes_out == BF16 * 2048**2
    assert {frozenset(group) for group in exchange.groups} == {frozenset({0, 1}), frozenset({2, 3})}


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("f32[64]{0} all-reduce(%x), to_apply=%add", 2 * 0.75 * 256),
        ("f32[256]{0} all-gather(%x), dimensions={0}", 0.75 * 1024),
        ("f32[16]{0} reduce-scatter(%x), dimensions={0}, to_apply=%add", 0.75 * 256),
        ("f32[64]{0} all-to-all(%x), dimensions={0}", 0.75 * 256),
    ],
)
def test_what_a_ring_of_four_sends(line: str, sent: float) -> None:
    text = program(
        f"  %x = f32[64]{{0}} parameter(0)\n  ROOT %y = {line}, replica_groups={{{{0,1,2,3}}}}", ADD
    )
    exchange = one(text).collective
    assert exchange is not None
    assert exchange.link_bytes == sent


def test_a_permute_sends_all_that_it_has() -> None:
    text = program(
        "  %x = f32[64]{0} parameter(0)\n"
        "  ROOT %y = f32[64]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}"
    )
    exchange = one(text).collective
    assert exchange is not None
    assert (exchange.kind, exchange.link_bytes) == ("collective-permute", 256)


def test_a_sum_of_which_each_keeps_a_part_is_a_reduce_scatter() -> None:
    inner = (
        "%inner (p: f32[64]) -> f32[32] {\n  %p = f32[64]{0} parameter(0)\n"
        "  %r = f32[64]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add\n"
        "  %i = s32[] constant(0)\n"
        "  ROOT %d = f32[32]{0} dynamic-slice(%r, %i), dynamic_slice_sizes={32}\n}"
    )
    text = program(
        "  %x = f32[64]{0} parameter(0)\n"
        "  ROOT %y = f32[32]{0} fusion(%x), kind=kCustom, calls=%inner",
        ADD,
        inner,
    )
    exchange = one(text).collective
    assert exchange is not None
    assert (exchange.kind, exchange.bytes_in, exchange.bytes_out) == ("reduce-scatter", 256, 128)
    assert exchange.link_bytes == 128
