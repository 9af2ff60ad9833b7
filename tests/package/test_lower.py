"""One way in: what `analyze`, `explain` and `measure` take, and that no work is lost on the way."""

import functools

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiled_reports import needs
from flax import nnx
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from roofline import xla
from roofline.diagnosis import explain
from roofline_helpers.common.checks import BadType, BadValue

N, ROWS = 512, 256
ONE = 2 * ROWS * N * 4 * N
STEP = 5 * ONE
"""FLOPs of a training step: two products forward, and of the backward pass all but one."""

FAST = {"seconds": 0.05, "progress": False, "ceilings": None}


class Block(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.up, self.down = nnx.Linear(N, 4 * N, rngs=rngs), nnx.Linear(4 * N, N, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


def nnx_step(model, optimiser, x, y):
    """Train in the style of NNX: it changes its arguments, and returns the loss alone."""
    loss, gradient = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
    optimiser.update(model, gradient)
    return loss


def of_nnx():
    model = Block()
    optimiser = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    return model, optimiser, jnp.ones((ROWS, N)), jnp.ones((ROWS, N))


ADAM = optax.adam(1e-3)


def equinox_step(model, state, x, y):
    """Train in the style of Equinox: it returns a module, activation function and all."""

    def loss(model):
        return ((jax.vmap(model)(x) - y) ** 2).mean()

    value, gradient = equinox.filter_value_and_grad(loss)(model)
    updates, state = ADAM.update(gradient, state, model)
    return equinox.apply_updates(model, updates), state, value


def of_equinox():
    model = equinox.nn.MLP(N, N, 4 * N, 1, key=jax.random.key(0))
    state = ADAM.init(equinox.filter(model, equinox.is_array))
    return model, state, jnp.ones((ROWS, N)), jnp.ones((ROWS, N))


STEPS = {
    "NNX, plain": (nnx_step, of_nnx),
    "NNX, nnx.jit": (nnx.jit(nnx_step), of_nnx),
    "NNX, donating": (nnx.jit(nnx_step, donate_argnums=(0, 1)), of_nnx),
    "Equinox, plain": (equinox_step, of_equinox),
    "Equinox, filter_jit": (equinox.filter_jit(equinox_step), of_equinox),
    "Equinox, donating": (equinox.filter_jit(equinox_step, donate="all"), of_equinox),
}
DAILY = {"NNX, plain", "Equinox, filter_jit"}
steps = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in DAILY else pytest.mark.weekly) for name in STEPS],
)


# --- training steps that nobody has to rewrite ----------------------------------------------------


@steps
def test_a_training_step_is_counted_whole(name):
    needs("v6e")
    fn, make = STEPS[name]
    report = xla.analyze(fn, *make(), chip="v6e")
    assert report.matrix_flops == report.requested_flops == STEP
    assert "of matmuls in this function" not in report.describe()
    weights = 4 * 2 * 4 * N * N
    moments_too = 3 * weights  # parameters and both moments of Adam
    assert report.memory.arguments > moments_too
    assert report.memory.results > moments_too
    assert (report.memory.aliased > moments_too) == ("donating" in name)


@steps
def test_a_training_step_is_explained_here_and_leaves_its_arguments(name):
    fn, make = STEPS[name]
    arguments = make()
    before = [jnp.array(leaf) for leaf in jax.tree.leaves(arguments) if hasattr(leaf, "shape")]
    why = explain(fn, *arguments, **FAST)
    assert sum(row.matrix_flops for row in why.rows) == pytest.approx(STEP, rel=0.01)
    after = [leaf for leaf in jax.tree.leaves(arguments) if hasattr(leaf, "shape")]
    assert all((old == new).all() for old, new in zip(before, after, strict=True))


# --- what the caller calls is what is lowered -----------------------------------------------------


def dense(x, w):
    return jnp.tanh(x @ w)


class Adapter:
    """Calls a function of rows for each of them, and lowers the function itself."""

    def __init__(self, fn):
        self.fn = jax.jit(fn)
        functools.update_wrapper(self, fn)

    def __call__(self, x, w):
        return jax.vmap(self.fn, (0, None))(x, w)

    def lower(self, x, w):
        return self.fn.lower(x[0], w)


class Twice(Adapter):
    def __call__(self, x, w):
        return self.fn(self.fn(x, w), w)


class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def apply(self, x, w):
        return dense(x, w)


def decorated(fn):
    @functools.wraps(fn)
    def each(x, w):
        return jax.vmap(fn, (0, None))(x, w)

    each.lower = jax.jit(fn).lower
    return each


