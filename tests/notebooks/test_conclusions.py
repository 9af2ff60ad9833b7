"""Conclusions of chapters, from records and hand counts: each test would refute one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import page_numbers
import roofline_helpers as rh
from page_figures import first_kernels
from roofline_helpers import compiled, published
from roofline_helpers.explain import ladder
from roofline_helpers.lab.design import TODAY
from roofline_helpers.show import significant
from tools import books
from tools.notebooks import run as notebooks

PAGES = books.pages()
CHAPTERS = [path.stem for path in books.notebooks()]
GUIDE = [
    "what-is-a-roofline",
    "anatomy",
    "hardware-comparison",
    "arithmetic-intensity",
    "fusion",
    "cost-analysis",
    "misconceptions",
    "limitations",
]
LENGTHS = (128, 256, 512, 1024)
ATTENTION: dict[str, Any] = {"batch": 4, "heads": 32, "head_dim": 128}
RECORDED = "2×16×2048×128 bf16"


def path(name: str) -> Path:
    return books.ROOT / f"notebooks/{name}.ipynb"


@cache
def kept() -> dict[tuple[str, str], Any]:
    return {**compiled.records()}


def prose(name: str) -> str:
    """A page's text: its Markdown, and a notebook's captions and alt texts."""
    path = next(books.ROOT / f"{page}.md" for page in PAGES if Path(page).name == name)
    if path.is_file():
        return path.read_text("utf-8")
    cells = notebooks.load(path.with_suffix(".ipynb")).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    for cell in cells:
        made = cell.metadata.get("mystnb", {})
        texts += [made.get("figure", {}).get("caption", ""), made.get("image", {}).get("alt", "")]
    return "\n\n".join(texts)


@cache
def outputs(name: str) -> str:
    """Return what a chapter's cells show as text, before any answer."""
    cells = notebooks.load(books.ROOT / f"notebooks/{name}.ipynb").cells
    made = [one for cell in cells for one in cell.get("outputs", [])]
    return "\n".join(
        str(one.get("text", "") or one.get("data", {}).get("text/plain", "")) for one in made
    )


def test_the_guides_chapters_come_first_and_in_its_order() -> None:
    toc = yaml.safe_load((books.ROOT / "_toc.yml").read_text("utf-8"))
    first = [Path(entry["file"]).name for entry in toc["parts"][0]["chapters"]]
    assert first == GUIDE
    captions = [part["caption"] for part in toc["parts"]]
    assert captions.index("Measure") < captions.index("Write the kernel")
    assert captions[-2:] == ["Labs", "Reference"]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_needs_only_what_came_before_and_leads_to_what_comes_next(name: str) -> None:
    order = [Path(page).name for page in PAGES]
    text = prose(name)
    needs = re.search(r"\*\*What you need:?\*\*:?(.*)", text)
    assert needs
    for linked in re.findall(r"\]\((?:[\w./-]*/)?([\w-]+)\.(?:ipynb|md)", needs[1]):
        assert order.index(linked) < order.index(name), f"{name} needs {linked}"
    after = re.search(r"^Next: \[.*?\]\((?:[\w./-]*/)?([\w-]+)\.(?:ipynb|md)", text, re.MULTILINE)
    assert after
    assert order[order.index(name) + 1] == after[1]


def test_chapter_1_counts_flops_as_its_peak_does() -> None:
    triad, _ = first_kernels()
    numbers = page_numbers.numbers()
    by_formula = triad.work.bytes / triad.roof.bandwidth / (triad.work.flops / triad.roof.peak)
    assert numbers["triad_ratio"] == f"{by_formula:.0f}"
    assert triad.work.flops == 2 * 2**30  # a multiply-add is two, as on the data sheet
    assert triad.least < triad.measured


def test_a_step_between_two_ridges_is_not_given_one_verdict() -> None:
    step = rh.work.matmul(256, 8192, 8192)
    published = [rh.chip(chip).roofline("bf16") for chip in ("h100", "h200")]
    records = [rh.measure.measured()[chip] for chip in ("h100", "h200")]
    assert [roof.bound(step) for roof in published] == ["memory", "compute"]
    assert [one.roofline("bf16").bound(step) for one in records] == ["compute", "compute"]
    before, after = (one.sample("matmul 256×8192×8192 bf16").seconds for one in records)
    assert after > 1.1 * before
    longer = [one.sample("matmul 512×8192×8192 bf16").seconds for one in records]
    ceilings = [one.roofline("bf16").time(step) for one in records]
    assert longer[1] / longer[0] == pytest.approx(ceilings[1] / ceilings[0], rel=0.02)


