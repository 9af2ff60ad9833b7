"""What is known of a program's values, and what is needed of them: never less than is."""

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo_texts import ADD, program
from random_programs import MARK, Program

from roofline.xla.facts import facts_of
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


# --- single operations: what is needed of their operands, and what is known of their values -------

X = "x = f32[6,10] parameter(0)\n"
ROWS = "\ny = f32[2,10] slice(t), slice={[1:3], [0:10]}"  # of what t is
BELOW_7 = """n = s32[6,10] iota(), iota_dimension=1
k = s32[] constant(7)
s = s32[6,10] broadcast(k), dimensions={}
c = pred[6,10] compare(n, s), direction=LT
"""
V = f"{X}v = f32[6,10] parameter(1)\n{BELOW_7}g = f32[6,10] convert(c)\n"


def hlo(lines):
    """Return a program whose last line is its result."""
    *before, last = lines.splitlines()
    return program("\n".join([*(f"  {line}" for line in before), f"  ROOT {last}"]), ADD)


@pytest.mark.parametrize(
    ("lines", "elements"),
    [
        (
            f"{X}t = f32[10,6] transpose(x), dimensions={{1,0}}\n"
            "y = f32[10,2] slice(t), slice={[0:10], [1:3]}",
            [20],
        ),
        (
            f"{X}w = f32[10,8] parameter(1)\nt = f32[6,10] reverse(x), dimensions={{0}}\n"
            "r = f32[2,10] slice(t), slice={[0:2], [0:10]}\n"
            "s = f32[2,10] slice(x), slice={[3:5], [0:10]}\ny = f32[2,10] add(r, s)",
            [30, 0],
        ),
        (
            f"{X}t = f32[6,7,10] broadcast(x), dimensions={{0,2}}\n"
            "y = f32[6,2,3] slice(t), slice={[0:6], [1:3], [4:7]}",
            [18],
        ),
        (f"{X}t = f32[60] reshape(x)\ny = f32[20] slice(t), slice={{[10:30]}}", [20]),
        (
            f"{X}z = f32[] constant(0)\nt = f32[9,21] pad(x, z), padding=1_2x2_0_1\n"
            "y = f32[3,21] slice(t), slice={[0:3], [0:21]}",
            [20],
        ),
        (
            f"{X}i = s32[] parameter(1)\n"
            "t = f32[2,10] dynamic-slice(x, i, i), dynamic_slice_sizes={2,10}\n"
            "y = f32[2,3] slice(t), slice={[0:2], [4:7]}",
            [6, 1],
        ),
        (
            f"{X}w = f32[6,4] parameter(1)\nt = f32[6,14] concatenate(x, w), dimensions={{1}}\n"
            "y = f32[6,5] slice(t), slice={[0:6], [7:12]}",
            [18, 12],
        ),
        (
            f"{X}z = f32[] constant(0)\nt = f32[6] reduce(x, z), dimensions={{1}}, to_apply=%add\n"
            "y = f32[2] slice(t), slice={[1:3]}",
            [20],
        ),
        (
            f"{X}t = f32[6,10] sort(x), dimensions={{1}}, to_apply=%add\n"
            "y = f32[2,1] slice(t), slice={[1:3], [0:1]}",
            [20],
        ),
        (
            "x = c64[4,6,8] parameter(0)\nt = c64[4,6,8] fft(x), fft_type=FFT, fft_length={8}\n"
            "y = c64[4,2,1] slice(t), slice={[0:4], [1:3], [0:1]}",
            [4 * 2 * 8],
        ),
        (
            "x = f32[4,8,8] parameter(0)\nt = f32[4,8,8] cholesky(x)\n"
            "y = f32[3,1,1] slice(t), slice={[0:3], [0:1], [0:1]}",
            [3 * 8 * 8],
        ),
        (
            f"{X}i = s32[4,1] parameter(1)\nt = f32[4,10] gather(x, i), offset_dims={{1}}, "
            "collapsed_slice_dims={0}, index_vector_dim=1, slice_sizes={1,10}\n"
            "y = f32[3,5] slice(t), slice={[1:4], [2:7]}",
            [3 * 5, 4],
        ),
        (
            f"{X}u = f32[6,3] parameter(1)\ni = s32[] parameter(2)\n"
            f"t = f32[6,10] dynamic-update-slice(x, u, i, i){ROWS}",
            [20, 6, 1],
        ),
        (
            f"{X}i = s32[3,1] parameter(1)\nu = f32[3,10] parameter(2)\n"
            "t = f32[6,10] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
            f"index_vector_dim=1, to_apply=%add{ROWS}",
            [20, 3, 30],
        ),
        (
            f"{V}a = f32[6,10] multiply(x, g)\nb = f32[6,10] divide(g, v)\ny = f32[6,10] add(a, b)",
            [42, 42],
        ),
        (f"{V}y = f32[6,10] select(c, x, v)", [42, 18]),
        (
            f"{X}w = f32[10,8] parameter(1)\nt = f32[6,8] dot(x, w), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}\ny = f32[2,3] slice(t), slice={[1:3], [2:5]}",
            [20, 30],
        ),
        (
            "x = f32[4,6,10] parameter(0)\nw = f32[10,8,4] parameter(1)\n"
            "t = f32[4,6,8] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={2}, "
            "lhs_contracting_dims={2}, rhs_contracting_dims={0}\n"
            "y = f32[3,2,5] slice(t), slice={[0:3], [1:3], [2:7]}",
            [3 * 2 * 10, 10 * 5 * 3],
        ),
        (
            "x = f32[4,9,3] parameter(0)\nw = f32[2,3,7] parameter(1)\n"
            "t = f32[4,8,7] convolution(x, w), window={size=2}, dim_labels=b0f_0io->b0f\n"
            "y = f32[3,1,5] slice(t), slice={[0:3], [0:1], [1:6]}",
            [3 * 9 * 3, 2 * 3 * 5],
        ),
        (
            "x = f32[4,9,3] parameter(0)\nw = f32[1,3,7] parameter(1)\n"
            "t = f32[4,9,7] convolution(x, w), window={size=1}, dim_labels=b0f_0io->b0f\n"
            "y = f32[3,2,5] slice(t), slice={[0:3], [0:2], [1:6]}",
            [3 * 2 * 3, 3 * 5],
        ),
    ],
)
def test_elements_that_are_needed_of_each_argument(lines, elements):
    graph, _, needs = read(hlo(lines))
    assert [needs[node].elements for node in graph.parameters] == pytest.approx(elements)


