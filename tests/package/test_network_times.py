"""Networks whole: collectives by hand, meshes as they lie, exchanges by their laws."""

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

import roofline_helpers as rh
from roofline import network as net
from roofline.network import collectives
from roofline.network import measured as module
from roofline.network.axes import Load, Protocol, axes_of, share_links
from roofline.network.topology import usual_layout
from roofline_helpers import measured

approx = pytest.approx
BY_HAND = (Path(__file__).parents[1] / "data/collectives.txt").read_text("utf-8")
ROWS = [line.split(" | ") for line in BY_HAND.splitlines() if "|" in line]


def parts(moved):
    """What each network does, as the table has it."""
    return "; ".join(
        f"{phase.network} {phase.algorithm} {phase.steps}: {phase.latency * 1e6:.6g} + "
        f"{phase.transfer * 1e6:.6g} µs, {phase.link_bytes / 1e6:.6g} MB"
        for phase in moved.phases
    )


@pytest.mark.parametrize(("asked", "expected"), ROWS)
def test_a_collective_and_a_mesh_by_hand(asked, expected):
    kind, size, chip, shape, *words = asked.split()
    options = {name: json.loads(v) for name, _, v in (w.partition("=") for w in words if "=" in w)}
    own = {name: options.pop(name) for name in ("hops", "algorithm") if name in options}
    place = net.topology(chip, shape if "x" in shape else int(shape), **options)
    if kind == "mesh":
        mesh = place.mesh({f"role {n}": int(of) for n, of in enumerate(size.split(","))})
        laid = [
            " ".join(f"{a.name} {a.kind} {a.size}/{a.stride}" for a in mesh[role]) for role in mesh
        ]
        assert ", ".join(laid) == expected
        return
    names = tuple(word for word in words if "=" not in word)
    moved = net.collective(kind, float(size), place[names] if names else place.axes, **own)
    assert parts(moved) == expected
    assert moved.latency == approx(sum(phase.latency for phase in moved.phases))
    assert moved.transfer == max(phase.transfer for phase in moved.phases)


def test_groups_with_a_stride_share_links():
    [near, far] = net.topology("v5e", "8x16").axes
    four, two = far.outer(4), near.outer(2)  # every fourth chip of a ring, of a line
    three = net.topology("v5p", "4x8x12")["z"][0].outer(3)  # every fourth: a ring of three
    exchanges = {
        net.all_gather(6e6, three): "4: 4 + 80 µs, 8 MB",
        net.all_to_all(8e6, four): "8: 8 + 80 µs, 4 MB",
        net.all_gather(8e6, two): "4: 4 + 320 µs, 16 MB",
        net.permute(2e6, four, hops=2): "8: 8 + 320 µs, 16 MB",
        collectives.send(2e6, four): "4: 4 + 40 µs, 2 MB",  # without other traffic
    }
    assert {parts(moved) for moved in exchanges} == {f"ici ring {t}" for t in exchanges.values()}


def test_between_hosts_the_faster_of_ring_and_tree():
    # 15 steps there and back or 4, of 1 µs; 15/16 of the bytes twice or all of them, at 1 GB/s
    nic = [replace(net.topology("h100", 128)["nic"][0], protocols=(Protocol(1e9, 1e-6),))]
    assert parts(net.all_reduce(16, nic)) == "nic tree 8: 8 + 0.032 µs, 3.2e-05 MB"
    assert parts(net.all_reduce(1e6, nic)) == "nic ring 30: 30 + 1875 µs, 1.875 MB"
    [small, large] = collectives.lines(nic)
    assert (small, large) == (approx((8e-6, 2e-9)), approx((30e-6, 1.875e-9)))


