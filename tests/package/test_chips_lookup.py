"""Chips: finding them, their peaks and rooflines, and what one device has."""

import pytest

import roofline_helpers as rh
from roofline_helpers import UnknownName


def test_every_chip_is_found_by_all_its_names():
    for chip in rh.all_chips():
        for name in (chip.key, chip.name, *chip.aliases, *chip.device_kinds):
            assert rh.chip(name) is chip
        assert rh.chip(chip) is chip


def test_peaks_by_unit():
    h100 = rh.chip("h100")
    assert h100.peak().value == 989e12
    assert h100.peak("fp8").value == 1979e12
    assert h100.peak("bf16", "vector").value == h100.peak("bf16", " Vector").value == 133.8e12
    assert h100.peak("fp64").value == h100.peak("fp64", "matrix").value == 67e12
    assert h100.peak("fp32").value == 67e12  # the tensor cores have none: the vector unit's
    with pytest.raises(
        UnknownName, match=r"matrix unit of NVIDIA H100 SXM has no fp32 peak. Allowed: fp64, tf32"
    ):
        h100.peak("fp32", "matrix")


def test_rooflines():
    roof = rh.chip("v7x").roofline("bf16")
    assert (roof.peak, roof.bandwidth, roof.name) == (2307e12, 7380e9, "TPU v7x bf16")
    assert (roof.vector, roof.network) == (None, None)
    assert rh.chip("v7x").roofline() == roof
    assert rh.chip("v7x").roofline("bfloat16", network="ICI").network == 600e9
    assert rh.chip("h100").roofline("fp8").vector == 67e12
    assert rh.chip("a100-80gb").roofline("fp32").ridge == pytest.approx(19.5 / 2.039)


def test_one_v7x_device_is_half_a_chip():
    chip = rh.chip("v7x")
    half = chip.per_device()
    assert half.name == "TPU v7x (1 of 2 devices)"
    assert (half.key, half.devices) == ("v7x", 1)
    peak = half.matrix["bf16"]
    assert (peak.value, peak.basis) == (1153.5e12, "derived")
    assert half.memory["hbm"].bandwidth.value == 3690e9
    assert half.memory["hbm"].capacity.value == 94.75 * 2**30
    assert half.memory["hbm"].printed.value == 96 * 2**30
    assert half.memory["vmem"].capacity.value == 64 * 2**20
    assert half.memory["vmem"].bandwidth is None
    assert float(half.links["ici"]) == 300e9
    assert half.power is None
    assert half.roofline().ridge == chip.roofline().ridge


# --- what was reached ---------------------------------------------------------------------------


def test_a_roofline_of_what_was_reached():
    h100 = rh.chip("h100")
    roof = h100.roofline("bf16", reached=True)
    assert (roof.peak, roof.bandwidth) == (h100.reached.matrix["bf16"].value, 3.178e12)
    assert roof.name == "NVIDIA H100 SXM bf16, reached"
    assert roof.ridge == pytest.approx(228.8, abs=0.1)
    assert rh.chip("h200").roofline(reached=True).ridge == pytest.approx(148.9, abs=0.1)
    assert roof.vector == h100.reached.vector["fp32"].value
    assert roof.floor == h100.roofline().floor == h100.floor.value


def test_the_memory_s_ceiling_is_reading_or_the_stream_that_is_named():
    h100 = rh.chip("h100")
    h200 = rh.chip("h200")
    # an H100 writes faster than it reads, and what reads can't reach that
    assert h100.reached.stream() is h100.reached.streams["read"]
    assert float(h100.reached.stream()) < float(h100.reached.streams["write"])
    assert h200.reached.stream() is h200.reached.streams["read"]
    assert h200.roofline(reached="copy").bandwidth == h200.reached.streams["copy"].value
    with pytest.raises(UnknownName, match=r"stream that was measured 'cpy'.*Nearest: 'copy'"):
        h200.roofline(reached="cpy")


def test_what_nobody_measured_stays_published_and_the_name_says_so():
    v7x, v5e = rh.chip("v7x"), rh.chip("v5e")
    fp8 = v7x.roofline("fp8", reached=True)
    assert fp8.name == "TPU v7x fp8, reached (peak as published)"
    assert (fp8.peak, fp8.bandwidth) == (4614e12, 6.421e12)
    mi300x = rh.chip("mi300x").roofline(reached=True)
    assert mi300x.name.endswith("reached (memory as published)")
    assert mi300x.bandwidth == rh.chip("mi300x").roofline().bandwidth
    nothing = v5e.roofline(reached=True)
    assert nothing.name == "TPU v5e bf16 (as published: nothing was measured)"
    assert nothing.ridge == v5e.roofline().ridge


def test_the_level_that_holds_most_on_the_chip():
    levels = {key: rh.chip(key).on_chip for key in ("v4", "v5e", "h100", "mi300x", "trainium-2")}
    assert levels == {
        "v4": ("cmem", 2**27),
        "v5e": ("vmem", 2**27),
        "h100": ("l2", 50 * 2**20),
        "mi300x": ("llc", 2**28),
        "trainium-2": ("hbm", 0.0),
    }
