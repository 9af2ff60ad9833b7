"""FLOPs of an instruction: custom calls, matmuls, the share of a fusion that is needed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from roofline.xla import hlo
from roofline.xla.hlo import Computation, Instruction, Module, Shape, Site
from roofline.xla.pallas import PallasKernel
from roofline.xla.windows import Window

# A piece of a value: the opcode that slices it, its computation, and the slice's indices
_Piece = tuple[str, Any, tuple[str, ...]]
_Users = dict[str, dict[_Piece, float]]
ANY: _Piece = ("", None, ())  # an unknown piece

# --- Custom calls: declared costs, and the calls of NVIDIA's libraries ---------------------------


def declared(instruction: Instruction) -> dict[str, Any]:
    """Return the declared cost of a custom call; {} if there is none."""
    if instruction.base != "custom-call":
        return {}
    estimate = instruction.config.get("custom_call_config", {}).get("cost_estimate")
    return estimate if isinstance(estimate, dict) else {}


def library_product(site: Site) -> tuple[Instruction, Shape, Shape] | None:
    """Return the dot or convolution that a call of cuBLAS or cuDNN states.

    Also the shapes of its operands. None for every other call.
    """
    call, operands = site.instruction, site.operands
    result = call.shape.parts[0] if call.shape.parts else call.shape
    if call.target.startswith("__cublas$") and len(operands) >= 2:
        stated = call.config.get("gemm_backend_config", call.config)
        inner = stated.get("dot_dimension_numbers", {}).get("lhs_contracting_dimensions")
        if inner is None:
            return None
        attributes = {"lhs_contracting_dims": ",".join(map(str, inner))}
        how = stated.get("precision_config", {})
        attributes["operand_precision"] = ",".join(how.get("operand_precision", ())).lower()
        attributes["algorithm"] = str(how.get("algorithm", "")).lower().removeprefix("alg_")
        return Instruction(call.name, "dot", result, (), attributes), operands[0], operands[1]
    if "dim_labels" not in call.attributes or len(operands) < 2:
        return None
    first, second = operands[:2]
    roles = {  # input, kernel and result of the forward convolution, whose window and labels count
        "__cudnn$convForward": (first, second, result),
        "__cudnn$convBackwardInput": (result, second, first),
        "__cudnn$convBackwardFilter": (first, result, second),
    }
    for name, (lhs, rhs, out) in roles.items():
        if call.target.startswith(name):
            return Instruction(call.name, "convolution", out, (), call.attributes), lhs, rhs
    return None


_MASKED = {"NO_MASK": False, "CAUSAL": True}
"""The masks of cuDNN's attention whose pairs of query and key the program states."""


def library_attention(site: Site) -> Flops | None:
    """Return the FLOPs of a call of cuDNN's attention; None of other calls.

    Also None where data choose the pairs: padding to lengths, segments, paged caches.

    Forward it has two matmuls, backward five: the scores once more, and a gradient of each factor.
    A pair of query and key costs one exponential, and three more operations on the vector unit.
    """
    call = site.instruction
    stated = call.config.get("cudnn_fmha_backend_config", {})
    dims = [int(n) for n in stated.get("intermediate_tensor_shape", {}).get("dimensions", ())]
    mask, window = stated.get("mask_type"), int(stated.get("sliding_window_length", 0))
    fixed = not stated.get("is_paged_attention") and int(stated.get("max_seg_per_batch", 1)) < 2
    if "fmha" not in call.target or len(dims) != 4 or mask not in _MASKED or not fixed:
        return None
    batch, heads, queries, keys = dims
    width = site.operands[0].dims[-1] + site.operands[2].dims[-1]  # of keys, and of values
    visible = range(1, queries + 1) if _MASKED[mask] else [keys] * queries
    pairs = batch * heads * sum(min(n, keys, window or keys) for n in visible)
    keys_again = site.operands[0].dims[-1] if "Backward" in call.target else 0
    products = 2 * width + keys_again if keys_again else width
    return Flops(2 * pairs * products, 4 * pairs, pairs)


