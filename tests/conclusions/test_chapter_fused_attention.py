"""Conclusions of the chapter fused-attention: each test would refute one."""

import itertools
from typing import Any

import jax
import pytest
from conclusions import kept, prose

import roofline
import roofline_helpers as rh
from roofline import xla

LENGTHS = (128, 256, 512, 1024)
ATTENTION: dict[str, Any] = {"batch": 4, "heads": 32, "head_dim": 128}
RECORDED = "2×16×2048×128 bf16"


@pytest.mark.parametrize(
    ("chip", "stays"),
    [
        ("v5e", 512),
        ("v6e", 512),
        ("v7x", 256),
    ],
)
def test_short_scores_stay_on_the_chip(chip: str, stays: int) -> None:
    for length in LENGTHS:
        least = rh.work.flash_attention(q_len=length, **ATTENTION).bytes
        travels = rh.total(*rh.work.naive_attention(q_len=length, **ATTENTION)).bytes
        moved = kept()[f"attention-{length}", chip].hbm_bytes
        assert (moved < 1.6 * least) == (length <= stays), length
        assert (moved > 0.7 * travels) == (length > stays), length


def test_what_xla_s_attention_moves_besides_is_its_result_in_another_layout() -> None:
    for name, length, passes in (("attention", 2048, 3), ("attention-512", 512, 0)):
        report, scores = kept()[name, "v6e"], 4 * 32 * length**2 * 2
        relaid = report.rows[-1]
        assert relaid.role == "change of layout"
        least = rh.work.flash_attention(q_len=length, **ATTENTION).bytes
        assert report.hbm_bytes == passes * scores + least + relaid.bytes
    assert set(kept()["attention-512", "v5e"].rows[-1].read) == {"vmem"}


def test_short_attention_by_jax_s_cudnn_is_slower_only_when_called_from_python() -> None:
    for gpu in rh.measured.device_records().values():
        took = {
            (source, n): gpu.sample(f"flash attention 2×16×{n}×128 bf16", source).seconds
            for source in ("pallas", "cudnn")
            for n in (512, 1024)
        }
        assert all(took["pallas", n] < took["cudnn", n] for n in (512, 1024))
        assert took["pallas", 512] > 0.75 * took["pallas", 1024]
        naive = [gpu.sample(f"naive attention 2×16×{2**n}×128 bf16") for n in range(10, 14)]
        assert min(one.bandwidth for one in naive) > 0.75 * gpu.streams["copy"]
    h200, ratios = rh.measured.device_records()["h200"], {"": [], ", with its gradient": []}
    for causal, n in itertools.product(("", "causal "), (512, 1024, 2048, 4096, 8192)):
        for end in ratios:
            name = f"{causal}flash attention 2×16×{n}×128 bf16, 24 layers in a jit"
            ours, theirs = (h200.sample(name + end, way).seconds for way in ("pallas", "cudnn"))
            if end:
                ahead = (h200.sample(name, way).seconds for way in ("pallas", "cudnn"))
                ours, theirs = (both - one for both, one in zip((ours, theirs), ahead, strict=True))
            ratios[end].append(ours / theirs)
    spans = [f"{min(each):.1f} to {max(each):.1f} times as long" for each in ratios.values()]
    assert all(span in prose("fused-attention") for span in spans)
    name = "flash attention 2×16×256×128 bf16, 24 layers in a jit"
    short = [h200.sample(causal + name, "cudnn").seconds for causal in ("", "causal ")]
    assert [f"{1e6 * each:.0f}" for each in short] == ["19", "10"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "tokens"),
    [
        ("v5e", 131072),
        ("v6e", 131072),
        ("v7x", 65536),
    ],
)
def test_attention_s_lengths_have_an_end(chip: str, tokens: int) -> None:
    """Keys and values of a head and of the next one don't fit into VMEM; a single head's do."""
    if missing := xla.can_compile(chip):
        pytest.skip(f"NOT TESTED for {chip}: {missing}")
    one, two = ([jax.ShapeDtypeStruct((1, n, tokens, 128), "bfloat16")] * 3 for n in (1, 2))
    assert xla.analyze(roofline.kernels.attention, *one, chip=chip).flops > 0
    with pytest.raises(xla.DoesNotFit, match="vmem"):
        xla.analyze(roofline.kernels.attention, *two, chip=chip)


def test_a_clock_is_held_against_ceilings_that_were_reached() -> None:
    """Of attention the ratio by those is the clock's within a tenth; by published ones it isn't."""
    record = rh.measured.device_records()["h100"]
    naive, flash = (
        record.sample(f"{kind} attention 2×16×8192×128 bf16", source).seconds
        for kind, source in (("naive", "jax"), ("flash", "torch"))
    )

    def by_roof(reached: bool | str) -> float:
        roof = rh.chip("h100").roofline("bf16", reached=reached)
        size = ATTENTION | {"q_len": 8192}
        fused = rh.work.flash_attention(**size)
        return float(roof.time(*rh.work.naive_attention(**size)) / roof.time(fused))

    assert abs(naive / flash / by_roof(reached="copy") - 1) < 0.1
    assert by_roof(reached=False) > 1.3 * naive / flash


