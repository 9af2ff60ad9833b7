"""Conclusions of the chapter collectives: each test would refute one."""

import pytest

import roofline


def test_what_is_not_judged_is_further_off_and_printed():
    rows = roofline.validation.collectives()
    off = rows.error.abs() > roofline.validation.LARGE
    assert off[~rows.judged].mean() > 3 * off[rows.judged].mean()
    small = rows.bytes < 1e6
    assert off[small].mean() > 2 * off[~small].mean()
    few = rows.collective.isin(["permute", "all-to-all"])
    gpus = ~rows.chip.isin(["v6e", "v7x"])
    assert not (off & gpus & ~few & (rows.bytes >= 1e7)).any()
    assert (rows.error[few] + 1).max() == pytest.approx(2.9, abs=0.05)


def test_an_all_to_all_s_bytes_a_link_are_fixed_for_an_array_and_grow_for_a_chip():
    def on_a_link(chips, of_each):
        ring = roofline.network.topology("v5p", f"{chips}x4x4")["x"]
        return roofline.network.all_to_all(of_each * chips, ring).link_bytes

    for chips in (4, 8, 16):
        assert on_a_link(chips, 1e9 / chips) == pytest.approx(1e9 / 8)
        assert on_a_link(chips, 1e9) == pytest.approx(chips * 1e9 / 8)
