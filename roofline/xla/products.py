"""The places at which a product multiplies, as axes that its operands and its result share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline.xla.flops import library_product, windows_of
from roofline.xla.graph import Node
from roofline.xla.hlo import Instruction, Site
from roofline.xla.parts import Part
from roofline.xla.windows import Window


@dataclass(frozen=True)
class Space:
    """The axes of a dot's or a convolution's multiply-adds: those of the result, then the summed.

    `sides` map the axes of the first and the second operand to them; an axis that is missing, such
    as one over which a window moves, is used as a whole. `result` is how many axes the result has.
    """

    dims: tuple[int, ...]
    sides: tuple[Mapping[int, int], Mapping[int, int]]
    result: int

    def of_side(self, part: Part, side: int, name: int) -> Part:
        """Return at which places a part of an operand is used."""
        return part.onto(self.dims, self.sides[side], name)

    def to_side(self, part: Part, side: int, dims: tuple[int, ...], name: int) -> Part:
        """Return the part of an operand that is used at some places."""
        return part.onto(dims, {place: axis for axis, place in self.sides[side].items()}, name)

    def of_result(self, part: Part, name: int) -> Part:
        """Return the places that add to a part of the result."""
        return part.onto(self.dims, {axis: axis for axis in range(self.result)}, name)

    def to_result(self, part: Part, name: int) -> Part:
        """Return the part of the result that some places add to."""
        return part.onto(self.dims[: self.result], {a: a for a in range(self.result)}, name)


def space_of(node: Node, site: Site) -> Space | None:
    """Return the places of a product, also of one that a library computes; None of other nodes."""
    if len(node.ops) < 2 or node.instruction is None:
        return None
    lhs, rhs = (operand.dims for operand in node.ops[:2])
    if node.op == "dot":
        names = "batch_dims", "contracting_dims"
        sides = [[node.numbers(f"{side}_{name}") for name in names] for side in ("lhs", "rhs")]
        return _dot(lhs, rhs, node.dims, *sides)
    if node.op == "convolution":
        return _convolution(node.instruction, lhs, rhs, node.dims)
    if node.op != "custom-call" or library_product(site) is None:
        return None
    stated = node.instruction.config
    numbers: Mapping[str, Any] = stated.get("gemm_backend_config", stated)
    numbers = numbers.get("dot_dimension_numbers", {})
    if numbers:
        words = "batch_dimensions", "contracting_dimensions"
        sides = [
            [tuple(map(int, numbers.get(f"{side}_{word}", ()))) for word in words]
            for side in ("lhs", "rhs")
        ]
        return _dot(lhs, rhs, node.dims, *sides)
    if node.instruction.target.startswith("__cudnn$convForward"):
        return _convolution(node.instruction, lhs, rhs, node.dims)
    return None


def _dot(
    lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...], left: Any, right: Any
) -> Space | None:
    """Return the places of a dot: batch, the left's other axes, the right's, then the summed."""
    of_left = [axis for axis in range(len(lhs)) if axis not in {*left[0], *left[1]}]
    of_right = [axis for axis in range(len(rhs)) if axis not in {*right[0], *right[1]}]
    batch = len(left[0])
    if batch + len(of_left) + len(of_right) != len(out):
        return None  # a library's, whose result has another form
    summed = {axis: len(out) + n for n, axis in enumerate(left[1])}
    first = {axis: n for n, axis in enumerate([*left[0], *of_left])} | summed
    second = {axis: n for n, axis in enumerate(right[0])}
    second |= {axis: batch + len(of_left) + n for n, axis in enumerate(of_right)}
    second |= {axis: len(out) + n for n, axis in enumerate(right[1])}
    return Space((*out, *(lhs[axis] for axis in left[1])), (first, second), len(out))


def _convolution(
    instruction: Instruction, lhs: tuple[int, ...], rhs: tuple[int, ...], out: tuple[int, ...]
) -> Space:
    """Return the places of a convolution: its result's axes, the taps, and the input's channels."""
    left, right, made = re.split("_|->", instruction.attributes["dim_labels"])
    groups = int(instruction.attributes.get("feature_group_count", 1))
    of_batch = int(instruction.attributes.get("batch_group_count", 1))
    spatial = sorted(label for label in made if label.isdigit())
    dims = [*out, *(rhs[right.index(label)] for label in spatial), rhs[right.index("i")]]
    first: dict[int, int] = {}
    second = {right.index("o"): made.index("f"), right.index("i"): len(dims) - 1}
    if of_batch == 1:
        first[left.index("b")] = made.index("b")
    if groups == 1:
        first[left.index("f")] = len(dims) - 1
    windows = windows_of(instruction, len(spatial))
    reverses = "rhs_reversal" in instruction.attributes.get("window", "")
    for number, (label, window) in enumerate(zip(spatial, windows, strict=True)):
        data, kernel, place = left.index(label), right.index(label), made.index(label)
        plain = window.size == window.stride == window.base == 1 and window.low == 0
        if _is_batch(window, lhs[data], out[place], reverses):
            first[data] = second[kernel] = place
        elif plain and lhs[data] == out[place]:
            first[data], second[kernel] = place, len(out) + number
        else:
            second[kernel] = len(out) + number
    return Space(tuple(dims), (first, second), len(out))


def _is_batch(window: Window, data: int, places: int, reverses: bool) -> bool:
    """Return whether each place of a spatial axis multiplies its own input and its own weight.

    A TPU's compiler writes a batch of products so: with an input spread by zeros.
    """
    if not (window.size == data == places > 1):
        return False
    for place in (0, 1, places - 1):
        first = place * window.stride - window.low
        met = []  # an input and its weight, but for zeros between the inputs and around them
        for tap in range(window.size):
            input_, between = divmod(first + tap * window.dilation, window.base)
            if not between and 0 <= input_ < data:
                met.append((input_, window.size - 1 - tap if reverses else tap))
        if met != [(place, place)]:
            return False
    return True
