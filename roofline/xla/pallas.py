"""Pallas kernels, counted from the traced function: FLOPs of their body, bytes of their blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roofline.xla.body import MAIN, Body, inside, item_bytes, small, space_of, value_of
from roofline_helpers.common.show import Facts, si, table

if TYPE_CHECKING:
    import pandas
    from jax._src.pallas.core import BlockMapping, GridMapping
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

    from roofline.xla.body import Known, Positions, Value, Values


# --- Kernels and their operands ------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """One operand or result of a Pallas kernel, and the traffic of its blocks.

    Parameters
    ----------
    name : str
        The name of its reference in the kernel's code.
    shape, dtype : tuple of int, str
        Of the whole array; the type by JAX's name.
    size : float
        Bytes of the whole array.
    block : tuple of int, optional
        Shape of a block; None if the array stays in the main memory, and the kernel's body copies
        from it or to it.
    fetches : int
        Number of fetches or write-backs of a block; 0 without one.
    moved : float
        Bytes of all fetches and copies: across the main memory's boundary on a TPU, requested from
        the caches on a GPU.
    result : bool
        Whether it is written rather than read.
    most : float, optional
        If data decide, the most bytes, as of a fetch in every step; `moved` is then the least: the
        fetches that no choice of blocks avoids, the copies of the cheapest branch. None if it is
        known, or has no end (`at_least`). For a kernel whose grid depends on data, the array once,
        and `moved` is one of the stacked arrays.

    Examples
    --------
    >>> size = 2.0 * 4096**2
    >>> x = Operand("x", (4096, 4096), "bfloat16", size, (512, 512), 512, 512 * 2.0 * 512**2, False)
    >>> x.moved / x.size
    8.0
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: float
    block: tuple[int, ...] | None
    fetches: int
    moved: float
    result: bool
    most: float | None = None


