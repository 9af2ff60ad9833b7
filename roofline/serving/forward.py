"""A serving step: its kernels, its exchanges, and their times."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from roofline import network
from roofline.configurations import model as model_of
from roofline.network import Topology
from roofline.network.axes import Mesh
from roofline.network.collectives import Transfer
from roofline.network.measured import by_law, law_of_exchange
from roofline.network.topology import Asked, topology_of
from roofline.serving.elsewhere import ELSEWHERE, law_elsewhere
from roofline.serving.exchanges import exchanges
from roofline.serving.memory import ServingMemory, footprint
from roofline.serving.operations import jobs, stored_bytes
from roofline.serving.setting import (
    ATTENTION,
    PHASES,
    ROLES,
    TYPES,
    ServingSetting,
    origin,
    stored_as,
    types_of,
)
from roofline.serving.strategies import STRATEGIES
from roofline.serving.tensor_parallel import chip_counts, host
from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadType, BadValue, flag, name_of, shown, single, whole
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.show import Facts, si
from roofline_helpers.measured.laws import Law, law_of
from roofline_helpers.models import Decoder
from roofline_helpers.roofline import Kernel, Roofline
from roofline_helpers.verdicts import Scenario
from roofline_helpers.work import Work


@dataclass(frozen=True, repr=False)
class StepKernel(Kernel):
    """A kernel of a step.

    `ops` are the operations fused into it. `law`, if there is one, replaces the roof's time by one
    that was fitted to measured kernels.

    Examples
    --------
    >>> kernel = step("llama-3-8b", "h100", batch=64, context=2048).kernels[0]
    >>> kernel.name, kernel.launches
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
    def seconds(self) -> float:
        """Seconds of one run."""
        if self.law is not None:
            return self.law.seconds(self.work)
        return float(self.roof.time(self.work))

    @property
    def total(self) -> float:
        """Seconds of all its runs in the step."""
        return self.launches * self.seconds


