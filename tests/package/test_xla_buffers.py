"""What fills a device's memory: the buffers that are alive at the peak, with their lines."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import spec
from compiled_reports import needs

from roofline.xla import DoesNotFit, analyze
from roofline.xla.buffers import buffers_at_peak
from roofline.xla.hlo import parse
from tools import programs

LAYERS, WIDTH, VOCABULARY = 4, 512, 32_000
WEIGHTS, TABLE = 2 * LAYERS * WIDTH**2, 2 * WIDTH * VOCABULARY


def line_of(text):
    """Return the line of this file that begins with a text."""
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip().startswith(text))


def loss(weights, table, x):
    def layer(h, w):
        return jnp.tanh(h @ w), None

    h, _ = jax.lax.scan(layer, x, weights)
    logits = jnp.matmul(h, table, preferred_element_type=jnp.float32)
    return jax.nn.logsumexp(logits, -1).mean()


def step(weights, table, x):
    found = jax.grad(loss, (0, 1))(weights, table, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, (weights, table), found)


def arguments(tokens):
    return spec(LAYERS, WIDTH, WIDTH), spec(WIDTH, VOCABULARY), spec(tokens, WIDTH)


def test_planted_buffers_have_their_bytes_and_lines():
    needs("v5e")
    kept, given = (
        analyze(step, *arguments(8192), chip="v5e", donate_argnums=donated).buffers
        for donated in (None, (0, 1))
    )
    largest = kept[0]
    assert (largest.shape, largest.kind) == (f"f32[8192,{VOCABULARY}]", "temporary")
    assert largest.bytes == 4 * 8192 * VOCABULARY
    moved = largest.source.line - line_of("logits =")  # since the program was kept
    saved = [b for b in kept if b.shape == f"bf16[{LAYERS},8192,{WIDTH}]"]
    assert sum(b.bytes for b in saved) >= 2 * LAYERS * 8192 * WIDTH
    lines = {b.source.line - moved for b in saved if b.source}
    assert lines <= {line_of("return jnp.t"), line_of("h, _")}
    table = {b.kind: b for b in kept if b.shape == f"bf16[{WIDTH},{VOCABULARY}]"}
    assert table["argument"].role == "table"
    assert table["result"].bytes == TABLE
    donated = sum(b.bytes for b in kept) - sum(b.bytes for b in given)
    assert donated == pytest.approx(WEIGHTS + TABLE, rel=0.01)


def test_what_does_not_fit_says_what_fills_it():
    needs("v5e")
    tokens = 262_144
    with pytest.raises(DoesNotFit) as caught:
        analyze(step, *arguments(tokens), chip="v5e")
    error = caught.value
    largest = error.buffers[0]
    assert largest.bytes == 4 * tokens * VOCABULARY
    assert f"f32[{tokens},{VOCABULARY}]" in str(error)
    assert f"test_xla_buffers.py:{line_of('logits =')}" in str(error)
    assert sum(b.bytes for b in error.buffers) == pytest.approx(error.needed, rel=0.01)


def test_programs_need_what_is_alive_at_their_peak():
    """By the compiler's own allocation, for nine tenths of what the tests compile."""
    near = []
    for entry in programs.kept().values():
        memory = programs.program_of(entry).memory
        alive = sum(b.bytes for b in buffers_at_peak(parse(entry["text"]), "tpu"))
        near.append(abs(alive / max(memory.total - memory.code, 1) - 1) < 0.01)
    assert not near or sum(near) > 0.88 * len(near)
