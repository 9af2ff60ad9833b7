"""Conclusions of the chapter decode-step-made-fast: each test would refute one."""

import json

import pytest

import roofline
import roofline_helpers as rh
from roofline.diagnosis import ladder
from roofline.labs import riddle
from tools import books


def test_the_decode_step_misses_its_aim_by_the_bandwidth_of_reading() -> None:
    timed = roofline.evidence.decode()
    ours = {step["batch"]: step["kernels of our own"] for step in timed["steps"]}
    above = {batch: took / timed["roof"][str(batch)]["read"] for batch, took in ours.items()}
    assert {batch: f"{ratio:.3f}" for batch, ratio in above.items()} == {
        1: "1.186",
        16: "1.122",
        64: "1.110",
    }
    assert all(above[batch] > aim for batch, aim in {1: 1.15, 16: 1.08, 64: 1.08}.items())
    chip = rh.chip("h200")
    for roofs in timed["roof"].values():
        moved = roofs["published"] * chip.memory["hbm"].bandwidth.value
        assert roofs["read"] == pytest.approx(moved / float(chip.reached.streams["read"]), rel=1e-3)


def test_the_decode_race_is_tuned_on_both_sides_and_16_sequences_gain_most() -> None:
    timed = roofline.evidence.decode()
    rows = {(row["batch"], row["program"]): row["seconds"] for row in timed["race"]["steps"]}
    ours = {batch: rows[batch, "kernels of our own"] for batch in (1, 16, 64)}
    torch = {
        batch: {name: s for (b, name), s in rows.items() if b == batch and "PyTorch" in name}
        for batch in ours
    }
    assert all(sum("max-autotune" in name for name in ways) >= 2 for ways in torch.values())
    ratio = {batch: took / min(torch[batch].values()) for batch, took in ours.items()}
    assert ratio[16] < 0.87 < 0.92 < min(ratio[1], ratio[64]) < max(ratio[1], ratio[64]) < 0.94
    race = json.loads((books.ROOT / "examples/llama_decode/h200-race.json").read_text("utf-8"))
    assert sorted(race["rungs"]["16"]["narrow sums"]["seconds"])[2] == ours[16]
    assert str(race["torch"]["batch"]["16"]["attention"]).count("e-05") == 6
    assert "default" in min(torch[16], key=lambda name: torch[16][name])
    assert "dependent launch" in min(torch[1], key=lambda name: torch[1][name])


def test_rungs_of_the_decode_ladder_gain_what_the_page_says() -> None:
    rungs = {s.rung: s.why for s in ladder.committed()["decode-rungs"].select(batch=16) if s.why}
    copies = {rung: str([row.title for row in why.groups]) for rung, why in rungs.items()}
    assert ["of cache" in copies[rung] for rung in ("donated", "by head")] == [True, False]
    clock = {(r["batch"], r["rung"]): r["seconds"] for r in roofline.evidence.decode()["rungs"]}
    gained = [clock[batch, "own kernels"] - clock[batch, "overlapped"] for batch in (1, 16, 64)]
    assert rungs["own kernels"].row("between kernels").seconds < 0.4e-3 < min(gained)


def test_the_orders_tell_the_decode_step_s_story_at_batch_64() -> None:
    """Two causes of a copy must both go; three changes bring nearly all, our kernels the rest."""
    orders = riddle.orders()
    ms = {state: facts["ms"] for state, facts in orders.items()}
    assert abs(ms["un"] - ms["udn"]) < 0.1
    assert ms["uhn"] - ms["uhdn"] == pytest.approx(8, abs=0.2)
    path = [""]
    for move in riddle.best(orders)[1]:
        path.append(orders[path[-1]]["next"][move][0])
    assert path == ["", "c", "uc", "udc", "k", "ko", "kos"]
    assert (ms[""] - ms["udc"]) / (ms[""] - ms["kos"]) > 0.97
    moved = [orders[state]["bars"][1] for state in path]
    assert moved[0] > ms[""] / 2
    assert max(moved[3:]) < 0.5
