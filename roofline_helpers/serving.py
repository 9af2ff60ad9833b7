"""One step of serving a language model on one chip: kernels, seconds, memory.

A step is a forward pass of a decoder in the manner of Llama: *decode* makes one token for each
sequence of a batch, *prefill* reads prompts. Every kernel is a `Work`, its time the roofline's,
and the step takes their sum. What the chip holds is counted beside it.

What is counted
    Norms, projections, rotary embedding, cache, attention, SwiGLU and residuals of each layer; the
    embedding, the last norm and the vocabulary's matrix once a step. Queries, keys and values are
    one product, and so are gate and up, as serving stacks store those weights side by side. In
    prefill only the last token of each prompt goes through the vocabulary's matrix.
Types
    Activations are in the chip's 16-bit type. Narrow *weights* are those of the layers' products;
    embedding, norms and the vocabulary's matrix stay 16 bits wide, as quantised checkpoints keep
    them. Narrow weights alone save bytes, not FLOPs: they are unpacked on the way to the matrix
    unit, which computes in 16 bits, so every chip can have them. A product runs at a narrow
    type's peak only where its *activations* are narrow too, and the chip must have that peak.
    Attention computes in 16 bits whatever the cache's type.
Not counted, so that times are lower bounds
    Unpacking narrow weights and caches, their scales, sampling, the launch of kernels, the
    allocator's reserve. One chip (a v7x: both of its JAX devices), no communication.

Sources: A. Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783; J. Ainslie et al.,
arXiv:2305.13245 (grouped-query attention); J. Su et al., arXiv:2104.09864 (rotary embedding).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import resources
from typing import Any

from roofline_helpers import work
from roofline_helpers._checks import (
    BadType,
    BadValue,
    name_of,
    shown,
    single,
    text,
    whole,
)
from roofline_helpers.dtypes import BITS, nbytes
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.hardware import Chip, Figure, all_chips
from roofline_helpers.hardware import chip as chip_of
from roofline_helpers.roofline import Roofline
from roofline_helpers.work import Work

PHASES = ("decode", "prefill")
ATTENTION = ("naive", "flash")
NARROW = ("fp8", "int8", "int4")
"""Types of weights and cache beside the chip's 16-bit one."""

COSTS: Mapping[str, Mapping[str, int]] = {
    "RoPE": {"× cos": 1, "other half × sin": 1, "add": 1},
    "quantise": {"× 1/scale": 1, "round": 1},
}
"""FLOPs on one element of what `work.COSTS` does not have. Scales are fixed beforehand."""


@dataclass(frozen=True)
class Fused:
    """A kernel of a fusion strategy: operations, how often a step runs it, what it also writes.

    `count` is "once", "layers" or "between" (once less than layers). `keep` names tensors that
    are made and read inside, and needed outside too. A kernel whose first operation a step does
    not have is left out of it; its other operations may be missing.
    """

    ops: tuple[str, ...]
    count: str = "layers"
    keep: tuple[str, ...] = ()


def _each(*ops: str) -> tuple[Fused, ...]:
    return tuple(Fused((op,)) for op in ops)


_START = Fused(("embedding",), "once")
_END = Fused(("LM head",), "once")

STRATEGIES: Mapping[str, tuple[Fused, ...]] = {
    "none": (
        _START,
        *_each("RMSNorm 1", "quantise 1", "QKV projection", "RoPE", "KV append"),
        *_each("Q·Kᵀ", "softmax", "P·V", "flash attention", "quantise o"),
        *_each("output projection", "residual 1", "RMSNorm 2", "quantise 2"),
        *_each("gate+up projection", "SwiGLU", "quantise h", "down projection", "residual 2"),
        Fused(("final RMSNorm",), "once"),
        _END,
    ),
    "pointwise": (
        _START,
        Fused(("RMSNorm 1", "quantise 1"), "once"),
        *_each("QKV projection"),
        Fused(("RoPE", "KV append")),
        *_each("Q·Kᵀ", "softmax", "P·V", "flash attention", "quantise o", "output projection"),
        Fused(("residual 1", "RMSNorm 2", "quantise 2"), keep=("x'",)),
        *_each("gate+up projection"),
        Fused(("SwiGLU", "quantise h")),
        *_each("down projection"),
        Fused(("residual 2", "next RMSNorm 1", "next quantise 1"), "between", keep=("x''",)),
        Fused(("residual 2", "final RMSNorm"), "once"),
        _END,
    ),
    "epilogue": (
        _START,
        Fused(("RMSNorm 1", "quantise 1")),
        Fused(("QKV projection", "RoPE", "KV append")),
        *_each("Q·Kᵀ", "softmax"),
        Fused(("P·V", "quantise o")),
        Fused(("flash attention", "quantise o")),
        Fused(("output projection", "residual 1")),
        Fused(("RMSNorm 2", "quantise 2")),
        Fused(("gate+up projection", "SwiGLU", "quantise h")),
        Fused(("down projection", "residual 2")),
        Fused(("final RMSNorm",), "once"),
        _END,
    ),
}
"""The kernels of each fusion strategy, in order.

"none": each operation is a kernel, as in eager mode.

"pointwise": operations on elements and rows join their neighbours of that kind – residual with
the norm after it, also of the next layer; RoPE with the cache; SwiGLU – but no product: what
XLA's and Inductor's loop fusion do around library calls.

"epilogue": what works on a product's output tile goes into the product's kernel: RoPE and
the cache, SwiGLU, residuals. A norm needs whole rows, which lie in several tiles, so it stays a
kernel of its own: fused serving kernels, and XLA's output fusion on a TPU.
"""


