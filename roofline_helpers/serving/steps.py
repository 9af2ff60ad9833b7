"""Steps: the kernels of a setting on a chip, their seconds, and the memory that they need."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadType, BadValue, flag, name_of, shown, single, whole
from roofline_helpers.common.dtypes import BITS, nbytes
from roofline_helpers.common.show import Facts, si
from roofline_helpers.evidence.law import Law, by_law
from roofline_helpers.evidence.typical import law_of
from roofline_helpers.models import Decoder
from roofline_helpers.models import model as model_of
from roofline_helpers.network import Collective, all_reduce, topology
from roofline_helpers.roofline import Kernel, Roofline
from roofline_helpers.serving.chips import chip_counts, together
from roofline_helpers.serving.operations import Job, jobs, stored
from roofline_helpers.serving.setting import (
    ATTENTION,
    PHASES,
    ServingSetting,
    computed_in,
    stored_as,
)
from roofline_helpers.serving.strategies import STRATEGIES
from roofline_helpers.work import Work


@dataclass(frozen=True)
class StepKernel(Kernel):
    """A kernel of a step.

    `ops` are the operations fused into it. `law`, where there is one, takes the roof's place in
    its seconds: it was fitted to measured kernels.

    Examples
    --------
    >>> kernel = step("llama-3-8b", "h100", batch=64, context=2048).kernels[0]
    >>> kernel.name, kernel.count
    ('embedding', 1)
    """

    work: Work
    roof: Roofline
    ops: tuple[str, ...] = ()
    law: Law | None = None

    @property
    def name(self) -> str:
        """The operations, joined with "+"."""
        return " + ".join(self.ops)

    @property
    def count(self) -> int:
        """How often the step runs it – its launches."""
        return self.launches

    @property
    def seconds(self) -> float:
        """Seconds of one run."""
        if self.law is not None:
            return self.law.seconds(self.work)
        return float(self.roof.time(self.work))

    @property
    def total(self) -> float:
        """Seconds of all its runs in the step."""
        return self.count * self.seconds


@dataclass(frozen=True)
class Footprint:
    """Bytes that a step needs at once, and that the chip has.

    `activations` is the most that is alive during any kernel: what it reads and writes, and what
    a later kernel still needs. `reserve` is what the runtime keeps for itself.

    Examples
    --------
    >>> one = step("llama-3-8b", "h100", batch=64, context=2048).memory
    >>> one.fits, round(one.total / 1e9)
    (True, 33)
    """

    weights: int
    cache: int
    activations: int
    capacity: float
    reserve: float = 0.0

    @property
    def total(self) -> int:
        """Bytes needed."""
        return self.weights + self.cache + self.activations

    @property
    def room(self) -> float:
        """Bytes left over; negative: bytes missing."""
        return self.capacity - self.reserve - self.total

    @property
    def fits(self) -> bool:
        """Whether the chip has that much."""
        return self.room >= 0


@dataclass(frozen=True, repr=False)
class ServingStep(Facts):
    """One step: its kernels and what follows from them.

    A step that does not fit has times all the same: what they would be with memory enough. On
    several chips `kernels`, `memory`, `flops` and `bytes` are those of each of them.

    Examples
    --------
    >>> one = step("llama-3-8b", "h100", batch=64, context=2048)
    >>> one.fits, round(one.mfu, 2)
    (True, 0.1)
    """

    setting: ServingSetting

    def _title(self) -> str:
        s = self.setting
        return f"{s.model.name}, {s.phase} of {s.batch} × {s.context:,} on {s.chips} {s.chip.name}"

    def _facts(self) -> dict[str, str]:
        return {
            "seconds": f"{si(self.seconds, 's')} a step",
            "throughput": f"{si(self.tokens_per_second, 'tokens/s')}",
            "MFU": f"{self.mfu:.0%} MFU",
            "memory": f"{si(self.memory.total, 'B')}, {'fits' if self.fits else 'does not fit'}",
        }

    @cached_property
    def _apart(self) -> list[Job]:
        """The kernels as they read and write memory, whatever might stay on the chip."""
        return jobs(replace(self.setting, resident=False))

    @cached_property
    def _jobs(self) -> list[Job]:
        return jobs(self.setting)

    @cached_property
    def kernels(self) -> tuple[StepKernel, ...]:
        """Each kernel once, in the order of their first run."""
        dtypes = {job.work.dtype for job in self._jobs}
        s = self.setting
        roofs = {dtype: s.chip.roofline(dtype, reached=s.reached) for dtype in dtypes}
        if not s.floor:
            roofs = {dtype: roof.without_floor() for dtype, roof in roofs.items()}
        return tuple(
            StepKernel(
                job.work,
                roofs[job.work.dtype],
                job.launches,
                job.ops,
                law_of(job.work, s.chip) if s.law else None,
            )
            for job in self._jobs
        )

    @cached_property
    def memory(self) -> Footprint:
        """Weights, cache and activations against the chip's memory."""
        s = self.setting
        capacity = s.chip.memory["hbm"].capacity.value
        return Footprint(
            weights=s.share.weights_bytes(s.weights, s.chip.half),
            cache=s.batch * s.context * s.share.cache_per_token(s.cache),
            activations=_alive([job.work for job in self._apart]),
            capacity=capacity,
            reserve=s.reserve * capacity,
        )

    @property
    def fits(self) -> bool:
        """Whether weights, cache and activations fit into the chip's memory."""
        return self.memory.fits

    @cached_property
    def exchanges(self) -> tuple[tuple[str, float, Collective], ...]:
        """What the chips exchange, as `SliceStep` has it: name, how often, and the collective."""
        s = self.setting
        if s.chips == 1:
            return ()
        passed = nbytes(s.tokens * s.model.d_model, s.chip.half)
        place = topology(s.chip, s.chips, ceilings="reached" if s.reached else "published")
        summed = all_reduce(passed, place.fast)
        if s.law:
            summed = by_law(summed, s.chip)
        return (("sums of attention and feed-forward", 2.0 * s.model.layers, summed),)

    @property
    def comms(self) -> float:
        """Seconds of all exchanges; where a floor is counted, each is launched too."""
        known = self.setting.chip.floor if self.setting.floor else None
        floor = known.value if known else 0.0
        return sum(count * max(each.seconds, floor) for _, count, each in self.exchanges)

    @cached_property
    def seconds(self) -> float:
        """Seconds of the step: all runs of all kernels, and the exchanges.

        In prefill this is the time to the first token.
        """
        return sum(kernel.total for kernel in self.kernels) + self.comms

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

    def but(self, **changes: Any) -> ServingStep:
        """Return the same step with some of `step`'s arguments changed.

        Raises
        ------
        BadType, BadValue, UnknownName
            As `step`; also no such argument.
        """
        now = {name: getattr(self.setting, name) for name in ServingSetting.__dataclass_fields__}
        new = {name_of("argument of step", name, now): value for name, value in changes.items()}
        return step(**{**now, **new})

    def largest_batch(self) -> int:
        """Return the largest batch that fits at this context; 0 if none does."""
        one = self.but(batch=1).memory  # cache and activations are those of a sequence, times batch
        room = int(one.capacity - one.reserve - one.weights)
        return max(0, room // (one.cache + one.activations))

    def largest_context(self) -> int:
        """Return the largest context that fits at this batch; 0 if none does.

        What memory allows, whatever context the model was trained for.
        """
        return _largest(lambda context: self.but(context=context).memory.room)

    def fewest_chips(self) -> int:
        """Return the least number of chips, of `COUNTS`, on which it fits; 0 if none does."""
        counts = chip_counts(self.setting.model, self.setting.chip)
        return next((n for n in counts if self.but(chips=n).fits), 0)

    def narrower(self) -> list[ServingStep]:
        """Return the steps with narrower weights or cache that fit, the least change first.

        Of the 8-bit types fp8 is tried where the chip's matrix unit has it, else int8.
        """
        s = self.setting
        types = ("fp8" if "fp8" in s.chip.matrix else "int8", "int4")

        def at_most(own: str) -> list[str]:
            return [own, *(other for other in types if BITS[other] < BITS[own])]

        narrowed = [
            self if weights == s.weights else self.but(weights=weights, activations=s.chip.half)
            for weights in at_most(s.weights)
        ]
        narrowed = [one.but(cache=cache) for one in narrowed for cache in at_most(s.cache)][1:]
        narrowed.sort(key=lambda one: -BITS[one.setting.weights] - BITS[one.setting.cache])
        return [one for one in narrowed if one.fits]


def step(
    model: Decoder | str,
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
    reached: bool = False,
    law: bool = False,
    floor: bool = True,
    resident: bool = False,
    reserve: float = 0.0,
    chips: int = 1,
) -> ServingStep:
    """Return one step of serving a model on one chip, or on some with a fast network.

    Parameters
    ----------
    model : Decoder or str
        As `roofline_helpers.models.model` takes it: grouped queries over the whole context, and a
        feed-forward that is dense or has experts in each layer. Of the experts those are read that
        the step's tokens choose at random. `on_slice` counts the others, with less detail.
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
        The chip's 16-bit type (the default), fp8, int8, int4, fp4, or a type with a scale for each
        block (mxfp8, mxfp4, nvfp4).
    activations : str or data type, optional
        Type in which activations enter the layers' products: the chip's 16-bit type (the
        default), or fp8, int8 or fp4 with weights of that type, on a chip that has such a peak.
        They are quantised on the way, with scales that were fixed beforehand.
    fusion : {"none", "pointwise", "epilogue"}
        See `STRATEGIES`.
    attention : {"naive", "flash"}
        Three kernels with the scores in memory, or one. In prefill, the one skips what the causal
        mask hides; the three compute everything.
    reached : bool
        Ceilings that were measured on the chip instead of published ones (`Chip.roofline`).
    law : bool
        Whether matmuls, attention and all-reduces take what the law says that was fitted to
        measured kernels (`benchmarks.laws`), on GPUs that have one. Other kernels keep their
        roof. It is nearer to measured decode steps; a long prefill runs at a lower clock than
        those kernels did.
    floor : bool
        Whether each launch costs at least the chip's floor, where that is known.
    resident : bool
        Whether activations that fit on the chip between two kernels stay there
        (`work.resident`, in the chip's largest level). Otherwise all of them travel.
    reserve : float
        Share of the memory, from 0 to below 1, that the runtime keeps for itself. vLLM's default
        is 0.1 (``gpu_memory_utilization=0.9``).
    chips : int
        How many share the model by tensor parallelism, over the links of one host or slice: each
        has a part of all heads and widths, and after attention and feed-forward their parts are
        summed by an all-reduce (`network.all_reduce`), for which everything waits.

    Raises
    ------
    UnknownName
        No such chip, type, phase, strategy; activations in a type that the chip has no peak for;
        several chips whose links are not known.
    BadType, BadValue
        Not a model; not a whole positive number; narrow activations with other weights; chips that
        don't divide the model's heads of keys, or are more than a host has.

    Examples
    --------
    >>> from roofline_helpers.models import LLAMA_3_8B
    >>> one = step(LLAMA_3_8B, "h100", batch=64, context=2048)
    >>> f"{one.tokens_per_second:.0f} tokens/s, {one.seconds * 1e3:.1f} ms, {one.fits}"
    '6324 tokens/s, 10.1 ms, True'

    Four share a model that one has no room for:

    >>> four = step("llama-3-70b", "h100", batch=64, chips=4, reached=True)
    >>> f"{four.seconds * 1e3:.1f} ms, {four.comms * 1e3:.1f} of them in all-reduces"
    '20.9 ms, 5.3 of them in all-reduces'
    """
    kept = single("reserve", reserve, zero=True)
    if kept >= 1:
        raise BadValue(f"reserve must be a share of the memory below 1, got {shown(reserve)}")
    decoder = _dense(model_of(model))
    device = chip_of(chip)
    several = together(decoder, device, chips)
    weights = stored_as(device, "weights", weights)
    return ServingStep(
        ServingSetting(
            model=decoder,
            chip=device,
            phase=name_of("phase", phase, PHASES),
            batch=whole("batch", batch),
            context=whole("context", context),
            weights=weights,
            activations=computed_in(device, weights, activations),
            cache=stored_as(device, "cache", cache),
            fusion=name_of("fusion", fusion, STRATEGIES),
            attention=name_of("attention", attention, ATTENTION),
            reached=flag("reached", reached),
            law=flag("law", law),
            floor=flag("floor", floor),
            resident=flag("resident", resident),
            reserve=kept,
            chips=several,
        )
    )


def _dense(decoder: Decoder) -> Decoder:
    """Return a decoder if its kernels are those of Llama; raise BadValue otherwise."""
    other = {
        "shared experts, or layers without any": decoder.experts
        and (decoder.experts.shared or decoder.expert_layers < decoder.layers),
        "latent attention": decoder.latent,
        "local attention": decoder.local,
        "a feed-forward of two matrices": not decoder.gated,
    }
    names = [name for name, has in other.items() if has]
    if names:
        raise BadValue(
            f"step counts kernels as Llama has them; {decoder.name} has {names[0]}: on_slice()"
        )
    return decoder


def best_batch(
    model: Decoder | str, chip: Any, *, latency: float, **setting: Any
) -> ServingStep | None:
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
    ServingStep or None
        None if batch 1 is too slow or does not fit.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `step`; a latency that is not a positive number.

    Examples
    --------
    >>> best_batch("llama-3-8b", "h100", latency=0.02, context=2048).setting.batch
    184
    """
    if "batch" in setting:
        raise BadType(f"best_batch() looks for the batch: none can be given, got {setting}")
    limit = single("latency", latency)
    one = step(model, chip, **setting)
    most = one.largest_batch()
    batch = _largest(lambda n: limit - one.but(batch=n).seconds, most)
    return one.but(batch=batch) if batch else None


def _largest(room: Callable[[int], float], most: float = math.inf) -> int:
    """Return the largest whole number up to `most` that leaves room, 0 if 1 leaves none.

    Room must not grow with the number. Where it falls in proportion, a straight line through two
    numbers leads there at once; every third time it halves what is left, whatever the shape.
    """
    if most < 1 or (left := room(1)) < 0:
        return 0
    low, high, turns = 1, most + 1, 0
    guess = 2.0
    while high - low > 1:
        tried = int(min(max(guess, low + 1), high - 1))
        there, turns = room(tried), turns + 1
        slope = (left - there) / (tried - low)
        if there >= 0:
            low, left = tried, there
        else:
            high = tried
        halved = (low + high) / 2 if high < math.inf else 2 * low
        guess = low + left // slope if slope > 0 and turns % 3 else halved
    return low


def _alive(jobs: list[Work]) -> int:
    """Return the most bytes of activations that are alive during one of the kernels."""
    bytes_of: dict[str, int] = {}
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    for i, job in enumerate(jobs):
        for tensor, n in [*job.reads.items(), *job.writes.items()]:
            if not stored(tensor):
                bytes_of[tensor] = max(int(n), bytes_of.get(tensor, 0))
                first.setdefault(tensor, i)
                last[tensor] = i
    return max(
        sum(n for tensor, n in bytes_of.items() if first[tensor] <= i <= last[tensor])
        for i in range(len(jobs))
    )
