"""Verdicts: what overturns them, by hand; and each wrong one that the book once gave."""

import pytest

import roofline_helpers as rh
from roofline import serving
from roofline_helpers import gain, models, verdict, work
from roofline_helpers.chips import assumed_floor
from roofline_helpers.roofline import Kernel
from roofline_helpers.verdicts import Scenario

H100 = rh.chip("h100")
TODAY = {"batch": 8, "context": 2048, "fusion": "none", "attention": "naive"}


def today(**changes):
    return serving.step(models.LLAMA_3_8B, "h100", **{**TODAY, **changes})


# --- the verdicts of the book that were wrong ---------------------------------------------------


def test_a_step_of_241_flop_per_byte_depends_on_the_ceilings_of_an_h100():
    """Published ridge 295: memory. Reached 222: compute. The H200 is compute-bound by both."""
    job = work.matmul(256, 8192, 8192)
    on_h100 = verdict(job, "h100")
    on_h200 = verdict(job, "h200")
    assert (on_h100.word, on_h100.on) == ("depends", ("ceilings",))
    assert (on_h200.word, on_h200.on) == ("compute", ())
    reached = Scenario("reached", "with")
    assert on_h100.found[reached].bound == "compute"
    # and by what was reached, the H200 is the slower one: 47.3 µs and 50.6 µs
    assert on_h100.found[reached].seconds == pytest.approx(47.3e-6, rel=2e-3)
    assert on_h200.found[reached].seconds == pytest.approx(50.6e-6, rel=2e-3)


@pytest.mark.parametrize(
    ("length", "word", "on"),
    [
        (128, "memory", ()),
        (512, "depends", ("between",)),
        (768, "memory", ()),
    ],
)
def test_scores_of_up_to_512_tokens_may_stay_on_a_v5e(length, word, on):
    reached = verdict(work.naive_attention(4, length, heads=32, head_dim=64), "v5e")
    assert (reached.word, reached.on) == (word, on)
    stays = Scenario("published", "without", "stays")
    travels = Scenario("published", "without")
    same = reached.found[stays].seconds == reached.found[travels].seconds
    assert same == (length > 512)


def test_what_two_kernels_pass_on_may_stay_on_the_chip():
    """Of two additions with 6 MiB of traffic each 2 MiB stay: two thirds of the bytes are left."""
    pair = work.add(2**20, y="sum"), work.add(2**20, x="sum", other="x2")
    found = verdict(pair, "h100").found
    travels, stays = (Scenario("published", "without", way) for way in ("travels", "stays"))
    assert found[travels].seconds == pytest.approx(12 * 2**20 / 3.35e12)
    assert found[stays].seconds == pytest.approx(8 * 2**20 / 3.35e12)
    assert {case.between for case in verdict(pair[0], "h100").found} == {"travels"}


def test_with_a_floor_fusing_gains_as_much_as_a_narrow_cache():
    """451 kernels become 227: 1.01 without a floor, 1.11 with one; an 8-bit cache gains 1.06."""
    fused = gain(today(), today(fusion="epilogue", attention="flash"))
    assert (fused.word, fused.on) == ("depends", ("floor",))
    after = today(fusion="epilogue", attention="flash")
    assert [sum(k.launches for k in step.kernels) for step in (today(), after)] == [451, 227]
    low, high = fused.times
    assert low == pytest.approx(1.0, abs=0.011)
    assert high == pytest.approx(1.12, abs=0.011)
    cache = gain(today(), today(cache="fp8"))
    assert cache.word == "gains"
    assert cache.times == pytest.approx((1.06, 1.07), abs=0.01)


def test_no_kernel_that_was_profiled_beats_published_roof_and_floor():
    for key, record in rh.measured.device_records().items():
        chip = rh.chip(key)
        for sample in record.samples:
            known = sample.dtype in {**chip.matrix, **chip.vector}
            if not sample.counters or sample.counters.get("kernels") != 1 or not known:
                continue
            moved = sample.counters["dram_read"] + sample.counters["dram_written"]
            seconds = sample.counters["seconds"]
            roof = chip.roofline(sample.dtype)
            assert seconds >= roof.floor, (key, sample.name)
            assert seconds >= moved / roof.bandwidth, (key, sample.name)
            assert seconds >= sample.matrix_flops / roof.peak, (key, sample.name)


# --- how they are made --------------------------------------------------------------------------


def test_the_floor_is_the_chip_s_or_an_assumed_one():
    small = work.add(1000)
    with_floor = Scenario(floor="with")
    assert verdict(small, "h100").found[with_floor].seconds == 3.168e-6
    assert verdict(small, "a100").found[with_floor].seconds == assumed_floor("gpu") == 4.446e-6
    assert (verdict(small, "v5e").word, verdict(small, "v5e").on) == ("depends", ("floor",))


def test_a_list_is_bound_by_what_most_of_its_time_goes_to():
    large = work.matmul(4096, 4096, 4096)
    small = work.add(10**6)
    assert verdict([large, small], "h100").word == "compute"
    many = [large, Kernel(small, launches=10**4)]
    assert verdict(many, "h100").found[Scenario()].bound == "memory"
    assert verdict(many, "h100").found[Scenario(floor="with")].bound == "latency"
    few = Kernel(small, launches=30)  # 54 µs each, and the matmul 139
    assert [verdict([large, *[few] * n], "h100").found[Scenario()].bound for n in (2, 3)] == [
        *("compute", "memory"),
    ]
    seconds = H100.roofline().without_floor().time(large) + 1e4 * 6e6 / 3350e9
    assert verdict(many, "h100").found[Scenario()].seconds == pytest.approx(seconds)


def test_gains():
    four = work.fusion_chain(65536, 4096)
    fusion = gain(four, work.fuse(*four), "v6e", name="fusion")
    assert (fusion.word, fusion.on) == ("gains", ())
    assert repr(fusion) == "<fusion on TPU v6e: gains, 2.5 times as fast>"
    assert gain(work.fuse(*four), four, "v6e").word == "loses"
    product = work.matmul(8192, 8192, 8192)
    for columns, there, back in ((8448, "neither", "neither"), (8704, "loses", "gains")):
        larger = work.matmul(8192, columns, 8192)  # 3 % and 6 % more of all
        assert gain(product, larger, "h100").word == there
        assert gain(larger, product, "h100").word == back
    small = work.fusion_chain(64, 1024)
    assert gain(small, work.fuse(*small), "h100").times == pytest.approx((1.06, 4), abs=0.01)
