"""Measured collectives against the network model: errors, and what its constants come from."""

import json
import tomllib
from pathlib import Path

import pytest

from roofline import network, validation
from roofline.validation.networks import LARGE

DATA = Path(network.__file__).parents[1] / "data"
CONSTANTS = tomllib.loads((DATA / "network.toml").read_text("utf-8"))
REACHED = CONSTANTS["reached"]


@pytest.fixture(scope="module")
def rows():
    return validation.collectives()


@pytest.fixture(scope="module")
def judged(rows):
    return rows[rows.judged].assign(off=lambda frame: frame.error.abs())


def test_half_of_all_rows_are_within_a_tenth(judged):
    assert len(judged) >= 450
    assert judged.off.median() <= 0.10
    assert (judged.off <= LARGE).mean() >= 0.90


def test_nothing_measured_beats_its_bound(rows):
    assert (rows["measured µs"] >= rows["bound µs"]).all()
    assert (rows["bound µs"] > 0).all()


@pytest.fixture(scope="module")
def layers():
    return validation.layers()


def test_layers_over_gpus_are_predicted_within_a_fifth(layers):
    whole = layers[layers.variant == ""]
    assert whole.error.abs().median() <= 0.04
    assert whole.error.abs().max() <= 1 / 5
    assert layers.error.abs().median() <= 0.06
    far = layers[layers.error.abs() > LARGE]
    assert (far["measured ms"] < 0.13).all()  # what a call over several devices takes by itself
    assert (far.variant != "").all()


# --- the constants, again from the rows that they come from ---------------------------------------


def points(name, kind, devices, shape=None):
    record = json.loads((DATA / "collectives" / f"{name}.json").read_text("utf-8"))
    [curve] = [
        curve
        for curve in record["curves"]
        if (curve["kind"], curve["devices"], curve.get("shape")) == (kind, devices, shape)
    ]
    return {int(nbytes): seconds for nbytes, seconds in curve["points"]}


def torus():
    """Rate and startup that solve the smallest and the largest row of a curve."""
    curve = points("google-v7x", "all-gather", 4, "2x2x1")
    ((small, least), (large, most)) = min(curve.items()), max(curve.items())
    received = 2 * 3 / 4  # by two devices, three of four shards
    rate = received * (large - small) / (most - least)
    return rate, least - received * small / rate - 2 * 1e-6


def test_the_torus_s_rate_solves_two_rows_of_one_curve():
    rate, _ = torus()
    assert rate / 200e9 == pytest.approx(REACHED["ici"]["efficiency"], rel=1e-3)
