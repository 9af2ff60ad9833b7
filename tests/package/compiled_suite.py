"""The kernels that the tests compile, each with a count by hand.

`SUITE[name].call` is a function and its arguments, `SUITE[name].hand(chip)` what a person
counts: matrix FLOPs, vector FLOPs, and the bytes read from and written to HBM, per run and device.
A hand count may know how the compiler split the work into kernels (softmax reads x three times),
and then says why; the bytes of each kernel are counted from the tensors that enter and leave it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import pytest
from compiled_programs import (
    attention,
    cache,
    conv,
    elementwise,
    gather,
    layernorm,
    nested_loops,
    pallas,
    product,
    remat,
    scan,
    scatter,
    sharded_product,
    spec,
    while_loop,
)

CHIPS = ("v4", "v5e", "v5p", "v6e", "v7x")
BF16, F32 = 2, 4


@dataclass(frozen=True)
class Hand:
    """Counts by hand; None where there is nothing to count (or nothing can be known)."""

    matrix: float | None = 0
    vector: float | None = 0
    read: float | None = 0
    written: float | None = 0
    transcendentals: float | None = None
    unknown: bool = False

    def differs(self, counted, unknown):
        """Return what differs by more than a hundredth from these counts, with both."""
        by_hand = {name: getattr(self, name) for name in counted}
        wrong = {
            name: (count, by_hand[name])
            for name, count in counted.items()
            if by_hand[name] is not None and count != pytest.approx(by_hand[name], rel=0.01)
        }
        return wrong if bool(unknown) == self.unknown else {**wrong, "unknown": unknown}


@dataclass(frozen=True)
class Case:
    """A function to compile: `call` is (function, arguments, options of analyze).

    `hand` counts for the pinned JAX, 0.10.2. Where another version compiles otherwise, `by_version`
    has the count, by chip and version.
    """

    call: tuple[Any, tuple[Any, ...], dict[str, Any]]
    hand: Callable[[str], Hand]
    why: str = ""
    by_version: Mapping[tuple[str, str], Callable[[str], Hand]] = field(default_factory=dict)


def _v5p(chip):
    """Whether kernels leave their results in HBM: v5p's two cores have a VMEM each."""
    return chip == "v5p"


def _square(n, element, out):
    return lambda chip: Hand(2 * n**3, 0, 2 * element * n * n, out * n * n)


N = 4096 * 4096  # elements of the elementwise cases

SOFTMAX = 12288 * 8192  # 201 MB: more than any VMEM, or it would be fetched there once

B, H, S, D = 2, 16, 2048, 128  # attention, with 268 MB of scores

SCORES, HEADS = B * H * S * S, B * H * S * D

CONV_X = 16 * 28 * 28 * 128

ROWS = 2048 * 1024


def _attention_hand(chip):
    if chip == "v4":  # × scale, max; −, exp, sum; and −, exp again before ÷ and the product
        return Hand(
            4 * HEADS * S,
            8 * SCORES,
            BF16 * (3 * HEADS + 2 * SCORES),
            BF16 * (HEADS + SCORES),
            2 * SCORES,
        )
    return Hand(
        2 * HEADS * S, SCORES, BF16 * (3 * HEADS + SCORES), BF16 * (HEADS + SCORES), None, True
    )


def _sorted_scatter(chip):
    return Hand(0, ROWS + 48 * 2048, 2 * BF16 * ROWS + 4 * 2048, BF16 * ROWS)


def _scan_hand(n):
    weights = BF16 * n * 1024**2
    state = BF16 * 16 * 1024

    def hand(chip):
        around = 1 + 2 * n if _v5p(chip) and n > 1 else 1  # reads, and writes, of the state
        rewritten = weights if chip == "v7x" and n == 100 else 0
        flops = n * 16 * 1024
        return Hand(
            n * 2 * 16 * 1024**2,
            flops,
            weights + rewritten + around * state,
            rewritten + around * state,
            flops,
        )

    return hand


def _scan_on_cpu(n):
    """All weights become fp32 before the loop, one layer is cut out in each turn, and state is
    converted, multiplied and put through tanh by a kernel each."""
    weights = n * 1024**2
    state = 16 * 1024
    flops = n * 16 * 1024
    read = BF16 * weights + 2 * F32 * weights + n * state * (BF16 + F32 + F32) + BF16 * state
    written = 2 * F32 * weights + n * state * (F32 + F32 + BF16) + BF16 * state
    return lambda chip: Hand(n * 2 * 16 * 1024**2, flops, read, written, flops)


