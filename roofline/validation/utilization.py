"""MFU: FLOPs of a token, which peak they are divided by, and where published runs stand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import median
from typing import Any, NamedTuple

from roofline.configurations import model as model_of
from roofline.terminal import Grid
from roofline.training.setting import RECOMPUTE
from roofline.training.step import weight_flops
from roofline.validation.board import steps
from roofline.validation.published_steps import PublishedStep
from roofline_helpers.chips import Chip, Figure, namesakes
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import name_of, single, whole
from roofline_helpers.common.dtypes import computed_as
from roofline_helpers.common.show import Facts, si, significant
from roofline_helpers.measured.tables import count, table
from roofline_helpers.models import Decoder

WIDTH = 100
"""Columns of an answer."""

ENOUGH = 3
"""Published runs from which on they are compared with."""

MIXED = "on this chip, each by the peak of its type"

COUNTS = {
    "6N": "6 for each weight that a token uses, with the embedding",
    "matmuls": "6 for each weight of a matmul: the embedding's lookup multiplies nothing",
    "attention": "and attention, over the pairs that the causal mask leaves",
    "whole": "and attention, over all pairs, as PaLM's and nanoGPT's formula has it",
}
"""How the FLOPs of a token are counted; `mfu` takes the last that is known but "whole"."""

TEXTS = {
    "MFU": (
        "{model} on {chip}: MFU {mfu}{more}. {rate} tokens/s a chip × {token} a token = "
        "{achieved}, of {peak} in {dtype}, dense."
    ),
    "standing": (
        "Of {count} published runs of {kind} {where}, {low} to {high} with a median of {middle}, "
        "{lower} lower."
    ),
    "impossible": "More than the peak is impossible, so one of the numbers is another.",
    "improbable": (
        "The fastest {dtype} matmul of this book's records of the chip does {most}, {share} of the "
        "peak, and no whole step is as fast: one of the numbers is another."
    ),
    "total": "Are these the tokens of several chips together? Of {shares}.",
    "narrow": "Did the matmuls run in fp8? Their peak is {peak}: {share}.",
    "another": "Another chip? Give the name that JAX, PyTorch or nvidia-smi prints.",
    "padding": "Padding among the tokens, or layers that aren't trained?",
    "little": (
        "Less than a third of the lowest of them: are these the tokens of a chip in a second, and "
        "not sequences, or those of one part of it?"
    ),
    "same": "Of the published runs, in {dtype}: {shares}.",
    "namesake": "The name fits {chip} too, whose peak is {peak}: {share}.",
    "devices": "The chip is {count} devices, and each has {rate} tokens a second.",
    "sparse": (
        "The data sheet's {sparse} is with 2:4 sparsity, which a dense model can't use: divided by "
        "it, {share}."
    ),
    "wider": "Divided by the {half} peak, as some pages do: {share}.",
    "alone": "How much attention adds depends on how long a sequence is: say it with seq.",
    "state": "Its layers with a state are counted as scanned in chunks, and kernels differ in it.",
    "active": "Of {total} weights a token uses {active}, and these are counted.",
}
"""What is said of a run, in Python and on the page."""


class Run(NamedTuple):
    """A published training run: `mfu` with attention as its mask leaves it, `dtype` as computed.

    Examples
    --------
    >>> max(runs(), key=lambda run: run.mfu).chip
    'v5p'
    """

    key: str
    chip: str
    chips: int
    model: str
    experts: bool
    dtype: str
    mfu: float
    url: str


@cache
def runs() -> tuple[Run, ...]:
    """Return every published training run, counted alike.

    Examples
    --------
    >>> len(runs()) > 100
    True
    """
    found = []
    for step in steps():
        if isinstance(step, PublishedStep):
            peak = step.topology.flops(step.dtype)
            mfu = step.model_flops / step.seconds / peak
            facts = step.model.name, step.model.experts is not None, computed_as(step.dtype)
            found.append(Run(step.key, step.chip, step.topology.chips, *facts, mfu, step.url))
    return tuple(found)


class Standing(NamedTuple):
    """Published runs that are compared with, the lowest first, and in what they are alike.

    Examples
    --------
    >>> like(chip_of("h100"), "fp8", experts=False)[:2]
    ('dense models', 'on this chip in fp8')
    """

    kind: str
    where: str
    runs: tuple[Run, ...]


def like(chip: Chip, dtype: str, experts: bool) -> Standing:
    """Return the published runs that are most alike: of the chip and type, else of fewer."""
    computed = computed_as(dtype)
    same = [run for run in runs() if run.experts == experts]
    there = [run for run in same if run.chip == chip.key]
    near = [run for run in same if chip_of(run.chip).kind == chip.kind and run.dtype == computed]
    choices = {
        f"on this chip in {computed}": [run for run in there if run.dtype == computed],
        MIXED: there,
        f"on {chip.kind.upper()}s in {computed}": near,
        "on any chip": same,
    }
    where = next(where for where, found in choices.items() if len(found) >= ENOUGH)
    found = sorted(choices[where], key=lambda run: run.mfu)
    return Standing("mixtures" if experts else "dense models", where, tuple(found))


@cache
def fastest(chip: str, dtype: str) -> float | None:
    """Return the FLOP/s of the fastest matmul that is known of a chip; None if none is.

    Examples
    --------
    >>> 0.8 < fastest("h100", "bf16") / 989e12 < 0.9
    True
    """
    known = [float(rate) for rate in [chip_of(chip).reached.matrix.get(computed_as(dtype))] if rate]
    rows = table("matmul")
    rows = rows[(rows["chip"] == chip) & (rows["dtype"] == dtype)]
    if len(rows):
        known.append(float((count("matmul", rows, dtype).flops / rows["seconds"]).max()))
    return max(known, default=None)


@dataclass(frozen=True, repr=False)
class Utilization(Facts):
    """What a training run uses of its chips.

    Parameters
    ----------
    model, chip : Decoder, Chip
    dtype : str
        Of the weights' matmuls, by whose dense peak it is divided.
    rate : float
        Tokens per second of one chip.
    seq : int or None
        Tokens of a sequence; None: attention isn't counted.
    recompute : str
        What the backward pass computes again: a name of `training.RECOMPUTE`.
    others : tuple of Chip
        Chips that were called alike.

    Examples
    --------
    >>> run = mfu("llama-3-8b", "NVIDIA H100 80GB HBM3", 12_000, seq=8192)
    >>> f"{run.mfu:.1%}", f"{run.peak}"
    ('62.5%', '989 TFLOP/s')
    """

    model: Decoder
    chip: Chip
    dtype: str
    rate: float
    seq: int | None = None
    recompute: str = "none"
    others: tuple[Chip, ...] = ()

    def _title(self) -> str:
        return f"{self.model.name} on {self.chip.name}"

    def _facts(self) -> dict[str, str]:
        least = "" if "attention" in self.counts else " without attention"
        return {"MFU": f"MFU {_share(self.mfu)}{least}", "peak": f"of {self.peak} in {self.dtype}"}

    @cached_property
    def counts(self) -> dict[str, float]:
        """FLOPs of a token in training, by each way of `COUNTS` that is known."""
        found = {
            "6N": 6.0 * self.model.active_parameters,
            "matmuls": 3.0 * self.model.matrix_flops(),
        }
        if self.seq is not None:
            for name, causal in (("attention", "halved"), ("whole", "whole")):
                pairs = self.model.attention_flops(self.seq, causal=causal)
                found[name] = found["matmuls"] + 3 * pairs / self.seq
        return found

    @property
    def flops(self) -> float:
        """FLOPs of a token that the MFU counts."""
        return self.counts.get("attention", self.counts["matmuls"])

    @cached_property
    def recomputed(self) -> float:
        """FLOPs of a token that the backward pass computes again."""
        products = weight_flops(self.model, 1)
        products["attention"] = (self.flops - self.counts["matmuls"]) / 3
        return sum(products[name] for name in RECOMPUTE[self.recompute])

    @property
    def peak(self) -> Figure:
        """The dense peak of the chip's matrix unit."""
        return self.chip.peak(self.dtype, "matrix")

    @property
    def achieved(self) -> float:
        """FLOP/s of the model on one chip."""
        return self.rate * self.flops

    @property
    def mfu(self) -> float:
        """The model's FLOP/s over the peak."""
        return self.achieved / self.peak.value

    @property
    def hfu(self) -> float:
        """The same with what is computed again."""
        return self.rate * (self.flops + self.recomputed) / self.peak.value

    @cached_property
    def like(self) -> Standing:
        """Published runs like it."""
        return like(self.chip, self.dtype, self.model.experts is not None)

    # --- in words -----------------------------------------------------------------------------

    @property
    def possible(self) -> bool:
        """Whether it is below the peak, with what is computed again."""
        return self.hfu <= 1

    def headline(self) -> str:
        """Return the MFU with the sum that makes it."""
        more = "" if "attention" in self.counts else ", attention not counted"
        more += f", HFU {_share(self.hfu)}" if self.recomputed else ""
        return TEXTS["MFU"].format(
            model=self.model.name,
            chip=self.chip.name,
            mfu=_share(self.mfu),
            more=more,
            rate=significant(self.rate, 4),
            token=si(self.flops, "FLOP"),
            achieved=_tera(self.achieved),
            peak=_tera(self.peak),
            dtype=self.dtype,
        )

    def standing(self) -> str:
        """Return where it stands among published runs like it."""
        kind, where, found = self.like
        shares = [run.mfu for run in found]
        below = sum(share < self.mfu for share in shares)
        lower = {0: "none is", 1: "1 is", len(found): "all are"}.get(below, f"{below} are")
        low, high, middle = map(_share, (shares[0], shares[-1], median(shares)))
        return TEXTS["standing"].format(
            count=len(found), kind=kind, where=where, low=low, high=high, middle=middle, lower=lower
        )

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with a rate that can't be, and what would explain it."""
        busy, most = self.hfu * self.peak.value, self.peak.value
        if busy > most:
            yield TEXTS["impossible"]
        else:
            most = fastest(self.chip.key, self.dtype) or most
            if busy <= most:
                return
            share = _share(most / self.peak.value)
            yield TEXTS["improbable"].format(dtype=self.dtype, most=_tera(most), share=share)
        counts = [2**power for power in range(1, 15)]
        fitting = [n for n in counts if self.mfu / n <= min(1.0, most / self.peak.value)]
        usual = [n for n in counts if self.mfu / n <= self.like.runs[-1].mfu]
        shares = [f"{n}: {_share(self.mfu / n)}" for n in sorted({*fitting[:1], *usual[:1]})]
        yield TEXTS["total"].format(shares=", of ".join(shares))
        narrow = self.chip.matrix.get("fp8")
        if narrow and narrow.value > self.peak.value and self.achieved <= narrow.value:
            share = _share(self.achieved / narrow.value)
            yield TEXTS["narrow"].format(peak=_tera(narrow), share=share)
        yield TEXTS["another"]
        yield TEXTS["padding"]

    def doubts(self) -> Iterator[str]:
        """Yield on what the number depends."""
        half, computed = self.chip.half, computed_as(self.dtype)
        if self.mfu < self.like.runs[0].mfu / 3:
            yield TEXTS["little"]
        if self.like.where == MIXED:
            same = [_share(run.mfu) for run in self.like.runs if run.dtype == computed]
            yield TEXTS["same"].format(dtype=computed, shares=", ".join(same) or "none")
        for other in self.others:
            peak = other.matrix.get(computed, self.peak)
            if peak.value != self.peak.value and self.achieved <= peak.value:
                kind = other.name.removeprefix(f"{other.vendor} ")
                share = _share(self.achieved / peak.value)
                yield TEXTS["namesake"].format(chip=kind, peak=_tera(peak), share=share)
        if self.chip.devices > 1:
            rate = significant(self.rate / self.chip.devices, 4)
            yield TEXTS["devices"].format(count=self.chip.devices, rate=rate)
        if self.peak.sparse and self.possible:
            share = _share(self.achieved / self.peak.sparse)
            yield TEXTS["sparse"].format(sparse=_tera(self.peak.sparse), share=share)
        if computed != half:
            share = _share(self.achieved / self.chip.matrix[half].value)
            yield TEXTS["wider"].format(half=half, share=share)
        if self.seq is None:
            yield TEXTS["alone"]
        elif any(block.mixer and block.mixer.scan for block in self.model.kinds):
            yield TEXTS["state"]
        if self.model.experts:
            sizes = self.model.active_parameters, self.model.parameters
            active, total = (si(size, "").strip() for size in sizes)
            yield TEXTS["active"].format(active=active, total=total)

    def parts(self) -> list[str | Grid]:
        """Return what is printed: the answer, its counts, where it stands, what it depends on."""
        rows = [
            [
                si(flops, "FLOP"),
                _share(self.rate * flops / self.peak.value),
                "MFU" if flops == self.flops else "",
                COUNTS[name],
            ]
            for name, flops in self.counts.items()
        ]
        if self.recomputed:
            total = self.flops + self.recomputed
            how = f"and the forward pass again, recompute {self.recompute}"
            rows.append([si(total, "FLOP"), _share(self.hfu), "HFU", how])
        grid = Grid(["a token", "of the peak", "", "counted"], rows, right=False)
        faults = [*self.faults()]
        first = [self.headline(), *(faults or [self.standing()])]
        said = [f"- {text}" for text in self.doubts()]
        lines = [textwrap.fill(text, WIDTH, subsequent_indent="  ") for text in said]
        return [*(textwrap.fill(text, WIDTH) for text in first), "", grid, "", *lines]

    def data(self) -> dict[str, Any]:
        """Return the same for programs."""
        return {
            "model": self.model.name,
            "chip": self.chip.key,
            "peak": {"value": self.peak.value, "dtype": self.dtype, "sparse": self.peak.sparse},
            "tokens/s a chip": self.rate,
            "FLOPs a token": self.counts,
            "recomputed FLOPs a token": self.recomputed,
            "MFU": self.mfu,
            "HFU": self.hfu,
            "published": {**self.like._asdict(), "runs": [run._asdict() for run in self.like.runs]},
            "faults": [*self.faults()],
            "doubts": [*self.doubts()],
        }


