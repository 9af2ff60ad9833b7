"""Pallas kernels, counted from what JAX traced of them: FLOPs of their body, bytes of their blocks.

A kernel's body runs once for each step of its grid, the last axis fastest. On a TPU the steps run
in this order: before one, each input's block is fetched if its index differs from the step before;
an output's block is written back when its index changes. So the index maps, evaluated over the
whole grid, give the bytes, and the body gives the FLOPs (`body`). On a GPU steps are programs of
their own, in no order: each asks the caches for all of its blocks (Mosaic GPU), or for what its
body loads (Triton), and the main memory moves each array at least once.

FLOPs follow the rules of `roofline_helpers.hlo`: two for a multiply-add of a product, one an
element for everything else that computes, n for a sum over n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from roofline_helpers.compiled.body import Body, inside, item_bytes, small, space_of, value_of
from roofline_helpers.hlo.blocks import Operand, PallasKernel

MOST_STEPS = 4_000_000
"""Steps of a grid above which nothing is counted, and what the kernel declares is taken."""


def counted(jaxpr: Any, platform: str = "tpu") -> tuple[PallasKernel, ...]:
    """Return the Pallas kernels in a traced function, in order.

    Parameters
    ----------
    jaxpr : jax.core.ClosedJaxpr
        What ``jax.jit(f).trace(...).jaxpr`` is.
    platform : {"tpu", "gpu"}
        Where kernels run that don't say it themselves.
    """
    constants = [small(value) for value in jaxpr.consts]
    known = dict(zip(jaxpr.jaxpr.constvars, constants, strict=True))
    return tuple(_kernels(jaxpr.jaxpr, known, platform))


def requested(jaxpr: Any) -> float | None:
    """Return the FLOPs of the products of matrices that a traced function asks for, on all devices.

    None where that isn't known: convolutions, loops and branches that depend on data.
    """
    walk = _products(jaxpr.jaxpr)
    return None if walk.unsure else walk.matrix


def unused(jaxpr: Any) -> float:
    """Return the share of the products' FLOPs that nothing that a function returns needs.

    What can't be counted (`requested`) is left out of both.
    """
    from jax.interpreters.partial_eval import dce_jaxpr

    asked = _products(jaxpr.jaxpr).matrix
    needed, _ = dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.jaxpr.outvars))
    return 1 - _products(needed).matrix / asked if asked else 0.0


def _products(jaxpr: Any) -> Body:
    walk = Body((), np.zeros((0, 1)))
    walk.run(jaxpr, {}, np.ones(1))
    return walk


def _kernels(jaxpr: Any, known: dict[Any, Any], platform: str) -> Iterator[PallasKernel]:
    for each in jaxpr.eqns:
        values = [value_of(var, known) for var in each.invars]
        if each.primitive.name in _RULES:
            kernel = _RULES[each.primitive.name](each, values, platform)
            if kernel is not None:
                yield kernel
            continue
        if each.primitive.name == "platform_index":
            known[each.outvars[0]] = _platform_index(each.params["platforms"], platform)
        within = list(inside(each))
        if each.primitive.name == "cond" and values[0] is not None and np.ndim(values[0]) == 0:
            within, values = [within[int(values[0])]], values[1:]
        for inner, constants in within:
            inputs = inner.invars
            values_of = dict(zip(inner.constvars, map(small, constants), strict=False))
            if len(inputs) == len(values):
                values_of |= dict(zip(inputs, values, strict=True))
            yield from _kernels(inner, values_of, platform)


def _platform_index(platforms: Sequence[Any], platform: str) -> Any:
    """Return which branch a platform takes of those that a program has for each; None for none."""
    names = {"tpu": {"tpu"}, "gpu": {"cuda", "gpu"}}[platform]
    for place, each in enumerate(platforms):
        if each is None or names & set(each):
            return np.asarray(place)
    return None


# --- one kernel -----------------------------------------------------------------------------------


def _by_blocks(each: Any, values: Sequence[Any], platform: str) -> PallasKernel | None:
    """Return the count of a `pallas_call`; None where its grid is too large, or isn't known."""
    mapping = each.params["grid_mapping"]
    grid = mapping.grid
    if not all(isinstance(size, int) for size in grid):
        return _by_declaration(each, mapping, platform)
    if math.prod(grid) > MOST_STEPS:
        return None
    machine = _machine(each, platform)
    steps = _steps(grid)
    first = mapping.num_index_operands
    prefetched = list(values[:first])
    body = each.params["jaxpr"]
    walk = Body(tuple(grid), steps, loads={"triton": "", "mosaic_gpu": "gmem"}.get(machine))
    walk.run(body, dict(zip(body.invars, prefetched, strict=False)), np.ones(steps.shape[1]))
    operands = [
        Operand(
            _name(body, at), _dims(aval), str(aval.dtype), _size(aval), None, 0, _size(aval), False
        )
        for at, aval in enumerate(var.aval for var in each.invars[:first])
    ]
    alone = _programs(each, machine, steps)
    refs = body.invars[first:]
    for place, (block, ref) in enumerate(zip(mapping.block_mappings, refs, strict=False)):
        fetches, moved, most = 0, 0.0, None
        stays = space_of(ref.aval) in ("any", "hbm", "gmem")  # the kernel copies itself
        if not stays and machine != "triton":
            fetches, moved, most = _fetched(block, steps, prefetched, walk, alone)
        array = _array(block)
        own = sum(walk.moved.get(ref, (0.0, 0.0)))
        operands.append(
            Operand(
                _name(body, first + place),
                _dims(array),
                str(array.dtype),
                _size(array),
                None if stays else tuple(map(_length, block.block_shape)),
                fetches,
                moved + own,
                place >= mapping.num_inputs,
                most,
            )
        )
    vmem = _vmem(mapping, refs) if machine == "tpu" else 0.0
    return _kernel(each, machine, tuple(grid), operands, walk, vmem)


