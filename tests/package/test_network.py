"""Topologies and collectives: hand counts, identities, and what is refused."""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import roofline_helpers as rh
from roofline import network as net
from roofline.network.axes import Protocol
from roofline.network.collectives import Transfer, lanes_of

# --- topologies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("v6e-0", "v6e-1"),
        ("v5p-3", "v5p-2, v5p-4"),
        ("v6e-513", "v6e-256"),
        ("v5p-12288", "v5p-8192, v5p-17920"),  # two TensorCores a chip: a pod has 8,960
        ("v7x-16384", "v7x-8192, v7x-18432"),
    ],
)
def test_the_nearest_slices_are_such_as_a_pod_holds(name, near):
    with pytest.raises(rh.BadValue, match=f"Nearest: {near}[.]"):
        net.topology(name)


def test_a_mesh_of_named_axes_and_links_of_a_square():
    pod = net.topology("v5p", "8x8x8")
    named = pod.mesh({"fsdp": ("x", "y"), "tensor": "z"})
    assert [axis.name for axis in named["fsdp"]] == ["x", "y"]
    # a square of 2 × 2, a cycle of four: with two links of each chip, where a row has one
    split = pod.mesh({"data": 128, "tensor": 4})
    [row] = pod["z"]
    square, line = (net.all_gather(1e9, over) for over in (split["tensor"], row.inner(4)))
    assert (square.link_bytes, line.link_bytes) == (0.375e9, 0.75e9)


def test_parts_of_an_axis_share_its_links():
    [row] = net.topology("v5e", "8x8")["x"]
    near, far = row.inner(2), row.outer(4).outer(2)  # the next chip, and the fourth one after it
    assert (near.lanes, far.lanes) == (1, 1 / 4)
    assert net.all_gather(16e9, (far, near)).link_bytes == 16e9 * 3 / 4  # over one lane, not 1.25


@pytest.mark.parametrize("active", [1, 2, 5])
def test_a_token_has_to_reach_each_host_and_device_once(active):
    count, inside = 2, 4  # a token starts on device 0 of host 0: all ways to choose its experts
    hosts = net.topology("h100", inside, slices=count)
    crossed = received = 0
    for experts in product(product(range(count), range(inside)), repeat=active):
        own, other = ({at for host, at in experts if host == number} for number in range(count))
        crossed += bool(other)
        received += len(own - {0}) + max(0, len(other) - 1)
    choices = (count * inside) ** active
    fast, slow = net.collectives.copies(1e6, active, hosts.axes)[::-1]
    assert slow.link_bytes == pytest.approx(1e6 * crossed / choices)
    assert fast.link_bytes == pytest.approx(1e6 * received / choices)
    sent = net.all_to_all(1e6 * active * count * inside, hosts.axes)
    for least, planned in zip((fast, slow), sent.phases, strict=True):
        assert least.link_bytes <= planned.link_bytes * (1 + 1e-9)


# --- collectives, by hand -------------------------------------------------------------------------


def axis(chip, shape, name, **options):
    return net.topology(chip, shape, **options)[name]


@pytest.mark.parametrize(("chip", "shape"), [("v5p", "8x8x8"), ("v5e", "16x16"), ("h100", 8)])
def test_a_ring_sends_what_the_work_of_an_all_reduce_counts(chip, shape):
    over = net.topology(chip, shape).fast[:1]
    sent = net.collectives.all_reduce(2**26, over, algorithm="ring").link_bytes * over[0].lanes
    assert rh.work.all_reduce(2**25, over[0].size, "bf16").traffic["network"] == sent


@pytest.mark.parametrize("hosts", [2, 3, 5, 6, 8, 9])
def test_a_tree_reaches_all_hosts_when_each_that_knows_tells_another(hosts):
    known, rounds = 1, 0
    while known < hosts:
        known, rounds = min(2 * known, hosts), rounds + 1
    summed = net.all_reduce(8000, axis("h100", 8 * hosts, "nic"), algorithm="tree")
    assert sum(phase.steps for phase in summed.phases) == 2 * rounds  # up the tree and down


