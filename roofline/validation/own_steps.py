"""Predictions of a reader's own steps, from a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline import serving
from roofline.network import topology
from roofline.serving import Readers, ServingStep
from roofline.serving.service import SPREAD, Range, ranges, unlike, widened
from roofline.serving.setting import TYPES
from roofline.validation.board import training_range
from roofline.validation.loads import bound
from roofline.validation.published_steps import (
    SERVING,
    SETTING,
    PublishedDecode,
    PublishedStep,
    decoder_of,
    published_decode,
    published_training,
)
from roofline_helpers.common.checks import BadValue, RooflineError, mapping, name_of, single
from roofline_helpers.common.show import si
from roofline_helpers.models import FLAGS, PARTS
from roofline_helpers.models.decoder import WIDTHS

if TYPE_CHECKING:
    import pandas

NEEDED = {
    "training": ("chip", "shape", "model", "batch", "seq", "mesh"),
    "decode": ("chip", "shape", "model", "batch", "context"),
    "load": ("chip", "shape", "model", "concurrency", "inputs", "outputs"),
}
LOADED = (
    *("workers", "readers", "budget", "polled", "cached", "rounds", "draft", "draft_tokens"),
    *("acceptance", "reserve", "mesh", "expert_widths", "vocabulary", *TYPES),
)
"""Further arguments of `serving.load`."""

ALLOWED = {
    "training": (
        *NEEDED["training"],
        *SETTING,
        *("id", "slices", "widths", "count", "seconds", "tflops", "tokens"),
    ),
    "decode": (*NEEDED["decode"], *SERVING, *("id", "widths", "seconds")),
    "load": (*NEEDED["load"], *LOADED, *("id", "widths", "seconds", "first")),
}
COLUMNS = (
    *("row", "bound s", "predicted s", "by", "low s", "high s", "measured s", "error"),
    *("tokens/s a chip", "types", "refused"),
)


def predict(path: str | Path) -> pandas.DataFrame:
    """Return the predictions for the steps in a file: one row each.

    A file is TOML, with blocks ``[[row]]`` as in `data/published`: "chip", "shape" (number of GPUs,
    or a slice such as 4x4), "model" (a name, the path of a configuration from the file's folder, or
    beside it "widths", a table of what `Decoder` takes) and "batch". A training step also has "seq"
    and "mesh", and may have other arguments of `training.step`; a serving step has "context", is
    tensor-parallel over all chips unless "mesh" says otherwise, and may have "phase" and the types
    of `serving.step`. A load has "concurrency", "inputs" and "outputs" instead, and may have other
    arguments of `serving.load`: it gives two rows, the time per token and that to the first. Its
    "readers", a table, are workers that read prompts: "count", and where they differ "shape" and
    "mesh"; "rate", byte/s of a chip between workers. A measurement may follow: "seconds" of a step
    or of a token, "first" of the first one, or "tokens" (per second) or "tflops" of a chip.

    Columns: "bound s", "predicted s", "by" (laws of measured kernels, or the roof at reached
    ceilings), "low s" and "high s", the range of eight of ten published steps of that kind,
    "measured s" and "error"; "tokens/s a chip" of a load; "types" are those that were counted, and
    what doesn't fit into the memory; "refused" says why a row can't be predicted.

    Raises
    ------
    RooflineError
        A file of another kind, or without a row.

    Examples
    --------
    >>> predict("steps.toml")  # doctest: +SKIP
    """
    import pandas

    predictions: list[dict[str, Any]] = []
    seen: set[Any] = set()
    for number, row in enumerate(_read(Path(path)), start=1):
        named = {"id": f"row {number}", **row}
        try:
            if named["id"] in seen:
                named["id"] = f"row {number}"
                raise BadValue(f"id {row['id']!r} is that of an earlier row")
            seen.add(named["id"])
            for key in {"model", "draft"} & row.keys():
                named[key] = _beside(Path(path).parent, row[key])
            loaded = "concurrency" in row
            predictions += _load(named) if loaded else [_predicted(_step(named))]
        except (RooflineError, TypeError) as error:
            predictions.append({"row": named["id"], "refused": f"row {number}: {error}"})
    if not predictions:
        raise BadValue(f"{path} has no row: blocks [[row]]")
    return pandas.DataFrame(predictions, columns=COLUMNS).set_index("row")


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{path} is not TOML: {error}") from None
    name_of("table of a file of steps", next(iter({*data} - {"row"}), "row"), ["row"])
    rows = data.get("row", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadValue(f"{path} has a row that isn't a block [[row]]")
    return rows


def _beside(folder: Path, model: Any) -> Any:
    """Return a model as given, but the path of a configuration from the file's folder."""
    if isinstance(model, str) and (folder / model).exists():
        return str(folder / model)
    return model