def _by_declaration(each: Any, mapping: Any, platform: str) -> PallasKernel | None:
    """Return the count of a `pallas_call` whose grid depends on data; None without a declared cost.

    FLOPs are those that its author declares. Where data choose one of a stack of arrays, the least
    is one of them, and every other array once; the most is what the author declares.
    """
    cost = each.params.get("cost_estimate")
    if cost is None:
        return None
    grid = tuple(size if isinstance(size, int) else 1 for size in mapping.grid)
    once, body = (1,) * len(grid), each.params["jaxpr"]
    walk = Body(once, _steps(once))
    walk.run(body, {}, np.ones(1))
    bounds, first = mapping.num_dynamic_grid_bounds, mapping.num_index_operands
    operands = []
    for place, var in enumerate(each.invars[bounds : bounds + first]):
        size = _size(var.aval)
        whole = _dims(var.aval), str(var.aval.dtype), size, None, 0, size, False
        operands.append(Operand(_name(body, place), *whole))
    for place, block in enumerate(mapping.block_mappings):
        array, size = _array(block), _size(_array(block))
        chosen = _chosen(block, len(grid))
        least = size / math.prod(n for n, one in zip(array.shape, chosen, strict=True) if one)
        lengths = tuple(map(_length, block.block_shape))
        operands.append(
            Operand(
                _name(body, first + place),
                _dims(array),
                str(array.dtype),
                size,
                lengths,
                0,
                least,
                place >= mapping.num_inputs,
                size,
            )
        )
    walk.matrix, walk.vector, walk.transcendentals = float(cost.flops), 0.0, 0.0
    walk.unsure.clear()
    return _kernel(each, _machine(each, platform), grid, operands, walk, 0.0)


def _chosen(block: Any, axes: int) -> list[bool]:
    """Return along which axes of its array data choose a block of which there is one at a time."""
    closed = block.index_map_jaxpr
    inner = closed.jaxpr
    known = dict(zip(inner.constvars, map(small, closed.consts), strict=False))
    known |= {var: np.zeros(1) for var in inner.invars[:axes]}
    once = (1,) * axes
    Body(once, _steps(once)).run(inner, known, np.ones(1))
    single = [
        not hasattr(size, "block_size") and not isinstance(size, int) for size in block.block_shape
    ]
    return [
        one and value_of(var, known) is None for one, var in zip(single, inner.outvars, strict=True)
    ]


def _by_program(each: Any, values: Sequence[Any], platform: str) -> PallasKernel | None:
    """Return the count of what `mosaic_gpu.kernel` launches, whose body copies all by itself."""
    meshes, bodies = each.params["meshes"], each.params["jaxprs"]
    if len(meshes) != 1 or "mosaic_gpu" not in type(meshes[0]).__module__:
        return None
    axes = dict(meshes[0].shape)
    grid = tuple(axes.values())
    if math.prod(grid) > MOST_STEPS:
        return None
    body = bodies[0]
    steps = _steps(grid)
    walk = Body(grid, steps, axes, "gmem")
    walk.run(body, dict(zip(body.invars, values, strict=False)), np.ones(steps.shape[1]))
    count = len(each.invars)
    operands = []
    for place, ref in enumerate(body.invars[: count + len(each.outvars)]):
        moved, aval = sum(walk.moved.get(ref, (0.0, 0.0))), ref.aval
        shape, dtype = _dims(aval), str(aval.dtype)
        name = _name(body, place)
        operands.append(Operand(name, shape, dtype, _size(aval), None, 0, moved, place >= count))
    return _kernel(each, "mosaic_gpu", grid, operands, walk, 0.0)


_RULES = {"pallas_call": _by_blocks, "mpmd_map": _by_program}
"""Equations that launch a kernel."""


def _kernel(
    each: Any, machine: str, grid: tuple[int, ...], operands: Any, walk: Body, vmem: float
) -> PallasKernel:
    """Return a kernel, whose operands and body are counted."""
    named, cost = each.params.get("name_and_src_info"), each.params.get("cost_estimate")
    keys = "flops", "bytes_accessed", "transcendentals"
    return PallasKernel(
        name=str(each.params.get("name") or getattr(named, "name", "") or ""),
        machine=machine,
        grid=grid,
        operands=tuple(operands),
        matrix_flops=walk.matrix,
        vector_flops=walk.vector,
        transcendentals=walk.transcendentals,
        types=tuple(walk.types),
        unsure=tuple(sorted(walk.unsure)),
        vmem=vmem,
        declared=None if cost is None else {key: float(getattr(cost, key)) for key in keys},
    )


