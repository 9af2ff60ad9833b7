"""Errors and argument checks that every other module shares.

Each error says what was given, what is allowed and, for names, the nearest match.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Number: TypeAlias = "int | float | Array"

LARGEST_SIZE = 10**18
"""No tensor dimension above this is believed."""

LARGEST = 1e60
"""No quantity above this, or below its inverse, is believed: ratios of two stay finite."""


class RooflineError(Exception):
    """The parent of every error that this package raises on purpose."""


class BadValue(RooflineError, ValueError):
    """A number outside what the quantity can be."""


class BadType(RooflineError, TypeError):
    """Something that is not a number, or not a name, where one is needed."""


class UnknownName(RooflineError, KeyError):
    """A chip, data type, level or tensor that does not exist here."""

    def __str__(self) -> str:
        return str(self.args[0])


def quantity(name: str, given: Any, *, zero: bool = False) -> Number:
    """Return `given` as a positive finite number or float64 array.

    Parameters
    ----------
    name : str
        What the number is, for the error.
    given : int, float or array-like of them
        The number or numbers. Booleans, strings and complex numbers are refused. Integers stay
        exact at any size; arrays become float64.
    zero : bool
        Whether zero is allowed too.

    Raises
    ------
    BadType
        Not a number.
    BadValue
        Negative, NaN, infinite, outside 1e-60 to 1e60, or zero where it is not allowed.
    """
    value = _number(name, given)
    in_range = (value >= 1 / LARGEST) & (value <= LARGEST)  # exact for Python's integers
    if not np.all(in_range | ((value == 0) & zero)):
        wanted = "zero or a positive" if zero else "a positive"
        raise BadValue(f"{name} must be {wanted} finite number (1e-60 to 1e60), got {shown(given)}")
    return value


def single(name: str, given: Any, *, zero: bool = False) -> float:
    """Return `given` as one `quantity`; raise as it does, for arrays too."""
    value = quantity(name, given, zero=zero)
    if isinstance(value, np.ndarray):
        raise BadType(f"{name} must be one number, got an array of {value.size}")
    return float(value)


def real(name: str, given: Any) -> float:
    """Return any real number, or what turns into one: negative, NaN and infinite ones show too."""
    refused = isinstance(given, bool | np.bool_) or np.iscomplexobj(given) or np.ndim(given) > 0
    if refused or not hasattr(given, "__float__"):
        raise BadType(f"{name} must be a real number, got {shown(given)}")
    try:
        return float(given)
    except OverflowError:
        raise BadValue(f"{name} must be at most 1e308, got {shown(given)}") from None


def finite(name: str, given: Any) -> float:
    """Return `given` as one finite real number; raise BadType or BadValue for anything else."""
    value = real(name, given)
    if not math.isfinite(value):
        raise BadValue(f"{name} must be a finite number, got {shown(given)}")
    return value


def size(name: str, given: Any, largest: float = LARGEST_SIZE) -> Number:
    """Return `given` as a whole number from 1 to `largest` (10¹⁸), or a float64 array of them.

    Raises
    ------
    BadType
        Not a number.
    BadValue
        Negative, zero, NaN, infinite, not whole, or too large.
    """
    value = _number(name, given)
    in_range = (value >= 1) & (value <= largest)
    if not np.all(in_range) or not np.all(np.equal(np.floor(value), value)):
        raise BadValue(f"{name} must be a whole number from 1 to {largest:.0e}, got {shown(given)}")
    return int(value) if isinstance(value, float) else value


def whole(name: str, given: Any, largest: float = LARGEST_SIZE) -> int:
    """Return `given` as one whole number from 1 to `largest`; raise as `size`, for arrays too."""
    value = size(name, given, largest)
    if not isinstance(value, int):
        raise BadType(f"{name} must be one whole number, got {shown(given)}")
    return value


def sizes(**given: Any) -> list[Number]:
    """Return each `size`, after checking that their shapes fit together."""
    checked = {name: size(name, value) for name, value in given.items()}
    fitting(checked.items())
    return list(checked.values())


def fitting(named: Iterable[tuple[str, Any]]) -> None:
    """Raise BadValue unless the shapes of all these numbers broadcast to one."""
    shapes = [(name, np.shape(value)) for name, value in named]
    try:
        np.broadcast_shapes(*(shape for _, shape in shapes))
    except ValueError:
        arrays = ", ".join(f"{name} {shape}" for name, shape in shapes if shape)
        raise BadValue(f"arrays must have shapes that broadcast to one, got {arrays}") from None


def flag(name: str, given: Any) -> bool:
    """Return `given` as a bool; raise BadType for anything else."""
    if not isinstance(given, bool | np.bool_):
        raise BadType(f"{name} must be True or False, got {shown(given)}")
    return bool(given)


def text(name: str, given: Any) -> str:
    """Return `given` if it is a string; raise BadType for anything else."""
    if not isinstance(given, str):
        raise BadType(f"{name} must be a name (str), got {shown(given)}")
    return given


def mapping(name: str, given: Any) -> Mapping[str, Any]:
    """Return `given` if it is a mapping from strings; raise BadType for anything else."""
    if not isinstance(given, Mapping):
        raise BadType(f"{name} must be a mapping of names, got {shown(given)}")
    for each_key in given:
        text(f"a name in {name}", each_key)
    return given


def name_of(
    kind: str, given: Any, allowed: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str:
    """Return the member of `allowed` that `given` spells, ignoring case, space, '-' and '_'.

    An exact match goes first.

    Parameters
    ----------
    kind : str
        What the name names, for the error.
    given : str
        The name to look up.
    allowed : iterable of str
        The names there are.
    aliases : mapping of str to str, optional
        Other spellings and the allowed name that each stands for.

    Raises
    ------
    BadType
        `given` is not a string.
    UnknownName
        No such member: the message lists all and the nearest. Several, none of them exactly.
    """
    names = list(allowed)
    if isinstance(given, str) and given in names:
        return given
    options = f"Allowed: {', '.join(names) or '(none)'}"
    if not isinstance(given, str):
        raise BadType(f"{kind} must be a name (str), got {shown(given)}. {options}")
    meant = {key(alias): name for alias, name in (aliases or {}).items()}
    meant |= {key(name): name for name in names}
    same = [name for name in dict.fromkeys(names) if key(name) == key(given)]
    if len(same) > 1:
        raise UnknownName(f"{kind} {shown(given)} may be any of {', '.join(same)}: spell it out")
    if key(given) in meant:
        return meant[key(given)]
    near = difflib.get_close_matches(key(given), meant, n=1, cutoff=0.5)
    hint = f" Nearest: {meant[near[0]]!r}." if near else ""
    raise UnknownName(f"unknown {kind} {shown(given)}.{hint} {options}")


def key(name: str) -> str:
    """Return the spelling under which names are compared."""
    return re.sub(r"[\s_-]+", "", name.casefold())


def folded(name: str, given: Any) -> dict[str, Any]:
    """Return a mapping with its names as `key` spells them; raise where two of them are one."""
    found = {key(each): value for each, value in mapping(name, given).items()}
    if len(found) < len(given):
        raise BadValue(f"{name} must name each once (in any spelling), got {', '.join(given)}")
    return found


def plain(value: Number) -> Any:
    """Return a zero-dimensional result as a Python number, an array as it is."""
    return value.item() if isinstance(value, np.generic) else value


def each(function: Callable[..., Any], *values: Number) -> Number:
    """Apply `function` to exact integers, or elementwise where any argument is an array."""
    if any(isinstance(value, np.ndarray) for value in values):
        return np.asarray(np.vectorize(function, otypes=[np.float64])(*values))
    return plain(function(*values))  # type: ignore[no-any-return]


def shown(given: Any) -> str:
    """Return what was given, and its type, short enough for a message."""
    if isinstance(given, int) and abs(given) >= 10**40:
        digits = math.floor(math.log10(abs(given)))
        return f"an integer of about {'-' if given < 0 else ''}10**{digits}"
    try:
        text = repr(given)
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = "something too long to print"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(given).__name__})"


def _number(name: str, given: Any) -> Number:
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return int(given)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):  # rows of unequal length, or an object that refuses
        array = np.empty(0)
    if array.dtype.kind not in "iuf" or array.size == 0 or _has_bool(given):
        raise BadType(f"{name} must be a number or an array of numbers, got {shown(given)}")
    with np.errstate(over="ignore"):  # a wider float than ours becomes infinite: refused later
        numbers = array.astype(np.float64)
    return numbers if numbers.ndim else float(numbers)


def _has_bool(given: Any) -> bool:
    """Tell whether a list holds a bool, which NumPy would silently count as 0 or 1."""
    members = np.asarray(given, dtype=object).flat if isinstance(given, list | tuple) else ()
    return any(isinstance(member, bool | np.bool_) for member in members)
