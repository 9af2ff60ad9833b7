"""Sharded arrays and products: what is exchanged, what is computed, what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofline_helpers as rh
from roofline_helpers import network as net

PLACE = net.topology("v5p", "4x4x4")
MESH = {axis.name: (axis,) for axis in PLACE.axes}
SIZES = {"I": 512, "J": 1024, "K": 2048}


def plans(spec: str, **sizes: int) -> tuple[net.sharding.Plan, ...]:
    return net.matmul(spec, {**SIZES, **sizes}, MESH, "v5p")


@pytest.mark.parametrize(
    ("spec", "steps"),
    [
        ("I J, J K -> I K", ()),
        ("I_x J, J K_y -> I_x K_y", ()),
        ("I J_x, J_x K -> I K", ("all-reduce C over x",)),
        ("I J_x, J_x K -> I K_x", ("reduce-scatter C over x",)),
        ("I_x J, J K -> I K", ("all-gather C over x",)),
    ],
)
def test_where_there_is_one_way(spec: str, steps: tuple[str, ...]) -> None:
    [one] = plans(spec)
    assert one.steps == steps
    assert len(one.collectives) == len(steps)


def test_where_one_is_split_along_what_is_summed_there_are_two_ways() -> None:
    by_steps = {plan.steps: plan for plan in plans("I J, J_x K -> I K")}
    assert set(by_steps) == {("all-gather B over x",), ("all-reduce C over x",)}
    gather = by_steps["all-gather B over x",]
    add = by_steps["all-reduce C over x",]
    assert gather.flops == 2 * 512 * 1024 * 2048 == 4 * add.flops
    assert gather.collectives[0].nbytes == 2 * 1024 * 2048
    assert add.collectives[0].nbytes == 2 * 512 * 2048


def test_where_both_are_split_along_one_axis_one_is_gathered() -> None:
    first = {plan.steps[0] for plan in plans("I_x J, J K_x -> I_x K")}
    assert first == {"all-gather A over x", "all-gather B over x"}
    wide = plans("I_x J, J K_x -> I K_x", I=128, K=8192)
    assert wide[0].steps == ("all-gather A over x",)  # the smaller one


SPLITS = ["", "_x", "_y", "_xy"]


@given(i=st.sampled_from(SPLITS), j=st.sampled_from(SPLITS), k=st.sampled_from(SPLITS))
def test_flops_of_all_devices_are_at_least_those_of_the_product(i: str, j: str, k: str) -> None:
    for a, b, c in product((f"I{i} J", f"I J{j}"), (f"J K{k}", f"J{j} K"), ("I K", f"I{i} K")):
        for plan in plans(f"{a}, {b} -> {c}"):
            assert plan.flops * 64 >= 2 * 512 * 1024 * 2048
            assert plan.seconds == max(plan.math, plan.memory, plan.comms)
            assert plan.bound in ("compute", "memory", "network")


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (lambda: plans("I J, J K"), rh.BadValue, "A, B -> C"),
        (lambda: plans("I_w J, J K -> I K"), rh.UnknownName, "no mesh axis 'w'. Allowed: x, y, z"),
    ],
)
def test_what_is_no_sharding_is_refused(asked: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        asked()