def test_exponentials_are_a_ceiling_of_attention() -> None:
    """Twice the matmuls' peak on an H100 at heads of 128; two thirds are left if none is hidden."""
    h100 = rh.chip("h100")
    assert h100.clock
    in_a_clock = h100.peak("bf16").value / h100.clock.value / 132
    assert in_a_clock == pytest.approx(4096, rel=2e-3)
    assert 4 * 128 * 16 / in_a_clock == pytest.approx(2, rel=2e-3)
    # 148 SMs of 8192 FLOPs and 16 exponentials: the clock of the B200's peak is plausible
    assert 1.8e9 < rh.chip("b200").peak("bf16").value / 148 / 8192 < 1.9e9
    record = rh.measured.device_records()["h200"]
    units = {one.name: one.state["per clock"] for one in record.group("units")}
    assert all(units[name] == pytest.approx(16, rel=1e-3) for name in units if "add" not in name)
    name = "flash attention 2×16×8192×128 bf16"
    shares, busy = {}, {}
    for source in ("pallas", "cudnn", "torch"):
        one = record.sample(f"{name}, clock counted", source)
        peak = h100.peak("bf16").value * one.state["clock"] / h100.clock.value
        shares[source] = one.matrix_flops / one.seconds / peak
        seen = record.sample(f"{name}, under ncu", source).counters
        assert seen
        assert seen["tensor"] == pytest.approx(shares[source], abs=0.01)  # two clocks agree
        busy[source] = seen["tensor"] + seen["exponentials"]
    assert f"{shares['cudnn']:.0%} of the peak, and to {shares['torch']:.0%}" in prose(
        "fused-attention"
    )
    assert shares["cudnn"] > 2 / 3 + 0.05
    assert busy["cudnn"] > 1 + 1 / 8
    assert shares["pallas"] < 0.51
    assert 0.74 < busy["pallas"] < 0.76


def test_programs_without_keys_leave_the_memory_idle_and_libraries_split_them() -> None:
    """One sequence with 8 KV heads on 132 SMs: time by programs until these fill the GPU."""
    timed = rh.measured.device_records("timed")["h200"]
    reads = {
        parts: timed.sample(
            f"decode attention 1×32×131072×128 bf16, 8 KV heads, Pallas, {parts} splits", "pallas"
        )
        for parts in (1, 4, 16, 32, 64)
    }
    per_program = [reads[parts].bandwidth / (8 * parts) for parts in (1, 4)]
    assert per_program == pytest.approx([40e9] * 2, rel=0.04)
    seconds = {parts: read.seconds for parts, read in reads.items()}
    assert seconds[32] < seconds[16] < seconds[64] < 1.13 * seconds[32]
    bandwidth = rh.chip("h200").roofline().bandwidth
    table = rh.measured.table("decode_attention").query(
        "chip == 'h200' and dtype == 'bf16' and head_dim == 128"
        " and heads == 32 and kv_heads == 8 and batch * kv_len == 65536"
    )
    rates = 65536 * 8 * 128 * 2 * 2 / table.set_index("batch")["seconds"] / bandwidth
    assert {1, 64} < set(rates.index)
    assert 0.7 < rates.loc[:64].min() < rates.loc[:64].max() < 0.8
    few = table[table["batch"] <= 64]  # kernels that read through pages
    assert set(few["library"]) == {"sglang"}


def test_a_chunk_rides_along_for_the_weights_and_reads_the_cache_again() -> None:
    gemms = rh.measured.table("matmul").query(
        "chip == 'h100' and dtype == 'bf16' and n == 8192 and k == 8192"
    )
    took = 1e6 * gemms.set_index("m")["seconds"]
    assert took[256] - took[64] == pytest.approx(6, abs=0.5)
    assert took[192] == pytest.approx(54, abs=0.5)
    roof = rh.chip("h100").roofline("bf16")
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128, "causal": True}

    def bound(tokens: int) -> float:
        """Intensity over the ridge, of a prompt of 8192 tokens in chunks."""
        chunks = [
            rh.work.flash_attention(1, tokens, seen, **heads)
            for seen in range(tokens, 8193, tokens)
        ]
        whole = rh.total(*chunks)
        return float(whole.intensity / roof.ridge)

    assert bound(64) < 1 < bound(256)
    whole, own = (rh.work.flash_attention(1, q, 2560, **heads) for q in (2560, 512))
    assert 512 / 2560 < own.matrix_flops / whole.matrix_flops == pytest.approx(0.36, abs=0.005)


def test_an_h100_reads_keys_and_values_again_from_its_l2() -> None:
    """Without a cache blocks of 128 rows are memory-bound; the counted bytes are not those."""
    size = ATTENTION | {"q_len": 2048}
    tensor = rh.work.flash_attention(**size).bytes / 4
    blocks = {rows: rh.work.flash_attention(block_q=rows, **size) for rows in (64, 128)}
    assert {rh.verdict(work, "h100").word for work in blocks.values()} == {"memory"}
    assert blocks[128].bytes / tensor == 34
    for source in ("pallas", "cudnn", "torch"):
        one = rh.measured.device_records()["h100"].sample(f"flash attention {RECORDED}", source)
        assert one.dram_bytes
        assert 4 < one.dram_bytes / (2 * 16 * 2048 * 128 * 2) < 6.5
        names = " ".join(one.notes)
        assert ("cudnn_generated" in names) == (source != "pallas")
    l2 = rh.chip("h100").memory["l2"]
    assert l2.bandwidth
    assert l2.capacity.value > 2 * 2048 * 128 * 2 * 8  # of eight heads at a time
    matmuls = blocks[64].matrix_flops / rh.chip("h100").roofline("bf16", reached=True).peak
    through = {rows: work.bytes / l2.bandwidth.value / matmuls for rows, work in blocks.items()}
    assert 0.9 < through[128] < 1.2 < 2 < through[64]
    for gpu in ("h100", "h200"):  # programs that share only γ and β
        chain = rh.measured.device_records()[gpu].sample("chain pallas 65536×4096 bf16", "pallas")
        assert chain.dram_bytes == pytest.approx(2 * (4 * 65536 * 4096 + 2 * 4096), rel=1e-3)
