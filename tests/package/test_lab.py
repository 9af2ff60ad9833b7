"""Instruments and labs without a browser: starting values, errors, texts, what needs no script."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any

import pytest

import roofline_helpers as rh
from roofline_helpers import ask, lab, plot, serving
from roofline_helpers._checks import BadType, BadValue, UnknownName
from roofline_helpers.lab import design, shared

INSTRUMENTS = {
    "point": lab.point,
    "ridges": lab.ridges,
    "matmul": lab.matmul,
    "chain": lab.chain,
    "sharding": lab.sharding,
}
LABS = {"memory-wall": lab.memory_wall, "design": lab.design_challenge}
ALL = {**INSTRUMENTS, **LABS}


@functools.cache
def made(kind: str) -> ask.Element:
    """An element, made once for all tests: a lab takes seconds."""
    element: ask.Element = ALL[kind]()
    return element


@pytest.mark.parametrize("kind", ALL)
def test_an_element_is_the_same_each_time(kind: str) -> None:
    first, second = made(kind), ALL[kind]()
    assert first.html() == second.html()
    assert first.kind == kind
    assert first.bundle == "lab"
    assert len(first.plain) > 60


@pytest.mark.parametrize("kind", ALL)
def test_without_scripts_a_table_stands_there(kind: str) -> None:
    element = made(kind)
    assert element.fallback.count("<table") == 1
    assert element.fallback.count("<tr>") >= 4
    assert not re.search(r">\s*(nan|None)\s*<", element.fallback)


HALF = rh.chip("v7x").per_device()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: lab.point("h1000"), UnknownName, "Nearest"),
        (lambda: lab.point("v7x", [1, 2]), BadType, "one number"),
        (lambda: lab.point("v7x", dtype="int4"), UnknownName, "int4"),
        (lambda: lab.matmul("h100", 0), BadValue, "whole number"),
        (lambda: lab.ridges("v7x"), BadType, "one to four"),
        (lambda: lab.chain(rows=1.5), BadValue, "whole"),
        (lambda: lab.sharding("t4"), UnknownName, "v5e, v5p"),
        (lambda: lab.sharding("h200", 3), BadValue, "one of [1, 2, 4, 8], got 3"),
        (lambda: lab.matmul(key="Not a key"), BadValue, "key"),
        (lambda: lab.point(HALF), BadValue, "needed, such as rh.chip('v7x'), got a changed one"),
    ],
)
def test_bad_arguments_say_what_is_allowed(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        call()


def test_the_story_of_the_memory_wall_is_computed() -> None:
    text = made("memory-wall").plain + ask.answer("lab-memory-wall")
    roof, job = rh.chip("h100").roofline("bf16").without_floor(), rh.work.matmul(512, 512, 512)
    assert f"{roof.efficiency(312e12, job):.0%}".replace("%", " %") in text  # of the roof
    assert f"{roof.attainable(job) / 1e12:.0f} TFLOP/s" in text
    assert f"{roof.mfu(312e12):.0%}".replace("%", " %") in text


def test_the_first_matmul_that_is_compute_bound() -> None:
    for chip, dtype in (("h100", "bf16"), ("v6e", "int8"), ("t4", "fp16")):
        roof = rh.chip(chip).roofline(dtype)
        first = shared.first_compute_bound(roof, dtype)
        sides = (first - 1, first)
        bounds = [roof.bound(rh.work.matmul(n, n, n, dtype).intensity) for n in sides]
        assert bounds == ["memory", "compute"], chip


def test_the_design_challenge_asks_what_is_so() -> None:
    data = made("design").data
    today = serving.step(serving.LLAMA_3_8B, "h100", **design.TODAY)
    right = [option["right"] for option in data["predict"]["options"]]
    assert right == [True, True, False, False]
    groups = design.groups_of(today)
    for name, group in groups.items():
        waiting = sum(k.total for k in group if k.bound == "memory") / sum(k.total for k in group)
        assert (waiting > 0.5) == (name != "rest"), name
    assert {kernel.bound for kernel in groups["rest"]} == {"latency"}
    assert sum(len(group) for group in groups.values()) == len(today.kernels)
    last = {option["text"]: option["right"] for option in data["reflect"]["options"]}
    assert last["Batch 64 in place of 8"]
    assert sum(last.values()) == 1
    assert serving.step(serving.LLAMA_3_8B, "h100", **{**design.TODAY, "batch": 64}).fits


def test_the_design_is_held_against_a_clock() -> None:
    data = made("design").data
    assert data["measured"]["chip"] == "h200"
    assert [each["batch"] for each in data["measured"]["steps"]] == [1, 16, 64]
    assert "Measured there: 4.8 ms in kernels of our own, 5.36 ms in JAX" in data["tasks"][-1]


def test_the_wall_s_last_question_is_right_about_roofs() -> None:
    options = made("memory-wall").data["reflect"]["options"]
    assert [option["right"] for option in options] == [False, True, True, True, False]
    for option in options:
        times = re.search(r"([\d.]+) times as high", option["feedback"])
        assert bool(times) == option["right"]
        if times:
            assert float(times[1]) > 1


def test_colours_of_marks_are_those_of_the_static_figures() -> None:
    code = (resources.files("roofline_helpers") / "assets" / "chart.js").read_text("utf-8")
    light = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", code.split(":host([data-look=dark])")[0]))
    assert light["memory"] == plot.PALETTE["memory"]
    assert light["compute"] == plot.PALETTE["compute"]
    assert [light[f"s{i}"] for i in range(7)] == list(plot.PALETTE["series"])


def test_scripts_do_nothing_that_the_page_forbids() -> None:
    code = ask.script("lab") + ask.script("paste")
    for word in ("innerHTML", "eval(", "new Function", "fetch(", "http://", "XMLHttpRequest"):
        assert word not in code.replace("http://www.w3.org/2000/svg", ""), word
    assert 'setAttribute("style"' not in code
    assert "import " not in re.sub(r'".*?"', "", code)