@dataclass(frozen=True)
class Model:
    """A decoder with grouped-query attention and a gated feed-forward, as Llama has them.

    Parameters
    ----------
    name : str
    layers, d_model, heads, kv_heads, head_dim, d_ff, vocabulary : int
        Depth and widths. Embedding and output matrix are two matrices.
    source : str
        Where the figures were read.

    Raises
    ------
    BadType, BadValue
        Not whole positive numbers; heads not a multiple of kv_heads; an odd head_dim, of which
        RoPE cannot make pairs.

    Examples
    --------
    >>> LLAMA_3_8B.parameters, LLAMA_3_8B.cache_per_token("bf16")
    (8030261248, 131072)
    """

    name: str
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int
    vocabulary: int
    source: str = ""

    def __post_init__(self) -> None:
        text("name", self.name)
        text("source", self.source)
        for field, given in asdict(self).items():
            if field not in ("name", "source"):
                object.__setattr__(self, field, whole(field, given))
        if self.heads % self.kv_heads:
            raise BadValue(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise BadValue(f"head_dim must be even, got {self.head_dim}")

    @property
    def q_width(self) -> int:
        """Elements of all queries of one token – heads · head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all keys of one token – kv_heads · head_dim."""
        return self.kv_heads * self.head_dim

    @property
    def matrices(self) -> int:
        """Elements of the weight matrices of one layer."""
        attention = self.d_model * (2 * self.q_width + 2 * self.kv_width)
        return attention + 3 * self.d_model * self.d_ff

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        norms = (2 * self.layers + 1) * self.d_model
        return self.layers * self.matrices + norms + 2 * self.vocabulary * self.d_model

    def weights_bytes(self, weights: Any, rest: Any = "bf16") -> int:
        """Return the bytes of all weights: the layers' matrices in one type, the rest in another.

        Raises
        ------
        UnknownName, BadType
            No such data type.
        """
        matrices = self.layers * self.matrices
        return int(nbytes(matrices, weights) + nbytes(self.parameters - matrices, rest))

    def cache_per_token(self, dtype: Any = "bf16") -> int:
        """Return the bytes of keys and values that one token leaves in the cache.

        2 · layers · kv_heads · head_dim elements.

        Raises
        ------
        UnknownName, BadType
            No such data type.
        """
        return int(nbytes(2 * self.layers * self.kv_width, dtype))


LLAMA_3_8B = Model(
    name="Llama 3 8B",
    layers=32,
    d_model=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    d_ff=14336,
    vocabulary=128256,
    source="arXiv:2407.21783, table 3; vocabulary: params.json of meta-llama/Meta-Llama-3-8B",
)
"""Llama 3 8B: trained for 8192 tokens of context (Llama 3.1 8B, the same shape, for 131 072)."""


@dataclass(frozen=True)
class Setting:
    """What a step is asked for, checked and with every default filled in. See `step`."""

    model: Model
    chip: Chip
    phase: str
    batch: int
    context: int
    weights: str
    activations: str
    cache: str
    fusion: str
    attention: str

    @property
    def tokens(self) -> int:
        """Tokens that the step works on – new ones of all sequences."""
        return self.batch * (1 if self.phase == "decode" else self.context)


@dataclass(frozen=True)
class Kernel:
    """A kernel of a step.

    `ops` are the operations fused into it, `count` is how often the step runs it, `work` and
    `seconds` are of one run, `limit` is the ceiling that it meets ("matrix", "vector", "hbm").
    """

    ops: tuple[str, ...]
    count: int
    work: Work
    roof: Roofline
    seconds: float
    limit: str

    @property
    def name(self) -> str:
        """The operations, joined with "+"."""
        return " + ".join(self.ops)

    @property
    def total(self) -> float:
        """Seconds of all its runs in the step."""
        return self.count * self.seconds

    @property
    def bound(self) -> str:
        """What bounds it – "memory" or "compute"."""
        return "memory" if self.limit == "hbm" else "compute"

    @property
    def attainable(self) -> float:
        """FLOP/s under its roof."""
        return min(self.roof.peak, float(self.work.flops / self.seconds))


@dataclass(frozen=True)
class Memory:
    """Bytes that a step needs at once, and that the chip has.

    `activations` is the most that is alive during any kernel: what it reads and writes, and what
    a later kernel still needs.
    """

    weights: int
    cache: int
    activations: int
    capacity: float

    @property
    def total(self) -> int:
        """Bytes needed."""
        return self.weights + self.cache + self.activations

    @property
    def room(self) -> float:
        """Bytes left over; negative: bytes missing."""
        return self.capacity - self.total

    @property
    def fits(self) -> bool:
        """Whether the chip has that much."""
        return self.room >= 0


@dataclass(frozen=True)
class Step:
    """One step: its kernels and what follows from them.

    A step that does not fit has times all the same: what they would be with memory enough.
    """

    setting: Setting

    @cached_property
    def _jobs(self) -> list[tuple[tuple[str, ...], int, Work]]:
        return _kernels(self.setting)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Each kernel once, in the order of their first run."""
        dtypes = {job.dtype for _, _, job in self._jobs}
        roofs = {dtype: self.setting.chip.roofline(dtype) for dtype in dtypes}
        found = []
        for ops, count, job in self._jobs:
            times = roofs[job.dtype].times(job)
            limit = max(times, key=lambda part: times[part])  # of equals the first
            found.append(Kernel(ops, count, job, roofs[job.dtype], float(times[limit]), limit))
        return tuple(found)

    @cached_property
    def memory(self) -> Memory:
        """Weights, cache and activations against the chip's memory."""
        s = self.setting
        return Memory(
            weights=s.model.weights_bytes(s.weights, s.chip.half),
            cache=s.batch * s.context * s.model.cache_per_token(s.cache),
            activations=_alive([job for _, _, job in self._jobs]),
            capacity=s.chip.memory["hbm"].capacity.value,
        )

    @property
    def fits(self) -> bool:
        """Whether weights, cache and activations fit into the chip's memory."""
        return self.memory.fits

    @cached_property
    def seconds(self) -> float:
        """Seconds of the step, the sum over all runs of all kernels.

        In prefill this is the time to the first token.
        """
        return sum(kernel.total for kernel in self.kernels)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all sequences over seconds."""
        return self.setting.tokens / self.seconds

    @property
    def time_per_token(self) -> float:
        """Seconds per token of *one* sequence – decode: those of the step; prefill: / context."""
        return self.seconds * self.setting.batch / self.setting.tokens

    @property
    def flops(self) -> int:
        """FLOPs of the step."""
        return sum(int(k.count * k.work.flops) for k in self.kernels)

    @property
    def bytes(self) -> int:
        """Bytes that the step moves."""
        return sum(int(k.count * k.work.bytes) for k in self.kernels)

    @property
    def intensity(self) -> float:
        """FLOP/byte of the whole step."""
        return self.flops / self.bytes

    @property
    def peak(self) -> float:
        """FLOP/s of the type that the layers' products compute in."""
        return self.setting.chip.peak(self.setting.activations, "matrix").value

    @property
    def mfu(self) -> float:
        """FLOPs of the step, as its kernels do them, over seconds and `peak`."""
        return self.flops / self.seconds / self.peak

    def but(self, **changes: Any) -> Step:
        """Return the same step with some of `step`'s arguments changed.

        Raises
        ------
        BadType, BadValue, UnknownName
            As `step`; also no such argument.
        """
        given = {name: getattr(self.setting, name) for name in Setting.__dataclass_fields__}
        known = {name_of("argument of step", name, given): v for name, v in changes.items()}
        return step(**{**given, **known})

    def largest_batch(self) -> int:
        """Return the largest batch that fits at this context; 0 if none does."""
        one = self.but(batch=1).memory  # cache and activations are those of a sequence, times batch
        return max(0, int(one.capacity - one.weights) // (one.cache + one.activations))

    def largest_context(self) -> int:
        """Return the largest context that fits at this batch; 0 if none does.

        What memory allows, whatever context the model was trained for.
        """
        return _largest(lambda context: self.but(context=context).fits)

    def narrower(self) -> list[Step]:
        """Return the steps with narrower weights or cache that fit, the least change first.

        Of the 8-bit types fp8 is tried where the chip's matrix unit has it, else int8.
        """
        s = self.setting
        types = ("fp8" if "fp8" in s.chip.matrix else "int8", "int4")

        def at_most(own: str) -> list[str]:
            return [own, *(other for other in types if BITS[other] < BITS[own])]

        found = [
            self if weights == s.weights else self.but(weights=weights, activations=s.chip.half)
            for weights in at_most(s.weights)
        ]
        found = [one.but(cache=cache) for one in found for cache in at_most(s.cache)][1:]
        found.sort(key=lambda one: -BITS[one.setting.weights] - BITS[one.setting.cache])
        return [one for one in found if one.fits]


def step(
    model: Model,
    chip: Any,
    *,
    phase: str = "decode",
    batch: int = 1,
    context: int = 2048,
    weights: Any = None,
    activations: Any = None,
    cache: Any = None,
    fusion: str = "pointwise",
    attention: str = "flash",
) -> Step:
    """Return one step of serving a model on one chip.

    Parameters
    ----------
    model : Model
        For instance `LLAMA_3_8B`.
    chip : str, Chip or jax.Device
        As `roofline_helpers.chip` takes it.
    phase : {"decode", "prefill"}
        One new token a sequence, or whole prompts.
    batch : int
        Sequences.
    context : int
        Tokens of each sequence in the cache, those of this step included: what the new token of a
        decode step sees, or the length of the prompts.
    weights, cache : str or data type, optional
        The chip's 16-bit type (the default), fp8, int8 or int4.
    activations : str or data type, optional
        Type in which activations enter the layers' products: the chip's 16-bit type (the
        default), or fp8 or int8 with weights of that type, on a chip that has such a peak.
        They are quantised on the way, with scales that were fixed beforehand.
    fusion : {"none", "pointwise", "epilogue"}
        See `STRATEGIES`.
    attention : {"naive", "flash"}
        Three kernels with the scores in memory, or one. In prefill, the one skips what the causal
        mask hides; the three compute everything.

    Raises
    ------
    UnknownName
        No such chip, type, phase, strategy; activations in a type that the chip has no peak for.
    BadType, BadValue
        Not a model; not a whole positive number; narrow activations with other weights.

    Examples
    --------
    >>> one = step(LLAMA_3_8B, "h100", batch=64, context=2048)
    >>> f"{one.tokens_per_second:.0f} tokens/s, {one.seconds * 1e3:.1f} ms, {one.fits}"
    '6519 tokens/s, 9.8 ms, True'
    """
    if not isinstance(model, Model):
        raise BadType(f"model must be a Model (serving.LLAMA_3_8B), got {shown(model)}")
    found = chip_of(chip)
    half = found.half

    def of_type(what: str, given: Any) -> str:
        options = (half, *NARROW)
        return half if given is None else name_of(what, dtype_of(given), options)

    weights = of_type(f"type of weights on {found.name}", weights)
    activations = of_type(f"type of activations on {found.name}", activations)
    if activations != half:
        found.peak(activations, "matrix")
        if activations != weights or BITS[activations] < 8:
            raise BadValue(
                f"activations must be {half}, or fp8 or int8 with weights of that type, "
                f"got {activations} with {weights} weights"
            )
    return Step(
        Setting(
            model=model,
            chip=found,
            phase=name_of("phase", phase, PHASES),
            batch=whole("batch", batch),
            context=whole("context", context),
            weights=weights,
            activations=activations,
            cache=of_type(f"type of cache on {found.name}", cache),
            fusion=name_of("fusion", fusion, STRATEGIES),
            attention=name_of("attention", attention, ATTENTION),
        )
    )


def best_batch(model: Model, chip: Any, *, latency: float, **setting: Any) -> Step | None:
    """Return the step with the most tokens per second that fits and takes at most `latency`.

    In decode that is the time between two tokens of a sequence, in prefill the time to the first
    one. Each kernel's time grows by at most its share when the batch does, so tokens per second
    never fall with it, and the largest batch allowed is the best.

    Parameters
    ----------
    latency : float
        Seconds.
    **setting
        What `step` takes, but for `batch`.

    Returns
    -------
    Step or None
        None if batch 1 is too slow or does not fit.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `step`; a latency that is not a positive number.
    """
    if "batch" in setting:
        raise BadType(f"best_batch() looks for the batch: none can be given, got {setting}")
    limit = single("latency", latency)
    one = step(model, chip, **setting)
    most = one.largest_batch()
    found = _largest(lambda n: n <= most and bool(one.but(batch=n).seconds <= limit))
    return one.but(batch=found) if found else None


def _largest(allowed: Callable[[int], bool]) -> int:
    """Return the largest whole number that is allowed, 0 if 1 is not; all below it must be."""
    low, high = 0, 1
    while allowed(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


# --- the kernels ----------------------------------------------------------------------------------


def _kernels(s: Setting) -> list[tuple[tuple[str, ...], int, Work]]:
    ops = _ops(s)
    counts = {"once": 1, "layers": s.model.layers, "between": s.model.layers - 1}
    found = []
    for kernel in STRATEGIES[s.fusion]:
        present = tuple(op for op in kernel.ops if op in ops)
        if kernel.ops[0] in ops and counts[kernel.count]:
            job = ops[present[0]]
            if len(present) > 1:
                job = work.fuse(*(ops[op] for op in present), keep=kernel.keep)
            found.append((present, counts[kernel.count], job))
    return found


def _ops(s: Setting) -> dict[str, Work]:
    """Return every operation as a kernel of its own.

    Tensors that stay in memory have capital letters: W and γ weights, K and V the cache.
    """
    model, half, rows = s.model, s.chip.half, s.tokens
    d, q_width, kv_width = model.d_model, model.q_width, model.kv_width
    narrow = s.activations != half
    ops: dict[str, Work] = {}

    def norm(op: str, x: str, y: str, tag: str) -> None:
        ops[op] = work.rmsnorm(rows, d, half, x=x, y=y, tag=tag)

    def quantise(op: str, tensor: str, width: int) -> None:
        if narrow:
            reads, writes = {tensor: half}, {f"{tensor}, narrow": s.activations}
            ops[op] = work.elementwise(rows * width, reads, writes, _cost("quantise"), half)

    def project(op: str, x: str, weight: str, k: int, outs: Mapping[str, int]) -> None:
        x = f"{x}, narrow" if narrow else x
        names = (x, f"W {weight}", "out")
        n = sum(outs.values())
        job = work.matmul(rows, n, k, s.activations, b=s.weights, out=half, names=names)
        writes = {y: nbytes(rows * width, half) for y, width in outs.items()}
        ops[op] = replace(job, writes=writes)

    taken = nbytes(rows * d, half)
    gathered = {"ids": nbytes(rows, "int32"), "W embedding, rows": taken}
    ops["embedding"] = Work("embedding", gathered, {"x": taken}, dtype=half)
    norm("RMSNorm 1", "x", "n1", "1")
    quantise("quantise 1", "n1", d)
    project("QKV projection", "n1", "qkv", d, {"q": q_width, "k": kv_width, "v": kv_width})
    queries, keys = nbytes(rows * q_width, half), nbytes(rows * kv_width, half)
    ops["RoPE"] = Work(
        "RoPE",
        {"q": queries, "k": keys, "cos, sin": nbytes(rows * model.head_dim, half)},
        {"q, turned": queries, "k, turned": keys},
        vector_flops=rows * (q_width + kv_width) * _cost("RoPE"),
        dtype=half,
    )
    stored = nbytes(rows * kv_width, s.cache)
    ops["KV append"] = Work(
        "KV append",
        {"k, turned": keys, "v": keys},
        {"K cache, new": stored, "V cache, new": stored},
        vector_flops=0 if s.cache == half else 2 * rows * kv_width * _cost("quantise"),
        dtype=half,
    )
    ops |= _attention(s)
    quantise("quantise o", "o", q_width)
    project("output projection", "o", "o", q_width, {"a": d})
    ops["residual 1"] = work.add(rows * d, half, x="x", other="a", y="x'")
    norm("RMSNorm 2", "x'", "n2", "2")
    quantise("quantise 2", "n2", d)
    project("gate+up projection", "n2", "gate+up", d, {"g": model.d_ff, "u": model.d_ff})
    ops["SwiGLU"] = work.swiglu(rows * model.d_ff, half, gate="g", up="u", y="h")
    quantise("quantise h", "h", model.d_ff)
    project("down projection", "h", "down", model.d_ff, {"f": d})
    ops["residual 2"] = work.add(rows * d, half, x="x'", other="f", y="x''")
    norm("next RMSNorm 1", "x''", "next n1", "1")
    quantise("next quantise 1", "next n1", d)
    norm("final RMSNorm", "x''", "n", "")
    names = ("n", "W head", "logits")  # of n, the last row of each sequence
    ops["LM head"] = work.matmul(s.batch, model.vocabulary, d, half, names=names)
    return ops


def _attention(s: Setting) -> dict[str, Work]:
    """Return the kernels of attention, which read K and V from the cache in its type."""
    model = s.model
    new = s.tokens // s.batch
    dims = (s.batch, new, s.context, model.heads, model.head_dim, model.kv_heads, s.chip.half)
    cached = nbytes(s.batch * s.context * model.kv_width, s.cache)
    if s.attention == "naive":
        scores, softmax, output = work.naive_attention(*dims)
        q, p = scores.reads["q"], output.reads["p"]
        return {
            "Q·Kᵀ": replace(scores, reads={"q, turned": q, "K cache": cached}),
            "softmax": softmax,
            "P·V": replace(output, reads={"p": p, "V cache": cached}),
        }
    flash = work.flash_attention(*dims, causal=True)
    reads = {"q, turned": flash.reads["q"], "K cache": cached, "V cache": cached}
    return {"flash attention": replace(flash, reads=reads, passes={})}


def _cost(op: str) -> int:
    return sum(COSTS[op].values())


def _alive(jobs: list[Work]) -> int:
    """Return the most bytes of activations that are alive during one of the kernels."""
    bytes_of: dict[str, int] = {}
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    for i, job in enumerate(jobs):
        for tensor, n in [*job.reads.items(), *job.writes.items()]:
            if tensor[0] not in "WγKV":
                bytes_of[tensor] = max(int(n), bytes_of.get(tensor, 0))
                first.setdefault(tensor, i)
                last[tensor] = i
    return max(
        sum(n for tensor, n in bytes_of.items() if first[tensor] <= i <= last[tensor])
        for i in range(len(jobs))
    )


# --- for the page ---------------------------------------------------------------------------------


def tables(model: Model = LLAMA_3_8B) -> dict[str, Any]:
    """Return what assets/model.js needs to know, as plain data for JSON.

    Data types, FLOPs of operations, chips with the types that each can serve with, the model and
    the fusion strategies: the keys are described in model.js.
    """
    costs = {
        op: {"element": sum(steps.values()), "row": sum(work.ROW_COSTS.get(op, {}).values())}
        for op, steps in {**work.COSTS, **COSTS}.items()
    }
    scaled = work.naive_attention(1, 1)[1].vector_flops
    costs["scale+softmax"] = {"element": int(scaled), "row": 0}
    return {
        "bits": dict(BITS),
        "costs": costs,
        "narrow": NARROW,
        "chips": [_chip_data(each) for each in all_chips()],
        "model": asdict(model),
        "strategies": {
            name: [_shortened(kernel) for kernel in kernels] for name, kernels in STRATEGIES.items()
        },
    }


def _chip_data(chip: Chip) -> dict[str, Any]:
    def plain(figures: Mapping[str, Figure]) -> dict[str, float]:
        return {name: figure.value for name, figure in figures.items()}

    return {
        **{name: getattr(chip, name) for name in ("key", "name", "vendor", "kind", "half")},
        "matrix": plain(chip.matrix),
        "vector": plain(chip.vector),
        "bandwidth": chip.roofline(chip.half).bandwidth,
        "capacity": chip.memory["hbm"].capacity.value,
    }


def _shortened(kernel: Fused) -> dict[str, Any]:
    """Return a kernel's fields but those that are as usual."""
    usual = Fused(kernel.ops)
    given = {name: getattr(kernel, name) for name in ("count", "keep")}
    changed = {name: value for name, value in given.items() if value != getattr(usual, name)}
    return {"ops": kernel.ops, **changed}


def script() -> str:
    """Return the model in JavaScript: a constant `tables`, then assets/model.js."""
    data = json.dumps(tables(), ensure_ascii=False, separators=(",", ":"))
    asset = resources.files("roofline_helpers").joinpath("assets", "model.js")
    return f"const tables = {data};\n{asset.read_text('utf-8')}"
