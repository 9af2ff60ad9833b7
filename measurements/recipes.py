"""Published training steps as programs, compiled by XLA for their slices: the third prediction.

    python -m measurements.recipes KEY…    compile, and write roofline/data/compiled

A row of `data/published` with a `program` names what the program needs besides. The model is the
page of JAX of its chapter, read from the notebook; what a recipe has besides is here:
results with names, so that some are kept, moved to the host or computed again; types; a loss that
keeps no logits in fp32; mixtures of experts by seats and masks. Each takes minutes and about 2 GB.

Source of the mixture: MaxText's `dense_matmul` with a capacity factor (layers/moe.py).
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import nbformat
from jax.ad_checkpoint import checkpoint_name as named
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import roofline_helpers as rh
from roofline import storage, validation, xla
from roofline.validation import PublishedStep
from roofline.xla import DoesNotFit, Report
from roofline.xla.analysis import refusal_recorded
from roofline_helpers.models import Decoder
from tools import books
from tools.notebooks.records import COMPILED
from tools.notebooks.run import TITLE

CHAPTER = books.ROOT / "notebooks/step-without-chips.ipynb"
MESH, FIRST, LAST = "def mesh_of", "LLAMA =", "BATCH, SEQ ="
NAMES = ("input", "qkv", "attention", "output", "up")
"""Results of a layer that a backward pass may keep, by the product that makes them."""

Feed = Callable[[Any, Any], Any]


def page(model: Decoder) -> SimpleNamespace:
    """Return what the chapter's page of JAX defines, for any dense decoder's widths."""
    cells = nbformat.read(CHAPTER, as_version=4).cells
    code = [TITLE.sub("", cell.source) for cell in cells if cell.cell_type == "code"]
    mesh, first, last = (
        next(at for at, text in enumerate(code) if text.startswith(start))
        for start in (MESH, FIRST, LAST)
    )
    names: dict[str, Any] = {
        **{"jax": jax, "jnp": jnp, "rh": rh, "P": P, "NamedSharding": NamedSharding},
        "functools": SimpleNamespace(partial=partial),
        "models": SimpleNamespace(model=lambda name: model),
    }
    for text in (code[mesh], *code[first : last + 1]):
        exec(compile(text, CHAPTER.name, "exec"), names)
    return SimpleNamespace(**names)


def weights(of: SimpleNamespace, model: Decoder) -> dict[str, Any]:
    """Return every weight's shape and where it is split, as the page has them."""
    if not model.experts:
        return dict(of.WEIGHTS)
    layers = model.layers
    width = model.d_model
    inner = model.experts.d_ff
    count = model.experts.count
    own = {
        "router": ((layers, width, count), P(None, "fsdp")),
        "gate": ((layers, count, width, inner), P(None, None, "fsdp", "tensor")),
        "up": ((layers, count, width, inner), P(None, None, "fsdp", "tensor")),
        "down": ((layers, count, inner, width), P(None, None, "tensor", "fsdp")),
    }
    return {**of.WEIGHTS, "layers": {**of.WEIGHTS["layers"], **own}}


def dense(of: SimpleNamespace, mesh: Any, y: Any, w: Mapping[str, Any]) -> Any:
    """Return the feed-forward of a dense layer."""
    wide = partial(of.put, mesh, of.BY_WIDTH)
    gate, up = (named(wide(y @ w[name]), "up") for name in ("gate", "up"))
    return (jax.nn.silu(gate) * up) @ w["down"]


def mixture(
    of: SimpleNamespace,
    mesh: Any,
    model: Decoder,
    capacity: float,
    y: Any,
    w: Mapping[str, Any],
) -> Any:
    """Return the feed-forward of experts: tokens to their seats by a product, and back."""
    assert model.experts is not None
    batch, seq, _ = y.shape
    count = model.experts.count
    active = model.experts.active
    seats = int(capacity * seq * active / count)
    best, which = jax.lax.top_k((y @ w["router"]).astype(jnp.float32), active)
    share = jax.nn.softmax(best, -1)
    chosen = jax.nn.one_hot(which, count, dtype=jnp.int32)
    queue = chosen.reshape(batch, seq * active, count)
    place = (jnp.cumsum(queue, 1) * queue).reshape(chosen.shape).sum(2)  # from 1; 0 is no seat
    seat = jax.nn.one_hot(place - 1, seats, dtype=y.dtype)
    weighed = jnp.sum(chosen * share[..., None], 2)[..., None].astype(y.dtype) * seat
    at_home = partial(of.put, mesh, P(None, "fsdp"))
    wide = partial(of.put, mesh, P(None, "fsdp", None, "tensor"))
    inside = at_home(jnp.einsum("bsd,bsec->ebcd", y, seat))
    gate, up = (
        named(wide(jnp.einsum("ebcd,edf->ebcf", inside, w[name])), "up") for name in ("gate", "up")
    )
    out = at_home(jnp.einsum("ebcf,efd->ebcd", jax.nn.silu(gate) * up, w["down"]))
    return jnp.einsum("ebcd,bsec->bsd", out, weighed)


