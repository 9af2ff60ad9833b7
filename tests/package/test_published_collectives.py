"""Measured collectives beside the network model: errors, and what its constants come from."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pandas
import pytest

from roofline_helpers import network, published
from roofline_helpers.published import LARGE, exchanges

DATA = Path(network.__file__).parents[1] / "data"
REACHED = tomllib.loads((DATA / "network.toml").read_text("utf-8"))["reached"]


@pytest.fixture(scope="module")
def rows() -> pandas.DataFrame:
    return published.collectives()


@pytest.fixture(scope="module")
def judged(rows: pandas.DataFrame) -> pandas.DataFrame:
    return rows[rows.judged].assign(off=lambda frame: frame.error.abs())


def test_half_of_all_rows_are_within_a_tenth(judged: pandas.DataFrame) -> None:
    assert len(judged) >= 450
    assert judged.off.median() <= 0.10
    assert (judged.off <= LARGE).mean() >= 0.90


@pytest.mark.parametrize(
    ("chip", "median", "largest"), [("v7x", 0.02, 0.05), ("h200", 0.15, 1.5), ("h100", 0.07, 1)]
)
def test_errors_by_chip(judged: pandas.DataFrame, chip: str, median: float, largest: float) -> None:
    off = judged.off[judged.chip == chip]
    assert off.median() <= median
    assert off.max() <= largest


def test_every_large_error_has_a_reason(judged: pandas.DataFrame) -> None:
    far = judged[judged.off > LARGE]
    assert (far.reason != "").all(), far[far.reason == ""]
    assert (judged.reason[judged.off <= LARGE] == "").all()
    # where messages are large, and go to all others, there is none
    many = ~judged.collective.isin(["permute", "all-to-all"]) & (judged.chip != "v6e")
    large = judged[(judged.bytes >= 2**27) & many]
    assert len(large) >= 50
    assert large.off.max() <= LARGE


def test_nothing_measured_beats_its_bound(rows: pandas.DataFrame) -> None:
    assert (rows["measured µs"] >= rows["bound µs"]).all()
    assert (rows["bound µs"] > 0).all()


@pytest.fixture(scope="module")
def layers() -> pandas.DataFrame:
    return published.layers()


def test_layers_over_gpus_are_predicted_within_a_seventh(layers: pandas.DataFrame) -> None:
    whole = layers[layers.variant == ""]
    assert set(zip(whole.devices, whole.layer, whole.way, strict=True)) == {
        (devices, layer, way)
        for devices, ways in ((2, 2), (4, 3))
        for layer in ("MLP", "Llama 3 8B layer")
        for way in ("tensor-parallel", "FSDP", "both")[:ways]
    }
    assert whole.error.abs().median() <= 0.04
    assert whole.error.abs().max() <= 1 / 7
    assert layers.error.abs().median() <= 0.06
    far = layers[layers.error.abs() > LARGE]
    assert len(far) == 2
    assert (far.reason != "").all()
    assert (layers.reason[layers.error.abs() <= LARGE] == "").all()


def test_runs_of_a_layer_on_other_days_agree(layers: pandas.DataFrame) -> None:
    same = layers[(layers.devices == 2) & (layers.layer == "MLP") & (layers.tokens > 256)]
    two = same.groupby(["tokens", "way", "variant"])["measured ms"]
    pairs = two.filter(lambda each: len(each) == 2).groupby([same.tokens, same.way, same.variant])
    assert len(pairs) == 12
    assert (pairs.max() / pairs.min()).max() <= 1.05


def test_xla_hides_no_more_when_it_is_told_to(layers: pandas.DataFrame) -> None:
    keys = ["devices", "layer", "tokens", "way"]
    by = layers[layers.devices == 4].set_index(keys)
    told = by[by.variant == "latency hiding"]["measured ms"]
    asked = by[by.variant == ""]["measured ms"].loc[told.index]
    assert len(told) == 14
    assert (told / asked - 1).abs().max() <= 0.02


# --- the constants, again from the rows that they come from ---------------------------------------


def points(name: str, kind: str, devices: int, shape: str | None = None) -> dict[int, float]:
    record: dict[str, Any] = json.loads((DATA / "collectives" / f"{name}.json").read_text("utf-8"))
    [curve] = [
        each
        for each in record["curves"]
        if (each["kind"], each["devices"], each.get("shape")) == (kind, devices, shape)
    ]
    return {int(nbytes): seconds for nbytes, seconds in curve["points"]}


def test_the_torus_s_constants_solve_two_rows_of_one_curve() -> None:
    curve = points("google-v7x", "all-gather", 4, "2x2x1")
    (small, least), (large, most) = min(curve.items()), max(curve.items())
    received = 2 * 3 / 4  # by two devices, three of four shards
    rate = received * (large - small) / (most - least)
    assert rate / 200e9 == pytest.approx(REACHED["ici"]["efficiency"], rel=1e-3)
    startup = least - received * small / rate - 2 * 1e-6
    assert startup == pytest.approx(REACHED["ici"]["startup"], rel=5e-3)


@pytest.mark.parametrize(
    ("name", "link", "memory"), [("h100", 450e9, 3350e9), ("b200", 900e9, 8e12)]
)
def test_the_switch_s_rates_solve_the_largest_rows_of_two_groups(
    name: str, link: float, memory: float
) -> None:
    own = {**REACHED["nvlink"], **REACHED["nvlink"].get(name, {})}
    begun = own["startup"] + REACHED["nvlink"]["bulk_startup"] - REACHED["nvlink"]["startup"]

    def per_byte(kind: str, devices: int) -> float:
        seconds = points(f"xla-{name}", kind, devices)[2**30]
        return (seconds - begun - own["bulk_step"] * (devices - 1)) / 2**30

    for kind, share in (("all-gather", "copied"), ("reduce-scatter", "reduced")):
        two, eight = per_byte(kind, 2), per_byte(kind, 8)
        over_links = (eight - two / 4) / (7 / 8 - 1 / 8)  # of 1/2, 7/8; own share 1/2, 1/8
        at_home = 2 * two - over_links
        if kind == "all-gather":
            assert 1 / over_links / link == pytest.approx(own["efficiency"], rel=0.03)
        assert 1 / at_home / memory == pytest.approx(own[share], rel=0.20)


@pytest.mark.parametrize("name", ["h100", "b200"])
def test_the_switch_s_latencies_are_those_of_the_least_gathers(name: str) -> None:
    own = {**REACHED["nvlink"], **REACHED["nvlink"].get(name, {})}
    least = {
        devices: min(
            seconds
            for nbytes, seconds in points(f"xla-{name}", "all-gather", devices).items()
            if nbytes < 2**17
        )
        for devices in (2, 8)
    }
    for devices, seconds in least.items():
        assert own["startup"] + (devices - 1) * own["step"] == pytest.approx(seconds, rel=0.02)


def test_our_own_records_become_curves() -> None:
    def sample(name: str, *medians: float, group: str = "collectives") -> dict[str, Any]:
        return {"name": name, "group": group, "passes": [{"median": m} for m in medians]}

    record = {
        "device": {"count": 2, "name": "NVIDIA H200", "chip": "h200"},
        "samples": [
            sample("all-gather 1 MiB over 2", 30e-6, 32e-6, 31e-6),
            sample("all-gather 1 KiB over 2", 12e-6),
            sample("permute 1 MiB over 2", 20e-6),
            sample("permute back 4 KiB over 4", 15e-6),
            sample("all-reduce 1 MiB over 2"),  # could not be measured
            sample("all-gather 1 MiB over 2", 1.0, group="spread"),
        ],
    }
    curves = exchanges.measured(record)["curves"]
    assert curves == [
        {
            "kind": "all-gather",
            "pattern": "",
            "devices": 2,
            "floor": pytest.approx(16e-6),  # the middle of the two kinds over two devices
            "points": [[1024, 12e-6], [2**20, 31e-6]],
        },
        {
            "kind": "permute",
            "pattern": "",
            "devices": 2,
            "floor": pytest.approx(16e-6),
            "points": [[2**19, 20e-6]],
        },
        {
            "kind": "permute",
            "pattern": "back",
            "devices": 4,
            "floor": 15e-6,
            "points": [[1024, 15e-6]],
        },
    ]
