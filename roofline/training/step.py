"""A training step: its FLOPs, bytes and exchanges, and their times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from roofline import network
from roofline.configurations import model as model_of
from roofline.network import Topology
from roofline.network.collectives import Transfer
from roofline.network.measured import by_law
from roofline.network.topology import Asked, topology_of
from roofline.training import measured, mixture
from roofline.training.communication import exchanges
from roofline.training.memory import (
    GRADIENTS,
    TrainingMemory,
    footprint,
    kept_widths,
    parameters_held,
)
from roofline.training.setting import (
    SHARDED,
    TrainingSetting,
    mesh_axes,
    recomputed,
    refuse_misfit,
    sharding_roles,
)
from roofline_helpers.common.checks import BadType, flag, shown, single, whole
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.dtypes import width
from roofline_helpers.common.show import Facts, si
from roofline_helpers.models import Decoder

if TYPE_CHECKING:
    import pandas

REACHED = 0.865
"""Share of the published matrix peak that is assumed as reached if nobody measured it: the mean of
Google's own matmuls of 8192³ and 32768³ on v6e and v7x, 0.901 and 0.829."""

GROUPED = 0.50
"""Rate of grouped matmuls over that of dense ones that is assumed if nobody measured it: the median
of eight GPUs in bf16, with all experts on one of them and 512 rows of each or more. It is 0.40 on
the lowest and 0.73 on the highest."""

SLICES = 0.035
"""Share by which a step gets longer for each doubling of a TPU's slices, beyond its exchanges: the
median of the 15 published sweeps on the board, each compared with its own smallest run."""

MATRIX_SIDE = {"v4": 128, "v5e": 128, "v5p": 128, "v6e": 256, "v7x": 256}
"""Rows and columns of a TPU's matrix unit (Google, "TPU architecture"): matmuls with a smaller
dimension leave part of it idle."""


