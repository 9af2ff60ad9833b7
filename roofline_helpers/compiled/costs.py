"""JAX's `cost_analysis` with loops and kernels counted: the same keys, and where it differs."""

from __future__ import annotations

from typing import Any

from roofline_helpers.compiled.analysis import analyze
from roofline_helpers.show import si

_UNITS = {
    "flops": "FLOP",
    "transcendentals": "",
    "bytes accessed": "B",
    "optimal_seconds": "s",
}


class Costs(dict[str, float]):
    """What a program costs on one device, by the keys of JAX's `cost_analysis`.

    `notes` say where it differs from what JAX says, and what isn't known.

    Examples
    --------
    >>> Costs({"flops": 2.0})["flops"]
    2.0
    """

    notes: tuple[str, ...] = ()


def cost_analysis(compiled: Any, *args: Any, **options: Any) -> Costs:
    """Return the costs of a compiled program: a drop-in for ``compiled.cost_analysis()``.

    JAX's counts a loop's body once, a Pallas kernel as its author declares or not at all, and
    bytes of all memories together. Here a body counts as often as it turns, a Pallas kernel by its
    blocks, and "bytes accessed" are those of the main memory (HBM).

    Parameters
    ----------
    compiled : jax.stages.Compiled
        What ``jax.jit(f).lower(...).compile()`` returns; or whatever `analyze` takes.
    *args, **options
        As `analyze` takes them, for a function.

    Returns
    -------
    Costs
        "flops" (without transcendentals), "transcendentals", "bytes accessed", and
        "optimal_seconds" by the roofline, where the device is in the chip table.

    Raises
    ------
    RooflineError
        As `analyze`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> def layers(x, w):
    ...     return jax.lax.scan(lambda h, w: (h @ w, None), x, w)[0]
    >>> x, w = jnp.ones((8, 64)), jnp.ones((12, 64, 64))
    >>> costs = cost_analysis(jax.jit(layers).lower(x, w).compile())
    >>> costs["flops"] >= 12 * 2 * 8 * 64 * 64
    True
    """
    report = analyze(compiled, *args, **options)
    ours = {
        "flops": report.flops - report.transcendentals,
        "transcendentals": report.transcendentals,
        "bytes accessed": float(report.hbm_bytes),
    }
    if report.time_at_roof is not None:
        ours["optimal_seconds"] = report.time_at_roof
    costs = Costs(ours)
    costs.notes = (*_differences(ours, report.xla), *report.notes)
    return costs


def _differences(ours: dict[str, float], jax: Any) -> list[str]:
    """Return a note for each number that differs from JAX's by more than a percent."""
    notes = []
    for key, value in ours.items():
        theirs = jax.get(key)
        if theirs is not None and abs(theirs - value) > 0.01 * max(abs(value), abs(theirs)):
            unit = _UNITS[key]
            notes.append(f"{key}: {si(value, unit).strip()}, JAX says {si(theirs, unit).strip()}")
    return notes
