"""Exchanges between devices: groups, bytes, axes."""

from dataclasses import replace

import pytest
from hlo_texts import ADD, only_row, program

import roofline_helpers as rh
from roofline import xla
from roofline.xla.collectives import CollectiveOp, axes_of_mesh, mesh_groups, rings, whole
from roofline.xla.kernel import CompiledKernel, Links, grouped, kernel_of, timeline_of
from roofline.xla.ledger import with_axes
from roofline.xla.roofs import DeviceRoofs
from roofline_helpers.roofline import Roofline


def exchange(line, *others):
    """Return the exchange of a program of one instruction on 64 numbers."""
    text = program(f"  %x = f32[64]{{0}} parameter(0)\n  ROOT %y = {line}", ADD, *others)
    collective = only_row(text).collective
    assert collective is not None
    return collective


def test_groups_of_devices():
    groups = {
        "replica_groups={{0,1},{2,3}}": {(0, 1), (2, 3)},
        "replica_groups=[2,2]<=[4]": {(0, 1), (2, 3)},
        "replica_groups=[2,2]<=[2,2]T(1,0)": {(0, 2), (1, 3)},
        "replica_groups=mesh['a'=1,'b'=2,'c'=2], device_ids=([2,2]T(1,0)) {'b'}": {(0, 1), (2, 3)},
        "replica_groups=mesh['b'=2,'c'=2] {'b'}": {(0, 2), (1, 3)},
    }
    exchanges = {
        attribute: exchange(f"f32[64]{{0}} all-reduce(%x), {attribute}, to_apply=%add")
        for attribute in groups
    }
    assert {
        attribute: {tuple(sorted(group)) for group in collective.groups}
        for attribute, collective in exchanges.items()
    } == groups
    assert {
        (collective.kind, collective.group_size, collective.link_bytes)
        for collective in exchanges.values()
    } == {("all-reduce", 2, 256)}


def test_axes_of_a_mesh_are_named_by_the_groups_that_they_make():
    axes = axes_of_mesh({"data": 2, "model": 2, "one": 1})
    named = {
        "{{0,1},{2,3}}": "model",
        "{{2,0},{3,1}}": "data",
        "{{0,1,2,3}}": "data, model",
        "{{0,3},{1,2}}": None,
    }
    line = "f32[64]{0} all-reduce(%x), replica_groups=GROUPS, to_apply=%add"
    rows = {
        groups: xla.Row("y", "all-reduce", collective=exchange(line.replace("GROUPS", groups)))
        for groups in named
    }
    assert {groups: with_axes(row, axes).collective.axis for groups, row in rows.items()} == named
    assert with_axes(xla.Row("y", "add"), axes).collective is None
    assert axes_of_mesh({}) == {}


def test_what_a_ring_of_four_sends():
    ring = "replica_groups={{0,1,2,3}}"
    sent = {
        f"f32[64]{{0}} all-reduce(%x), to_apply=%add, {ring}": 2 * 0.75 * 256,
        f"f32[256]{{0}} all-gather(%x), dimensions={{0}}, {ring}": 0.75 * 1024,
        f"f32[16]{{0}} reduce-scatter(%x), dimensions={{0}}, to_apply=%add, {ring}": 0.75 * 256,
        f"f32[64]{{0}} all-to-all(%x), dimensions={{0}}, {ring}": 0.75 * 256,
        "f32[64]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}": 256,
        # onto itself: nothing travels, and where some do, those count
        "f32[64]{0} collective-permute(%x), source_target_pairs={{0,0},{1,1}}": 0,
        "f32[64]{0} collective-permute(%x), source_target_pairs={{0,0},{1,2},{2,1}}": 256,
        # in the type that travels: sums in the wider one, all else in the narrower one
        f"f64[64]{{0}} all-reduce(%x), to_apply=%add, {ring}": 2 * 0.75 * 512,
        f"bf16[64]{{0}} all-reduce(%x), to_apply=%add, {ring}": 2 * 0.75 * 256,
        f"f64[16]{{0}} reduce-scatter(%x), dimensions={{0}}, to_apply=%add, {ring}": 0.75 * 512,
        f"f64[256]{{0}} all-gather(%x), dimensions={{0}}, {ring}": 0.75 * 1024,
        f"bf16[256]{{0}} all-gather(%x), dimensions={{0}}, {ring}": 0.75 * 512,
    }
    assert {line: exchange(line).link_bytes for line in sent} == sent


