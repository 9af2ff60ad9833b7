"""``roofline chip v6e h200``: published figures of chips, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline_helpers import hardware
from roofline_helpers._checks import RooflineError
from roofline_helpers.command import tables
from roofline_helpers.show import significant


def compared(names: Sequence[str], *, json: bool) -> int:
    """Print the figures of chips; without a name, list the chips there are."""
    if not names:
        known = hardware.all_chips()
        if json:
            tables.as_json([chip.key for chip in known])
        else:
            rows = [[chip.key, chip.name, str(chip.year), chip.vendor] for chip in known]
            tables.console().print(tables.table(["", "chip", "year", "vendor"], rows, right=False))
        return 0
    chips = [hardware.chip(name) for name in names]
    if json:
        tables.as_json({chip.key: _data(chip) for chip in chips})
        return 0
    figures = [{path: str(figure) for path, figure in chip.figures().items()} for chip in chips]
    paths = dict.fromkeys(path for each in figures for path in each)
    kinds = list(dict.fromkeys(path.partition(".")[0] for path in paths))
    rows = [
        [path, *(each.get(path, "–") for each in figures)]
        for path in sorted(paths, key=lambda path: kinds.index(path.partition(".")[0]))
    ]
    rows += [["ridge, 16 bit", *(_ridge(chip) for chip in chips)]]
    rows += [["year", *(str(chip.year) for chip in chips)]]
    screen = tables.console()
    screen.print(tables.table(["", *(chip.name for chip in chips)], rows, right=False))
    screen.print("\npeaks are dense; what each figure's source is: roofline chip --json")
    return 0


def _ridge(chip: hardware.Chip) -> str:
    try:
        return f"{significant(chip.roofline(chip.half).ridge)} FLOP/byte"
    except RooflineError:
        return "–"


def _data(chip: hardware.Chip) -> dict[str, Any]:
    return {
        "name": chip.name,
        "vendor": chip.vendor,
        "year": chip.year,
        "figures": {
            path: {
                "value": figure.value,
                "unit": figure.unit,
                "basis": figure.basis,
                "source": figure.source.url,
                "read": figure.source.read.isoformat(),
                "note": figure.note,
            }
            for path, figure in chip.figures().items()
        },
    }