def test_a_matmul_held_against_itself_is_said_to_be() -> None:
    record = rh.measure.measured()["h100"]
    sample = record.sample("matmul 8192×8192×8192 bf16")
    assert sample.counters
    assert sample.flops / sample.counters["seconds"] > record.roofline("bf16").peak


def test_the_thresholds_are_those_of_the_records() -> None:
    """What four in five of the best reach, and how far apart two hands' kernels are."""
    kinds = ("chain", "elementwise", "normalisations", "decode", "batched", "attention", "backward")
    by_kernel: dict[tuple[str, ...], list[float]] = {}
    for key, record in rh.measure.measured().items():
        for each in record.samples:
            if each.group not in kinds or not each.name.endswith("bf16") or not each.flops:
                continue
            if each.error or each.seconds < 1e-4:
                continue
            stream = "read" if each.group == "decode" else "copy"
            roof = rh.chip(key).roofline("bf16", reached=stream)
            share = float(roof.efficiency(each.rate, each.intensity))
            by_kernel.setdefault((key, each.group, each.name), []).append(share)
    best: dict[tuple[str, ...], float] = {}
    for name, shares in by_kernel.items():
        best[name[:2]] = max(best.get(name[:2], 0.0), *shares)
    ranked = sorted(best.values())
    assert sum(share >= 0.8 for share in ranked) / len(ranked) == pytest.approx(0.8, abs=0.05)
    apart = [
        min(shares) / max(shares)
        for name, shares in by_kernel.items()
        if len(shares) > 1 and "op by op" not in name[2]
    ]
    assert 0.5 < 0.8 * min(apart) < 0.6
    assert "| 0.8 and more |" in prose("worked-example")
    assert "| less than 0.5 |" in prose("worked-example")


def eight_bit(label: str, dtype: str = "fp8") -> Any:
    return rh.measure.measured()["h100"].sample(f"matmul 8192×8192×8192 {dtype}, {label}")


def test_fp8_is_a_fast_kernel_behind_a_slow_transpose() -> None:
    """On an H100 8-bit products aren't at half rate: they gain about two over bf16."""
    record, chip = rh.measure.measured()["h100"], rh.chip("h100")
    for dtype in ("fp8", "int8"):
        first = eight_bit("compiler's choice", dtype)
        stored = eight_bit("B transposed, compiler's choice", dtype)
        assert first.seconds > 1.45 * stored.seconds
        assert first.state["clock"] > 1.2 * stored.state["clock"]  # power doesn't hold it
        bf16 = eight_bit("B transposed, cuBLASLt", "bf16")
        assert 1.8 < stored.rate / record.peaks["bf16"] < stored.rate / bf16.rate < 2.2
        assert record.peaks[dtype] == stored.rate
    labels = ("", ", fast sums", ", zeros")
    ways = [eight_bit(f"B transposed, cuBLASLt{label}") for label in labels]
    ways += [eight_bit("B transposed, compiler's choice")]
    assert chip.clock
    per_clock = chip.peak("fp8").value / chip.clock.value
    shares = [s.rate / per_clock / s.state["clock"] for s in ways]
    assert [round(100 * min(shares)), round(100 * max(shares))] == [81, 92]
    assert per_clock == pytest.approx(132 * 8192, rel=1e-3)
    # nothing of the H200's two points is a ceiling: both have the transpose in them
    assert not {"fp8", "int8"} & {*rh.measure.measured()["h200"].peaks}
    assert not {"fp8", "int8"} & {*rh.chip("h200").reached.matrix}


def test_an_fp8_flop_costs_half_of_a_bf16_flop_and_the_transpose_half_as_much_again() -> None:
    record = rh.measure.measured()["h100"]

    def joules(name: str) -> float:
        sample = record.sample(f"matmul 8192×8192×8192 {name}")
        return float(sample.state["power"] * sample.seconds)

    stored = joules("fp8, B transposed, compiler's choice")
    for bf16 in ("bf16", "bf16, B transposed, cuBLASLt"):
        assert 0.45 < stored / joules(bf16) < 0.55
    assert joules("fp8") == pytest.approx(1.5 * stored, rel=0.02)
    assert f"{joules('fp8'):.2f} J in place of {stored:.2f}" in prose("what-a-joule-buys")