@dataclass(frozen=True, repr=False)
class TrainingStep(Facts):
    """One step of training. Numbers are for the whole mesh unless they say "per device".

    `setting` holds the arguments of `step` with defaults filled in, `tokens` of the whole batch,
    and ``size("fsdp")``, the number of devices along a role.

    Examples
    --------
    >>> from roofline import network
    >>> cube = network.topology("v7x", "4x4x4")
    >>> llama = step("llama-3-70b", cube, {"fsdp": 64}, batch=256, seq=8192)
    >>> f"{llama.least_seconds:.1f} s, {llama.fits}"
    '7.9 s, True'
    """

    setting: TrainingSetting

    def _title(self) -> str:
        return f"{self.setting.model.name}, one step"

    def _facts(self) -> dict[str, str]:
        room = "fits" if self.fits else "doesn't fit"
        room += f" unless {self.memory.unless}" if self.memory.unless else ""
        return {
            "seconds": si(self.seconds, "s"),
            "bound": f"{si(self.least_seconds, 's')} at least",
            "MFU": f"{self.mfu:.0%} MFU",
            "memory": f"{si(self.memory.total, 'B')} a device, {room}",
            **({"types": self.types} if self.setting.model.stored else {}),
            **({"experts": self._routing} if self.setting.model.experts else {}),
        }

    @property
    def _routing(self) -> str:
        load = self.setting.imbalance
        said = "experts loaded evenly" if load == 1 else f"the busiest experts {load:g} × the mean"
        hides, waits = (si(seconds, "s") for seconds in self.overlapped)
        return said if hides == waits else f"{said}, {hides} if exchanges overlap, {waits} if not"

    @property
    def overlapped(self) -> tuple[float, float]:
        """Seconds if another microbatch hides exchanges of experts, and if all of them wait."""
        most = self.setting.microbatches > 1
        low, high = (replace(self.setting, overlap=hide) for hide in (most, False))
        return TrainingStep(low).seconds, TrainingStep(high).seconds

    @property
    def types(self) -> str:
        """The types of weights and matmuls, and that a configuration says none of them."""
        setting = self.setting
        here = f"weights {setting.weights}, matmuls {setting.dtype}"
        unused = "; none by its configuration, which says how it is served"
        return here + (unused if setting.model.stored else "")

    # --- counts -------------------------------------------------------------------------------

    def model_flops(self, *, causal: str = "halved") -> int:
        """Return the model's FLOPs, without recomputation.

        Raises
        ------
        UnknownName
            No such count: "halved" or "whole".
        """
        setting = self.setting
        return setting.model.training_flops(setting.tokens, setting.seq, causal=causal)

    @cached_property
    def recomputed_flops(self) -> int:
        """FLOPs of recomputation in the backward pass."""
        setting = self.setting
        products = _product_flops(setting)
        if setting.model.experts:  # without experts, nothing needs this result
            products["down"] = mixture.routed(setting, "down")
        return int(sum(products[name] for name in setting.recompute))

    @cached_property
    def routing_flops(self) -> int:
        """FLOPs of padding rows and of one-hot dispatch."""
        return int(mixture.routing_flops(self.setting))

    @property
    def flops(self) -> int:
        """FLOPs of the chips – the model's, recomputation and routing."""
        return self.model_flops() + self.recomputed_flops + self.routing_flops

    @cached_property
    def exchanges(self) -> tuple[Transfer, ...]:
        """Every exchange – each has `role`, `purpose`, `count` and `collective`.

        `hidden` is whether compute can hide it, `seconds` those of all `count` of them.
        """
        return exchanges(self.setting)

    @cached_property
    def memory(self) -> TrainingMemory:
        """Bytes per device – weights, gradients, moments, activations, and their `total`."""
        return footprint(self.setting)

    @property
    def fits(self) -> bool:
        """Whether they fit; if not, `memory.unless` has what published recipes do."""
        return self.memory.fits

    # --- seconds ------------------------------------------------------------------------------

    @property
    def bubble(self) -> float:
        """Idle over busy time of a pipeline's stage.

        (stages − 1) / (microbatches · interleave).
        """
        setting = self.setting
        return (setting.size("pipeline") - 1) / (setting.microbatches * setting.interleave)

    @property
    def fullest(self) -> float:
        """Work of a pipeline's fullest stage over the mean of the stages.

        As Megatron-LM spreads them: the same number of layers each, and the LM head, in 16 bits, on
        the last; if layers don't divide, embedding and head are counted as layers.
        """
        stages, layers = self.setting.size("pipeline"), self.setting.model.layers
        layer, head = self._matmuls[0] / layers, self._matmuls[1]
        uneven = layers % stages > 0
        most = math.ceil((layers + 2 * uneven) / stages)
        return max(most * layer, (most - uneven) * layer + head) * stages / sum(self._matmuls)

    @cached_property
    def compute(self) -> float:
        """Seconds of all matmuls at the matrix unit's ceiling, waiting in a pipeline included.

        Attention runs in 16 bits. It has two matmuls forward and five backward, one of them the
        recomputed scores. A matrix unit wider than a head is filled only in part.
        """
        return sum(self._matmuls) * (1 + self.bubble) * self.fullest

    @cached_property
    def _matmuls(self) -> tuple[float, float]:
        """Seconds of the layers' matmuls and of the LM head's, if nothing waits."""
        setting, topology = self.setting, self.setting.topology
        if self.has_laws:
            return measured.matmul_seconds(setting, _product_flops(setting), self.flops)
        chip, forward = topology.chip, _product_flops(setting)["attention"]
        passes = setting.passes("attention")
        head = 6 * setting.tokens * setting.model.d_model * setting.model.vocabulary
        others = self.flops - forward * passes - head
        if setting.model.experts:
            dense = topology.ceilings == "published" or setting.capacity is not None
            longer = setting.imbalance / (1.0 if dense else GROUPED)
            others += (longer - 1) * mixture.all_routed(setting) * mixture.rows(setting)
        # of seven matmuls two are forward; scores are recomputed backward in any case
        attention = forward * (passes + 1 / 2) / filled(setting.model, chip.key)
        rate = matrix_rate(topology, setting.dtype) * topology.members
        seconds = others / rate + attention / matrix_rate(topology, chip.half) / topology.members
        return seconds, head / rate

    @cached_property
    def elementwise(self) -> float:
        """Seconds of the passes over activations between the matmuls.

        The backward pass takes twice as long as the forward one. The loss reads the logits once
        forwards, and reads and writes them backwards.
        """
        setting = self.setting
        nbytes = _activation_bytes(setting) * (3 + setting.recomputes_blocks)
        logits = (
            setting.group_tokens / setting.size("tensor", "pipeline") * setting.model.vocabulary
        )
        nbytes += 3 * logits * width("bf16") + _scaled_bytes(setting)
        return nbytes / _memory_rate(setting.topology) * (1 + self.bubble) * self.fullest

    @cached_property
    def update(self) -> float:
        """Seconds in which the optimiser reads and writes weights, gradients and moments."""
        setting = self.setting
        moved = 2 * width(setting.weights) + width(GRADIENTS) + 4 * width(setting.moments)
        return parameters_held(setting) * moved / _memory_rate(setting.topology)

    @property
    def hidden(self) -> float:
        """Seconds of the exchanges that compute can hide."""
        return sum(
            self._transfer_seconds(exchange) for exchange in self.exchanges if exchange.hidden
        )

    @property
    def exposed(self) -> float:
        """Seconds of the exchanges that the next operation waits for."""
        return sum(
            self._transfer_seconds(exchange) for exchange in self.exchanges if not exchange.hidden
        )

    @cached_property
    def has_laws(self) -> bool:
        """Whether matmuls and exchanges take the laws of measured kernels."""
        setting = self.setting
        return setting.law and measured.has_laws(setting.topology.chip, setting.dtype)

    def _transfer_seconds(self, exchange: Transfer) -> float:
        if not self.has_laws:
            return exchange.seconds
        return exchange.count * by_law(exchange.collective, self.setting.topology.chip).seconds

    @cached_property
    def networks(self) -> dict[str, float]:
        """Seconds for which each axis's links are busy, as the exchanges spread their bytes."""
        busy: dict[str, float] = defaultdict(float)
        for exchange in self.exchanges:
            for phase in exchange.collective.phases:
                for links in {axis.links for axis in phase.axes}:
                    busy[links] += exchange.count * phase.transfer
        return dict(busy)

    @property
    def least_seconds(self) -> float:
        """Least seconds – compute, memory and every link overlap, without any latency.

        Exchanges count only the bytes that must be sent, spread over their links as well as
        possible. The pipeline bubble doesn't count, since some schedules fill it (Qi et al.,
        arXiv:2401.10241).
        """
        topology = self.setting.topology
        compute = self.flops / matrix_rate(topology, self.setting.dtype)
        busy = network.collectives.least_busy(self.exchanges)
        return max(compute / topology.members, self.update, busy)

    @property
    def serial(self) -> float:
        """Seconds if nothing overlaps."""
        parts = (self.compute, self.elementwise, self.update, self.hidden, self.exposed)
        return sum(parts) + self.scale

    @property
    def seconds(self) -> float:
        """Predicted seconds – compute hides hidden exchanges, the rest is sequential.

        At reached ceilings this includes `scale`, the fitted extra time of several slices.
        """
        return self._of_a_slice + self.scale

    @property
    def _of_a_slice(self) -> float:
        busy = self.compute + self.elementwise
        return busy + self._beyond + self.exposed + self.update

    @cached_property
    def _beyond(self) -> float:
        """Seconds of hidden exchanges beyond the compute that can hide them.

        Forward and backward passes each hide their own, but one microbatch's forward pass can hide
        what experts exchange in another's backward pass. Sums over replicas wait for the last
        microbatch's backward pass, and weights come back before the next first forward pass. An
        interleaved pipeline takes microbatches in groups, one for each stage (D. Narayanan et al.,
        arXiv:2104.04473): its groups of layers are done one after the other with the last of them.
        """
        forward = self.model_flops() / 3 / self.flops
        busy, seconds = self.compute + self.elementwise, 0.0
        grouped = self.setting.size("pipeline") if self.setting.interleave > 1 else 1
        last = min(1.0, grouped / self.setting.microbatches)
        for share, backward in ((forward, False), (1 - forward, True)):
            parts: dict[str, float] = defaultdict(float)
            for exchange in self.exchanges:
                of_pass = 1 - exchange.forward if backward else exchange.forward
                if exchange.role == "expert":  # another microbatch's pass may hide it
                    of_pass = share
                parts[exchange.role] += of_pass * self._transfer_seconds(exchange) * exchange.hidden
            # Sums over replicas begin when a gradient is whole: in the last microbatch's pass
            least = parts["data"] - share * busy * last
            seconds += max(0.0, sum(parts.values()) - share * busy, least)
        return seconds

    @property
    def scale(self) -> float:
        """Extra seconds of a multi-slice step, fitted; 0 at published ceilings."""
        topology = self.setting.topology
        if topology.ceilings == "published" or topology.chip.kind != "tpu":
            return 0.0
        return SLICES * math.log2(topology.slices) * self._of_a_slice

    def waterfall(self) -> dict[str, float]:
        """Return the parts of `seconds`, in order."""
        return {
            "matmuls": self.compute,
            "passes over activations": self.elementwise,
            "exchanges that wait": self.exposed,
            "exchanges beyond compute": self._beyond,
            "optimiser": self.update,
            "several slices": self.scale,
        }

    # --- rates --------------------------------------------------------------------------------

    @property
    def mfu(self) -> float:
        """The model's FLOPs over `seconds` and published peak; attention without masked pairs."""
        peak = self.setting.topology.flops(self.setting.dtype)
        return self.model_flops() / self.seconds / peak

    def table(self) -> pandas.DataFrame:
        """Return the exchanges as a table: one row each, seconds and bytes of the step."""
        import pandas

        rows = [
            {
                "for": exchange.role,
                "what": exchange.purpose,
                "collective": exchange.collective.kind,
                "over": " × ".join(axis.name for axis in exchange.collective.axes),
                "times": exchange.count,
                "MB each": exchange.collective.nbytes / 1e6,
                "ms in all": self._transfer_seconds(exchange) * 1e3,
                "hides": exchange.hidden,
            }
            for exchange in self.exchanges
        ]
        return pandas.DataFrame(rows)