@dataclass(frozen=True, repr=False)
class PallasKernel(Facts):
    """A Pallas kernel, counted from the traced function over all steps of its grid.

    It can be compared with a roofline: ``rh.chip("v6e").roofline("bf16").bound(kernel)``.

    Parameters
    ----------
    machine : {"tpu", "triton"}
        A TPU fetches a block when its index changes; on a GPU each program loads what its body
        reads.
    grid : tuple of int
        Steps along each axis, the last one fastest.
    operands : tuple of Operand
        Operands, then results: `shape`, `dtype` and `size` (bytes) of the array, the shape of a
        `block`, its `fetches` or write-backs, and the bytes `moved`.
    matrix_flops, vector_flops, transcendentals : float
        Of all steps. `vector_flops` includes the transcendentals.
    unsure : tuple of str
        What data decide: "branches", "blocks", "trip counts", "sizes of copies". Counts are then
        the least, `most_flops` the most, and `at_least` says why there is no end.
    vmem, smem : float
        Bytes of VMEM, and of the memory for scalars, before padding: two buffers of each block
        unless its spec says otherwise, scratch, and what the body allocates. 0 for a GPU.
    spilled : float
        Bytes that the body copies to and from scratch in the main memory.
    declared : mapping of str to float, optional
        Its author's `CostEstimate`: "flops", "bytes_accessed", "transcendentals".

    Examples
    --------
    >>> x = Operand("x", (64, 128), "float32", 32768.0, (8, 128), 8, 32768.0, False)
    >>> y = Operand("y", (64, 128), "float32", 32768.0, (8, 128), 8, 32768.0, True)
    >>> kernel = PallasKernel("double", "tpu", (8,), (x, y), 0.0, 8192.0, 0.0)
    >>> kernel
    <double, grid 8: 8.19 kFLOP, 65.5 kB, no cost declared>
    >>> kernel.bytes, kernel.intensity
    (65536.0, 0.125)
    """

    name: str
    machine: str
    grid: tuple[int, ...]
    operands: tuple[Operand, ...]
    matrix_flops: float
    vector_flops: float
    transcendentals: float
    types: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    most_flops: float | None = None
    at_least: str = ""
    vmem: float = 0.0
    smem: float = 0.0
    spilled: float = 0.0
    declared: Mapping[str, float] | None = None

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.matrix_flops + self.vector_flops

    @property
    def doubtful(self) -> bool:
        """Whether data decide how much it computes."""
        return bool(self.at_least) or self.most_flops is not None

    def _crossing(self, results: bool) -> tuple[float, ...]:
        cached = self.machine != "tpu"
        return tuple(
            min(operand.moved, operand.size) if cached else operand.moved
            for operand in self.operands
            if operand.result == results
        )

    @property
    def reads(self) -> tuple[float, ...]:
        """Bytes read of each operand from the main memory – on a GPU each at most once."""
        return self._crossing(results=False)

    @property
    def writes(self) -> tuple[float, ...]:
        """Bytes written of each result to the main memory – on a GPU each at most once."""
        return self._crossing(results=True)

    @property
    def bytes(self) -> float:
        """Bytes across the main memory's boundary – exact on a TPU, the least on a GPU.

        A GPU's caches may serve what programs share: its traffic is between `bytes` and `asked`.
        """
        return sum(self.reads) + sum(self.writes) + self.spilled

    @property
    def most(self) -> float | None:
        """Most bytes, if data choose its blocks – as its author declares, else those of every step.

        None if `bytes` is exact, infinite if nothing bounds them.
        """
        if self.at_least:
            return math.inf
        if all(operand.most is None for operand in self.operands):
            return None
        stated = (self.declared or {}).get("bytes_accessed", 0.0)
        if stated > self.bytes:
            return stated
        most = sum(o.moved if o.most is None else o.most for o in self.operands)
        return max(most + self.spilled, self.bytes)

    @property
    def asked(self) -> float:
        """Bytes requested by all grid steps, caches ignored."""
        return sum(operand.moved for operand in self.operands) + self.spilled

    @property
    def intensity(self) -> float:
        """FLOP/byte at the main memory."""
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def traffic(self) -> dict[str, float]:
        """Bytes by memory level, for a roofline."""
        return {"hbm": self.bytes}

    def table(self) -> pandas.DataFrame:
        """Return a table of the operands, with the traffic of their blocks."""
        return table(
            {
                "operand": f"{operand.name}, written" if operand.result else operand.name,
                "array": _times(operand.shape),
                "block": "–" if operand.block is None else _times(operand.block),
                "fetches": operand.fetches or None,
                "MB": operand.moved / 1e6,
                "× its size": operand.moved / operand.size if operand.size else None,
            }
            for operand in self.operands
        )

    def _title(self) -> str:
        return f"{self.name or 'Pallas kernel'}, grid {_times(self.grid)}"

    def _facts(self) -> dict[str, str]:
        stated = self.declared
        facts = {"FLOPs": si(self.flops, "FLOP"), "bytes": si(self.bytes, "B")}
        if self.unsure:
            facts = {name: f"at least {fact}" for name, fact in facts.items()}
        if self.machine != "tpu":
            facts["asked"] = f"{si(self.asked, 'B')} asked of the caches"
        if self.vmem:
            facts["VMEM"] = f"{si(self.vmem, 'B')} of VMEM"
        facts["declared"] = "no cost declared"
        if stated is not None:
            both = si(stated["flops"], "FLOP"), si(stated["bytes_accessed"], "B")
            facts["declared"] = f"{' and '.join(both)} declared"
        return facts | ({"unsure": f"data decide {_listed(self.unsure)}"} if self.unsure else {})


def _listed(words: Sequence[str]) -> str:
    return " and ".join(words)


def _times(sizes: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in sizes) or "1"


# --- counting -------------------------------------------------------------------------------------

MOST_STEPS = 4_000_000
"""Grids with more steps aren't counted; the declared cost is used."""


def counted(jaxpr: ClosedJaxpr, platform: str = "tpu") -> tuple[PallasKernel, ...]:
    """Return the Pallas kernels in a traced function, in order.

    Parameters
    ----------
    jaxpr : ClosedJaxpr
        The result of ``jax.jit(f).trace(...).jaxpr``.
    platform : {"tpu", "gpu"}
        Platform of kernels that name none.
    """
    constants = [small(value) for value in jaxpr.consts]
    known = dict(zip(jaxpr.jaxpr.constvars, constants, strict=True))
    kernels = (_kernel(*call, platform) for call in _calls(jaxpr.jaxpr, known, platform))
    return tuple(kernel for kernel in kernels if kernel is not None)


def foreign(jaxpr: ClosedJaxpr) -> str | None:
    """Return the machine of Pallas kernels that a TPU can't run; None without any.

    With TPU kernels beside them it is None too: in the gradient of a scan, the platform that
    chooses between them is a value like any other.
    """
    machines = {_machine(call, "tpu") for call, _ in _calls(jaxpr.jaxpr, {}, "tpu")}
    return None if "tpu" in machines else next(iter(sorted(machines)), None)


