"""Errors of predictions on recipes that were left out, compared with simpler predictions.

A recipe is one chip, model and type: the median of its rows counts, so a sweep over slice sizes
counts once. A factor is the median ratio of published to predicted time of *other* recipes: a
recipe is never judged by a factor fitted to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas

PREDICTIONS = {
    "the model": "law s",
    "the model without laws": "reached s",
    "the bound": "bound s",
    "the envelope": "rule of thumb s",
}


def ratios(board: pandas.DataFrame, column: str = "predicted s") -> pandas.Series:
    """Return published over predicted seconds, one number a recipe.

    Parameters
    ----------
    board : DataFrame
        Rows of `scoreboard`.
    column : str
        The column of predicted seconds.

    Examples
    --------
    >>> from roofline.validation import scoreboard
    >>> bool(ratios(scoreboard())["h200", "Llama 3 70B", "bf16"] > 1)
    True
    """
    over = board["published s"] / board[column]
    return over.groupby([board.chip, board.model, board.type]).median()


def factor(known: pandas.Series, chip: str | None = None) -> float:
    """Return the median ratio of a chip's recipes, or of all recipes if it has none.

    Examples
    --------
    >>> from roofline.validation import scoreboard
    >>> known = ratios(scoreboard())
    >>> factor(known, "v6e") > factor(known, "v5p"), factor(known) == factor(known, "no chip")
    (True, True)
    """
    own = known[known.index.get_level_values(0) == chip]
    return float((own if len(own) else known).quantile())  # of no recipe: NaN, without a warning


def skill(board: pandas.DataFrame) -> pandas.DataFrame:
    """Return the errors of `PREDICTIONS` on recipes that were left out.

    Columns are pairs of a correction ("as it is", "one factor", "one factor per chip") and "median"
    or "nine in ten", the error that this share of recipes stays within.

    Parameters
    ----------
    board : DataFrame
        Rows of `scoreboard`, with its predictions by laws as "law s" and without as "reached s".

    Examples
    --------
    >>> from roofline.validation import scoreboard
    >>> both = scoreboard().rename(columns={"predicted s": "reached s"})
    >>> both["law s"] = scoreboard(law=True)["predicted s"]
    >>> errors = skill(both[both.kind == "dense"])["as it is", "median"]
    >>> bool(errors["the model"] < errors["the envelope"])
    True
    """
    import pandas

    rows = {}
    for title, column in PREDICTIONS.items():
        known = ratios(board, column)
        others = {recipe: known.drop(recipe) for recipe in known.index}
        corrections = {
            "as it is": [1.0 for _ in known],
            "one factor": [factor(rest) for rest in others.values()],
            "one factor per chip": [factor(rest, recipe[0]) for recipe, rest in others.items()],
        }
        errors = {name: (factors / known - 1).abs() for name, factors in corrections.items()}
        rows[title] = {
            (name, share): error.quantile(q)
            for name, error in errors.items()
            for share, q in (("median", 0.5), ("nine in ten", 0.9))
        }
    return pandas.DataFrame(rows).T


def spread(known: pandas.Series, chip: str) -> tuple[float, float]:
    """Return two factors of a prediction between which eight of ten published times lie.

    Each recipe's ratio is divided by its chip's factor without it. The lowest and the highest tenth
    are cut off (positions over n + 1, to predict one more recipe), and multiplied by the chip's
    factor.

    Examples
    --------
    >>> from roofline.validation import scoreboard
    >>> board = scoreboard(law=True)
    >>> low, high = spread(ratios(board[board.kind == "dense"]), "v5e")
    >>> low < 1 < high < 1.5
    True
    """
    apart = [known[recipe] / factor(known.drop(recipe), recipe[0]) for recipe in known.index]
    low, high = np.quantile(apart, (0.1, 0.9), method="weibull") * factor(known, chip)
    return float(low), float(high)


def by_kind(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the errors of each kind of row, one line a kind, beside those of the rule of thumb.

    "skill" is whether the model as it is beats the rule of thumb with one factor per chip, from the
    chip's other recipes.

    Parameters
    ----------
    rows : DataFrame
        With columns "what" (the kind), chip, model, type, date, "published s", "predicted s" and
        "rule of thumb s": seconds, or another quantity.

    Examples
    --------
    >>> from roofline.validation import kinds
    >>> bool(kinds(every=30).loc["time per token, dense", "skill"])
    True
    """
    import pandas

    lines = {}
    for what, own in rows.groupby("what", sort=False):
        published = own["published s"]
        error, rule = (own[f"{name} s"] / published - 1 for name in ("predicted", "rule of thumb"))
        known = ratios(own, "rule of thumb s")
        factors = {recipe: factor(known.drop(recipe), recipe[0]) for recipe in known.index}
        each = pandas.Series(zip(own.chip, own.model, own.type, strict=True), own.index)
        corrected = ((rule + 1) * each.map(factors) - 1).abs().quantile()
        lines[what] = {
            "rows": len(own),
            "from": own.date[own.date != ""].min(),
            "to": own.date.max(),
            "median error": error.abs().median(),
            "signed": error.median(),
            "within 25%": (error.abs() <= 0.25).mean(),
            "rule of thumb": rule.abs().median(),
            "with one factor per chip": corrected,
            "skill": bool(error.abs().median() < corrected),
        }
    return pandas.DataFrame.from_dict(lines, orient="index")
