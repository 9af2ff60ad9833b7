"""Conclusions of the chapter sharding-a-layer: each test would refute one."""

import pytest

import roofline
from roofline.diagnosis import ladder


def test_a_layer_is_split_over_fewer_chips_where_peaks_outgrew_links() -> None:
    width = 28672
    training = roofline.training
    shapes = {"v5e": "16x16", "v5p": "4x4x4", "v6e": "16x16", "v7x": "4x4x4", "h100": 8, "h200": 8}
    places = {chip: roofline.network.topology(chip, shape) for chip, shape in shapes.items()}
    near = 1.05 * width  # all-reduces may take 5% longer than matmuls
    groups = [training.largest_tensor(place, near) for place in places.values()]
    assert groups == [16, 32, 4, 2, 8, 8]
    pod = places["v5e"]
    assert 15 < training.most_tensor(pod, pod["x"], width) < 16  # 16 are just above the limit
    tokens = {chip: training.least_tokens(place, place.fast) for chip, place in places.items()}
    assert max(tokens, key=lambda chip: tokens[chip]) == "v7x"
    # with an axis for each exchange the fewest tokens reach 95% of the peak, but never all of it
    least = {}
    for wide in (1, 2, 4, 8, 16):
        mesh = pod.mesh({"fsdp": 256 // wide, "tensor": wide})
        layers = {
            n: training.layer(pod, mesh, tokens=n, d_model=8192, d_ff=width)
            for n in range(100, 1200)
        }
        least[wide] = min(n for n, one in layers.items() if one.products >= 0.95 * one.seconds)
        assert any(one.bound == "compute" for one in layers.values()) == (wide < 16)
    assert list(least.values()) == [933, 712, 573, 557, 110]
    cube = places["v7x"]  # FSDP alone gets there first
    for wide in (1, 2, 4, 8, 16, 32, 64):
        mesh = cube.mesh({"fsdp": 64 // wide, "tensor": wide})
        one = training.layer(cube, mesh, tokens=3600, d_model=8192, d_ff=width)
        assert (one.products >= 0.95 * one.seconds) == (wide == 1)


def test_fsdp_over_hosts_needs_hardly_more_tokens_than_inside_one() -> None:
    hosts = roofline.network.topology("h100", 64)
    inside, across = (
        roofline.training.least_tokens(hosts, over) for over in (hosts.fast, hosts.axes)
    )
    assert inside < across < 1.2 * inside < roofline.training.least_tokens(hosts, hosts["nic"])


def test_four_gpus_agree_with_the_count_of_bytes_and_of_the_busiest_one() -> None:
    rows = roofline.validation.layers()
    rows = rows[(rows.devices == 4) & rows.layer.str.startswith("Llama") & (rows.variant == "")]
    took = rows.pivot(index="tokens", columns="way", values="measured ms")
    first = took["tensor-parallel"] < took["FSDP"]  # equal bytes at 13,312 tokens
    assert first.to_dict() == {2048: True, 8192: True, 32768: False}
    steps = {step.rung: step.why for step in ladder.committed()["context"].steps}
    order, zigzag = (
        [one.kernels for one in steps[f"ring, {way}"].devices] for way in ("in order", "zigzag")
    )
    assert max(order) > 6 * min(order)
    assert max(zigzag) < 1.1 * min(zigzag)
    gathered, ring = (steps[f"{way}, in order"].wall for way in ("gathered", "ring"))
    assert ring == pytest.approx(gathered, rel=0.02)
