"""Published steps of training and of decoding, and the models' predictions of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from roofline import network, serving, training
from roofline.configurations import model
from roofline.serving import ServingStep
from roofline.serving.setting import TYPES
from roofline.training import TrainingStep
from roofline.training.step import filled
from roofline.validation.programs import seconds_by_bound
from roofline.xla import DoesNotFit, Report
from roofline.xla.analysis import find_record
from roofline_helpers.common.show import Fields
from roofline_helpers.models import Decoder, shaped

Step = TypeVar("Step", TrainingStep, ServingStep)


@dataclass(frozen=True, repr=False)
class _PublishedRow(Generic[Step], Fields):
    """The fields of every published step.

    `unsaid` are assumptions about facts missing from the page, `why` is the reason for a large
    error, `read` the day that the page was read: its software is older.

    Examples
    --------
    >>> from roofline.validation import steps
    >>> {step.task for step in steps()} == {"training", "decode"}
    True
    """

    key: str
    source: str
    url: str
    chip: str
    shape: int | str
    model: Decoder
    batch: int
    unsaid: str
    why: str
    read: str

    task: ClassVar[str]

    @property
    def kind(self) -> str:
        """The kind of model – "dense" or "mixture of experts"."""
        return "mixture of experts" if self.model.experts else "dense"

    @property
    def topology(self) -> network.Topology:
        """Its topology, at published ceilings."""
        return self._topology("published")

    def _topology(self, ceilings: str) -> network.Topology:
        return network.topology(self.chip, self.shape, ceilings=ceilings)

    def _step(self, ceilings: str, *, law: bool = False) -> Step:
        raise NotImplementedError

    @cached_property
    def published(self) -> Step:
        """The step at published ceilings – no such step is shorter than its `bound`."""
        return self._step("published")

    @cached_property
    def reached(self) -> Step:
        """The step at reached ceilings – its `seconds` are the prediction."""
        return self._step("reached")

    @cached_property
    def by_law(self) -> Step:
        """The step by the laws of measured kernels, or at reached ceilings without any."""
        return self._step("reached", law=True)


@dataclass(frozen=True, repr=False)
class PublishedStep(_PublishedRow[TrainingStep]):
    """A published training step, with the settings for its prediction.

    `published`, `reached` and `by_law` are its predictions, and `compiled` the seconds of XLA's own
    program by their bounds. `seconds` is printed or, if the page has only TFLOP/s, follows from
    them by the page's count of FLOPs. `recipe` has further settings of a compiled program:
    "offload", the tensors in the host's memory, and "moment", the type of the first moment.

    Examples
    --------
    >>> from roofline.validation import published_step
    >>> published_step("v7x-64-llama-3.1-70b").topology.chips
    64
    """

    slices: int
    seq: int
    mesh: Mapping[str, int]
    setting: Mapping[str, Any]
    count: str
    printed: Mapping[str, float]
    recipe: Mapping[str, Any] | None = None

    task: ClassVar[str] = "training"

    def _topology(self, ceilings: str) -> network.Topology:
        return network.topology(
            self.chip, self.shape, slices=self.slices, ceilings=ceilings, cores=True
        )

    def _step(self, ceilings: str, *, law: bool = False) -> TrainingStep:
        setting = {"batch": self.batch, "seq": self.seq, "law": law, **self.setting}
        return training.step(self.model, self._topology(ceilings), self.mesh, **setting)

    @property
    def record(self) -> str:
        """Name of the record of XLA's program."""
        return f"whole-{self.key.replace('.', '_')}"

    @cached_property
    def _answer(self) -> Report | DoesNotFit | None:
        """XLA's result, from its record: a program or a refusal; None if there is no record."""
        if self.recipe is None:
            return None
        try:
            return find_record(self.record, self.chip)
        except DoesNotFit as error:
            return error

    @property
    def program(self) -> Report | None:
        """XLA's program of the step for one device; None if it was refused or not compiled."""
        return self._answer if isinstance(self._answer, Report) else None

    @property
    def refused(self) -> DoesNotFit | None:
        """Why XLA refused the step, if it did."""
        return self._answer if isinstance(self._answer, DoesNotFit) else None

    @cached_property
    def compiled(self) -> dict[str, float] | None:
        """The time of that program at reached ceilings, in parts – a third prediction.

        Its attention fills the matrix unit only to the width of a head, as in `reached`.
        """
        if self.program is None:
            return None
        return seconds_by_bound(self.program, filled=filled(self.model, self.chip))

    @property
    def flops(self) -> int:
        """FLOPs of the step by the page's own count."""
        count = "halved" if self.count == "own" else self.count
        return self.published.model_flops(causal=count)

    @property
    def seconds(self) -> float:
        """Seconds of the step – printed, or from the printed TFLOP/s."""
        if "seconds" in self.printed:
            return self.printed["seconds"]
        if "tokens" in self.printed:
            return self.batch * self.seq / self.topology.chips / self.printed["tokens"]
        return self.flops / self.topology.chips / (self.printed["tflops"] * 1e12)

    @property
    def dtype(self) -> str:
        """The data type that its matmuls compute in."""
        return self.published.setting.dtype

    @property
    def model_flops(self) -> float:
        """FLOPs of the model, with unmasked pairs of attention only."""
        return self.published.model_flops()

    @property
    def rule_of_thumb(self) -> float:
        """Seconds by 6 N D FLOPs at half of the published peak, N the parameters per token."""
        peak = self.topology.flops(self.dtype)
        return 6 * self.model.active_parameters * self.batch * self.seq / (peak / 2)