def requested(jaxpr: ClosedJaxpr) -> float | None:
    """Return the FLOPs of a traced function's matmuls, on all devices.

    None if they aren't known: loops and branches that depend on data.
    """
    least, most = (_products(jaxpr.jaxpr, most) for most in (False, True))
    unsure = (least.unsure | most.unsure) - {"branches"}  # which may have the same matmuls
    return None if unsure or least.matrix != most.matrix else least.matrix


def unused(jaxpr: ClosedJaxpr) -> float:
    """Return the share of the matmul FLOPs that no result of a function needs.

    Matmuls that can't be counted (`requested`) are left out of both.
    """
    from jax.interpreters.partial_eval import dce_jaxpr

    requested_flops = _products(jaxpr.jaxpr).matrix
    needed, _ = dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.jaxpr.outvars))
    return 1 - _products(needed).matrix / requested_flops if requested_flops else 0.0


def _products(jaxpr: Jaxpr, most: bool = False) -> Body:
    walk = Body((), np.zeros((0, 1)), most=most)
    walk.run(jaxpr, {}, np.ones(1))
    return walk


def _calls(jaxpr: Jaxpr, known: Known, platform: str) -> Iterator[tuple[JaxprEqn, Values]]:
    """Yield the calls of Pallas kernels, each with the known values of its operands."""
    for eqn in jaxpr.eqns:
        values = [value_of(var, known) for var in eqn.invars]
        if eqn.primitive.name == "pallas_call":
            yield eqn, values
            continue
        if eqn.primitive.name == "platform_index":
            known[eqn.outvars[0]] = _platform_index(eqn.params["platforms"], platform)
        within = list(inside(eqn))
        if eqn.primitive.name == "cond" and values[0] is not None and np.ndim(values[0]) == 0:
            within, values = [within[int(values[0])]], values[1:]
        for inner, constants in within:
            inputs = inner.invars
            values_of = dict(zip(inner.constvars, map(small, constants), strict=False))
            if len(inputs) == len(values):
                values_of |= dict(zip(inputs, values, strict=True))
            yield from _calls(inner, values_of, platform)


def _platform_index(platforms: Sequence[Any], platform: str) -> Value | None:
    """Return the index of a platform's branch in a platform-dependent program; None without one."""
    names = {"tpu": {"tpu"}, "gpu": {"cuda", "gpu"}}[platform]
    for index, others in enumerate(platforms):
        if others is None or names & set(others):
            return np.asarray(index)
    return None


# --- one kernel -----------------------------------------------------------------------------------


