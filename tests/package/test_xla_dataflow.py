"""What is known of a program's values, and what is needed of them: never less than is."""

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo_texts import program
from random_programs import MARK, Program

from roofline.xla.facts import _pairs, facts_of
from roofline.xla.graph import Graph
from roofline.xla.hlo import parse
from roofline.xla.needs import needs_of


def written(f, *arguments):
    """Return the HLO of a function as JAX writes it."""
    lowered = jax.jit(f).lower(*arguments)
    return str(lowered.compiler_ir("hlo").as_hlo_module().to_string())


def read(text):
    graph = Graph(parse(text))
    known = facts_of(graph)
    return graph, known, needs_of(known)


# --- hand-written programs: each product's cotangent, and its operands' zeros, are counted --------


def ones(*shape):
    return jnp.ones(shape)


def attended(q, k, v):
    scores = 0.1 * jnp.einsum("hd,htd->ht", q, k)
    return jnp.einsum("ht,htd->hd", jnp.where(jnp.arange(64) < 8, jnp.exp(scores), 0.0), v)


def by_example(x, w):
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID")
    return y[jnp.arange(8), jnp.arange(8)]


def banded(x):
    near = jnp.abs(jnp.arange(32)[:, None] - jnp.arange(32)) < 3
    return jnp.where(near, x @ x.T, 0.0)


def last_output(x, w):
    return (x.reshape(32, 8) @ w).reshape(2, 16, 8)[:, -1]


def last_turn(x, w):
    return jax.lax.scan(lambda c, row: (jnp.tanh(c + row), row[None] @ w), x[0], x)[1][-1]