COUNTERS = f"n = s32[6,10] iota(), iota_dimension=0\nm = s32[6,10] iota(), iota_dimension=1\n{X}"


@pytest.mark.parametrize(
    ("lines", "nonzero", "varies", "distinct", "most", "zeros"),
    [
        *(
            (f"{COUNTERS}y = pred[6,10] compare(n, m), direction={way}", *counts, "compare")
            for way, counts in {  # pairs of 0 … 5 and 0 … 9
                "LT": (39, {0, 1}, 60, {1: 9}),
                "LE": (45, {0, 1}, 60, {}),
                "GT": (15, {0, 1}, 60, {0: 5, 1: 5}),
                "GE": (21, {0, 1}, 60, {1: 6}),
                "EQ": (6, {0, 1}, 60, {0: 1, 1: 1}),
                "NE": (54, {0, 1}, 60, {1: 9}),
            }.items()
        ),
        (f"{V}y = f32[6,10] multiply(g, x)", 42, {0, 1}, 60, {1: 7}, "compare"),
        (
            "i = s32[6] parameter(0)\nm = s32[6,10] iota(), iota_dimension=1\n"
            "s = s32[6,10] broadcast(i), dimensions={0}\n"
            "c = pred[6,10] compare(s, m), direction=EQ\n"
            "y = pred[10,6] transpose(c), dimensions={1,0}",
            *(6, {0, 1}, 60, {0: 1}, "compare"),
        ),
        (
            f"{X}z = f32[] constant(0)\np = f32[9,21] pad(x, z), padding=1_2x2_0_1\n"
            "y = f32[9,21] tanh(p)",
            *(60, {0, 1}, 189, {}, "pad"),
        ),
        (
            f"{X}z = f32[] constant(0)\nb = f32[6,4] broadcast(z), dimensions={{}}\n"
            "p = f32[6,24] concatenate(x, b, x), dimensions={1}\n"
            "y = f32[6,8] slice(p), slice={[0:6], [4:20:2]}",
            *(6 * 6, {0, 1}, 48, {}, "broadcast"),
        ),
        (
            "x = f32[] parameter(0)\nb = f32[6,10] broadcast(x), dimensions={}\n"
            "r = f32[60] reshape(b)\ny = f32[60] negate(r)",
            *(60, set(), 1, {}, None),
        ),
        (
            "v = f32[10] parameter(0)\nb = f32[6,10] broadcast(v), dimensions={1}\n"
            "y = f32[6,10] multiply(b, b)",
            *(60, {1}, 10, {}, None),
        ),
    ],
)
def test_what_is_known_of_a_value(lines, nonzero, varies, distinct, most, zeros):
    graph, known, _ = read(hlo(lines))
    facts = known[graph.results[0]]
    assert facts.nonzero.elements == pytest.approx(nonzero)
    if facts.values is not None and graph.results[0].dtype == "pred":
        assert facts.false.elements == 60 - nonzero
    assert (set(facts.varies), facts.distinct, facts.most) == (varies, distinct, most)
    assert (facts.zeros and facts.zeros.op) == zeros


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
    assert many < 25 * few
    assert many < 20


def test_a_scalar_zero_is_zero_wherever_it_is_spread() -> None:
    _, known, _ = read("""HloModule t

ENTRY %main (x: f32[]) -> bf16[4,8] {
  %x = f32[] parameter(0)
  %zero = f32[] constant(0)
  %narrow = bf16[] convert(%zero)
  ROOT %spread = bf16[4,8]{1,0} broadcast(%narrow), dimensions={}
}
""")
    (spread,) = (node for node in known.graph.nodes if node.op == "broadcast")
    assert known[spread].nonzero.share == 0.0


@pytest.mark.parametrize(("start", "limit"), [(30, "slice"), (60, "select")])
def test_what_reads_a_part_is_a_slice_or_a_mask_and_no_smaller_difference(start, limit):
    """Of 100, a mask leaves 90: before a slice from 30 that is 7/6 of its part, from 60 on 4/3."""

    def masked(x):
        return jnp.where(jnp.arange(100) < 90, jnp.tanh(x), 0.0)[start:]

    graph, _, needs = read(written(masked, jnp.ones(100)))
    (tanh,) = (node for node in graph.nodes if node.op == "tanh")
    assert needs.limit(tanh).op == limit
