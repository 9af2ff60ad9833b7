"""What each opcode of HLO costs: the sets that the counting goes by."""

from __future__ import annotations

from roofline_helpers._checks import RooflineError


class UnknownInstruction(RooflineError, LookupError):
    """An opcode, data type or attribute that this reader does not know (strict mode).

    Examples
    --------
    >>> issubclass(UnknownInstruction, RooflineError)
    True
    """


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRANSCENDENTAL = _words(
    "exponential exponential-minus-one log log-plus-one tanh logistic sine cosine tan sqrt rsqrt "
    "cbrt power erf atan2 asin acos atan sinh cosh asinh acosh atanh"
)
"""Opcodes of transcendental functions: one FLOP per element, and listed apart."""

ARITHMETIC = _words(
    "add subtract multiply divide remainder maximum minimum compare select clamp negate abs sign "
    "floor ceil round-nearest-afz round-nearest-even is-finite and or xor not shift-left "
    "shift-right-logical shift-right-arithmetic popcnt count-leading-zeros real imag complex "
    "mulhi"
)
"""Opcodes that do one FLOP per element of the result."""

MOVING = _words(
    "copy convert bitcast-convert broadcast reshape transpose slice dynamic-slice pad reverse "
    "dynamic-update-slice concatenate iota gather reduce-precision stochastic-convert rng "
    "rng-bit-generator rng-get-and-update-state dynamic-reshape real-dynamic-slice set-dimension-"
    "size infeed outfeed send recv all-gather all-to-all ragged-all-to-all collective-permute "
    "collective-broadcast all-reduce reduce-scatter copy-start"
)
"""Opcodes that only move, convert or make data. The sums inside collectives are not counted."""

FREE = _words(
    "parameter constant bitcast tuple get-tuple-element after-all opt-barrier optimization-barrier "
    "partition-id replica-id add-dependency domain get-dimension-size"
)
"""Opcodes that do nothing at run time, or nothing that counts."""

COLLECTIVES = _words(
    "all-reduce all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute "
    "collective-broadcast"
)
"""Opcodes that exchange data between devices."""

FREE_CALLS = _words(
    "AssumeGatherIndicesInBound Sharding SPMDFullToShardShape SPMDShardToFullShape AllocateBuffer "
    "ConcatBitcast annotate_device_placement xla.sdy.FuncResultSharding PrepareAsyncCallStart "
    "PrepareAsyncCallDone GatherScatterIndicesBitpacked SliceId"
)
"""Targets of custom calls that mark something and run nothing."""

APPLYING = _words("reduce map reduce-window scatter select-and-scatter sort")
"""Opcodes that apply a small computation many times."""

PRODUCTS = _words("dot convolution")
"""Opcodes of products of matrices."""

VIEWS = _words("bitcast reshape copy convert transpose")
"""Opcodes whose result is their operand, placed or written otherwise."""

SLICES = _words("slice dynamic-slice gather")
"""Opcodes that need only part of their first operand."""

UPDATES = _words("dynamic-update-slice scatter")
"""Opcodes that write only part of their result, where they update in place."""