PART = "  %z = f32[] constant(0)\n  %p = f32[] reduce(%x, %z), dimensions={0}, to_apply=%add\n"
SUM = "all-reduce(%p), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add"
SCALAR = {
    "at once": f"{PART}  ROOT %y = f32[] {SUM}",
    "with a start and a wait": (
        f"{PART}  %s = f32[] {SUM.replace('-reduce', '-reduce-start')}\n"
        "  ROOT %y = f32[] all-reduce-done(%s)"
    ),
    "several": (
        f"{PART}  %y = (f32[], f32[]) {SUM.replace('(%p)', '(%p, %p)')}\n"
        "  ROOT %a = f32[] get-tuple-element(%y), index=0"
    ),
}


@pytest.mark.parametrize("platform", ["tpu", "gpu", "cpu"])
@pytest.mark.parametrize("body", SCALAR.values(), ids=SCALAR)
def test_a_sum_of_one_number_is_an_exchange_with_a_latency(body, platform):
    """As of every global norm, and of a loss that is summed over devices."""
    rows = xla.kernels(program(f"  %x = f32[64]{{0}} parameter(0)\n{body}", ADD), platform).rows
    [row] = [row for row in rows if row.collective is not None]
    assert (row.collective.kind, row.collective.group_size, row.bytes) == ("all-reduce", 8, 0)
    for mesh in ({"x": 8}, {}):  # an executable of another process has no mesh
        placed = with_axes(row, axes_of_mesh(mesh))
        v6e = rh.chip("v6e")
        kernel = kernel_of(placed, DeviceRoofs(v6e.per_device()), Links(v6e, "", mesh, 8))
        assert kernel.roof_seconds > 7 * 0.5e-6  # seven steps, each a µs or so
        assert kernel.bound == "network"


def shift(*pairs):
    listed = ",".join(f"{{{source},{target}}}" for source, target in pairs)
    return exchange(f"f32[64]{{0}} collective-permute(%x), source_target_pairs={{{listed}}}")


def test_permutes_in_two_directions_use_different_links():
    roof = rh.chip("v5e").roofline("bf16")
    ahead, back = shift((0, 1), (1, 2), (2, 3), (3, 0)), shift((1, 0), (2, 1), (3, 2), (0, 3))
    assert (ahead.hops, back.hops) == (1, -1)
    for pair, lanes, seconds in (((ahead, back), {"+", "-"}, 1e-3), ((ahead, ahead), {"+"}, 2e-3)):
        rows = [xla.Row(f"p{n}", collective=op, overlaps=True) for n, op in enumerate(pair)]
        rows[0] = replace(rows[0], behind=1)  # it is awaited after the second has begun
        timeline = timeline_of([CompiledKernel(row, roof, link_seconds=1e-3) for row in rows])
        assert set(timeline.busy) == lanes
        assert sum(timeline.exposed) == pytest.approx(seconds)  # nothing hides them


def test_a_sum_of_which_each_keeps_a_part_is_a_reduce_scatter():
    inner = (
        "%inner (p: f32[64]) -> f32[32] {\n  %p = f32[64]{0} parameter(0)\n"
        "  %r = f32[64]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add\n"
        "  %i = s32[] constant(0)\n"
        "  ROOT %d = f32[32]{0} dynamic-slice(%r, %i), dynamic_slice_sizes={32}\n}"
    )
    collective = exchange("f32[32]{0} fusion(%x), kind=kCustom, calls=%inner", inner)
    assert (collective.kind, collective.bytes_in, collective.bytes_out) == (
        "reduce-scatter",
        256,
        128,
    )
    assert collective.link_bytes == 128


