"""FLOPs on one element, and on one row, of the operations that are not products of matrices."""

from __future__ import annotations

from collections.abc import Mapping

COSTS: Mapping[str, Mapping[str, int]] = {
    "add": {"add": 1},
    "relu": {"max": 1},
    "gelu": {  # the tanh form: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
        "x² and x³": 2,
        "× 0.044715": 1,
        "+ x": 1,
        "× √(2/π)": 1,
        "tanh": 1,
        "+ 1": 1,
        "× x": 1,
        "× ½": 1,
    },
    "swiglu": {"negate": 1, "exp": 1, "+ 1": 1, "divide": 1, "× the other branch": 1},
    "dropout": {"× mask": 1, "× 1/(1 − p)": 1},
    "softmax": {"max": 1, "− max": 1, "exp": 1, "sum": 1, "÷ sum": 1},
    "layernorm": {
        "sum": 1,
        "− mean": 1,
        "square": 1,
        "sum of squares": 1,
        "× 1/σ": 1,
        "× γ": 1,
        "+ β": 1,
    },
    "rmsnorm": {"square": 1, "sum of squares": 1, "× 1/rms": 1, "× γ": 1},
}
"""FLOPs of each step on one element, by operation."""

ROW_COSTS: Mapping[str, Mapping[str, int]] = {
    "layernorm": {"÷ n": 2, "+ ε": 1, "rsqrt": 1},
    "rmsnorm": {"÷ n": 1, "+ ε": 1, "rsqrt": 1},
}
"""FLOPs of the steps that a normalisation does once a row."""

TRANSCENDENTAL = frozenset({"tanh", "exp", "rsqrt"})
"""Steps of `COSTS` and `ROW_COSTS` that are transcendental."""


def per_element(op: str) -> tuple[int, int]:
    """Return the FLOPs of an operation on one element, and how many of them are transcendental."""
    return _counted(COSTS[op])


def per_row(op: str) -> tuple[int, int]:
    """Return the FLOPs of an operation once a row, and how many of them are transcendental."""
    return _counted(ROW_COSTS.get(op, {}))


def _counted(steps: Mapping[str, int]) -> tuple[int, int]:
    special = sum(flops for step, flops in steps.items() if step in TRANSCENDENTAL)
    return sum(steps.values()), special
