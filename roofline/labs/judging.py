"""An instrument on the page: is a measured time good, and which measured kernels are like it?"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import groupby
from typing import Any

import numpy as np

from roofline_helpers import work
from roofline_helpers.chips import all_chips, assumed_floor
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.show import si
from roofline_helpers.measured import kernels, laws_of
from roofline_helpers.measured.judging import NEXT, SPREAD, judge
from roofline_helpers.measured.kernels import kernel_laws, neighbours
from roofline_helpers.measured.laws import Law, least_times
from roofline_helpers.measured.libraries import FEWEST, NEAR, OTHERWISE, SIZES
from roofline_helpers.measured.tables import STEPS, count, group, summed_length
from roofline_helpers.pages.element import Bundle, Element, to_json
from roofline_helpers.pages.instruments import INSTRUMENT, instrument

START: dict[str, Any] = {
    **{"chip": "h100", "dtype": "bf16", "kind": "matmul", "took": 62},
    **{"peak": 1000, "memory": 3000, "flops": 1e12, "bytes": 1e10},
    **{"m": 64, "n": 8192, "k": 8192},
    **{"elements": 2**28, "reads": 2, "writes": 1, "each": 1},
    **{"op": "softmax", "rows": 8192, "columns": 8192},
    **{"batch": 4, "heads": 32, "kvHeads": 8, "queries": 2048, "keys": 2048, "dim": 128},
    "causal": "yes",
}
"""The setting that the page begins with; the time in µs."""

FAMILIES = ("matmul", "prefill_attention", "decode_attention")
"""Kernels of serving libraries that the page can count from a shape."""
NAMED = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "int8": "int8", "fp4": "nvfp4"}
"""A type that a chip multiplies in, and what the tables call it."""
CLASSES = ("matmul", "attention", "normalisation", "stream")
"""Classes of kernels as XLA makes them, likewise."""
LETTERS = "".join(chr(code) for code in range(33, 127) if chr(code) not in "\"\\<>&'")
"""Characters that stand for themselves in JSON: one is a number from -`ZERO` to `ZERO`."""
ABSENT, LONG = LETTERS[-2], LETTERS[-1]
ZERO = (len(LETTERS) - 3) // 2


@functools.cache
def tables() -> dict[str, Any]:
    """Return the data of assets/judging.js: laws, measured kernels, what chips are made of."""
    chips = {}
    for chip in all_chips():
        cache = chip.per_device().memory.get("l2")
        held = cache.capacity.value if cache and cache.capacity else 0
        chips[chip.key] = {"devices": chip.devices, "cache": held}
    return {
        "next": NEXT,
        "spread": SPREAD,
        "fewest": FEWEST,
        "few": kernels.FEWEST,
        "like": kernels.LIKE,
        "matters": kernels.MATTERS,
        "near": {family: NEAR.get(family, OTHERWISE) for family in FAMILIES},
        "named": NAMED,
        "letters": LETTERS,
        "steps": STEPS,
        "chips": chips,
        "floors": {"tpu": assumed_floor("tpu"), "other": assumed_floor("gpu")},
        "libraries": {family: _libraries(family) for family in FAMILIES},
        "measured": sorted(kernel_laws().least),
        "multiplied": kernels.MULTIPLIED,
        "classes": {kind: _class(kind) for kind in CLASSES},
    }


def _libraries(family: str) -> dict[str, Any]:
    """Return the shapes of a family's fastest kernels, and by chip and type their law and times."""
    found: dict[str, dict[str, Any]] = {}
    names, runs, place = _shapes(family)
    for law in _laws(family):
        numbers = law.start, law.compute, law.memory, law.corner, law.step
        one: dict[str, Any] = {"law": numbers, "off": law.law.p90}
        rows = group(family, law.chip, law.dtype)
        if len(rows["seconds"]):
            letters = [ABSENT] * len(place)
            for shape, step in zip(_sizes(rows, names), _beside_law(law, rows), strict=True):
                letters[place[shape]] = _letter(step)
            one["times"] = "".join(letters)
        found.setdefault(law.chip, {})[law.dtype] = one
    return {"names": names, "runs": runs, "chips": found}