BY_HAND = {
    # its needed share of multiply-adds, as a reader would say it
    "one row of sixteen": (
        lambda h, w: jax.nn.softmax(jnp.tanh(h) @ w)[:, -1],
        (ones(2, 16, 8), ones(8, 32)),
        1 / 16,
    ),
    "a row, after reshapes": (last_output, (ones(2, 16, 8), ones(8, 8)), 1 / 16),
    "Kronecker product": (
        lambda a, x: jnp.kron(a, jnp.eye(8)) @ x,
        (ones(8, 8), ones(64, 4)),
        1 / 8,
    ),
    "known mask": (attended, (ones(2, 4), ones(2, 64, 4), ones(2, 64, 4)), 1 / 8),
    "diagonal": (lambda x: jnp.diag(x.T @ x), (ones(32, 16),), 1 / 16),
    "trace": (lambda a, b: jnp.trace(a @ b), (ones(16, 16), ones(16, 16)), 1 / 16),
    "triangle": (lambda x: jnp.tril(ones(32, 32)) @ x, (ones(32, 4),), 33 / 64),
    "filter for each example": (by_example, (ones(8, 1, 12, 12), ones(8, 1, 5, 5)), 1 / 8),
    "one-hot": (lambda i, w: jax.nn.one_hot(i, 64) @ w, (jnp.arange(16), ones(64, 8)), 1 / 64),
    "nothing in vain": (
        lambda x, a, b: jax.nn.silu(x @ a) @ b,
        (ones(8, 8), ones(8, 16), ones(16, 8)),
        1.0,
    ),
    "a third, split": (
        lambda x, w: jnp.split(x @ w, 3, -1)[1] * 2,
        (ones(8, 8), ones(8, 24)),
        1 / 3,
    ),
    "two rows": (lambda x, a, b: ((x @ a) @ b)[:2], (ones(16, 8), ones(8, 8), ones(8, 8)), 1 / 8),
    "overlapping slices": (
        lambda x, a: (lambda y: y[:8].sum() + y[4:12].sum())(x @ a),
        (ones(16, 8), ones(8, 8)),
        3 / 4,
    ),
    "padding": (lambda x, a: jnp.pad(x, ((0, 24), (0, 0))) @ a, (ones(8, 8), ones(8, 8)), 1 / 4),
    "one of each row": (
        lambda x, w, i: jnp.take_along_axis(x @ w, i[:, None], 1),
        (ones(8, 8), ones(8, 32), jnp.arange(8)),
        1 / 32,
    ),
    "blocks": (
        lambda a, x: jax.scipy.linalg.block_diag(*[a] * 8) @ x,
        (ones(4, 4), ones(32, 4)),
        1 / 8,
    ),
    "a factor of zeros": (
        lambda x, w: (x @ w) * (jnp.arange(32) % 4 == 0),
        (ones(8, 8), ones(8, 32)),
        1 / 4,
    ),
    "band": (banded, (ones(32, 8),), (32 + 2 * 31 + 2 * 30) / 1024),
    "causal": (
        lambda q, k: jnp.where(jnp.tril(jnp.ones((32, 32), bool)), q @ k.T, 0.0),
        (ones(32, 8), ones(32, 8)),
        33 / 64,
    ),
    "the last of eight turns": (last_turn, (ones(8, 4), ones(4, 4)), 1 / 8),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_share_of_a_product(name):
    f, arguments, share = BY_HAND[name]
    graph, _, needs = read(written(f, *arguments))
    products = [node for node in graph.nodes if node.op in ("dot", "convolution")]
    assert min(needs.useful(node).share for node in products) == pytest.approx(share)


def test_pairs_of_two_counters():
    """0 … 5 and 0 … 9, of which no values are computed where there are many."""
    ways = {"LT": 39, "LE": 45, "GT": 15, "GE": 21, "EQ": 6, "NE": 54}
    assert {way: _pairs(np.arange(6), np.arange(10), way) for way in ways} == ways


# --- random programs ------------------------------------------------------------------------------


def marks(graph):
    """Yield the nodes of a program's values, and their numbers."""
    for node in graph.nodes:
        found = re.search(rf"{MARK}(\d+)/", node.op_name)
        if node.op == "reduce-precision" and found:
            yield int(found.group(1)), node


def check(seed):
    """Hold what is said of all values of a random program against what is counted."""
    drawn = Program(seed)
    arguments = drawn.arguments, drawn.places, drawn.flags
    made, results = jax.eval_shape(drawn.values, *arguments)
    weights = np.random.default_rng(seed)
    by = [weights.standard_normal(result.shape) for result in results]

    def weighted(added):
        values, out = drawn.values(*arguments, added)
        return sum((o * w).sum() for o, w in zip(out, by, strict=True)), values

    zeros = [jnp.zeros(value.shape) for value in made]
    (_, values), cotangents = jax.jit(jax.value_and_grad(weighted, has_aux=True))(zeros)
    graph, known, needs = read(written(lambda *given: drawn.values(*given)[1], *arguments))
    checked = 0
    for number, node in marks(graph):
        if node.size:
            checked += 1
            counted = [float((np.asarray(a[number]) != 0).mean()) for a in (cotangents, values)]
            assert needs[node].share >= counted[0] - 1e-6, f"seed {seed}: {node} is needed"
            assert known[node].nonzero.share >= counted[1] - 1e-6, f"seed {seed}: {node} is zero"
    return checked


def test_random_programs():
    assert sum(map(check, range(6))) > 20


@pytest.mark.weekly
def test_more_random_programs():
    assert sum(map(check, range(6, 200))) > 600


# --- time -----------------------------------------------------------------------------------------


def long(instructions):
    """Return a program of many products, slices and sums, one after another."""
    lines = ["  %v0 = f32[64,64]{1,0} parameter(0)"]
    for n in range(1, instructions):
        before = f"%v{n - 1}"
        kinds = (
            f"dot({before}, %v0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"reverse({before}), dimensions={{0}}",
            f"add({before}, %v{n // 2})",
            f"transpose({before}), dimensions={{1,0}}",
        )
        lines.append(f"  %v{n} = f32[64,64]{{1,0}} {kinds[n % len(kinds)]}")
    lines.append(
        f"  ROOT %r = f32[1,64]{{1,0}} slice(%v{instructions - 1}), slice={{[3:4], [0:64]}}"
    )
    return program("\n".join(lines))


def seconds(instructions):
    text = long(instructions)
    started = time.process_time()
    read(text)
    return time.process_time() - started


def test_time_is_proportional_to_the_program():
    seconds(100)
    few, many = seconds(1_000), seconds(10_000)
    assert many < 40 * few  # as the square of its length it would take 100 times as long
    assert many < 20


@pytest.mark.parametrize(("start", "limit"), [(30, "slice"), (60, "select")])
def test_what_reads_a_part_is_a_slice_or_a_mask_and_no_smaller_difference(start, limit):
    """Of 100, a mask leaves 90: before a slice from 30 that is 7/6 of its part, from 60 on 4/3."""

    def masked(x):
        return jnp.where(jnp.arange(100) < 90, jnp.tanh(x), 0.0)[start:]

    graph, _, needs = read(written(masked, jnp.ones(100)))
    (tanh,) = (node for node in graph.nodes if node.op == "tanh")
    assert needs.limit(tanh).op == limit
