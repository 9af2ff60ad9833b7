"""Chips: finding them, their peaks and rooflines, and what one device has."""

import pytest

import roofline_helpers as rh
from roofline_helpers import UnknownName
from roofline_helpers.chips import namesakes


def test_every_chip_is_found_by_all_its_names():
    for chip in rh.all_chips():
        for name in (chip.key, chip.name, *chip.aliases, *chip.device_kinds):
            assert rh.chip(name) is chip
        assert rh.chip(chip) is chip


# As JAX's device_kind, torch.cuda.get_device_name and nvidia-smi print them, with the dense peak of
# 16 bits, TFLOP/s, by which a published MFU divides.
PRINTED = {
    **dict.fromkeys(("TPU v4", "tpu-v4-podslice"), 275),
    **dict.fromkeys(("TPU v5 lite", "tpu-v5-lite-podslice"), 197),
    **dict.fromkeys(("TPU v5", "TPU v5p"), 459),
    **dict.fromkeys(("TPU v6 lite", "tpu-v6e-slice"), 918),
    "TPU7x": 2307,
    **{"Tesla V100-SXM2-16GB": 125, "Tesla V100-SXM2-32GB": 125, "Tesla V100-PCIE-32GB": 112},
    **{"Tesla T4": 65, "NVIDIA A10": 125, "NVIDIA A10G": 70, "NVIDIA A30": 165},
    **{"NVIDIA A40": 149.7, "NVIDIA RTX A6000": 154.85, "NVIDIA GeForce RTX 3090": 71},
    **dict.fromkeys(("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), 312),
    **dict.fromkeys(("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"), 312),
    **{"NVIDIA L4": 121, "NVIDIA L40": 181, "NVIDIA L40S": 362},
    **{"NVIDIA RTX 6000 Ada Generation": 364.2, "NVIDIA GeForce RTX 4090": 165.2},
    **dict.fromkeys(("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB", "h100sxm5"), 989),
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1a2b3c4d-0000-0000-0000-000000000000)": 989,
    **dict.fromkeys(("NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM2e"), 756),
    **dict.fromkeys(("NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA H200 PCIe"), 835.5),
    **dict.fromkeys(("NVIDIA H200", "NVIDIA H800", "NVIDIA GH200 480GB"), 989),
    **{"NVIDIA GH200 144G HBM3e": 989, "NVIDIA H20": 148, "NVIDIA H20-3e": 148},
    **dict.fromkeys(("NVIDIA B200", "NVIDIA B300", "NVIDIA B300 SXM6 AC"), 2250),
    **dict.fromkeys(("NVIDIA GB200", "NVIDIA GB300"), 2500),
    **{"NVIDIA GeForce RTX 5090": 209.5, "NVIDIA A800-SXM4-80GB": 312},
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": 503.8,
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": 439,
    **dict.fromkeys(("AMD Instinct MI300X", "AMD Instinct MI300X OAM", "gfx942"), 1307.4),
    **{"AMD Instinct MI300X VF": 1307.4, "AMD Instinct MI325X": 1300},
    **{"AMD Instinct MI300A": 980.6, "AMD Instinct MI250X": 383},
    **{"AMD Instinct MI350X VF": 2306.9, "AMD Instinct MI355X": 2500, "gfx950": 2500},
}


def test_devices_are_found_by_the_names_that_they_print():
    found = {name: rh.chip(name) for name in PRINTED}
    assert {name: chip.peak(chip.half).value / 1e12 for name, chip in found.items()} == PRINTED
    assert len(PRINTED) > 50


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "Nearest: 'rtx-4090'"),
        ("NVIDIA GeForce RTX 4090 D", "Nearest: 'rtx-4090'"),
        ("NVIDIA A100-SXM-64GB", "unknown chip"),
        ("NVIDIA H100 SXM5 96GB", "unknown chip"),
        ("NVIDIA A10-24Q", "unknown chip"),
        ("A100-SXM", "may be a100-40gb or a100-80gb: name one"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "a part of a GPU"),
        ("cpu", "a CPU isn't in the chip table"),
        ("NVIDIA", "unknown chip"),
        ("", "unknown chip"),
    ],
)
def test_another_chip_with_a_similar_name_is_not_taken_for_it(name, said):
    with pytest.raises(UnknownName, match=said):
        rh.chip(name)


def test_a_short_name_has_namesakes_and_a_whole_one_none():
    assert [chip.key for chip in namesakes("h100")] == ["h100-pcie", "h100-nvl"]
    assert [chip.key for chip in namesakes("gfx950")] == ["mi350x"]
    whole = (name for name in PRINTED if name.startswith(("NVIDIA", "TPU", "AMD", "Tesla", "GPU")))
    assert {name: namesakes(name) for name in whole if namesakes(name)} == {}
    assert namesakes(rh.chip("h100")) == ()


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
    assert rh.chip("h100").roofline(levels=("l2", "hbm")).ridge == pytest.approx(989.5 / 3.35, 1e-3)


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


def test_figures_are_those_of_a_whole_chip_with_units():
    figures = rh.chip("v5e").figures()
    assert (figures["links.ici"].value, figures["links.ici"].unit) == (4 * 50e9, "byte/s")
    units = {path: figures[path].unit for path in ("matrix.bf16", "memory.hbm.capacity")}
    assert units == {"matrix.bf16": "FLOP/s", "memory.hbm.capacity": "byte"}
