"""Errors and argument checks that every other module shares.

Each error says what it got, what is allowed and, for names, the nearest match.
"""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float64]"
Number: TypeAlias = "int | float | Array"

LARGEST_SIZE = 10**18
"""Tensor dimensions above this are refused: no real tensor has one."""

LARGEST = 1e60
"""Quantities above this, or below its inverse, are refused: any ratio of two stays finite."""


LONGEST_LIST = 400
"""Characters of the names that a message lists."""


class RooflineError(Exception):
    """The parent of every error that this package raises on purpose.

    Examples
    --------
    >>> issubclass(BadValue, RooflineError)
    True
    """


class BadValue(RooflineError, ValueError):
    """A number outside the range of its quantity.

    Examples
    --------
    >>> try:
    ...     size('n', -1)
    ... except BadValue as error:
    ...     print(error)
    n must be a whole number from 1 to 1e+18, got -1 (int)
    """


class BadType(RooflineError, TypeError):
    """Something that is not a number, or not a name, where one is needed.

    Examples
    --------
    >>> try:
    ...     flag('causal', 1)
    ... except BadType as error:
    ...     print(error)
    causal must be True or False, got 1 (int)
    """


class UnknownName(RooflineError, KeyError):
    """A chip, data type, level or tensor that does not exist here.

    Examples
    --------
    >>> try:
    ...     name_of('chip', 'v6f', ['v5e', 'v6e'])
    ... except UnknownName as error:
    ...     print(error)
    unknown chip 'v6f'. Nearest: 'v6e'. Allowed: v5e, v6e
    """

    def __str__(self) -> str:
        return str(self.args[0])


class NotInstalled(RooflineError, ImportError):
    """A required package is not installed: the message says how to install it."""


def needed(purpose: str, *packages: str) -> None:
    """Raise NotInstalled unless the packages that a purpose needs are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise NotInstalled(
            f"{purpose} needs {' and '.join(missing)}: pip install {' '.join(missing)}",
        )


def quantity(name: str, value: Any, *, zero: bool = False) -> Number:
    """Return `value` as a positive finite number or float64 array, or with `zero` also 0.

    Booleans, strings and complex numbers raise BadType; what is negative, NaN, infinite or outside
    1e-60 to 1e60 raises BadValue. Integers stay exact at any size.
    """
    if type(value) is int and 0 < value <= LARGEST:  # most are, and there are thousands of them
        return value
    number = _number(name, value)
    in_range = (number >= 1 / LARGEST) & (number <= LARGEST)  # exact for Python's integers
    if not all_true(in_range | ((number == 0) & zero)):
        wanted = "zero or a positive" if zero else "a positive"
        raise BadValue(f"{name} must be {wanted} finite number (1e-60 to 1e60), got {shown(value)}")
    return number


def single(name: str, value: Any, *, zero: bool = False) -> float:
    """Return `value` as one `quantity`; raise for arrays."""
    number = quantity(name, value, zero=zero)
    if not isinstance(number, int | float):
        raise BadType(f"{name} must be one number, got an array of {number.size}")
    return float(number)


def real(name: str, value: Any) -> float:
    """Return `value` as a float: any real number, negative, NaN and infinite ones included."""
    refused = isinstance(value, bool | np.bool_) or np.ndim(value) > 0
    if refused or not hasattr(value, "__float__"):
        raise BadType(f"{name} must be a real number, got {shown(value)}")
    return float(value)


def finite(name: str, value: Any) -> float:
    """Return `value` as one finite real number; raise BadType or BadValue for anything else."""
    number = real(name, value)
    if not math.isfinite(number):
        raise BadValue(f"{name} must be a finite number, got {shown(value)}")
    return number


def size(name: str, value: Any, largest: float = LARGEST_SIZE) -> Number:
    """Return `value` as a whole number from 1 to `largest` (10¹⁸), or a float64 array of them."""
    number = _number(name, value)
    in_range = (number >= 1) & (number <= largest)
    if not all_true(in_range) or not all_true(number // 1 == number):
        raise BadValue(f"{name} must be a whole number from 1 to {largest:.0e}, got {shown(value)}")
    return int(number) if isinstance(number, float) else number


def whole(name: str, value: Any, largest: float = LARGEST_SIZE) -> int:
    """Return `value` as one `size`; raise for arrays."""
    number = size(name, value, largest)
    if not isinstance(number, int):
        raise BadType(f"{name} must be one whole number, got {shown(value)}")
    return number


def sizes(**values: Any) -> dict[str, Number]:
    """Return each value as a `size`, by name; raise unless their shapes broadcast to one."""
    checked = {name: size(name, value) for name, value in values.items()}
    broadcast(checked.items())
    return checked


def broadcast(named: Iterable[tuple[str, Any]]) -> None:
    """Raise BadValue unless the shapes of all these numbers and arrays broadcast to one."""
    shapes = [(name, value.shape) for name, value in named if isinstance(value, np.ndarray)]
    if len(shapes) < 2:
        return
    try:
        np.broadcast_shapes(*(shape for _, shape in shapes))
    except ValueError:
        arrays = ", ".join(f"{name} {shape}" for name, shape in shapes)
        raise BadValue(f"arrays must have shapes that broadcast to one, got {arrays}") from None


def flag(name: str, value: Any) -> bool:
    """Return `value` as a bool; raise BadType for anything else."""
    if not isinstance(value, bool | np.bool_):
        raise BadType(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def text(name: str, value: Any) -> str:
    """Return `value` if it is a string; raise BadType for anything else."""
    if not isinstance(value, str):
        raise BadType(f"{name} must be a name (str), got {shown(value)}")
    return value


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Return `value` if it is a mapping from strings; raise BadType for anything else."""
    if not isinstance(value, dict | Mapping):  # the second check is slow
        raise BadType(f"{name} must be a mapping of names, got {shown(value)}")
    for member in value:
        text(f"a name in {name}", member)
    return value


