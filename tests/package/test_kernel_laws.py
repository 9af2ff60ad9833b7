"""The record of kernels that XLA made, and the laws of their classes."""

from __future__ import annotations

import csv
import itertools
import json
import math
import statistics
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hlo_texts import dot

import roofline_helpers as rh
from measurements import promises
from measurements.kernel_laws import Kind, summary
from measurements.kernels import CHIPS, cases, rows_of
from roofline import evidence
from roofline.diagnosis.ceilings import Ceilings, Roofs
from roofline.network.measured import best_exchange
from roofline.xla import CollectiveOp, Flops, Row
from roofline.xla.expected import (
    CAPTURED,
    LOOPED,
    LOOPED_MOST,
    as_one_call,
    combined,
    expected_features,
    expected_of,
    floor_of_launch,
    like,
)
from roofline.xla.forms import Form
from roofline.xla.kernel import kernel_of
from roofline.xla.ledger import kernels
from roofline.xla.minimum import needed
from roofline.xla.roofs import DeviceRoofs, chip_roofline, least_kernel, reached_roof
from roofline_helpers.measured.kernels import (
    FEWEST,
    Expected,
    Features,
    Neighbours,
    expected_kernel,
    features_of_row,
    interval,
    kernel_laws,
    measured_kernels,
    parts,
)
from roofline_helpers.measured.tables import FOLDER
from tools.diagnoses import report_of

ROWS = measured_kernels()