def _machine(each: Any, platform: str) -> str:
    """Return who moves a kernel's blocks: what its options are for, else the platform's default."""
    options = each.params.get("compiler_params")
    stated = [str(each.params.get("backend")), type(options).__module__]
    stated += map(str, options) if isinstance(options, Mapping) else []
    words = " ".join(stated)
    for machine in ("triton", "mosaic_gpu"):
        if machine in words:
            return machine
    if "mosaic" in words or platform == "tpu":
        return "tpu"
    import jax

    return "mosaic_gpu" if getattr(jax.config, "jax_pallas_use_mosaic_gpu", False) else "triton"


def _steps(grid: Sequence[int]) -> Any:
    """Return the place of every step along each axis, the last axis fastest."""
    return np.indices(grid, dtype=np.int64).reshape(len(grid), math.prod(grid))


def _programs(each: Any, machine: str, steps: Any) -> Any:
    """Return which steps begin a program, one that keeps nothing of the step before."""
    begins = np.zeros(steps.shape[1], dtype=bool)
    begins[0] = True
    if machine == "tpu":
        return begins
    kinds = getattr(each.params.get("compiler_params"), "dimension_semantics", None)
    kinds = kinds or ["parallel"] * steps.shape[0]
    alone = steps[[place for place, kind in enumerate(kinds) if str(kind) == "parallel"]]
    begins[1:] = (alone[:, 1:] != alone[:, :-1]).any(axis=0)
    return begins


def _dims(aval: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in aval.shape)


def _size(aval: Any) -> float:
    """Return the bytes of an array, or of what a reference points to."""
    inner = getattr(aval, "inner_aval", aval)
    return float(math.prod(inner.shape)) * item_bytes(inner.dtype)


def _array(block: Any) -> Any:
    """Return shape and type of the whole array that a block is of."""
    return getattr(block, "array_aval", None) or block.array_shape_dtype


def _name(body: Any, place: int) -> str:
    """Return what the kernel's author calls an argument of a body, by its place if by no name."""
    names = getattr(getattr(body, "debug_info", None), "arg_names", None) or ()
    name = str(names[place]) if place < len(names) else ""
    return name if name.isidentifier() else f"operand {place + 1}"


def _length(size: Any) -> int:
    """Return the length of a block along one axis."""
    return int(getattr(size, "block_size", size if isinstance(size, int) else 1))


def _vmem(mapping: Any, refs: Sequence[Any]) -> float:
    """Return the bytes of the chip's memory that blocks and scratch take."""
    total = 0.0
    for block, ref in zip(mapping.block_mappings, refs, strict=False):
        if space_of(ref.aval) not in ("any", "hbm", "smem", "semaphore"):
            buffers = getattr(getattr(block, "pipeline_mode", None), "buffer_count", 2)
            total += buffers * _size(ref.aval)
    scratch = refs[len(mapping.block_mappings) :]
    return total + sum(_size(ref.aval) for ref in scratch if space_of(ref.aval) == "vmem")


def _fetched(
    block: Any, steps: Any, prefetched: Sequence[Any], walk: Body, begins: Any
) -> tuple[int, float, float | None]:
    """Return how often a block is fetched or written back over the whole grid, and the bytes.

    Where data choose the blocks, the least bytes and the most.
    """
    closed = block.index_map_jaxpr
    inner = closed.jaxpr
    known = dict(zip(inner.constvars, map(small, closed.consts), strict=False))
    known |= dict(zip(inner.invars, [*steps, *prefetched], strict=False))
    Body(walk.grid, steps).run(inner, known, np.ones(steps.shape[1]))
    indices = []
    for var in inner.outvars:
        value = value_of(var, known)
        if value is None:
            walk.unsure.add("blocks chosen by data")
            once = math.prod(map(_length, block.block_shape)) * item_bytes(_array(block).dtype)
            most = float(steps.shape[1]) * once
            return steps.shape[1], min(most, _size(_array(block))), most
        indices.append(np.broadcast_to(value, steps.shape[1:]))
    places = np.stack(indices) if indices else np.zeros((1, steps.shape[1]))
    new = begins.copy()
    new[1:] |= (places[:, 1:] != places[:, :-1]).any(axis=0)
    return int(new.sum()), _clipped(block, places[:, new]), None


def _clipped(block: Any, places: Any) -> float:
    """Return the bytes of blocks at these places: what lies outside of the array isn't moved."""
    array = _array(block)
    elements = np.ones(places.shape[1])
    for place, whole, size in zip(places, array.shape, block.block_shape, strict=True):
        length = _length(size)
        first = place * length if type(size).__name__ != "Element" else place
        elements = elements * np.clip(whole - first, 0, length)
    return float(elements.sum()) * item_bytes(array.dtype)