def name_of(
    kind: str, spelling: Any, allowed: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str:
    """Return the member of `allowed` that `spelling` means, ignoring case, space, '-' and '_'.

    An exact match wins over one that only differs in these. `aliases` are other spellings, each
    with the allowed name that it means. `kind` is what is named, for the error, which lists the
    members and gives the nearest.
    """
    names = list(allowed)
    if isinstance(spelling, str) and spelling in names:
        return spelling
    options = f"Allowed: {_listed(names) or '(none)'}"
    if not isinstance(spelling, str):
        raise BadType(f"{kind} must be a name (str), got {shown(spelling)}. {options}")
    meant = {key(alias): name for alias, name in (aliases or {}).items()}
    meant |= {key(name): name for name in names}
    cut_off = spelling.strip()[:1] in ("-", "_") or spelling.strip()[-1:] in ("-", "_")
    if key(spelling) in meant and not cut_off:  # "v6e-" is a slice without its number
        return meant[key(spelling)]
    near = difflib.get_close_matches(key(spelling), meant, n=5, cutoff=0.5)
    words = _words(spelling)  # "8B" of a model says more than as many equal letters
    near.sort(key=lambda candidate: -len(words & _words(meant[candidate])))
    hint = f" Nearest: {meant[near[0]]!r}." if near else ""
    raise UnknownName(f"unknown {kind} {shown(spelling)}.{hint} {options}")


def _listed(names: list[str]) -> str:
    """Return names, so many as one reads in a message."""
    text = ", ".join(names)
    if len(text) <= LONGEST_LIST:
        return text
    kept = text[:LONGEST_LIST].rpartition(", ")[0]
    return f"{kept} and {len(names) - kept.count(', ') - 1} more"


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s_-]+", name.casefold()))


@lru_cache(4096)
def key(name: str) -> str:
    """Return a name in the form used for comparison: lower case, without space, '-' and '_'."""
    return re.sub(r"[\s_-]+", "", name.casefold())


def folded(name: str, value: Any) -> dict[str, Any]:
    """Return a mapping with its names as `key` spells them; raise where two become the same."""
    by_key = {key(spelling): member for spelling, member in mapping(name, value).items()}
    if len(by_key) < len(value):
        raise BadValue(f"{name} must name each once (in any spelling), got {', '.join(value)}")
    return by_key


def plain(value: Number) -> Any:
    """Return a zero-dimensional result as a Python number, an array as it is."""
    return value.item() if isinstance(value, np.generic) else value


def all_true(condition: Any) -> bool:
    """Return whether a condition holds everywhere; a plain bool is returned without NumPy."""
    return condition if isinstance(condition, bool) else bool(np.all(condition))


def ceil_div(a: Any, b: Any) -> Any:
    """Return ⌈a / b⌉, exactly for integers, elementwise for arrays."""
    return -(-a // b)


def shown(value: Any) -> str:
    """Return a value, short enough for a message, and its type unless it is a text in quotes."""
    text = repr(value)
    text = text if len(text) <= 80 else f"{text[:77]}..."
    return text if isinstance(value, str) else f"{text} ({type(value).__name__})"


def _number(name: str, value: Any) -> Number:
    if type(value) is int or type(value) is float:  # the slow check isn't needed
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # rows of unequal length, or an object that refuses
        array = np.empty(0)
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise BadType(f"{name} must be a number or an array of numbers, got {shown(value)}")
    numbers = array.astype(np.float64)
    return numbers if numbers.ndim else float(numbers)