def results(instruction: Instruction) -> Shape:
    """Return the shape of an instruction's results.

    The shape of an asynchronous start also has the source, that of a library's call also its
    scratch memory: both are left out.
    """
    parts = instruction.shape.parts
    if instruction.opcode == "send":
        return Shape(parts=())
    if instruction.target.startswith(("__cublas$", "__cudnn$")) and parts and len(parts) > 1:
        return Shape(parts=parts[:-1])  # the last is the library's scratch memory
    if not instruction.opcode.endswith("-start") or not parts:
        return instruction.shape
    if instruction.opcode == "copy-start":  # (destination, source, context)
        return parts[0]
    if instruction.opcode == "all-reduce-start":
        # Results only; from JAX 0.11 on (sources, results)
        return parts[1] if len(parts) == 2 and parts[0].parts else instruction.shape
    return parts[1] if len(parts) > 1 else parts[0]  # (sources, results, context …)


PALLAS = ("tpu_custom_call", "mosaic_gpu", "mosaic_gpu_v2", "__gpu$xla.gpu.triton")
"""Targets of custom calls that are Pallas kernels."""


def counted_as(site: Site, kernels: Sequence[PallasKernel]) -> PallasKernel | None:
    """Return the count of a Pallas kernel; None for other calls, and without a count."""
    call = site.instruction
    if call.target not in PALLAS:
        return None
    dims = [shape.dims for shape in site.operands if shape.dims]
    same = [kernel for kernel in kernels if _shapes_read(kernel) == dims]
    here = f"{call.name} {call.op_name}"
    named = [kernel for kernel in same if kernel.name and kernel.name in here]
    # kernels that read alike and count alike may stand for each other
    counts = {(k.matrix_flops, k.vector_flops, k.reads, k.writes): k for k in named or same}
    return next(iter(counts.values())) if len(counts) == 1 else None


def _shapes_read(kernel: PallasKernel) -> list[tuple[int, ...]]:
    read = [operand for operand in kernel.operands if not operand.result]
    return [operand.shape for operand in read if operand.shape]


# --- FLOPs of dots, and of convolutions without the taps that meet only padding ------------------


def windows_of(instruction: Instruction, dims: int) -> list[Window]:
    """Read `window={size=3x3 stride=1x1 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1}`."""
    text = instruction.attributes.get("window", "")
    parts = text.strip("{} ").split()
    stated = dict(part.split("=", 1) for part in parts if "=" in part)

    def numbers(key: str, default: int) -> list[int]:
        return [int(n) for n in stated[key].split("x")] if key in stated else [default] * dims

    pads = stated["pad"].split("x") if "pad" in stated else ["0_0"] * dims
    columns = (
        numbers("size", 1),
        numbers("stride", 1),
        [int(pad.split("_")[0]) for pad in pads],
        numbers("lhs_dilate", 1),
        numbers("rhs_dilate", 1),
    )
    return [Window(*row) for row in zip(*columns, strict=True)]


