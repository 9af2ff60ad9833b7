"""Errors of predictions by kind, and ranges, from recipes that were left out.

A recipe is one chip, model and type: the median of its rows counts, so a sweep over slice sizes
counts once. A factor is the median ratio of published to predicted time of *other* recipes: a
recipe is never judged by a factor fitted to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from roofline_helpers.chips import chip as chip_of

if TYPE_CHECKING:
    import pandas


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


def spread(known: pandas.Series, chip: str) -> tuple[float, float]:
    """Return two factors of a prediction between which eight of ten published times lie.

    Of the recipes of this kind of chip, GPUs or TPUs, the lowest and the highest tenth are cut off
    (positions over n + 1, to predict one more recipe). A factor of the chip's own would shift the
    range: the next release of software is faster. The prediction lies in its own range.

    Examples
    --------
    >>> from roofline.validation import scoreboard
    >>> board = scoreboard(law=True)
    >>> low, high = spread(ratios(board[board.kind == "dense"]), "v5e")
    >>> low < 1 < high < 1.6
    True
    """
    kinds = [chip_of(name).kind for name in known.index.get_level_values(0)]
    alike = known[[kind == chip_of(chip).kind for kind in kinds]]
    low, high = np.quantile(alike, (0.1, 0.9), method="weibull")
    return min(1.0, float(low)), max(1.0, float(high))


def by_kind(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the errors of each kind of row, one line a kind, beside those of the rule of thumb.

    "in range" is the share of rows that lie in their range, as the column "inside" says. "skill" is
    whether the model as it is beats the rule of thumb with one factor per chip, from the
    chip's other recipes.

    Parameters
    ----------
    rows : DataFrame
        With columns "what" (the kind), chip, model, type, date, inside, "published s", "predicted
        s" and "rule of thumb s": seconds, or another quantity.

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
            "in range": own.inside.mean(),
            "rule of thumb": rule.abs().median(),
            "with one factor per chip": corrected,
            "skill": bool(error.abs().median() < corrected),
        }
    return pandas.DataFrame.from_dict(lines, orient="index")
