"""What the tests of the serving model share."""

import roofline_helpers as rh
from roofline import serving
from roofline_helpers.models import LLAMA_3_8B

CHIPS = [chip.key for chip in rh.all_chips()]


def llama(chip="h100", **setting):
    return serving.step(LLAMA_3_8B, chip, **setting)