def _kernel(call: JaxprEqn, values: Values, platform: str) -> PallasKernel | None:
    """Return the count of a `pallas_call`; None if its grid is too large, or depends on data.

    None for Mosaic GPU too, whose kernels have their own operations for copies and matmuls. With a
    declared cost a grid may depend on data: then FLOPs are the declared ones. If data choose one of
    a stack of arrays, the least bytes are one of them, plus every other array once; the most are
    the declared bytes.
    """
    mapping = call.params["grid_mapping"]
    body = call.params["jaxpr"]
    grid = tuple(size if isinstance(size, int) else 1 for size in mapping.grid)
    static = grid == tuple(mapping.grid)
    machine = _machine(call, platform)
    cost = call.params.get("cost_estimate")
    if math.prod(grid) > MOST_STEPS or (machine == "mosaic_gpu" if static else cost is None):
        return None
    steps = _steps(grid if static else (1,) * len(grid))
    bounds = mapping.num_dynamic_grid_bounds
    first = mapping.num_index_operands
    prefetched = list(values[bounds : bounds + first])
    walk, dearest = (Body(grid, steps, machine == "triton", most) for most in (False, True))
    for end in (walk, dearest):
        end.run(body, dict(zip(body.invars, prefetched, strict=False)), np.ones(steps.shape[1]))
    unsure = walk.unsure | dearest.unsure
    inputs = [var.aval for var in call.invars[bounds : bounds + first]]
    operands = [_operand(body, at, aval, _size(aval)) for at, aval in enumerate(inputs)]
    refs = body.invars[first:]
    for position, (block, ref) in enumerate(zip(mapping.block_mappings, refs, strict=False)):
        array, fetches, moved, most = _array(block), 0, 0.0, None
        stays = space_of(ref.aval) in MAIN  # the kernel's body copies it
        if not static:
            sizes = zip(array.shape, _chosen(block, len(grid)), strict=True)
            most = _size(array)
            moved = most / math.prod(n for n, chosen in sizes if chosen)
        elif not stays and machine == "tpu":
            fetches, moved, most = _fetched(block, steps, prefetched, grid)
            unsure |= {"blocks"} if most is not None else set()
        if static:
            copied, at_most = (w.moved.get(ref, 0.0) for w in (walk, dearest))
            if at_most > copied:
                most = (moved if most is None else most) + at_most
            moved += copied
        result = position >= mapping.num_inputs
        lengths = None if stays and static else _lengths(block)
        operands.append(
            _operand(body, first + position, array, moved, result, lengths, fetches, most)
        )
    if not static:
        walk.matrix, walk.vector, walk.transcendentals = float(cost.flops), 0.0, 0.0
        unsure.clear()
    most_flops = dearest.matrix + dearest.vector
    doubtful = static and not dearest.endless and most_flops > walk.matrix + walk.vector
    held = machine == "tpu" and static
    vmem = _held(body, mapping, refs, "vmem") if held else 0.0
    smem = _held(body, mapping, refs, "smem") + sum(map(_size, inputs)) if held else 0.0
    scratch = refs[len(mapping.block_mappings) :]
    spilled = sum(walk.moved.get(ref, 0.0) for ref in scratch if space_of(ref.aval) in MAIN)
    named = call.params.get("name_and_src_info")
    keys = "flops", "bytes_accessed", "transcendentals"
    return PallasKernel(
        name=str(call.params.get("name") or getattr(named, "name", "") or ""),
        machine=machine,
        grid=grid,
        operands=tuple(operands),
        matrix_flops=walk.matrix,
        vector_flops=walk.vector,
        transcendentals=walk.transcendentals,
        types=tuple(walk.types),
        unsure=tuple(sorted(unsure)),
        most_flops=most_flops if doubtful else None,
        at_least=f"data decide its {_listed(sorted(unsure))}" if static and dearest.endless else "",
        vmem=vmem,
        smem=smem,
        spilled=spilled,
        declared=None if cost is None else {key: float(getattr(cost, key)) for key in keys},
    )


def _chosen(block: BlockMapping, axes: int) -> list[bool]:
    """Return for each axis of an array whether data choose single blocks along it."""
    indices = _indices(block, (1,) * axes, np.zeros((axes, 1)), ())
    return [
        index is None and not hasattr(size, "block_size") and not isinstance(size, int)
        for index, size in zip(indices, block.block_shape, strict=True)
    ]


def _indices(
    block: BlockMapping, grid: tuple[int, ...], steps: Positions, prefetched: Values
) -> list[Any]:
    """Return the index of a block along each axis, at all steps; None if data choose it."""
    closed = block.index_map_jaxpr
    inner = closed.jaxpr
    known = dict(zip(inner.constvars, map(small, closed.consts), strict=False))
    known |= dict(zip(inner.invars, [*steps, *prefetched], strict=False))
    Body(grid, steps).run(inner, known, np.ones(steps.shape[1]))
    return [value_of(var, known) for var in inner.outvars]


def _machine(call: JaxprEqn, platform: str) -> str:
    """Return the machine of a kernel: by its compiler options, else the platform's default."""
    options = call.params.get("compiler_params")
    stated = [str(call.params.get("backend")), type(options).__module__]
    stated += map(str, options) if isinstance(options, Mapping) else []
    words = " ".join(stated)
    for machine in ("triton", "mosaic_gpu"):
        if machine in words:
            return machine
    if "mosaic" in words or platform == "tpu":
        return "tpu"
    import jax

    return "mosaic_gpu" if getattr(jax.config, "jax_pallas_use_mosaic_gpu", False) else "triton"


def _steps(grid: Sequence[int]) -> Positions:
    """Return the position of every step along each axis, the last axis fastest."""
    return np.indices(grid, dtype=np.int64).reshape(len(grid), math.prod(grid))


def _size(aval: Any) -> float:
    """Return the bytes of an array, or of a reference's target."""
    inner = getattr(aval, "inner_aval", aval)
    return float(math.prod(inner.shape)) * item_bytes(inner.dtype)


