"""Random programs of few operations, each of whose values can be found in their HLO again."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MARK = "value"
"""The scope of a value is this word and its number."""

LEAST, MOST = 2, 6
"""Sizes of axes."""


def marked(value, number):
    """Return a value under an operation of its own, which leaves it as it is."""
    with jax.named_scope(f"{MARK}{number}"):
        return lax.reduce_precision(value, 8, 23)


class Program:
    """A program drawn from a seed: a function of its arguments, and of what is added to values."""

    def __init__(self, seed, operations=9):
        self.seed, self.operations = seed, operations
        draw = np.random.default_rng(seed)
        self.arguments = [
            jnp.asarray(draw.standard_normal(self.sizes(draw, rank)) + 2.0, jnp.float32)
            for rank in (2, 3, 2)
        ]
        self.places = jnp.asarray(draw.integers(0, LEAST, 8))  # which places data choose
        self.flags = jnp.asarray(draw.integers(0, 2, 8) > 0)

    @staticmethod
    def sizes(draw, rank):
        return tuple(int(n) for n in draw.integers(LEAST, MOST + 1, rank))

    def values(self, arguments, places, flags, added=None):
        """Return all values of the program, and its result."""
        draw = np.random.default_rng(self.seed + 1)
        values = list(arguments)
        for number in range(self.operations):
            operation = OPERATIONS[int(draw.integers(len(OPERATIONS)))]
            value = values[-1] if draw.random() < 0.6 else values[int(draw.integers(len(values)))]
            made = marked(operation(value, values, draw, places, flags), number)
            values.append(made if added is None else made + added[number])
        made = values[len(arguments) :]
        kept = [made[-1], made[int(draw.integers(len(made)))]]
        return made, [jnp.sum(jnp.tanh(kept[0]), axis=0), kept[1][..., :1]]


Operation = Callable[[Any, Sequence[Any], np.random.Generator, Any, Any], Any]
OPERATIONS = []


def operation(function):
    OPERATIONS.append(function)
    return function


def some_axis(x, draw):
    return int(draw.integers(x.ndim))


def lifted(x):
    return x.reshape(1, 1) if x.ndim == 0 else x[None] if x.ndim == 1 else x


@operation
def elementwise(x, _, draw, *__):
    functions = jnp.tanh, jnp.exp2, jnp.sin, jax.nn.relu, jnp.square
    return functions[int(draw.integers(len(functions)))](x)


@operation
def softmax(x, _, draw, *__):
    return jax.nn.softmax(lifted(x), axis=some_axis(lifted(x), draw))


@operation
def sliced(x, _, draw, *__):
    x = lifted(x)
    axis = some_axis(x, draw)
    start = int(draw.integers(x.shape[axis]))
    step = int(draw.integers(1, 3))
    return lax.slice_in_dim(x, start, x.shape[axis], step, axis)


@operation
def two_slices(x, _, draw, *__):
    x = lifted(x)
    axis = some_axis(x, draw)
    n = max(x.shape[axis] // 2, 1)
    return lax.slice_in_dim(x, 0, n, 1, axis) * lax.slice_in_dim(
        x, x.shape[axis] - n, None, 1, axis
    )


@operation
def transposed(x, _, draw, *__):
    return jnp.transpose(x, [int(a) for a in draw.permutation(x.ndim)])


@operation
def with_its_transpose(x, _, draw, *__):
    n = min(lifted(x).shape[-2:])
    square = lifted(x)[..., :n, :n]
    return jnp.where(jnp.tril(jnp.ones((n, n), bool)), square, 0) + jnp.swapaxes(square, -1, -2)


@operation
def reshaped(x, _, draw, *__):
    flat = x.reshape(-1)
    n = flat.shape[0]
    sides = [m for m in range(1, n + 1) if n % m == 0]
    first = sides[int(draw.integers(len(sides)))]
    rest = n // first
    more = [m for m in range(1, rest + 1) if rest % m == 0]
    second = more[int(draw.integers(len(more)))]
    return flat.reshape(first, second, rest // second)


@operation
def reversed_or_rolled(x, _, draw, *__):
    x = lifted(x)
    axis = some_axis(x, draw)
    return jnp.flip(x, axis) if draw.random() < 0.5 else jnp.roll(x, 1, axis)


@operation
def padded(x, _, draw, *__):
    edges = [tuple(int(n) for n in draw.integers(0, 3, 3)) for _ in range(x.ndim)]
    edges = [(low, high, inner % 2) for low, high, inner in edges]
    if x.ndim and draw.random() < 0.3 and x.shape[0] > 1:
        edges[0] = (-1, 0, 0)
    return lax.pad(x, jnp.float32(0), edges)


@operation
def joined(x, _, draw, *__):
    x = lifted(x)
    axis = some_axis(x, draw)
    return jnp.concatenate([x, jnp.zeros_like(x), lax.slice_in_dim(x, 0, 1, 1, axis)], axis)


@operation
def masked(x, _, draw, *__):
    x = lifted(x)
    n, m = x.shape[-2:]
    rows, columns = jnp.arange(n)[:, None], jnp.arange(m)
    masks = (
        rows >= columns,
        rows == columns,
        columns < 2,
        jnp.abs(rows - columns) < 2,
        columns % 2 == 0,
        (rows // 2) == (columns // 2),
    )
    mask = masks[int(draw.integers(len(masks)))]
    kinds = draw.random()
    if kinds < 0.4:
        return jnp.where(mask, x, 0.0)
    return x * mask if kinds < 0.7 else jnp.where(mask, jnp.sin(x), jnp.cos(x))


@operation
def chosen_by_data(x, _, draw, places, flags):
    x = lifted(x)
    mask = jnp.resize(flags, x.shape[:1]).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(mask, jnp.tanh(x), 0.5 * x)


@operation
def within_bounds(x, _, draw, places, __):
    x = lifted(x)
    rows = jnp.resize(places, x.shape[:1]).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where((rows >= 0) & (rows <= 5), x, 0.0)


@operation
def in_groups(x, _, draw, places, __):
    x = lifted(x)
    ends = jnp.cumsum(places[:3])
    starts = jnp.concatenate([jnp.zeros(1, ends.dtype), ends[:-1]])
    rows = jnp.arange(x.shape[0])[None]
    mask = (starts[:, None] <= rows) & (rows < ends[:, None])
    return jnp.where(mask.reshape(*mask.shape, *[1] * (x.ndim - 1)), x[None], 0.0)


@operation
def one_hot(x, _, draw, places, __):
    x = lifted(x)
    return jax.nn.one_hot(jnp.resize(places, (4,)), x.shape[-2]) @ x


@operation
def rows_of_an_identity(x, _, draw, places, __):
    x = lifted(x)
    rows = jnp.eye(x.shape[-2])[places[:4] % x.shape[-2]]
    ways = (
        rows,
        jnp.concatenate([rows, 0.5 * rows]),
        jnp.where(places[:4, None] > 0, rows, 0.0),
        rows + jnp.roll(rows, 1, 1),
        rows.reshape(2, 2, -1)[1],
    )
    return ways[int(draw.integers(len(ways)))] @ x


@operation
def gathered(x, _, draw, places, __):
    x = lifted(x)
    axis = some_axis(x, draw)
    return jnp.take(x, places[: int(draw.integers(1, 4))] % x.shape[axis], axis=axis)


@operation
def taken_along(x, _, draw, places, __):
    x = lifted(x)
    at = jnp.resize(places, (*x.shape[:-1], 1)) % x.shape[-1]
    return jnp.take_along_axis(x, at, -1)


@operation
def diagonal(x, _, draw, *__):
    return jnp.diagonal(lifted(x), axis1=-2, axis2=-1)


@operation
def picked(x, _, draw, places, __):
    x = lifted(x)
    axis = some_axis(x, draw)
    return lax.dynamic_slice_in_dim(x, places[0], 1, axis)


@operation
def updated(x, _, draw, places, __):
    x = lifted(x)
    axis = some_axis(x, draw)
    new = jnp.sin(lax.slice_in_dim(x, 0, 1, 1, axis))
    target = jnp.zeros_like(x) if draw.random() < 0.5 else x
    return lax.dynamic_update_slice_in_dim(target, new, places[1], axis)


@operation
def scattered(x, _, draw, places, __):
    x = lifted(x)
    at = jnp.resize(places, x.shape[:1]) % 3
    return jnp.zeros((x.shape[0] + 1, *x.shape[1:])).at[at].add(x)


@operation
def multiplied(x, values, draw, *__):
    x = lifted(x)
    fitting = [v for v in values if v.ndim >= 1 and x.shape[-1] in v.shape]
    other = fitting[int(draw.integers(len(fitting)))] if fitting else x
    axis = other.shape.index(x.shape[-1])
    return 0.3 * lax.dot_general(x, other, (((x.ndim - 1,), (axis,)), ((), ())))


@operation
def multiplied_in_batches(x, _, draw, *__):
    x = lifted(x)
    return 0.3 * jnp.einsum("...ij,...kj->...ik", x, jnp.cos(x))


@operation
def convolved(x, _, draw, *__):
    x = lifted(x)
    data = x.reshape(1, -1, *x.shape[-2:])
    filters = jnp.ones((2, data.shape[1], 2, 2)) / 4
    stride = int(draw.integers(1, 3))
    return lax.conv_general_dilated(data, filters, (stride, 1), [(1, 1), (1, 1)])[0]


@operation
def reduced(x, _, draw, *__):
    x = lifted(x)
    axis = some_axis(x, draw)
    return jnp.sum(x, axis) if draw.random() < 0.6 else jnp.max(x, axis)


@operation
def summed_up(x, _, draw, *__):
    x = lifted(x)
    return 0.3 * jnp.cumsum(x, axis=some_axis(x, draw))


@operation
def ordered(x, _, draw, *__):
    x = lifted(x)
    return jnp.sort(x, axis=some_axis(x, draw)) if draw.random() < 0.5 else lax.top_k(x, 1)[0]


@operation
def scanned(x, _, draw, *__):
    x = lifted(x)

    def body(carry, row):
        return jnp.tanh(carry + row), 0.5 * carry * row

    last, rows = lax.scan(body, jnp.zeros(x.shape[1:]), x)
    return rows[-1:] if draw.random() < 0.4 else rows + last


@operation
def looped(x, _, draw, places, __):
    x = lifted(x)

    def body(i, value):
        row = lax.dynamic_slice_in_dim(x, i, 1, 0)
        return lax.dynamic_update_slice_in_dim(value, jnp.sin(row), i, 0)

    return lax.fori_loop(0, x.shape[0], body, jnp.zeros_like(x))


@operation
def shifted_in_a_loop(x, _, draw, *__):
    x = lifted(x)

    def body(carry, _):
        return jnp.concatenate([carry[1:], jnp.cos(carry[:1])]), None

    return lax.scan(body, x, None, length=2)[0][:1]


@operation
def branched(x, _, draw, places, flags):
    x = lifted(x)
    return lax.cond(flags[0], lambda x: jnp.sin(x)[:1], lambda x: x[:1] * x[-1:], x)


@operation
def branched_by_example(x, _, draw, places, flags):
    x = lifted(x)
    which = jnp.resize(flags, x.shape[:1])
    return jax.vmap(lambda f, x: lax.cond(f, lambda x: jnp.tanh(x * x), jnp.negative, x))(which, x)