def test_few_rows_at_the_full_clock_lack_a_kernel_and_not_power() -> None:
    record = rh.measure.measured()["h200"]
    few = {
        (rows, source): record.sample(f"matmul {rows}×8192×8192 bf16", source)
        for rows, source in ((64, "jax"), (128, "jax"), (128, "torch"), (256, "jax"), (512, "jax"))
    }
    full = {key for key, sample in few.items() if sample.state["clock"] > 1.9e9}
    assert full == {(64, "jax"), (128, "jax")}
    assert few[128, "jax"].seconds > 1.5 * few[128, "torch"].seconds
    assert min(few.values(), key=lambda one: one.state["clock"]) is few[256, "jax"]
    efficiency = record.roofline("bf16").efficiency
    assert max(efficiency(few[key].rate, few[key].intensity) for key in full) < 0.5


def test_fp8_steps_on_h100s_agreed_better_with_the_wrong_ceiling() -> None:
    """What their prediction gained from a ceiling with a transpose in it wasn't knowledge."""
    told: dict[str, Any] = {"rh": rh, "training": rh.training}
    cells = notebooks.load(path("can-you-trust-a-roofline")).cells
    exec(next(cell.source for cell in cells if "def with_fp8" in cell.source), told)
    board = rh.scoreboard()
    chosen = board[(board.chip == "h100") & (board.type == "fp8") & (board.kind == "dense")]
    better = 0
    for key, row in chosen.iterrows():
        one = published.published_step(str(key))
        wrong, now = (told["with_fp8"](one, rate) for rate in (told["first"], 1.357e15))
        assert now.seconds == pytest.approx(row["reached s"], rel=1e-6)
        assert now.seconds < wrong.seconds
        better += abs(wrong.seconds / one.seconds - 1) < abs(now.seconds / one.seconds - 1)
    assert (better, len(chosen)) == (4, 5)


def test_quoted_fp8_programs_are_the_compilers() -> None:
    compiled_text = (books.ROOT / "roofline_helpers/data/measured/fp8.hlo.txt").read_text("utf-8")
    for part in (
        "%wrapped_transpose = f8e4m3fn[8192,8192]{0,1} fusion(%bitcast.7.0), kind=kLoop",
        "custom-call(%args_0_.1, %wrapped_transpose, %constant, %constant)",
        'custom_call_target="__cublas$lt$matmul$f8"',
    ):
        assert part in compiled_text
        assert part in prose("measure")


def test_our_matmuls_beside_others_on_the_same_shapes() -> None:
    """Clocks agree below the power limit; squares are slower at it; [K, N] in fp8 stands out."""
    public = rh.benchmarks.table("matmul").set_index(["chip", "dtype", "m", "n", "k"])["seconds"]
    ratios: dict[str, list[float]] = {}
    for key in ("h100", "h200"):
        for s in rh.measure.measured()[key].samples:
            found = re.match(r"matmul (\d+)×(\d+)×(\d+) (bf16|fp8)\b(?!.*zeros)", s.name)
            theirs = public.get((key, found[4], *map(int, found.groups()[:3]))) if found else None
            if found is None or theirs is None or theirs < 30e-6:
                continue
            kind = "few rows" if int(found[1]) < int(found[2]) else found[4]
            kind += f" {s.source}" if kind == "few rows" else ""
            if s.name.endswith(("fp8", "fp8, compiler's choice")):
                kind = "transposed first"
            ratios.setdefault(kind, []).append(s.seconds / theirs)
    spans = {kind: (round(min(each), 2), round(max(each), 2)) for kind, each in ratios.items()}
    assert spans == {
        "few rows torch": (1.0, 1.1),
        "few rows jax": (1.05, 2.4),
        "bf16": (1.08, 1.25),
        "fp8": (0.97, 1.12),
        "transposed first": (1.42, 1.45),
    }
    assert "8 to 25% longer" in prose("measure")
    assert "up to 2.4 times as slow" in prose("measure")


def test_launches_are_a_floor_and_not_an_addition() -> None:
    record = rh.measure.measured()["h100"]
    small = record.sample("matmul 64×64×64 bf16").seconds
    large = record.sample("matmul 2048×2048×2048 bf16")
    assert large.counters
    assert large.seconds < 0.8 * (small + large.counters["seconds"])


def tail(report: Any) -> float:
    """Return a report's cycles over its roof."""
    return float(report.cycle_seconds / report.time_at_roof)


def test_cycles_do_not_show_exponentials() -> None:
    """The control: sums and maxima without an exponential are farther from the roof."""
    above = {name: tail(kept()[f"control-{name}", "v6e"]) for name in ("sum", "max", "exp-sum")}
    assert min(above["sum"], above["max"]) > 2 * above["exp-sum"] > 4


