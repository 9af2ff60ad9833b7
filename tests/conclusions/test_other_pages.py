"""Conclusions of labs, the self-test and pages beside the chapters: each test would refute one."""

import re
from typing import Any

import pytest
from conclusions import outputs, path, prose

import roofline
import roofline_helpers as rh
from roofline import xla
from roofline.diagnosis import ladder
from roofline.labs.labs import TODAY
from roofline_helpers.common.show import significant
from tools import books
from tools.notebooks import run as notebooks


def test_the_design_lab_s_python_has_the_settings_of_the_page() -> None:
    cells = notebooks.load(path("lab-design-challenge")).cells
    (source,) = (cell.source for cell in cells if "server = {" in cell.source)
    told: dict[str, Any] = {"rh": rh, "roofline": roofline}
    exec(source, told)
    step = roofline.serving.step(rh.models.LLAMA_3_8B, "h100", **TODAY)
    assert told["today"].seconds == step.seconds
    assert told["today"].memory.reserve == step.memory.reserve
    story = significant(step.tokens_per_second)
    assert f"{story} tokens per second" in outputs("lab-design-challenge")


@pytest.mark.parametrize(
    ("page", "files"),
    [
        ("pytorch", ["torch_chain.py"]),
        ("decode-step-made-fast", ["llama_decode/model.py", "llama_decode/steps.py"]),
    ],
)
def test_quoted_code_is_the_example_s(page: str, files: list[str]) -> None:
    example = "".join((books.ROOT / "examples" / name).read_text("utf-8") for name in files)
    blocks = re.findall(r"```python\n(.*?)```", prose(page), re.DOTALL)[page == "pytorch" :]
    assert len(blocks) >= 5
    assert [block for block in blocks if bare(block) not in bare(example)] == []


def bare(code: str) -> str:
    """Return code without its indentation: what is quoted begins at the left."""
    return "".join(f"{line.strip()}\n" for line in code.splitlines())


def test_the_self_test_s_answers_hold_on_the_chips_of_the_table() -> None:
    wide = rh.work.matmul(16, 8192, 8192, "bf16")
    ridges = [chip.roofline("bf16").ridge for chip in rh.all_chips() if "bf16" in chip.matrix]
    assert min(ridges) / wide.intensity > 1.9  # so with half of the bytes it is about twice as fast
    known = rh.measured.typical(rh.work.matmul(4096, 4096, 4096, "bf16"), "h100")
    took = known.quantile(0.6)
    least = rh.chip("h100").roofline("bf16").time(rh.work.matmul(4096, 4096, 4096, "bf16"))
    assert 0.2 < 1 - least / took < 0.25
    assert took < 1.05 * known.quantile(0.5)


def test_what_people_ask_is_answered_by_the_records() -> None:
    """Compiling a scan, one that copies, a cache, two devices, a checkpoint, zeros."""
    steps = {step.rung: step.why for step in ladder.committed()["train-step"].steps}
    unrolled, looped = steps["gathered"], steps["scan, gathered"]
    assert unrolled.compiling / looped.compiling == pytest.approx(17, abs=0.5)
    assert looped.wall / unrolled.wall == pytest.approx(1.01, abs=0.005)
    assert 1 - steps["matmuls kept"].wall / looped.wall == pytest.approx(1 / 6, abs=0.02)
    decode = ladder.committed()["decode-rungs"].steps
    first, second = (s.why for s in decode[::3][:2] if s.setting["batch"] == 16)
    assert second.wall / first.wall == pytest.approx(0.5, abs=0.05)
    table = rh.measured.table("matmul")
    mine = table[(table.chip == "l40s") & (table.dtype == "bf16")]
    moved = rh.work.matmul(*(mine[side].to_numpy() for side in "mnk")).bytes
    sooner = moved / mine.seconds > rh.chip("l40s").roofline("bf16").bandwidth
    assert sooner.mean() == pytest.approx(0.2, abs=0.01)
    assert (moved[sooner] < rh.chip("l40s").memory["l2"].capacity.value).mean() > 0.5
    with pytest.raises(xla.DoesNotFit) as refused:
        xla.analysis.find_record("asked-oom", "v5e")
    lines = str(refused.value).splitlines()[1:]
    sizes = [float(line.split()[0]) for line in lines if " GB" in line]
    assert sizes[0] == pytest.approx(refused.value.needed / 1e9, rel=0.01)
    saved = [float(line.split()[0]) for line in lines if "[8,131072,2048]" in line]
    assert sum(saved) > sizes[0] / 2
