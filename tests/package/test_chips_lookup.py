"""Chips: finding them, their peaks and rooflines, and what one device has."""

import pytest

import roofline_helpers as rh
from roofline_helpers import UnknownName
from roofline_helpers.chips import ReachedRates, assumed_floor, floor_of, namesakes


def test_every_chip_is_found_by_all_its_names():
    for chip in rh.all_chips():
        for name in (chip.key, chip.name, *chip.aliases, *chip.device_kinds):
            assert rh.chip(name) is chip
        assert rh.chip(chip) is chip


# As JAX's device_kind, torch.cuda.get_device_name and nvidia-smi print them, with the dense peak of
# 16 bits, TFLOP/s, by which a published MFU divides.
PRINTED = {
    **dict.fromkeys(("TPU v4", "tpu-v4-podslice", "TPU v4 32GiB"), 275),
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
    "GPU 10: NVIDIA H100 PCIe (UUID: GPU-1a2b3c4d-0000-0000-0000-000000000000)": 756,
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


H100 = "NVIDIA H100 SXM"
ROOFLINES = [  # arguments, peak, levels, vector, network, name
    ({}, 989e12, {"hbm": 3350e9}, 67e12, None, f"{H100} bf16"),
    (
        {"unit": "Vector", "levels": ("l2", "hbm"), "network": "NIC"},
        *(133.8e12, {"hbm": 3350e9, "l2": 5500e9}, 133.8e12, 50e9, f"{H100} bf16 vector"),
    ),
    ({"dtype": "fp32", "network": "nvlink"}, 67e12, {"hbm": 3350e9}, 67e12, 450e9, f"{H100} fp32"),
    ({"reached": True}, 726.9e12, {"hbm": 3178e9}, 51.27e12, None, f"{H100} bf16, reached"),
    (
        {"unit": "vector", "reached": "copy"},
        *(31.58e12, {"hbm": 2999e9}, 31.58e12, None, f"{H100} bf16 vector, reached"),
    ),
    (
        {"dtype": "fp32", "reached": True},
        *(51.27e12, {"hbm": 3178e9}, 51.27e12, None, f"{H100} fp32, reached"),
    ),
    (
        {"levels": "l2", "reached": True},
        *(726.9e12, {"l2": 5500e9}, 51.27e12, None),
        f"{H100} bf16, reached (memory as published)",
    ),
    (
        {"dtype": "fp64", "reached": True},
        *(67e12, {"hbm": 3178e9}, 51.27e12, None, f"{H100} fp64, reached (peak as published)"),
    ),
]


@pytest.mark.parametrize(("asked", "peak", "levels", "vector", "network", "name"), ROOFLINES)
def test_rooflines(asked, peak, levels, vector, network, name):
    roof = rh.chip("h100").roofline(**asked)
    assert roof == rh.Roofline(peak, levels, vector, network, 3.168e-6, name)
    assert [*roof.levels] == [*levels]  # outermost first, however they are asked for


def test_a_chip_without_a_vector_unit_s_peak():
    roof = rh.chip("v7x").roofline("bfloat16", network="ICI")
    assert roof == rh.Roofline(2307e12, 7380e9, network=600e9, name="TPU v7x bf16")


def test_one_device_of_a_chip_has_its_share_of_rates_capacities_and_power():
    for key in ("v3", "v7x", "mi250x"):
        chip = rh.chip(key)
        half = chip.per_device()
        assert (half.name, half.key, half.devices) == (f"{chip.name} (1 of 2 devices)", key, 1)
        parts = half.figures()
        for path, whole in chip.figures().items():
            shared = whole.unit not in ("s", "Hz")
            assert parts[path].value == whole.value / (2 if shared else 1), path
            assert parts[path].sparse == (whole.sparse and whole.sparse / 2)
        assert parts["matrix.bf16"].basis == "derived"
        assert half.reached.sizes == {
            dtype: {side: rate / 2 for side, rate in by_side.items()}
            for dtype, by_side in chip.reached.sizes.items()
        }
    assert rh.chip("v5e").per_device() is rh.chip("v5e")
    notes = rh.chip("v7x").per_device().figures()["links.ici"].note
    assert notes.endswith("/ 12; the chip's figure / 2; 6 links x 50 GB/s")


# --- what was reached ---------------------------------------------------------------------------


def test_the_memory_s_ceiling_is_reading_or_the_stream_that_is_named():
    # an H100 writes faster than it reads, and what reads can't reach that
    assert rh.chip("h100").reached.stream().value == 3178e9
    assert float(rh.chip("h100").reached.streams["write"]) == 3269e9
    unread = ReachedRates(streams={k: rh.chip("h100").reached.streams[k] for k in ("copy", "add")})
    assert float(unread.stream()) == 3051e9  # the fastest
    assert ReachedRates().stream() is None
    with pytest.raises(UnknownName, match=r"stream that was measured 'cpy'.*Nearest: 'copy'"):
        rh.chip("h200").roofline(reached="cpy")


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


def test_figures_have_the_units_of_what_they_are():
    units = set()
    for chip in rh.all_chips():
        for path, figure in chip.figures().items():
            first, *rest = path.split(".")
            kind = rest[0] if first == "reached" else rest[-1] if first == "memory" else first
            units.add(("latency" if rest[-1:] == ["latency"] else kind, figure.unit))
    assert units == {
        *(("matrix", "FLOP/s"), ("vector", "FLOP/s"), ("capacity", "byte"), ("printed", "byte")),
        *(("bandwidth", "byte/s"), ("links", "byte/s"), ("streams", "byte/s"), ("latency", "s")),
        *(("floor", "s"), ("dispatch", "s"), ("clock", "Hz"), ("power", "W")),
    }


def test_a_figure_says_its_unit_basis_source_and_formula():
    h100 = rh.chip("h100")
    assert [str(h100.figures()[path]) for path in ("matrix.fp8", "memory.hbm.bandwidth")] == [
        *("1,979 TFLOP/s", "3,350 GB/s"),
    ]
    source = "How to Scale Your Model, part 12: How to Think About GPUs"
    nvlink = repr(h100.links["nvlink"].total)
    assert nvlink.startswith(f"<450 GB/s, derived: {source}, read 2026-11-20; one way;")
    assert nvlink.endswith("; 18 links x 25 GB/s>")
    assert f'">{source}</a>, read' in h100.links["nvlink"].total._repr_html_()
    assert "<a" not in h100.floor._repr_html_()  # a file, no page
    assert repr(rh.chip("v100")) == "<NVIDIA V100 SXM2 16GB: 125 TFLOP/s in fp16, 16 GB, 900 GB/s>"


def test_a_floor_that_nobody_measured_is_assumed():
    # the shortest published matmul on a TPU's device, and the longest floor that is known
    assert assumed_floor("tpu") == pytest.approx(2 * 128**3 / 2.59e12)  # of half a v7x
    assert assumed_floor("gpu") == assumed_floor("accelerator") == 4.446e-6
    floors = {key: floor_of(rh.chip(key)) for key in ("h100", "h200", "a100")}
    assert floors == {"h100": 3.168e-6, "h200": 2.912e-6, "a100": 4.446e-6}
