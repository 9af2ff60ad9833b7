"""Measuring: a case that fails, the last cache, and what the command writes and never destroys."""

import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest
from measure_suite import case, record, run

import roofline_helpers as rh
from roofline import measure
from roofline.cli import main
from roofline.measure import machine, workloads
from roofline.measure.machine import last_cache
from roofline.measure.timing import summary
from roofline.measure.workloads import kernel_cases, matmul_case, memory_cases
from roofline_helpers import measured


def few(quick=False):
    small = [*memory_cases(2**14)[:2], matmul_case(32, 32, 32, "fp32")]
    return [*small, *kernel_cases(16, 16)[:1]]


@pytest.fixture
def recorded(monkeypatch):
    """Let the command find a record at once, where what it does with one is the question."""
    monkeypatch.setattr(measure, "run", lambda *_, command, **__: record(command=command))


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure.workloads, "cases", few)
    out = tmp_path / "a.json"
    assert (
        main(["measure", "--quick", "--out", str(out), "--picture", str(tmp_path / "a.png")]) == 0
    )
    printed = capsys.readouterr()
    assert "memory ceiling" in printed.out
    assert printed.err == ""  # progress is for terminals
    kept = measure.load(out)
    assert kept.command == "roofline measure --quick --out a.json --picture a.png"
    assert out.with_suffix(".png").read_bytes()[1:4] == b"PNG"


def test_the_command_destroys_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "run", lambda *_, **__: pytest.fail("it measured"))
    foreign = tmp_path / "x.json"
    broken = tmp_path / "y.json"
    foreign.write_text('{"schema": "other/1"}', "utf-8")
    broken.write_text(json.dumps({"schema": measured.record.SCHEMA}), "utf-8")
    before = {file: file.read_bytes() for file in (foreign, broken)}
    for out, says in (
        (tmp_path / "a.png", "--out must end in .json, got 'a.png'"),
        (foreign, "another kind: 'other'"),
        (broken, "missing required field `device`"),
    ):
        assert main(["measure", "--out", str(out)]) == (1 if out.exists() else 2)
        assert says in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before


def test_a_case_that_fails_does_not_take_the_others_with_it():
    def fails(x):
        raise RuntimeError("no such unit on this device")

    record = run(
        case("good"),
        case("bad", fails),
        case("huge", needs=1e15),
        case("empty", fn=None, make=lambda: 1 / 0),
        case("also good"),
    )
    errors = {sample.name: sample.error for sample in record.samples}
    assert errors["good"] is None
    assert errors["also good"] is None
    assert "no such unit" in str(errors["bad"])
    assert "not enough memory: needs 1 PB" in str(errors["huge"])
    assert "ZeroDivisionError" in str(errors["empty"])
    assert "no such unit" in record.table().to_string()


@pytest.mark.parametrize(
    ("platform", "kind", "size"),
    [
        ("gpu", "NVIDIA H100 80GB HBM3", rh.chip("h100").memory["l2"].capacity.value),
        ("tpu", "TPU v5 lite", rh.chip("v5e").memory["vmem"].capacity.value),
        ("gpu", "Unheard-of 9000", 128 * 2**20),
    ],
)
def test_the_last_cache_is_the_chip_table_s(monkeypatch, platform, kind, size):
    device = SimpleNamespace(platform=platform, device_kind=kind)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert last_cache() == size


# --- by hand --------------------------------------------------------------------------------------


def test_passes_go_forwards_and_backwards_and_a_late_failure_is_a_note(monkeypatch):
    order, seconds = [], iter(range(1, 10))

    def clock(program, *, seconds, warm, begun):
        order.append((program, seconds, warm))
        if len(order) == 6:
            raise RuntimeError("gone")
        return summary([12e-6 * len(order)])

    def listed(name, **changes):
        return case(name, start=lambda x: name, make=lambda: (0,), **changes)

    monkeypatch.setattr(workloads, "clock", clock)
    monkeypatch.setattr(workloads, "busy", lambda: [f"busy {next(seconds)}"])
    cases = [replace(listed(name), fn=None) for name in "ab"]
    cases.append(replace(listed("c", warm=0.5, loops=3), fn=None))
    kept = measure.run(chosen=cases, passes=2, progress=False)
    assert order == [(n, 0.3, 0.5 if n == "c" else 0) for n in "abccba"]
    medians = [[timing.median * 1e6 for timing in sample.passes] for sample in kept.samples]
    assert medians == [[12], [24, 60], [pytest.approx(12), pytest.approx(16)]]  # c: in thirds
    assert kept.samples[0].notes == ("failed in a later pass: RuntimeError: gone",)
    assert kept.notes == ("busy 1", "busy 2")
    assert kept.command == "roofline.measure.run()"


@pytest.mark.parametrize(
    ("needs", "free", "fits"),
    [
        (80, 100, True),
        (81, 100, False),
        (None, 81920, True),
        (None, 81919, False),
        (81, None, True),
    ],
)
def test_a_case_takes_four_fifths_of_the_free_memory_at_most(monkeypatch, needs, free, fits):
    monkeypatch.setattr(workloads, "free_memory", lambda: free)
    monkeypatch.setattr(workloads, "clock", lambda *_, **__: summary([1.0]))
    one = case("one", needs=needs, start=lambda x: None)  # 32 KiB: twice that, if it isn't said
    kept = measure.run(chosen=[replace(one, fn=None)], progress=False)
    assert (kept.samples[0].error is None) == fits


def test_this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_cores", lambda: 2)
    for load, notes in ((2.5, 0), (2.6, 1)):
        monkeypatch.setattr(machine.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert len(list(machine.busy())) == notes
    stats = {"bytes_limit": 90, "bytes_in_use": 20}
    device = SimpleNamespace(platform="gpu", memory_stats=lambda: stats)
    monkeypatch.setattr(machine, "first_device", lambda: device)
    assert machine.free_memory() == 70
    device.platform = "cpu"
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / path.lstrip("/"))
    assert (machine.free_memory(), machine.last_cache()) == (None, 64 * 2**20)
    for name, text, free in (
        ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   5 kB\n", 5120),
        ("sys/fs/cgroup/memory.max", "4000\n", 5120),
        ("sys/fs/cgroup/memory.current", "1000\n", 3000),
        ("sys/fs/cgroup/memory.current", "4001\n", 0),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "ascii")
        assert machine.free_memory() == free
    for at, size in enumerate(("48K", "3M", "1024K")):
        level = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{at}"
        level.mkdir(parents=True)
        (level / "size").write_text(size, "ascii")
    assert machine.last_cache() == 3 * 2**20
