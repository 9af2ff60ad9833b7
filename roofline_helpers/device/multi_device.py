"""What is measured between devices: collectives, and layers spread over them."""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofline_helpers.common.checks import BadValue, shown
from roofline_helpers.device.timing import CannotTime, reason
from roofline_helpers.device.workloads import Case, array, kind_of
from roofline_helpers.models import LLAMA_3_8B, Decoder, model
from roofline_helpers.work import Work

# --- Collectives between the devices that JAX has, timed inside one program ----------------------

SIZES = tuple(2**power for power in range(10, 31, 2))
"""Bytes of the whole array: 1 KiB to 1 GiB."""

QUICK = (2**10, 2**16, 2**20)
"""Bytes of the whole array where it must be quick."""

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "permute", "permute back")
"""The five collectives; a permute goes to the next device, or to the one before."""

_COMBINERS = [
    f"{maker}{name}-combiner"
    for maker in ("", "cpu-", "gpu-")
    for name in ("all-reduce", "all-gather", "reduce-scatter", "collective-permute")
]
APART = {"xla_disable_hlo_passes": ",".join(_COMBINERS)}
"""The compiler's option that keeps collectives apart: its passes that join small ones are off."""

AXIS = "x"


class Spread:
    """A compiled program over several devices with its arguments: what `clock` times.

    Parameters
    ----------
    fn : callable
        Takes the arguments, which say by their sharding where they are.
    args : tuple of arrays
        Its arguments.
    options : mapping, optional
        The compiler's options.
    """

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], options: Any = None) -> None:
        import jax

        self.args, self.result = args, None
        lowered = jax.jit(fn).lower(*args)
        try:
            self.compiled = lowered.compile(compiler_options=dict(options or {}))
        except Exception as error:
            raise CannotTime(f"JAX couldn't compile it: {reason(error)}") from error

    def launch(self, calls: int) -> None:
        """Queue the calls."""
        for _ in range(calls):
            self.result = self.compiled(*self.args)

    def wait(self) -> None:
        """Return when the last call has ended on every device."""
        import jax

        jax.block_until_ready(self.result)


def device_mesh(devices: Sequence[Any] | None = None) -> Any:
    """Return a mesh of one axis over the devices that JAX has, or over some of them.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    import jax
    import numpy as np

    devices = jax.devices() if devices is None else list(devices)
    if len(devices) < 2:
        raise BadValue(
            f"a collective needs at least 2 devices, got {shown([str(d) for d in devices])}. On a "
            "CPU, XLA_FLAGS=--xla_force_host_platform_device_count=4 pretends to have four: for "
            "correctness; their times mean nothing"
        )
    return jax.sharding.Mesh(np.array(devices), (AXIS,))


def run_collective(kind: str, x: Any, count: int) -> Any:
    """Return what a collective over the mesh's axis makes of this device's part."""
    from jax import lax

    if kind == "all-gather":
        return lax.all_gather(x, AXIS, tiled=True)
    if kind == "all-reduce":
        return lax.psum(x, AXIS)
    if kind == "reduce-scatter":
        return lax.psum_scatter(x, AXIS, tiled=True)
    if kind == "all-to-all":
        return lax.all_to_all(x, AXIS, 0, 0, tiled=True)
    step = 1 if kind == "permute" else -1
    return lax.ppermute(x, AXIS, [(i, (i + step) % count) for i in range(count)])


def chain(kind: str, place: Any) -> Callable[..., Any]:
    """Return a function that runs one collective of this kind on each of its arguments in turn."""
    from jax.sharding import PartitionSpec

    step = functools.partial(run_collective, kind, count=place.devices.size)

    def local(*parts: Any) -> Any:
        return [end[:1] for end in in_turn([(step, part) for part in parts])]

    spec = PartitionSpec(AXIS)
    return shard_mapped(local, place, spec, spec)


def in_turn(exchanges: Sequence[tuple[Callable[[Any], Any], Any]]) -> list[Any]:
    """Return what each exchange makes of its part, none begun before the last one has ended."""
    from jax import lax

    ends: list[Any] = []
    for exchange, part in exchanges:
        if ends:
            part, ends[-1] = lax.optimization_barrier((part, ends[-1]))
        ends.append(exchange(part))
    return ends


def shard_mapped(fn: Callable[..., Any], place: Any, given: Any, made: Any) -> Callable[..., Any]:
    """Return a function of each device's part as one of whole arrays, under old and new names.

    `given` and `made` say how its arguments and its result are cut.
    """
    import jax

    shard_map: Any = getattr(jax, "shard_map", None)
    if shard_map is None:
        shard_map = importlib.import_module("jax.experimental.shard_map").shard_map
    for unchecked in ({"check_vma": False}, {"check_rep": False}):
        try:
            whole: Callable[..., Any] = shard_map(
                fn, mesh=place, in_specs=given, out_specs=made, **unchecked
            )
            return whole
        except TypeError:
            continue
    raise CannotTime("this JAX's shard_map takes neither check_vma nor check_rep")


def network_bytes(kind: str, size: float, count: int) -> float:
    """Return the bytes that a device sends, by the ring's count."""
    if kind == "all-reduce":
        return 2 * size * (count - 1) / count
    if kind.startswith("permute"):
        return size / count
    if kind == "all-to-all":
        return size * (count - 1) / count**2
    return size * (count - 1) / count