@pytest.mark.parametrize(("chip", "stays"), [("v5e", 512), ("v6e", 512), ("v7x", 256)])
def test_short_scores_stay_on_the_chip(chip: str, stays: int) -> None:
    for length in LENGTHS:
        least = rh.work.flash_attention(q_len=length, **ATTENTION).bytes
        travels = rh.total(*rh.work.naive_attention(q_len=length, **ATTENTION)).bytes
        moved = kept()[f"attention-{length}", chip].hbm_bytes
        assert (moved < 1.6 * least) == (length <= stays), length
        assert (moved > 0.7 * travels) == (length > stays), length


def test_attention_s_lengths_have_an_end() -> None:
    """Keys and values of one head, held twice, fill VMEM where the compiler refuses the kernel."""
    for chip, refused in {"v5e": 131072, "v6e": 131072, "v7x": 65536}.items():
        vmem = rh.chip(chip).per_device().memory["vmem"].capacity.value
        assert 2 * 2 * refused * 128 * 2 >= vmem > 2 * 2 * refused // 2 * 128 * 2


def test_a_clock_is_held_against_ceilings_that_were_reached() -> None:
    """Of attention the ratio by those is the clock's within a tenth; by published ones it isn't."""
    record = rh.measure.measured()["h100"]
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
    shares = {}
    for gpu, record in rh.measure.measured().items():
        for source in ("pallas", "cudnn", "torch") if record.chip else ():
            one = record.sample("flash attention 2×16×8192×128 bf16", source)
            peak = h100.peak("bf16").value * one.state["clock"] / h100.clock.value
            shares[gpu, source] = one.matrix_flops / one.seconds / peak
    hidden = {key for key, share in shares.items() if share > 0.68}
    assert hidden == {("h100", "cudnn"), ("h100", "torch")}
    assert all(0.66 < shares["h200", source] < 0.68 for source in ("cudnn", "torch"))
    assert all(shares[gpu, "pallas"] < 0.5 for gpu in ("h100", "h200"))


def test_an_h100_reads_keys_and_values_again_from_its_l2() -> None:
    """Without a cache blocks of 128 rows are memory-bound; the counted bytes are not those."""
    size = ATTENTION | {"q_len": 2048}
    tensor = rh.work.flash_attention(**size).bytes / 4
    blocks = {rows: rh.work.flash_attention(block_q=rows, **size) for rows in (64, 128)}
    assert {rh.verdict(work, "h100").word for work in blocks.values()} == {"memory"}
    assert blocks[128].bytes / tensor == 34
    for source in ("pallas", "cudnn", "torch"):
        one = rh.measure.measured()["h100"].sample(f"flash attention {RECORDED}", source)
        assert one.dram_bytes
        assert 4 < one.dram_bytes / (2 * 16 * 2048 * 128 * 2) < 6.5
    l2 = rh.chip("h100").memory["l2"]
    assert l2.bandwidth
    assert l2.capacity.value > 2 * 2048 * 128 * 2 * 8  # of eight heads at a time
    matmuls = blocks[64].matrix_flops / rh.chip("h100").roofline("bf16", reached=True).peak
    through = {rows: work.bytes / l2.bandwidth.value / matmuls for rows, work in blocks.items()}
    assert 0.9 < through[128] < 1.2 < 2 < through[64]


def test_bytes_in_flight_fit_what_torch_compile_reaches() -> None:
    """Little's law, at a latency that is assumed: enough for an H100, too few for an H200."""
    rates = {}
    for gpu in ("h100", "h200"):
        one = rh.measure.measured()[gpu].sample("chain compiled 65536×4096 bf16", "torch.compile")
        rates[gpu] = one.bandwidth
    assert rates["h200"] < 1.05 * rates["h100"]
    wants = {gpu: rh.chip(gpu).memory["hbm"].bandwidth.value for gpu in rates}
    assert [f"{wants['h200'] * t / 1e6:.1f}" for t in (600e-9, 800e-9)] == ["2.9", "3.8"]
    assert 0.85 < rates["h200"] / wants["h100"] < 1
    assert rates["h200"] < 0.7 * wants["h200"]
    assert "it is no proof" in prose("fusion-measured")


def test_a_rate_that_kernels_beat_is_not_called_a_ceiling() -> None:
    healthy = next(s.why for s in ladder.committed()["training"].steps if s.rung == "cuDNN")
    assert healthy is not None
    bars = {bar.name: bar.seconds for bar in healthy.waterfall}
    both = bars["ceilings as reached"] + bars["faster than the roof"]
    assert bars["faster than the roof"] < -1e-3
    others = [s for name, s in bars.items() if name not in ("the compiled program",)]
    others.remove(bars["ceilings as reached"])
    assert both > 3 * max(others)  # still the largest
    assert "A ceiling that kernels beat is none" in prose("where-the-time-goes")