def _array(block: BlockMapping) -> Any:
    """Return shape and type of a block's whole array."""
    return getattr(block, "array_aval", None) or block.array_shape_dtype


def _operand(
    body: Jaxpr,
    at: int,
    aval: Any,
    moved: float,
    result: bool = False,
    block: tuple[int, ...] | None = None,
    fetches: int = 0,
    most: float | None = None,
) -> Operand:
    """Return an argument of a body, named as in its code, or by its position."""
    names = getattr(getattr(body, "debug_info", None), "arg_names", None) or ()
    name = str(names[at]) if at < len(names) else ""
    name = name if name.isidentifier() else f"operand {at + 1}"
    shape = tuple(int(n) for n in aval.shape)
    dtype = str(aval.dtype)
    size = _size(aval)
    return Operand(name, shape, dtype, size, block, fetches, moved, result, most)


def _lengths(block: BlockMapping) -> tuple[int, ...]:
    """Return the shape of a block."""
    return tuple(map(_length, block.block_shape))


def _length(size: Any) -> int:
    """Return the length of a block along one axis."""
    return int(getattr(size, "block_size", size if isinstance(size, int) else 1))


def _held(body: Jaxpr, mapping: GridMapping, refs: Sequence[Var], space: str) -> float:
    """Return the bytes that blocks, scratch and the body's own buffers take of a memory."""
    total = 0.0
    for block, ref in zip(mapping.block_mappings, refs, strict=False):
        if _memory(ref) == space:
            buffers = getattr(getattr(block, "pipeline_mode", None), "buffer_count", 2)
            total += buffers * _size(ref.aval)
    scratch = refs[len(mapping.block_mappings) :]
    return total + _sizes(scratch, space) + _allocated(body, space)


def _allocated(jaxpr: Jaxpr, space: str) -> float:
    """Return the most bytes that a body allocates at a time, as for `emit_pipeline`."""
    most = 0.0
    for equation in jaxpr.eqns:
        for inner, _ in inside(equation):
            own = _sizes(inner.invars, space) if equation.primitive.name == "run_scoped" else 0.0
            most = max(most, own + _allocated(inner, space))
    return most


def _sizes(refs: Sequence[Var], space: str) -> float:
    return sum(_size(ref.aval) for ref in refs if _memory(ref) == space)


def _memory(ref: Var) -> str:
    """Return the memory of a reference; a block is in VMEM unless its spec says otherwise."""
    space = space_of(ref.aval)
    return "vmem" if space in ("none", "default") else space


def _fetched(
    block: BlockMapping, steps: Positions, prefetched: Values, grid: tuple[int, ...]
) -> tuple[int, float, float | None]:
    """Return the number of fetches or write-backs of a block over the grid, and the bytes.

    If data choose the blocks, the least bytes, of those that no choice avoids, and the most.
    """
    indices = _indices(block, grid, steps, prefetched)
    chosen = [index is None for index in indices]
    # data may choose the same block in every step, at worst the smallest, at the array's end
    sizes = zip(indices, _array(block).shape, block.block_shape, strict=True)
    least = [(n - 1) // _length(size) if index is None else index for index, n, size in sizes]
    new, positions = _changes(least, steps.shape[1])
    moved = _clipped(block, positions[:, new])
    if not any(chosen):
        return int(new.sum()), moved, None
    whole = [np.zeros(1, int) if index is None else index for index in indices]
    return steps.shape[1], moved, _clipped(block, _changes(whole, steps.shape[1])[1])


def _changes(indices: Sequence[Any], steps: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return whether each step has another block than the one before, and the indices."""
    everywhere = [np.broadcast_to(index, (steps,)) for index in indices]
    stacked = np.stack(everywhere) if everywhere else np.zeros((1, steps))
    moves = stacked[:, 1:] != stacked[:, :-1]
    return np.append(True, moves.any(axis=0))[:steps], stacked


def _clipped(block: BlockMapping, indices: NDArray[Any]) -> float:
    """Return the bytes of blocks at these indices, without the parts outside of the array."""
    array = _array(block)
    elements = np.ones(indices.shape[1])
    for index, whole, size in zip(indices, array.shape, block.block_shape, strict=True):
        length = _length(size)
        first = index * length if type(size).__name__ != "Element" else index
        elements = elements * np.clip(whole - first, 0, length)
    return float(elements.sum()) * item_bytes(array.dtype)