def errors() -> list[dict[str, str]]:
    with (FOLDER / "kernel-errors.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("key", CHIPS)
def test_the_table_is_made_of_what_was_timed(key: str) -> None:
    remade = [row for case in itertools.islice(cases(key), 40) for row in rows_of(key, case)]
    committed = [row for row in ROWS if row["chip"] == key][: len(remade)]
    assert [{name: str(value) for name, value in row.items()} for row in remade] == committed


def test_no_kernel_of_the_record_beats_its_bound() -> None:
    """Operands that the L2 may hold still don't cross the memory's boundary: those it can't do."""
    for row in ROWS:
        of, chip = features_of_row(row), rh.chip(row["chip"])
        roof = chip.roofline(of.dtype)
        beyond = max(of.bytes - float(chip.memory["l2"].capacity), 0) / roof.bandwidth
        assert float(row["cold_s"]) >= 0.98 * max(beyond, of.flops / roof.peak), row


@pytest.mark.parametrize("key", CHIPS)
def test_the_smallest_kernels_take_about_a_microsecond(key: str) -> None:
    small = [
        float(row["cold_s"])
        for row in ROWS
        if row["chip"] == key and float(row["bytes"]) < 1e5 and row["launches"] == "1"
    ]
    assert 0.5e-6 < min(small) <= least_kernel(rh.chip(key)) < 1.3e-6
    assert np.mean(np.array(small) < least_kernel(rh.chip(key))) < 0.2
    assert least_kernel(rh.chip(key)) < rh.chip(key).floor.value / 2


@pytest.mark.parametrize("name", ["FFT", "LU", "attention"])
def test_the_constants_are_those_that_the_script_fits(name: str) -> None:
    law, _, _ = summary(Kind(name, [row for row in ROWS if row["kind"] == name]))
    committed = kernel_laws().kinds[name]
    assert law.weights == pytest.approx(committed.weights, rel=0.05)
    assert (law.low, law.high) == pytest.approx((committed.low, committed.high), rel=0.05)


def test_eight_in_ten_left_out_kernels_are_inside() -> None:
    left_out = [row for row in errors() if row["left_out"] == "cases"]
    counts = np.array([float(row["cases"]) for row in left_out])
    inside = np.array([float(row["inside"]) for row in left_out])
    assert 0.78 < (counts * inside).sum() / counts.sum() < 0.9
    assert all(
        share > 0.68 for share, n in zip(inside, counts, strict=True) if n >= 10
    )  # of fewer cases one more or less is a tenth
    by_kind = {row["kind"]: float(row["width"]) for row in left_out}
    assert by_kind["stream"] < by_kind["matmul"] < by_kind["convolution"] < by_kind["atomics"]


def test_the_intervals_hold_on_the_table() -> None:
    inside: Counter[bool] = Counter()
    for row in ROWS[::7]:
        found = expected_kernel(features_of_row(row), rh.chip(row["chip"]))
        if found is not None:
            inside[found.low <= float(row["cold_s"]) <= found.high] += 1
    assert 0.78 < inside[True] / inside.total() < 0.93


def test_what_nobody_measured_has_no_time() -> None:
    sort = Features("sort", 4e6, sizes=(1, 10**6, 1))
    assert expected_kernel(sort, rh.chip("h100")) is not None
    assert [expected_features(sort, rh.chip(name)) for name in ("b200", "a100-80gb")] == [None] * 2
    assert expected_kernel(Features("top-k", 4e6, sizes=(64, 10**5, 1)), rh.chip("h100")) is None
    text = """HloModule t
ENTRY %m (a: f32[1048576]) -> f32[1048576] {
  %a = f32[1048576]{0} parameter(0)
  ROOT %c = f32[1048576]{0} custom-call(%a), custom_call_target="theirs"
}"""
    (row,) = kernels(text, "gpu").rows
    found = expected_of(kernel_of(row, DeviceRoofs(rh.chip("h100").per_device())))
    assert (found.seconds, found.high, found.source) == (None, math.inf, "not measured")
    assert found.low == pytest.approx(2 * 4 * 2**20 / 3.35e12)
    assert str(found) == "at least 2.5 µs, not measured"


TYPES = "pred s4 s8 s16 s32 s64 u8 f8e4m3fn f4e2m1fn f16 bf16 f32 f64 c64 c128".split()
MULTIPLIED = {  # where kernels like its own were measured, and the chip has a peak for the type
    "h200": "s8 u8 f8e4m3fn f16 bf16 f32",
    "b200": "f8e4m3fn f4e2m1fn f16 bf16",
    "a100-80gb": "s8 u8 f16 bf16",
    "t4": "",
}


@pytest.mark.parametrize(("key", "known"), MULTIPLIED.items())
def test_a_product_of_a_type_without_a_peak_has_no_time(key: str, known: str) -> None:
    """It runs as any loop does: at least a launch, and nothing raises."""
    device = DeviceRoofs(rh.chip(key).per_device())
    found = {}
    for dtype in TYPES:
        (row,) = kernels(dot().replace("f32", dtype), "gpu").rows
        assert like(row, device.chip) is None  # its memory limits it, if the chip multiplies it
        found[dtype] = expected_of(kernel_of(row, device))
    assert [dtype for dtype in TYPES if found[dtype].seconds] == known.split()
    assert found["s32"].low == least_kernel(device.chip)
    for empty in (dot().replace("32", "0"), dot().replace("16", "0")):  # along, and inside
        (row,) = kernels(empty, "gpu").rows
        assert expected_of(kernel_of(row, device)).seconds is None


def test_an_exchange_takes_its_law_s_time_and_ends_as_far_above() -> None:
    h100 = rh.chip("h100")
    sent = CollectiveOp("k", "all-gather", 10**8, 8 * 10**8, 8, None)
    row = Row("k", "all-gather", launches=3, collective=sent)
    near, found = like(row, h100), expected_of(kernel_of(row, DeviceRoofs(h100)))
    law = rh.measured.law("all-gather", "h100", "fp16")
    assert near
    assert near.good == pytest.approx(7 * law.step + 7e8 / best_exchange("all-gather", 8, h100))
    assert near.usual > 1.01 * near.good
    ends = [3 * near.usual, 3 * near.good, 3 * (2 * near.usual - near.good)]
    assert [found.seconds, found.low, found.high] == pytest.approx(ends)


def test_each_launch_of_what_nobody_measured_takes_a_kernel_s_least() -> None:
    h100, odd = rh.chip("h100"), Row("k", "custom-call", launches=3, form=Form("theirs"))
    found = expected_of(kernel_of(odd, DeviceRoofs(h100)))
    assert (found.seconds, found.low) == (None, pytest.approx(3 * least_kernel(h100)))


def test_as_many_kernels_like_it_as_four_are_worth_half() -> None:
    residuals = np.log([2.0] * FEWEST)
    assert interval(1.0, residuals, 4, 0.5, 2.0) == pytest.approx((2**0.5, 1.0, 2.0))
    assert interval(1.0, residuals, 12, 0.5, 2.0) == pytest.approx((2**0.75, 2**0.5, 2.0))
    assert interval(1.0, residuals, 3, 0.5, 2.0) == (1.0, 0.5, 2.0)


def test_parts_that_matter_are_within_a_factor_of_two() -> None:
    shares = np.array([[8.0, 4.0], [8.0, 2.0], [8.0, 1.0], [8.0, 0.0], [8.0, 0.1]])
    near = Neighbours(shares, None, np.full(5, 8.0), None)
    one_tenth = np.nextafter(4.0, 5.0)  # the last bit of a rounding decides nothing
    assert near.like(np.array([8.0, one_tenth]), 0.0).tolist() == [True, True, False, False, False]
    # no part at all is like one that doesn't matter, and unlike one that does
    assert near.like(np.array([8.0, 0.0]), 0.0).tolist() == [False, False, False, True, True]


def test_a_matmul_s_tiles_come_in_waves_of_the_multiprocessors() -> None:
    def waves(m: int, n: int) -> float:
        of = Features("matmul", 1.0, 2.0 * m * 1000 * n, sizes=(m, 1000, n))
        return parts(of, rh.chip("h100"))["waves"]

    one = 132 * 2 * 128 * 128 * 1000 / 989.4e12  # of all tiles of 128 × 128 at the peak
    for m, n, wave in ((12, 11, 1), (133, 1, 2), (264, 1, 2), (265, 1, 3)):
        assert waves(128 * m, 128 * n) == pytest.approx(wave * one, rel=1e-3)
    assert waves(128 * 131 + 1, 1) == waves(128, 128)


def test_a_thread_takes_four_elements_or_two_or_one() -> None:
    def blocks(n: int) -> float:
        return parts(Features("stream", 1.0, sizes=(n,)), rh.chip("h100"))["blocks"]

    # a million elements of four a thread, 128 threads a block, 1.65 blocks a nanosecond
    assert blocks(2**20) == pytest.approx(2048 / 1.65e9)
    assert [blocks(2**20 + n) / blocks(2**20) for n in (2, 1)] == pytest.approx([2, 4], rel=1e-5)


def test_a_kernel_like_no_other_has_the_interval_of_a_family_that_was_left_out() -> None:
    found = expected_kernel(Features("stream", 1e13, sizes=(10**12,)), rh.chip("h100"))
    assert found.source == "its class, stream"
    file = json.loads((FOLDER / "kernel-laws.json").read_text("utf-8"))["kinds"]["stream"]
    ends = [end / (found.seconds or 1.0) for end in (found.low, found.high)]
    assert ends == pytest.approx(file["wide"])
    assert ends[0] < file["low"]


def test_a_case_that_was_measured_often_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    of, h100 = Features("stream", 3e8, sizes=(5 * 10**7,)), rh.chip("h100")
    law = kernel_laws().kinds["stream"]
    shares = np.tile(law.shares(parts(of, h100)), (5, 1))
    for names, source in (("aabbc", "its class, stream"), ("aabcd", "measured, 4 like it")):
        near = Neighbours(shares, np.ones(5), law.seconds(shares), np.array(list(names)))
        monkeypatch.setattr(
            "roofline_helpers.measured.kernels.neighbours", lambda kind, near=near: near
        )
        found = expected_kernel(of, h100)
        assert found is not None
        assert found.source == source


ROUGHLY = Expected(1e-3, 0.8e-3, 1.3e-3, "its class, sort")


def test_kernels_add_up_with_errors_that_are_partly_their_own() -> None:
    h100 = rh.chip("h100")
    sums = [combined([ROUGHLY] * n, n * 1e-3, h100) for n in (1, 4, 100)]
    relative = [(found.high - found.low) / (found.seconds or 1.0) for found in sums]
    assert relative[0] == pytest.approx(0.5)
    assert relative[0] > relative[1] > relative[2] > 0.5 * kernel_laws().call.correlation ** 0.5
    # four: of errors that are alike the sum counts, of the others the root of the squares' sum
    share = kernel_laws().call.correlation
    ends = [math.sqrt(share * (4 * end) ** 2 + (1 - share) * 4 * end**2) for end in (0.2, 0.3)]
    assert sums[1].low == pytest.approx((4 - ends[0]) * 1e-3)
    assert sums[1].high == pytest.approx((4 + ends[1]) * 1e-3)
    call = as_one_call(sums[2], [1] * 100, h100)
    assert call.seconds == pytest.approx(0.1 + 99 * kernel_laws().call.gap)
    open_ended = combined([ROUGHLY, Expected(None, 2e-4, math.inf)], 1.2e-3, h100)
    assert (open_ended.seconds, open_ended.high) == (None, math.inf)
    little = combined([ROUGHLY, Expected(None, 1e-5, math.inf)], 1.01e-3, h100)
    assert little.seconds == 1.01e-3
    assert (little.low, little.high) == pytest.approx((0.81e-3, 1.4e-3))  # 1 to 10 times its least


def test_a_turn_costs_what_loops_took_beyond_their_kernels() -> None:
    """Of the H200's record: loops of known length, of turns too short for a CUDA graph."""
    left = []
    for row in evidence.load("settings")["loops"]:
        known = row["loop"] not in ("dynamic", "condition") and row["body"] != "big matmul"
        if known and row["launches"] < CAPTURED - 0.5:
            turns = [row[way][1] / 400 - row["kernels"] for way in ("graphs", "plain")]
            left += [turn / row["launches"] - kernel_laws().call.gap for turn in turns]
    assert len(left) == 24
    assert statistics.median(left) == pytest.approx(LOOPED, abs=0.05e-6)
    assert max(left) == pytest.approx(LOOPED_MOST, abs=0.05e-6)


def test_a_loop_of_short_turns_takes_what_its_launches_do() -> None:
    h200 = rh.chip("h200")
    kernel = Expected(300 * 2e-6, 300 * 1.5e-6, 300 * 2.5e-6, "measured")
    alone, short, long = (
        as_one_call(kernel, launches, h200) for launches in ([1] * 300, [100] * 3, [50] * 6)
    )
    turn = 4 * LOOPED + floor_of_launch(h200)  # three kernels, and the one that counts
    assert short.seconds == pytest.approx((alone.seconds or 0.0) + 100 * turn)
    assert long.seconds == alone.seconds  # a turn of six fits into a graph
    five = as_one_call(kernel, [75] * 4, h200)  # with the one that counts: CAPTURED
    assert five.seconds == alone.seconds
    most = 50 * (7 * LOOPED_MOST + floor_of_launch(h200))  # but it needn't
    assert long.high == pytest.approx(alone.high + most)
    assert short.low == long.low == alone.low
    assert as_one_call(kernel, [1], h200) == kernel  # between one and nothing is no gap
    assert as_one_call(kernel, [100] * 3, rh.chip("v6e")) == kernel


def test_loops_that_nobody_fitted_take_what_is_expected() -> None:
    """Programs of the pairs with a loop: most of their calls lie in the interval."""
    inside = []
    texts = promises.texts()
    for row in json.loads(texts["repairs.json"])["rows"]:
        for side, seconds in row["seconds"].items():
            text = texts[f"{row['name']}/{side}/compiled.hlo"]
            if " while(" not in text:
                continue
            found = report_of(text, "h200", name=row["name"]).expected
            if found is not None and found.seconds is not None:
                inside.append(found.low <= statistics.median(seconds) <= found.high)
    assert len(inside) >= 20
    assert sum(inside) >= 0.8 * len(inside)


ASKED = {  # what an H200 multiplies in, and its peak over the products that one is made of
    "default": ("f32", 494.5e12),
    "high": ("f32 high", 494.5e12),
    "highest": ("f32 highest", 67e12),
    "F32_F32_F32": ("f32 highest", 67e12),
    "TF32_TF32_F32": ("tf32", 494.5e12),
    "TF32_TF32_F32_X3": ("tf32 x3", 494.5e12 / 3),
    "BF16_BF16_F32": ("bf16", 989e12),
    "BF16_BF16_F32_X3": ("bf16 x3", 989e12 / 3),
    "BF16_BF16_F32_X6": ("bf16 x6", 989e12 / 6),
    "BF16_BF16_F32_X9": ("bf16 x9", 989e12),  # which XLA made one product of
}


def test_no_precision_is_measured_faster_than_its_product_needs() -> None:
    h200, rows = rh.chip("h200"), evidence.load("settings")["precisions"]
    assert {row["asked"] for row in rows} == ASKED.keys()
    for row in rows:
        (kind, peak), side = ASKED[row["asked"]], row["side"]
        stated = "".join(f", {text}" for text in row["stated"])
        text = """HloModule product
ENTRY %m (x: f32[S,S], w: f32[S,S]) -> f32[S,S] {
  %x = f32[S,S]{1,0} parameter(0)
  %w = f32[S,S]{1,0} parameter(1)
  ROOT %y = f32[S,S]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}STATED
}"""
        text = text.replace("STATED", stated).replace("S,S", f"{side},{side}")
        work = needed(text)
        assert work.matrix == {kind: 2 * side**3}
        least = max(2 * side**3 / peak, 12 * side**2 / 4.8e12)
        assert work.seconds(h200) == pytest.approx(least, rel=2e-3)
        assert work.seconds(h200) < min(row["seconds"])


@pytest.mark.parametrize(("algorithm", "times"), [("x3", 3), ("x6", 6), ("x9", 1)])
def test_an_algorithm_takes_its_products_times_under_every_roof(algorithm: str, times: int) -> None:
    """As Triton's kernels state them; what one product takes says nothing of several."""
    h200 = rh.chip("h200").per_device()
    rates = Roofs(reached={"bf16": 7e14, "hbm": 4e12, "vector": 5e13})
    for roof in (
        lambda product: chip_roofline(h200, [product]),
        lambda product: reached_roof(h200, [product]),
        lambda product: Ceilings(measured=rates).roof(Row("k", "dot", matrix_types=(product,))),
    ):
        assert roof("bf16").peak == pytest.approx(times * roof(f"bf16 {algorithm}").peak)
    one = Row("k", "dot", matmul=(4096, 4096, 4096), matrix_types=("bf16",))
    one = replace(one, flops=Flops(matrix=2 * 4096**3))
    assert like(one, h200) is not None
    assert like(replace(one, matrix_types=(f"bf16 {algorithm}",)), h200) is None


@pytest.mark.parametrize(
    ("precision", "algorithm", "kind", "measured"),
    [
        ("DEFAULT", "ALG_UNSET", "f32", True),
        ("HIGH", "ALG_UNSET", "f32 high", True),
        ("HIGHEST", "ALG_UNSET", "f32 highest", False),
        ("DEFAULT", "ALG_DOT_F32_F32_F32", "f32 highest", False),
        ("DEFAULT", "ALG_DOT_TF32_TF32_F32", "tf32", True),
        ("DEFAULT", "ALG_DOT_BF16_BF16_F32_X9", "bf16 x9", False),
    ],
)
def test_a_librarys_call_states_its_precision(
    precision: str, algorithm: str, kind: str, measured: bool
) -> None:
    config = {
        "gemm_backend_config": {
            "dot_dimension_numbers": {
                "lhs_contracting_dimensions": ["1"],
                "rhs_contracting_dimensions": ["0"],
            },
            "precision_config": {"operand_precision": [precision] * 2, "algorithm": algorithm},
        }
    }
    text = f"""HloModule product
ENTRY %m (x: f32[1024,1024], w: f32[1024,1024]) -> f32[1024,1024] {{
  %x = f32[1024,1024]{{1,0}} parameter(0)
  %w = f32[1024,1024]{{1,0}} parameter(1)
  ROOT %y = f32[1024,1024]{{1,0}} custom-call(%x, %w), custom_call_target="__cublas$lt$matmul",
    backend_config={json.dumps(config)}
}}"""
    (row,) = kernels(text.replace(",\n    ", ", "), "gpu").rows
    assert row.matrix_types == (kind,)
    found = expected_of(kernel_of(row, DeviceRoofs(rh.chip("h200"))))
    assert (found.seconds is not None) == measured
