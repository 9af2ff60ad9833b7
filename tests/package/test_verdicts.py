"""Verdicts: what overturns them, by hand; and each wrong one that the book once gave."""

import pytest

import roofline_helpers as rh
from roofline import serving
from roofline_helpers import gain, models, verdict, work
from roofline_helpers.chips import assumed_floor
from roofline_helpers.roofline import Kernel
from roofline_helpers.verdicts import Gain, Scenario

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


def test_each_case_is_a_row_of_the_table():
    found = verdict(work.matmul(256, 8192, 8192), "h100")
    assert repr(found) == (
        "<matmul on NVIDIA H100 SXM: depends on the ceilings, at least 42.6 µs to 47.3 µs>"
    )
    assert found.seconds == pytest.approx((142.6e6 / 3350e9, 2 * 2**34 / 726.9e12), rel=1e-3)
    table = found.table()
    assert [table.columns.name, *table.columns] == ["ceilings", "floor", "bound", "least time"]
    assert [(name, *row) for name, row in zip(table.index, table.to_numpy(), strict=True)] == [
        ("published", "without", "memory", "42.6 µs"),
        ("published", "with", "memory", "42.6 µs"),
        ("reached", "without", "compute", "47.3 µs"),
        ("reached", "with", "compute", "47.3 µs"),
    ]
    pair = verdict([work.add(1000), work.relu(1000, x="y", y="z")], "v5e")
    assert [*pair.found] == [
        Scenario("published", floor, between)
        for floor in ("without", "with")
        for between in ("travels", "stays")
    ]
    assert repr(pair) == (
        "<add → relu on TPU v5e: depends on the floor, at least 7.33 ns to 3.24 µs>"
    )
    assert "".join(pair.table().columns) == "betweenboundleast time"


def test_the_words_of_a_gain():
    words = {x: Gain._word_of(x) for x in (1.05, 1.049, 1, 0.953, 1 / 1.05, 0.5)}
    assert [*words.values()] == ["gains", "neither", "neither", "neither", "loses", "loses"]
    h200 = serving.step(models.LLAMA_3_8B, "h200", **TODAY)
    both = gain(today(), h200)
    before, after = (verdict(step).found[Scenario()].seconds for step in (today(), h200))
    assert both.found[Scenario()] == before / after
    assert both.times == (min(both.found.values()), max(both.found.values()))
    assert (both.chip.key, verdict(today(), "v5e").chip.key) == ("h100", "v5e")


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