def collective_cases(
    sizes: Sequence[int] = SIZES,
    kinds: Sequence[str] = KINDS,
    dtype: str = "bf16",
    devices: Sequence[Any] | None = None,
) -> list[Case]:
    """Return a case for each collective and size over the devices.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of the whole array; rounded up to a whole part for each device.
    kinds : sequence of str
        Of `KINDS`.
    dtype : str
        One of `JAX_DTYPES`.
    devices : sequence of jax.Device, optional
        Those that take part; all that JAX has if not given.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    place = device_mesh(devices)
    count = place.devices.size
    kinds = [kind for kind in kinds if count > 2 or kind != "permute back"]  # with two, the same
    made = []
    for size in sizes:
        for kind in kinds:
            loops = max(4, min(32, 2**28 // size))
            started = functools.partial(_started, kind, place)
            arrays = functools.partial(_arrays, kind, size, dtype, place, loops)
            sent = network_bytes(kind, size, count)
            job = Work(
                kind, {"part": size / count}, {"made": size / count}, others={"network": sent}
            )
            name = f"{kind} {_spelled(size)} over {count}"
            needs = 3.0 * loops * size
            made.append(
                Case(name, "collectives", job, arrays, start=started, needs=needs, loops=loops)
            )
    return made


def _started(kind: str, place: Any, *parts: Any) -> Spread:
    program = Spread(chain(kind, place), parts, APART)
    name = "collective-permute" if kind.startswith("permute") else kind
    pattern = re.compile(rf" {name}(?:-start)?\(")
    left = len(pattern.findall(program.compiled.as_text()))
    if left != len(parts):
        raise CannotTime(f"of {len(parts)} collectives the compiler left {left}: {kind}")
    return program


def _arrays(kind: str, size: int, dtype: str, place: Any, copies: int) -> tuple[Any, ...]:
    """Return the arguments: each device's part is the whole array where it has a summand of it."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    count = place.devices.size
    kind_of_number = kind_of(dtype)
    elements = -(-size // (kind_of_number.itemsize * count * count)) * count * count
    whole = elements * (count if kind in ("all-reduce", "reduce-scatter") else 1)
    spread = NamedSharding(place, PartitionSpec(AXIS))
    make = jax.jit(
        lambda i: (jnp.arange(whole, dtype=jnp.int32) % 251 + i).astype(kind_of_number),
        out_shardings=spread,
    )
    return tuple(make(i) for i in range(copies))


def _spelled(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:g} {unit}"
    return f"{size} B"


# --- Layers that are cut over devices: an MLP, and a decoder's layer of attention and MLP --------

FSDP, TENSOR = "fsdp", "tensor"
"""Axes of the mesh: over the first go the batch and a share of every weight, over the other the
heads and the width of the MLP."""

Weights = Mapping[str, Any]
Add = Callable[[Any], Any]


@dataclass(frozen=True)
class Layer:
    """A layer of given sizes.

    Parameters
    ----------
    name : str
        With its number of tokens.
    inputs : tuple of int
        Shape of its input, and of its result: sequences or tokens first, the width last.
    matrices : mapping of str to (int, int)
        Its weights. Those of `closing` have the axis over which tensor parallelism cuts first, the
        others last: partial sums of a product with one of `closing` have to be added up.
    fn : callable
        Takes the input, the weights by name, and the function that adds up partial sums.
    heads : tuple of int
        Of queries, of keys, and the width of one; empty without attention.
    between : tuple of int
        Elements that a token reads and writes between the products: of its whole width, and of
        widths that tensor parallelism cuts. What the products' kernels do on their way isn't in it.
    """

    name: str
    inputs: tuple[int, ...]
    matrices: Mapping[str, tuple[int, int]]
    fn: Callable[[Any, Weights, Add], Any]
    closing: tuple[str, ...] = ("down",)
    heads: tuple[int, ...] = ()
    between: tuple[int, int] = (0, 0)

    @property
    def tokens(self) -> int:
        """Rows that every matrix is multiplied with."""
        return math.prod(self.inputs[:-1])

    @property
    def attention(self) -> float:
        """FLOPs of attention, over all tokens and heads: each query meets those before it."""
        if not self.heads:
            return 0.0
        sequences, length, _ = self.inputs
        return 2.0 * sequences * length * (length + 1) * self.heads[0] * self.heads[2]

    @property
    def elements(self) -> int:
        """Of all matrices."""
        return sum(rows * columns for rows, columns in self.matrices.values())

    def axes(self, name: str) -> tuple[str, str]:
        """Return the axis of the mesh over which each dimension of a matrix is cut."""
        return (TENSOR, FSDP) if name in self.closing else (FSDP, TENSOR)

    def part(self, name: str, cut: Mapping[str, int]) -> tuple[int, int]:
        """Return the shape of a device's part of a matrix, cut as often over each axis."""
        first, last = self.axes(name)
        rows, columns = self.matrices[name]
        return rows // cut.get(first, 1), columns // cut.get(last, 1)


def mlp_layer(tokens: int, width: int, hidden: int) -> Layer:
    """Return two matrices with GELU between them."""

    def fn(x: Any, w: Weights, add: Add) -> Any:
        import jax

        return add(jax.nn.gelu(x @ w["up"]) @ w["down"])

    matrices = {"up": (width, hidden), "down": (hidden, width)}
    return Layer(f"MLP {tokens}×{width}×{hidden}", (tokens, width), matrices, fn)


def decoder_layer(model: Decoder, sequences: int, length: int) -> Layer:
    """Return one layer of a decoder as it reads prompts: all tokens of its sequences at once."""
    d, q, kv, wide = model.d_model, model.q_width, model.kv_width, model.d_ff
    matrices = {"q": (d, q), "k": (d, kv), "v": (d, kv), "o": (q, d)}
    matrices |= {"gate": (d, wide), "up": (d, wide), "down": (wide, d)}

    def fn(x: Any, w: Weights, add: Add) -> Any:
        import jax

        y = _norm(x)
        heads = (*y.shape[:2], -1, model.head_dim)
        queries, keys, values = ((y @ w[name]).reshape(heads) for name in "qkv")
        y = _attention(_turned(queries), _turned(keys), values)
        x = x + add(y.reshape(*y.shape[:2], -1) @ w["o"])
        y = _norm(x)
        return x + add((jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"])

    return Layer(
        f"{model.name} layer {sequences}×{length}",
        (sequences, length, d),
        matrices,
        fn,
        closing=("o", "down"),
        heads=(model.heads, model.kv_heads, model.head_dim),
        # norms and sums of the residual stream; queries and keys turned; gate times up
        between=(2 * 2 * d + 2 * 3 * d, 2 * (q + kv) + 3 * wide),
    )


def _norm(x: Any) -> Any:
    """Return rows of root mean square 1."""
    import jax
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)
    return (wide * scale).astype(x.dtype)


def _turned(x: Any) -> Any:
    """Return queries or keys, [sequence, token, head, …], turned by their place in the sequence."""
    import jax.numpy as jnp

    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] * 5e5 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    low, high = jnp.split(x.astype(jnp.float32), 2, -1)
    turned = jnp.concatenate((low * cos - high * sin, high * cos + low * sin), -1)
    return turned.astype(x.dtype)


def _attention(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention: one kernel where cuDNN has one, else as XLA makes it."""
    import jax

    fused = jax.default_backend() == "gpu" and q.dtype.itemsize == 2
    how: Any = "cudnn" if fused else "xla"
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=how)


# --- A layer spread over the devices that JAX has: tensor-parallel, FSDP and both ----------------

WIDTH, HIDDEN = 8192, 28672
"""Of the MLP: Llama-3-70B's."""

BATCHES = (256, 1024, 4096, 16384)

SEQUENCES, LENGTH = (4, 16, 64), 512
"""Prompts of a decoder's layer, and their tokens. Over four H200, 512 to 8192 tokens a device: some
2000 are as many as weights from the network need to hide behind their products."""

HIDING = {"xla_gpu_enable_latency_hiding_scheduler": True}
"""XLA's option that moves exchanges away from what needs them."""

VARIANTS = ("", "arithmetic alone", "exchanges alone", "latency hiding")

Cut = Mapping[str, int]


def ways(count: int) -> dict[str, Cut]:
    """Return how a layer can be cut over so many devices: parts by axis, for each way's name."""
    made: dict[str, Cut] = {
        "tensor-parallel": {FSDP: 1, TENSOR: count},
        "FSDP": {FSDP: count, TENSOR: 1},
    }
    inner = max(n for n in range(1, math.isqrt(count) + 1) if count % n == 0)
    if inner > 1:
        made["both"] = {FSDP: count // inner, TENSOR: inner}
    return made


def decoder_layers() -> list[Layer]:
    """Return Llama 3 8B's layer as it reads a few prompts, and many."""
    return [decoder_layer(LLAMA_3_8B, sequences, LENGTH) for sequences in SEQUENCES]


def mlps() -> list[Layer]:
    """Return an MLP of Llama-3-70B's widths over few tokens, and many."""
    return [mlp_layer(batch, WIDTH, HIDDEN) for batch in BATCHES]


def layer_cases(
    chosen: Sequence[Layer], dtype: str = "bf16", devices: Sequence[Any] | None = None
) -> list[Case]:
    """Return each layer in each of `ways`, with its arithmetic alone and its exchanges alone.

    Parameters
    ----------
    chosen : sequence of Layer
        What is cut.
    dtype : str
        One of `JAX_DTYPES`.
    devices : sequence of jax.Device, optional
        Those that take part; all that JAX has if not given.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    import jax
    import numpy as np

    over = list(device_mesh(devices).devices.flat)
    made = []
    for layer in chosen:
        for way, cut in ways(len(over)).items():
            shape = (cut[FSDP], cut[TENSOR])
            place = jax.sharding.Mesh(np.array(over).reshape(shape), (FSDP, TENSOR))
            for variant in _variants(cut, over[0].platform):
                name = ", ".join([layer.name, way, *([variant] if variant else [])])
                make = functools.partial(_made, layer, cut, variant, dtype, place)
                start = functools.partial(_layer_started, layer, cut, variant, place)
                job = work_of(layer, cut, variant)
                made.append(Case(f"{name} over {len(over)}", "spread", job, make, start=start))
    return made


_NAMED = re.compile(
    r"(?:MLP (?P<mlp>\d+×\d+×\d+)|(?P<model>.+) layer (?P<read>\d+×\d+)), "
    rf"(?P<way>[^,]+?)(?:, (?P<variant>{'|'.join(VARIANTS[1:])}))? over (?P<count>\d+)"
)


def parse_name(name: str) -> tuple[Layer, str, str, int] | None:
    """Return the layer, the way, the variant and the devices of a case; None for other names."""
    match = _NAMED.fullmatch(name)
    if not match:
        return None
    sizes = [int(size) for size in (match["mlp"] or match["read"]).split("×")]
    layer = mlp_layer(*sizes) if match["mlp"] else decoder_layer(model(match["model"]), *sizes)
    return layer, match["way"], match["variant"] or "", int(match["count"])


def _variants(cut: Cut, platform: str) -> tuple[str, ...]:
    return VARIANTS if cut[FSDP] > 1 and platform == "gpu" else VARIANTS[:3]


def _made(layer: Layer, cut: Cut, variant: str, dtype: str, place: Any) -> tuple[Any, ...]:
    """Return the input and the weights, spread; each device has its own for arithmetic alone.

    For exchanges alone there is an input for each sum of partial results: it has their shape.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    rows, *rest = layer.inputs
    here, there = PartitionSpec(FSDP), {n: PartitionSpec(*layer.axes(n)) for n in layer.matrices}
    shapes = dict(layer.matrices)
    if variant == "arithmetic alone":
        rows //= cut[FSDP]
        shapes = {name: layer.part(name, {TENSOR: cut[TENSOR]}) for name in shapes}
        here, there = PartitionSpec(), dict.fromkeys(there, PartitionSpec())

    def put(shape: Sequence[int], spec: Any, scale: float = 1.0) -> Any:
        return jax.device_put(array(*shape, dtype=dtype, scale=scale), NamedSharding(place, spec))

    weights = {
        name: put(shape, there[name], layer.matrices[name][0] ** -0.5)
        for name, shape in shapes.items()
    }
    inputs = len(layer.closing) if variant == "exchanges alone" else 1
    return *(put((rows, *rest), here) for _ in range(inputs)), weights


def _layer_started(layer: Layer, cut: Cut, variant: str, place: Any, *arrays: Any) -> Spread:
    import jax
    from jax.sharding import PartitionSpec

    specs = jax.tree.map(lambda each: each.sharding.spec, arrays)
    if variant == "exchanges alone":
        body, made = functools.partial(_exchanges, layer, cut), PartitionSpec((FSDP, TENSOR))
    else:
        there = {} if variant == "arithmetic alone" else cut
        body, made = functools.partial(_whole, layer, there), specs[0]
    options = {"exchanges alone": APART, "latency hiding": HIDING}.get(variant)
    return Spread(shard_mapped(body, place, specs, made), arrays, options)


def _whole(layer: Layer, cut: Cut, x: Any, parts: Any) -> Any:
    """Do what one device does of a layer; nothing is exchanged over an axis that isn't cut."""
    weights = {name: _gathered(layer, cut, name, part) for name, part in parts.items()}
    return layer.fn(x, weights, functools.partial(_added, cut))


def _exchanges(layer: Layer, cut: Cut, *arrays: Any) -> Any:
    """Do a layer's exchanges one after the other, and return one number of each."""
    *sums, weights = arrays
    turns: list[tuple[Callable[[Any], Any], Any]] = []
    if cut[FSDP] > 1:
        turns += [
            (functools.partial(_gathered, layer, cut, name), part) for name, part in weights.items()
        ]
    if cut[TENSOR] > 1:
        turns += [(functools.partial(_added, cut), part) for part in sums]
    return [end.ravel()[:1] for end in in_turn(turns)]


def _gathered(layer: Layer, cut: Cut, name: str, part: Any) -> Any:
    """Return a matrix as a device multiplies with it."""
    from jax import lax

    if cut.get(FSDP, 1) == 1:
        return part
    return lax.all_gather(part, FSDP, axis=layer.axes(name).index(FSDP), tiled=True)


def _added(cut: Cut, part: Any) -> Any:
    """Return the sum of partial results."""
    from jax import lax

    return part if cut.get(TENSOR, 1) == 1 else lax.psum(part, TENSOR)


def exchanged(layer: Layer, cut: Cut) -> Iterator[tuple[str, int, float]]:
    """Give the kind of each exchange of a layer in bf16, its devices, and the bytes it ends with.

    Over the group that takes part in it: the gathered matrix, or the sum.
    """
    fsdp, tensor = cut[FSDP], cut[TENSOR]
    for shape in layer.matrices.values() if fsdp > 1 else ():
        yield "all-gather", fsdp, 2 * math.prod(shape) / tensor
    for _ in layer.closing if tensor > 1 else ():
        yield "all-reduce", tensor, 2 * math.prod(layer.inputs) / fsdp


def work_of(layer: Layer, cut: Cut, variant: str = "") -> Work:
    """Count one device's share in bf16: FLOPs, bytes, and what it sends by the ring's count."""
    exchanges = list(exchanged(layer, cut))
    network = {"network": sum(network_bytes(kind, size, n) for kind, n, size in exchanges)}
    if variant == "exchanges alone":
        made = sum(size for _, _, size in exchanges)
        return Work(layer.name, {"parts": made}, {"made": made}, others=network)
    devices = cut[FSDP] * cut[TENSOR]
    rows = 2.0 * math.prod(layer.inputs) / cut[FSDP]
    return Work(
        layer.name,
        {"x": rows, "weights": 2.0 * layer.elements / cut[TENSOR]},
        {"y": rows},
        (2.0 * layer.tokens * layer.elements + layer.attention) / devices,
        dtype="bf16",
        others={} if variant == "arithmetic alone" else network,
    )


# --- What is measured between devices: collectives, and layers spread over them ------------------


def multi_device_cases(quick: bool = False) -> list[Case]:
    """Return cases over all devices that JAX has, over half of them, and so on down to a pair.

    What tells most comes first, for where time is short: layers and collectives over all devices.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    import jax

    devices = list(device_mesh(jax.devices()).devices.flat)
    made = []
    while len(devices) > 1:
        if quick:
            made += collective_cases(QUICK, devices=devices)
            made += layer_cases((mlp_layer(64, 256, 1024),), devices=devices)
        else:
            made += layer_cases(decoder_layers(), devices=devices)
            made += collective_cases(devices=devices)
            made += layer_cases(mlps(), devices=devices)
        devices = devices[: len(devices) // 2]
    return made
