"""FLOPs of products of matrices: dots, and convolutions of which some taps meet only padding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from roofline_helpers._checks import ceil_div
from roofline_helpers.hlo.module import Instruction
from roofline_helpers.hlo.shapes import Shape


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

        Parameters
        ----------
        size, out : int
            Elements of the input and of the output along this dimension.
        """
        return _taps(size, out, self.size, self.stride, self.low, self.base, self.dilation)


@lru_cache(maxsize=4096)
def _taps(size: int, out: int, window: int, stride: int, low: int, base: int, dilation: int) -> int:
    """Count taps: output o and tap k meet position o·stride + k·dilation − low of the input.

    The input is spread out by `base`: an element at each multiple of it, zeros between and around.
    """
    total, last = 0, (size - 1) * base
    step = math.gcd(stride, base)
    period = base // step
    inverse = pow(stride // step, -1, period) if period > 1 else 0
    for k in range(window):
        offset = k * dilation - low
        if offset % step:
            continue
        first = (-offset // step * inverse) % period if period > 1 else 0  # smallest o that fits
        least = max(0, -(offset // stride))  # o·stride + offset ≥ 0
        most = min(out - 1, (last - offset) // stride)
        if least > first:
            first += ceil_div(least - first, period) * period
        if most >= first:
            total += (most - first) // period + 1
    return total


def windows(each: Instruction, dims: int) -> list[Window]:
    """Read `window={size=3x3 stride=1x1 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1}`."""
    text = each.attributes.get("window", "")
    stated = dict(part.split("=", 1) for part in text.strip("{} ").split() if "=" in part)

    def numbers(key: str, default: int) -> list[int]:
        return [int(n) for n in stated[key].split("x")] if key in stated else [default] * dims

    pads = stated["pad"].split("x") if "pad" in stated else ["0_0"] * dims
    columns = (
        numbers("size", 1),
        numbers("stride", 1),
        [int(pad.split("_")[0]) for pad in pads],
        numbers("lhs_dilate", 1),
        numbers("rhs_dilate", 1),
    )
    return [Window(*row) for row in zip(*columns, strict=True)]


def labels(each: Instruction) -> tuple[str, str, str]:
    """Split `dim_labels=bf0_io0->bf0`: what each dimension of input, kernel and output is."""
    operands, _, out = each.attributes["dim_labels"].partition("->")
    lhs, _, rhs = operands.partition("_")
    return lhs, rhs, out


def spatial_windows(each: Instruction) -> dict[str, Window]:
    """Return the window of each spatial dimension of a convolution, by its label.

    A window's sizes are in the order of the labels' numbers, whatever the output's order is.
    """
    spatial = sorted(label for label in labels(each)[2] if label.isdigit())
    return dict(zip(spatial, windows(each, len(spatial)), strict=True))


def slides(each: Instruction, operands: Sequence[Shape]) -> bool:
    """Return whether a window has more than one tap at a position: then windows may overlap.

    A dimension of the batch, which TPUs write as a window too, has one tap at each position.
    """
    if each.opcode != "convolution":
        return False
    left, _, out = labels(each)
    for label, window in spatial_windows(each).items():
        size, positions = operands[0].dims[left.index(label)], each.shape.dims[out.index(label)]
        if window.taps(size, positions) != positions:
            return True
    return False


def matrix_flops(each: Instruction, lhs: Shape, rhs: Shape) -> int:
    """Return the FLOPs of a dot or a convolution: two for each multiply-add that meets data.

    Examples
    --------
    >>> from roofline_helpers.hlo.module import parse
    >>> dot = parse('''HloModule t
    ... ENTRY %m (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
    ...   %a = f32[4,8] parameter(0)
    ...   %b = f32[8,2] parameter(1)
    ...   ROOT %c = f32[4,2] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }''').entry
    >>> matrix_flops(dot.root, *(each.shape for each in dot.parameters))
    128
    """
    if each.opcode == "dot":
        inner = math.prod(lhs.dims[d] for d in each.numbers("lhs_contracting_dims"))
        return 2 * each.shape.elements * inner
    left, right, out = labels(each)
    macs = lhs.dims[left.index("b")] // int(each.attributes.get("batch_group_count", 1))
    macs *= rhs.dims[right.index("i")] * rhs.dims[right.index("o")]
    for label, window in spatial_windows(each).items():
        macs *= window.taps(lhs.dims[left.index(label)], each.shape.dims[out.index(label)])
    return 2 * macs


def sides(each: Instruction, lhs: Shape, rhs: Shape) -> tuple[int, ...]:
    """Return m, n and k of a dot of two matrices; nothing for batches and convolutions."""
    if each.opcode != "dot":
        return ()
    k = math.prod(lhs.dims[d] for d in each.numbers("lhs_contracting_dims"))
    m, n = lhs.elements // k, rhs.elements // k
    return (m, n, k) if m * n == each.shape.elements else ()


def operand_types(each: Instruction, operands: Iterable[Shape]) -> str:
    """Return the types and the precision of a product: "bf16", "f32 highest", "bf16×s8"."""
    types = "×".join(dict.fromkeys(shape.dtype for shape in operands))
    precision = each.attributes.get("operand_precision", "").strip("{}").split(",")[0]
    return f"{types} {precision}".strip()
