"""Conclusions of the chapter collectives: each test would refute one."""

import pytest

import roofline
import roofline_helpers as rh


def test_what_is_not_judged_is_further_off_and_printed() -> None:
    rows = roofline.validation.collectives()
    off = rows.error.abs() > roofline.validation.LARGE
    assert off[~rows.judged].mean() > 3 * off[rows.judged].mean()
    small = rows.bytes < 1e6
    assert off[small].mean() > 2 * off[~small].mean()
    few = rows.collective.isin(["permute", "all-to-all"])
    gpus = ~rows.chip.isin(["v6e", "v7x"])
    assert not (off & gpus & ~few & (rows.bytes >= 1e7)).any()
    assert (rows.error[few] + 1).max() == pytest.approx(2.9, abs=0.05)


def test_an_all_to_all_s_bytes_a_link_are_fixed_for_an_array_and_grow_for_a_chip() -> None:
    def on_a_link(chips: int, of_each: float) -> float:
        ring = roofline.network.topology("v5p", f"{chips}x4x4")["x"]
        return roofline.network.all_to_all(of_each * chips, ring).link_bytes

    for chips in (4, 8, 16):
        assert on_a_link(chips, 1e9 / chips) == pytest.approx(1e9 / 8)
        assert on_a_link(chips, 1e9) == pytest.approx(chips * 1e9 / 8)


def test_servers_small_all_reduces_are_faster_than_any_prediction() -> None:
    """Collectives: NVIDIA's rows on 8 H100s; of large arrays they repeat NCCL's times."""
    sums, own = (rh.measured.table(name) for name in ("collective", "custom_all_reduce"))
    sums, own = (
        rows[(rows.chip == "h100") & (rows.gpus == 8) & (rows.op == "all_reduce")]
        for rows in (sums[sums.dtype == "fp16"], own)
    )
    nccl, server = (rows.set_index("bytes").seconds for rows in (sums, own))
    over = roofline.network.topology("h100", 8, ceilings="reached").fast
    for size in (2**10, 2**17, 2**20):
        ways = (
            roofline.network.all_reduce(size, over, algorithm=way).seconds
            for way in ("ring", "one-shot", "two-shot")
        )
        assert server[size] < nccl[size]
        assert server[size] < 0.5 * min(ways)
    half = [nccl[2**at] / nccl[2 ** (at + 1)] for at in range(10, 16)]  # of a small array's bytes
    assert half[3] == min(half) == pytest.approx(5 / 6, abs=0.02)
    assert server[2**14] < nccl[2**14] / 5
    assert server[2**27] == nccl[2**27]
    rows = rh.measured.table("collective")
    rows = rows[(rows.dtype == "fp16") & (rows.op != "alltoall") & (rows.bytes > 1e7)]
    errors = []
    for (chip, gpus), some in rows.groupby(["chip", "gpus"], observed=True):
        if rh.chip(chip).links:
            host = roofline.network.topology(chip, gpus, ceilings="reached").fast
            for one in some.itertuples():
                kind = str(one.op).replace("_", "-")
                counted = roofline.network.collective(kind, one.bytes, host).seconds
                errors.append(counted / one.seconds - 1)
    assert sum(abs(error) > 0.3 for error in errors) / len(errors) == pytest.approx(0.1, abs=0.01)
    assert max(errors) == pytest.approx(0.46, abs=0.01)
