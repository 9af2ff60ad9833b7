"""An instrument on the page: a training run's MFU, and where published runs stand."""

from __future__ import annotations

from importlib import resources
from typing import Any

from roofline.training.setting import RECOMPUTE
from roofline.training.step import weight_flops
from roofline.validation.utilization import COUNTS, ENOUGH, MIXED, TEXTS, fastest, mfu, runs
from roofline_helpers.chips import Chip, all_chips
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import key
from roofline_helpers.common.show import si, significant
from roofline_helpers.models import Decoder, catalogue
from roofline_helpers.pages.element import Bundle, Element, to_json
from roofline_helpers.pages.instruments import INSTRUMENT, instrument

START: dict[str, Any] = {
    **{"model": "llama-3-8b", "chip": "h100", "dtype": "bf16", "tokens": 64000, "chips": 8},
    **{"seq": 8192, "recompute": "none", "weights": 1, "layers": 16, "width": 2048},
}
"""The setting that the page begins with."""

TYPES = ("bf16", "fp16", "fp8", "fp4")
"""Types that training multiplies in."""


def tables() -> dict[str, Any]:
    """Return the data of assets/mfu.js: models, chips, names of devices, published runs, texts."""
    chips = all_chips()
    return {
        "texts": dict(TEXTS),
        "recompute": {name: list(products) for name, products in RECOMPUTE.items()},
        "types": TYPES,
        "enough": ENOUGH,
        "mixed": MIXED,
        "models": {name: _model(model) for name, model in catalogue().items()},
        "chips": {chip.key: _chip(chip) for chip in chips},
        "names": {
            key(name): chip.key
            for chip in chips
            for name in (chip.key, chip.name, *chip.aliases, *chip.device_kinds)
        },
        "runs": [
            {**run._asdict(), "kind": chip_of(run.chip).kind}
            for run in sorted(runs(), key=lambda run: run.mfu)
        ],
    }


def _model(model: Decoder) -> dict[str, Any]:
    kinds = [(block.mixer, count) for block, count in model.kinds.items() if block.mixer]
    names = ("scores", "window", "chunked", "top", "choosing")
    return {
        "name": model.name,
        "active": model.active_parameters,
        "total": model.parameters,
        "matmuls": model.matrix_flops(),
        "experts": model.experts is not None,
        "products": weight_flops(model, 1),
        "mixers": [
            {"count": count, **{name: getattr(mixer, name) for name in names}}
            for mixer, count in kinds
        ],
    }


def _chip(chip: Chip) -> dict[str, Any]:
    sparse = {dtype: figure.sparse for dtype, figure in chip.matrix.items() if figure.sparse}
    known = {dtype: fastest(chip.key, dtype) for dtype in TYPES if dtype in chip.matrix}
    return {"devices": chip.devices, "sparse": sparse, "fastest": known}


def script() -> str:
    """Return the script: a constant `mfuTables`, then assets/mfu.js."""
    asset = (resources.files("roofline") / "labs/assets/mfu.js").read_text("utf-8")
    return f"const mfuTables = {to_json(tables())};\n{asset}"


MFU = Bundle("mfu", lambda: [script()], after=INSTRUMENT)
"""The script of a training run's MFU."""


def training_mfu() -> Element:
    """Return an instrument: model, device, tokens a second → MFU, HFU, and published runs like it.

    It says which of the numbers is probably another where the peak is exceeded.

    Examples
    --------
    >>> training_mfu().kind
    'mfu'
    """
    names = ("tokens", "chips", "seq", "dtype", "recompute")
    setting = {name: START[name] for name in names}
    rate = setting.pop("tokens")
    run = mfu(START["model"], chip_of(START["chip"]), rate, **setting)
    rows = [
        {
            "counted": how,
            "a token": si(run.counts[name], "FLOP"),
            "of the peak": f"{significant(100 * run.rate * run.counts[name] / run.peak.value)}%",
        }
        for name, how in COUNTS.items()
    ]
    plain = f"{run.headline()} {run.standing()}"
    return instrument("mfu", "Your training run", START, plain, rows, bundle=MFU)
