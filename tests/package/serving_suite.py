"""What the tests of the serving model share."""

from __future__ import annotations

from typing import Any

import roofline_helpers as rh
from roofline import serving
from roofline.serving import ServingStep
from roofline_helpers.models import LLAMA_3_8B

CHIPS = [chip.key for chip in rh.all_chips()]


def llama(chip: Any = "h100", **setting: Any) -> ServingStep:
    return serving.step(LLAMA_3_8B, chip, **setting)