@dataclass(frozen=True, repr=False)
class ServingStep(Facts):
    """One step: its kernels and what follows from them.

    `setting` holds the arguments of `step` with defaults filled in, `tokens` of the step, and
    ``size("tensor")``, the number of devices along a role. A step that doesn't fit still has times.
    On several devices `kernels`, `memory`, `flops` and `bytes` are those of each.

    Examples
    --------
    >>> decode = step("llama-3-8b", "h100", batch=64, context=2048)
    >>> decode.fits, round(decode.mfu, 2)
    (True, 0.1)
    """

    setting: ServingSetting

    def _title(self) -> str:
        s = self.setting
        alone = isinstance(s.hardware, Chip)
        devices = f"{s.chips} {s.chip.name}" if alone else s.topology._title()
        return f"{s.model.name}, {s.phase} of {s.batch} × {s.context:,} on {devices}"

    def _facts(self) -> dict[str, str]:
        room = "fits" if self.fits else "doesn't fit"
        facts = {
            "seconds": f"{si(self.seconds, 's')} a step",
            "throughput": f"{si(self.tokens_per_second, 'tokens/s')}",
            "MFU": f"{self.mfu:.0%} MFU",
            "memory": f"{si(self.memory.total, 'B')}, {room}",
        }
        if self.setting.model.stored:
            facts["types"] = self.types
        if self.exchanges:
            facts["network"] = f"{self.comms / self.seconds:.0%} of the time in the network"
        return facts

    @property
    def types(self) -> str:
        """The types of weights, experts, projections, cache, activations, and who says them.

        Each is given, or the model's own as it ships, or assumed.
        """
        model, listed = self.setting.model, dict.fromkeys(TYPES, "")
        if not model.experts:
            del listed["experts"]
        elif not model.dense:
            del listed["weights"]
        for name in listed:
            listed[name] = origin(self.setting, name)
        return "; ".join(
            ", ".join(
                f"{name} {getattr(self.setting, name)}" for name in listed if listed[name] == said
            )
            + f" {said}"
            for said in dict.fromkeys(listed.values())
        )

    @cached_property
    def kernels(self) -> tuple[StepKernel, ...]:
        """Each kernel once, as a `roofline.Kernel`, in the order of their first run.

        `ops` are the operations fused into it, `launches` its runs per step, `seconds` those of one
        run, `total` of all. `law`, if there is one, replaces the roof's time.
        """
        s = self.setting
        counted = jobs(s)
        roofs = {
            dtype: s.chip.roofline(dtype, reached=s.reached)
            for dtype in {job.work.dtype for job in counted}
        }
        if not s.floor:
            roofs = {dtype: roof.without_floor() for dtype, roof in roofs.items()}
        return tuple(
            StepKernel(
                job.work,
                roofs[job.work.dtype],
                job.launches,
                job.ops,
                law_of(job.work, s.law_chip) or law_elsewhere(job.work, s.chip) if s.law else None,
            )
            for job in counted
        )

    @cached_property
    def rests(self) -> dict[str, float]:
        """Shares of the time by where such kernels were measured: here, elsewhere, or nowhere.

        "this chip" has kernels of the same type, and exchanges by measured laws.
        """
        shares = dict.fromkeys(("this chip", "another chip", "none"), 0.0)
        for kernel in self.kernels:
            where = "this chip" if kernel.law else "none"
            if kernel.law and kernel.law.library == ELSEWHERE:
                where = "another chip"
            shares[where] += kernel.total
        timed = self.setting.law and law_of_exchange("all-reduce", self.setting.chip)
        shares["this chip" if timed else "none"] += self.comms
        return {where: seconds / self.seconds for where, seconds in shares.items()}

    @property
    def has_laws(self) -> bool:
        """Whether most of its time rests on measured kernels, on a kind of chip that serves."""
        return self.setting.chip.kind == "gpu" and self.rests["none"] < 0.5

    @property
    def missed(self) -> float:
        """Share by which the time may be off since kernels were measured on other chips only.

        In nine of ten shapes such a law misses less.
        """
        far = [k for k in self.kernels if k.law and k.law.library == ELSEWHERE]
        return sum(k.total * k.law.law.p90 for k in far if k.law) / self.seconds

    @cached_property
    def memory(self) -> ServingMemory:
        """Bytes per device – `weights`, `cache`, `activations`, their `total`, the `room` left."""
        return footprint(self.setting)

    @property
    def fits(self) -> bool:
        """Whether weights, cache and activations fit into the chip's memory."""
        return self.memory.fits

    @cached_property
    def exchanges(self) -> tuple[Transfer, ...]:
        """The exchanges between devices – each has `role`, `purpose`, `count`, `collective`."""
        s = self.setting
        transfers = tuple(exchanges(s))
        if not s.law:
            return transfers
        return tuple(
            replace(transfer, collective=by_law(transfer.collective, s.chip))
            for transfer in transfers
        )

    @property
    def comms(self) -> float:
        """Seconds of all exchanges, each with a launch if floors are counted."""
        known = self.setting.chip.floor if self.setting.floor else None
        floor = known.value if known else 0.0
        return sum(
            exchange.count * max(exchange.collective.seconds, floor) for exchange in self.exchanges
        )

    @cached_property
    def seconds(self) -> float:
        """Seconds of the step – all runs of all kernels, and the exchanges.

        In prefill this is the time to the first token.
        """
        return sum(kernel.total for kernel in self.kernels) + self.comms

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all sequences over seconds."""
        return self.setting.tokens / self.seconds

    @property
    def time_per_token(self) -> float:
        """Seconds of the step per token of *one* sequence."""
        return self.seconds / self.setting.new_tokens

    @property
    def least_seconds(self) -> float:
        """Least seconds of this step – matmuls, bytes and exchanges all overlap.

        Bytes are those of weights, cache and states, since activations may stay on the chip. It is
        no bound per token: speculative decoding generates several tokens in a step.
        """
        s = self.setting
        roof = s.chip.roofline(s.activations, reached=s.reached)
        busy = network.collectives.least_busy(self.exchanges)
        kept = sum(k.launches * stored_bytes(k.work) for k in self.kernels)
        return max(self.matrix_flops / roof.peak, kept / roof.bandwidth, busy)

    @property
    def flops(self) -> int:
        """FLOPs of the step."""
        return sum(int(k.launches * k.work.flops) for k in self.kernels)

    @property
    def matrix_flops(self) -> float:
        """FLOPs of the step's matmuls."""
        return sum(float(k.launches * k.work.matrix_flops) for k in self.kernels)

    @property
    def bytes(self) -> int:
        """Bytes that the step moves."""
        return sum(int(k.launches * k.work.bytes) for k in self.kernels)

    @property
    def intensity(self) -> float:
        """FLOP/byte of the whole step."""
        return self.flops / self.bytes

    @property
    def peak(self) -> float:
        """FLOP/s of the type that the layers' matmuls compute in."""
        return self.setting.chip.peak(self.setting.activations, "matrix").value

    @property
    def mfu(self) -> float:
        """FLOPs of the step's matmuls over seconds and `peak`, which is the matrix unit's."""
        return self.matrix_flops / self.seconds / self.peak

    def but(self, **changes: Any) -> ServingStep:
        """Return the same step in the same layout with other arguments of `step`.

        On other `hardware`, the layout is `mesh`, or the fastest.

        Raises
        ------
        BadType, BadValue, UnknownName
            As `step`; also no such argument.
        """
        now = self.setting.arguments()
        new = {name_of("argument of step", name, now): value for name, value in changes.items()}
        if "hardware" in new:
            now["mesh"] = now["expert_widths"] = None
        if "weights" in new:
            now["experts"] = now["projections"] = None
        return step(**{**now, **new})

    @property
    def name(self) -> str:
        """The model and the phase."""
        return f"{self.setting.model.name}, {self.setting.phase}"

    def chip_of_verdict(self) -> Chip:
        """Return the chip that a verdict is for; raise BadValue if there are several."""
        s = self.setting
        if s.chips > 1:
            given = isinstance(s.hardware, Chip)
            alone = "step.but(chips=1)" if given else "step.but(hardware=CHIP)"
            raise BadValue(f"a verdict is for one chip, got {self!r}: give {alone}")
        return s.chip

    def kernels_under(self, scenario: Scenario, chip: Chip) -> list[Kernel]:
        """Return its kernels on a chip, under a verdict's ceilings and traffic."""
        reached, stays = scenario.ceilings == "reached", scenario.between == "stays"
        return [*self.but(hardware=chip, reached=reached, floor=False, resident=stays).kernels]

    def largest_batch(self) -> int:
        """Return the largest batch that fits at this context; 0 if none does."""
        parts = self.setting.size("data", "expert", "batch")
        memory = self.but(batch=parts).memory  # one of each device
        return parts * max(0, math.floor(memory.for_sequences / memory.per_batch))

    def largest_context(self) -> int:
        """Return the largest context that fits at this batch; 0 if none does.

        Only memory limits it, not the context that the model was trained for.
        """
        return largest(lambda context: self.but(context=context).memory.room)

    def fewest_chips(self) -> int:
        """Return the least number of chips, of `COUNTS`, on which it fits; 0 if none does."""
        s = self.setting
        counts = chip_counts(s.model, s.chip)
        return next((n for n in counts if self.but(hardware=s.chip, chips=n).fits), 0)

    def narrower(self) -> list[ServingStep]:
        """Return the steps with narrower weights or cache that fit, the smallest change first.

        The 8-bit type is fp8 if the chip's matrix unit supports it, else int8.
        """
        s = self.setting
        types = ("fp8" if "fp8" in s.chip.matrix else "int8", "int4")

        def at_most(dtype: str) -> list[str]:
            return [dtype, *(narrow for narrow in types if BITS[narrow] < BITS[dtype])]

        narrowed = [
            self if weights == s.weights else self.but(weights=weights, activations=s.chip.half)
            for weights in at_most(s.weights)
        ]
        narrowed = [step.but(cache=cache) for step in narrowed for cache in at_most(s.cache)][1:]
        narrowed.sort(key=lambda step: -BITS[step.setting.weights] - BITS[step.setting.cache])
        return [step for step in narrowed if step.fits]