def step(
    model: Decoder | str,
    hardware: Topology | str,
    mesh: Asked,
    *,
    batch: int,
    seq: int,
    dtype: Any = "bf16",
    weights: Any = "fp32",
    moments: Any = "fp32",
    recompute: str | Iterable[str] = "full",
    microbatches: int = 1,
    interleave: int = 1,
    sharded: Iterable[str] = SHARDED,
    capacity: float | None = None,
    tile: int | None = None,
    law: bool = False,
    overlap: bool | None = None,
    imbalance: float = 1.0,
) -> TrainingStep:
    """Return one step of training a decoder with Adam on a mesh.

    Parameters
    ----------
    model : Decoder or str
        As `roofline.model` takes it.
    hardware : Topology or str
        From `network.topology`, or the cloud name of a slice, as "v5p-64". Its ceilings also apply
        to compute and memory.
    mesh : mapping of str to int or axes
        Devices for each role, with the widths on the fastest links; or the network's axes for each.
        From the slowest links to the fastest the roles are "data" (batch with whole weights),
        "pipeline" (layers), "fsdp" (batch with sharded weights), "expert", "context" (positions of
        a sequence) and "tensor" (widths). All members are used.
    batch, seq : int
        Sequences of the whole step, and tokens of each.
    dtype : str or data type
        Of the weights' matmuls and all-gathers. Attention computes in 16 bits.
    weights, moments : str or data type
        In each device's memory. Gradients are kept in fp32 and reduced in bf16.
    recompute : str or sequence of str
        "none", "attention" or "full"; or the matmuls that the backward pass recomputes: "qkv",
        "attention", "output", "up" (gate and up, also of experts) and "down".
    microbatches : int
        Sequential parts of the batch, whose gradients are added up.
    interleave : int
        Groups of layers per stage, for an interleaved pipeline.
    sharded : sequence of str
        The roles among "fsdp" and "context" over which weights are sharded. Over the others they
        are replicated, and their gradients all-reduced.
    capacity : float, optional
        Expert capacity factor, for one-hot dispatch: rows of each expert over its even share.
    tile : int, optional
        Tile rows of a grouped matmul over sorted tokens: a tile with rows of two experts is
        computed for both.
    law : bool
        Whether matmuls, and exchanges within a host, take the laws of measured kernels
        (`roofline_helpers.measured.law`), on GPUs that have them. `least_seconds` doesn't change.
    overlap : bool, optional
        Whether exchanges of experts run behind another microbatch's compute (DualPipe, 1F1B with
        overlap), or the next operation waits for them. By default as NVIDIA's recipes have it:
        behind if they leave a host or an NVLink domain. `overlapped` has the step with either.
    imbalance : float
        Load of the busiest device's experts over the mean, by which its matmuls and exchanges take
        longer. Benchmarks route evenly, 1; in a training run of 1 to 3 billion parameters the
        busiest expert had 1.04 times the mean with DeepSeek's bias, 1.5 to 1.7 times with an
        auxiliary loss (L. Wang et al., arXiv:2408.15664, table 2).

    Raises
    ------
    BadType, BadValue, UnknownName
        No such model, role, matmul or type, or none that the chip computes in; a mesh that isn't
        the topology's, or splits more than the model has.

    Examples
    --------
    >>> from roofline import network
    >>> cube = network.topology("v7x", "4x4x4")
    >>> llama = step("llama-3-70b", cube, {"fsdp": 64}, batch=256, seq=8192)
    >>> f"{llama.least_seconds:.1f} s at least"
    '7.9 s at least'
    """
    decoder, tokens, topology = model_of(model), whole("seq", seq), topology_of(hardware)
    if topology is None:
        raise BadType(f"training needs a topology (network.topology), got {shown(hardware)}")
    axes = mesh_axes(topology, mesh, decoder, tokens)
    computed = dtype_of(dtype)
    topology.chip.peak(computed, "matrix")
    setting = TrainingSetting(
        model=decoder,
        topology=topology,
        mesh=axes,
        batch=whole("batch", batch),
        seq=tokens,
        dtype=computed,
        weights=dtype_of(weights),
        moments=dtype_of(moments),
        recompute=recomputed(recompute),
        microbatches=whole("microbatches", microbatches),
        interleave=whole("interleave", interleave),
        sharded=sharding_roles(sharded),
        capacity=None if capacity is None else single("capacity", capacity),
        tile=None if tile is None else whole("tile", tile),
        law=flag("law", law),
        overlap=None if overlap is None else flag("overlap", overlap),
        imbalance=single("imbalance", imbalance),
    )
    refuse_misfit(setting)
    return TrainingStep(setting)


