"""Random programs as the lines that somebody would paste: what a failure prints is what ran."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import jax
from hypothesis import assume

# --- a program ------------------------------------------------------------------------------------

HEAD = "import jax, roofline; from jax import lax, numpy as jnp\n"
TOTAL = (
    "total = lambda f: lambda *args: sum("
    'jnp.sum(jnp.real(y).astype("float32")) for y in jax.tree.leaves(f(*args)))\n'
)
# it changes the arguments from turn to turn, so that nothing can leave the loop
AGAIN = (
    "again = lambda f: lambda *args: lax.fori_loop(0, 5, lambda _, c: c + total(f)(*("
    "a ^ (c > 0) if a.dtype == bool else a + c.astype(a.dtype) for a in args)), jnp.float32(0))\n"
)
SPREAD = "from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P\n"
MAPPED = "jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)"
AROUND = {
    "f": "",
    "jax.jit(f)": "",
    "jax.vmap(f)": "",
    "jax.value_and_grad(total(f))": TOTAL,
    "jax.grad(jax.checkpoint(total(f)))": TOTAL,
    "again(f)": TOTAL + AGAIN,
    MAPPED: "",
}
"""What a function may be wrapped in, and what that needs."""


@dataclass(frozen=True)
class Program:
    """Lines of a function, its arguments, and what is around it; and the axes of a mesh."""

    arguments: tuple[tuple[tuple[int, ...], str, str], ...]  # shape, type, and how it is spread
    lines: tuple[str, ...]
    around: str = "f"
    chip: str | None = None
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def code(self) -> str:
        names, head = [f"a{n}" for n in range(len(self.arguments))], HEAD + AROUND[self.around]
        if self.mesh:
            axes, sizes = zip(*self.mesh, strict=True)
            types = f"(AxisType.Auto,) * {len(axes)}"
            head += f"{SPREAD}mesh = AbstractMesh({sizes}, {axes}, axis_types={types})\n"
        made = ", ".join(self._argument(*argument) for argument in self.arguments)
        results = [line.partition(" ")[0] for line in self.lines]
        body = "".join(f"    {line}\n" for line in self.lines)
        text = f"{head}def f({', '.join(names)}):\n{body}    return {', '.join(results)}\n"
        specs = "".join(f"{spec}, " for *_, spec in self.arguments)
        if self.around == MAPPED:
            return f"{text}args, specs = [{made}], ({specs})\n"
        return f"{text}args = [{made}]\n"

    def _argument(self, shape: tuple[int, ...], dtype: str, spec: str) -> str:
        spread = f", sharding=NamedSharding(mesh, {spec})" if self.mesh else ""
        shape = (3, *shape) if self.around == "jax.vmap(f)" else shape
        return f'jax.ShapeDtypeStruct({shape}, "{dtype}"{spread})'

    def __str__(self) -> str:
        chip = "" if self.chip is None else f', chip="{self.chip}"'
        return f"{self.code}print(roofline.analyze({self.around}, *args{chip}).describe())\n"

    def made(self) -> tuple[Callable[..., Any], list[Any]]:
        """Return the function, and shapes for it."""
        names: dict[str, Any] = {}
        exec(self.code, names)
        return eval(self.around, names), names["args"]


# --- drawing one ----------------------------------------------------------------------------------

FLOATS = ("float32", "bfloat16", "float16")
SMALL = ("float8_e4m3fn", "float8_e5m2", "int4", "int8")
SIDES = (16, 3, 8, 13, 31, 33, 64, 128, 129, 5, 2, 1)


class Maker:
    """Draws choices, and keeps the lines and arguments of a program with the shapes of values."""

    def __init__(self, draw: Callable[[Any], Any], **around: Any) -> None:
        self.draw, self.around = draw, around
        self.arguments: list[tuple[tuple[int, ...], str, str]] = []
        self.lines: list[str] = []
        self.values: dict[str, Any] = {}

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def words(self, text: str) -> str:
        return str(self.pick(*text.split()))

    def whole(self, least: int, most: int) -> int:
        return int(self.draw(st.integers(least, most)))

    def sides(self, rank: int, *sides: int) -> tuple[int, ...]:
        return tuple(self.pick(*(sides or SIDES)) for _ in range(rank))

    def argument(self, shape: Sequence[int], dtype: str, over: Sequence[str] = ()) -> str:
        """Add an argument, whose rows may be spread over axes of the mesh."""
        name, sizes = f"a{len(self.arguments)}", dict(self.around.get("mesh", ()))
        times = math.prod(sizes[axis] for axis in over)
        whole = (times * shape[0], *shape[1:]) if over else tuple(shape)
        self.arguments.append((whole, dtype, f"P({tuple(over)})" if over else "P()"))
        self.values[name] = jax.ShapeDtypeStruct(tuple(shape), dtype)
        return name

    @property
    def program(self) -> Program:
        return Program(tuple(self.arguments), tuple(self.lines), **self.around)

    def like(self, x: str, shape: Sequence[int] | None = None, dtype: str | None = None) -> str:
        """Return another argument, by default of the same shape and type."""
        known = self.values[x]
        return self.argument(known.shape if shape is None else shape, dtype or known.dtype.name)

    def shape(self, x: str) -> tuple[int, ...]:
        return tuple(self.values[x].shape)

    def fitting(self, x: str, rank: int, dtypes: Sequence[str] = FLOATS, most: int = 20_000) -> str:
        """Return a value if it has the rank and a type of these, else an argument that has."""
        known = self.values[x]
        fits = known.ndim == rank and known.dtype.name in dtypes and 1 < known.size <= most
        if fits and min(known.shape) > 0:
            return x
        sides = [side for side in SIDES if side**rank <= most]
        return self.argument(self.sides(rank, *sides), self.pick(*dtypes))

    def some(self, x: str, most: int = 3) -> str:
        """Return a value, or another one of floating-point numbers of one to so many axes."""
        known = self.values[x]
        if 1 <= known.ndim <= most and known.dtype.name in FLOATS and known.size > 1:
            return x
        return self.fitting(x, self.pick(*range(min(most, 2), 0, -1), most))

    def add(self, expression: str) -> str:
        """Add a line, and return the name of its value; a program that JAX refuses is left out."""
        name = f"x{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        fn, args = self.program.made()
        try:
            made = jax.eval_shape(fn, *args)
        except (TypeError, ValueError, NotImplementedError):
            assume(False)
        self.values[name] = made[-1] if isinstance(made, tuple) else made
        return name


Operation = Callable[[Maker, str], str]
FAMILIES: dict[str, Operation] = {}


def family(function: Operation) -> Operation:
    FAMILIES[function.__name__] = function
    return function


@st.composite
def programs(
    draw: Any, families: Sequence[str] = (), steps: int = 3, chip: str | None = None
) -> Program:
    """Return a program of some operations, each of the value before or of new arguments."""
    maker = Maker(draw, chip=chip)
    shape = maker.sides(maker.pick(2, 1, 3), 16, 33, 5, 8, 2)
    value = maker.argument(shape, maker.pick(*FLOATS[:2]))
    for _ in range(maker.whole(1, steps)):
        operation = FAMILIES[maker.pick(*(families or FAMILIES))]
        value = maker.add(operation(maker, value))
        if maker.values[value].ndim > 4 or maker.values[value].size > 200_000:
            break
    around = maker.pick(*(way for way in AROUND if way != MAPPED)) if steps > 1 else "f"
    program = replace(maker.program, around=around)
    fn, args = program.made()
    try:
        jax.eval_shape(fn, *args)
    except (TypeError, ValueError, NotImplementedError):
        assume(False)
    return program


@st.composite
def spread_programs(draw: Any, chip: str = "v6e-8", steps: int = 3) -> Program:
    """Return a program that is written for one device of a mesh, with what it sends to others."""
    mesh = draw(st.sampled_from(((("x", 8),), (("x", 2), ("y", 4)), (("x", 4), ("y", 2)))))
    maker = Maker(draw, chip=chip, mesh=mesh, around=MAPPED)
    names = tuple(name for name, _ in mesh)
    value = maker.argument((16, 64), maker.pick("float32", "bfloat16"), names)
    for _ in range(maker.whole(1, steps)):
        value = maker.add(exchanged(maker, value, dict(mesh)))
    return maker.program


def exchanged(m: Maker, x: str, sizes: Mapping[str, int]) -> str:
    axis = m.pick(*sizes)
    n, shape = sizes[axis], m.shape(x)
    over = repr(m.pick(axis, tuple(sizes)))
    norm = f"lax.psum(jnp.sum(c * c), {over})"
    ring = f"[(i, (i + {m.whole(0, n - 1)}) % {n}) for i in range({n})]"
    ways = {
        "sum": f"lax.psum({x}, {over})",
        "norm": f"(lambda c: c / {norm})({x})",
        "most": f"lax.pmax({x}.max(), {over}) * {x}",
        "gather": f"lax.all_gather({x}, {axis!r}, tiled=True)",
        "pass": f"lax.ppermute({x}, {axis!r}, {ring})",
        "norms": f"lax.fori_loop(0, 5, lambda _, c: c / {norm}, {x})",
        "passes": f"lax.fori_loop(0, 3, lambda _, c: 2 * lax.ppermute(c, {axis!r}, {ring}), {x})",
    }
    if shape[0] % n == 0 and shape[1] % n == 0:
        ways["scatter"] = f"lax.psum_scatter({x}, {axis!r}, tiled=True)"
        ways["all"] = f"lax.all_to_all({x}, {axis!r}, 0, 1, tiled=True)"
    way = m.pick("product", *ways)
    return ways[way] if way in ways else f"jnp.tanh({x} @ {m.like(x, (shape[1], 64))})"


# --- operations -----------------------------------------------------------------------------------


@family
def one_operand(m: Maker, x: str) -> str:
    return (
        f"lax.{m.words('tanh exp sin neg sqrt rsqrt abs floor logistic erf expm1 log1p cbrt tan')}"
        f"({m.some(x)})"
    )


@family
def two_operands(m: Maker, x: str) -> str:
    x = m.some(x)
    op = m.words("add sub mul div max min pow atan2 rem nextafter lt eq")
    return f"lax.{op}({x}, {m.like(x)})"


@family
def whole_numbers(m: Maker, x: str) -> str:
    x = m.fitting(x, 2, ("int32", "int8", "uint32", "int16"))
    op = m.words("add mul div rem bitwise_and shift_left shift_right_logical max")
    return f"lax.{op}({x}, {m.like(x)})"


@family
def complex_numbers(m: Maker, x: str) -> str:
    x = m.fitting(x, 2, ("complex64",), 2_000)
    op = m.words("exp log tanh sqrt abs neg real conj")
    return f"lax.{op}({x})" if m.whole(0, 1) else f"lax.{m.words('add mul div')}({x}, {m.like(x)})"


@family
def choice(m: Maker, x: str) -> str:
    x = m.some(x)
    if m.whole(0, 1):
        return f"jnp.where({x} > {m.like(x)}, {x}, {m.like(x)})"
    return f"lax.clamp({m.like(x, ())}, {x}, {m.like(x, ())})"


@family
def product(m: Maker, x: str) -> str:
    """Return a dot with batches, contracted and free axes in any order, and of any type."""
    batches, inner = m.whole(0, 1), m.whole(0, 2)
    x = m.fitting(x, batches + inner + 1, (*FLOATS, *SMALL, "complex64"), 4_000)
    free = m.sides(m.whole(0, 2), 2, 5, 8, 16, 33)
    known = m.shape(x)
    y = m.like(x, (*free, *known[: batches + inner]))
    at = [len(free) + n for n in range(batches + inner)]
    axes = (tuple(range(batches, batches + inner)), tuple(at[batches:]))
    dims = axes, (tuple(range(batches)), tuple(at[:batches]))
    dtype = m.values[x].dtype.name
    wide = {"int4": "int32", "int8": "int32"}.get(dtype, "float32" if dtype in SMALL else None)
    precision = ', precision="highest"' if dtype == "float32" and m.whole(0, 1) else ""
    to = f', preferred_element_type="{wide}"' if wide else ""
    return f"lax.dot_general({x}, {y}, {dims}{precision}{to})"


@family
def convolution(m: Maker, x: str) -> str:
    axes, way = m.whole(1, 2), m.words("plain strided dilated transposed grouped depthwise")
    channels = 8 if way == "grouped" else m.pick(1, 3, 8)
    groups = {"grouped": 4, "depthwise": channels}.get(way, 1)
    out = groups * m.pick(1, 2, 4)
    dtype = m.pick("float32", "bfloat16")
    a = m.argument((m.pick(1, 2, 3), channels, *m.sides(axes, 5, 8, 9, 16)), dtype)
    w = m.argument((out, channels // groups, *m.sides(axes, 1, 2, 3, 4)), dtype)
    strides = m.sides(axes, 2, 3) if way == "strided" else (1,) * axes
    dilated = m.sides(axes, 2, 3) if way == "dilated" else (1,) * axes
    spread = m.sides(axes, 2, 3) if way == "transposed" else (1,) * axes
    pads = [(m.whole(0, 4), m.whole(0, 4)) for _ in range(axes)]
    return (
        f"lax.conv_general_dilated({a}, {w}, {strides}, {pads}, {spread}, {dilated}, "
        f"feature_group_count={groups})"
    )


@family
def reduction(m: Maker, x: str) -> str:
    x = m.some(x)
    axis = m.whole(0, len(m.shape(x)) - 1)
    op = m.words("sum max min prod mean var argmax argmin any ptp cumsum cumprod")
    of = f"jax.nn.{m.words('softmax logsumexp')}" if m.whole(0, 3) == 3 else f"jnp.{op}"
    return f"{of}({x}, axis={axis})"


@family
def windows(m: Maker, x: str) -> str:
    x = m.fitting(x, 2)
    init, op = m.pick(("-jnp.inf", "lax.max"), ("0.0", "lax.add"))
    sizes, strides = m.sides(2, 1, 2), m.sides(2, 1, 2)
    start = f"jnp.array({init}, {x}.dtype)"
    return f'lax.reduce_window({x}, {start}, {op}, {sizes}, {strides}, "{m.words("VALID SAME")}")'


@family
def sorting(m: Maker, x: str) -> str:
    x = m.some(x, 2)
    op = m.words("jnp.sort jnp.argsort lax.top_k")
    return f"lax.top_k({x}, 1)[{m.whole(0, 1)}]" if op == "lax.top_k" else f"{op}({x})"


@family
def gathering(m: Maker, x: str) -> str:
    x = m.some(x)
    i = m.argument((m.pick(1, 4, 33),), "int32")
    mode = m.words("clip fill promise_in_bounds")
    if m.whole(0, 2) == 2:
        sizes = tuple(max(n // 2, 1) for n in m.shape(x))
        return f"lax.dynamic_slice({x}, [{i}[0]] * {len(sizes)}, {sizes})"
    return f'jnp.take({x}, {i}, axis={m.whole(0, len(m.shape(x)) - 1)}, mode="{mode}")'


@family
def updating(m: Maker, x: str) -> str:
    """Return an update of a value, of one that is converted before, or that is converted after."""
    x = m.some(x)
    dtype, known = m.values[x].dtype.name, m.shape(x)
    other = m.pick(*FLOATS)
    before = f"{x}.astype({other!r})" if m.whole(0, 1) else x
    after = f".astype({m.pick(*FLOATS)!r})" if m.whole(0, 1) else ""
    kind = other if before != x else dtype
    if m.whole(0, 1):
        part = m.argument(tuple(max(n // 2, 1) for n in known), kind)
        at = m.argument((), "int32")
        return f"lax.dynamic_update_slice({before}, {part}, [{at}] * {len(known)}){after}"
    i = m.argument((m.pick(1, 4, 33),), "int32")
    part = m.argument((m.shape(i)[0], *known[1:]), kind)
    op = m.words("set add mul max")
    return f"{before}.at[{i}].{op}({part}){after}"


@family
def moving(m: Maker, x: str) -> str:
    x = m.some(x)
    rank = len(m.shape(x))
    return str(
        m.pick(
            f"{x}.T",
            f"{x}.reshape(-1)",
            f"jnp.concatenate([{x}, {x}], {m.whole(0, rank - 1)})",
            f"jnp.pad({x}, 1)",
            f"{x}[::-1]",
            f"{x}[::2]",
            f"jnp.tile({x}, 2)",
            f"jnp.roll({x}, 3, -1)",
            f"{x}.astype({m.pick(*FLOATS, 'int8', 'float8_e4m3fn')!r})",
            f"jnp.broadcast_to({x}, (3, *{x}.shape))",
            f"jnp.repeat({x}, 2, 0)",
            f"jnp.stack([{x}, {x} + 1])",
        )
    )


SIDE = 16


def square(m: Maker) -> tuple[str, str]:
    """Return a matrix that a loop carries, and its body: a function of the matrix, as text."""
    x = m.argument((m.pick(4, 8, 33), SIDE), m.pick("float32", "bfloat16"))
    w = m.like(x, (SIDE, SIDE))
    return x, str(m.pick(f"jnp.tanh(c @ {w})", f"c @ {w}", f"jnp.sin(c) * {w}[0]"))


@family
def looping(m: Maker, _: str) -> str:
    x, body = square(m)
    n, way = m.pick(2, 3, 7, 16), m.words("scan slices stack fori until nested unrolled map assoc")
    if way == "slices":
        xs = m.like(x, (n, *m.shape(x)))
        return f"lax.scan(lambda c, u: ({body} + u, c.sum()), {x}, {xs})[{m.whole(0, 1)}]"
    if way == "stack":
        return f"lax.scan(lambda c, _: ({body}, c * 2), {x}, length={n})[1]"
    if way == "until":
        return f"lax.while_loop(lambda c: jnp.sum(c) < 9, lambda c: {body}, {x})"
    if way == "map":
        return f"lax.map(lambda c: {body}, {m.like(x, (n, *m.shape(x)))})"
    if way == "assoc":
        return f"lax.associative_scan(lambda a, b: jnp.tanh(a) * b, {x})"
    if way == "nested":
        inner = f"lax.fori_loop(0, 3, lambda _, c: {body}, c)"
        return f"lax.fori_loop(0, {n}, lambda _, c: {inner}, {x})"
    if way == "fori":
        return f"lax.fori_loop(0, {n}, lambda i, c: {body} * (i + 1).astype(c.dtype), {x})"
    unroll = 2 if way == "unrolled" else 1
    return f"lax.scan(lambda c, _: ({body}, None), {x}, length={n}, unroll={unroll})[0]"


@family
def branching(m: Maker, _: str) -> str:
    """Return a conditional, in a loop or not, of data or of a counter."""
    x, body = square(m)
    n, k = m.pick(2, 6, 12), m.pick(2, 3, 5)
    other = m.pick("c * 2", "jnp.sin(c)", "c")
    both = f"lambda c: {body}, lambda c: {other}"
    way = m.words("data switch counter slices while_counter data_in_a_loop loop_in_a_branch")
    data = m.argument((), "bool")
    if way == "data":
        return f"lax.cond({data}, {both}, {x})"
    if way == "loop_in_a_branch":
        loop = f"lambda c: lax.fori_loop(0, {n}, lambda _, c: {body}, c)"
        return f"lax.cond({data}, {loop}, lambda c: {other}, {x})"
    if way == "switch":
        i = m.argument((), "int32")
        return f"lax.switch({i}, [{both}, jnp.cos], {x})"
    if way == "slices":
        return (
            f"lax.scan(lambda c, p: (lax.cond(p, {both}, c), None), {x}, "
            f"jnp.arange({n}) % {k} == 0)[0]"
        )
    if way == "while_counter":
        step = f"(s[0] + 1, lax.cond(s[0] > {k}, {both}, s[1]))"
        return f"lax.while_loop(lambda s: s[0] < {n}, lambda s: {step}, (0, {x}))[1]"
    test = f"i % {k} == 0" if way == "counter" else f"({data} & (c[0, 0] > i))"
    return f"lax.fori_loop(0, {n}, lambda i, c: lax.cond({test}, {both}, c), {x})"


@family
def random_numbers(m: Maker, _: str) -> str:
    key = f"jax.random.wrap_key_data({m.argument((2,), 'uint32')})"
    shape = m.sides(2, 2, 16, 33)
    of = m.words("normal uniform bits bernoulli gumbel")
    return f"jax.random.{of}({key}, shape={shape})"


@family
def fourier(m: Maker, _: str) -> str:
    op = m.words("fft ifft rfft irfft")
    dtype = "float32" if op == "rfft" else "complex64"
    return f"jnp.fft.{op}({m.argument((3, m.pick(2, 5, 16, 33, 64)), dtype)})"


@family
def dense_algebra(m: Maker, _: str) -> str:
    n = m.pick(4, 9, 16)
    a = m.argument((*m.sides(m.whole(0, 1), 3), n, n), "float32")
    spd = f"({a} @ jnp.swapaxes({a}, -1, -2) + {n} * jnp.eye({n}))"
    return str(
        m.pick(
            f"jnp.linalg.cholesky({spd})",
            f"jnp.linalg.solve({a}, {a})",
            f"jnp.linalg.qr({a})[1]",
            f"jnp.linalg.inv({a})",
            f"jnp.linalg.eigh({spd})[1]",
            f"lax.linalg.triangular_solve({a}, {a}, left_side=True, lower=True)",
            f"jnp.linalg.matrix_power({a}, 5)",
        )
    )


@family
def layers(m: Maker, _: str) -> str:
    b, t, h, d = m.pick(1, 2), m.pick(16, 33), m.pick(2, 4), m.pick(16, 64)
    kind, way = (
        m.pick("float32", "bfloat16"),
        m.words("attention ragged experts pool glu quantized"),
    )
    if way == "attention":
        q, k = m.argument((b, t, h, d), kind), m.argument((b, t, h // m.pick(1, 2), d), kind)
        causal = bool(m.whole(0, 1))
        return f"jax.nn.dot_product_attention({q}, {k}, {m.like(k)}, is_causal={causal})"
    u = m.argument((t, d), kind)
    if way == "ragged":
        sizes = m.argument((4,), "int32")
        return f"lax.ragged_dot({u}, {m.argument((4, d, 32), kind)}, {sizes})"
    if way == "experts":
        gate, w = m.argument((d, 4), kind), m.argument((4, d, d), kind)
        return f'jnp.einsum("te,td,edf->tf", jax.nn.softmax({u} @ {gate}), {u}, {w})'
    if way == "pool":
        image = m.argument((b, 8, 8, 4), kind)
        window = "(1, 2, 2, 1)"
        pool = f'lax.reduce_window(v, -jnp.inf, lax.max, {window}, {window}, "VALID").sum()'
        return f"jax.grad(lambda v: {pool})({image})"
    if way == "quantized":
        w = m.argument((d, 32), m.pick("int8", "int4", "float8_e4m3fn"))
        return f"({u} @ {w}.astype({kind!r})) * {m.argument((32,), kind)}"
    return f"jax.nn.glu({u} @ {m.argument((d, d), kind)})"


# --- programs whose arrays a compiler spreads -----------------------------------------------------


@st.composite
def divided_programs(draw: Any, chip: str = "v6e-8") -> Program:
    """Return products and sums of arrays that are spread over a mesh, left to the compiler."""
    maker = Maker(draw, chip=chip, mesh=(("x", 2), ("y", 4)))

    def argument(shape: tuple[int, int]) -> str:
        ways = 'P()|P("x")|P("y")|P(None, "x")|P(None, "y")|P("x", "y")|P(("x", "y"))'.split("|")
        name = f"a{len(maker.arguments)}"
        maker.arguments.append((shape, "bfloat16", maker.pick(*ways)))
        maker.values[name] = jax.ShapeDtypeStruct(shape, "bfloat16")
        return name

    value = argument((128, 64))
    for _ in range(maker.whole(1, 3)):
        width = maker.pick(64, 256)
        way = maker.words("product norm gram centred")
        value = maker.add(
            {
                "norm": lambda x: f"{x} / jnp.linalg.norm({x}.astype('float32'))",
                "gram": lambda x: f"{x} @ ({x}.T @ {x})",
                "centred": lambda x: f"{x} - {x}.mean(0)",
            }[way](value)
            if way != "product"
            else f"jnp.tanh({value} @ {argument((maker.shape(value)[1], width))})"
        )
    return maker.program


# --- Pallas kernels, and a walk over their grid ---------------------------------------------------

KERNEL = """import jax, roofline, jax.numpy as jnp; from jax.experimental import pallas as pl
def body(x, w, o):
    def step(): {step}
    {when}
