"""Samples as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from roofline_helpers.measure.sample import CEILINGS, Sample
from roofline_helpers.roofline import Roofline
from roofline_helpers.show import si, table

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


def listed(samples: Iterable[Sample]) -> pandas.DataFrame:
    """Return samples as a table for reading."""
    samples = list(samples)
    between = any(each.network for each in samples)
    return table(_row(each, between) for each in samples)


def _row(sample: Sample, between: bool) -> dict[str, Any]:
    """Return a sample's cells; `between` devices, with what crosses the links in place of bytes."""
    measured = bool(sample.passes)
    sent = sample.link_bandwidth / 1e9 if measured and sample.network else None
    memory = sample.bandwidth / 1e9 if measured else None
    return {
        "": sample.name if sample.source == "jax" else f"{sample.name} ({sample.source})",
        "type": sample.dtype,
        "time": si(sample.seconds, "s") if measured else None,
        **({"link GB/s": sent} if between else {"GB/s": memory}),
        "GFLOP/s": sample.rate / 1e9 if measured and sample.flops else None,
        **({} if between else {"FLOP/byte": sample.intensity}),
        "note": ", ".join(
            dict.fromkeys(
                note.removeprefix("unstable: ").removeprefix("drifting: ")
                for note in [*([sample.error] if sample.error else []), *sample.remarks]
            )
        ),
    }


def kernels_of(samples: Iterable[Sample], dtype: str) -> dict[str, Sample]:
    """Return the samples of a data type that are no ceilings and can be placed, by name."""
    return {
        each.name: each
        for each in samples
        if each.group not in CEILINGS and each.dtype == dtype and each.passes and each.flops
    }


def draw(roof: Roofline, kernels: dict[str, Sample], dtype: str, ax: Axes | None = None) -> Axes:
    """Draw a measured roofline, and the kernels of its data type where they were measured."""
    from roofline_helpers import plot

    suffix = f" {dtype}"  # the roof's name says it for all
    points = {name.removesuffix(suffix): each.intensity for name, each in kernels.items()}
    achieved = {name.removesuffix(suffix): each.rate for name, each in kernels.items()}
    return plot.roofline(roof, points, achieved=achieved, ax=ax)


def add_other(
    ax: Axes, label: str, roof: Roofline, samples: Sequence[Sample], kernels: dict[str, Sample]
) -> None:
    """Add another record to such a picture: its roof dashed, its samples of `kernels` as crosses.

    The axes keep their limits.
    """
    from roofline_helpers import plot

    grey = {"color": plot.PALETTE["muted"], "zorder": 2}
    low, high = ax.get_xlim()
    across = [low, *([roof.ridge] if low < roof.ridge < high else []), high]
    heights = [roof.attainable(x) for x in across]
    ax.plot(across, heights, ls="--", label=label, gid="beside:roof", **grey)
    spots = [
        (each.intensity, each.rate)
        for each in samples
        if each.name in kernels and each.source == kernels[each.name].source and each.passes
    ]
    if spots:
        ax.plot(*zip(*spots, strict=True), "x", gid="beside:kernels", **grey)
    ax.set(xlim=(low, high))
    ax.legend(loc="lower right", fontsize="small")
