"""Measured kernels: the tables stay within what is possible, and the laws err as they say."""

import csv

import numpy as np
import pytest

import roofline
import roofline_helpers as rh
from roofline.network.measured import by_law as by_law_of
from roofline_helpers import measured
from roofline_helpers.measured.laws import least_times
from roofline_helpers.measured.libraries import SIZES
from roofline_helpers.measured.tables import (
    TEXTS,
    TYPES,
    NoData,
    count,
    dtype_in_tables,
    summed_length,
)

MATMUL = rh.work.matmul(4096, 8192, 8192)


def groups(family):
    rows = measured.table(family)
    return rows[rows["dtype"].isin(list(TYPES))].groupby(["chip", "dtype"], observed=True)


@pytest.mark.parametrize("family", SIZES)
def test_no_measured_kernel_beats_the_memory(family):
    """Bytes that the L2 can't hold cross the memory's boundary, at its bandwidth at most."""
    for (on, dtype), rows in groups(family):
        device = rh.chip(on).per_device()
        beyond = np.maximum(count(family, rows, dtype).bytes - device.on_chip[1], 0)
        allowed = beyond / device.memory["hbm"].bandwidth.value
        faster = rows[rows["seconds"].to_numpy() <= 0.98 * allowed]
        assert faster.empty, f"{family}: faster than the memory allows\n{faster}"


@pytest.mark.parametrize("path", sorted(TEXTS.glob("*.tsv")), ids=lambda path: path.name)
def test_a_table_that_is_text_can_be_read_beside_its_family(path):
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    family, problems = path.name.partition(".")[0], []
    allowed = {"chip": {chip.key for chip in rh.all_chips()}, "dtype": {*TYPES, "fp16"}}
    for line, row in enumerate(rows, 2):
        problems += [
            f"line {line}: {name} {row.get(name)!r} is none of {', '.join(sorted(names))}"
            for name, names in allowed.items()
            if row.get(name) not in names
        ]
    assert problems == [], f"{path.name}: {problems[:5]}; see the README.md beside it"
    try:
        table = measured.table(family)
    except KeyError as missing:
        pytest.fail(f"{path.name} has no column {missing} of {family}: see the README.md beside it")
    assert {*rows[0]} == {*table.columns}, "columns that the family doesn't have"
    sizes = table.select_dtypes(["object", "str"])
    assert sizes.empty, f"{path.name}: sizes are whole numbers, got {list(sizes)}"
    assert (table["seconds"] > 0).all()


@pytest.mark.parametrize(
    ("family", "chip", "dtype"),
    [("matmul", "h100", "bf16"), ("matmul", "b200", "nvfp4"), ("decode_attention", "h200", "bf16")],
)
def test_a_law_errs_as_it_says_and_less_than_the_roof(family, chip, dtype):
    law = measured.law(family, chip, dtype)
    rows = measured.table(family)
    rows = rows[(rows["chip"] == law.chip) & (rows["dtype"] == dtype)]
    job = count(family, rows, dtype)
    predicted = law.time(*least_times(job, rh.chip(chip)), summed_length(job))
    off = np.median(np.abs(predicted / rows["seconds"] - 1))
    assert len(rows) == law.shapes + law.left_out
    assert off == pytest.approx(law.law.median, rel=0.25)
    assert law.law.median < 0.5 * law.roof.median


@pytest.mark.parametrize(
    ("types", "named"),
    [
        (("bf16", "mxfp4"), "mxfp4 weights"),
        (("mxfp8", "mxfp4"), "mxfp4 weights, mxfp8"),
        (("bf16", "int4"), "int4 weights"),
        (("fp8 in blocks", "fp8 in blocks"), "fp8 in blocks"),
        (("nvfp4", None), "nvfp4"),
    ],
)
def test_experts_have_the_law_of_both_types(types, named):
    job = rh.work.grouped_matmul(64, 2880, 2880, 128, 4, types[0], weights=types[1])
    law = measured.laws.law_of(job, "b200")
    assert law.dtype == named