def test_one_yardstick_counts_what_is_needed() -> None:
    """PyTorch's ten tensors op by op are no better use of the memory than four in one kernel."""
    shown = outputs("fused-kernel")
    (row,) = (line for line in shown.splitlines() if line.startswith("PyTorch, op by op"))
    record = rh.measure.measured()["h200"]
    needed = 4 * 65536 * 4096 * 2
    taken = record.sample("chain op by op 65536×4096 bf16", "torch").seconds
    share = needed / taken / record.streams["copy"]
    assert abs(float(row.split()[-3]) - share) < 1e-3 < 0.45 - share


def test_launches_gain_more_than_a_narrow_cache_and_bytes_do_not() -> None:
    plain: dict[str, Any] = {"fusion": "none", "attention": "naive"}
    today = rh.serving.step(rh.serving.LLAMA_3_8B, "h100", batch=8, context=2048, **plain)
    fused = {"fusion": "epilogue", "attention": "flash"}

    def gain(start: Any, **change: Any) -> float:
        return float(start.but(**change).tokens_per_second / start.tokens_per_second)

    assert gain(today, **fused) > gain(today, cache="int8") > 1.03
    bare = today.but(floor=False)
    assert gain(bare, **fused) < 1.03 < gain(bare, cache="int8")


def test_a_ring_is_too_slow_for_a_switch_that_adds_and_right_where_it_does_not() -> None:
    rows = rh.published.collectives()
    big = rows[(rows.chip == "h100") & (rows.bytes == 2**31) & (rows.collective == "all-reduce")]
    big = big.set_index("devices")
    bus = 2 * (1 - 1 / big.index) * 2**31 / big["measured µs"] / 1e3
    assert dict(bus.round()) == {2: 250, 4: 302, 8: 402}
    assert big.error[4] == pytest.approx(0, abs=0.01)
    assert big.error[8] == pytest.approx(0.196, abs=0.005)
    assert bus[8] > 370  # what users see of NCCL's ring there, with NVLS off
    host = rh.network.topology("h100", 8, ceilings="reached", multicast=True).fast
    both = {way: rh.network.all_reduce(2**31, host, algorithm=way) for way in ("nvls", "ring")}
    assert both["nvls"].seconds < big["measured µs"][8] / 1e6 < both["ring"].seconds
    # an all-gather has nothing to add, and its ring isn't too slow
    gathers = rows[(rows.chip == "h100") & (rows.bytes == 2**31) & (rows.devices == 8)]
    assert gathers[gathers.collective == "all-gather"].error.abs().max() < 0.06


def test_two_axes_of_a_torus_reached_a_little_more_than_one_after_the_other_could() -> None:
    rows = rh.published.collectives()
    [row] = rows[rows.chip == "v6e"].to_dict("records")
    assert row["bound µs"] / row["measured µs"] == pytest.approx(0.59, abs=0.005)
    assert "reached 59 % of their links" in prose("collectives")


def test_what_is_not_judged_is_further_off_and_printed() -> None:
    rows = rh.published.collectives()
    off = rows.error.abs() > rh.published.LARGE
    counts = (len(rows), int(rows.judged.sum()), int(off.sum()), int((off & rows.judged).sum()))
    assert counts == (847, 557, 163, 55)
    small = rows.bytes < 1e6
    assert (int((off & small).sum()), int(small.sum())) == (104, 372)
    shown = outputs("collectives")
    assert f"{counts[2]} of all measured" in shown
    assert f"{counts[3]} of those judged" in shown


def test_an_all_to_all_s_bytes_a_link_are_fixed_for_an_array_and_grow_for_a_chip() -> None:
    def on_a_link(chips: int, of_each: float) -> float:
        ring = rh.network.topology("v5p", f"{chips}x4x4")["x"]
        return rh.network.all_to_all(of_each * chips, ring).link_bytes

    for chips in (4, 8, 16):
        assert on_a_link(chips, 1e9 / chips) == pytest.approx(1e9 / 8)
        assert on_a_link(chips, 1e9) == pytest.approx(chips * 1e9 / 8)


def test_a_pipeline_gathers_sharded_weights_for_each_microbatch_and_whole_ones_never() -> None:
    place = rh.network.topology("v6e", "16x16", slices=4, ceilings="reached")
    mesh = {"pipeline": "dcn", "fsdp": ("x", "y")}

    def inside(microbatches: int, **options: Any) -> float:
        options |= {"batch": 2048, "seq": 4096, "microbatches": microbatches}
        return rh.training.step("llama-3-8b", place, mesh, **options).networks["x"]

    assert inside(8) == pytest.approx(8 * inside(1), rel=0.01)
    zero_1 = inside(8, sharded=())
    assert zero_1 == pytest.approx(inside(1, sharded=()), rel=0.01)
    assert zero_1 < inside(1)