def summing_loop(config=""):
    """Return a program of a loop that sums over devices in its condition and in its body."""
    state = "(s32[], f32[64]{0})"
    taken = (
        f"  %t = {state} parameter(0)\n  %i = s32[] get-tuple-element(%t), index=0\n"
        f"  %x = f32[64]{{0}} get-tuple-element(%t), index=1\n{PART}"
    )
    return program(
        f"  %x = f32[64]{{0}} parameter(0)\n  %i = s32[] constant(0)\n"
        f"  %t = {state} tuple(%i, %x)\n"
        f"  %w = {state} while(%t), condition=%cond, body=%body{config}\n"
        "  ROOT %y = f32[64]{0} get-tuple-element(%w), index=1",
        ADD,
        f"%cond (t: {state}) -> pred[] {{\n{taken}  %asked = f32[] {SUM}\n"
        "  ROOT %l = pred[] compare(%asked, %z), direction=LT\n}",
        f"%body (t: {state}) -> {state} {{\n{taken}  %summed = f32[] {SUM}\n"
        "  %d = f32[64]{0} broadcast(%summed), dimensions={}\n"
        f"  %m = f32[64]{{0}} divide(%x, %d)\n  ROOT %r = {state} tuple(%i, %m)\n}}",
    )


def test_a_sum_in_a_loop_or_in_its_condition_counts_in_each_turn():
    ledger = xla.kernels(summing_loop(', backend_config={"known_trip_count":{"n":"9"}}'))
    launched = {row.name: row.launches for row in ledger.rows if row.collective is not None}
    assert launched == {"asked": 10, "summed": 9}
    unknown = [row for row in xla.kernels(summing_loop()).rows if row.collective is not None]
    assert [row.loop for row in unknown] == ["w", "w"]  # whose turns are said to be unknown


@pytest.mark.parametrize(
    ("pairs", "groups", "hops"),
    [
        (((4, 6), (6, 8), (8, 4), (1, 3), (3, 1)), ((1, 3), (4, 6, 8)), 1),
        (((0, 3), (3, 6), (6, 9), (9, 12), (12, 0)), ((0, 3, 6, 9, 12),), 1),
        (((3, 0), (6, 3), (9, 6), (12, 9), (0, 12)), ((0, 3, 6, 9, 12),), -1),
        (((0, 6), (6, 12), (12, 3), (3, 9), (9, 0)), ((0, 3, 6, 9, 12),), 2),
        (((0, 9), (9, 3), (3, 12), (12, 6), (6, 0)), ((0, 3, 6, 9, 12),), -2),
        (((0, 2), (2, 1), (1, 3)), ((0, 1, 2, 3),), 2),  # the farthest: others go back by one
        (((5, 5), (2, 2)), ((2,), (5,)), 0),
        (((5, 5), (2, 7)), ((2, 7),), 1),
    ],
)
def test_rings_of_a_permute(pairs, groups, hops):
    assert rings(pairs) == (groups, hops)


def test_groups_along_axes_of_a_mesh():
    mesh = {"a": 2, "b": 3, "c": 4}
    assert mesh_groups(mesh, ["b"])[:2] == ((0, 4, 8), (1, 5, 9))
    assert mesh_groups(mesh, ["a", "c"])[1] == (4, 5, 6, 7, 16, 17, 18, 19)
    assert mesh_groups({"a": 2, "b": 3}, ["b"], [5, 4, 3, 2, 1, 0]) == ((5, 4, 3), (2, 1, 0))
    assert mesh_groups({"a": 2}, ["a"], [1, 2, 3]) is None
    assert mesh_groups({"a": 2}, []) is None


@pytest.mark.parametrize(
    ("windowed", "launches", "sides"),
    [("all-gather", 9, (100, 400, 2)), ("reduce-scatter", 3, (400, 100, 1))],
)
def test_steps_of_a_windowed_exchange_are_one(windowed, launches, sides):
    groups = ((0, 1, 2, 3),)
    step = CollectiveOp(
        *("p", "collective-permute", 100, 100, 4, groups, launches, "x", "7", -1, windowed, "dot")
    )
    into, out, times = sides  # nine steps of three or four are two exchanges
    assert step.key == (windowed, 100, groups, "dot")
    assert whole([step]) == CollectiveOp(
        *("p", windowed, into, out, 4, groups, times, "x", "7", 1, windowed, "dot")
    )