def matrix_flops(instruction: Instruction, lhs: Shape, rhs: Shape) -> int:
    """Return the FLOPs of a dot or a convolution: two for each multiply-add that meets data.

    Of complex numbers a multiply-add has eight.

    Examples
    --------
    >>> from roofline.xla.hlo import parse
    >>> dot = parse('''HloModule t
    ... ENTRY %m (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
    ...   %a = f32[4,8] parameter(0)
    ...   %b = f32[8,2] parameter(1)
    ...   ROOT %c = f32[4,2] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }''').entry
    >>> matrix_flops(dot.root, *(each.shape for each in dot.parameters))
    128
    """
    each_mac = 8 if lhs.dtype.startswith("c") else 2
    if instruction.opcode == "dot":
        inner = math.prod(lhs.dims[d] for d in instruction.numbers("lhs_contracting_dims"))
        return each_mac * instruction.shape.elements * inner
    # bf0_io0->bf0: the dimensions of input, kernel and output
    left, right, out = re.split("_|->", instruction.attributes["dim_labels"])
    macs = lhs.dims[left.index("b")] // int(instruction.attributes.get("batch_group_count", 1))
    macs *= rhs.dims[right.index("i")] * rhs.dims[right.index("o")]
    # a window's sizes are in the order of the labels' numbers, whatever the output's order is
    spatial = sorted(label for label in out if label.isdigit())
    for label, window in zip(spatial, windows_of(instruction, len(spatial)), strict=True):
        size = lhs.dims[left.index(label)]
        positions = instruction.shape.dims[out.index(label)]
        macs *= window.taps(size, positions)
    return each_mac * macs


def share_met(convolution: Instruction, lhs: Shape) -> float:
    """Return the share of its input that a convolution reads: less than 1 where it steps over some.

    Examples
    --------
    >>> from roofline.xla.hlo import parse
    >>> one = parse('''HloModule t
    ... ENTRY %m (a: f32[1,8,4], b: f32[1,4,2]) -> f32[1,4,2] {
    ...   %a = f32[1,8,4] parameter(0)
    ...   %b = f32[1,4,2] parameter(1)
    ...   %c = f32[1,4,2] convolution(%a, %b), window={size=1 stride=2}, dim_labels=b0f_0io->b0f
    ... }''').entry
    >>> share_met(one.root, one.parameters[0].shape)
    0.5
    """
    left, _, out = re.split("_|->", convolution.attributes["dim_labels"])
    spatial = sorted(label for label in out if label.isdigit())
    share = 1.0
    for label, window in zip(spatial, windows_of(convolution, len(spatial)), strict=True):
        positions = convolution.shape.dims[out.index(label)]
        share *= min(positions * window.size / lhs.dims[left.index(label)], 1.0)
    return share


def is_depthwise(instruction: Instruction, lhs: Shape, rhs: Shape) -> bool:
    """Return whether a convolution multiplies no matrices: each of its groups is one channel.

    Also the gradient of one by its weights. Its work is that of the vector unit.
    """
    if instruction.opcode != "convolution":
        return False
    left, right, _ = re.split("_|->", instruction.attributes["dim_labels"])
    groups = int(instruction.attributes.get("feature_group_count", 1))
    of_batch = int(instruction.attributes.get("batch_group_count", 1))
    alone = groups > 1 and rhs.dims[right.index("i")] == 1
    return alone or (of_batch > 1 and lhs.dims[left.index("b")] == of_batch)


def _product_flops(instruction: Instruction, lhs: Shape, rhs: Shape) -> Flops:
    n = matrix_flops(instruction, lhs, rhs)
    return Flops(vector=n) if is_depthwise(instruction, lhs, rhs) else Flops(matrix=n)


# --- The share of each value inside a fusion that must be computed or read -----------------------

_HALVES = ("X64SplitLow", "X64SplitHigh")


@dataclass(frozen=True)
class InPlace:
    """A result of a fusion that updates one of its parameters in place.

    `update` is the name of the updating instruction ("" if an inner fusion does it), `buffer` that
    of the parameter, and `share` the part of the buffer that is written.
    """

    update: str
    buffer: str
    share: float