def test_gradients_hide_between_slices_and_nothing_does_inside_one() -> None:
    report = kept()["whole-llama-4x256x1", "v6e"]
    over: dict[str, list[float]] = {"slice": [0.0, 0.0], "fsdp": [0.0, 0.0]}
    for each in report.exchanges:
        times = over[each.collective.axis or ""]
        times[0] += each.seconds
        times[1] += each.exposed
    assert 0 < over["slice"][1] < 0.05 * over["slice"][0]
    assert over["fsdp"][1] == pytest.approx(over["fsdp"][0])
    # as counted: each chip sends its share of all gradients in bf16 over its host's network
    place = rh.network.topology("v6e", "16x16", slices=4)
    gradients = 2 * rh.models.model("llama-3-8b").parameters / 256
    counted = rh.network.all_reduce(gradients, place["dcn"]).transfer
    assert over["slice"][0] == pytest.approx(counted, rel=0.02)


def test_a_recipe_s_flags_hide_gathers_where_there_are_some() -> None:
    exposed: dict[tuple[str, str], float] = {}
    for name in ("whole-llama-16x4", "whole-llama-16x4-flags"):
        for each in kept()[name, "v5p"].exchanges:
            key = name, each.collective.kind
            exposed[key] = exposed.get(key, 0.0) + each.exposed
    default, flags = (
        {kind: t for (program, kind), t in exposed.items() if program == name}
        for name in ("whole-llama-16x4", "whole-llama-16x4-flags")
    )
    assert sum(flags.values()) == pytest.approx(7 / 8 * sum(default.values()), rel=0.02)
    saved = {kind: default[kind] - flags[kind] for kind in default}
    assert saved["all-gather"] == pytest.approx(sum(saved.values()), rel=0.02)
    counts = [
        sum(each.collective.launches for each in kept()[name, "v5p"].exchanges)
        for name in ("whole-llama-16x4", "whole-llama-16x4-flags")
    ]
    assert counts[0] == counts[1]  # an exchange that inner loops carry on is one


def test_a_recipe_s_flags_hide_no_exchange_of_a_program_of_all_reduces() -> None:
    reports = [kept()[name, "v5p"] for name in ("whole-llama-64x1", "whole-llama-64x1-flags")]
    for report in reports:
        for each in report.exchanges:
            assert each.exposed == pytest.approx(each.seconds)
    exchanged = [
        [(row.collective, row.name) for row in report.rows if row.collective] for report in reports
    ]
    assert exchanged[0] == exchanged[1]


def test_the_count_tells_apart_what_is_well_away_from_its_number_and_only_that() -> None:
    shapes = {"v5e": "4x4", "v5p": "2x2x4", "v6e": "4x4"}
    numbers, exposed = {}, {}
    for chip, shape in shapes.items():
        place = rh.network.topology(chip, shape)
        numbers[chip] = rh.training.least_tokens(place, place.fast)
        for tokens in (512, 2048, 8192, *((4096,) if chip == "v6e" else ())):
            made = kept()[f"shard-fsdp-{16 * tokens}", chip].exchanges
            share = sum(e.exposed for e in made) / sum(e.seconds for e in made)
            exposed[chip, tokens] = share
    near = exposed.pop(("v6e", 4096))
    for (chip, tokens), share in exposed.items():
        assert (share > 0.5) == (tokens < numbers[chip])
    assert 0.9 * numbers["v6e"] < 4096 < numbers["v6e"]
    assert near == pytest.approx(0.185, abs=0.001)


def test_speculative_decoding_makes_a_token_in_less_than_the_least_time_of_a_step() -> None:
    place = rh.network.topology("v6e", "2x4")
    large, small = (
        rh.serving.on_slice(name, place, {"tensor": 8}, batch=64, context=1500)
        for name in ("llama-3-70b", "llama-3-8b")
    )
    ahead = rh.serving.speculative(large, small, draft_tokens=3, acceptance=0.8)
    assert ahead.time_per_token < large.bound < ahead.seconds
    assert "It can make a *token* in less" in prose("serving-on-a-slice")