def _share(part: float) -> str:
    return f"{significant(100 * part)}%"


def _tera(rate: Any) -> str:
    return f"{significant(float(rate) / 1e12, 4)} TFLOP/s"


def mfu(
    model: Any,
    chip: Any,
    tokens_per_second: float,
    *,
    chips: int = 1,
    seq: int | None = None,
    dtype: Any = None,
    recompute: str = "none",
) -> Utilization:
    """Return a training run's MFU: the model's FLOP/s over the dense peak of its chips.

    Parameters
    ----------
    model
        As `roofline.model` takes it: a name, or a ``config.json``.
    chip
        As `roofline_helpers.chip` takes it: also as JAX, PyTorch or nvidia-smi print it.
    tokens_per_second : float
        Of all `chips` together.
    chips : int
        How many they are.
    seq : int, optional
        Tokens of a sequence: without it attention isn't counted.
    dtype : str or data type, optional
        Of the weights' matmuls; by default the chip's 16 bits.
    recompute : {"none", "attention", "full"}
        What the backward pass computes again.

    Raises
    ------
    UnknownName, BadValue, BadType
        No such model, chip, type or way to recompute; not positive numbers.

    Examples
    --------
    >>> f"{mfu('llama-3-70b', 'h200', 256 * 1056, chips=256, seq=8192).mfu:.0%}"
    '48%'
    """
    device = chip_of(chip)
    name = device.half if dtype is None else computed_as(dtype) and dtype
    run = Utilization(
        model=model_of(model),
        chip=device,
        dtype=str(name),
        rate=single("tokens_per_second", tokens_per_second) / whole("chips", chips),
        seq=None if seq is None else whole("seq", seq),
        recompute=name_of("recompute", recompute, RECOMPUTE),
        others=namesakes(chip),
    )
    assert run.peak  # a chip without that type is refused
    return run
