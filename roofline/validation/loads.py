"""Served requests that others measured, and what `serving.load` predicts of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from typing import TYPE_CHECKING, Any

from roofline import network, serving
from roofline.configurations import model
from roofline.serving.service import DENSE, MIXTURE
from roofline.serving.setting import TYPES
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common import records
from roofline_helpers.common.checks import BadValue, RooflineError, whole

if TYPE_CHECKING:
    import pandas

INFERENCEX = {"reserve": 0.1, "rounds": 10}
"""As its scripts run a benchmark: ``--gpu-memory-utilization 0.9``; ten requests of each user, all
users at once (``--num-prompts $((CONC * 10)) --request-rate inf``). SemiAnalysisAI/InferenceX,
commit 409e9a48, benchmarks/70b_fp8_h200_slurm.sh."""

DRAWN = 0.9
"""Mean share of the stated lengths that its requests have: uniform from 0.8 to 1
(utils/bench_serving/benchmark_serving.py, ``sample_random_requests``)."""

_MEASURED = frozenset({"concurrency", "first_ms", "token_ms", "doubt"})


@cache
def points() -> pandas.DataFrame:
    """Return every served point as published, also those that aren't judged.

    Columns are those of `data/published/served.csv`, which says what they mean.

    Examples
    --------
    >>> sorted(set(points().source))
    ['InferenceX', 'aiconfigurator']
    """
    import pandas

    with records.committed("roofline", "published", "served.csv").open() as file:
        return pandas.read_csv(file, comment="#", dtype={"date": str}).convert_dtypes()


@cache
def served(every: int = 1) -> pandas.DataFrame:
    """Return what is predicted of served points, as `compare` does.

    Parameters
    ----------
    every : int
        Take each so manieth engine and its points, of all: predicting all of them takes a while.

    Examples
    --------
    >>> sample = served(every=50)
    >>> sorted(set(sample.quantity))
    ['first token', 'time per token', 'tokens/s per chip']
    """
    import pandas

    engines = [group for _, group in _engines(points(), _MEASURED | {"polled"})]
    return compare(pandas.concat(engines[:: whole("every", every)]))


def compare(chosen: pandas.DataFrame) -> pandas.DataFrame:
    """Return served points beside their predictions: one row a point and quantity.

    Quantities are "time per token", "first token", and "tokens/s per chip", which follows from the
    others: requests = rate · time.

    "point" is its index in `points`. "published" and "predicted" are seconds, or tokens per second;
    "bound" is the least time of a token of one request at published ceilings; "rule of thumb" is
    the simple estimate that a prediction has to beat: all weights at half of the memory's bandwidth
    for a token, the prompt's FLOPs at half of the peak for the first. "apart" says whether other
    workers read prompts. "refused" says why a point isn't predicted, or isn't judged.

    Parameters
    ----------
    chosen : DataFrame
        Rows of `points`.

    Examples
    --------
    >>> own = compare(points().head(2))
    >>> list(own[own.quantity == "time per token"].point)
    [0, 1]
    """
    import pandas

    return pandas.DataFrame([row for _, group in _engines(chosen) for row in _predicted(group)])


def _engines(
    points: pandas.DataFrame, varied: Set[str] = _MEASURED
) -> Iterable[tuple[Any, pandas.DataFrame]]:
    """Return an engine's points together: the same setting at several concurrencies."""
    return points.groupby([name for name in points if name not in varied], dropna=False)