def test_latent_attention_with_whole_heads_is_compute_bound_in_decode_on_an_h200() -> None:
    model = rh.models.model("deepseek-v3")
    host = rh.network.topology("h200", 8)
    intensity = {}
    for way in ("tensor", "expert"):
        one = rh.serving.on_slice(model, host, {way: 8}, batch=256, context=1500, weights="int8")
        part = next(part for part in one.parts if part.name == "attention")
        intensity[way] = part.flops / part.cache
    # 2 (512 + 512 + 64) FLOPs for each head, over 576 elements of 2 bytes
    assert intensity == pytest.approx({"tensor": 16 * 2176 / 1152, "expert": 128 * 2176 / 1152})
    ridges = {
        (name, reached): rh.chip(name).roofline("bf16", reached=reached).ridge
        for name in ("h200", "h100")
        for reached in (False, True)
    }
    above = {key: intensity["expert"] > ridge for key, ridge in ridges.items()}
    assert {key for key, is_above in above.items() if not is_above} == {("h100", False)}
    assert intensity["tensor"] < min(ridges.values())


def test_few_sequences_want_heads_split_and_many_want_positions_and_replicas() -> None:
    place = rh.network.topology("v6e", "8x8", ceilings="reached")
    found = {}
    for batch in (1, 16, 512, 1024):
        one = rh.serving.on_slice("llama-3-70b", place, batch=batch, context=1500)
        found[batch] = (one.size("data"), one.size("tensor"))
    assert found[1] == (1, 64)
    assert found[16] == (2, 32)
    assert all(found[many][0] > 2 and found[many][1] == 8 for many in (512, 1024))


def test_the_design_lab_s_python_has_the_settings_of_the_page() -> None:
    cells = notebooks.load(path("lab-design-challenge")).cells
    (source,) = (cell.source for cell in cells if "server = {" in cell.source)
    told: dict[str, Any] = {"rh": rh}
    exec(source, told)
    step = rh.serving.step(rh.serving.LLAMA_3_8B, "h100", **TODAY)
    assert told["today"].seconds == step.seconds
    assert told["today"].memory.reserve == step.memory.reserve
    story = significant(step.tokens_per_second)
    assert f"{story} tokens per second" in outputs("lab-design-challenge")


def test_the_decode_step_misses_its_aim_by_the_bandwidth_of_reading() -> None:
    timed = rh.evidence.decode()
    ours = {step["batch"]: step["kernels of our own"] for step in timed["steps"]}
    above = {batch: took / timed["roof"][str(batch)]["read"] for batch, took in ours.items()}
    assert {batch: f"{ratio:.3f}" for batch, ratio in above.items()} == {
        1: "1.186", 16: "1.122", 64: "1.110",
    }  # fmt: skip
    assert all(above[batch] > aim for batch, aim in {1: 1.15, 16: 1.08, 64: 1.08}.items())
    chip = rh.chip("h200")
    for roofs in timed["roof"].values():
        moved = roofs["published"] * chip.memory["hbm"].bandwidth.value
        assert roofs["read"] == pytest.approx(moved / float(chip.reached.stream("read")), rel=1e-3)
    assert "The aim is missed at each batch" in prose("decode-step-made-fast")


def test_the_decode_race_is_said_to_be_untuned_on_one_side_as_long_as_it_is() -> None:
    command = rh.evidence.decode()["command"]
    tuned_alike = "--tune" in command and "--quick" not in command
    text = prose("decode-step-made-fast")
    assert ("A fair race is open" in text) != tuned_alike
    assert "beaten" not in text


def test_quoted_triton_is_the_example_s() -> None:
    example = (books.ROOT / "examples/torch_chain.py").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", prose("fused-kernel"), re.DOTALL)
    assert len(blocks) >= 5
    assert [block for block in blocks if block not in example] == []


def test_quoted_changes_are_the_ladder_s() -> None:
    folder = books.ROOT / "examples/llama_decode"
    example = "".join((folder / name).read_text("utf-8") for name in ("model.py", "steps.py"))
    blocks = re.findall(r"```python\n(.*?)```", prose("decode-step-made-fast"), re.DOTALL)
    assert len(blocks) >= 5
    assert [block for block in blocks if bare(block) not in bare(example)] == []


def bare(code: str) -> str:
    """Return code without its indentation: what is quoted begins at the left."""
    return "".join(f"{line.strip()}\n" for line in code.splitlines())


