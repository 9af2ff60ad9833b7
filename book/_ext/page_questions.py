"""The questions of the prose pages: ``{ask}`` puts them there, with what they unlock inside."""

from __future__ import annotations

import roofline_helpers as rh
from roofline_helpers.ask import Element, choice, ledger, number, sheet
from roofline_helpers.show import significant

INSIDE = "(what stands inside the directive)"


def questions() -> dict[str, Element]:
    """Return the questions that a page may ask for, by name; their numbers are computed."""
    front = rh.lab.chain("h100", key="front-chain", title="Fuse it yourself")
    return {**_first_kernel(), "front-chain": front, "ledger": ledger()}


def addition() -> tuple[rh.Work, float, float, float]:
    """Return chapter 1's vector addition, and an H100's additions/s and seconds for it.

    The seconds of its arithmetic come before those of its bytes.
    """
    roof = rh.chip("h100").roofline("fp32")
    add = rh.work.add(10**9, "fp32")
    rate = roof.peak / 2  # the peak counts a multiply-add as two
    return add, rate, float(add.flops / rate), float(add.bytes / roof.bandwidth)


def _first_kernel() -> dict[str, Element]:
    """Chapter 1: a vector addition and a matmul on an H100, and three exercises."""
    matrix = rh.chip("h100").roofline("bf16")
    _, additions, adding, moving = addition()
    ratio = moving / adding
    matmul = rh.work.matmul(4096, 4096, 4096, "bf16")
    compute, memory = matmul.flops / matrix.peak, matmul.bytes / matrix.bandwidth
    nearest = min((1, 10, 100), key=lambda factor: abs(factor - ratio))
    v5e = rh.chip("v5e").roofline("bf16")
    scale = rh.work.elementwise(10**9, flops=1, dtype="fp32")
    return {
        "first-add": choice(
            "Which takes longer: the additions, or reading and writing the numbers? By about what "
            "factor?",
            {
                "The additions, about 10 times": "An addition seems to be the work here. But the "
                f"vector units add at {rh.si(additions, 'FLOP/s')}, and each addition needs "
                "12 bytes from a memory that is much slower.",
                "About the same": "Chips aren't balanced for one addition for each number that "
                "comes from memory: they have far more arithmetic than that.",
                **{
                    f"The memory, about {factor} times": (
                        f"It is {ratio:.0f} times: 12 bytes must cross the memory's boundary for "
                        "one addition."
                        if factor == nearest
                        else "The memory, yes, but by far more: while the 12 bytes of one "
                        f"addition arrive, the vector units could do {ratio:.0f}."
                    )
                    for factor in (10, 100)
                },
            },
            right=f"The memory, about {nearest} times",
            key="first-add",
            then=INSIDE,
        ),
        "first-matmul": choice(
            "And for the product of the two matrices: which takes longer?",
            {
                "The multiplications": f"By {compute / memory:.1f} times: a matmul uses each "
                "number that it fetches thousands of times.",
                "Reading and writing the matrices": "That was so for the addition, where each "
                "number is used once. In a matmul each is used 4096 times.",
                "About the same": "They would be at one size of matrix only, and this one is "
                "well above it.",
            },
            right="The multiplications",
            key="first-matmul",
            then=INSIDE,
        ),
        "first-exercises": sheet(
            number(
                "What is the arithmetic intensity of multiplying a vector by a number, in fp32, "
                "in FLOP/byte?",
                solution=scale.intensity,
                unit="FLOP/byte",
                key="first-scale",
                feedback=[
                    (1 / 4, "Each number is read and also written: 8 bytes, not 4."),
                    (1 / 12, "That is the addition of two vectors: here only one is read."),
                ],
                hint="One multiplication an element; count the bytes read and those written.",
                why="one FLOP for 4 bytes read and 4 bytes written.",
            ),
            number(
                "What is the ridge of a TPU v5e in bf16, with a peak of "
                f"{rh.si(v5e.peak, 'FLOP/s')} and a bandwidth of {rh.si(v5e.bandwidth, 'B/s')}, "
                "in FLOP/byte?",
                solution=v5e.ridge,
                unit="FLOP/byte",
                key="first-ridge",
                feedback=[(v5e.ridge / 1000, "Mind the prefixes: tera is a thousand giga.")],
                hint="The ridge is where both ceilings are equal.",
                why="peak over bandwidth.",
            ),
            number(
                "A kernel of 100 FLOP/byte runs on that chip. What share of the peak is the most "
                "that it can reach, in %?",
                solution=100 * v5e.mfu(v5e.attainable(100)),
                unit="%",
                key="first-share",
                feedback=[(100, "Left of the ridge the memory decides, not the peak.")],
                hint="Attainable is the smaller of the peak and bandwidth times intensity.",
                why=f"{rh.si(v5e.attainable(100), 'FLOP/s')} of {rh.si(v5e.peak, 'FLOP/s')}: the "
                f"share is 100 over the ridge, {significant(v5e.ridge)}.",
            ),
        ),
    }