@pytest.mark.parametrize(
    ("to", "nbytes", "peer_rate", "seconds"),
    [
        ("all", 40, 4, (5 + 6 * 3, 40 / 8 + 10 / 2)),
        ("peers", 40, 4, (5 + 6 * 3 + 7, 40 / 8 + 10 / 2)),
        ("peer", 40, 4, (5 + 6 * 3, 40 / 4 + 10 / 2)),
        ("peer", 40, 16, (5 + 6 * 3, 40 / 8 + 10 / 2)),
        ("peer", 100, 4, (5 + 6 * 3, 100 / 8 + 10 / 2)),  # as many as the limit
    ],
)
def test_a_protocol_s_seconds(to, nbytes, peer_rate, seconds):
    options = {"startup": 5, "exchange": 7, "own_rate": 2, "peer_limit": 100}
    protocol = Protocol(rate=8, step=3, peer_rate=peer_rate, **options)
    assert protocol.times(Load("ring", nbytes, 6, own_share=10, to=to)) == seconds


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (
            net.topology("h100", 24),
            "<3 × NVIDIA H100 SXM 8: axis nvlink: switch of 8 over nvlink, 450 GB/s, axis nic: "
            "switch of 3 over nic, 50 GB/s, 2.04 TB, 23.7 PFLOP/s>",
        ),
        (
            net.topology("gb200", 144, ceilings="reached"),
            "<2 × NVIDIA GB200 (one GPU) 72: axis nvlink: switch of 72 over nvlink, 741.6 GB/s, "
            "axis nic: switch of 2 over nic, 50 GB/s, 26.8 TB, 360 PFLOP/s>",
        ),
        (net.topology("l4", 1), "<NVIDIA L4 1: 24.2 GB, 121 TFLOP/s>"),
        (
            net.topology("v6e", "8x16", ceilings="reached")["y"][0].outer(4),
            "<axis y[::4]: ring of 4 over ici, 22.48 GB/s>",  # 0.8991 of 100 GB/s for four rings
        ),
        (
            net.all_reduce(48e6, net.topology("v6e", "4x4", slices=3).axes),
            "<all-reduce: 48 MB, over x (line of 4) × y (line of 4) × dcn (switch of 3), "
            "45 MB on the busiest link, 462 µs (bandwidth-bound)>",
        ),
        (
            net.all_reduce(2, net.topology("v6e", "4x4")["y"]),
            "<all-reduce: 2 B, over y (line of 4), 3 B on the busiest link, 6 µs (latency-bound)>",
        ),
        (
            net.all_to_all(24e6, net.topology("b300", 24).axes),
            "<all-to-all: 24 MB, over nvlink (switch of 8) × nic (switch of 3), "
            "667 kB on the busiest link, 6.67 µs (bandwidth-bound)>",  # of the slowest network
        ),
        (
            net.all_gather(3e6, ()),
            "<all-gather: 3 MB, over one device, 0 B on the busiest link, 0 s (bandwidth-bound)>",
        ),
    ],
)
def test_networks_as_they_are_printed(place, text):
    assert repr(place) == text


def test_two_devices_of_each_chip_of_three_slices():
    place = net.topology("v7x", "2x2x4", slices=3, cores=True)
    assert (place.slices, place.chips, place.members) == (3, 48, 96)
    assert [axis.size for axis in place.axes] == [2, 2, 4, 3, 2]


@pytest.mark.parametrize(
    ("name", "chips", "layout"),
    [
        ("v6e-8", 8, "2x4"),  # chips
        ("v5litepod-32", 32, "4x8"),
        ("TPU v4-8", 4, "2x2x1"),  # two TensorCores a chip
        ("tpu7x-16", 8, "2x2x2"),
        ("v5p-1024", 512, "8x8x8"),
        ("v5p-2048", 1024, "8x8x16"),
        ("v5p-17920", 8960, "16x20x28"),
    ],
)
def test_a_slice_by_its_cloud_s_name(name, chips, layout):
    place = net.topology(name)
    assert (place.chips, "x".join(map(str, place.shape))) == (chips, layout)
    assert usual_layout(place.chip, chips) == layout


def test_parts_of_axes_join_and_share_links():
    x, y, z = net.topology("v5p", "4x8x12").axes
    assert axes_of([z.inner(3), x, z.outer(4)]) == (z, x)
    assert axes_of([z.inner(3), z.outer(2)]) == (z.inner(3), z.outer(2))  # half of it
    assert axes_of([y.inner(1), x]) == (x,)
    for part in (y.inner, y.outer):
        with pytest.raises(rh.BadValue, match=r"must divide its 8, got 3"):
            part(3)
    assert share_links([x, z.inner(3)], [y, z.outer(4)])
    assert not share_links([x, z.inner(3)], [y])
    [xgmi] = net.topology("mi300x", 8).axes
    assert not share_links([xgmi.inner(2)], [xgmi.outer(4)])  # any two have a link of their own
    for twice in ([x, x], [z.inner(6), z.outer(4)]):
        with pytest.raises(rh.BadValue, match="each axis once"):
            axes_of(twice)