def _step(row: Mapping[str, Any]) -> PublishedStep | PublishedDecode:
    kind = "decode" if "context" in row and "seq" not in row else "training"
    _check(kind, row)
    source = {"title": ""}
    if kind == "decode":
        return published_decode(source, {"seconds": None, "mean": None, **row})
    return published_training(source, {"count": "halved", **row})


def _check(kind: str, row: Mapping[str, Any]) -> None:
    """Raise for a field that a row of that kind doesn't take, or lacks."""
    for name in row:
        name_of(f"field of a {kind} step", name, ALLOWED[kind])
    missing = [name for name in NEEDED[kind] if name not in row]
    if missing:
        other = "" if "seq" in row or kind != "training" else "; context is a decode step's, "
        other += "concurrency a load's" if other else ""
        raise BadValue(
            f"{', '.join(missing)} missing: a {kind} step needs {', '.join(NEEDED[kind])}{other}"
        )
    if "widths" in row:
        _check_widths(row["widths"])


def _load(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the predictions of a service under load: of a token, and of the first."""
    _check("load", row)
    asked = {name: row[name] for name in (*LOADED, *NEEDED["load"][3:]) if name in row}
    if "readers" in row:
        readers = dict(mapping("readers", row["readers"]))
        for name in readers:
            name_of("field of readers", name, ("count", "shape", "mesh", "rate"))
        if "shape" in readers:
            readers["hardware"] = topology(row["chip"], readers.pop("shape"), ceilings="reached")
        asked["readers"] = Readers(**readers)
    place = topology(row["chip"], row["shape"], ceilings="reached")
    asked.setdefault("mesh", {"tensor": place.members})
    load = serving.load(decoder_of(row), place, **asked)
    decode, reading = load.worker.decode, (load.readers or load.worker).decode
    token, first, _ = ranges(load).values()
    prompt = reading.but(phase="prefill", context=load.worker.inputs)
    lines = [
        _line(
            row["id"], None if "draft" in row else bound(decode), token, decode, row.get("seconds")
        ),
        _line(
            f"{row['id']}, first token",
            None if "cached" in row else bound(prompt),
            first,
            decode,
            row.get("first"),
        ),
    ]
    return [{**line, "tokens/s a chip": load.per_chip} for line in lines]


def _line(row: str, bound: float | None, own: Range, step: Any, measured: Any) -> dict[str, Any]:
    """Return the columns of one prediction."""
    if measured is not None:
        measured = single("what was measured", measured)
    need, room = (si(n, "B") for n in (step.memory.total, step.memory.capacity))
    return {
        "row": row,
        "bound s": bound,
        "predicted s": own.best,
        "by": "laws" if step.has_laws else "roof",
        "low s": own.low,
        "high s": own.high,
        "measured s": measured,
        "error": own.best / measured - 1 if measured and own.best else None,
        "types": step.types if step.fits else f"{step.types}; doesn't fit: {need} of {room}",
    }


def _check_widths(widths: Any) -> None:
    """Raise for a width, a flag or a part of a model that `Decoder` doesn't take or needs."""
    given = mapping("widths", widths)
    for name in given:
        name_of("width or setting of a model", name, (*WIDTHS, *FLAGS, *PARTS))
    missing = [name for name in WIDTHS if name not in given]
    if missing:
        raise BadValue(f"widths: {', '.join(missing)} missing")
    for part in PARTS.keys() & given.keys():
        for name in mapping(part, given[part]):
            name_of(f"setting of {part}", name, [field.name for field in fields(PARTS[part])])


def _predicted(step: PublishedStep | PublishedDecode) -> dict[str, Any]:
    by_law, seconds = step.by_law, step.by_law.seconds
    low, high = None, None
    if unlike(step.model):
        pass  # no such step was compared
    elif isinstance(step, PublishedStep):
        low, high = training_range(step.kind, step.topology.chip.key)
    elif isinstance(by_law, ServingStep) and by_law.setting.phase == "decode" and by_law.has_laws:
        low, high = SPREAD[step.kind, False, "time per token"]
        low, high = low / widened(by_law), high * widened(by_law)
    measured = step.seconds if isinstance(step, PublishedDecode) or step.printed else None
    ends: Any = [factor and factor * seconds for factor in (low, high)]  # or None
    own = Range(ends[0], seconds, ends[1])
    return _line(step.key, step.published.least_seconds, own, by_law, measured)