def layer(
    of: SimpleNamespace,
    mesh: Any,
    feed: Feed,
    x: Any,
    w: Mapping[str, Any],
) -> Any:
    """Return the page's layer, its results named."""
    whole = partial(of.put, mesh, of.BATCH_ONLY)
    wide = partial(of.put, mesh, of.BY_WIDTH)
    cut = partial(of.put, mesh, of.BY_SEQUENCE)
    x = named(x, "input")
    y = whole(of.norm(x, w["norm1"]))
    q, k, v = (wide(y @ w[name]) for name in "qkv")
    heads = (*y.shape[:2], -1, of.HEAD)
    q, k, v = (z.reshape(heads).swapaxes(1, 2) for z in (q, k, v))
    q, k, v = (named(z, "qkv") for z in (of.rotate(q), of.rotate(k), v))
    y = of.attend(mesh, q, k, v).swapaxes(1, 2).reshape(*x.shape[:2], -1)
    x = x + named(cut(named(y, "attention") @ w["o"]), "output")
    return x + cut(feed(whole(of.norm(x, w["norm2"])), w))


def kept(recompute: tuple[str, ...], offload: tuple[str, ...]) -> Any:
    """Return the policy by which a backward pass has what it needs."""
    names = [name for name in NAMES if name not in recompute]
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[name for name in names if name not in offload],
        names_which_can_be_offloaded=[name for name in names if name in offload],
        offload_src="device",
        offload_dst="pinned_host",
    )


def loss(
    of: SimpleNamespace,
    mesh: Any,
    feed: Any,
    policy: Any,
    weights: Any,
    tokens: Any,
) -> Any:
    """Return the loss of a batch: each token's next one by its logits."""
    w = jax.tree.map(lambda x: x.astype(jnp.bfloat16), weights)
    x = of.put(mesh, of.BY_SEQUENCE, w["embedding"][tokens])
    again = jax.checkpoint(partial(layer, of, mesh, partial(feed, of, mesh)), policy=policy)
    x, _ = jax.lax.scan(lambda x, w: (again(x, w), None), x, w["layers"])
    logits = of.put(mesh, of.BY_WIDTH, of.norm(x, w["norm"]) @ w["head"]).astype(jnp.float32)
    words = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    following = jnp.roll(tokens, -1, 1)[..., None]
    right = jnp.sum(jnp.where(words == following, logits, 0.0), -1)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - right)


def step(value_of: Callable[..., Any], state: Any, tokens: Any) -> Any:
    """Return weights and Adam's moments after a step, each in its own type, and the loss."""
    w, m, s = state
    value, g = jax.value_and_grad(value_of)(w, tokens)

    def mixed(share: float, old: Any, new: Any) -> Any:
        wide = share * old.astype(jnp.float32) + (1 - share) * new.astype(jnp.float32)
        return wide.astype(old.dtype)

    m = jax.tree.map(partial(mixed, 0.9), m, g)
    s = jax.tree.map(lambda s, g: mixed(0.95, s, jnp.square(g.astype(jnp.float32))), s, g)

    def moved(w: Any, m: Any, s: Any) -> Any:
        m = m.astype(jnp.float32)
        s = s.astype(jnp.float32)
        return (w.astype(jnp.float32) - 1e-4 * m / (s**0.5 + 1e-8)).astype(w.dtype)

    return (jax.tree.map(moved, w, m, s), m, s), value


def program(one: PublishedStep) -> tuple[Any, tuple[Any, ...]]:
    """Return the step of a row, and its arguments: shapes and where they are split."""
    assert one.recipe is not None
    model = one.model
    setting = one.published.setting
    plain = dataclasses.replace(model, experts=None)
    of = page(plain)
    mesh = of.mesh_of(fsdp=one.mesh["fsdp"], tensor=one.mesh.get("tensor", 1))
    feed: Any = dense
    if model.experts:
        assert setting.capacity is not None
        feed = lambda of, mesh, y, w: mixture(of, mesh, model, setting.capacity, y, w)  # noqa: E731
    policy = kept(setting.recompute, tuple(one.recipe["offload"]))
    types = {"bf16": jnp.bfloat16, "fp32": jnp.float32}

    def shaped(dtype: Any) -> Any:
        def at(entry: Any) -> Any:
            shape, spec = entry
            return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

        return jax.tree.map(at, weights(of, model), is_leaf=lambda x: isinstance(x, tuple))

    own = types[setting.weights]
    first = types[one.recipe.get("moment", setting.weights)]
    state = shaped(own), shaped(first), shaped(own)
    place = NamedSharding(mesh, P("fsdp"))
    tokens = jax.ShapeDtypeStruct((one.batch, one.seq), jnp.int32, sharding=place)
    return partial(step, partial(loss, of, mesh, feed, policy)), (state, tokens)


def brief(report: Report) -> str:
    """Return the text of a record that predicts: counts a kernel, memory, and what compiling took.

    Lines of this file would be of no use to a reader, so there are none.
    """
    rows = tuple(dataclasses.replace(row, source=None) for row in report.rows)
    text = json.loads(dataclasses.replace(report, rows=rows).to_json(brief=True))
    return storage.dumps({**text, "notes": list(report.notes[-1:])})


def keep(one: PublishedStep) -> None:
    """Compile a row's step, and write its record, or what the compiler said."""
    fn, arguments = program(one)
    options: dict[str, Any] = {"chip": one.chip, "topology": one.shape, "donate_argnums": 0}
    try:
        with refusal_recorded(one.record, one.chip, COMPILED):
            report = xla.analyze(fn, *arguments, name="step", **options)
    except DoesNotFit as error:
        print(f"{one.key}: {error}")
        return
    storage.write(COMPILED / f"{one.record}.{one.chip}.json", brief(report))
    print(f"{one.key}: {report.notes[-1]}")


if __name__ == "__main__":
    for key in sys.argv[1:]:
        row = validation.published_step(key)
        assert isinstance(row, PublishedStep)
        keep(row)