def _laws(family: str) -> list[Law]:
    """Return the laws of kernels whose operands all have the type that the page asks for."""
    return [law for law in laws_of(family) if law.dtype in NAMED.values()]


def _sizes(rows: Mapping[str, Any], names: Sequence[str]) -> list[tuple[int, ...]]:
    return list(zip(*(rows[name].tolist() for name in names), strict=True))


def _shapes(family: str) -> tuple[list[str], list[Any], dict[tuple[int, ...], int]]:
    """Return the sizes' names, all shapes as runs along the last of them (0: as the run before),
    and each one's place.
    """
    all_rows = [group(family, law.chip, law.dtype) for law in _laws(family)]
    last = "m" if family == "matmul" else "kv_len"
    names = [*(name for name in SIZES[family] if name != last), last]
    shapes = sorted({shape for rows in all_rows for shape in _sizes(rows, names)})
    runs: list[Any] = []
    before: list[int] = []
    for first, run in groupby(shapes, lambda shape: shape[:-1]):
        along = [shape[-1] for shape in run]
        runs.append([*first, 0 if along == before else along])
        before = along
    return names, runs, {shape: at for at, shape in enumerate(shapes)}


def _beside_law(law: Law, rows: Mapping[str, Any]) -> list[int]:
    """Return how many steps each measured time is beside the law's, rounded to whole ones."""
    job = count(law.family, rows, law.dtype)
    seconds = law.time(*least_times(job, chip_of(law.chip)), summed_length(job))
    steps = np.round(STEPS * np.log2(rows["seconds"] * 1e9))
    off: list[int] = (steps - np.floor(STEPS * np.log2(seconds * 1e9) + 0.5)).astype(int).tolist()
    return off


def _letter(number: int) -> str:
    """Return a number as one character, a large one as three."""
    if abs(number) <= ZERO:
        return LETTERS[number + ZERO]
    high, low = divmod(number + len(LETTERS) ** 2 // 2, len(LETTERS))
    return LONG + LETTERS[high] + LETTERS[low]


def _class(kind: str) -> dict[str, Any]:
    """Return the law of a class, and the measured kernels as seconds of their parts."""
    law, near = kernel_laws().kinds[kind], neighbours(kind)
    _, cases = np.unique(near.cases, return_inverse=True)
    # all digits, since many measured sizes are exactly a factor of 2 apart
    rows = [
        [*shares, seconds, case]
        for shares, seconds, case in zip(
            near.shares.tolist(), near.seconds.tolist(), cases.tolist(), strict=True
        )
    ]
    numbers = {"start": law.start, "corner": law.corner, "weights": law.weights}
    return {**numbers, "low": law.low, "high": law.high, "wide": law.wide, "kernels": rows}


def script() -> str:
    """Return the script: a constant `judgingTables`, then assets/judging.js."""
    asset = (resources.files("roofline") / "labs/assets/judging.js").read_text("utf-8")
    return f"const judgingTables = {to_json(tables())};\n{asset}"


JUDGING = Bundle("judging", lambda: [script()], after=INSTRUMENT)
"""The script of a measured time's verdict."""


def good_time() -> Element:
    """Return an instrument: chip, kernel, measured time → verdict, and measured kernels like it.

    It says what `roofline_helpers.judge` does.

    Examples
    --------
    >>> good_time().kind
    'your-kernel'
    """
    m, n, k = (START[side] for side in "mnk")
    job, seconds = work.matmul(m, n, k, START["dtype"]), START["took"] * 1e-6
    first = judge(job, START["chip"], seconds)
    rows = []
    for took in (0.5, 0.7, 0.9, 1.0, 1.5):
        one = judge(job, START["chip"], took * seconds)
        rows.append({"measured": si(one.seconds, "s"), "verdict": one.verdict, "next": one.next})
    plain = f"A {m} × {n} × {k} matmul on an H100: {first}"
    return instrument("your-kernel", "Your kernel and its time", START, plain, rows, bundle=JUDGING)