def in_place(program: Module, inner: Computation) -> dict[str, InPlace]:
    """Return the results of a fusion that update a parameter in place, by name.

    XLA gives such a result the memory of the parameter, and puts a copy before the fusion where the
    old values are still needed. With anything between them that makes other bytes – a conversion, a
    copy, arithmetic – the result is an array of its own, all of which is written.
    """
    updates = {}
    for result in inner.results:
        writer = _in_memory_of(result, inner)
        if writer.opcode == "fusion":
            called = program.called(writer, "calls")[0]
            for inside in list(in_place(program, called).values())[:1]:
                index = [p.name for p in called.parameters].index(inside.buffer)
                buffer = _in_memory_of(writer.operands[index], inner)
                if buffer.opcode == "parameter" and called.root.opcode != "tuple":
                    updates[result] = InPlace("", buffer.name, inside.share)
            continue
        if writer.opcode not in hlo.UPDATES:
            continue
        buffer = _in_memory_of(writer.operands[0], inner)
        if buffer.opcode == "parameter" and buffer.shape.dtype == writer.shape.dtype:
            share = elements_updated(writer, inner) / max(writer.shape.leaves[0].elements, 1)
            updates[result] = InPlace(writer.name, buffer.name, min(share, 1.0))
    return updates


def _in_memory_of(name: str, where: Computation) -> Instruction:
    """Return the instruction whose memory a value has: behind bitcasts, and where HLO says so.

    XLA for v7x says it of a fusion that only changes tiles.
    """
    instruction = where.by_name[name]
    while instruction.opcode == "bitcast" or aliased(instruction)[1] == {0}:
        instruction = where.by_name[instruction.operands[0]]
    return instruction


def aliased(instruction: Instruction) -> tuple[set[int], set[int]]:
    """Return the results of a kernel that are its operands, and those operands, by number."""
    text = instruction.attributes.get("output_to_operand_aliasing", "")
    pairs = re.findall(r"\{(\d*)\}: \((\d+), \{[^}]*\}\)", text)
    return {int(out or 0) for out, _ in pairs}, {int(operand) for _, operand in pairs}


def reorders(site: Site) -> bool:
    """Return whether a transpose or copy changes the order in memory, so that all of it moves."""
    instruction = site.instruction
    if instruction.opcode not in ("transpose", "copy") or instruction.shape.parts is not None:
        return False
    before, after = site.operands[0], instruction.shape
    if not before.order or not after.order:
        return False
    axes = instruction.numbers("dimensions") or tuple(range(len(after.dims)))
    written = [axes[d] for d in after.order if after.dims[d] > 1]
    return written != [d for d in before.order if before.dims[d] > 1]