BATCH, SIDE = 8, 64
ARRAYS = jnp.ones((BATCH, SIDE, SIDE)), jnp.ones((SIDE, SIDE))


@pytest.mark.parametrize(
    ("fn", "products"),
    [
        (Adapter(dense), BATCH),
        (Twice(dense), 2 * BATCH),
        (decorated(dense), BATCH),
        (Model().apply, BATCH),
        (functools.partial(jax.jit(dense)), BATCH),
        (equinox.filter_jit(dense), BATCH),
        (equinox.filter_jit(Twice(dense)), 2 * BATCH),
        (nnx.jit(dense), BATCH),
    ],
)
def test_what_the_caller_calls_is_what_is_lowered(fn, products):
    report = xla.analyze(fn, *ARRAYS)
    assert report.matrix_flops == products * 2 * SIDE**3
    assert report.requested_flops in (None, report.matrix_flops)


# --- work that vanished ---------------------------------------------------------------------------


def test_work_that_nothing_returns_is_told():
    needs("v6e")
    model, optimiser, x, y = of_nnx()
    report = xla.analyze(jax.jit(nnx_step), model, optimiser, x, y, chip="v6e")
    assert (report.requested_flops, report.matrix_flops) == (STEP, 2 * ONE)
    said = "60% of the 2.68 GFLOP of matmuls in this function are NOT in the compiled program"
    for shown in (report.describe(), report._repr_html_(), report.to_json()):
        assert said in shown
    assert any(said in note for note in report.table().attrs["notes"])
    why = explain(jax.jit(nnx_step), model, optimiser, x, y, **FAST)
    for shown in (why.describe(), why._repr_html_(), why.to_json()):
        assert said in shown


# --- what a function closes over ------------------------------------------------------------------

TABLE = jnp.asarray(np.random.default_rng(0).random((1024, 512), np.float32))
WEIGHTS = {"up": TABLE * 2, "small": TABLE[:2]}


def closing_over():
    inner = TABLE + 2
    return lambda x: jax.jit(lambda x: x @ inner)(x)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (lambda x: x @ TABLE, "TABLE"),
        (jax.jit(lambda x: x @ WEIGHTS["up"] + WEIGHTS["small"][0]), "WEIGHTS['up']"),
        (functools.partial(lambda times, x: times * x @ TABLE, 3), "TABLE"),
        (closing_over(), "inner"),
        (lambda x: x @ np.ones((1024, 512), np.float32), "an array"),
    ],
)
def test_a_large_array_that_is_closed_over_is_named(fn, name):
    [note] = [note for note in xla.analyze(fn, jnp.ones((8, 1024))).notes if "closed over" in note]
    assert note.startswith(f"{name}, f32[1024,512] (2.1 MB) is closed over, and not passed")
    assert note.endswith("Pass it as an argument")


# --- executables, slices, keyword arguments -------------------------------------------------------


def test_an_executable_for_a_chip_is_explained_as_that_chip_s_only():
    needs("v6e")
    device = topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2").devices[0]
    x = jax.ShapeDtypeStruct((N, N), jnp.float32, sharding=SingleDeviceSharding(device))
    executable = jax.jit(lambda x: x @ x).lower(x).compile()
    with pytest.raises(BadValue, match=r"v6e.*v5p"):
        xla.analyze(executable, chip="v5p")
    assert xla.analyze(executable, chip="v6e").target == "v6e"
    assert explain(executable, chip="v6e", progress=False).target == "v6e"
    with pytest.raises(BadValue, match="chip='v6e'"):
        explain(executable, jnp.ones((N, N)), **FAST)


def test_keyword_arguments_are_explained():
    def power(x, *, times):
        for _ in range(times):
            x = x @ x
        return x

    x = jnp.ones((256, 256))
    why = explain(power, x, times=3, static_argnames="times", **FAST)
    assert sum(row.matrix_flops for row in why.rows) == 3 * 2 * 256**3
    with pytest.raises(BadType, match=r"seconds=2.*explain"):
        explain(lambda x, seconds: x * seconds, x, seconds=2)


def test_a_chip_that_contradicts_an_executable_is_refused():
    executable = jax.jit(lambda x: x @ x).lower(jnp.ones((64, 64))).compile()
    for way in (xla.analyze, functools.partial(explain, progress=False)):
        with pytest.raises(BadValue, match=r"cpu.*v5e"):
            way(executable, chip="v5e")
