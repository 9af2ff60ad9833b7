"""Bytes: memory spaces, padding, slices, updates in place, asynchronous copies."""

import pytest
from hlo_texts import ADD, BIG, UPDATE, behind_a_tile, fused, only_row, program

from roofline import xla


def test_vmem_is_not_hbm():
    text = program(
        "  %x = f32[64]{0:T(8)} parameter(0)\n"
        "  %s = (f32[64]{0:T(8)S(1)}, f32[64]{0:T(8)}, u32[]{:S(2)}) copy-start(%x)\n"
        "  %d = f32[64]{0:T(8)S(1)} copy-done(%s)\n"
        "  ROOT %y = f32[64]{0:T(8)} negate(%d)"
    )
    copy, negate = xla.kernels(text).rows
    assert (dict(copy.read), dict(copy.written), copy.overlaps) == (
        {"hbm": 256},
        {"vmem": 256},
        True,
    )
    assert (dict(negate.read), dict(negate.written)) == ({"vmem": 256}, {"hbm": 256})


X, NONE = "f32[1024]{0}", "token[]"
TO_HOST = 'is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="2"}'


@pytest.mark.parametrize(
    ("platform", "lines", "to", "back"),
    [
        ("tpu", f"%s = ({X}, u32[], {NONE}) send(%x, %t), channel_id=1, {TO_HOST}", 4096, 0),
        ("tpu", f"%r = ({X}, u32[], {NONE}) recv(%t), channel_id=2, {TO_HOST}", 0, 4096),
        ("tpu", f"%s = (f32[], u32[], {NONE}) send(%one, %t), channel_id=1, {TO_HOST}", 4, 0),
        ("tpu", f"%o = {NONE} outfeed(%x, %t), outfeed_shape={X}", 4096, 0),
        ("gpu", f"%i = ({X}, {NONE}) infeed(%t)", 0, 4096),
        *(
            (on, f'%c = {X} custom-call(%x, %x), custom_call_target="{target}"', 8192, 4096)
            for on, target in (
                ("cpu", "xla_ffi_python_cpu_callback"),
                ("gpu", "xla_ffi_partitioned_python_gpu_callback"),
            )
        ),
    ],
)
def test_what_leaves_the_device_has_bytes_at_the_host(platform, lines, to, back):
    text = program(
        f"  %x = {X} parameter(0)\n  %one = f32[] constant(1)\n  %t = {NONE} after-all()\n"
        f"  {lines}\n  ROOT %y = {X} negate(%x)"
    )
    row, negate = xla.kernels(text, platform).rows
    assert (row.written.get("host", 0), row.read.get("host", 0)) == (to, back)
    assert (row.host_bytes, negate.host_bytes, negate.untimed) == (to + back, 0, "")
    assert "to the host" in row.untimed


def test_padding_of_tiles_is_listed_apart():
    text = program(
        "  %x = f32[8,100]{1,0:T(8,128)} parameter(0)\n"
        "  ROOT %y = f32[8,100]{1,0:T(8,128)S(1)} negate(%x)"
    )
    row = only_row(text)
    assert (row.bytes, row.padding) == (3200, 8 * 28 * 4)  # of what is in HBM
    wide, one = "f32[1000,64]{1,0:T(8,128)}", "f32[1,64]{1,0:T(8,128)}"
    update = program(
        f"  %x = {wide} parameter(0)\n  %u = {one} parameter(1)\n  %i = s32[] parameter(2)\n"
        f"  ROOT %y = {wide} dynamic-update-slice(%x, %u, %i, %i)"
    )
    assert only_row(update).padding == 4 * (64 + (8 * 128 - 64))  # of the row that is written


