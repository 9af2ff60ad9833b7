"""Chips: finding them, their peaks and rooflines, and what one device has."""

from __future__ import annotations

import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, UnknownName, chips


@pytest.fixture(autouse=True)
def _read_again():
    chips._catalogue.cache_clear()


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
    with pytest.raises(UnknownName, match=r"TPU v7x has no int8 peak. Allowed: bf16, fp8, fp32"):
        rh.chip("v7x").peak("int8")
    with pytest.raises(UnknownName, match=r"vector unit of TPU v7x has no bf16 peak. Allowed: -"):
        rh.chip("v7x").peak("bf16", "vector")


def test_rooflines():
    roof = rh.chip("v7x").roofline("bf16")
    assert (roof.peak, roof.bandwidth, roof.name) == (2307e12, 7380e9, "TPU v7x bf16")
    assert (roof.vector, roof.network, roof.origin) == (None, None, "published")
    assert rh.chip("v7x").roofline() == roof
    assert rh.chip("v7x").roofline("bfloat16", network="ICI").network == 600e9
    assert rh.chip("h100").roofline("fp8").vector == 67e12
    assert rh.chip("a100-80gb").roofline("fp32").ridge == pytest.approx(19.5 / 2.039)


def test_one_v7x_device_is_half_a_chip():
    chip = rh.chip("v7x")
    half = chip.per_device()
    assert half.name == "TPU v7x (1 of 2 devices)"
    assert (half.key, half.devices) == ("v7x", 1)
    assert half.matrix["bf16"].value == 1153.5e12
    assert half.memory["hbm"].bandwidth.value == 3690e9
    assert half.memory["hbm"].capacity.value == 94.75 * 2**30
    assert half.memory["hbm"].printed.value == 96 * 2**30
    assert half.memory["vmem"].capacity.value == 64 * 2**20
    assert half.memory["vmem"].bandwidth is None
    assert half.memory["hbm"].technology == "HBM"
    assert half.memory["hbm"].capacity.unit == "byte"
    assert float(half.links["ici"]) == 300e9
    assert half.power is None
    assert half.roofline().ridge == chip.roofline().ridge
    assert half.per_device() is half
    assert half.matrix["bf16"].basis == "derived"
    assert half.matrix["bf16"].note == "JAX: 2310; the chip's figure / 2"
    assert half.matrix["bf16"].source == chip.matrix["bf16"].source


def test_every_figure_by_its_path():
    figures = rh.chip("h100").figures()
    assert figures["matrix.bf16"].value == 989e12
    assert figures["vector.fp32"].value == 67e12
    assert figures["memory.hbm.capacity"].value == 2 * 42_509_271_040
    assert figures["memory.hbm.printed"].value == 80e9
    assert figures["reached.streams.read"].value == 3.178e12
    assert (figures["floor"].value, figures["floor"].unit) == (3.168e-6, "s")
    assert figures["memory.l2.bandwidth"].value == 5.5e12
    assert figures["links.nvlink"].value == 450e9
    assert (figures["clock"].value, figures["power"].value) == (1.83e9, 700)
    v7x = rh.chip("v7x").figures()
    assert not {"clock", "power", "memory.vmem.bandwidth"} & set(v7x)
    assert len(v7x) == 3 + 3 + 1 + 3 + 2


# --- what was reached ---------------------------------------------------------------------------


def test_a_roofline_of_what_was_reached():
    h100 = rh.chip("h100")
    roof = h100.roofline("bf16", reached=True)
    assert (roof.peak, roof.bandwidth) == (h100.reached.matrix["bf16"].value, 3.178e12)
    assert (roof.origin, roof.name) == ("measured", "NVIDIA H100 SXM bf16, reached")
    assert roof.ridge == pytest.approx(228.8, abs=0.1)
    assert rh.chip("h200").roofline(reached=True).ridge == pytest.approx(148.9, abs=0.1)
    assert roof.vector == h100.reached.vector["fp32"].value
    assert roof.floor == h100.roofline().floor == h100.floor.value


def test_the_memory_s_ceiling_is_reading_or_the_stream_that_is_named():
    h100, h200 = rh.chip("h100"), rh.chip("h200")
    # an H100 writes faster than it reads, and what reads can't reach that
    assert h100.reached.stream() is h100.reached.streams["read"]
    assert float(h100.reached.stream()) < float(h100.reached.stream("write"))
    assert h200.reached.stream() is h200.reached.streams["read"]
    assert h200.roofline(reached="copy").bandwidth == h200.reached.streams["copy"].value
    with pytest.raises(UnknownName, match=r"stream that was measured 'cpy'.*Nearest: 'copy'"):
        h200.roofline(reached="cpy")
    with pytest.raises(UnknownName, match="stream that was measured"):
        rh.chip("v5e").roofline(reached="copy")
    with pytest.raises(BadType, match="reached must be True or False"):
        h100.roofline(reached=1)


def test_what_nobody_measured_stays_published_and_the_name_says_so():
    v7x, v5e = rh.chip("v7x"), rh.chip("v5e")
    fp8 = v7x.roofline("fp8", reached=True)
    assert fp8.name == "TPU v7x fp8, reached (peak as published)"
    assert (fp8.peak, fp8.bandwidth) == (4614e12, 6.421e12)
    mi300x = rh.chip("mi300x").roofline(reached=True)
    assert mi300x.name.endswith("reached (memory as published)")
    assert mi300x.bandwidth == rh.chip("mi300x").roofline().bandwidth
    nothing = v5e.roofline(reached=True)
    assert nothing.origin == "published"
    assert nothing.name == "TPU v5e bf16 (as published: nothing was measured)"
    assert nothing.ridge == v5e.roofline().ridge


def test_a_type_of_the_vector_unit_is_held_against_what_that_reached():
    h100 = rh.chip("h100")
    assert h100.roofline("fp32", reached=True).peak == h100.reached.vector["fp32"].value
    vector = h100.roofline("bf16", "vector", reached=True)
    assert vector.peak == vector.vector == h100.reached.vector["bf16"].value


def test_the_level_that_holds_most_on_the_chip():
    levels = {key: rh.chip(key).on_chip for key in ("v4", "v5e", "h100", "mi300x", "trainium-2")}
    assert levels == {
        "v4": ("cmem", 2**27),
        "v5e": ("vmem", 2**27),
        "h100": ("l2", 50 * 2**20),
        "mi300x": ("llc", 2**28),
        "trainium-2": ("hbm", 0.0),
    }
