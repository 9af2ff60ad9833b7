"""What the pages' reader of HLO text (assets/hlo.js) knows from Python, which has it once."""

from __future__ import annotations

from typing import Any

from roofline_helpers.hlo import opcodes
from roofline_helpers.hlo.flops import REAL
from roofline_helpers.hlo.shapes import BITS, SPACES


def tables() -> dict[str, Any]:
    """Return the sets of opcodes, the bits of types and the memory spaces, as data for JSON.

    Examples
    --------
    >>> sorted(tables())
    ['bits', 'sets', 'spaces']
    """
    sets = {
        "transcendental": opcodes.TRANSCENDENTAL,
        "arithmetic": opcodes.ARITHMETIC,
        "moving": opcodes.MOVING,
        "free": opcodes.FREE,
        "collectives": opcodes.COLLECTIVES,
        "free_calls": opcodes.FREE_CALLS,
        "applying": opcodes.APPLYING,
        "products": opcodes.PRODUCTS,
        "views": opcodes.VIEWS,
        "slices": opcodes.SLICES,
        "updates": opcodes.UPDATES,
        "real": REAL,
    }
    return {
        "sets": {name: " ".join(sorted(members)) for name, members in sets.items()},
        "bits": dict(BITS),
        "spaces": {name: dict(SPACES[name]) for name in ("tpu", "gpu")},
    }