grid, shapes, blocks = {grid}, {shapes}, {blocks}
indices = [{indices}]
*ins, out = [pl.BlockSpec(block, index) for block, index in zip(blocks, indices)]
*args, made = [jax.ShapeDtypeStruct(shape, "{dtype}") for shape in shapes]
call = pl.pallas_call(body, grid=grid, in_specs=ins, out_specs=out, out_shape=made)
"""


@dataclass(frozen=True)
class Kernel:
    """A Pallas kernel as text; FLOPs of one step of its grid, and the steps that take it."""

    code: str
    product: int
    other: int
    taken: str

    def __str__(self) -> str:
        return f"{self.code}print(roofline.xla.pallas_kernels(call, *args))\n"

    def walked(self) -> tuple[Any, list[Any], tuple[float, float, list[float]]]:
        """Return the kernel, its arguments, and matrix FLOPs, others, and bytes by operand."""
        names: dict[str, Any] = {}
        exec(self.code, names)
        steps = list(itertools.product(*map(range, names["grid"])))
        taken = sum(bool(eval(self.taken, dict(zip("ij", step, strict=True)))) for step in steps)
        width, moved = names["made"].dtype.itemsize, []
        parts = zip(names["shapes"], names["blocks"], names["indices"], strict=True)
        for shape, block, index in parts:
            places = [index(*step) for step in steps]
            fetched = [at for n, at in enumerate(places) if n == 0 or at != places[n - 1]]
            moved.append(sum(width * inside(shape, block, at) for at in fetched))
        return names["call"], names["args"], (taken * self.product, taken * self.other, moved)


def inside(shape: Sequence[int], block: Sequence[int], at: Sequence[int]) -> int:
    """Return the elements of a block that lie in its array."""
    return math.prod(
        max(min((i + 1) * n, size) - i * n, 0) for size, n, i in zip(shape, block, at, strict=True)
    )


@st.composite
def kernels(draw: Any) -> Kernel:
    m = Maker(draw)
    dtype, rows, columns = m.pick("float32", "bfloat16"), m.pick(8, 16, 32), m.pick(128, 256)
    grid = m.whole(1, 4), m.whole(1, 3)
    taken = m.pick("True", "i >= j", "(i + j) % 2 == 0", "j == 0")
    when = "step()"
    if taken != "True":
        ids = taken.replace("i", "pl.program_id(0)").replace("j", "pl.program_id(1)")
        when = f"pl.when({ids})(step)"
    cut = m.whole(0, rows - 1)  # of the last block of rows, which lies beyond the array
    height, width = grid[0] * rows, grid[1] * columns
    if m.whole(0, 1):
        inner = m.pick(128, 256)
        step = "o[...] += jnp.dot(x[...], w[...])"
        shapes = [(height - cut, inner), (inner, width), (height - cut, width)]
        blocks = [(rows, inner), (inner, columns), (rows, columns)]
        indices = ["lambda i, j: (i, 0)", "lambda i, j: (0, j)", "lambda i, j: (i, j)"]
        product, other = 2 * rows * columns * inner, rows * columns
    else:
        step = "o[...] = jnp.tanh(x[...]) * w[...]"
        shapes = [(height - cut, width), (1, width), (height - cut, width)]
        blocks = [(rows, columns), (1, columns), (rows, columns)]
        last = grid[0] - 1
        of_x = m.pick("(i, j)", "(i, 0)", "(0, j)", f"({last} - i, j)", "(i // 2, j)")
        indices = [f"lambda i, j: {of_x}", "lambda i, j: (0, j)", "lambda i, j: (i, j)"]
        product, other = 0, 2 * rows * columns
    code = KERNEL.format(
        step=step,
        when=when,
        grid=grid,
        shapes=shapes,
        blocks=blocks,
        indices=", ".join(indices),
        dtype=dtype,
    )
    return Kernel(code, product, other, taken)
