"""Every published step and its predictions."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from roofline import evidence as files
from roofline.serving.service import DENSE, MIXTURE, SPREAD
from roofline.validation.loads import served
from roofline.validation.published_steps import (
    PublishedDecode,
    PublishedStep,
    published_decode,
    published_training,
)
from roofline.validation.rivals import by_kind, ratios, spread
from roofline_helpers.common.checks import flag, name_of

if TYPE_CHECKING:
    import pandas


@cache
def steps() -> tuple[PublishedStep | PublishedDecode, ...]:
    """Return every published step of `data/published`, of training and of decoding.

    Examples
    --------
    >>> len(steps()) > 100
    True
    """
    folder = resources.files("roofline").joinpath("data", "published")
    rows: list[PublishedStep | PublishedDecode] = []
    for path in sorted(folder.iterdir(), key=lambda file: file.name):
        if not path.name.endswith(".toml"):
            continue
        data = tomllib.loads(path.read_text("utf-8"))
        rows += [published_training(data, row) for row in data.get("row", ())]
        rows += [published_decode(data, row) for row in data.get("decode", ())]
    return tuple(rows)


def published_step(key: str) -> PublishedStep | PublishedDecode:
    """Return one published step by its key.

    Its `reached` is the step behind its prediction, with all its parts.

    Raises
    ------
    UnknownName, BadType
        No such row; the message gives the nearest. Not a name.

    Examples
    --------
    >>> published_step("v7x-64-llama-3.1-70b").chip
    'v7x'
    """
    known = {step.key: step for step in steps()}
    return known[name_of("published step", key, known)]


def worst() -> tuple[PublishedStep | PublishedDecode, ...]:
    """Return the five steps with the largest errors, the largest first.

    A recipe (same chip, model, type and kind of step) counts once, with its worst row. Predictions
    use the laws of measured kernels, if there are any.

    Examples
    --------
    >>> worst()[0].key
    'b200-8-qwen3-30b-fp8'
    """
    board = scoreboard(law=True)
    order = board.error.abs().sort_values(ascending=False).index
    recipes = board.loc[order].drop_duplicates(["chip", "model", "type", "step"])
    return tuple(published_step(key) for key in recipes.index[:5])


def scoreboard(*, law: bool = False) -> pandas.DataFrame:
    """Return every published step with its predictions: one row each.

    "bound s" is the least time at published ceilings, "predicted s" the prediction at reached
    ceilings, or with `law` by the laws of measured kernels on GPUs that have them, and "error" is
    predicted over published time, minus 1. "compiled s" is the time of XLA's own program, where one
    was compiled. "MFU" counts only unmasked pairs of attention. "rule of thumb s" is the simple
    estimate that a prediction has to beat: 6 N D FLOPs at half of the peak for training, all
    weights at half of the memory's bandwidth for decoding. "mlsysim s" is the prediction of another
    such model, with its own defaults, where it supports the split.

    Examples
    --------
    >>> "h100" in set(scoreboard()["chip"])
    True
    """
    import pandas

    return pandas.DataFrame(list(_rows(flag("law", law)))).set_index("key")


def kinds(*, every: int = 3) -> pandas.DataFrame:
    """Return the errors by kind of step and of model, of the scoreboard and of served points.

    Columns as `rivals.by_kind` says.

    Parameters
    ----------
    every : int
        As `served` takes it: every third engine by default.

    Examples
    --------
    >>> "training, dense" in kinds(every=100).index
    True
    """
    import pandas

    board, points = scoreboard(law=True), served(every)
    points = points[points.refused == ""].sort_values(["apart", "quantity", "kind"])
    apart = points.apart.map({True: ", prompts apart", False: ""})
    short = {MIXTURE: "mixtures", DENSE: DENSE}
    board = board.assign(what=board.step + ", " + board.kind.map(short))
    points = points.assign(what=points.quantity + ", " + points.kind.map(short) + apart)
    names = ("published", "predicted", "rule of thumb")
    points = points.rename(columns={name: f"{name} s" for name in names})
    board = board.assign(apart=False, quantity="time per token")
    both = pandas.concat([board, points], join="inner")
    ratio = both["published s"] / both["predicted s"]
    low, high = [], []
    for row in both.to_dict("records"):
        if row["what"].startswith("training"):  # by the other recipes, which set the range
            recipe = row["chip"], row["model"], row["type"]
            ends = training_range(row["kind"], row["chip"], recipe)
        else:
            # of prompts apart there are too few rows of dense models for a range of their own
            kind = MIXTURE if row["apart"] else row["kind"]
            ends = SPREAD[kind, row["apart"], row["quantity"]]
        low.append(ends[0])
        high.append(ends[1])
    return by_kind(both.assign(inside=ratio.between(low, high)))


@cache
def training_range(
    kind: str, chip: str, without: tuple[str, str, str] | None = None
) -> tuple[float, float]:
    """Return the factors of a training step's time for a range, from all recipes but one.

    A mixture's lower end is at most that of dense models, which are predicted better.

    Examples
    --------
    >>> low, high = training_range("dense", "h100")
    >>> low < 1 < high
    True
    """
    board = _training()
    known = ratios(board[board.kind == kind])
    low, high = spread(known.drop([without]) if without else known, chip)
    return (min(low, training_range(DENSE, chip)[0]) if kind == MIXTURE else low), high


@cache
def _training() -> pandas.DataFrame:
    board = scoreboard(law=True)
    return board[board.step == "training"]


def _rows(law: bool) -> Iterator[dict[str, Any]]:
    peer = files.load("mlsysim")["seconds"]
    for step in steps():
        predicted = (step.by_law if law else step.reached).seconds
        compiled = sum(step.compiled.values()) if step.compiled else None
        yield {
            "key": step.key,
            "chip": step.chip,
            "chips": step.topology.chips,
            "model": step.model.name,
            "step": step.task,
            "kind": step.kind,
            "type": step.dtype,
            "date": step.read,
            "published s": step.seconds,
            "bound s": step.published.least_seconds,
            "predicted s": predicted,
            "error": predicted / step.seconds - 1,
            "compiled s": compiled,
            "compiled error": compiled / step.seconds - 1 if compiled else None,
            "rule of thumb s": step.rule_of_thumb,
            "rule of thumb error": step.rule_of_thumb / step.seconds - 1,
            "mlsysim s": peer.get(step.key),
            "mlsysim error": peer[step.key] / step.seconds - 1 if step.key in peer else None,
            "MFU": step.model_flops / step.seconds / step.topology.flops(step.dtype),
            "unsaid": step.unsaid,
            "source": step.url,
        }
