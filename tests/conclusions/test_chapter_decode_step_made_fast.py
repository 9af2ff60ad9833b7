"""Conclusions of the chapter decode-step-made-fast: each test would refute one."""

import pytest

import roofline
from roofline.labs import riddle


def test_the_orders_tell_the_decode_step_s_story_at_batch_64():
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


def test_donation_alone_gains_only_with_one_conversation():
    ms = {(r["rung"], r["batch"]): 1e3 * r["seconds"] for r in roofline.evidence.decode()["rungs"]}
    for batch, gain in {1: 0.27, 16: 0, 64: 0}.items():
        saved = ms["unrolled", batch] - ms["donated", batch]
        assert saved == pytest.approx(gain, abs=0.1), batch
    assert ms["cuDNN", 1] > ms["side by side", 1]