def step(
    model: Decoder | str,
    hardware: Any,
    mesh: Asked | None = None,
    *,
    phase: str = "decode",
    batch: int = 1,
    context: int = 2048,
    new: int = 1,
    weights: Any = None,
    experts: Any = None,
    projections: Any = None,
    vocabulary: Any = None,
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
    expert_widths: int | None = None,
) -> ServingStep:
    """Return one step of serving a model, by kernels, on a chip or on the devices of a topology.

    Parameters
    ----------
    model : Decoder or str
        As `roofline.model` takes it.
    hardware : str, Chip, jax.Device or Topology
        A chip as `roofline_helpers.chip` takes it; or a topology, also by a slice's cloud name as
        "v5p-64", whose ceilings are those of compute and memory too.
    mesh : mapping of str to int or axes, optional
        Devices of the topology for each of `ROLES`; by default the fastest layout that fits.
    phase : {"decode", "prefill"}
        `new` tokens per sequence, or whole prompts.
    batch : int
        Sequences of all replicas.
    context : int
        Tokens of each sequence, those of this step included.
    new : int
        Tokens that a decode step adds to each sequence: more than one to verify drafts.
    weights, vocabulary, cache : str or data type, optional
        Of the layers' weights, of embedding and LM head, of the cache: fp8, int8, int4, fp4, or
        with a scale for each block mxfp8, mxfp4, nvfp4. By default what the model's configuration
        says, else the chip's 16-bit type.
    experts, projections : str or data type, optional
        Of experts, and of the matrices around attention, where they differ from `weights`.
    activations : str or data type, optional
        In which the layers' matmuls compute: the chip's 16-bit type, or fp8, int8 or fp4 with
        weights of that type, quantised in the step with static scales. By default that of given
        weights if engines multiply both in one type (`setting.SAME`) and the chip can.
    fusion : {"none", "pointwise", "epilogue"}
        "none": each operation is a kernel. "pointwise": elementwise and row operations are fused
        with each other, as XLA and Inductor do around library calls. "epilogue": operations on a
        matmul's output tile (RoPE, SwiGLU, residuals) are fused into it.
    attention : {"naive", "flash"}
        Three kernels with the scores in memory, or one, which in prefill skips masked pairs.
    reached : bool
        Whether to use measured ceilings of the chip instead of published ones.
    law : bool
        Whether matmuls, attention and all-reduces take the laws of measured kernels
        (`roofline_helpers.measured.law`), on GPUs that have them. A long prefill runs at a lower
        clock than those kernels did.
    floor : bool
        Whether each launch costs at least the chip's floor, if it is known.
    resident : bool
        Whether activations that fit on the chip between two kernels stay there (`work.resident`).
    reserve : float
        The runtime's share of the memory, from 0 to below 1. vLLM's default is 0.08
        (``gpu_memory_utilization=0.92`` in vllm-project/vllm, commit 002f10e0), and was 0.1.
    chips : int
        Chips of one host that share the model by tensor parallelism, with an exposed all-reduce
        after attention and feed-forward; for a chip without a topology.
    expert_widths : int, optional
        Devices that share the matrices of each expert, a server's ``moe_tp_size``: by default those
        that share every other matrix. With 1 experts are whole, and spread over all devices but
        replicas.

    Raises
    ------
    UnknownName
        No such chip, type, phase, role, strategy; no peak for activations; links that aren't known.
    BadType, BadValue
        Not a model; not a whole positive number; narrow activations with other weights; chips or a
        mesh that can't split the model, or aren't the topology's.

    Examples
    --------
    >>> decode = step("llama-3-8b", "h100", batch=64, context=2048)
    >>> f"{decode.tokens_per_second:.0f} tokens/s, {decode.seconds * 1e3:.1f} ms, {decode.fits}"
    '6324 tokens/s, 10.1 ms, True'

    Four chips for a model too large for one:

    >>> four = step("llama-3-70b", "h100", batch=64, chips=4, reached=True)
    >>> f"{four.seconds * 1e3:.1f} ms, {four.comms * 1e3:.1f} of them in all-reduces"
    '17.3 ms, 1.8 of them in all-reduces'

    A slice, with each matrix over all of its chips:

    >>> slice_ = network.topology("v5e", "4x2")
    >>> types = {"weights": "int8", "vocabulary": "int8", "cache": "int8"}
    >>> int8 = step("llama-3-70b", slice_, {"tensor": 8}, batch=32, context=8192, **types)
    >>> memory, least = int8.memory.total * 8, int8.least_seconds
    >>> f"{memory / 1e9:.0f} GB on 8 chips, {least * 1e3:.0f} ms at least"
    '114 GB on 8 chips, 17 ms at least'
    """
    decoder, measured = model_of(model), flag("reached", reached)
    topology = topology_of(hardware)
    given: Chip | Topology
    if topology is None:
        if mesh is not None:
            raise BadType(f"a mesh needs a topology (network.topology), got {shown(hardware)}")
        ceilings = "reached" if measured else "published"
        given = chip_of(hardware)
        topology = host(decoder, given, chips, ceilings)
        mesh = {"tensor": topology.axes}
    else:
        given = topology
        if chips not in (1, topology.chips):
            raise BadValue(f"the topology has {topology.chips} chips, got chips={chips}")
        if measured and topology.ceilings != "reached":
            raise BadValue(
                "reached=True is for a chip: give network.topology(…, ceilings='reached')"
            )
    if phase != "prefill" and whole("new", new) > whole("context", context):
        raise BadValue(f"context has the step's own tokens too: new={new} of context={context}")
    runtime = single("reserve", reserve, zero=True)
    if runtime >= 1:
        raise BadValue(f"reserve must be a share of the memory below 1, got {shown(reserve)}")
    asked = dict(zip(TYPES, (weights, experts, projections, cache, activations), strict=True))
    types = types_of(decoder, topology.chip, asked)
    axes, parts = {}, 1
    if mesh is not None:
        axes = _axes_of_roles(mesh, decoder, topology)
        parts = _shared_experts(axes, decoder, expert_widths)
    setting = ServingSetting(
        model=decoder,
        topology=topology,
        mesh=axes,
        hardware=given,
        expert_widths=parts,
        phase=name_of("phase", phase, PHASES),
        batch=whole("batch", batch),
        context=whole("context", context),
        new=whole("new", new),
        **types,
        given=tuple(name for name, kind in asked.items() if kind is not None),
        vocabulary=stored_as(topology.chip, "vocabulary", vocabulary),
        fusion=name_of("fusion", fusion, STRATEGIES),
        attention=name_of("attention", attention, ATTENTION),
        law=flag("law", law),
        floor=flag("floor", floor),
        resident=flag("resident", resident),
        reserve=runtime,
    )
    return _fastest(setting, expert_widths) if mesh is None else ServingStep(setting)


