"""What a number is judged by: the margin of a right one, the likely mistakes of a wrong one.

The page's script judges (`assets/core.js`): `element` gives it these texts, `questions` the margin.
"""

from __future__ import annotations

import math

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
"""The likely mistake of a wrong answer, if its ratio to the solution (for "percent", if the unit is
"%"), or its product with it, is between two numbers. The first match counts."""

TOO_LARGE = "Too large. Write down each input with its unit, and go through them once more."
TOO_SMALL = "Too small. Write down each input with its unit, and go through them once more."


def slack(solution: float, tolerance: float = 0.02, digits: int = 3) -> float:
    """Return the largest error of a right answer.

    It is the tolerance, or half a unit of the last printed digit of the solution, whichever is
    larger: a page that prints 15 accepts 15.

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