@pytest.mark.parametrize(
    ("said", "kind", "out"),
    [
        ("ALL_REDUCE", "all-reduce", 240),
        ("ALL_GATHER", "all-gather", 720),
        ("REDUCE_SCATTER", "reduce-scatter", 80),
        ("ALL_TO_ALL", "all-to-all", 240),
        ("ONE_TO_ONE", "collective-permute", 240),
    ],
)
def test_an_exchange_between_slices_goes_through_hosts(said, kind, out):
    notes = (
        'is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="k",'
        f'_xla_megascale_transfer_type="{said}",_xla_megascale_target="{{0,1,2}}x{{0:3}}"}}'
    )
    text = program(
        f"""  x = f32[6,10] parameter(0)
  t = token[] after-all()
  s = (f32[6,10], u32[], token[]) send(x, t), channel_id=1, {notes}
  r = (f32[6,10], u32[], token[]) recv(t), channel_id=2, {notes}
  n = f32[6,10] negate(x)
  e = f32[6,10] sine(n)
  d = (f32[6,10], token[]) recv-done(r)
  ROOT y = f32[6,10] get-tuple-element(d), index=0"""
    ).replace("HloModule test", "HloModule test, num_partitions=4")
    sent, received, *_ = xla.kernels(text).rows
    groups = tuple((n, n + 4, n + 8) for n in range(4))
    step = {"step_of": " (1)"} if kind == "collective-permute" else {}
    assert sent.collective == CollectiveOp("s", kind, 240, out, 3, groups, **step)
    assert (sent.behind, sent.overlaps, sent.bytes) == (3, True, 240)
    assert (received.collective, received.overlaps, received.written_bytes) == (None, True, 240)


def test_exchanges_wait_for_their_links_and_kernels_for_exchanges():
    """Two of 5 s and 2 s on one axis beside 3 s of kernels; one of 4 s that hides nothing."""

    def kernel(seconds, axis="", behind=None):
        op = CollectiveOp("e", "all-gather", 1, 2, 2, axis=axis) if axis else None
        row = xla.Row(
            read={"hbm": 0 if axis else seconds},
            collective=op,
            overlaps=behind is not None,
            behind=behind or 0,
        )
        roof = Roofline(1.0, 1.0, network=1.0)
        return CompiledKernel(row, roof, link_seconds=float(seconds) if axis else None)

    timeline = timeline_of(
        [
            kernel(3),
            kernel(5, "x", behind=3),  # from 3 to 8
            kernel(2, "x", behind=1),  # from 8 to 10: awaited at 4, when kernels have ended
            kernel(1),
            kernel(1),
            kernel(4, "y"),  # from 11 to 15
            kernel(7, behind=1),  # a copy
            kernel(2, "y", behind=0),  # from 15 to 17, awaited at once
        ]
    )
    assert timeline.exposed == (0, 4, 2, 0, 0, 4, 0, 2)
    assert timeline.busy == {"x+": 7, "x-": 7, "y+": 6, "y-": 6}


def fused_step(name, inside, result):
    """Return a fusion that starts, carries on or awaits an exchange beside its own work."""
    return (
        f"%{name} (p: f32[64]) -> f32[32] {{\n  p = f32[64] parameter(0)\n"
        f"  w = f32[32] parameter(1)\n{inside}  n = f32[32] negate(w)\n  ROOT r = {result}\n}}"
    )


def test_a_chain_of_fusions_moves_what_it_passes_on_once():
    held = "(f32[64], f32[32])"
    sums = "  s = f32[64] all-reduce(p), replica_groups={{0,1}}, channel_id=9, to_apply=%add\n"
    call = '  c = f32[64] custom-call(s), custom_call_target="AsyncCollective{}"\n'
    passed = "output_to_operand_aliasing={{0}: (0, {})}"
    text = program(
        f"""  x = f32[64] parameter(0)
  w = f32[32] parameter(1)
  a = {held} fusion(x, w), kind=kCustom, calls=%first, {passed}
  ax = f32[64] get-tuple-element(a), index=0
  aw = f32[32] get-tuple-element(a), index=1
  b = {held} fusion(ax, aw), kind=kCustom, calls=%middle, {passed}
  bx = f32[64] get-tuple-element(b), index=0
  bw = f32[32] get-tuple-element(b), index=1
  y = f32[32] sine(bw)
  ROOT z = f32[64] fusion(bx, y), kind=kCustom, calls=%last""",
        ADD,
        fused_step("first", sums + call.format("Start"), f"{held} tuple(c, n)"),
        fused_step("middle", sums, f"{held} tuple(s, n)"),
        fused_step("last", sums + call.format("Done"), "f32[64] bitcast(c)"),
    )
    rows = xla.kernels(text).rows
    assert [
        (r.name, r.read_bytes, r.written_bytes, r.behind, r.overlaps, bool(r.collective))
        for r in rows
    ] == [
        ("a", 256 + 128, 128, 2, True, True),
        ("b", 128, 128, 0, False, False),
        ("y", 128, 128, 0, False, False),
    ]


