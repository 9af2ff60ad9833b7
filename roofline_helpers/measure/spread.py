"""A layer spread over the devices that JAX has: tensor-parallel, FSDP and both.

Each is a program on a mesh of two axes: over one the batch is cut and weights are gathered before
their products, over the other widths are cut and partial sums added up after them. Three or four
programs of each tell what an exchange costs and what of it hides: the layer; its arithmetic alone,
each device working on parts that are there already; its exchanges alone, one after the other; and
on GPUs, where weights are gathered, the layer with XLA's latency-hiding scheduler.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from roofline_helpers.measure.case import Case, array
from roofline_helpers.measure.collectives import APART, Spread, in_turn, mapped, mesh, network_bytes
from roofline_helpers.measure.layers import FSDP, TENSOR, Layer, decoder_layer, mlp
from roofline_helpers.models import LLAMA_3_8B, model
from roofline_helpers.work import Work

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
    return [mlp(batch, WIDTH, HIDDEN) for batch in BATCHES]


def cases(
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

    over = list(mesh(devices).devices.flat)
    made = []
    for layer in chosen:
        for way, cut in ways(len(over)).items():
            shape = (cut[FSDP], cut[TENSOR])
            place = jax.sharding.Mesh(np.array(over).reshape(shape), (FSDP, TENSOR))
            for variant in _variants(cut, over[0].platform):
                name = ", ".join([layer.name, way, *([variant] if variant else [])])
                make = functools.partial(_made, layer, cut, variant, dtype, place)
                start = functools.partial(_started, layer, cut, variant, place)
                job = work_of(layer, cut, variant)
                made.append(Case(f"{name} over {len(over)}", "spread", job, make, start=start))
    return made


_NAMED = re.compile(
    r"(?:MLP (?P<mlp>\d+×\d+×\d+)|(?P<model>.+) layer (?P<read>\d+×\d+)), "
    rf"(?P<way>[^,]+?)(?:, (?P<variant>{'|'.join(VARIANTS[1:])}))? over (?P<count>\d+)"
)


def named(name: str) -> tuple[Layer, str, str, int] | None:
    """Return the layer, the way, the variant and the devices of a case; None for other names."""
    match = _NAMED.fullmatch(name)
    if not match:
        return None
    sizes = [int(size) for size in (match["mlp"] or match["read"]).split("×")]
    layer = mlp(*sizes) if match["mlp"] else decoder_layer(model(match["model"]), *sizes)
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


def _started(layer: Layer, cut: Cut, variant: str, place: Any, *arrays: Any) -> Spread:
    import jax
    from jax.sharding import PartitionSpec

    specs = jax.tree.map(lambda each: each.sharding.spec, arrays)
    if variant == "exchanges alone":
        body, made = functools.partial(_exchanges, layer, cut), PartitionSpec((FSDP, TENSOR))
    else:
        there = {} if variant == "arithmetic alone" else cut
        body, made = functools.partial(_whole, layer, there), specs[0]
    options = {"exchanges alone": APART, "latency hiding": HIDING}.get(variant)
    return Spread(mapped(body, place, specs, made), arrays, options)


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