def elements_updated(update: Instruction, where: Computation) -> int:
    """Return the elements that a dynamic-update-slice or scatter writes."""
    position = 1 if update.base == "dynamic-update-slice" else -(len(update.operands) // 2)
    return where.by_name[update.operands[position]].shape.elements


def combines(program: Module, update: Instruction) -> bool:
    """Return whether an update reads its target: a scatter whose combiner uses the old value."""
    if update.opcode != "scatter":
        return False
    inner = program.called(update, "to_apply", "scatter")[0]
    return any(p.name in inner.users for p in inner.parameters[: len(inner.parameters) // 2])


def operand_shares(site: Site) -> list[float]:
    """Return the share of each operand that a kernel reads, as far as its fusion shows."""
    if site.fused is None:
        # real or imaginary part, or half of a wide integer
        half = site.instruction.target in _HALVES
        return [0.5 if half else 1.0] * len(site.instruction.operands)
    needed = shares_needed(site.program, site.fused)
    return [needed[parameter.name] for parameter in site.fused.parameters]


def shares_needed(program: Module, inner: Computation, share: float = 1) -> dict[str, float]:
    """Return the share of each value inside a fusion that must be computed or read.

    The walk goes back from the result: a user needs the same share of its operands as is needed of
    its own result. But a slice needs only its piece, and an update in place nothing of its buffer
    (except a scatter that adds, which needs the old values). Of operands that are smaller than the
    result, as before a padding, as many elements are needed, at most all.
    """
    return _needs(program, inner, share)[0]


def _needs(program: Module, inner: Computation, share: float) -> tuple[dict[str, float], _Users]:
    """Return each value's share, and the pieces of it that its users need: `ANY` or a slice."""
    users: _Users = {name: {ANY: 0.0} for name in inner.by_name}
    updating = {update.update for update in in_place(program, inner).values()}
    needed: dict[str, float] = {}
    users[inner.root.name][ANY] = share
    for instruction in reversed(inner.instructions):
        needed_share = needed[instruction.name] = min(1.0, sum(users[instruction.name].values()))
        if needed_share == 0:
            continue
        for operand, piece, part in _operand_needs(
            program, inner, instruction, needed_share, instruction.name in updating
        ):
            users[operand][piece] = max(users[operand].get(piece, 0.0), part)
    # Views pass a share on unchanged, so they need nothing more
    return needed, users


def _operand_needs(
    program: Module, inner: Computation, instruction: Instruction, share: float, updates: bool
) -> Iterator[tuple[str, _Piece, float]]:
    """Yield each operand with the piece and the share of it that a share of the result needs."""
    if instruction.opcode == "fusion":
        [nested, *_] = program.called(instruction, "calls")
        outside = dict(zip((p.name for p in nested.parameters), instruction.operands, strict=True))
        _, users = _needs(program, nested, share)
        for name, operand in outside.items():
            for piece, part in users[name].items():
                # Two computed indices may be equal
                at = tuple(outside.get(index, "computed") for index in piece[2])
                yield operand, (*piece[:2], at), part
        return
    if not instruction.operands:
        return
    first, *rest = instruction.operands
    elements = max(inner.by_name[first].shape.leaves[0].elements, 1)
    if instruction.opcode in hlo.SLICES:
        piece = (instruction.opcode, instruction.attributes.get("slice"), tuple(rest))
        yield first, piece, share * min(1.0, instruction.shape.elements / elements)
    elif updates:
        adds = combines(program, instruction)
        changed = share * min(1.0, elements_updated(instruction, inner) / elements) if adds else 0.0
        yield first, (instruction.opcode, instruction.name, ()), changed
    else:
        yield first, ANY, _share_of(instruction, inner.by_name[first].shape, share)
    for operand in rest:
        yield operand, ANY, _share_of(instruction, inner.by_name[operand].shape, share)


def _share_of(instruction: Instruction, operand: Shape, share: float) -> float:
    """Return the share of an operand that a share of the result needs, at most.

    Which elements these are isn't followed: all of them may come from this operand. A concatenation
    needs as many as its result does of all operands together, and an exchange sends all of its own.
    """
    if instruction.base in hlo.COLLECTIVES:
        return 1.0
    if instruction.opcode not in ("broadcast", "pad", "dynamic-update-slice", "reduce-window"):
        return share
    out = instruction.shape.leaves[0]
    taps = math.prod(window.size for window in windows_of(instruction, len(out.dims)))
    least = share if instruction.opcode == "reduce-window" else 0.0  # also where it steps over some
    return min(1.0, max(share * out.elements * taps / max(operand.elements, 1), least))


# --- FLOPs of one instruction, by unit -----------------------------------------------------------


@dataclass(frozen=True)
class Flops:
    """FLOPs by unit. `declared` are those that a custom call states without naming a unit.

    Examples
    --------
    >>> (Flops(matrix=8, vector=2) + Flops(vector=3)).vector
    5
    """

    matrix: int | float = 0
    vector: int | float = 0
    transcendentals: int | float = 0
    declared: int | float = 0
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Flops) -> Flops:
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return Flops(*(mine + theirs for mine, theirs in pairs))

    def __mul__(self, times: float) -> Flops:
        names = ("matrix", "vector", "transcendentals", "declared")
        return replace(self, **{name: getattr(self, name) * times for name in names})


def flops_of(site: Site, share: float = 1) -> Flops:
    """Return the FLOPs of an instruction of which a `share` of the elements is needed."""
    instruction, opcode = site.instruction, site.instruction.base
    n = instruction.shape.leaves[0].elements if instruction.shape.leaves else 0
    if opcode == "fusion":
        return _fused_flops(site, share)
    if opcode in hlo.FREE or opcode in hlo.MOVING:
        return Flops()
    if opcode in hlo.PRODUCTS:
        return _product_flops(instruction, *site.operands[:2]) * share
    if opcode in hlo.ARITHMETIC | hlo.TRANSCENDENTAL:
        if any(shape.dtype in ("c64", "c128") for shape in site.operands):
            return _complex_flops(opcode) * (n * share)
        return Flops(vector=n, transcendentals=n if opcode in hlo.TRANSCENDENTAL else 0) * share
    if opcode in hlo.APPLYING:
        return _applied_flops(site) * share
    if opcode == "custom-call":
        return _call_flops(site)
    if opcode == "fft":  # 5 n log₂ n, half of it if one side is real: a result of half the points
        points = math.prod(instruction.numbers("fft_length")) or 1
        real = instruction.attributes.get("fft_type") == "IRFFT"
        return Flops(vector=(2.5 if real else 5) * n * math.log2(points))
    return Flops(unknown=(f"the opcode {instruction.opcode}",))


_COMPLEX = {
    **dict.fromkeys(("add", "subtract", "negate", "compare"), (2, 0)),
    "select": (1, 0),
    "multiply": (6, 0),
    "divide": (11, 0),  # times the conjugate, over the square of its size
    "abs": (4, 1),
    "exponential": (5, 3),  # exp a · (cos b + i sin b)
    "log": (6, 2),  # of its size, and atan2
    "sine": (6, 4),  # sin a · cosh b + i cos a · sinh b
    "cosine": (7, 4),
    "tanh": (9, 4),
    "sqrt": (10, 3),
    "power": (17, 5),  # exp(b · log a)
}
"""FLOPs of an element of complex numbers as real ones do it, and the transcendentals among them."""


def _complex_flops(opcode: str) -> Flops:
    if opcode not in _COMPLEX:
        return Flops(unknown=(f"complex {opcode}",))
    vector, transcendentals = _COMPLEX[opcode]
    return Flops(vector=vector, transcendentals=transcendentals)


def _products(site: Site) -> Iterator[tuple[Instruction, Shape, Shape]]:
    for part in site.parts():
        if part.instruction.opcode in hlo.PRODUCTS:
            yield part.instruction, part.operands[0], part.operands[1]
        elif part.instruction.opcode == "custom-call":
            product = library_product(part)
            if product is not None:
                yield product
            elif library_attention(part) is not None:
                yield part.instruction, part.operands[0], part.operands[1]


def matrix_types(site: Site) -> tuple[str, ...]:
    """Return the types and the precision of a kernel's matmuls: "bf16", "f32 highest"."""
    listed: dict[str, None] = {}
    for product, *operands in _products(site):
        if is_depthwise(product, *operands):
            continue
        listed[product_type([shape.dtype for shape in operands], product.attributes)] = None
    return tuple(listed)


_ALGORITHM = re.compile(r"dot_(bf16|f16|tf32|f32|f64)_\1_\w+?(?:_(x\d))?")


def product_type(kinds: Sequence[str], attributes: Mapping[str, str]) -> str:
    """Return in what a product of operands of these types multiplies, and how precisely.

    An algorithm, if one is asked for, stands in place of the operands' types and a precision.

    Examples
    --------
    >>> product_type(["f32", "f32"], {"operand_precision": "{highest,highest}"})
    'f32 highest'
    >>> product_type(["f32", "f32"], {"algorithm": "dot_bf16_bf16_f32_x3"})
    'bf16 x3'
    """
    stated = _ALGORITHM.fullmatch(attributes.get("algorithm", ""))
    if stated is not None:
        kind, times = stated.groups()
        return f"{kind} {times or ('highest' if kind == 'f32' else '')}".strip()
    precision = attributes.get("operand_precision", "").strip("{}").split(",")[0]
    return f"{'×'.join(dict.fromkeys(kinds))} {precision.removeprefix('default')}".strip()


def matmul_sides(site: Site) -> tuple[int, ...]:
    """Return m, n and k of a kernel's only matmul, if it has no batch."""
    products = list(_products(site))
    if len(products) != 1 or products[0][0].opcode != "dot":
        return ()
    product, lhs, rhs = products[0]
    k = math.prod(lhs.dims[d] for d in product.numbers("lhs_contracting_dims")) or 1
    m, n = lhs.elements // k, rhs.elements // k
    return (m, n, k) if m * n == product.shape.elements else ()


def _fused_flops(site: Site, share: float) -> Flops:
    inner = site.program.called(site.instruction, "calls")[0]
    needed = shares_needed(site.program, inner, share)
    total = Flops()
    for part in inner.instructions:
        total += flops_of(Site(site.program, inner, part), needed[part.name])
    return total


def _applied_flops(site: Site) -> Flops:
    """Return the FLOPs of an instruction that applies a small computation many times."""
    instruction, operands = site.instruction, site.operands
    operand = operands[0]
    per = Flops()
    for inner in site.program.called(instruction, "to_apply", "scatter"):
        for part in inner.instructions:
            per += flops_of(Site(site.program, inner, part))
    if instruction.opcode == "reduce":
        return per * operand.elements
    if instruction.opcode == "map":
        return per * instruction.shape.elements
    if instruction.opcode == "scatter":  # operands, indices, updates
        return per * operands[-(len(operands) // 2)].elements
    if instruction.opcode == "reduce-window":
        return per * _windowed(instruction, operand)
    if instruction.opcode == "select-and-scatter":  # a compare for each tap, an add for each window
        source = operands[1]
        taps = math.prod(_taps_of(instruction, operand, source))
        return Flops(vector=taps) + per * source.elements
    axis = (instruction.numbers("dimensions") or (0,))[0]
    if instruction.opcode == "scan":  # of slices along an axis, as JAX writes a running sum
        return per * operand.dims[axis]
    # sort: ⌈log₂ n⌉ compares per element
    rounds = math.ceil(math.log2(max(operand.dims[axis], 2)))
    return per * (operand.elements * rounds)


def _taps_of(instruction: Instruction, operand: Shape, out: Shape) -> list[int]:
    """Return the taps of each dimension of a window that moves over an operand."""
    moving = windows_of(instruction, len(out.dims))
    sizes = zip(moving, operand.dims, out.dims, strict=True)
    return [window.taps(size, positions) for window, size, positions in sizes]


def _windowed(instruction: Instruction, operand: Shape) -> int:
    """Return the elements that a reduce-window reduces.

    If every window holds the whole dimension, it is one reduction followed by a broadcast (XLA for
    v7x writes the maximum of a softmax this way): its elements count once.
    """
    out = instruction.shape.leaves[0]
    sizes = zip(_taps_of(instruction, operand, out), operand.dims, out.dims, strict=True)
    return math.prod(size if taps == size * positions else taps for taps, size, positions in sizes)


def _call_flops(site: Site) -> Flops:
    """Return a custom call's declared FLOPs; undeclared FLOPs are unknown, never 0."""
    call = site.instruction
    if call.target in hlo.FREE_CALLS or call.target.startswith("X64"):  # these split numbers
        return Flops()
    cost = declared(call)
    if not cost:
        product = library_product(site)
        if product is not None:
            return _product_flops(*product)
        attention = library_attention(site)
        if attention is not None:
            return attention
        return Flops(unknown=(call.name if call.target == "tpu_custom_call" else call.target,))
    return Flops(
        declared=float(cost.get("flops", 0)),
        vector=float(cost.get("transcendentals", 0)),
        transcendentals=float(cost.get("transcendentals", 0)),
    )