@pytest.mark.parametrize(
    ("devices", "copies", "groups"),
    [
        (4, 3, (1, 1)),
        (2, 3, (4, 2)),
        (4, 2, (4, 3)),
        (2, 2, (6, 2)),
        (8, 3, (4, 2)),
        (6, 2, (3, 2)),
    ],
)
def test_distinct_devices_by_every_draw(devices, copies, groups):
    count, top = groups
    places = range(max(devices, count))  # of which each device, and each group, has a row
    draws = [
        {place * devices // len(places) for place in draw}
        for chosen in combinations(range(count), top)
        for draw in product(
            [p for p in places if p * count // len(places) in chosen], repeat=copies
        )
    ]
    mean = sum(map(len, draws)) / len(draws)
    assert net.distinct(devices, copies, groups) == approx(mean)


def test_groups_that_devices_do_not_divide_do_not_count():
    assert net.distinct(3, 2, (4, 2)) == approx(3 * (1 - (2 / 3) ** 2))


# --- laws, invented ones --------------------------------------------------------------------------


def law(chip, start, step=0.0, memory=1.0, dtype="fp16"):
    errors = measured.laws.Errors(0.0, 0.0)
    fit = {"start": start, "compute": 1.0, "memory": memory, "corner": 1.0, "step": step}
    of = {"family": "", "chip": chip, "dtype": dtype, "library": "", "shapes": 0, "left_out": 0}
    return measured.laws.Law(**of, **fit, law=errors, roof=errors, nearest=errors)


def test_a_collective_takes_its_law_s_start_steps_and_bytes(monkeypatch):
    laws = [law("h100", 3e-6, 2e-6, 0.5), law("h100", 1.0, dtype="bf16"), law("b300", 1e-6)]
    monkeypatch.setattr(module, "laws_of", lambda family: laws if family == "all-reduce" else [])
    exchange = net.all_reduce(9e6, net.topology("h100", 6, ceilings="reached").fast)
    by_law = module.by_law(exchange, rh.chip("h100"))
    assert parts(by_law) == "nvlink ring 10: 13 + 66.6667 µs, 15 MB"  # 5 others; half of 450 GB/s
    assert module.law_of_exchange("all-reduce", rh.chip("gb300")) == laws[2]
    assert module.by_law(exchange, rh.chip("h200")) == exchange


@pytest.mark.parametrize(
    ("chip", "devices", "seconds"),
    [
        ("h100", 8, 3),
        ("h100", 9, None),
        ("h100", 1, None),
        ("b300", 2, 2),
        ("gb200", 4, 7),
        ("gb200", 5, 9.04),  # no longer a host: copies over NVLink, with a step for each other GPU
        ("gb200", 64, 9.63),
        ("gb200", 65, None),
        ("gb300", 4, 2),  # a B300 in a host, a GB200 in a domain
        ("gb300", 5, 9.04),
        ("v6e", 4, None),
    ],
)
def test_the_fastest_way_to_experts_that_was_measured(monkeypatch, chip, devices, seconds):
    laws = {
        "low latency": [law("h100", 3, step=0.5), law("b300", 5), law("gb200", 7, step=0.5)],
        "throughput": [law("h100", 4), law("b300", 2), law("gb200", 11)],
        "copies over NVLink": [law("gb200", 9, step=0.01)],
    }
    monkeypatch.setattr(module, "laws_of", lambda family: laws[family.removeprefix("combine, ")])
    took = module.expert_exchange("combine", rh.chip(chip), devices, 0, 7168, 8)
    assert took == (None if seconds is None else approx(seconds))


@pytest.mark.parametrize(("op", "width"), [("dispatch", 0.5), ("combine", 2)])
@pytest.mark.parametrize(
    ("mode", "copies"),
    # 300 tokens to six experts on four devices, a quarter of them at home; or to each device once
    [("low latency", 300 * 6 * 3 / 4), ("throughput", 300 * 4 * (1 - 0.75**6) * 3 / 4)],
)
def test_bytes_to_experts(monkeypatch, op, width, mode, copies):
    laws = {f"{op}, {mode}": [law("h100", 1e-6)]}
    monkeypatch.setattr(module, "laws_of", lambda family: laws.get(family, []))
    took = module.expert_exchange(op, rh.chip("h100"), 4, 300, 1000, 6, 0.5)
    assert took == approx(1e-6 + copies * 1000 * width / 450e9)


def test_measured_exchanges_of_about_a_size(monkeypatch):
    columns = {
        "op": ["all_reduce", "all_reduce", "all_gather", "all_reduce", "all_reduce"],
        "gpus": [4, 4, 4, 8, 4],
        "bytes": [4e6, 1e6, 2e6, 2e6, 16e6],
        "seconds": [90e-6, 10e-6, 1e-6, 1e-6, 200e-6],
    }
    rows = {name: np.array(values) for name, values in columns.items()}
    own = rows | {"seconds": 2 * rows["seconds"]}
    tables = {("collective", "fp16"): rows, ("custom_all_reduce", "bf16"): own}
    monkeypatch.setattr(module, "group", lambda family, chip, dtype: tables[family, dtype])
    # of 1 MB in 10 µs three quarters are sent twice; of 2 MB in 1 µs once
    assert module.best_exchange("all-reduce", 4, "h100") == approx(0.15e12)
    assert module.best_exchange("all-gather", 4, "h100") == approx(1.5e12)
    assert module.best_exchange("all-gather", 8, "h100") is None
    assert module.exchange_beside("all-reduce", 2e6, 4, "h100", 5e-6) == (
        "measured all-reduces of 2 MB over 4 GPUs take 30 µs by NCCL, 60 µs by a serving library's "
        "own kernel; this one moves bytes for 5 µs"
    )  # the geometric mean of 10 and 90 µs
    sizes = (0.9e6, 1e6, 16e6, 17e6)
    told = [module.exchange_beside("all-reduce", n, 4, "h100", 5e-6) is not None for n in sizes]
    assert told == [False, True, True, False]
