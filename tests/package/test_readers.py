"""A reader's own TPU: imitated here, since there is none; and what is refused of such records."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from measurements import readers as tool
from roofline import readers
from roofline.cli import main
from roofline.measure.workloads import matmul_case, memory_cases, vector_case
from roofline_helpers import chips

pytestmark = pytest.mark.slow

SMALL = readers.Step(64, 128, 256, "bf16")
VERSIONS = {"python": "3.13.15", "roofline_helpers": "0.1.0", "jax": "0.7.2", "jaxlib": "0.7.2"}


@pytest.fixture(scope="module")
def here() -> readers.ReaderRecord:
    """A record of this CPU, with small ceilings and a small step."""
    matmuls = [matmul_case(128, 128, 128, dtype) for dtype in ("bf16", "fp32")]
    chosen = [*memory_cases(2**20)[:3], *matmuls, vector_case("fp32", 2**10)]
    return readers.share(chosen=chosen, step=SMALL, progress=False)


def rated(sample: Any, chip: chips.Chip, share: float) -> Any:
    """Return a sample that reached a share of what is published of its ceiling."""
    if sample.group == "memory":
        seconds = sample.bytes / (share * chip.memory["hbm"].bandwidth.value)
    else:
        seconds = sample.flops / (share * chip.peak("bf16").value)  # also in fp32: bf16 products
    timing = replace(sample.passes[0], median=seconds, low=seconds, high=seconds)
    return replace(sample, passes=(timing, timing))


def imitated(
    here: readers.ReaderRecord, key: str = "v5e", share: float = 0.9, step: float = 0.7
) -> readers.ReaderRecord:
    """Return the record as a TPU would have left it, at a share of its published figures."""
    chip = chips.chip(key).per_device()
    kind = chips.chip(key).device_kinds[0]
    about = {**here.measured.device, "platform": "tpu", "kind": kind, "name": kind, "chip": key}
    software = {**VERSIONS, "libtpu": "0.0.21.1"}
    samples = tuple(rated(sample, chip, share) for sample in here.measured.samples)
    measured = replace(here.measured, device=about, samples=samples, software=software)
    seconds = readers.STEP.flops / (step * chip.peak("bf16").value)
    about_step = {"name": readers.STEP.name, "platform": "tpu", "device": kind}
    why = replace(here.explained, runs=(seconds, 1.1 * seconds), **about_step)
    return replace(here, measured=measured, explained=why)


def test_the_step_has_the_flops_that_it_says(here: readers.ReaderRecord) -> None:
    counted = sum(row.kernel.matrix_flops * row.launches for row in here.explained.rows)
    assert counted == SMALL.flops == 10 * 64 * 128 * 256
    (up, down), loss = jax.jit(SMALL.run)(*SMALL.arguments())
    assert (up.shape, down.shape, loss.shape) == ((128, 256), (256, 128), ())
    assert (up.dtype, loss.dtype) == ("bfloat16", "float32")


def test_a_record_says_the_same_again_and_is_small(
    here: readers.ReaderRecord, tmp_path: Path
) -> None:
    record = imitated(here)
    file = record.save(tmp_path / "mine.json")
    kept = readers.load(file)
    assert kept.text() == record.text()
    assert kept.explained.wall == pytest.approx(record.explained.wall, rel=1e-5)
    assert len(kept.explained.rows) == len(record.explained.rows)
    assert readers.load(kept.save(tmp_path / "again.json")) == kept
    assert file.stat().st_size < 20_000
    table = record.table()
    assert float(table.loc["copy", "share, %"]) == pytest.approx(90)
    assert float(table.loc["matmul bf16", "share, %"]) == pytest.approx(90)
    text = record.text()
    assert text.startswith("### TPU v5e, measured by a reader")
    assert "| copy | 737 GB/s | 90.0% of 819 GB/s |" in text
    for part in (
        "libtpu 0.0.21.1",
        "jax 0.7.2",
        "`roofline.readers.share()`",
        record.measured.date,
    ):
        assert part in text


@pytest.mark.parametrize("key", [chip.key for chip in chips.all_chips() if chip.kind == "tpu"])
def test_a_tpu_below_its_data_sheet_is_kept_and_one_above_is_refused_by_name(
    here: readers.ReaderRecord, key: str
) -> None:
    assert readers.problems(imitated(here, key, share=0.999, step=0.999)) == []
    fast = readers.problems(imitated(here, key, share=1.001))
    assert [problem.partition(":")[0] for problem in fast] == [
        s.name for s in here.measured.samples
    ]
    assert all("more than the published" in problem for problem in fast)
    [step] = readers.problems(imitated(here, key, step=1.12))
    assert step.startswith(f"{readers.STEP.name}: ")


def test_what_can_not_be_compared_is_refused_by_name(here: readers.ReaderRecord) -> None:
    good = imitated(here)
    measured, why = good.measured, good.explained
    assert "is no TPU of the chip table" in readers.problems(here)[0]
    for change, expected in (
        ({"software": VERSIONS}, "names no version of libtpu"),
        ({"software": {**measured.software, "jax": "[x](y)"}}, "names no version of jax"),
        ({"date": "2999-01-01T00:00:00Z"}, "still to come"),
        ({"date": "yesterday"}, "its date is none: yesterday"),
        ({"complete": False}, "incomplete"),
        ({"samples": measured.samples[:3]}, "has no matmul in bf16"),
        ({"samples": measured.samples[3:]}, "has no memory stream"),
    ):
        [problem] = readers.problems(replace(good, measured=replace(measured, **change)))
        assert expected in problem
    for change, expected in (
        ({"name": SMALL.name}, f"the book compares {readers.STEP.name}"),
        ({"origin": "modelled"}, "modelled; the book compares"),
        ({"platform": "cpu", "device": "a CPU"}, "its step ran on a CPU"),
    ):
        [problem] = readers.problems(replace(good, explained=replace(why, **change)))
        assert expected in problem


def test_one_command_keeps_a_record_and_the_page_shows_it(
    here: readers.ReaderRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import page_numbers

    assert "No TPU record exists yet" in page_numbers._chip_readers({})
    sent = imitated(here).save(tmp_path / "sent.json")
    folder = tmp_path / "kept"
    kept = tool.keep(sent, "a reader", "https://example.org/1", folder)
    assert kept.name == f"v5e-{here.measured.date[:10]}.json"
    with pytest.raises(tool.BadRecord, match="already"):
        tool.keep(sent, "a reader", "https://example.org/1", folder)
    page = page_numbers._chip_readers(readers.kept(folder))
    row = "| TPU v5e | 737 GB/s (90%) | 177 TFLOP/s (90%) | 41.9 ms |"
    assert row in page
    assert "[a reader, " in page
    assert "(https://example.org/1)" in page
    assert readers.kept(folder)[kept.stem].measured == readers.load(sent).measured
    faster = imitated(here, share=1.5).save(tmp_path / "faster.json")
    monkeypatch.setattr(tool.sys, "argv", ["readers", str(faster), "--by", "x", "--url", "y"])
    assert tool.main() == 1
    assert len(readers.kept(folder)) == 1


def test_every_kept_record_passes() -> None:
    for name, record in readers.kept().items():
        assert readers.problems(record) == [], name
        assert record.by, name
        assert record.url, name


def test_the_command_leaves_a_record_and_a_text(
    here: readers.ReaderRecord,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(command: str, **_: Any) -> Any:
        return replace(here.measured, command=command)

    monkeypatch.setattr(readers, "run", run)
    monkeypatch.setattr(readers, "cases", lambda quick: [])
    out = tmp_path / "mine.json"
    assert main(["share", "--out", str(out)]) == 1  # a CPU's is not for the book
    shown = capsys.readouterr()
    assert "not for the book: " in shown.err
    assert shown.out.strip() == out.with_suffix(".md").read_text("utf-8").strip()
    assert json.loads(out.read_text("utf-8"))["schema"] == readers.SCHEMA
    assert readers.load(out).measured.command == "roofline share --out mine.json"
    assert readers.load(out).measured.software == here.measured.software
    assert readers.load(out).explained.name == "training step 256×512×2048 fp32"