def matrix_rate(topology: Topology, dtype: str) -> float:
    """Return the FLOP/s of a device's matrix unit."""
    chip = topology.chip
    peak = chip.peak(dtype, "matrix").value
    if topology.ceilings == "published":
        return peak
    known = chip.reached.matrix
    if dtype in known:
        return known[dtype].value
    half = known.get(chip.half)
    return peak * (half.value / chip.matrix[chip.half].value if half else REACHED)


def filled(model: Decoder, chip: str) -> float:
    """Return the share of a chip's matrix unit that attention's matmuls fill, at head width.

    Examples
    --------
    >>> from roofline_helpers.models import LLAMA_3_8B
    >>> filled(LLAMA_3_8B, "v5p"), filled(LLAMA_3_8B, "v6e")
    (1.0, 0.5)
    """
    return min(1.0, model.head_dim / MATRIX_SIDE.get(chip, 1))


def _memory_rate(topology: Topology) -> float:
    """Return the byte/s of a device's memory."""
    chip = topology.chip
    return chip.roofline(chip.half, reached=topology.ceilings == "reached").bandwidth


def _product_flops(setting: TrainingSetting) -> dict[str, float]:
    """Return the FLOPs of one forward pass by matmul, of all layers and tokens."""
    return {
        **weight_flops(setting.model, setting.tokens),
        "attention": setting.batch * setting.model.attention_flops(setting.seq),
    }