def _axes_of_roles(mesh: Asked, model: Decoder, topology: Topology) -> Mesh:
    """Return the axes of each role; raise as `step`."""
    experts = model.experts.count if model.experts else 1
    most = {"tensor": (model.heads, "heads"), "expert": (experts, "experts")}
    return topology.mesh_of_roles(mesh, ROLES, most, model.name)


def _shared_experts(mesh: Mesh, model: Decoder, asked: int | None) -> int:
    """Return the number of devices that share the matrices of each expert; raise as `step`."""
    sizes = {role: math.prod(axis.size for axis in axes) for role, axes in mesh.items()}
    widths = math.prod(sizes.get(role, 1) for role in ROLES[2:])
    if asked is None:
        return widths
    devices, parts = widths * sizes.get("expert", 1), whole("expert_widths", asked)
    if model.experts and devices % parts:
        raise BadValue(f"expert_widths={parts}: {devices} devices have the experts of {model.name}")
    return parts if model.experts else widths


def _fastest(s: ServingSetting, expert_widths: int | None) -> ServingStep:
    """Return the step in the fastest layout that fits, else in that with the least memory.

    A layout gives each of `ROLES` a whole number of devices.
    """
    members, steps = s.topology.members, []
    divisors = [n for n in range(1, members + 1) if members % n == 0]
    for sizes in product(divisors, repeat=len(ROLES)):
        if math.prod(sizes) == members:
            mesh = {role: n for role, n in zip(ROLES, sizes, strict=True) if n > 1}
            with suppress(BadValue):
                axes = _axes_of_roles(mesh or {"tensor": 1}, s.model, s.topology)
                parts = _shared_experts(axes, s.model, expert_widths)
                steps.append(ServingStep(replace(s, mesh=axes, expert_widths=parts)))
    if not steps:
        raise BadValue(f"no layout of {members} devices has expert_widths={expert_widths}")
    return min(
        steps,
        key=lambda step: (not step.fits, step.seconds if step.fits else 0.0, step.memory.total),
    )


def largest(room: Callable[[int], float], most: float = math.inf) -> int:
    """Return the largest whole number up to `most` that leaves room, 0 if 1 leaves none.

    Room must not grow with the number.
    """
    high = 1
    while high <= most and room(high) >= 0:
        high *= 2
    numbers = range(1, int(min(high, most + 1)))
    return bisect_left(numbers, True, key=lambda number: room(number) < 0)