def test_a_layer_is_split_over_fewer_chips_where_peaks_outgrew_links() -> None:
    width, net, training = 28672, rh.network, rh.training
    slices = {"v5e": "16x16", "v5p": "4x4x4", "v6e": "16x16", "v7x": "4x4x4", "h100": 8, "h200": 8}
    places = {chip: net.topology(chip, shape) for chip, shape in slices.items()}
    groups = {chip: training.largest_tensor(place, width) for chip, place in places.items()}
    assert groups == {"v5e": 8, "v5p": 32, "v6e": 4, "v7x": 2, "h100": 8, "h200": 8}
    pod = places["v5e"]
    assert 15 < training.most_tensor(pod, pod["x"], width) < 16  # 16 are just above the limit
    tokens = {chip: training.least_tokens(place, place.fast) for chip, place in places.items()}
    assert max(tokens, key=lambda chip: tokens[chip]) == "v7x"
    # a mix needs two thirds of the tokens, on 64 × 4, by the instrument's own layer
    least = {}
    for wide in (1, 2, 4, 8, 16):
        mesh = pod.mesh({"fsdp": 256 // wide, "tensor": wide})
        bound = {
            n: training.layer(pod, mesh, tokens=n, d_model=8192, d_ff=width).bound
            for n in range(400, 1200)
        }
        least[wide] = min((n for n in bound if bound[n] == "compute"), default=None)
    assert least == {1: 982, 2: 756, 4: 611, 8: 613, 16: None}


def test_experts_of_deepseek_are_wide_enough_on_a_ring_of_4_and_not_of_16() -> None:
    small, large = (rh.network.topology("v5p", shape) for shape in ("4x4x4", "16x16x16"))
    least = rh.training.least_width
    assert round(least(small, small["x"])) == round(least(small, small.fast)) == 1530
    assert least(small, small["x"], active=8) < 2048 < least(large, large["x"], active=8)
    hosts = rh.network.topology("h100", 64)
    inside, across = (rh.training.least_tokens(hosts, over) for over in (hosts.fast, hosts.axes))
    assert inside < across < 1.2 * inside < rh.training.least_tokens(hosts, hosts["nic"])


def test_no_part_of_a_dense_step_costs_most_on_every_chip() -> None:
    """Chapter 25, by its own cell that takes a published step apart."""
    cells = notebooks.load(path("can-you-trust-a-roofline")).cells
    [cell] = [cell for cell in cells if cell.id == "parts"]
    names: dict[str, Any] = {}
    exec(cell.source, names)
    shares: dict[str, dict[str, float]] = {}
    for one in rh.published.steps():
        if isinstance(one, rh.published.PublishedStep) and not one.model.experts:
            own = shares.setdefault(one.chip, {})
            for part, share in list(names["parts"](one).items())[1:]:
                own[part] = own.get(part, 0.0) + share
    largest = {chip: max(own, key=lambda part: own[part]) for chip, own in shares.items()}
    assert set(largest.values()) == {
        *("computed a second time", "ceilings below the peak", "network in sight"),
        "not predicted",
    }


def test_steps_of_512_follow_the_reached_ceilings_and_of_256_do_not() -> None:
    """Chapter 7: H200 over H100, whose reached peaks decide both steps."""
    records = [rh.measure.measured()[chip] for chip in ("h100", "h200")]
    for batch, near in ((256, False), (512, True)):
        step = rh.work.matmul(batch, 8192, 8192)
        roofs = [record.roofline("bf16") for record in records]
        assert [roof.bound(step) for roof in roofs] == ["compute", "compute"]
        slower = roofs[1].time(step) / roofs[0].time(step)
        name = f"matmul {batch}×8192×8192 bf16"
        measured = records[1].sample(name).seconds / records[0].sample(name).seconds
        assert (measured == pytest.approx(slower, rel=0.02)) == near


@pytest.mark.parametrize(
    ("cell", "values", "said"),
    [
        ("a4af7f15", {"share": {"matmul": 0.9, "x + 1": 0.2}}, "none is above it"),
        ("a4af7f15", {"share": {"matmul": 0.9, "x + 1": 1.2}}, "above it: x + 1"),
        ("e2967782", {"in_place": 38.0, "apparent": 48.0}, "too little to show a cache"),
        ("e2967782", {"in_place": 38.0, "apparent": 98.0}, "more than noise explains"),
    ],
)
def test_what_is_said_of_the_reader_s_machine_follows_its_numbers(
    cell: str, values: dict[str, Any], said: str
) -> None:
    """Chapter 7's two questions on this machine: by their own cells, with a table that is empty."""
    [code] = [one.source for one in notebooks.load(path("misconceptions")).cells if one.id == cell]
    start = code.index("above =" if "above =" in code else "larger =")
    passed: dict[str, Any] = {}
    fake = SimpleNamespace(ask=SimpleNamespace(question=lambda *_, **given: passed.update(given)))
    exec(code[start:], {"rh": fake, "table": None, "passes": 1, **values})
    assert passed["said"] == said
    bank = (books.ROOT / "roofline_helpers/data/questions/misconceptions.toml").read_text("utf-8")
    assert bank.count("{said}") == 2