def weight_flops(model: Decoder, tokens: int) -> dict[str, float]:
    """Return the FLOPs of one forward pass by matmul with weights, of all layers."""
    output = model.mixers(lambda mixer: mixer.output)
    ups = (2 if model.gated else 1) / (3 if model.gated else 2)
    feed_forward = model.active_matrices - model.mixing
    return {
        "qkv": 2 * tokens * (model.mixing - output),
        "output": 2 * tokens * output,
        "up": 2 * tokens * feed_forward * ups,
        "down": 2 * tokens * feed_forward * (1 - ups),
    }


def _activation_bytes(setting: TrainingSetting) -> float:
    """Return the bytes of the passes between the matmuls of a forward pass, on one device.

    Each residual with the norm after it reads two tensors and writes two; the rotary embedding
    reads and writes queries and keys; the gate reads two hidden tensors and writes one. In layers
    with experts tokens are sorted, and their results added up (`mixture.sorting_passes`); with
    masks both are written and read.
    """
    model = setting.model
    hidden = model.feeds(lambda feed: feed.hidden)
    rotated = (model.heads + model.kv_heads) * model.head_dim
    elements: float = model.sums * 4 * model.d_model + model.layers * 2 * rotated + 3 * hidden
    if model.experts:
        elements += model.expert_layers * mixture.sorting_passes(setting) * model.d_model
        elements += model.expert_layers * 4 * mixture.seats(setting)
    share = setting.group_tokens / setting.size("tensor", "pipeline")
    return elements * share * width("bf16")


def _scaled_bytes(setting: TrainingSetting) -> float:
    """Return the bytes of writing matmuls' inputs in 8 bits, beyond what the laws have.

    Scales of blocks lie along the sum, and each input is summed over along one side forwards and
    along the other backwards: it is written twice, where fp8 with one scale is written once. The
    times of dense fp8 matmuls have the pass that scales. Rows of experts are read in 16 bits and
    written once more: inputs and gradients of both matmuls.
    """
    model, dtype = setting.model, setting.dtype
    if dtype not in ("fp8", "fp8 in blocks", "mxfp8"):
        return 0.0
    routed = wider = 0.0
    if experts := model.experts:
        wider = 2 * experts.active * model.d_model * model.expert_layers
        routed = wider + 3 * experts.active * experts.d_ff * model.expert_layers
    nbytes = routed * (width("bf16") + width(dtype))
    if dtype != "fp8":
        saved = sum(kept_widths(model).values()) + 2 * model.d_model
        nbytes += (saved * model.layers + wider) * width(dtype)
    return nbytes * setting.group_tokens / setting.size("tensor", "pipeline")
