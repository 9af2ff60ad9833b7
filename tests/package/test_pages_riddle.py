"""The riddle of the decode step: its states, moves and best order are those of the record."""

import re

import pytest

from roofline.labs import riddle
from tools import books

STATES = riddle.orders()
LEAST, BEST = riddle.best(STATES)


def test_the_states_are_the_record():
    rows = riddle.record()["rows"]
    written = [row for row in rows if "scan" in row]
    assert len(written) == 40
    assert len(STATES) == 40 + 8 + 3  # cuDNN with the casts dropped too, and our kernels
    for row in written:
        state = "".join(
            letter
            for letter, on in zip(
                "uhdncj",
                (
                    not row["scan"],
                    row["by_head"],
                    row["donate"],
                    not row["float32"],
                    row["attention"] == "cudnn",
                    row["fused"],
                ),
                strict=True,
            )
            if on
        )
        one = STATES[state]
        assert one["ms"] == pytest.approx(1e3 * row["seconds"], abs=1e-3)
        assert sum(one["bars"]) == pytest.approx(one["ms"], abs=0.01)
        assert min(one["bars"]) >= 0
        moved = dict(row["waterfall"])["the compiled program"]
        assert sum(one["bars"][:2]) == pytest.approx(1e3 * moved, abs=0.01)
        assert any(one["finding"].startswith(found["title"]) for found in row["findings"])
        named = [k for k in row["rows"] if k["role"] or k["name"].startswith("loop_")]
        kernels = sum(kernel["seconds"] for kernel in named)
        assert sum(one["kernels"].values()) == pytest.approx(1e3 * kernels, abs=0.05)


def test_no_order_costs_less_than_the_best():
    by_hand = [STATES[state]["ms"] for state in ("", "c", "uc", "udc", "k", "ko")]
    assert BEST == "cudkos"
    assert pytest.approx(sum(by_hand)) == LEAST
    reached = {"": 0.0}
    for _ in range(9):  # relaxed again and again, as a check of its own
        for state, cost in list(reached.items()):
            for to, _why in STATES[state]["next"].values():
                if cost + STATES[state]["ms"] < reached.get(to, 1e9):
                    reached[to] = cost + STATES[state]["ms"]
    assert reached["kos"] == pytest.approx(LEAST)


def test_quoted_lines_are_the_example_s():
    folder = books.ROOT / "examples/llama_decode"
    source = "".join((folder / name).read_text("utf-8") for name in ("model.py", "steps.py"))
    lines = " ".join(line for move in riddle.MOVES.values() for line in move[1:])
    words = set(re.findall(r"[a-z_]\w+", lines))
    assert len(words) > 40
    assert [word for word in sorted(words) if word not in source] == []
