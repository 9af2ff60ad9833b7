"""A reader's own TPU, measured for the book: its ceilings, and one training step explained.

`share` measures on the device here and leaves two files: a record of some 15 kB, and a text
for an issue or a pull request. `problems` holds a record against what is published of its chip.
Records that pass are kept in ``data/readers``, for the page of chips.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from roofline import storage
from roofline.diagnosis.explain import explain
from roofline.diagnosis.explanation import Explanation
from roofline.measure.machine import on_cpu
from roofline.measure.workloads import JAX_DTYPES, Case, cases, run
from roofline_helpers.chips import Chip, Figure
from roofline_helpers.common import records
from roofline_helpers.common.checks import needed
from roofline_helpers.common.show import si, table
from roofline_helpers.measured.record import CEILINGS, Record

if TYPE_CHECKING:
    import pandas

SCHEMA = "roofline.reader/1"
"""The header of a record."""

VERSIONS = ("python", "roofline_helpers", "jax", "jaxlib", "libtpu")
"""What a record must name the version of."""

VERSION = re.compile(r"\d[\w.+-]*")


# --- The training step ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A training step of a feed-forward layer: forward, backward, and an update of the weights.

    Parameters
    ----------
    tokens, width, hidden : int
        x is tokens × width, the weights width × hidden and hidden × width.
    dtype : str
        Type of activations and weights; the loss is in fp32.

    Examples
    --------
    >>> Step(8, 16, 32, "bf16").name
    'training step 8×16×32 bf16'
    """

    tokens: int
    width: int
    hidden: int
    dtype: str

    @property
    def name(self) -> str:
        """Its name, with its sizes."""
        return f"training step {self.tokens}×{self.width}×{self.hidden} {self.dtype}"

    @property
    def flops(self) -> float:
        """FLOPs of its five matmuls: two forward, three backward (x has no gradient)."""
        return 10.0 * self.tokens * self.width * self.hidden

    def arguments(self) -> tuple[Any, ...]:
        """Return weights, x and target, random."""
        import jax

        keys = jax.random.split(jax.random.key(0), 4)
        dtype = JAX_DTYPES[self.dtype]
        up = jax.random.normal(keys[0], (self.width, self.hidden), dtype) / self.width**0.5
        down = jax.random.normal(keys[1], (self.hidden, self.width), dtype) / self.hidden**0.5
        x, target = (jax.random.normal(key, (self.tokens, self.width), dtype) for key in keys[2:])
        return (up, down), x, target

    def run(self, weights: Any, x: Any, target: Any) -> Any:
        """Return the updated weights, and the loss."""
        import jax

        def loss(weights: Any) -> Any:
            up, down = weights
            error = (jax.nn.gelu(x @ up) @ down - target).astype("float32")
            return (error**2).mean()

        value, slopes = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, slope: w - 0.01 * slope, weights, slopes), value


STEP = Step(8192, 4096, 16384, "bf16")
"""The step that is shared; a CPU, which shares none, takes a smaller one."""


# --- A record -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReaderRecord:
    """What one reader measured on one device.

    `measured` has its ceilings, `explained` the training step; `by` is who measured and `url`
    where they sent it, empty until it is kept.

    Examples
    --------
    >>> list(kept())
    []
    """

    measured: Record
    explained: Explanation
    by: str = ""
    url: str = ""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a ceiling, and one of the step: reached, and the share of the published."""
        chip, measured = self.measured.chip, self.measured
        memory = None if chip is None else chip.memory["hbm"].bandwidth
        for name, rate in measured.streams.items():
            yield _row(name, rate, "B/s", memory)
        for dtype, rate in measured.peaks.items():
            yield _row(f"matmul {dtype}", rate, "FLOP/s", _published(chip, dtype))
        if self.explained.name == STEP.name:
            rate = STEP.flops / self.explained.wall
            yield _row(STEP.name, rate, "FLOP/s", _published(chip, STEP.dtype))

    def table(self) -> pandas.DataFrame:
        """Return what was reached beside what is published."""
        return table(self.rows())

    def text(self) -> str:
        """Return a text for an issue or a pull request, in Markdown."""
        measured, why = self.measured, self.explained
        lines = [f"### {measured.name}, measured by a reader", "", "| | reached | published |"]
        lines.append("|---|---|---|")
        for row in self.rows():
            share = "" if row["share, %"] is None else f"{row['share, %']:.1f}% of "
            lines.append(f"| {row['']} | {row['reached']} | {share}{row['published'] or '–'} |")
        lines += ["", f"One call of the {why.name} takes {si(why.wall, 's')}. Longest kernels:", ""]
        for kernel in why.kernels[:5]:
            least = "" if kernel.least is None else f", {si(kernel.least, 's')} at least"
            lines.append(f"- {kernel.title}: {si(kernel.seconds, 's')}{least}")
        versions = ", ".join(f"{name} {number}" for name, number in measured.software.items())
        lines += ["", f"`{measured.command}`, {measured.date}; {versions}."]
        return "\n".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file, what was measured with six digits."""
        why = msgspec.json.decode(self.explained.to_json())
        del why["schema"]
        kept = {"by": self.by, "url": self.url, "measured": asdict(self.measured), "explained": why}
        return storage.save(path, {"schema": SCHEMA, **_short(kept)})