def test_a_byte_on_a_link_costs_as_much_as_ten_of_memory():
    """A sum of 64 numbers over two devices is dearer than a sine of 200."""
    summed = (
        "%summed (p: f32[64]) -> f32[64] {\n  p = f32[64] parameter(0)\n"
        "  ROOT s = f32[64] all-reduce(p), replica_groups={{0,1}}, to_apply=%add\n}"
    )
    taken = (
        "%taken (p: f32[200]) -> f32[64] {\n  p = f32[200] parameter(0)\n  t = f32[200] sine(p)\n"
        "  ROOT c = f32[64] bitcast(t)\n}"
    )
    text = (
        "  i = s32[] parameter(0)\n  x = f32[64] parameter(1)\n  w = f32[200] parameter(2)\n"
        "  ROOT y = f32[64] conditional(i, x, w), branch_computations={%summed, %taken}"
    )
    rows = xla.kernels(program(text, ADD, summed, taken)).rows
    assert [(row.name, row.launches, row.dearest) for row in rows] == [("s", 0, 1), ("t", 1, 0)]


RING = 15 / 16 * 8e8 / 100e9 + 8e-6  # both ways at 50 GB/s, 1 µs to each of the eight farthest


@pytest.mark.parametrize(
    ("kind", "into", "out", "hops", "axis", "seconds"),
    [
        ("all-gather", 5 * 10**7, 8 * 10**8, 1, "y", RING),
        ("collective-broadcast", 5 * 10**7, 8 * 10**8, 1, "y", RING),
        ("reduce-scatter", 8 * 10**8, 5 * 10**7, 1, "x", RING),
        ("all-reduce", 8 * 10**8, 8 * 10**8, 1, "x", 2 * RING),
        ("collective-permute", 10**9, 10**9, 1, "x", 0.02 + 1e-6),
        ("collective-permute", 10**9, 10**9, -3, "x", 3 * (0.02 + 1e-6)),
        ("collective-permute", 10**9, 10**9, 0, "y", 0.02 + 1e-6),
        ("collective-permute", 10**9, 10**9, 3, "x, y", 0.02 + 1e-6),  # neighbours on a snake
        ("all-gather", 5 * 10**7, 8 * 10**8, 1, "x, z", None),
        ("all-gather", 5 * 10**7, 8 * 10**8, 1, None, None),
    ],
)
def test_least_seconds_on_a_slice_of_v5e(kind, into, out, hops, axis, seconds):
    links = Links(rh.chip("v5e"), "16x16", {"x": 16, "y": 16}, 256)
    found = links.seconds(CollectiveOp("e", kind, into, out, 16, axis=axis, hops=hops))
    assert found == (seconds and pytest.approx(seconds))


def test_groups_of_kernels_begin_with_the_longest():
    """By the roof or by cycles, whichever is longer; then by bytes."""
    device = DeviceRoofs(rh.chip("v5e"))  # 819 GB/s, and 1.5 cycles a ns

    def kernel(role, read, cycles=None, launches=1):
        row = xla.Row(role=role, read={"hbm": read}, cycles=cycles, launches=launches)
        return kernel_of(row, device)

    kernels = [
        kernel("first", 819_000),
        kernel("bytes", 2 * 819_000, launches=3),
        kernel("cycles", 81_000, cycles=2000, launches=3),
        kernel("few bytes", 81_000, cycles=3000),
        kernel("more bytes", 819_000, cycles=3000),
        kernel("first", 2 * 819_000, launches=2),
    ]
    groups = grouped(kernels, "role")
    assert list(groups) == ["bytes", "first", "cycles", "more bytes", "few bytes"]
    assert groups["first"] == [kernels[0], kernels[-1]]