def _predicted(points: pandas.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of an engine's points."""
    first: dict[str, Any] = {str(k): v for k, v in points.iloc[0].dropna().items()}
    decoder = model(first["model"])
    row = {
        "chip": first["chip"],
        "model": decoder.name,
        "kind": MIXTURE if decoder.experts else DENSE,
        "type": first.get("weights", first.get("experts", "bf16")),
        "apart": "reader_tensor" in first,
        **{name: first.get(name, "") for name in ("engine", "date", "source")},
    }
    loads, least, refused = [], None, ""
    try:
        loads = _loads(first, [int(n) for n in points.concurrency])
        least = bound(loads[0].worker.decode)
    except RooflineError as error:
        refused = str(error)
    for at, (index, point) in enumerate(points.iterrows()):
        why = refused if not isinstance(point.doubt, str) else point.doubt
        own = {**row, "point": index, "concurrency": int(point.concurrency), "refused": why}
        for name, values in _compared(point, loads[at] if loads else None).items():
            published, predicted, rule = values
            unsaid = name == "first token" and point.source != "InferenceX"
            yield {
                **own,
                "quantity": name,
                "refused": why or ("how its requests arrive isn't said" if unsaid else ""),
                "published": published,
                "bound": least if name == "time per token" else None,
                "predicted": predicted,
                "rule of thumb": rule,
                "error": predicted / published - 1 if predicted else None,
            }


def _loads(point: Mapping[str, Any], concurrency: list[int]) -> list[serving.Load]:
    """Return the predictions; raise RooflineError where a point can't be said."""
    if "workers" not in point:
        raise BadValue("the numbers of workers aren't given")
    drawn = point["source"] == "InferenceX"
    shares = DRAWN if drawn else 1.0
    asked: dict[str, Any] = dict(INFERENCEX) if drawn else {}
    asked["weights"] = chip_of(point["chip"]).half  # what the record doesn't say
    asked |= {name: point[name] for name in TYPES if name in point}
    asked |= {name: int(point[name]) for name in ("expert_widths", "polled") if name in point}
    if "readers" in point:
        asked["readers"] = serving.Readers(int(point["readers"]), *_engine(point, "reader_"))
    hardware, mesh = _engine(point, "")
    return serving.curve(
        point["model"],
        hardware,
        mesh,
        concurrency=concurrency,
        inputs=round(shares * point["inputs"]),
        outputs=round(shares * point["outputs"]),
        workers=int(point["workers"]),
        **asked,
    )


def bound(step: serving.ServingStep) -> float:
    """Return the least seconds of a step at published ceilings, in the same layout and types.

    Examples
    --------
    >>> step = serving.step("llama-3-8b", network.topology("h100", 2, ceilings="reached"), law=True)
    >>> bound(step) < step.seconds
    True
    """
    s, now = step.setting, step.setting.topology
    shape: Any = now.shape if s.chip.kind == "tpu" else now.chips // now.slices
    published = network.topology(s.chip, shape, slices=now.slices)
    mesh = {role: s.size(role) for role in s.mesh}
    alike = {"reached": False, "mesh": mesh, "expert_widths": s.expert_widths}
    return step.but(hardware=published, **alike).least_seconds


def _engine(point: Mapping[str, Any], prefix: str) -> tuple[network.Topology, dict[str, int]]:
    tensor, data = (int(point[f"{prefix}{name}"]) for name in ("tensor", "data"))
    mesh = {"expert": data, "tensor": tensor} if data > 1 else {"tensor": tensor}
    return network.topology(point["chip"], tensor * data, ceilings="reached"), mesh


def _compared(
    point: pandas.Series, load: serving.Load | None
) -> dict[str, tuple[float, float | None, float | None]]:
    """Return what was published, is predicted, and would be by a rule of thumb, by quantity."""
    token, first = float(point.token_ms) / 1e3, float(point.first_ms) / 1e3
    if load is None:
        return {"time per token": (token, None, None), "first token": (first, None, None)}
    worker, more = load.worker, load.worker.outputs - 1
    step, reader = worker.decode, (load.readers or worker).decode
    chip, s = step.setting.chip, reader.setting
    by_rule = step.memory.weights / (chip.roofline(chip.half).bandwidth / 2)
    flops = 2 * s.model.active_parameters * worker.inputs
    rule_first = flops / (chip.peak(s.activations, "matrix").value / 2 * s.chips)

    def per_chip(first: float, token: float) -> float:
        rate = load.concurrency / (first + token * more)
        return rate * worker.outputs / load.chips

    return {
        "time per token": (token, load.time_per_token, by_rule),
        "first token": (first, load.first_token, rule_first),
        "tokens/s per chip": (per_chip(first, token), load.per_chip, per_chip(rule_first, by_rule)),
    }
