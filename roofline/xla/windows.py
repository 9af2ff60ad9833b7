"""Windows of convolutions: how many of their taps meet data, not padding."""

from __future__ import annotations

import math
from dataclasses import dataclass

from roofline_helpers.common.checks import ceil_div


@dataclass(frozen=True)
class Window:
    """The window of one dimension: `low` is the padding before it, `base` spreads the input."""

    size: int = 1
    stride: int = 1
    low: int = 0
    base: int = 1
    dilation: int = 1

    def taps(self, size: int, out: int) -> int:
        """Count the pairs (output position, window position) that meet an element of the input.

        Output o and tap k meet position o·stride + k·dilation − low of the dilated input, which has
        an element at each multiple of `base`, and zeros between and around.

        Parameters
        ----------
        size, out : int
            Elements of the input and of the output along this dimension.
        """
        total = 0
        last = (size - 1) * self.base
        step = math.gcd(self.stride, self.base)
        period = self.base // step
        inverse = pow(self.stride // step, -1, period)
        for k in range(self.size):
            offset = k * self.dilation - self.low
            if offset % step == 0:
                least = max(0, ceil_div(-offset, self.stride))
                most = min(out - 1, (last - offset) // self.stride)
                first = least + (-offset // step * inverse - least) % period
                total += len(range(first, most + 1, period))
        return total
