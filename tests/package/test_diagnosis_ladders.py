"""What the ladders say: a training step beside its prediction, joules."""

import statistics
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from roofline import network, training
from roofline.diagnosis import ladder
from roofline_helpers.models import LLAMA_3_8B


@cache
def steps():
    return {step.rung: step for step in ladder.committed()["train-step"].steps}


def clock(rung):
    """Return the seconds of a step."""
    step = steps()[rung]
    return float(step.setting["seconds"]) if step.why is None else step.why.wall


def predicted(mesh, **how):
    chips = network.topology("h200", 4, ceilings="reached")
    model = replace(LLAMA_3_8B, layers=8, name="eight layers of Llama-3-8B")
    return training.step(model, chips, mesh, batch=16, seq=2048, **how)


def mean(rung, part):
    """Return a part of a step's time, of all devices' mean."""
    why = steps()[rung].why
    return statistics.mean(getattr(device, part) for device in why.devices) if why else 0.0


@pytest.mark.parametrize(
    ("rung", "mesh", "how", "share"),
    [
        ("cuDNN", {"fsdp": 4}, {"recompute": "full"}, 0.82),
        ("unrolled", {"fsdp": 4}, {"recompute": "full"}, 0.83),
        ("all kept", {"fsdp": 4}, {"recompute": "none"}, 0.84),
        ("tensor and FSDP", {"fsdp": 2, "tensor": 2}, {"recompute": "full"}, 0.89),
        ("fp8", {"fsdp": 4}, {"recompute": "none", "dtype": "fp8"}, 0.59),
    ],
)
def test_a_step_takes_longer_than_predicted_and_never_less_than_its_bound(rung, mesh, how, share):
    """The model's fp8 knows neither the head in bf16 nor the kernels that quantise."""
    step = predicted(mesh, **how)
    assert step.least_seconds < clock(rung)
    assert step.seconds / clock(rung) == pytest.approx(share, abs=0.02)


def test_the_readme_s_table_is_the_record_s():
    readme = Path(__file__).parents[2] / "examples/train_step/README.md"
    first = next(part for part in readme.read_text("utf-8").split("\n\n") if part.startswith("|"))
    table = [line.split("|")[1:-1] for line in first.splitlines()]
    shown = {cells[0].replace("*beside it:*", "").strip(): cells[2:] for cells in table[2:]}
    assert set(shown) == {name for name, step in steps().items() if step.why is not None}
    for name, cells in shown.items():
        parts = [clock(name), *(mean(name, part) for part in ("kernels", "moving", "waiting"))]
        assert [float(cell) for cell in cells] == pytest.approx([1e3 * s for s in parts], abs=0.06)


# --- joules ---------------------------------------------------------------------------------------


def test_a_busy_gpu_takes_more_than_an_idle_one():
    """No committed reading of joules is that of a neighbour that did nothing."""
    readings = [
        step.why.energy
        for rungs in ladder.committed().values()
        for step in rungs.steps
        if step.why is not None and step.why.energy is not None
    ]
    assert len(readings) >= 7
    assert all(r["joules"] / r["seconds"] > 3 * r["idle"] for r in readings)