@pytest.mark.parametrize("devices", range(2, 10))
@pytest.mark.parametrize("kind", ["line", "ring"])
def test_the_busiest_link_of_an_all_to_all_by_every_pair(kind, devices):
    links = dict.fromkeys(product(range(devices), (1, -1)), 0.0)  # from each device, both ways
    for start, end in product(range(devices), repeat=2):
        ahead = (end - start) % devices
        up, down = (ahead, devices - ahead) if kind == "ring" else (end - start, start - end)
        for way, hops, back in ((1, up, down), (-1, down, up)):
            share = 0.0 if hops <= 0 or (kind == "ring" and hops > back) else 1.0
            share /= 2 if kind == "ring" and up == down else 1  # as far both ways: half each
            for hop in range(hops if share else 0):
                links[(start + way * hop) % devices, way] += share
    one = replace(axis("v5p", "4x4x4", "x")[0], kind=kind, size=devices)
    moved = net.all_to_all(devices**2, one)  # a byte from each device to each
    assert moved.link_bytes == pytest.approx(max(links.values()))


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        (lambda over: net.all_gather(8000, over), 1000),  # its shard is copied
        (lambda over: net.all_reduce(8000, over, algorithm="ring"), 2000),  # added, then copied
        (lambda over: net.all_reduce(8000, over, algorithm="one-shot"), 64000),  # eight arrays
        (lambda over: net.all_reduce(8000, over, algorithm="two-shot"), 9000),  # eight eighths, one
        (lambda over: net.all_to_all(8000, over), 125),  # what it would send itself
    ],
)
def test_what_a_device_adds_and_copies_itself_takes_its_memory_s_time(asked, own):
    links = Protocol(math.inf, own_rate=1.0)  # a byte a second, and no time on the links
    one = replace(axis("h100", 8, "nvlink")[0], protocols=(links,))
    assert asked(one).seconds == own


# --- identities -----------------------------------------------------------------------------------

SLICES = [("v5e", "4x4"), ("v5e", "16x16"), ("v5p", "4x4x8"), ("v7x", "2x2x4"), ("h200", 8)]
some_slice = st.sampled_from(SLICES)
some_bytes = st.floats(1, 1e12)


