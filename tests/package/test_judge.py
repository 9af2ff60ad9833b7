"""One procedure to judge a time: the book's own times, and what it says where nobody knows."""

import math

import pytest

import roofline_helpers as rh
from roofline_helpers import work as w
from roofline_helpers.measured.judging import features_of_work, judged
from roofline_helpers.measured.kernels import Expected

# Times that the book judges, with its verdicts. The other clock of an H200 is its own, 1.83 GHz
TIMES = [
    (w.matmul(8192, 8192, 8192), "h100", 4e-3, None, "far off"),
    (w.matmul(8192, 8192, 8192), "h100", 1.53e-3, 1.19, "normal"),
    (w.matmul(64, 8192, 8192), "h100", 62e-6, None, "slow for its kind"),
    (w.add(16384 * 8192), "h100", 0.60e-3, None, "far off"),
    (w.gelu(2**28), "h100", 386e-6, None, "normal"),
    (w.matmul(384, 8192, 8192), "h200", 83.3e-6, 1.42, "normal"),
    (w.matmul(384, 8192, 8192), "h200", 83.3e-6, None, "slow for its kind"),
    (w.matmul(64, 8192, 8192), "h200", 39.9e-6, None, "normal"),
    (w.matmul(1024, 1024, 1024), "h100", 8.51e-6, None, "slow for its kind"),
    (w.add(10_000_000 // 6), "h200", 4.54e-6, None, "normal"),
    (w.matmul(1, 8192, 8192), "h100", 48e-6, None, "normal"),
    (w.matmul(1025, 10240, 8192), "h100", 347e-6, None, "far off"),
    (w.matmul(4096, 4096, 4096), "h100", 174e-6, None, "normal"),
    (w.matmul(1024, 1024, 1024), "h100", 6.1e-6, None, "normal"),
    (w.matmul(129, 8192, 8192), "a100-80gb", 132e-6, None, "normal"),
    (w.matmul(8192, 32, 2048), "h100", 8.2e-6, None, "impossible"),  # from a cache
    (w.matmul(64, 4096, 4096), "h100", 15.7e-6, None, "normal"),
    (w.softmax(8192, 8192), "h100", 266e-6, None, "far off"),
    (w.layernorm(65536, 4096), "h100", 389e-6, None, "normal"),
]


@pytest.mark.parametrize(("job", "chip", "seconds", "slower", "verdict"), TIMES)
def test_the_book_s_times(job, chip, seconds, slower, verdict):
    clock = None if slower is None else float(rh.chip(chip).clock) / slower
    found = rh.judge(job, chip, seconds, clock)
    assert found.verdict == verdict, found
    assert found.step == {"normal": 7, "impossible": 3}.get(verdict, 6)
    assert found.low <= (found.expected or 0.0) <= found.high
    assert found.least == pytest.approx(
        float(rh.chip(chip).roofline("bf16").without_floor().time(job))
    )


@pytest.mark.parametrize(
    ("seconds", "least", "verdict", "step", "advice"),
    [
        (0.48, 0.5, "impossible", 3, "count again"),
        (0.49, 0.5, "faster than its kind", 7, "move fewer bytes"),  # a clock may be off by 2%
        (0.92, 1.0, "normal", 7, "move fewer bytes"),  # measured ones were as fast
        (0.9, 0.5, "normal", 7, "move fewer bytes"),
        (1.2, 0.5, "normal", 7, "move fewer bytes"),
        (1.21, 0.5, "slow for its kind", 6, "time another implementation in the same program"),
        (1.5, 0.5, "slow for its kind", 6, "time another implementation in the same program"),
        (1.51, 0.5, "far off", 6, "compare the bytes"),
    ],
)
def test_a_time_s_verdict(seconds, least, verdict, step, advice):
    found = judged(seconds, Expected(1.0, 0.9, 1.2, "its class"), least, "memory")
    assert (found.verdict, found.step) == (verdict, step)
    assert found.next.startswith(advice)


def test_what_takes_less_than_ten_microseconds_is_a_launch():
    small = Expected(1e-5, 0.9e-5, 1.2e-5, "its class")
    words = [judged(t, small, 1e-6, "compute").next.partition(":")[0] for t in (0.99e-5, 1e-5)]
    assert words == ["launch fewer kernels", "ask for fewer FLOPs, or a narrower type"]


def test_a_time_that_nobody_knows_is_said():
    unknown = judged(1e-3, Expected(None, 0.5e-3, math.inf), 0.5e-3, "compute")
    assert (unknown.verdict, unknown.expected, unknown.step) == ("not measured", None, 6)
    assert str(unknown) == (
        "1 ms can't be judged: no kernel like it was measured; 500 µs is the least"
    )


def test_the_interval_of_a_law_holds_nine_in_ten_of_its_table():
    found = rh.measured.judging.expected(w.matmul(16, 64, 100_000), "b200")
    assert found.source == "the law of libraries' kernels"
    above, below = found.high / found.seconds, found.seconds / found.low
    rows, law = rh.measured.table("matmul"), rh.measured.law("matmul", "b200", "bf16")
    rows = rows[(rows.chip == "b200") & (rows.dtype == "bf16")][::20]
    took = rows.groupby(["m", "n", "k"]).seconds.min()
    times = [t / law.seconds(w.matmul(*map(int, sides))) for sides, t in took.items()]
    assert 0.85 < sum(1 / below <= t <= above for t in times) / len(times) < 0.95


def test_a_low_clock_excuses_only_what_computes_and_a_quarter_at_most():
    product, stream = w.matmul(8192, 8192, 8192), w.add(2**28)
    least, slow = (rh.judge(product, "h100", 1.6e-3, clock).expected for clock in (None, 0.5e9))
    assert slow == pytest.approx(1.25 * (least or 0.0))
    assert rh.judge(stream, "h100", 1e-3).expected == rh.judge(stream, "h100", 1e-3, 1e9).expected


def test_it_says_where_nobody_knows_and_refuses_what_is_no_count():
    assert rh.judge(w.add(2**28), "v6e", 1e-3).verdict == "not measured"
    assert rh.judge(w.relu(2**26), "b200", 1e-3).source == "not measured"
    with pytest.raises(rh.BadType, match="is needed"):
        rh.judge("matmul", "h100", 1e-3)
    with pytest.raises(rh.BadValue):
        rh.judge(w.add(2**20), "h100", -1.0)
    with pytest.raises(rh.UnknownName):
        rh.judge(w.add(2**20), "h1000", 1.0)


def test_what_a_kernel_s_time_follows_by_its_counts():
    prompts = features_of_work(w.flash_attention(3, 700, 700, 24, 128, 8, causal=True))
    assert prompts
    assert (prompts.kind, prompts.sizes) == ("attention", (3 * 24, 700, 128))
    wider = features_of_work(w.elementwise(301, {"x": "fp32"}, {"y": "bf16"}, 3, "bf16"))
    assert wider
    assert (wider.kind, wider.sizes, wider.operations) == ("stream", (301,), 3)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.8e-3, math.inf, "2 ms (at least 1.8 ms)"),
        (1.981e-3, 2.019e-3, "2 ms"),
        (1.97e-3, 2.01e-3, "2 ms (1.97 ms to 2.01 ms)"),
        (1.99e-3, 2.03e-3, "2 ms (1.99 ms to 2.03 ms)"),
    ],
)
def test_an_expected_time_says_its_ends_where_they_differ(low, high, said):
    assert str(Expected(2e-3, low, high)) == said
