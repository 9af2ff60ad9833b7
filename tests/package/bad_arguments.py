"""Bad input to every public function: what is refused, with which error, and in which words.

A row of `NUMBERS` is tried on every numeric argument of every public function; `NAMES` on every
name; `OTHERS` lists what goes wrong in other ways. The message must hold what was given, what is
allowed and, for a near miss, the nearest match.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, Roofline, RooflineError, UnknownName, Work, work
from roofline_helpers.dtypes import dtype, nbytes
from roofline_helpers.show import significant

ROOF = Roofline(100.0, {"hbm": 10.0, "vmem": 20.0})
CHIP = rh.chip("h100")
JOB = work.matmul(8, 8, 8)
TWO, THREE = np.array([1, 2]), np.array([1, 2, 3])

# given, kind of error, how the message shows it
NUMBERS: list[tuple[Any, type[RooflineError], str]] = [
    (-1, BadValue, "-1"),
    (0, BadValue, "0 (int)"),
    (0.0, BadValue, "0.0"),
    (float("nan"), BadValue, "nan"),
    (float("inf"), BadValue, "inf"),
    (float("-inf"), BadValue, "-inf"),
    (1e400, BadValue, "inf"),
    (10**400, BadValue, "10**400"),
    (-(10**5000), BadValue, "-10**5000"),
    (np.int64(-3), BadValue, "np.int64(-3)"),
    ([1, -1], BadValue, "[1, -1]"),
    (np.array([2.0, np.nan]), BadValue, "array([ 2., nan])"),
    (np.longdouble("1e400"), BadValue, "1e+400"),
    (True, BadType, "True (bool)"),
    (np.bool_(True), BadType, "np.True_"),
    ("8", BadType, "'8' (str)"),
    (b"8", BadType, "b'8'"),
    (None, BadType, "None"),
    (3j, BadType, "3j (complex)"),
    ([[1, 2], [3]], BadType, "[[1, 2], [3]]"),
    ([], BadType, "[]"),
    ([1, "a"], BadType, "[1, 'a']"),
    ([1, True], BadType, "[1, True]"),
    ([[True, 2]], BadType, "[[True, 2]]"),
    ([10**400, 1], BadType, "[1000000"),
    ({}, BadType, "{} (dict)"),
    (object(), BadType, "<object object"),
    (len, BadType, "<built-in function len>"),
    (np.datetime64("2026-11-20"), BadType, "2026-11-20"),
]
FRACTIONS = [(1.5, BadValue, "1.5"), ([1, 2.5], BadValue, "[1, 2.5]"), (1e19, BadValue, "1e+19")]

# Every argument that must be a whole number from 1; after the colon: its name in the message
SIZES: dict[str, Callable[[Any], Any]] = {
    "matmul: m": lambda x: work.matmul(x, 8, 8),
    "matmul: n": lambda x: work.matmul(8, x, 8),
    "matmul: k": lambda x: work.matmul(8, 8, x),
    "matmul: batch": lambda x: work.matmul(8, 8, 8, batch=x),
    "matmul: splits": lambda x: work.matmul(8, 8, 8, splits=x),
    "matmul: tile": lambda x: work.matmul(8, 8, 8, tile=(x, 8)),
    "matmul, columns: tile": lambda x: work.matmul(8, 8, 8, tile=(8, x)),
    "elementwise: n": lambda x: work.elementwise(x),
    "relu: n": lambda x: work.relu(x),
    "gelu: n": lambda x: work.gelu(x),
    "swiglu: n": lambda x: work.swiglu(x),
    "add: n": lambda x: work.add(x),
    "dropout: n": lambda x: work.dropout(x),
    "fusion_chain: rows": lambda x: work.fusion_chain(x, 8),
    "fusion_chain: columns": lambda x: work.fusion_chain(8, x),
    "reduction: rows": lambda x: work.reduction(x, 8),
    "reduction: columns": lambda x: work.reduction(8, x),
    "layernorm: rows": lambda x: work.layernorm(x, 8),
    "layernorm: columns": lambda x: work.layernorm(8, x),
    "rmsnorm: rows": lambda x: work.rmsnorm(x, 8),
    "rmsnorm: columns": lambda x: work.rmsnorm(8, x),
    "softmax: rows": lambda x: work.softmax(x, 8),
    "softmax: columns": lambda x: work.softmax(8, x),
    "attention_scores: batch": lambda x: work.attention_scores(x, 8),
    "attention_scores: q_len": lambda x: work.attention_scores(1, x, 8),
    "attention_scores: heads": lambda x: work.attention_scores(1, 8, heads=x, kv_heads=1),
    "attention_scores: head_dim": lambda x: work.attention_scores(1, 8, head_dim=x),
    "attention_scores: kv_heads": lambda x: work.attention_scores(1, 8, heads=8, kv_heads=x),
    "naive_attention: kv_len": lambda x: work.naive_attention(1, 8, x),
    "flash_attention: q_len": lambda x: work.flash_attention(1, x, 8),
    "flash_attention: block_q": lambda x: work.flash_attention(1, 8, block_q=x),
    "transformer_block: batch": lambda x: work.transformer_block(x, 8, 8, 2, 8),
    "transformer_block: seq": lambda x: work.transformer_block(1, x, 8, 2, 8, kv_len=8),
    "transformer_block: d_model": lambda x: work.transformer_block(1, 8, x, 2, 8),
    "transformer_block: heads": lambda x: work.transformer_block(1, 8, 8, x, 8),
    "transformer_block: d_ff": lambda x: work.transformer_block(1, 8, 8, 2, x),
    "transformer_block: head_dim": lambda x: work.transformer_block(1, 8, 8, 2, 8, head_dim=x),
    "transformer_block: kv_len": lambda x: work.transformer_block(1, 8, 8, 2, 8, kv_len=x),
    "transformer_block: kv_heads": lambda x: work.transformer_block(1, 8, 8, 2, 8, kv_heads=x),
    "all_gather: elements": lambda x: work.all_gather(x, 2),
    "all_gather: chips": lambda x: work.all_gather(8, x),
    "all_reduce: elements": lambda x: work.all_reduce(x, 2),
    "all_reduce: chips": lambda x: work.all_reduce(8, x),
    "nbytes: elements": lambda x: nbytes(x, "bf16"),
    "Figure.over: n": lambda x: CHIP.matrix["bf16"].over(x),
    "significant: digits": lambda x: significant(1.0, x),
}
# Every argument that must be a positive number
POSITIVE: dict[str, Callable[[Any], Any]] = {
    "Roofline: peak": lambda x: Roofline(x, 1),
    "Roofline: bandwidth of hbm": lambda x: Roofline(1, {"hbm": x}),
    "Roofline: vector": lambda x: Roofline(1, 1, vector=x),
    "Roofline: network": lambda x: Roofline(1, 1, network=x),
    "measured: peak": lambda x: ROOF.measured(peak=x),
    "measured: bandwidth of hbm": lambda x: ROOF.measured(levels={"hbm": x}),
    "with_traffic: others['vmem']": lambda x: JOB.with_traffic(vmem=x),
    "reading: passes['a']": lambda x: JOB.reading(a=x),
    "reduction: flops per element": lambda x: work.reduction(8, 8, flops=x),
    "Work: passes['x']": lambda x: Work("w", {"x": 1}, {}, passes={"x": x}),
    "Work: others['l2']": lambda x: Work("w", {"x": 1}, {}, others={"l2": x}),
}
# Every argument that may be zero too
FROM_ZERO: dict[str, Callable[[Any], Any]] = {
    "attainable: intensity": lambda x: ROOF.attainable(x),
    "attainable, mapping: intensity": lambda x: ROOF.attainable({"hbm": x}),
    "bound: intensity": lambda x: ROOF.bound(x),
    "mfu: achieved FLOP/s": lambda x: ROOF.mfu(x),
    "efficiency: achieved FLOP/s": lambda x: ROOF.efficiency(x, 1),
    "efficiency, roof: intensity": lambda x: ROOF.efficiency(1, x),
    "elementwise: flops per element": lambda x: work.elementwise(8, flops=x),
    "elementwise: transcendentals per element": lambda x: work.elementwise(8, transcendentals=x),
    "Work: reads['x']": lambda x: Work("w", {"x": x}, {"y": 1}),
    "Work: writes['y']": lambda x: Work("w", {"x": 1}, {"y": x}),
    "Work: matrix_flops": lambda x: Work("w", {"x": 1}, {}, matrix_flops=x),
    "Work: vector_flops": lambda x: Work("w", {"x": 1}, {}, vector_flops=x),
    "Work: transcendentals": lambda x: Work("w", {"x": 1}, {}, transcendentals=x),
}
# None means "not given", and these take a mapping, or kernels, as well
SKIPPED = {
    *((name, "None") for name in SIZES if name.split()[-1] in ("kv_len", "kv_heads", "block_q")),
    *((name, "None") for name in ("Roofline: vector", "Roofline: network", "measured: peak")),
    ("transformer_block: head_dim", "None"),
    ("attainable: intensity", "{} (dict)"),
    ("bound: intensity", "{} (dict)"),
    ("attainable, mapping: intensity", "{} (dict)"),
    ("efficiency, roof: intensity", "{} (dict)"),
    ("nbytes: elements", "1e+19"),  # a product of sizes may be larger than any size
}


def numbers_for(name: str) -> list[tuple[Any, type[RooflineError], str]]:
    """Return what argument `name` must refuse."""
    rows = [row for row in NUMBERS if (name, row[2]) not in SKIPPED]
    if name in FROM_ZERO:
        return [row for row in rows if row[2] not in ("0 (int)", "0.0")]
    return rows + [r for r in FRACTIONS if name in SIZES and (name, r[2]) not in SKIPPED]


# Every argument that is a name, and what the message calls it: the call, a near miss, the nearest,
# one that is allowed
NAMES: dict[str, tuple[Callable[[Any], Any], str, str, str]] = {
    "chip: chip": (rh.chip, "v7z", "v7x", "mi300x"),
    "dtype: data type": (dtype, "bf17", "bf16", "int4"),
    "nbytes: data type": (lambda x: nbytes(1, x), "fp9", "fp8", "fp64"),
    "matmul dtype: data type": (lambda x: work.matmul(8, 8, 8, x), "bfloat61", "bf16", "fp32"),
    "matmul b: data type": (lambda x: work.matmul(8, 8, 8, b=x), "int9", "int8", "fp32"),
    "matmul out: data type": (lambda x: work.matmul(8, 8, 8, out=x), "fp33", "fp32", "fp32"),
    "matmul accumulator: data type": (
        lambda x: work.matmul(8, 8, 8, accumulator=x),
        "flaot32",
        "fp32",
        "fp32",
    ),
    "elementwise dtype: data type": (
        lambda x: work.elementwise(8, dtype=x),
        "bf61",
        "bf16",
        "fp32",
    ),
    "elementwise reads: data type": (
        lambda x: work.elementwise(8, {"x": x}),
        "bf61",
        "bf16",
        "fp32",
    ),
    "elementwise writes: data type": (
        lambda x: work.elementwise(8, 1, {"y": x}),
        "bf61",
        "bf16",
        "fp32",
    ),
    "relu dtype: data type": (lambda x: work.relu(8, x), "bf61", "bf16", "fp32"),
    "gelu dtype: data type": (lambda x: work.gelu(8, x), "bf61", "bf16", "fp32"),
    "swiglu dtype: data type": (lambda x: work.swiglu(8, x), "bf61", "bf16", "fp32"),
    "add dtype: data type": (lambda x: work.add(8, x), "bf61", "bf16", "fp32"),
    "dropout dtype: data type": (lambda x: work.dropout(8, x), "bf61", "bf16", "fp32"),
    "dropout mask: data type": (lambda x: work.dropout(8, mask=x), "boool", "bool", "fp32"),
    "reduction dtype: data type": (lambda x: work.reduction(8, 8, x), "bf61", "bf16", "fp32"),
    "reduction out: data type": (lambda x: work.reduction(8, 8, out=x), "bf61", "bf16", "fp32"),
    "layernorm dtype: data type": (lambda x: work.layernorm(8, 8, x), "bf61", "bf16", "fp32"),
    "rmsnorm dtype: data type": (lambda x: work.rmsnorm(8, 8, x), "bf61", "bf16", "fp32"),
    "softmax dtype: data type": (lambda x: work.softmax(8, 8, x), "bf61", "bf16", "fp32"),
    "scores dtype: data type": (
        lambda x: work.attention_scores(1, 8, dtype=x),
        "bf61",
        "bf16",
        "fp32",
    ),
    "naive dtype: data type": (
        lambda x: work.naive_attention(1, 8, dtype=x),
        "bf61",
        "bf16",
        "fp32",
    ),
    "flash dtype: data type": (
        lambda x: work.flash_attention(1, 8, dtype=x),
        "bf61",
        "bf16",
        "fp32",
    ),
    "block dtype: data type": (
        lambda x: work.transformer_block(1, 8, 8, 2, 8, dtype=x),
        "bf61",
        "bf16",
        "fp32",
    ),
    "block weights: data type": (
        lambda x: work.transformer_block(1, 8, 8, 2, 8, weights=x),
        "int44",
        "int4",
        "fp32",
    ),
    "all_gather dtype: data type": (lambda x: work.all_gather(8, 2, x), "bf61", "bf16", "fp32"),
    "all_reduce dtype: data type": (lambda x: work.all_reduce(8, 2, x), "bf61", "bf16", "fp32"),
    "Work dtype: data type": (lambda x: Work("w", {"x": 1}, {}, dtype=x), "bf61", "bf16", "fp32"),
    "Chip.peak dtype: data type": (CHIP.peak, "fp88", "fp8", "int8"),
    "Chip.peak unit: unit": (lambda x: CHIP.peak("bf16", x), "vektor", "vector", "matrix"),
    "Chip.roofline dtype: data type": (CHIP.roofline, "bf61", "bf16", "fp32"),
    "Chip.roofline unit: unit": (lambda x: CHIP.roofline("bf16", x), "matrx", "matrix", "vector"),
    "Chip.roofline levels: memory level with a published bandwidth on NVIDIA H100 SXM": (
        lambda x: CHIP.roofline(levels=[x]),
        "hmb",
        "hbm",
        "l2",
    ),
    "Chip.roofline network: link of NVIDIA H100 SXM": (
        lambda x: CHIP.roofline(network=x),
        "nvlnk",
        "nvlink",
        "nic",
    ),
    "ridge_at level: memory level": (ROOF.ridge_at, "vram", "vmem", "hbm"),
    "ridge_at unit: unit": (lambda x: ROOF.ridge_at("hbm", x), "metrix", "matrix", "matrix"),
    "attainable level: memory level": (lambda x: ROOF.attainable(1, x), "hbn", "hbm", "vmem"),
    "attainable mapping: memory level": (lambda x: ROOF.attainable({x: 1}), "hbn", "hbm", "vmem"),
    "bound level: memory level": (lambda x: ROOF.bound(1, x), "hbn", "hbm", "vmem"),
    "efficiency level: memory level": (lambda x: ROOF.efficiency(1, 1, x), "hbn", "hbm", "vmem"),
    "Roofline origin: origin": (
        lambda x: Roofline(1, 1, origin=x),
        "mesured",
        "measured",
        "published",
    ),
    "intensity_at: level of matmul": (JOB.intensity_at, "hmb", "hbm", "hbm"),
    "reading: tensor read by matmul": (lambda x: JOB.reading(**{x: 2}), "aa", "a", "b"),
    "fuse keep: tensor made in this chain": (lambda x: work.fuse(JOB, keep=[x]), "cc", "c", "c"),
    "si prefix: SI prefix": (lambda x: rh.si(1, "s", x), "kk", "k", "G"),
}
NOT_NAMES = [(5, "5 (int)"), (True, "True"), (None, "None"), (["bf16"], "['bf16']"), (1.5, "1.5")]
NONE_MEANS_NOT_GIVEN = (
    *("matmul b:", "matmul out:", "dropout mask:", "reduction out:", "block weights:"),
    *("Chip.peak unit:", "Chip.roofline unit:", "Chip.roofline network:", "si prefix:"),
    *("attainable level:", "bound level:", "efficiency level:"),
)


def not_names_for(name: str) -> list[tuple[Any, str]]:
    """Return what argument `name` must refuse: anything but a string."""
    if name.startswith("reading"):  # keywords are strings
        return []
    unhashable = name.startswith("attainable mapping")
    return [
        (value, text)
        for value, text in NOT_NAMES
        if not (value is None and name.startswith(NONE_MEANS_NOT_GIVEN))
        and not (isinstance(value, list) and unhashable)
    ]


# call, error, parts of the message
OTHERS: list[tuple[Callable[[], Any], type[RooflineError], list[str]]] = [
    # shapes that don't fit
    (lambda: work.matmul(TWO, THREE, 8), BadValue, ["broadcast", "m (2,)", "n (3,)"]),
    (lambda: work.matmul(TWO, 8, 8, batch=THREE), BadValue, ["m (2,)", "batch (3,)"]),
    (lambda: work.matmul(8, 8, THREE, splits=TWO), BadValue, ["k (3,)", "splits (2,)"]),
    (lambda: work.matmul(TWO, 8, 8, tile=(THREE, 8)), BadValue, ["got m (2,), tile rows (3,)"]),
    (lambda: work.elementwise(TWO, flops=THREE), BadValue, ["n (2,)", "flops (3,)"]),
    (
        lambda: work.elementwise(TWO, transcendentals=THREE * 0),
        BadValue,
        ["n (2,)", "transcendentals (3,)"],
    ),
    (lambda: work.reduction(TWO, THREE), BadValue, ["rows (2,)", "columns (3,)"]),
    (lambda: work.reduction(TWO, 8, flops=THREE), BadValue, ["rows (2,)", "flops (3,)"]),
    (lambda: work.layernorm(TWO, THREE), BadValue, ["rows (2,)", "columns (3,)"]),
    (lambda: work.softmax(TWO, THREE), BadValue, ["rows (2,)", "columns (3,)"]),
    (lambda: work.attention_scores(TWO, THREE), BadValue, ["batch (2,)", "q_len (3,)"]),
    (lambda: work.flash_attention(TWO, 8, block_q=THREE), BadValue, ["batch (2,)", "block_q (3,)"]),
    (lambda: work.transformer_block(TWO, THREE, 8, 2, 8), BadValue, ["batch (2,)", "seq (3,)"]),
    (lambda: work.transformer_block(TWO, 8, 8, 2, 8, kv_len=THREE + 8), BadValue, ["(2,)"]),
    (lambda: work.transformer_block(1, 8, 8, 2, THREE, kv_len=TWO + 8), BadValue, ["d_ff (3,)"]),
    (lambda: work.all_gather(TWO, THREE + 1), BadValue, ["elements (2,)", "chips (3,)"]),
    (lambda: JOB.reading(a=TWO, b=THREE), BadValue, ["passes['a'] (2,)", "passes['b'] (3,)"]),
    (lambda: Work("w", {"x": TWO}, {"y": THREE}), BadValue, ["reads['x'] (2,)"]),
    (lambda: work.total(work.relu(TWO), work.relu(THREE)), BadValue, ["(2,)", "(3,)"]),
    (lambda: work.fuse(work.relu(TWO), work.relu(THREE, x="y", y="z")), BadValue, ["(2,)", "(3,)"]),
    (lambda: ROOF.time(work.relu(TWO), work.relu(THREE)), BadValue, ["kernel 0 (2,)"]),
    (lambda: ROOF.efficiency(TWO, THREE), BadValue, ["achieved FLOP/s (2,)", "intensity (3,)"]),
    (lambda: ROOF.attainable({"hbm": TWO, "vmem": THREE}), BadValue, ["hbm (2,)", "vmem (3,)"]),
    (lambda: work.matmul(8, TWO, 8, tile=(8, THREE)), BadValue, ["n (2,), tile columns (3,)"]),
    (lambda: work.reduction(8, TWO, flops=THREE), BadValue, [" columns (2,), flops (3,)"]),
    (
        lambda: work.transformer_block(1, 8, 8 * TWO, 2, 8, kv_len=THREE + 8, head_dim=4),
        BadValue,
        ["kv_len (3,), d_model (2,)"],
    ),
    # sizes that contradict each other
    (lambda: work.matmul(8, 8, 8, splits=9), BadValue, ["splits", "at most k (8", "9"]),
    (lambda: work.attention_scores(1, 8, heads=8, kv_heads=3), BadValue, ["8", "multiple", "3"]),
    (lambda: work.flash_attention(1, 9, 8, causal=True), BadValue, ["q_len ≤ kv_len", "9", "8"]),
    (lambda: work.transformer_block(1, 8, 9, 2, 8), BadValue, ["d_model (9)", "heads (2)"]),
    (lambda: work.transformer_block(1, 8, 8, 2, 8, kv_len=7), BadValue, ["kv_len (7)", "8"]),
    (lambda: work.all_reduce(8, 1), BadValue, ["at least 2", "1"]),
    (lambda: work.all_gather(8, [2, 1]), BadValue, ["at least 2", "[2, 1]"[:3]]),
    (lambda: work.elementwise(8, flops=1, transcendentals=2), BadValue, ["16", "8"]),
    (lambda: JOB.reading(a=0.5), BadValue, ["at least 1", "0.5"]),
    (lambda: work.matmul(10**18, 10**18, 10**18, batch=10**18), BadValue, ["1e-60 to 1e60"]),
    # tensors
    (lambda: Work("w", {}, {}), BadValue, ["w must read or write at least one byte", "none"]),
    (lambda: Work("w", {"x": 0}, {}), BadValue, ["at least one byte"]),
    (lambda: Work("w", 5, {}), BadType, ["reads must be a mapping", "5"]),
    (lambda: Work("w", {"x": 1}, ["y"]), BadType, ["writes must be a mapping", "['y']"]),
    (lambda: Work("w", {"x": 1}, {}, others=7), BadType, ["others must be a mapping", "7"]),
    (lambda: Work("w", {1: 1}, {}), BadType, ["name", "reads", "1 (int)"]),
    (lambda: Work(5, {"x": 1}, {}), BadType, ["name must be a name (str), got 5"]),
    (lambda: Work("w", {"x": 1}, {}, passes={"z": 2}), UnknownName, ["'z'", "Allowed: x"]),
    (lambda: Work("w", {"x": 1}, {}, others={"hbm": 2}), BadValue, ["hbm", "reads and writes"]),
    (lambda: JOB.with_traffic(hbm=2), BadValue, ["hbm", "reads and writes"]),
    (lambda: work.elementwise(8, -1), BadValue, ["reads", "0 to 1000", "-1"]),
    (lambda: work.elementwise(8, 1001), BadValue, ["reads", "0 to 1000", "1001"]),
    (lambda: work.elementwise(8, 1.5), BadType, ["reads", "0 to 1000, or a mapping", "1.5"]),
    (lambda: work.elementwise(8, True), BadType, ["reads", "True"]),
    (lambda: work.elementwise(8, "x"), BadType, ["reads", "'x'"]),
    (lambda: work.elementwise(8, None), BadType, ["reads", "None"]),
    (lambda: work.elementwise(8, 1, ["y"]), BadType, ["writes", "['y']"]),
    (lambda: work.elementwise(8, {1: "bf16"}), BadType, ["1 (int)"]),
    (lambda: work.elementwise(8, 0, 0), BadValue, ["at least one byte"]),
    (lambda: work.elementwise(8, name=3), BadType, ["name", "3"]),
    (lambda: work.relu(8, x=3), BadType, ["3 (int)"]),
    (lambda: work.softmax(8, 8, y=None), BadType, ["None"]),
    (lambda: work.matmul(8, 8, 8, tile=5), BadType, ["tile must be a sequence of 2", "5"]),
    (lambda: work.matmul(8, 8, 8, tile=(1, 2, 3)), BadType, ["sequence of 2", "(1, 2, 3)"]),
    (lambda: work.matmul(8, 8, 8, tile="ab"), BadType, ["sequence of 2", "'ab'"]),
    (lambda: work.matmul(8, 8, 8, names="abc"), BadType, ["sequence of 3", "'abc'"]),
    (lambda: work.matmul(8, 8, 8, names=("a", "b")), BadType, ["sequence of 3"]),
    (lambda: work.matmul(8, 8, 8, names=("a", "b", 1)), BadType, ["str", "1 (int)"]),
    (lambda: work.matmul(8, 8, 8, names=("a", "a", "c")), BadValue, ["different", "'a', 'a'"]),
    # flags
    (lambda: work.matmul(8, 8, 8, shared_b=1), BadType, ["shared_b must be True or False", "1"]),
    (
        lambda: work.flash_attention(1, 8, causal="no"),
        BadType,
        ["causal must be True or False", "'no'"],
    ),
    (
        lambda: work.transformer_block(1, 8, 8, 2, 8, gated=0),
        BadType,
        ["gated must be True or False", "0"],
    ),
    (
        lambda: work.transformer_block(1, 8, 8, 2, 8, flash=None),
        BadType,
        ["flash must be True or False", "None"],
    ),
    (lambda: ROOF.time(JOB, overlap="yes"), BadType, ["overlap must be True or False", "'yes'"]),
    # kernels
    (lambda: work.fuse(), BadType, ["at least one kernel", "none"]),
    (lambda: work.total(), BadType, ["at least one kernel", "none"]),
    (lambda: work.fuse([JOB]), BadType, ["must be a Work", "list"]),
    (lambda: work.total(JOB, 3), BadType, ["must be a Work", "3"]),
    (lambda: work.fuse(JOB, JOB), BadValue, ["'c' is made twice"]),
    (lambda: work.fuse(work.relu(8), work.relu(4, x="y", y="z")), BadValue, ["'y'", "16", "8"]),
    (lambda: work.fuse(JOB, keep="c"), BadType, ["keep", "sequence", "'c'"]),
    (lambda: work.fuse(JOB, keep=5), BadType, ["keep", "sequence", "5"]),
    (lambda: work.fuse(JOB, name=5), BadType, ["name", "5"]),
    (lambda: ROOF.time(), BadType, ["at least one kernel", "none"]),
    (lambda: ROOF.time(3), BadType, ["a kernel", "3"]),
    (lambda: ROOF.times(None), BadType, ["a kernel", "None"]),
    (lambda: ROOF.limit("matmul"), BadType, ["a kernel", "'matmul'"]),
    (lambda: Roofline(1, {"l3": 1}).time(JOB), BadValue, ["['hbm']", "['l3']", "none in common"]),
    # rooflines
    (lambda: Roofline(1, {}), BadValue, ["at least one memory level", "none"]),
    (lambda: Roofline(1, [1, 2]), BadType, ["bandwidth of hbm", "one number"]),
    (lambda: Roofline(1, "hbm"), BadType, ["bandwidth of hbm", "'hbm'"]),
    (lambda: Roofline(1, {1: 1}), BadType, ["levels", "1 (int)"]),
    (lambda: Roofline(1, {"network": 1}), BadValue, ["'network'", "argument of its own"]),
    (lambda: Roofline(1, {"hbm": 1, "matrix": 1}), BadValue, ["'matrix'"]),
    (lambda: Roofline([1, 2], 1), BadType, ["peak", "one number", "2"]),
    (lambda: Roofline(1, 1, vector=False), BadType, ["vector", "False"]),
    (lambda: Roofline(1, 1, network=0), BadValue, ["network", "0"]),
    (lambda: ROOF.measured(), BadType, ["at least one of peak, levels", "none"]),
    (lambda: ROOF.measured(levels={3: 1}), BadType, ["levels", "3"]),
    (lambda: ROOF.attainable({}), BadValue, ["at least one level", "none"]),
    (lambda: ROOF.bound({}), BadValue, ["at least one level", "none"]),
    (lambda: ROOF.attainable({"hbm": {}}), BadValue, ["level='hbm'", "plain intensity", "{}"]),
    (lambda: ROOF.attainable({"l2": 1}), UnknownName, ["'l2'", "Allowed: hbm, vmem"]),
    (lambda: ROOF.attainable({"hbm": {"hbm": 1}}, "hbm"), BadValue, ["level='hbm'"]),
    (lambda: ROOF.attainable(JOB, "hbm"), BadValue, ["level='hbm'", "plain intensity", "Work"]),
    (lambda: ROOF.bound({"hbm": 1}, "hbm"), BadValue, ["level='hbm'", "plain intensity"]),
    (lambda: ROOF.efficiency(1, 0), BadValue, ["intensity 0"]),
    (lambda: ROOF.efficiency(1, work.elementwise(8, flops=0)), BadValue, ["0 FLOP/s"]),
    (lambda: ROOF.ridge_at("hbm", "vector"), UnknownName, ["'vector'", "Allowed: matrix"]),
    (lambda: ROOF.attainable("v7x"), BadType, ["intensity", "'v7x'"]),
    # chips
    (lambda: CHIP.roofline(levels=3), BadType, ["levels", "sequence of names", "3"]),
    (lambda: CHIP.roofline(levels=None), BadType, ["levels", "None"]),
    (lambda: CHIP.roofline(levels=[]), BadValue, ["at least one memory level"]),
    (lambda: CHIP.roofline(levels=["hbm", "nvlink"]), UnknownName, ["'nvlink'", "hbm, l2"]),
    (lambda: CHIP.roofline(network="ici"), UnknownName, ["H100", "'ici'", "Allowed: nvlink"]),
    (lambda: CHIP.peak("int4"), UnknownName, ["H100", "int4", "Allowed: fp64"]),
    (lambda: CHIP.peak("fp32", "matrix"), UnknownName, ["matrix unit", "fp32", "tf32"]),
    (lambda: rh.chip("v7x").roofline("int8"), UnknownName, ["v7x", "int8", "bf16, fp8"]),
    (lambda: rh.chip("v7x").roofline(levels="vmem"), UnknownName, ["v7x", "'vmem'", "hbm"]),
    (lambda: rh.chip("t4").roofline(), UnknownName, ["T4", "bf16", "fp16"]),
    (lambda: rh.chip("v6e").peak("bf16", "vector"), UnknownName, ["vector unit", "bf16"]),
    (lambda: rh.chip("v6e").peak("complex64"), UnknownName, ["'complex64'"]),
    (lambda: rh.chip(""), UnknownName, ["''", "Allowed: v2, v3, v4"]),
    (lambda: rh.chip("v7x\x00"), UnknownName, ["v7x", "Allowed: v2, v3, v4"]),
    (lambda: rh.chip("x" * 10**5), UnknownName, ["...", "Allowed: v2, v3, v4"]),
    (
        lambda: rh.chip(SimpleNamespace(device_kind="cpu")),
        UnknownName,
        ["'cpu'", "Allowed: v2, v3, v4"],
    ),
    (lambda: rh.chip(SimpleNamespace(device_kind=3)), BadType, ["3", "Allowed: v2, v3, v4"]),
    (lambda: rh.chip(np.array([1])), BadType, ["array([1])", "Allowed: v2, v3, v4"]),
    # data types
    (lambda: dtype({}), BadType, ["{} (dict)", "Allowed: fp64"]),
    (lambda: dtype(np.complex64), UnknownName, ["'complex64'", "Allowed: fp64"]),
    (lambda: dtype(object), UnknownName, ["'object'", "Allowed: fp64"]),
    (lambda: dtype(JOB), BadType, ["Work", "Allowed: fp64"]),
    (lambda: work.matmul(8, 8, 8, ""), UnknownName, ["''", "Allowed: fp64"]),
    # showing
    (lambda: rh.si("5", "s"), BadType, ["value", "real number", "'5'"]),
    (lambda: rh.si(None, "s"), BadType, ["value", "None"]),
    (lambda: rh.si(True, "s"), BadType, ["value", "True"]),
    (lambda: rh.si(np.bool_(True), "s"), BadType, ["value", "True"]),
    (lambda: rh.si(3j, "s"), BadType, ["value", "3j"]),
    (lambda: rh.si(np.complex64(3), "s"), BadType, ["value", "complex"]),
    (lambda: rh.si([1, 2], "s"), BadType, ["value", "[1, 2]"]),
    (lambda: rh.si(np.array([1.0]), "s"), BadType, ["value", "array([1.])"]),
    (lambda: rh.si(10**400, "s"), BadValue, ["value", "1e308", "10**400"]),
    (lambda: rh.si(1, "s", digits=0), BadValue, ["digits", "1 to", "0"]),
    (lambda: rh.si(1, "s", digits=18), BadValue, ["digits", "18"]),
    (lambda: rh.si(1, "s", digits=2.5), BadValue, ["digits", "2.5"]),
    (lambda: significant("1"), BadType, ["value", "'1'"]),
    (lambda: significant(1.0, None), BadType, ["digits", "None"]),
    (lambda: rh.check("240", 240), BadType, ["your answer", "number", "'240'"]),
    (lambda: rh.check(True, 1), BadType, ["your answer", "True"]),
    (lambda: rh.check([1, 2], 1), BadType, ["your answer", "[1, 2]"]),
    (lambda: rh.check(-1, 1), BadValue, ["your answer", "-1"]),
    (lambda: rh.check(float("nan"), 1), BadValue, ["your answer", "nan"]),
    (lambda: rh.check(1e400, 1), BadValue, ["your answer", "inf"]),
    (lambda: rh.check(10**400, 1), BadValue, ["your answer", "10**400"]),
    (lambda: rh.check(None, "x"), BadType, ["the solution", "'x'"]),
    (lambda: rh.check(1, None), BadType, ["the solution", "None"]),
    (lambda: rh.check(1, float("inf")), BadValue, ["the solution", "finite", "inf"]),
    (lambda: rh.check(-6, 1, smallest=-5), BadValue, ["your answer", "at least -5", "-6"]),
    (lambda: rh.check(None, float("nan")), BadValue, ["the solution", "finite", "nan"]),
    (lambda: rh.check(1, 1, tolerance=-1), BadValue, ["tolerance", "-1"]),
    (lambda: rh.table([]), BadType, ["rows", "[]"]),
    (lambda: rh.table(5), BadType, ["rows", "mappings"]),
    (lambda: rh.table([1]), BadType, ["rows", "[1]"]),
    (lambda: rh.table([{}]), BadType, ["rows", "[{}]"]),
    (lambda: rh.table([{"a": 1, "b": 0.5}], digits=0), BadValue, ["digits", "0"]),
]

NUMERIC = SIZES | POSITIVE | FROM_ZERO