@dataclass(frozen=True, repr=False)
class PublishedDecode(_PublishedRow[ServingStep]):
    """A decode step that somebody published.

    `published`, `reached` and `by_law` are its predictions, each a `ServingStep`. `seconds` is the
    median between two tokens; `mean` the mean time per output token, in which the prompts of other
    sequences are read too. `setting` has further arguments of `serving.step`: types, and "phase".

    Examples
    --------
    >>> from roofline.validation import steps
    >>> decodes = [step for step in steps() if isinstance(step, PublishedDecode)]
    >>> decodes[0].batch, f"{decodes[0].published.seconds * 1e3:.1f} ms"
    (64, '16.6 ms')
    """

    context: int
    seconds: float
    mean: float
    setting: Mapping[str, Any] = field(default_factory=dict)

    task: ClassVar[str] = "decode"
    compiled: ClassVar[None] = None

    def _step(self, ceilings: str, *, law: bool = False) -> ServingStep:
        topology = self._topology(ceilings)
        asked = {"mesh": {"tensor": topology.members}, **self.setting}  # tensor_parallel_size
        asked |= {"batch": self.batch, "context": self.context, "law": law}
        return serving.step(self.model, topology, **asked)

    @property
    def dtype(self) -> str:
        """The data type that its matmuls compute in."""
        return self.published.setting.activations

    @property
    def model_flops(self) -> float:
        """FLOPs of the model."""
        return self.published.flops * self.topology.chips

    @property
    def rule_of_thumb(self) -> float:
        """Seconds to read the weights once, at half of the published bandwidth."""
        chip = self.topology.chip
        nbytes = 2 * self.model.parameters / self.topology.chips
        return nbytes / (chip.roofline(chip.half).bandwidth / 2)


# --- Rows of `data/published`, or of a reader's own file ----------------------------------------

SERVING = ("phase", "new", "mesh", "expert_widths", "vocabulary", *TYPES)

SETTING = (
    *("dtype", "weights", "moments", "recompute", "microbatches", "interleave", "sharded"),
    *("capacity", "tile", "overlap", "imbalance"),
)


def published_training(data: Mapping[str, Any], row: Mapping[str, Any]) -> PublishedStep:
    """Return a training step of a file of `data/published`."""
    return PublishedStep(
        **_common(data, row),
        slices=row.get("slices", 1),
        setting={name: row[name] for name in SETTING if name in row},
        printed={name: row[name] for name in ("seconds", "tflops", "tokens") if name in row},
        recipe=row.get("program"),
        **{name: row[name] for name in ("seq", "mesh", "count")},
    )


def published_decode(data: Mapping[str, Any], row: Mapping[str, Any]) -> PublishedDecode:
    """Return a decode step of a file of `data/published`."""
    setting = {name: row[name] for name in SERVING if name in row}
    figures = {name: row[name] for name in ("context", "seconds", "mean")}
    return PublishedDecode(**_common(data, row), setting=setting, **figures)


def decoder_of(row: Mapping[str, Any]) -> Decoder:
    """Return the model of a row, by name or by its own widths."""
    return shaped(row["model"], row["widths"]) if "widths" in row else model(row["model"])


def _common(data: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of every row; of a folder's files `url` is the folder's."""
    folder = data.get("url", "")
    page = f"{folder}/{row['page']}" if "/tree/" in folder and "page" in row else folder
    return {
        "key": row["id"],
        "source": data["title"],
        "url": row.get("url", page),
        "unsaid": row.get("unsaid", ""),
        "why": row.get("why", ""),
        "read": str(row.get("read", data.get("read", ""))),
        "model": decoder_of(row),
        **{name: row[name] for name in ("chip", "shape", "batch")},
    }