@given(where=some_slice, nbytes=some_bytes, size=st.sampled_from([2, 4, 8, 16, 32]))
def test_a_group_with_fewer_links_is_never_faster(where, nbytes, size):
    slice_ = net.topology(*where)
    unwrapped = replace(slice_, axes=tuple(replace(axis, kind="line") for axis in slice_.axes))
    if slice_.chips % size == 0:
        mesh = {"rest": slice_.chips // size, "group": size}
        for role in mesh:
            many, few = (topology.mesh(mesh)[role] for topology in (slice_, unwrapped))
            for kind in ("all-gather", "reduce-scatter", "all-reduce", "all-to-all"):
                least = net.collective(kind, nbytes, many).transfer
                assert net.collective(kind, nbytes, few).transfer >= least * (1 - 1e-9)


@given(
    roles=st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=4),
    sizes=st.lists(st.sampled_from([2, 4]), min_size=3, max_size=3),
    nbytes=st.lists(st.floats(1e6, 1e10), min_size=4, max_size=4),
)
def test_links_are_busy_at_least_as_long_as_the_best_schedule_needs(roles, sizes, nbytes):
    cube = net.topology("v5p", "8x8x8")
    mesh = cube.mesh({"a": 512 // math.prod(sizes[1:]), "b": sizes[1], "c": sizes[2]})
    groups = [[axis for role in sorted(group) for axis in mesh[role]] for group in roles]
    gathers = [net.all_gather(v, over) for v, over in zip(nbytes, groups, strict=False)]
    busy = net.collectives.least_busy(Transfer("", "", 1, gather) for gather in gathers)
    phases = [gather.phases[0] for gather in gathers]
    # the linear program: how long each phase has each axis, so that all end soonest
    lanes = [lanes_of(phase.axes) for phase in phases]
    pairs = [(i, name) for i, links in enumerate(lanes) for name in links]
    turns = [[-1.0] + [float(name == axis) for _, name in pairs] for axis in "xyz"]
    moved = [[0.0] + [-lanes[i][n] * (i == j) for i, n in pairs] for j in range(len(lanes))]
    longest = max(phase.transfer for phase in phases)
    amounts = [-p.transfer / longest * sum(r.values()) for p, r in zip(phases, lanes, strict=True)]
    best = longest * linprog([1.0] + [0.0] * len(pairs), turns + moved, [0.0] * 3 + amounts).fun
    assert longest <= busy * (1 + 1e-9)
    assert busy <= best * (1 + 1e-6)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (lambda: net.topology("t4"), rh.UnknownName, "T4.*v4"),
        (lambda: net.topology("l4", 1, slices=2), rh.UnknownName, "L4 has no links"),
        (lambda: net.topology("v5e", "4x4x4"), rh.BadValue, "16x16.*4x4x4"),
        (lambda: net.topology("mi300x", 16), rh.BadValue, "8 chips"),
        (lambda: net.topology("h100", 100), rh.BadValue, "13 hosts.*96, 104"),
        (lambda: net.topology("h100", 9), rh.BadValue, "2 hosts.*8, 10$"),  # twice five
        (lambda: net.topology("h20", 16), rh.BadValue, "8 chips.*links.nic.rate"),
        (lambda: net.all_gather(0, axis("v5e", "4x4", "x")), rh.BadValue, "nbytes.*0"),
        (lambda: net.permute(1, axis("v5e", "4x4", "x"), hops=4), rh.BadValue, "under.* 4, got 4"),
        (lambda: net.all_gather(1, "x"), rh.BadType, "over.*'x'"),
        (lambda: net.topology("v5e").mesh({"data": "x", "tensor": 16}), rh.BadType, "tensor"),
        (lambda: net.collective("gather", 1, ()), rh.UnknownName, "Nearest: 'all-gather'"),
    ],
)
def test_what_no_network_is_refused(asked, error, words):
    with pytest.raises(error, match=words):
        asked()


@pytest.mark.parametrize("ceilings", net.CEILINGS)
def test_the_least_of_its_lines_is_an_all_reduce_s_time(ceilings):
    for chip, shape in (("h100", 8), ("b200", 8), ("v5p", "4x4x4"), ("v6e", "2x4"), ("mi300x", 8)):
        over = net.topology(chip, shape, ceilings=ceilings).fast
        lines = net.collectives.lines(over)
        slopes = [slope for _, slope in lines]  # who starts later sends faster, or is left out
        assert slopes == sorted(set(slopes), reverse=True)
        for nbytes in (1, 4096, 10**6, 3 * 10**7, 10**9):
            least = min(start + nbytes * slope for start, slope in lines)
            seconds = net.all_reduce(nbytes, over, algorithm="custom").seconds
            assert least == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("chip", ["a100-80gb", "h100", "h200", "b200", "b300", "gb200"])
def test_a_server_s_small_all_reduces_take_as_long_as_they_were_measured_to(chip):
    rows = rh.measured.table("custom_all_reduce")
    rows = rows[(rows.chip == chip) & (rows.bytes <= 2**24)]
    errors = [
        net.all_reduce(row.bytes, host.fast, algorithm="custom").seconds / row.seconds - 1
        for gpus, timed in rows.groupby("gpus")
        for host in [net.topology(chip, int(gpus), ceilings="reached")]
        for row in timed.itertuples()
    ]
    assert len(errors) == len(rows) > 30
    assert max(map(abs, errors)) < {"a100-80gb": 0.26, "b300": 0.13}.get(chip, 0.095)
