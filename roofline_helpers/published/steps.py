"""Published training steps beside the training model's."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any

from roofline_helpers import network, training
from roofline_helpers._checks import name_of
from roofline_helpers.models import Decoder, model
from roofline_helpers.training import Step

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class PublishedStep:
    """A training step that somebody published, with what a prediction of it needs.

    `seconds` is as printed or, where the page has only TFLOP/s, what follows from them by the
    count of FLOPs that it uses. `unsaid` is what the page doesn't say and is assumed.
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

    @property
    def place(self) -> network.Topology:
        """Where it ran, at published ceilings."""
        return self._place("published")

    def _place(self, ceilings: str) -> network.Topology:
        return network.topology(
            self.chip, self.shape, slices=self.slices, ceilings=ceilings, cores=True
        )

    def _step(self, ceilings: str) -> Step:
        setting = {"batch": self.batch, "seq": self.seq, **self.setting}
        return training.step(self.model, self._place(ceilings), self.mesh, **setting)

    @cached_property
    def published(self) -> Step:
        """The step at published ceilings: its `bound` is what nothing beats."""
        return self._step("published")

    @cached_property
    def reached(self) -> Step:
        """The step at reached ceilings: its `seconds` are the prediction."""
        return self._step("reached")

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
    def rule_of_thumb(self) -> float:
        """Seconds by 6 N D FLOPs at half of the published peak, N the parameters a token meets."""
        peak = self.place.flops(self.published.setting.dtype)
        return 6 * self.model.active_parameters * self.batch * self.seq / (peak / 2)


def steps() -> tuple[PublishedStep, ...]:
    """Return every published training step of `data/published`."""
    return _steps()


@cache
def _steps() -> tuple[PublishedStep, ...]:
    folder = resources.files("roofline_helpers").joinpath("data", "published")
    found = []
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        data = tomllib.loads(path.read_text("utf-8"))
        found += [_published(data, row) for row in data.get("row", ())]
    return tuple(found)


_SETTING = ("dtype", "weights", "moments", "recompute", "microbatches", "interleave", "sharded")


def _published(data: Mapping[str, Any], row: Mapping[str, Any]) -> PublishedStep:
    decoder = Decoder(row["model"], **row["widths"]) if "widths" in row else model(row["model"])
    return PublishedStep(
        key=row["id"],
        source=data["title"],
        url=f"{data['url']}/{row['page']}" if "/tree/" in data["url"] else data["url"],
        chip=row["chip"],
        shape=row["shape"],
        slices=row.get("slices", 1),
        model=decoder,
        batch=row["batch"],
        seq=row["seq"],
        mesh=row["mesh"],
        setting={name: row[name] for name in _SETTING if name in row},
        count=row["count"],
        printed={name: row[name] for name in ("seconds", "tflops", "tokens") if name in row},
        unsaid=row.get("unsaid", ""),
    )


def published_step(key: str) -> PublishedStep:
    """Return one published step by its key; its `reached.waterfall()` is what it is made of.

    Raises
    ------
    UnknownName, BadType
        No such row; the message gives the nearest.
    """
    known = {each.key: each for each in _steps()}
    return known[name_of("published step", key, known)]


def _rows() -> Iterator[dict[str, Any]]:
    for one in _steps():
        yield {
            "key": one.key,
            "chip": one.chip,
            "chips": one.place.chips,
            "model": one.model.name,
            "kind": "mixture of experts" if one.model.experts else "dense",
            "type": one.published.setting.dtype,
            "published s": one.seconds,
            "bound s": one.published.bound,
            "reached s": one.reached.seconds,
            "error": one.reached.seconds / one.seconds - 1,
            "6ND at 50 % s": one.rule_of_thumb,
            "6ND error": one.rule_of_thumb / one.seconds - 1,
            "MFU": one.published.model_flops()
            / one.seconds
            / one.place.flops(one.published.setting.dtype),
            "unsaid": one.unsaid,
            "source": one.url,
        }


def scoreboard() -> pandas.DataFrame:
    """Return every published training step with its predictions: one row each.

    "bound s" is the least time at published ceilings, "reached s" the prediction at reached ones
    and "error" that over the published time, less one. "MFU" counts attention as the mask leaves
    it, whatever the page does. "6ND at 50 % s" is the rule of thumb that a prediction has to beat.
    """
    import pandas

    return pandas.DataFrame(list(_rows())).set_index("key")
