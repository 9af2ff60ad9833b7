"""Published training steps, and the training model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from roofline_helpers import network, training
from roofline_helpers.models import Decoder, model
from roofline_helpers.training import TrainingStep
from roofline_helpers.xla import DoesNotFit, Report
from roofline_helpers.xla.analysis import find_record
from roofline_helpers.xla.report import at_reached


@dataclass(frozen=True)
class PublishedStep:
    """A training step that somebody published, with what a prediction of it needs.

    `seconds` is as printed or, where the page has only TFLOP/s, what follows from them by the
    count of FLOPs that it uses. `unsaid` is what the page doesn't say and is assumed, `why` what is
    known of a large error. `recipe` is what else a program of the step needs, where XLA compiled
    one: "offload", what moves to the host's memory, and "moment", the type of the first moment.

    Examples
    --------
    >>> from roofline_helpers.published import published_step
    >>> published_step("v7x-64-llama-3.1-70b").place.chips
    64
    """

    key: str
    source: str
    url: str
    chip: str
    shape: Any
    slices: int
    model: Decoder
    batch: int
    seq: int
    mesh: Mapping[str, int]
    setting: Mapping[str, Any]
    count: str
    printed: Mapping[str, float]
    unsaid: str
    why: str
    recipe: Mapping[str, Any] | None = None

    @property
    def place(self) -> network.Topology:
        """Where it ran, at published ceilings."""
        return self._place("published")

    def _place(self, ceilings: str) -> network.Topology:
        return network.topology(
            self.chip, self.shape, slices=self.slices, ceilings=ceilings, cores=True
        )

    def _step(self, ceilings: str, *, law: bool = False) -> TrainingStep:
        setting = {"batch": self.batch, "seq": self.seq, "law": law, **self.setting}
        return training.step(self.model, self._place(ceilings), self.mesh, **setting)

    @cached_property
    def published(self) -> TrainingStep:
        """The step at published ceilings: no such step is shorter than its `bound`."""
        return self._step("published")

    @cached_property
    def reached(self) -> TrainingStep:
        """The step at reached ceilings: its `seconds` are the prediction."""
        return self._step("reached")

    @cached_property
    def by_law(self) -> TrainingStep:
        """The step at reached ceilings, but by the laws of measured kernels where there are any."""
        return self._step("reached", law=True)

    @property
    def record(self) -> str:
        """Name of the record of XLA's program."""
        return f"whole-{self.key.replace('.', '_')}"

    @cached_property
    def _answer(self) -> Report | DoesNotFit | None:
        """XLA's answer, from its record: a program or a refusal; None where it wasn't asked."""
        if self.recipe is None:
            return None
        try:
            return find_record(self.record, self.chip)
        except DoesNotFit as error:
            return error

    @property
    def program(self) -> Report | None:
        """XLA's program of the step for one device; None where none was compiled, or refused."""
        return self._answer if isinstance(self._answer, Report) else None

    @property
    def refused(self) -> DoesNotFit | None:
        """Why XLA refused the step, if it did."""
        return self._answer if isinstance(self._answer, DoesNotFit) else None

    @cached_property
    def compiled(self) -> dict[str, float] | None:
        """What that program takes at reached ceilings, in parts: a third prediction.

        Its attention fills as much of a matrix unit as heads are wide, as in `reached`.
        """
        if self.program is None:
            return None
        return at_reached(self.program, filled=training.filled(self.model, self.chip))

    @property
    def flops(self) -> int:
        """FLOPs of the step by the page's own count."""
        count = "halved" if self.count == "own" else self.count
        return self.published.model_flops(causal=count)

    @property
    def seconds(self) -> float:
        """Seconds of the step: printed, or from the TFLOP/s that are."""
        if "seconds" in self.printed:
            return self.printed["seconds"]
        if "tokens" in self.printed:
            return self.batch * self.seq / self.place.chips / self.printed["tokens"]
        return self.flops / self.place.chips / (self.printed["tflops"] * 1e12)

    @property
    def dtype(self) -> str:
        """What its products compute in."""
        return self.published.setting.dtype

    @property
    def model_flops(self) -> float:
        """FLOPs that the model asks for, attention as the mask leaves it."""
        return self.published.model_flops()

    @property
    def rule_of_thumb(self) -> float:
        """Seconds by 6 N D FLOPs at half of the published peak, N the parameters a token meets."""
        peak = self.place.flops(self.dtype)
        return 6 * self.model.active_parameters * self.batch * self.seq / (peak / 2)


SETTING = (
    *("dtype", "weights", "moments", "recompute", "microbatches", "interleave", "sharded"),
    *("capacity", "tile"),
)


def _page(url: str, page: str) -> str:
    return f"{url}/{page}" if "/tree/" in url else url


def published_training(data: Mapping[str, Any], row: Mapping[str, Any]) -> PublishedStep:
    """Return a row of a file of `data/published`."""
    decoder = Decoder(row["model"], **row["widths"]) if "widths" in row else model(row["model"])
    return PublishedStep(
        key=row["id"],
        source=data["title"],
        url=row.get("url") or _page(data["url"], row["page"]),
        slices=row.get("slices", 1),
        model=decoder,
        setting={name: row[name] for name in SETTING if name in row},
        printed={name: row[name] for name in ("seconds", "tflops", "tokens") if name in row},
        unsaid=row.get("unsaid", ""),
        why=row.get("why", ""),
        recipe=row.get("program"),
        **{name: row[name] for name in ("chip", "shape", "batch", "seq", "mesh", "count")},
    )