def test_the_normal_of_a_matmul_is_the_median_of_those_like_it():
    seconds = measured.seconds_like(MATMUL, "h200")
    normal = measured.expected(MATMUL, "h200")
    assert len(seconds) >= 20
    assert (np.diff(seconds) >= 0).all()
    assert normal.seconds == np.median(seconds)
    assert np.mean((seconds >= normal.low) & (seconds <= normal.high)) >= 0.8
    assert normal.source == f"measured, {len(seconds)} like it"


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (
            lambda: measured.seconds_like(MATMUL, "v6e"),
            rh.UnknownName,
            ["measured kernels", "h100"],
        ),
        (
            lambda: measured.seconds_like(rh.work.matmul(3, 5, 7), "h100"),
            NoData,
            ["0 measured", "at least 20"],
        ),
        (lambda: measured.table("matmull"), rh.UnknownName, ["Nearest: 'matmul'"]),
        (
            lambda: measured.seconds_like(rh.work.matmul(64, 64, 64, "mxfp8"), "b200"),
            NoData,
            ["mxfp8", "8.25"],
        ),
        (
            lambda: measured.seconds_like(rh.work.matmul(64, 64, 64, "fp8", b="int4"), "h100"),
            NoData,
            ["fp8", "4 bits", "mxfp4 weights"],
        ),
        (
            lambda: measured.seconds_like(rh.work.relu(10**6), "h100"),
            NoData,
            ["'relu'", "grouped_matmul"],
        ),
    ],
)
def test_it_refuses_what_it_cannot_know(call, error, parts):
    with pytest.raises(error) as caught:
        call()
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize(("head", "above"), [(64, 0.0234), (128, 0.0117)])
def test_a_law_takes_all_flops_over_the_matrix_peak(head: int, above: float) -> None:
    job = rh.work.flash_attention(8, 4096, 4096, 32, head, 8, causal=True)
    longest = max(measured.laws.least_times(job, rh.chip("h100")))
    assert longest / rh.chip("h100").roofline("bf16").time(job) - 1 == pytest.approx(
        above, abs=1e-4
    )


WIRED = ("a100-80gb", "h100", "h200", "b200", "b300", "gb200")
OPS = {
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-reduce": "all_reduce",
    "all-to-all": "alltoall",
}


def by_table(kind, chip):
    """Return seconds of a collective: measured, of the law, and of the network model."""
    rows = measured.table("collective")
    rows = rows[(rows["chip"] == chip) & (rows["op"] == OPS[kind]) & (rows["dtype"] == "fp16")]
    found = {"law": [], "network": []}
    for size, gpus in zip(rows["bytes"], rows["gpus"], strict=True):
        topology = roofline.network.topology(chip, int(gpus), ceilings="reached")
        whole = size * gpus if kind == "all-to-all" else size
        exchange = roofline.network.collective(kind, float(whole), topology.fast)
        found["network"].append(exchange.seconds)
        found["law"].append(by_law_of(exchange, topology.chip).seconds)
    return rows["seconds"].to_numpy(), np.array(found["law"]), np.array(found["network"])


@pytest.mark.parametrize("kind", OPS)
@pytest.mark.parametrize("chip", WIRED)
def test_collectives_take_what_their_law_says(kind, chip):
    """On messages that were left out, and nearer than the network model, except where it says."""
    law = measured.law(kind, chip, "fp16")
    seconds, by_law, by_network = by_table(kind, chip)
    off, other = (np.abs(predicted / seconds - 1) for predicted in (by_law, by_network))
    assert np.median(off) < max(1.5 * law.law.median, 0.1)
    assert law.law.median < 0.18
    assert law.law.median < law.roof.median / 4
    if (kind, chip) != ("all-gather", "a100-80gb"):
        assert np.median(off) < np.median(other)
    if chip in ("h100", "h200"):
        assert np.median(by_network / seconds) > 1.5


def test_the_law_leaves_what_it_does_not_know():
    for chip, devices, options in (
        ("v6e", "2x4", {}),
        ("gb200", 16, {}),
        ("h100", 8, {"multicast": True}),
    ):
        topology = roofline.network.topology(chip, devices, ceilings="reached", **options)
        exchange = roofline.network.all_reduce(2**25, topology.fast)
        assert by_law_of(exchange, topology.chip) == exchange
    topology = roofline.network.topology("h100", 64, ceilings="reached")
    exchange = roofline.network.all_reduce(2**25, topology.axes)
    inner, outer = by_law_of(exchange, topology.chip).phases
    assert outer == exchange.phases[1]
    assert inner != exchange.phases[0]


def test_a_gpu_pays_for_the_tokens_whose_experts_are_elsewhere():
    """Of twice the tokens and half the experts there are as many rows, and more time."""
    half, quarter = (
        rh.work.grouped_matmul(n * 2**14, 4096, 1536, 128, 8, "nvfp4", local_experts=128 // n)
        for n in (2, 4)
    )
    law = measured.law("grouped_matmul", "b200", "nvfp4")
    assert half.matrix_flops == quarter.matrix_flops
    assert law.seconds(quarter) > 1.05 * law.seconds(half)
    assert summed_length(quarter) - summed_length(half) == 2 * 2 * 2**14 * 4096


@pytest.mark.parametrize(
    ("job", "name"),
    [
        (rh.work.matmul(64, 48, 32, "fp16", b="int8"), "int8 weights"),
        (rh.work.matmul(64, 48, 32, "bf16", b="int4"), "int4 weights"),
        (rh.work.matmul(64, 48, 32, "fp16"), "bf16"),
        (rh.work.matmul(64, 48, 32, "fp4"), "nvfp4"),
    ],
)
def test_the_type_of_a_kernel_as_the_tables_name_it(job, name):
    assert dtype_in_tables(job) == name