def _short(value: Any) -> Any:
    """Return a record's data without what is None, and with six digits of what was measured."""
    if isinstance(value, float) and not value.is_integer():
        return float(f"{value:.6g}")
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items() if item is not None}
    return value


def _row(name: str, rate: float, unit: str, published: Figure | None) -> dict[str, Any]:
    return {
        "": name,
        "reached": si(rate, unit),
        "published": None if published is None else si(published.value, unit),
        "share, %": None if published is None else 100 * rate / published.value,
    }


def _published(chip: Chip | None, dtype: str) -> Figure | None:
    """Return a published peak of matmuls; None if the table has none, or derives it."""
    figure = None if chip is None else chip.matrix.get(dtype)
    return None if figure is None or figure.basis == "derived" else figure


def load(path: str | os.PathLike[str]) -> ReaderRecord:
    """Return the record in a file.

    Raises
    ------
    BadRecord
        No such file, not a record, or one of another version: the message says what is wrong.
    """
    return records.load(path, SCHEMA, ReaderRecord)


def kept(folder: Path | None = None) -> dict[str, ReaderRecord]:
    """Return the records that the book keeps, by name."""
    folder = records.committed("roofline", "readers") if folder is None else folder
    return {name: load(file) for name, file in records.files(folder).items()}


# --- Measuring, and checking ----------------------------------------------------------------------


def share(
    path: str | os.PathLike[str] | None = None,
    *,
    chosen: Sequence[Case] | None = None,
    step: Step | None = None,
    command: str = "roofline.readers.share()",
    progress: bool = True,
) -> ReaderRecord:
    """Measure the device here for the book: about two minutes on a TPU.

    Parameters
    ----------
    path : path, optional
        The record's file; the text for an issue is written beside it, with the ending ``.md``.
    chosen, step : optional
        Other ceilings or another step than the book's: such a record has problems.
    command : str
        The command that the record names as its origin.
    progress : bool
        Whether to show a status line on a terminal.
    """
    needed("measuring", "jax")
    usual = Step(256, 512, 2048, "fp32") if on_cpu() else STEP
    step = usual if step is None else step
    ceilings = [case for case in cases(quick=True) if case.group in CEILINGS]
    measured = run(
        chosen=ceilings if chosen is None else chosen, passes=2, progress=progress, command=command
    )
    arguments = step.arguments()
    why = explain(step.run, *arguments, ceilings=measured, name=step.name, progress=progress)
    shared = ReaderRecord(measured, why)
    if path is not None:
        shared.save(path)
        storage.write(Path(path).with_suffix(".md"), shared.text())
    return shared


def problems(record: ReaderRecord) -> list[str]:
    """Return why the book can't keep a record; nothing if it can.

    What nobody can check here: that these are this chip's times, that nothing else used it, and
    its clock.
    """
    measured, why = record.measured, record.explained
    found = list(_unfit(measured, why))
    chip = measured.chip
    if chip is None or measured.device["platform"] != "tpu":
        return [f"{measured.name} is no TPU of the chip table: nothing to hold it against", *found]
    for sample in measured.samples:
        if not sample.passes:
            continue
        seconds = min(timing.median for timing in sample.passes)
        if sample.group == "memory":
            found += _beats(sample.name, sample.bytes / seconds, chip.memory["hbm"].bandwidth)
        elif sample.flops:
            # No type without a peak of its own, and no vector unit, is faster than bf16's matmuls:
            # JAX computes fp32 matmuls on a TPU from bf16 products
            peak = _published(chip, sample.dtype) if sample.matrix_flops else None
            found += _beats(sample.name, sample.flops / seconds, peak or chip.peak("bf16"))
    return [*found, *_beats(STEP.name, STEP.flops / min(why.runs), chip.peak(STEP.dtype))]


def _beats(name: str, rate: float, published: Figure | None) -> Iterator[str]:
    """Yield that a rate is above the published one, by name; nothing where none is published."""
    if published is not None and rate > published.value:
        unit = "B/s" if "byte" in published.unit else published.unit
        yield f"{name}: {si(rate, unit)} is more than the published {si(published.value, unit)}"


def _unfit(measured: Record, why: Explanation) -> Iterator[str]:
    """Yield what a record lacks, whatever its chip."""
    software = measured.software
    lacking = [name for name in VERSIONS if not VERSION.fullmatch(software.get(name, ""))]
    if lacking:
        yield f"it names no version of {', '.join(lacking)}"
    if not measured.streams:
        yield "it has no memory stream"
    if "bf16" not in measured.peaks:
        yield "it has no matmul in bf16"
    if not measured.complete:
        yield "it is incomplete"
    if why.name != STEP.name or why.origin != "measured":
        yield f"it explains {why.name}, {why.origin}; the book compares {STEP.name}, measured"
    if why.platform != measured.device["platform"]:
        yield f"its step ran on {why.device}, its ceilings are of {measured.name}"
    try:
        date = datetime.datetime.fromisoformat(measured.date)
    except ValueError:
        yield f"its date is none: {measured.date}"
    else:
        if date > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1):
            yield f"its date is still to come: {measured.date}"
