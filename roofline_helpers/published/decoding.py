"""Published decode steps, and the serving model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from roofline_helpers import network
from roofline_helpers.models import Decoder, model
from roofline_helpers.serving import ServingStep, step


@dataclass(frozen=True)
class PublishedDecode:
    """A decode step that somebody published; see `published.steps.PublishedStep`.

    `seconds` is the median between two tokens; `mean` the mean time per output token, in which the
    prompts of other sequences are read too.

    Examples
    --------
    >>> from roofline_helpers.published import steps
    >>> decodes = [step for step in steps() if isinstance(step, PublishedDecode)]
    >>> decodes[0].batch, f"{decodes[0].published.seconds * 1e3:.1f} ms"
    (64, '15.8 ms')
    """

    key: str
    source: str
    url: str
    chip: str
    shape: Any
    model: Decoder
    batch: int
    context: int
    seconds: float
    mean: float
    unsaid: str
    why: str

    @property
    def place(self) -> network.Topology:
        """Where it ran, at published ceilings."""
        return network.topology(self.chip, self.shape)

    def _step(self, ceilings: str) -> ServingStep:
        place = network.topology(self.chip, self.shape, ceilings=ceilings)
        mesh = {"tensor": place.members}  # the recipe's tensor_parallel_size
        return step(self.model, place, mesh, batch=self.batch, context=self.context)

    @cached_property
    def published(self) -> ServingStep:
        """The step at published ceilings: no such step is shorter than its `bound`."""
        return self._step("published")

    @cached_property
    def reached(self) -> ServingStep:
        """The step at reached ceilings: its `seconds` are the prediction."""
        return self._step("reached")

    @property
    def by_law(self) -> ServingStep:
        """As `reached`: no law is of a slice of TPUs."""
        return self.reached

    @property
    def compiled(self) -> None:
        """No decode step was compiled whole."""
        return None

    @property
    def dtype(self) -> str:
        """What its products compute in."""
        return self.published.setting.activations

    @property
    def model_flops(self) -> float:
        """FLOPs that the model asks for."""
        return self.published.flops * self.place.chips

    @property
    def rule_of_thumb(self) -> float:
        """Seconds to read the weights once, at half of the published bandwidth."""
        chip = self.place.chip
        nbytes = 2 * self.model.parameters / self.place.chips
        return nbytes / (chip.roofline(chip.half).bandwidth / 2)


_PRINTED = ("chip", "shape", "batch", "context", "seconds", "mean")


def published_decode(data: Mapping[str, Any], row: Mapping[str, Any]) -> PublishedDecode:
    """Return a row of a file of `data/published`."""
    return PublishedDecode(
        key=row["id"],
        source=data["title"],
        url=f"{data['url']}/{row['page']}",
        model=model(row["model"]),
        unsaid=row.get("unsaid", ""),
        why=row.get("why", ""),
        **{name: row[name] for name in _PRINTED},
    )