_SCAN_WHY = (
    "the weights of one layer a turn; the state stays in VMEM. On v5p it lies in HBM: a product "
    "and a copy read and write it in each turn. On v7x the SparseCore first rewrites all the "
    "weights of 100 layers in another tiling, which costs twice their bytes"
)


SUITE = {
    "matmul-square": Case(product(1024, 1024, 1024), _square(1024, BF16, BF16)),
    "matmul-fp32": Case(product(1024, 1024, 1024, "float32"), _square(1024, F32, F32)),
    "matmul-fp8": Case(
        product(1024, 1024, 1024, "float8_e4m3fn", "bfloat16"), _square(1024, 1, BF16)
    ),
    "matmul-int8": Case(product(1024, 1024, 1024, "int8", "int32"), _square(1024, 1, 4)),
    "elementwise": Case(
        elementwise(),
        lambda chip: Hand(0, 3 * N, BF16 * (N + 4096), BF16 * N),
        "multiply, add, maximum; conversions between bf16 and fp32 are no FLOPs",
    ),
    "layernorm": Case(
        (layernorm, (spec(4096, 4096), spec(4096), spec(4096)), {}),
        lambda chip: Hand(0, 8 * N, 2 * BF16 * N, BF16 * N, 4096),
        "x − mean is computed in two kernels, so 8 FLOPs an element, and x is read twice: once for "
        "mean and variance, which fits VMEM row by row, and once to normalise; JAX 0.12 reads it a "
        "third time on v7x, for the variance",
        {
            ("v7x", "0.12.0.1"): lambda chip: Hand(0, 8 * N, 3 * BF16 * N, BF16 * N, 4096),
            ("h100", "0.11.2"): lambda chip: Hand(0, 7 * N, BF16 * N, BF16 * N, 4096),
            ("cpu", "0.10.2"): lambda chip: Hand(0, 7 * N, BF16 * N, BF16 * N, 4096),
        },
    ),
    "softmax": Case(
        (jax.nn.softmax, (spec(12288, 8192),), {}),
        lambda chip: Hand(0, 7 * SOFTMAX, 3 * BF16 * SOFTMAX, BF16 * SOFTMAX, 2 * SOFTMAX),
        "three kernels: max; − max, exp, sum; and again − max, exp, before ÷ sum. So x is read "
        "three times and exp computed twice, to keep exp(x − max) out of HBM. On a GPU, and on a "
        "CPU, one kernel holds a row, and reads x once",
        {
            key: lambda chip: Hand(0, 5 * SOFTMAX, BF16 * SOFTMAX, BF16 * SOFTMAX, SOFTMAX)
            for key in (("h100", "0.11.2"), ("cpu", "0.10.2"))
        },
    ),
    "attention": Case(
        (attention, (spec(B, H, S, D),) * 3, {}),
        _attention_hand,
        "libtpu replaces softmax and the second product by a kernel of its own, "
        "'online-softmax', except on v4. It declares no FLOPs: unknown. The S×S scores are written "
        "once and read once there; twice on v4, whose first product also gives the maximum of each "
        "row. With JAX 0.7.2 all are like v4, but that v6e scales and takes the maximum again",
        {
            ("v5e", "0.7.2"): lambda chip: _attention_hand("v4"),
            ("v5p", "0.7.2"): lambda chip: _attention_hand("v4"),
            ("v6e", "0.7.2"): lambda chip: replace(_attention_hand("v4"), vector=10 * SCORES),
        },
    ),
    "convolution": Case(
        conv(),
        lambda chip: Hand(
            2 * 16 * 128 * 128 * (3 * 28 - 2) ** 2,
            0,
            BF16 * (CONV_X + 9 * 128 * 128),
            BF16 * CONV_X,
        ),
        "taps on the padding are not counted: 3·28 − 2 of 3·28 along each side. Where the result "
        "comes in another layout, it is copied within VMEM. On a GPU the weights are transposed "
        "first",
    ),
    "gather": Case(
        gather(),
        lambda chip: Hand(0, None, BF16 * 4 * ROWS + 4 * 2048, BF16 * 4 * ROWS),
        "the rows that are looked up, not the table",
    ),
    "scatter-add": Case(
        scatter(),
        lambda chip: Hand(0, ROWS, 2 * BF16 * ROWS + 4 * 2048, BF16 * ROWS),
        "in place: the touched rows are read and written, the updates read. With JAX 0.12 the rows "
        "are sorted first on v6e and v7x: ⌈log₂ 2048⌉ = 11 comparisons of 4 operations, and 4 more",
        {(chip, "0.12.0.1"): _sorted_scatter for chip in ("v6e", "v7x")},
    ),
    "cache-append": Case(
        cache(True),
        lambda chip: Hand(0, None, BF16 * 16 * 1024, BF16 * 16 * 1024),
        "an update in place moves the update",
    ),
    "cache-append-copied": Case(
        cache(False),
        lambda chip: Hand(0, None, BF16 * (16 + 32768) * 1024, BF16 * (16 + 32768) * 1024),
        "not donated, the cache has to be copied first",
    ),
    **{
        f"scan-{n}": Case(scan(n), _scan_hand(n), _SCAN_WHY, {("cpu", "0.10.2"): _scan_on_cpu(n)})
        for n in (1, 10, 100)
    },
    "nested-loops": Case(
        nested_loops(),
        lambda chip: Hand(
            20 * 2 * 512**3,
            20 * 512**2 + 4 * 512**2,
            BF16 * 512**2 * (1 + 1 + (20 + 20 + 4 if _v5p(chip) else 0)),
            BF16 * 512**2 * (1 + (20 + 20 + 4 if _v5p(chip) else 0)),
            20 * 512**2,
        ),
        "5 turns inside 4. Everything stays in VMEM, but on v5p the state lies in HBM: the product "
        "and a copy read and write it 20 times each, the scaling 4 times",
    ),
    "while-unknown": Case(
        while_loop(),
        lambda chip: Hand(
            2 * 512**3,
            2 * 512**2,
            BF16 * 512**2 * (6 if chip in ("v5p", "v7x") else 5),
            BF16 * 512**2 * (3 if chip in ("v5p", "v7x") else 2),
        ),
        "counted for one turn, and the report says so. The condition runs before and after it, and "
        "reads the state; so do the first copy, a copy before the product and, on two chips, after",
    ),
    "remat": Case(
        remat(),
        lambda chip: Hand(
            6 * 2 * 512**3,
            None,
            BF16 * 512**2 * (8 if _v5p(chip) else 4),
            BF16 * 512**2 * (4 if _v5p(chip) else 2),
        ),
        "two products forward, the same two again, two backward. Forward and backward fetch x "
        "and w each for itself; on v5p intermediates are read four times from HBM, written twice. "
        "With JAX 0.7.2 and 0.12 one of the two is fetched once",
        {
            (chip, version): lambda chip: Hand(
                6 * 2 * 512**3,
                None,
                BF16 * 512**2 * (7 if _v5p(chip) else 3),
                BF16 * 512**2 * (4 if _v5p(chip) else 2),
            )
            for chip in CHIPS
            for version in ("0.7.2", "0.12.0.1")
        },
    ),
    "pallas": Case(
        pallas(False),
        lambda chip: Hand(0, 2 * 1024**2, 2 * F32 * 1024**2, F32 * 1024**2),
        "a multiplication and an addition an element, counted from its body; on a GPU, where "
        "nothing was traced, unknown",
        {("h100", "0.11.2"): lambda chip: Hand(0, None, 8 * 1024**2, 4 * 1024**2, None, True)},
    ),
    "pallas-declared": Case(
        pallas(True),
        lambda chip: Hand(0, 2 * 1024**2, 2 * F32 * 1024**2, F32 * 1024**2),
        "what its author declares is the same, without a unit",
    ),
    "sharded-matmul": Case(
        sharded_product(),
        lambda chip: Hand(
            2 * 2048 * 2048 * 1024,
            0,
            BF16 * (2 * 2048 * 1024 + (2048**2 if _v5p(chip) else 0)),
            BF16 * (2048**2 + (2048**2 if _v5p(chip) else 0)),
        ),
        "half of the summed dimension on each device, then an all-reduce of the result",
    ),
}
