"""Published steps as programs: the chapter's page of JAX, and what recipes have besides."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_suite import compiled_quickly

from roofline_helpers import models, published
from roofline_helpers.xla import Report
from tools.evidence import recipes

MODEL = models.Decoder("tiny", 1, 8, 2, 1, 4, 16, 32, experts=models.Experts(4, 2, 16))
OF = SimpleNamespace(put=lambda mesh, spec, x: x)


@cache
def experts(capacity: float) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Tokens, what a mixture makes of them, and its weights."""
    chance = np.random.default_rng(0)
    shapes = {"router": (8, 4), "gate": (4, 8, 16), "up": (4, 8, 16), "down": (4, 16, 8)}
    w = {name: chance.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    y = chance.standard_normal((2, 8, 8), np.float32)
    mixture = partial(recipes.mixture, OF, None, MODEL, capacity)
    return y, np.asarray(compiled_quickly(mixture, y, w)), w


def token(y: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    """One token through its two best experts, one after the other."""
    scores = y @ w["router"]
    best = np.argsort(scores)[-2:]
    share = np.exp(scores[best]) / np.exp(scores[best]).sum()
    gate, up, down = (w[name] for name in ("gate", "up", "down"))
    out = np.zeros(8)
    for each, part in zip(best, share, strict=True):
        x = y @ gate[each]
        out += part * ((x / (1 + np.exp(-x)) * (y @ up[each])) @ down[each])
    return out


def test_with_seats_for_all_every_token_meets_its_experts() -> None:
    y, out, w = experts(capacity=2.0)
    for place in np.ndindex(2, 8):
        assert np.allclose(out[place], token(y[place], w), rtol=0.02, atol=0.02)


def test_beyond_its_seats_an_expert_drops_tokens() -> None:
    _, all_seats, _ = experts(capacity=2.0)
    _, few, _ = experts(capacity=0.5)
    assert not np.allclose(few, all_seats, atol=0.02)
    assert np.allclose(few[:, 0], all_seats[:, 0], rtol=0.02, atol=0.02)  # the first find seats


def test_the_page_of_the_chapter_has_any_model_s_widths() -> None:
    llama = models.model("llama-3-70b")
    of = recipes.page(llama)
    assert of.WEIGHTS["layers"]["gate"][0] == (80, 8192, 28672)
    assert recipes.weights(of, llama) == of.WEIGHTS
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    normed = compiled_quickly(of.norm, x, np.ones(8, np.float32))
    assert np.allclose(normed, x / np.sqrt(np.mean(np.square(x)) + 1e-5))


def test_a_mixture_has_its_own_matrices() -> None:
    mixtral = models.model("mixtral-8x7b")
    own = recipes.weights(recipes.page(replace(mixtral, experts=None)), mixtral)["layers"]
    count = sum(int(np.prod(shape)) for shape, _ in own.values()) - 2 * 32 * 4096
    assert count == mixtral.matrices


def test_a_brief_record_predicts_the_same() -> None:
    one = published.published_step("v6e-8-llama-3.1-8b")
    assert isinstance(one, published.PublishedStep)
    assert one.program is not None
    text = recipes.brief(one.program)
    again = Report.from_json(text)
    assert again.time_at_roof == pytest.approx(one.program.time_at_roof)
    assert again.notes == one.program.notes
    assert all(row.source is None for row in again.rows)