def test_a_slice_inside_a_fusion_reads_the_slice():
    row = only_row(
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


def test_two_slices_add_up_and_the_same_slice_does_not():
    def read(second):
        return only_row(
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


SUM = "window={size=1x1x16 pad=0_0x0_0x15_0}, to_apply=%add"


@pytest.mark.parametrize(
    ("first", "then", "elements"),
    [
        # a running sum, as XLA writes it for GPUs: a padding, windows, and the last of each
        ("f32[3,32,16] pad(%p, %z), padding=0_1x0_0x0_0", "f32[2,32,16] slice(%a)", 1024),
        (f"f32[2,32,16] reduce-window(%p, %z), {SUM}", "f32[2,32,1] slice(%a)", 1024),
        (
            "f32[1,16,8] reduce-window(%p, %z), window={size=1x1x1 stride=2x2x2}, to_apply=%add",
            "f32[1,16,8] negate(%a)",
            1024,
        ),  # whose memory is read all the same
        ("f32[2,32,8] pad(%p, %z), padding=0_0x0_0x-8_0", "f32[2,32,8] negate(%a)", 512),
        ("f32[2,32,16,8] broadcast(%p), dimensions={0,1,2}", "f32[2,32,1,8] slice(%a)", 512),
        ("f32[8,32,16] dynamic-update-slice(%i, %p, %z)", "f32[2,32,16] slice(%a)", 1024),
        ("f32[2,32,16] all-reduce(%p), to_apply=%add", "f32[1,32,16] slice(%a)", 1024),
    ],
)
def test_a_part_of_what_is_made_larger_may_take_all_of_it(first, then, elements):
    inside = (
        "  %p = f32[2,32,16] parameter(0)\n  %z = f32[] constant(0)\n"
        f"  %i = f32[8,32,16] iota(), iota_dimension=0\n  %a = {first}\n  ROOT %r = {then}"
    )
    row = only_row(fused(inside, "  %x = f32[2,32,16] parameter(0)", "%x"))
    assert row.read["hbm"] == 4 * elements


WIDE, NARROW, FLAT = "f32[1000,64]{1,0}", "bf16[1000,64]{1,0}", "f32[64000]{0}"
ALL, PART = 256_000, 256  # bytes of the buffer, and of the row that is updated
UPDATES_P = f"{WIDE} dynamic-update-slice(%p, %u, %i, %z)"
UPDATES_Q = UPDATES_P.replace("%p", "%q")


@pytest.mark.parametrize(
    ("buffer", "lines", "result", "moved"),
    [
        (WIDE, [UPDATES_P], WIDE, (PART, PART)),
        (WIDE, [f"%d = {UPDATES_P}", f"{FLAT} bitcast(%d)"], FLAT, (PART, PART)),
        (FLAT, [f"%q = {WIDE} bitcast(%p)", UPDATES_Q], WIDE, (PART, PART)),
        # whatever makes other bytes of the result, or of the buffer before, moves all of it
        (WIDE, [f"%d = {UPDATES_P}", f"{WIDE} negate(%d)"], WIDE, (ALL + PART, ALL)),
        (WIDE, [f"%d = {UPDATES_P}", f"{WIDE} copy(%d)"], WIDE, (ALL + PART, ALL)),
        (WIDE, [f"%d = {UPDATES_P}", f"{NARROW} convert(%d)"], NARROW, (ALL + PART, ALL // 2)),
        (NARROW, [f"%q = {WIDE} convert(%p)", UPDATES_Q], WIDE, (ALL // 2 + PART, ALL)),
        (
            NARROW,
            [f"%q = {WIDE} convert(%p)", f"%d = {UPDATES_Q}", f"{NARROW} convert(%d)"],
            NARROW,
            (ALL // 2 + PART, ALL // 2),
        ),
        (WIDE, [f"%q = {WIDE} copy(%p)", UPDATES_Q], WIDE, (ALL + PART, ALL)),
    ],
)
def test_an_update_in_a_fusion_is_in_place_if_nothing_changes_its_buffer(
    buffer, lines, result, moved
):
    *before, root = lines
    inside = [UPDATE.replace(WIDE, buffer).rstrip(), *before, f"ROOT %r = {root}"]
    row = only_row(
        fused(
            "\n  ".join(inside),
            f"  %x = {buffer} parameter(0)\n  %v = f32[1,64]{{1,0}} parameter(1)\n"
            "  %j = s32[] parameter(2)",
            "%x, %v, %j",
            result,
        )
    )
    assert (row.read["hbm"], row.written["hbm"]) == moved


@pytest.mark.parametrize(
    ("says", "moved"),
    [(", output_to_operand_aliasing={{}: (0, {})}", (PART, PART)), ("", (ALL + PART, ALL))],
)
def test_an_update_behind_another_tile_is_in_place_where_hlo_says_so(says, moved):
    """XLA for v7x puts the change of a tile into a fusion of its own, which moves nothing."""
    row = only_row(behind_a_tile(says))
    assert (row.read["hbm"], row.written["hbm"]) == moved


def test_of_two_results_only_the_one_in_place_is_written_in_part():
    inside = f"{UPDATE}  %d = {UPDATES_P}\n  %n = f32[1,64]{{1,0}} negate(%u)\n"
    row = only_row(
        fused(
            f"{inside}  ROOT %r = ({WIDE}, f32[1,64]{{1,0}}) tuple(%d, %n)",
            f"  %x = {WIDE} parameter(0)\n  %v = f32[1,64]{{1,0}} parameter(1)\n"
            "  %j = s32[] parameter(2)",
            "%x, %v, %j",
            f"({WIDE}, f32[1,64]{{1,0}})",
        )
    )
    assert (row.read["hbm"], row.written["hbm"]) == (PART, 2 * PART)


def test_bytes_of_single_instructions():
    inputs = (
        f"{BIG}\n  %r = s32[4]{{0}} parameter(2)\n  %u = f32[1,64]{{1,0}} parameter(3)\n"
        "  %v = f32[4,64]{1,0} parameter(4)\n"
    )
    rows = "f32[4,64]{1,0} gather(%x, %r), offset_dims={1}, slice_sizes={1,64}"
    adding = "f32[1000,64]{1,0} scatter(%x, %r, %v), update_window_dims={1}, to_apply=%add"
    lines = {  # read, written
        "f32[2,64]{1,0} slice(%x), slice={[0:2], [0:64]}": (512, 512),
        rows: (1024 + 16, 1024),
        "f32[1000,64]{1,0} dynamic-update-slice(%x, %u, %i, %i)": (256, 256),
        adding: (2 * 1024 + 16, 1024),
        "f32[64,1000,64]{2,1,0} broadcast(%x), dimensions={1,2}": (256_000, 64 * 256_000),
        "f32[64000]{0} iota(), iota_dimension=0": (0, 256_000),
    }
    kernels = {line: only_row(program(f"{inputs}  ROOT %y = {line}", ADD)) for line in lines}
    moved = {
        line: (row.read.get("hbm", 0), row.written.get("hbm", 0)) for line, row in kernels.items()
    }
    assert moved == lines


def test_asynchronous_pairs_count_once():
    text = program(
        "  %x = f32[1000]{0} parameter(0)\n"
        "  %s = ((f32[1000]{0}), f32[100]{0:S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:100]}\n"
        "  ROOT %d = f32[100]{0:S(1)} slice-done(%s)"
    )
    row = only_row(text)
    assert (row.opcode, dict(row.read), dict(row.written)) == ("slice", {"hbm": 400}, {"vmem": 400})


def test_an_update_that_leaves_for_the_host_counts_what_it_writes():
    """As TPUs offload residuals: an asynchronous update of an array in the host's memory."""
    there, one = "f32[10,64]{1,0:S(5)}", "f32[1,64]{1,0}"
    text = program(
        f"  %x = {there} parameter(0)\n  %u = {one} parameter(1)\n  %i = s32[] parameter(2)\n"
        f"  %s = (({there}, {one}, s32[], s32[]), {there}, u32[]{{:S(2)}})"
        " dynamic-update-slice-start(%x, %u, %i, %i)\n"
        f"  ROOT %d = {there} dynamic-update-slice-done(%s)"
    )
    row = only_row(text)
    assert (dict(row.read), dict(row.written)) == ({"hbm": 256}, {"host": 256})
