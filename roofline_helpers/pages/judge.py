"""Is a reader's number right, and if not, what has probably gone wrong?

One rule for notebooks (`check`), for questions without JavaScript, and for those with it: the
script takes `SLIPS` and `UPSIDE_DOWN` from here.

>>> check(240, 240.5, "FLOP/byte"), check(120, 240.5, "FLOP/byte")
(Right: 240 FLOP/byte., Not yet. Half of it: a multiply-add counts two FLOPs, bf16 has two bytes.)
>>> check(None, 240.5, "FLOP/byte")
The solution is 240 FLOP/byte.
"""

from __future__ import annotations

import math
from typing import Any

from roofline_helpers.common.checks import BadValue, finite, quantity, real, shown, whole
from roofline_helpers.common.show import Text, significant

_PREFIX = "look at the unit prefixes (kilo, mega, giga, tera)."
_BYTES = "look at the bytes of an element: 4 in fp32, 2 in bf16, 1 in fp8 and int8."

_FACTORS: tuple[tuple[float, str], ...] = (
    (2, "Twice as much: is something counted twice, or an element's size half of what you took?"),
    (1 / 2, "Half of it: a multiply-add counts two FLOPs, bf16 has two bytes."),
    (4, f"Four times as much: {_BYTES}"),
    (1 / 4, f"A quarter of it: {_BYTES}"),
    (8, "Eight times as much: bits where bytes are meant?"),
    (1 / 8, "An eighth of it: bytes where bits are meant, or divided by 8 once too often?"),
    (1e3, f"A thousand times as much: {_PREFIX}"),
    (1e-3, f"A thousandth of it: {_PREFIX}"),
    (1e6, f"A million times as much: {_PREFIX}"),
    (1e-6, f"A millionth of it: {_PREFIX}"),
    (1e9, f"A billion times as much: {_PREFIX}"),
    (1e-9, f"A billionth of it: {_PREFIX}"),
)
_NEAR = 0.03

SLIPS: tuple[tuple[str, float, float, str], ...] = (
    ("ratio", 0.9, 1.1, "Close: is an input rounded too far, or a small term left out?"),
    ("product", 1 - _NEAR, 1 + _NEAR, "Upside down: you divided the other way round."),
    *(("ratio", at * (1 - _NEAR), at * (1 + _NEAR), words) for at, words in _FACTORS),
    ("percent", (1 - _NEAR) / 100, (1 + _NEAR) / 100, "A share of 1? Percent are asked for."),
)
"""What a wrong answer probably got wrong, if its ratio to the solution (for "percent", where the
unit is "%"), or its product with it, is from one number to another. The first that fits counts; the
script of the pages has the same list."""

TOO_LARGE = "Too large. Write down each input with its unit, and go through them once more."
TOO_SMALL = "Too small. Write down each input with its unit, and go through them once more."


def slack(solution: float, tolerance: float = 0.02, digits: int = 3) -> float:
    """Return how far from the solution an answer may be and still be right.

    The tolerance, or half a unit of the last digit in which the solution is printed, whichever is
    more: a page that prints 15 accepts 15.

    Parameters
    ----------
    solution : float
        The exact one.
    tolerance : float
        Relative.
    digits : int
        Significant digits in which it is printed.

    Examples
    --------
    >>> slack(200, tolerance=0.02)
    4.0
    """
    last = 0.0
    if solution:
        last = 10.0 ** (math.floor(math.log10(abs(solution))) + 1 - digits)
    return max(tolerance * abs(solution), last / 2)


def slip(answer: float, solution: float, unit: str = "", *, estimate: bool = False) -> str:
    """Return what a wrong answer probably got wrong: one of a closed list.

    Parameters
    ----------
    answer, solution : float
        In the same unit.
    unit : str
        "%" has a slip of its own.
    estimate : bool
        Whether only the power of ten is asked for: then it is too large or too small.

    Examples
    --------
    >>> slip(2000, 2, "FLOP/byte")
    'A thousand times as much: look at the unit prefixes (kilo, mega, giga, tera).'
    """
    if not estimate and solution:
        ratio = answer / solution
        percent = ratio if unit == "%" else math.nan
        measures = {"ratio": ratio, "product": answer * solution, "percent": percent}
        for measure, low, high, words in SLIPS:
            if low <= measures[measure] <= high:
                return words
    return TOO_LARGE if answer > solution else TOO_SMALL


def check(
    answer: Any,
    solution: Any,
    unit: str = "",
    tolerance: float = 0.02,
    smallest: float = 0.0,
    *,
    digits: int = 3,
    decades: float | None = None,
) -> Text:
    """Compare the reader's number with the solution that a cell has computed.

    Parameters
    ----------
    answer : number or None
        The reader's number; None is "not answered", and shows the solution.
    solution : number
        The computed one, in the same unit.
    unit : str
        Shown behind the numbers.
    tolerance : float
        Largest relative difference that counts as right; see `slack`.
    smallest : float
        Least number that an answer can be.
    digits : int
        Significant digits in which the solution is printed.
    decades : float, optional
        For estimates, in place of `tolerance`: largest distance in powers of ten.

    Raises
    ------
    BadType, BadValue
        An answer that is not a finite number of at least `smallest`; a solution that is not finite.

    Examples
    --------
    >>> check(15, 15.4, "%", digits=2), check(15, 15.4, "%")
    (Right: 15 %., Not yet. Close: is an input rounded too far, or a small term left out?)
    """
    exact, least = finite("the solution", solution), finite("smallest", smallest)
    digits = whole("digits", digits, 17)
    within = slack(exact, real("tolerance", quantity("tolerance", tolerance)), digits)
    correct = f"{significant(exact, digits)} {unit}".rstrip()
    if answer is None:
        return Text(f"The solution is {correct}.")
    typed = finite("your answer", answer)
    if typed < least:
        raise BadValue(f"your answer must be at least {least:g}, got {shown(answer)}")
    if decades is None:
        right = abs(typed - exact) <= within * (1 + 1e-12)
    else:
        right = typed > 0 and abs(math.log10(typed / exact)) <= decades + 1e-12
    if right:
        return Text(f"Right: {correct}.")
    return Text(f"Not yet. {slip(typed, exact, unit, estimate=decades is not None)}")
