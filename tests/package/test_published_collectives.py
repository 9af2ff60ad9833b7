"""Measured collectives against the network model: errors, and what its constants come from."""

from __future__ import annotations

import json
import statistics
import tomllib
from pathlib import Path
from typing import Any

import pandas
import pytest

from roofline_helpers import network, published
from roofline_helpers.published import LARGE

DATA = Path(network.__file__).parents[1] / "data"
CONSTANTS = tomllib.loads((DATA / "network.toml").read_text("utf-8"))
REACHED, PUBLISHED = CONSTANTS["reached"], CONSTANTS["published"]["nvlink"]
SWITCHES = {"h100": (450e9, 3350e9), "b200": (900e9, 8e12)}  # links, memory; byte/s


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
    ("chip", "median", "largest"), [("v7x", 0.02, 0.05), ("h200", 0.15, 2.0), ("h100", 0.09, 1.2)]
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


def test_layers_over_gpus_are_predicted_within_a_fifth(layers: pandas.DataFrame) -> None:
    whole = layers[layers.variant == ""]
    assert set(zip(whole.devices, whole.layer, whole.way, strict=True)) == {
        (devices, layer, way)
        for devices, ways in ((2, 2), (4, 3))
        for layer in ("MLP", "Llama 3 8B layer")
        for way in ("tensor-parallel", "FSDP", "both")[:ways]
    }
    assert whole.error.abs().median() <= 0.04
    assert whole.error.abs().max() <= 1 / 5
    assert layers.error.abs().median() <= 0.06
    far = layers[layers.error.abs() > LARGE]
    assert len(far) == 2
    assert (far.reason != "").all()
    assert (layers.reason[layers.error.abs() <= LARGE] == "").all()


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


def torus() -> tuple[float, float]:
    """Rate and startup that solve the smallest and the largest row of a curve."""
    curve = points("google-v7x", "all-gather", 4, "2x2x1")
    (small, least), (large, most) = min(curve.items()), max(curve.items())
    received = 2 * 3 / 4  # by two devices, three of four shards
    rate = received * (large - small) / (most - least)
    return rate, least - received * small / rate - 2 * 1e-6


def least_gathers(name: str) -> dict[int, float]:
    """Seconds of the least gathers of 2 and of 8."""
    return {
        devices: min(
            seconds
            for nbytes, seconds in points(f"xla-{name}", "all-gather", devices).items()
            if nbytes < 2**17
        )
        for devices in (2, 8)
    }


def test_the_torus_s_rate_solves_two_rows_of_one_curve() -> None:
    rate, _ = torus()
    assert rate / 200e9 == pytest.approx(REACHED["ici"]["efficiency"], rel=1e-3)


def test_a_start_is_the_mean_of_the_torus_s_and_the_switch_s() -> None:
    least, step = least_gathers("h100"), REACHED["nvlink"]["step"]
    assert (least[8] - least[2]) / 6 == pytest.approx(step, rel=0.02)
    switch = (least[2] - step + least[8] - 7 * step) / 2
    _, torus_start = torus()
    assert (torus_start + switch) / 2 == pytest.approx(REACHED["startup"], rel=0.01)
    assert torus_start == pytest.approx(switch, rel=0.1)  # which is why one constant will do


def solved(name: str, kind: str) -> tuple[float, float]:
    """Rates over links and at home that solve the largest rows of two groups."""
    own = {"startup": REACHED["startup"], **PUBLISHED, **PUBLISHED.get(name, {})}
    begun = own["startup"] + REACHED["nvlink"]["bulk_startup"] - REACHED["startup"]

    def per_byte(devices: int) -> float:
        seconds = points(f"xla-{name}", kind, devices)[2**30]
        return (seconds - begun - own["bulk_step"] * (devices - 1)) / 2**30

    two, eight = per_byte(2), per_byte(8)
    over_links = (eight - two / 4) / (7 / 8 - 1 / 8)  # of 1/2, 7/8; own share 1/2, 1/8
    return 1 / over_links, 1 / (2 * two - over_links)


def test_an_own_share_is_the_middle_of_four() -> None:
    kinds = ("all-gather", "reduce-scatter")
    home = [solved(n, kind)[1] / memory for n, (_, memory) in SWITCHES.items() for kind in kinds]
    assert statistics.median(home) == pytest.approx(REACHED["nvlink"]["own_share"], rel=0.02)


@pytest.mark.parametrize("name", SWITCHES)
def test_what_the_library_says_of_its_links_is_near_what_was_measured(name: str) -> None:
    says = {"step": REACHED["nvlink"]["step"], **PUBLISHED, **PUBLISHED.get(name, {})}
    rate, _ = solved(name, "all-gather")
    assert rate / SWITCHES[name][0] == pytest.approx(says["efficiency"], rel=0.12)
    start = says.get("startup", REACHED["startup"])
    for devices, seconds in least_gathers(name).items():
        assert start + (devices - 1) * says["step"] == pytest.approx(seconds, rel=0.04)


def test_starts_of_larger_messages_and_of_exchanges_are_those_of_their_rows() -> None:
    own = REACHED["nvlink"]
    exchanged = min(points("xla-h100", "all-to-all", 8).values())
    assert own["exchange_startup"] + 7 * own["step"] == pytest.approx(exchanged, rel=0.04)
    for nbytes in (2**24, 2**25, 2**26):
        row = points("xla-h100", "all-gather", 8)[nbytes]
        reached = network.all_gather(nbytes, network.topology("h100", 8, ceilings="reached").fast)
        assert reached.seconds == pytest.approx(row, rel=0.06)
