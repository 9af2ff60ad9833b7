"""The cheapest order of products, against another implementation, on chains and trees drawn."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opt_einsum
import pytest

from roofline.xla.facts import facts_of
from roofline.xla.graph import Graph
from roofline.xla.hlo import parse
from roofline.xla.orders import Tree, trees


def found(f: Any, *shapes: tuple[int, ...]) -> list[Tree]:
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    text = jax.jit(f).lower(*args).compiler_ir("hlo").as_hlo_module().to_string()
    return list(trees(facts_of(Graph(parse(text)))))


def cheapest(terms: str, *shapes: tuple[int, ...]) -> float:
    """Return the multiply-adds of the cheapest order; opt_einsum counts two for each in a sum."""
    _, told = opt_einsum.contract_path(terms, *shapes, shapes=True, optimize="optimal")
    return float(told.opt_cost) / 2


@pytest.mark.parametrize("seed", range(12))
def test_the_cheapest_order_of_a_chain(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = [int(2**n) for n in draw.integers(1, 7, int(draw.integers(4, 7)))]
    shapes = list(pairwise(sizes))

    def chain(*arrays: Any) -> Any:
        left = list(arrays)
        order = np.random.default_rng(seed + 100)
        while len(left) > 1:
            at = int(order.integers(len(left) - 1))
            turned = order.random() < 0.5
            made = (left[at + 1].T @ left[at].T).T if turned else left[at] @ left[at + 1]
            left[at : at + 2] = [-0.5 * made]
        return left[0]

    [tree] = found(chain, *shapes)
    letters = "abcdefgh"
    terms = ",".join(letters[n : n + 2] for n in range(len(shapes)))
    assert len(tree.arrays) == len(shapes)
    assert tree.share * tree.terms == pytest.approx(
        cheapest(f"{terms}->a{letters[len(shapes)]}", *shapes)
    )


def test_a_batch_is_one_order() -> None:
    shapes = ((3, 64, 8), (3, 32, 8), (3, 32, 16))

    def attended(q: Any, k: Any, v: Any) -> Any:
        return jnp.einsum("bts,bsv->btv", jnp.einsum("btd,bsd->bts", q, k), v)

    [tree] = found(attended, *shapes)
    assert tree.terms == 3 * 64 * 32 * (8 + 16)
    assert tree.share * tree.terms == pytest.approx(cheapest("btd,bsd,bsv->btv", *shapes))


def test_what_others_read_or_change_is_in_no_tree() -> None:
    def read_twice(a: Any, b: Any, c: Any) -> Any:
        made = a @ b
        return made, made @ c

    def made_before(a: Any, b: Any, c: Any) -> Any:
        made = a @ b
        return jax.lax.scan(lambda h, _: (made @ h, None), c, None, length=4)[0]

    for f in (read_twice, made_before, lambda a, b, c: jnp.tanh(a @ b) @ c):
        assert not found(f, *((64, 64),) * 3)
