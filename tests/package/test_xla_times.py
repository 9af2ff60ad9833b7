"""Times of compiled kernels: the roofline's, the compiler's cycles, XLA's own."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import spec
from compiled_reports import needs, per_chip, report_of
from jax.experimental import io_callback

import roofline
from roofline import xla
from roofline.diagnosis.modelled import case_of
from roofline.xla.kernel import kernel_of
from roofline.xla.roofs import DeviceRoofs, best_peak, chip_roofline, main_dtype, reached_roof
from roofline_helpers import chips


@per_chip
def test_three_times_of_a_product(chip):
    report = report_of("matmul-square", chip)
    product = max(report.kernels, key=lambda kernel: kernel.matrix_flops)
    device = chips.chip(chip).per_device()
    assert product.times["matrix"] == pytest.approx(2 * 1024**3 / float(device.peak("bf16")))
    assert report.time_at_roof == pytest.approx(
        max(product.roof_seconds, report.hbm_bytes / float(device.memory["hbm"].bandwidth))
    )
    assert product.cycle_seconds >= 0.95 * product.times["matrix"]
    assert report.xla_seconds > 0
    clock, how = report.clock
    assert 0.9e9 < clock < 2.5e9
    assert how.partition(":")[0] in ("vendor", "secondary", "derived")


def test_explain_for_a_chip_takes_the_compiler_s_cycles_where_they_are_longer():
    needs("v6e")
    for fn, args, cause in (
        (lambda x: jnp.tanh(jnp.exp(jnp.sin(x))), (spec(4096, 4096),), "transcendentals"),
        (lambda x: x.argmax(1), (spec(4096, 4096, dtype="float32"),), "slow-by-cycles"),
        (lambda x: x + 1, (spec(4096, 4096),), "least-memory-bound"),
    ):
        report = roofline.explain(fn, *args, chip="v6e", progress=False)
        kernel = max(report.kernels, key=lambda kernel: kernel.cycle_seconds or 0.0)
        (row,) = (row for row in case_of(report).rows if row.name == kernel.name)
        assert row.seconds >= kernel.cycle_seconds > kernel.roof_seconds
        assert row.seconds < 1.3 * kernel.cycle_seconds
        assert cause in [found.cause for found in report.findings if row.name in found.kernels]


@pytest.mark.parametrize("sparse", [True, False])
def test_what_the_compiler_has_no_cycles_for_leaves_the_expected_time_open(sparse):
    needs("v6e")

    def summed(x, i):
        return jax.ops.segment_sum(x, i, num_segments=256) if sparse else x.sum(0)

    args = spec(100_000, 64, dtype="float32"), spec(100_000, dtype="int32")
    expected = xla.analyze(summed, *args, chip="v6e").expected
    assert expected
    assert (math.isinf(expected.high), "no cycles for" in expected.why) == (sparse, sparse)
    assert (expected.seconds is None, "at least" in str(expected)) == (sparse, sparse)


def test_a_program_that_calls_the_host_has_no_verdict_and_no_time_for_it():
    needs("v6e")
    x = spec(4096, 4096, dtype="float32")
    size = 4 * 4096**2

    def sine(x):
        return jax.pure_callback(lambda a: np.sin(np.asarray(a)), x, x) + 1

    def printed(x):
        jax.debug.print("{}", x.sum(), ordered=True)
        return x * 2

    for fn, moved in ((sine, 2 * size), (printed, 8)):
        report = roofline.explain(fn, x, chip="v6e", progress=False)
        assert (report.host_bytes, report.bounds, report.time_at_most) == (moved, (), math.inf)
        assert report.time_at_roof == pytest.approx(2 * size / 1.64e12, rel=0.01)  # + 1, * 2
        assert [found.cause for found in report.findings] == ["callback"]

    def large(x):  # the callback's floor is a thousandth of the call
        return printed(jax.lax.fori_loop(0, 100, lambda _, c: c @ c, x))

    assert roofline.explain(large, x, chip="v6e", progress=False).findings[0].cause == "callback"

    def told(x):  # the copy of the carry is what the host reads
        def body(c, _):
            io_callback(lambda c: None, None, c, ordered=True)
            return jnp.tanh(c @ c), None

        return jax.lax.scan(body, x, length=10)[0]

    why = roofline.explain(told, spec(512, 512, dtype="float32"), chip="v6e", progress=False)
    assert [found.cause for found in why.findings] == ["callback"]

    def kept_by_the_host(x):
        there = jax.device_put(jnp.sin(x), jax.memory.Space.Host)
        return jax.device_put(there, jax.memory.Space.Device) + 1

    report = roofline.explain(kept_by_the_host, x, chip="v6e", progress=False)
    assert (report.host_bytes, report.bounds, report.time_at_most) == (2 * size, (), math.inf)
    assert [found.cause for found in report.findings] == ["transfer"]
    assert (
        "67.1 MB to it, 67.1 MB back" in roofline.explain(sine, x, chip="v6e").findings[0].evidence
    )


def test_products_meet_the_peak_of_their_type():
    v6e = chips.chip("v6e")
    h100 = chips.chip("h100")
    bf16 = float(v6e.peak("bf16"))
    peaks = {  # of v6e
        "bf16": bf16,
        "f32": bf16,
        "f32 highest": bf16 / 6,
        "s8": float(v6e.peak("int8")),
        "f4e2m1fn": bf16,  # it has no such peak
    }
    assert {types: chip_roofline(v6e, [types]).peak for types in peaks} == peaks
    assert chip_roofline(v6e, []).peak == bf16
    assert chip_roofline(v6e, ["bf16", "f32 highest"]).peak == bf16 / 6  # the slowest counts
    ours = {
        "f32": "tf32",  # JAX's default
        "f32 highest": "fp32",
        "f8e4m3fn": "fp8",
        "bf16": "bf16",
    }
    assert {types: chip_roofline(h100, [types]).peak for types in ours} == {
        types: float(h100.peak(dtype)) for types, dtype in ours.items()
    }
    assert [main_dtype([types]) for types in ours] == ["fp32", "fp32", "fp8", "bf16"]
    assert main_dtype([]) is None


@pytest.mark.parametrize(
    ("key", "types", "peak", "bandwidth", "network", "floor", "name"),
    [
        ("v5e", ["f32 high"], 197e12 / 3, 819e9, 200e9, None, "TPU v5e f32 high"),
        ("v5p", ["bf16×s8"], 459e12, 2765e9, 600e9, None, "TPU v5p bf16×s8"),
        ("v7x", ["f8e4m3fn"], 2307e12, 3690e9, 300e9, None, "TPU v7x (1 of 2 devices) f8e4m3fn"),
        ("h100", ["c128", "f16"], 67e12, 3350e9, 450e9, 0.96e-6, "NVIDIA H100 SXM c128 f16"),
        ("a100", ["s8"], 624e12, 2039e9, 300e9, 0.96e-6, "NVIDIA A100 80GB SXM s8"),
        ("h200", ["u4"], 989e12, 4800e9, 450e9, 0.8e-6, "NVIDIA H200 SXM u4"),
    ],
)
def test_a_roofline_of_a_device_as_a_whole(key, types, peak, bandwidth, network, floor, name):
    roof = chip_roofline(chips.chip(key).per_device(), types)
    assert roof.peak == pytest.approx(peak)
    assert (dict(roof.levels), roof.network) == ({"hbm": bandwidth}, network)
    assert (roof.floor, roof.name) == (floor, name)


def test_reached_peaks_are_the_best_measured():
    h100 = chips.chip("h100")
    best = best_peak(h100, "bf16")
    assert best == pytest.approx(852e12, rel=1e-3)
    assert best_peak(h100, "tf32") == pytest.approx(best / 2)
    assert (best_peak(h100, "fp32"), best_peak(chips.chip("v6e"), "bf16")) == (None, None)
    assert reached_roof(h100, ["f32"]).peak == pytest.approx(best / 2)
    assert reached_roof(h100, ["bf16"]).peak == best
    sustained = chip_roofline(h100, ["bf16", "f32"], reached=True)
    assert reached_roof(h100, ["bf16", "f32"]) == sustained
    assert DeviceRoofs(h100).over(["bf16"], reached=True).peak == best
    assert DeviceRoofs(h100).over(["bf16"]).peak == 989e12


def row(**fields):
    return xla.Row("k", "fusion", **fields)


def test_a_kernel_is_as_slow_as_its_slowest_ceiling():
    v5p = chips.chip("v5p")
    v6e = chips.chip("v6e")
    exchange = xla.CollectiveOp("k", "all-gather", 10**6, 4 * 10**6, 4, None)
    full = row(
        flops=xla.Flops(matrix=10**9, vector=10**7, declared=10**8),
        read={"hbm": 10**6, "vmem": 10**9},
        written={"hbm": 10**5},
        launches=3,
        collective=exchange,
    )
    kernel = kernel_of(full, DeviceRoofs(v5p))
    assert kernel.times == pytest.approx(
        {
            "matrix": 3 * 1.1e9 / float(v5p.peak("bf16")),
            "vector": 3 * 1e7 / float(v5p.vector["fp32"]),
            "hbm": 3 * 1.1e6 / float(v5p.memory["hbm"].bandwidth),
            "network": 3 * 3e6 / float(v5p.links["ici"]),
        }
    )
    unpublished = kernel_of(full, DeviceRoofs(v6e)).times["vector"]
    assert unpublished == pytest.approx(3 * 1e7 / float(v6e.peak("bf16")))
    assert (kernel.limit, kernel.bound) == ("network", "network")
    assert kernel.roof_seconds == kernel.times["network"]
    assert kernel.traffic == {"hbm": 3.3e6, "vmem": 3e9, "network": 9e6}


# --- what is unknown, and what is only small ------------------------------------------------------


def sines(a):
    return jax.lax.fori_loop(0, 10**6, lambda _, a: jnp.sin(a), a)


def test_single_numbers_in_a_loop_take_their_turns():
    """And beside kernels, too; what they take is no more than a guess."""
    alone = xla.analyze(sines, spec(dtype="float32"))
    beside = xla.analyze(lambda a, x: (sines(a), x * 2), spec(dtype="float32"), spec(64))
    for report in (alone, beside):
        [row] = [row for row in report.rows if row.launches == 10**6]
        assert (row.flops.transcendentals, row.bytes) == (1, 0)
        on_chip = replace(report, target="v6e", platform="tpu")
        assert "latency" in on_chip.bounds
        assert on_chip.expected.seconds is None
        assert 0.3e-3 < on_chip.expected.low <= 1e-3  # a clock each
        assert on_chip.expected.high == math.inf


def test_what_xla_does_not_know_is_no_number():
    """XLA writes −1 for a custom call, −2 where counts overflow."""
    report = xla.analyze(lambda x: x * 2, spec(64))
    for unknown in (-1.0, -2.0):
        wrong = dict.fromkeys(("flops", "bytes accessed", "optimal_seconds"), unknown)
        doubtful = replace(report, xla=wrong)
        assert (doubtful.xla_flops, doubtful.xla_bytes, doubtful.xla_seconds) == (None,) * 3
        [line] = [x for x in doubtful.describe().splitlines() if x.startswith("cost_analysis")]
        assert line.split()[1:] == ["nothing"]


def test_a_loop_of_unknown_length_has_no_time_but_a_least_one():
    def grow(a):
        return jax.lax.while_loop(lambda c: c.sum() < 1e9, lambda c: c @ a, a)

    square = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    report = roofline.analyze(grow, square, chip="v6e")
    assert report.expected is not None
    assert report.expected.seconds is None
    assert "at least" in str(report.expected)
    assert "how often its loop turns" in report.expected.why
    assert report.flops < report.most_flops == float("inf") == report.most_bytes
