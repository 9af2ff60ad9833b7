"""Measuring: what is refused, what is said of doubtful times, records, the command, and the
counts that the GPU script reads. Times themselves are only asked to be possible: this machine
may be busy. `tools/cpu/compare.py` holds the ceilings against STREAM and NumPy."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pytest

from roofline_helpers import measure, work
from roofline_helpers._checks import BadType, BadValue, UnknownName
from roofline_helpers.measure import CannotTime, Case, Record
from roofline_helpers.records import BadRecord
from tools.cpu import compare as compare_cpu
from tools.gpu import measure_gpu

jax = pytest.importorskip("jax")
jnp = jax.numpy


def numbers(n: int = 1000) -> Any:
    return jnp.arange(n, dtype=jnp.float32)


def quick(fn: Callable[..., Any], *args: Any, **options: Any) -> measure.Timing:
    return measure.time(fn, *args, seconds=0.005, **options)


# --- time(): what it refuses ----------------------------------------------------------------------


def test_a_function_that_returns_nothing_is_refused() -> None:
    for fn in (lambda x: None, lambda x: (), lambda x: {"a": []}):
        with pytest.raises(BadValue, match="returns nothing"):
            quick(fn, numbers())


def test_a_result_that_does_not_depend_on_the_inputs_is_refused() -> None:
    hidden = jax.jit(lambda x: (jnp.ones(8), x + 1))
    for fn in (
        lambda x: 2.0,
        lambda x: jnp.ones(1000),
        lambda x: jnp.zeros_like(x),
        lambda x: jnp.ones(x.shape) @ jnp.ones(x.shape),
        lambda x: hidden(x)[0],
        lambda x: jax.jit(lambda y: jnp.ones(3))(x),
    ):
        with pytest.raises(BadValue, match="doesn't depend on any argument"):
            quick(fn, numbers())


def test_a_function_that_hands_its_arguments_back_is_refused() -> None:
    for fn in (lambda x: x, lambda x: (x, x), lambda x: {"x": x, "n": 3}):
        with pytest.raises(BadValue, match="hands its arguments back"):
            quick(fn, numbers())


def test_dependence_through_control_flow_is_seen() -> None:
    for fn in (
        lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + x, jnp.zeros_like(x)),
        lambda x: jax.lax.cond(x[0] > 0, lambda: jnp.ones(2), lambda: jnp.zeros(2)),
        lambda x: hidden_sum(x),
        jax.nn.softmax,
    ):
        assert measure._dependence(fn, (numbers(),)) == []


def hidden_sum(x: Any) -> Any:
    return jax.jit(lambda y: (jnp.ones(8), y.sum()))(x)[1]


def test_an_unused_argument_is_noted() -> None:
    timing = quick(lambda x, y, z: x + z, numbers(), numbers(), numbers())
    assert "argument 1 isn't used" in timing.notes


def test_bad_arguments() -> None:
    with pytest.raises(BadType, match="must be a function"):
        measure.time(3, numbers())  # type: ignore[arg-type]
    with pytest.raises(BadType, match="at least one array"):
        quick(lambda: jnp.ones(3))
    with pytest.raises(BadType, match="at least one array"):
        quick(lambda x: x * 2, 3.0)
    with pytest.raises(BadType, match="inplace needs a result like the first"):
        quick(lambda x: x.sum(), numbers(), inplace=True)
    for seconds in (0, -1, math.nan):
        with pytest.raises(BadValue, match="seconds must be"):
            measure.time(lambda x: x + 1, numbers(), seconds=seconds)


def test_arguments_on_several_devices_are_refused() -> None:
    program = """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from roofline_helpers import measure
x = jax.device_put(jnp.ones(8), NamedSharding(jax.make_mesh((2,), ("x",)), PartitionSpec("x")))
try:
    measure.time(lambda x: x + 1, x, seconds=0.01)
except measure.BadType as error:
    print(error)
"""
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=flags, capture_output=True, text=True, check=True
    )
    assert "arguments must lie on one device, got float32[8] on 2" in done.stdout


def test_a_function_that_fails_says_why() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(CannotTime, match=r"couldn't trace it: ZeroDivisionError: on purpose"):
        quick(fails, numbers())
    with pytest.raises(CannotTime, match="couldn't trace it"):
        quick(lambda x: float(x[0]) + x, numbers())
    with pytest.raises(CannotTime, match="couldn't trace it"):
        quick(lambda x, y: x @ y, numbers(3), numbers(4))
    with pytest.raises(CannotTime, match=r"couldn't compile it.*no_such_option"):
        quick(lambda x: x + 1, numbers(), compiler_options={"no_such_option": True})


def test_failures_while_it_runs_say_why() -> None:
    def interrupted(*_: Any) -> Any:
        raise MemoryError("RESOURCE_EXHAUSTED: out of memory")

    program = measure.jax_program(lambda x: x + 1, (numbers(),))
    program._call = interrupted
    with pytest.raises(CannotTime, match="not enough memory"):
        program.launch(1)


# --- time(): what it does -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"jit": False}, {"donate": False}, {"cold": False}, {"inplace": True}],
    ids=str,
)
def test_every_way_of_timing_gives_a_possible_time(options: dict[str, Any]) -> None:
    begun = perf_counter()
    timing = quick(lambda x: x * 0.5 + 0.5, numbers(2**16), **options)
    took = perf_counter() - begun
    assert 0 < timing.low <= timing.q1 <= timing.median <= timing.q3 <= timing.high
    assert timing.high * timing.calls < took
    assert 0 < timing.compile < took
    assert timing.repeats >= 3
    assert "a call" in repr(timing)


def test_a_thousand_times_the_work_takes_longer() -> None:
    times = [quick(lambda x: jnp.sin(jnp.sin(x)), numbers(n)).median for n in (2**11, 2**21)]
    assert times[1] > 20 * times[0]


def test_the_callers_arrays_are_left_alone() -> None:
    x = numbers()
    quick(lambda x: x * 0.5, x, inplace=True)
    quick(lambda x: x * 0.5, x)
    assert float(x[999]) == 999.0
    with pytest.raises(CannotTime, match=r"when it was called: .*(deleted|donated)"):
        quick(jax.jit(lambda x: x * 0.5, donate_argnums=0), x, jit=False, cold=False)
    assert float(x[999]) == 999.0
    host = np.arange(8.0, dtype=np.float32)
    quick(lambda x: x + 1, host)
    assert host[7] == 7.0


def test_trees_and_numbers_go_through() -> None:
    tree = {"a": numbers(), "b": (numbers(), 2.0)}
    assert quick(lambda t, k: {"y": t["a"] * t["b"][1] + k}, tree, 3).median > 0


def test_results_go_into_the_memory_of_the_last_call() -> None:
    program = measure.jax_program(lambda x: x + 1, (numbers(2**20),))
    program.launch(2)
    program.wait()
    first = program._out.unsafe_buffer_pointer()
    program.launch(1)
    program.wait()
    assert program._out.unsafe_buffer_pointer() == first
    assert program.xla_bytes == 2 * 4 * 2**20


def test_small_inputs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "last_cache", lambda: 2**20)
    args = (jnp.zeros(2**17, jnp.float32) + 1,)  # half of that cache: 4 sets are twice the cache
    assert len(measure.jax_program(lambda x: x + 1, args)._sets) == 4
    assert len(measure.jax_program(lambda x: x + 1, args, cold=False)._sets) == 1
    assert len(measure.jax_program(lambda x: x + 1, (numbers(4),))._sets) == 32


class Fake:
    """A program whose calls take the times given, on a clock of its own."""

    def __init__(self, seconds: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.now, self.calls = list(seconds), 0.0, 0
        self.waits: list[int] = []
        monkeypatch.setattr(measure, "perf_counter", lambda: self.now)

    def launch(self, calls: int) -> None:
        for n in range(calls):
            self.now += self.seconds[min(self.calls + n, len(self.seconds) - 1)]
        self.calls += calls
        self.waits.append(calls)

    def wait(self) -> None:
        self.now += 1e-6


def test_first_calls_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = measure.clock(Fake([5.0, 0.5, 0.02], monkeypatch), seconds=0.2)
    assert timing.compile == pytest.approx(5.0)
    assert timing.median == pytest.approx(0.02, rel=1e-3)
    assert timing.high == pytest.approx(0.02, rel=1e-3)


def test_short_kernels_are_repeated_until_the_clock_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake([2e-6], monkeypatch)
    timing = measure.clock(fake, seconds=0.1)
    assert timing.calls * 2e-6 >= 0.01
    assert timing.median == pytest.approx(2e-6, rel=1e-3)
    assert fake.waits[-1] == timing.calls


def test_long_kernels_are_measured_three_times_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = measure.clock(Fake([7.0], monkeypatch), seconds=0.1)
    assert (timing.repeats, timing.calls) == (3, 1)


def test_the_device_is_looked_at_once_while_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, seen = Fake([0.02], monkeypatch), []
    measure.clock(fake, seconds=0.2, probe=lambda: seen.append(fake.calls))
    assert seen == [fake.calls]


def test_drift_and_instability_are_said() -> None:
    assert measure.summary([1.0] * 12).notes == ()
    assert measure.summary([1.0, 1.02, 0.99, 1.01, 1.0, 0.98]).notes == ()
    (note,) = measure.summary([1.0 + 0.01 * n for n in range(12)]).notes
    assert note == "drifting: 8 % slower at the end"
    notes = measure.summary([1.0, 2.0] * 6).notes
    assert any(note.startswith("unstable: quartiles") for note in notes)
    with pytest.raises(BadValue, match="at least one sample"):
        measure.summary([])
    with pytest.raises(BadValue, match="a sample must be"):
        measure.summary([1.0, -1.0])


def test_a_time_that_is_known_is_found() -> None:
    class Sleeps:
        def launch(self, calls: int) -> None:
            sleep(0.02 * calls)

        def wait(self) -> None:
            pass

    assert measure.clock(Sleeps(), seconds=0.1).low == pytest.approx(0.02, rel=0.2)


# --- run() and records ----------------------------------------------------------------------------


def case(name: str, fn: Callable[..., Any] | None = None, **changes: Any) -> Case:
    job = work.elementwise(2**12, 1, 1, 1, "fp32")
    made = Case(name, "kernels", job, lambda: (numbers(2**12),), fn or (lambda x: x + 1))
    return replace(made, **changes)


def run(*cases: Case, **options: Any) -> Record:
    return measure.run(chosen=cases, seconds=0.003, progress=False, **options)


@pytest.fixture(scope="module")
def small() -> Record:
    """A run of everything, at sizes that a busy machine does in seconds."""
    cases = [
        *measure.memory_cases(2**14),
        *measure.level_cases([2**12, 2**13]),
        measure.matmul_case(32, 32, 32, "fp32"),
        measure.matmul_case(16, 16, 16, "bf16", batch=2),
        measure.matmul_case(16, 16, 16, "int8"),
        measure.vector_case("fp32", 2**10, 16),
        *measure.kernel_cases(64, 64),
    ]
    return run(*cases, passes=2)


def test_a_record_comes_back_as_it_was(small: Record, tmp_path: Path) -> None:
    assert [each.error for each in small.samples if each.error] == []
    loaded = measure.load(small.save(tmp_path / "a.json"))
    assert loaded == small
    assert loaded.complete
    assert loaded.bandwidth == small.bandwidth
    assert [len(each.passes) for each in loaded.samples] == [2] * len(small.samples)


def test_a_record_names_device_versions_date_and_command(small: Record) -> None:
    assert small.device["platform"] == "cpu"
    assert small.software["jax"] == jax.__version__
    assert small.host["cores"] >= 1
    assert small.command
    assert small.date[:2] == "20"
    assert small.date.endswith("Z")


def test_ceilings_are_the_best_of_their_samples(small: Record) -> None:
    streams = small.group("memory")
    assert small.bandwidth == max(each.bytes / each.seconds for each in streams)
    names = {"read", "write", "copy", "scale", "scale in place", "add", "triad"}
    assert set(small.streams) == names
    copy = small.sample("copy 16 KiB fp32")
    assert small.streams["copy"] == copy.bandwidth
    another = replace(copy, source="torch", passes=(measure.summary([1e-12]),))
    assert replace(small, samples=(*small.samples, another)).streams == small.streams
    assert set(small.peaks) == {"fp32", "bf16", "int8"}
    roof = small.roofline("fp32")
    assert (roof.origin, roof.bandwidth) == ("measured", small.bandwidth)
    assert roof.vector == small.vector_peaks["fp32"]
    with pytest.raises(UnknownName, match="fp64"):
        small.roofline("fp64")
    with pytest.raises(UnknownName, match="Nearest"):
        small.sample("read 16 KiB fp33")
    with pytest.raises(UnknownName, match="group"):
        small.group("nonsense")
    with pytest.raises(BadRecord, match="no memory ceiling"):
        _ = replace(small, samples=()).bandwidth


def test_table_and_picture(small: Record) -> None:
    table = small.table()
    assert len(table) == len(small.samples)
    assert "GB/s" in table.columns
    axes = small.draw()
    assert axes.lines
    other = replace(small, date="2026-02-03")
    both = small.draw("fp32", beside=other)
    drawn = {line.get_gid(): line for line in both.lines}
    roof = drawn["beside:roof"]
    assert max(roof.get_ydata()) == other.peaks["fp32"]
    assert roof.get_label() == "the record of 2026-02-03"
    assert len(drawn["beside:kernels"].get_xdata()) == len(small.group("kernels"))
    without = replace(other, samples=tuple(s for s in other.samples if s.group != "compute"))
    assert "beside:roof" not in {line.get_gid() for line in small.draw(beside=without).lines}
    text = measure.report(small)
    assert "memory ceiling" in text
    assert small.name in text


def test_a_doubtful_ceiling_says_so() -> None:
    kinds = (("memory", {"bytes": 1.0}), ("compute", {"flops": 1.0}), ("vector", {"flops": 1.0}))
    record = run(case("a"))
    steady, shaky = measure.summary([2.0] * 6), measure.summary([1.0, 2.0] * 3)
    (base,) = record.samples
    samples = [
        replace(base, name=f"{name} {n}", group=name, passes=(timing,), **counts)
        for name, counts in kinds
        for n, timing in enumerate((steady, shaky))
    ]
    lines = measure.report(replace(record, samples=tuple(samples))).splitlines()
    for start in ("memory ceiling: ", "compute ceiling, fp32: ", "vector ceiling, fp32: "):
        (line,) = [line for line in lines if line.startswith(start)]
        assert line.endswith("/s; unstable: quartiles 67 % apart")
    steady_only = replace(record, samples=tuple(samples[::2]))
    assert "unstable" not in measure.report(steady_only)


def test_sizes_and_counts_are_whole_numbers() -> None:
    with pytest.raises(BadValue, match=r"passes must be a whole number from 1 .*got 0\.5"):
        run(case("a"), passes=0.5)
    with pytest.raises(BadValue, match=r"repeats must be a whole number from 1 .*got 2\.5"):
        measure.clock(measure.jax_program(lambda x: x + 1, (numbers(),)), repeats=2.5)
    with pytest.raises(BadValue, match=r"a size of sizes must be a whole number .*got 0"):
        measure.level_cases([0])


def test_bytes_of_streams_are_stream_s() -> None:
    n = 2**12
    moved = {each.work.name: each.work.bytes for each in measure.memory_cases(4 * n)}
    assert {name: round(count / (4 * n), 2) for name, count in moved.items()} == {
        "read": 1, "write": 1, "copy": 2, "scale": 2, "scale in place": 2, "add": 3, "triad": 3,
    }  # fmt: skip


def test_a_case_that_fails_does_not_take_the_others_with_it() -> None:
    def fails(x: Any) -> Any:
        raise RuntimeError("no such unit on this device")

    record = run(
        case("good"),
        case("bad", fails),
        case("huge", needs=1e15),
        case("empty", fn=None, make=lambda: 1 / 0),
        case("also good"),
    )
    errors = {each.name: each.error for each in record.samples}
    assert errors["good"] is None
    assert errors["also good"] is None
    assert "no such unit" in str(errors["bad"])
    assert "not enough memory: needs 1 PB" in str(errors["huge"])
    assert "ZeroDivisionError" in str(errors["empty"])
    assert "no such unit" in record.table().to_string()


def test_the_time_that_is_up_is_said() -> None:
    record = run(case("a"), case("b"), passes=2, deadline=1e-9)
    assert any("4 measurements left out" in note for note in record.notes)
    assert not any(each.passes for each in record.samples)


def test_an_interrupted_run_keeps_what_there_was(tmp_path: Path) -> None:
    def stop(number: int, record: Record) -> Record:
        raise KeyboardInterrupt

    kept = tmp_path / "kept.json"
    run(case("earlier")).save(kept)
    before = kept.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run(case("later"), partial=kept.with_suffix(".partial"), between=stop)
    assert kept.read_bytes() == before


def test_what_there_is_so_far_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "so far.json"
    run(case("a"), passes=2, partial=path, between=lambda number, record: record)
    loaded = measure.load(path)
    assert not loaded.complete
    assert len(loaded.sample("a").passes) == 2


def test_a_busy_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    assert any("busy machine: load 99.0" in note for note in run(case("a")).notes)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert run(case("a")).notes == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.pop("device"), "lacks 'device'"),
        (lambda data: data["samples"][0].update(bytes=-1), "bytes of item 0 of samples"),
        (lambda data: data["samples"][0]["passes"][0].update(median=0), "median of item 0"),
        (lambda data: data["samples"][0]["passes"][0].update(calls=0), "calls .* whole .* from 1"),
        (lambda data: data["samples"][0]["passes"][0].update(repeats=-1), "repeats of item 0"),
        (lambda data: data.update(schema="roofline_helpers.measured/0"), "older record"),
        (lambda data: data.update(schema="roofline_helpers.compiled/1"), "another kind"),
        (lambda data: data.update(samples="none"), "samples of the record must be a list"),
    ],
)
def test_a_damaged_record_is_refused(
    small: Record, tmp_path: Path, change: Callable[[Any], Any], said: str
) -> None:
    data = json.loads(json.dumps(small.to_dict()))
    change(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(BadRecord, match=rf"bad\.json: .*{said}"):
        measure.load(path)


def test_committed_records_can_be_read() -> None:
    for name, record in measure.measured().items():
        assert record.complete, name
        assert record.bandwidth > 0
        assert record.peaks
        assert record.command.startswith("python ")
        assert "--out /" not in record.command
        assert [each.name for each in record.samples if not each.passes] == []


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    def cases(quick: bool = False) -> list[Case]:
        small = [*measure.memory_cases(2**14)[:2], measure.matmul_case(32, 32, 32, "fp32")]
        return [*small, *measure.kernel_cases(16, 16)[:1]]

    monkeypatch.setattr(measure, "cases", cases)


@pytest.mark.usefixtures("few")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.json"
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "memory ceiling" in printed.out
    assert "4/4" in printed.err or "0/4" in printed.err
    record = measure.load(out)
    assert record.command == "python -m roofline_helpers measure --quick --out a.json"
    assert out.with_suffix(".png").read_bytes()[1:4] == b"PNG"


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
@pytest.mark.usefixtures("few")
def test_a_file_name_that_is_no_text_costs_no_record(tmp_path: Path) -> None:
    out = tmp_path / "\udcff.json"
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 0
    assert measure.load(out).command.endswith("--out ?.json")


@pytest.mark.usefixtures("few")
def test_an_interrupted_command_leaves_the_earlier_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.json"
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 0
    before = out.read_bytes()

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "clock", stop)
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 130
    assert "is as it was" in capsys.readouterr().err
    assert out.read_bytes() == before


def test_the_command_destroys_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "run", lambda *_, **__: pytest.fail("it measured"))
    foreign, broken = tmp_path / "x.json", tmp_path / "y.json"
    foreign.write_text('{"schema": "other/1"}', "utf-8")
    broken.write_text(json.dumps({"schema": measure.SCHEMA}), "utf-8")
    before = {file: file.read_bytes() for file in (foreign, broken)}
    for out, said in (
        (tmp_path / "a.png", "--out must end in .json, got 'a.png'"),
        (tmp_path, "it is a folder"),
        (foreign, "another kind: 'other'"),
        (broken, "lacks 'date'"),
    ):
        assert measure.main(["measure", "--out", str(out)]) == 1
        assert said in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(measure.tempfile, "TemporaryFile", full)
    assert measure.main(["measure", "--out", str(tmp_path / "z.json")]) == 1
    assert "can't be written: No space left" in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_a_record_that_can_t_be_saved_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, elsewhere, save = tmp_path / "a.json", tmp_path / "tmp", Record.save
    elsewhere.mkdir()
    monkeypatch.setattr(measure.tempfile, "tempdir", str(elsewhere))

    def full(record: Record, path: Any) -> Path:
        if Path(path) == out:
            raise OSError(28, "No space left on device")
        return save(record, path)

    monkeypatch.setattr(Record, "save", full)
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 1
    (kept,) = elsewhere.glob("*/a.json")
    assert measure.load(kept).complete
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert f"the record is kept as {kept}" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("encoding", "file", "said"),
    [
        ("ascii", "printed", ""),
        ("utf-8", "/dev/full", "can't print: .*No space left"),
        ("utf-8", "", ""),
    ],
)
def test_a_report_that_can_t_be_printed_costs_no_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    encoding: str,
    file: str,
    said: str,
) -> None:
    reader, gone = os.pipe()
    os.close(reader)
    out = tmp_path / "a.json"
    with (
        contextlib.suppress(OSError),
        open(tmp_path / file if file else gone, "w", encoding=encoding) as to,
    ):
        monkeypatch.setattr(sys, "stdout", to)
        assert measure.main(["measure", "--quick", "--out", str(out)]) == 0
    assert measure.load(out).complete
    assert out.with_suffix(".png").exists()
    assert re.search(said, capsys.readouterr().err) is not None
    assert encoding != "ascii" or "picture: " in (tmp_path / file).read_text(encoding)


@pytest.mark.usefixtures("few")
def test_a_picture_of_someone_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "a.json", tmp_path / "a.png"
    picture.write_bytes(b"holiday")
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 0
    assert f"no picture: {picture} is there" in capsys.readouterr().err
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 0  # a record is there now
    assert picture.read_bytes() == b"holiday"
    picture.unlink()
    for _ in range(2):  # the second replaces its own
        assert measure.main(["measure", "--quick", "--out", str(out)]) == 0
        assert f"picture: {picture}" in capsys.readouterr().out


def test_an_interrupt_before_the_measurement_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(jax, "devices", stop)
    assert measure.main(["measure"]) == 130
    assert capsys.readouterr().err == ""


def test_a_wrong_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ([], ["measur"], ["measure", "--passes", "0"], ["measure", "--passes", "x"]):
        with pytest.raises(SystemExit, match="2"):
            measure.main(wrong)
    missing = tmp_path / "no folder" / "a.json"
    assert measure.main(["measure", "--out", str(missing)]) == 1
    assert "there is no folder" in capsys.readouterr().err


def test_the_bar() -> None:
    class Terminal:
        text = ""

        def __init__(self, terminal: bool) -> None:
            self.isatty = lambda: terminal

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    for terminal, lines in ((True, 0), (False, 10)):
        stream = Terminal(terminal)
        bar = measure.Bar(40, stream)
        for n in range(40):
            bar.step(f"case {n}")
        bar.close()
        assert stream.text.count("\n") == lines


# --- independent programs -------------------------------------------------------------------------


@pytest.mark.slow
def test_stream_and_numpy_are_reached(tmp_path: Path) -> None:
    """Half of them on any machine at any time; tools/cpu/compare.py gives the real ratio."""
    try:
        compare_cpu.compile_stream(tmp_path)
    except compare_cpu.NoCompiler as error:
        pytest.skip(f"STREAM is not compared: {error}")
    found: dict[str, Any] = {}
    for found in compare_cpu.compare(3, 2**25, (512,), repeats=4):
        ratios = [found[part]["ratio of the best"] for part in ("memory", "compute")]
        if min(ratios) > 0.9:
            break
    assert min(ratios) > 0.5, found
    assert set(found["memory"]["stream"]) - {"copy_past_cache"} == {"copy", "scale", "add", "triad"}


def test_the_committed_comparison_can_be_read() -> None:
    comparison = measure.compared()
    assert [run["cores"] for run in comparison["runs"]] == [comparison["host"]["cores"], 1]
    for run in comparison["runs"]:
        memory = run["memory"]
        assert memory["ratio of the best"] == pytest.approx(
            max(memory["jax"].values()) / max(memory["stream"].values())
        )
    with pytest.raises(BadRecord, match="nothing"):
        measure.compared("nothing")


def test_ncu_s_table_is_read() -> None:
    lines = ["==PROF== Connected", '"ID","Process ID","Kernel Name","Metric Name","Metric Value"']
    number = 0

    def launch(kernel: str, read: float, written: float) -> None:
        nonlocal number
        values = (read, written, 1000.0)
        for metric, value in zip(measure_gpu.METRICS, values, strict=True):
            lines.append(f'"{number}","1","{kernel}","{metric}","{value:,.0f}"')
        number += 1

    for name, kernels in (("a", 1), ("b", 2), ("odd", 1)):
        launch("spin_kernel(long)", 5, 5)
        for turn in range(measure_gpu.LAUNCHES + (name == "odd")):
            for _ in range(kernels):
                launch(f"{name}<float, 4>", 1e6 + (9e9 if turn < 2 else 0), 2e6)
    ran = [("a", "jax"), ("b", "torch"), ("odd", "jax")]
    found = measure_gpu.parse("\n".join(lines), ran)
    assert set(found) == {("a", "jax"), ("b", "torch")}
    assert found["a", "jax"]["dram_read"] == 1e6
    assert found["b", "torch"]["dram_read"] == 2e6
    assert found["b", "torch"]["dram_written"] == 4e6
    assert found["b", "torch"]["kernels"] == 2
    assert found["a", "jax"]["seconds"] == 1e-6
    assert measure_gpu.parse("==ERROR== no permission", ran) == {}


def test_the_gpu_script_s_cases_are_told_apart() -> None:
    cases = measure_gpu.suite()
    keys = [each.key for each in cases]
    assert len(set(keys)) == len(keys)
    assert sum(map(measure_gpu.counted, cases)) >= 15
    chain = {each.name.split()[1]: each.work.bytes for each in cases if each.group == "chain"}
    assert chain["four"] / chain["one"] == pytest.approx(2.5, rel=1e-3)


def chain_arguments(seed: int) -> tuple[Any, ...]:
    """x, γ, β, mask, and residual or dy, for the chain and its gradient."""
    rng = np.random.default_rng(seed)
    x, other = (jnp.asarray(rng.standard_normal((8, 64)), jnp.float32) for _ in range(2))
    gamma, beta = (jnp.asarray(rng.standard_normal(64), jnp.float32) for _ in range(2))
    mask = jnp.asarray(rng.random((8, 64)) > measure_gpu.RATE, jnp.float32)
    return x, gamma, beta, mask, other


def test_the_chains_of_the_gpu_script_agree() -> None:
    args = chain_arguments(0)
    wanted = measure_gpu.op_by_op(*args)
    for chain in (measure_gpu.one_jit, measure_gpu.pallas_chain):
        np.testing.assert_allclose(chain(*args), wanted, rtol=1e-5, atol=1e-5)


def test_the_gradients_of_the_gpu_script_agree() -> None:
    args = chain_arguments(1)
    theirs = measure_gpu.gradient(measure_gpu.one_jit)(*args)
    ours = measure_gpu.gradient(measure_gpu.pallas_chain)(*args)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_gpu_script_s_backward_cases_run_and_are_counted() -> None:
    found = [each for each in measure_gpu.suite(True, ["backward"]) if each.fn]
    record = run(*found)
    assert [each.error for each in record.samples if each.error] == []
    assert {each.source for each in found} == {"jax", "pallas", "cudnn"}
    job = measure_gpu.chain_backward_work(65536, 4096)
    assert job.bytes / (2 * 65536 * 4096) == pytest.approx(4, rel=1e-3)
    for causal in (False, True):
        forward = work.flash_attention(2, 2048, heads=16, causal=causal)
        naive, flash = measure_gpu.attention_backward_work(2, 16, 2048, 128, causal)
        assert (flash.matrix_flops / forward.matrix_flops, flash.bytes > forward.bytes) == (2.5, 1)
        assert naive.bytes > 7 * 2 * 2 * 16 * 2048**2


# --- several runs, and records that are joined ----------------------------------------------------


def timed(name: str, *medians: float, **changes: Any) -> measure.Sample:
    sample = measure._blank(case(name))
    return replace(sample, passes=tuple(measure.summary([m]) for m in medians), **changes)


def test_bytes_across_dram_are_read_and_written() -> None:
    counters = {"dram_read": 3.0, "dram_written": 4.0, "kernels": 1}
    assert timed("a", 1.0, counters=counters).dram_bytes == 7
    assert math.isnan(timed("a", 1.0).dram_bytes)


def test_runs_are_combined(small: Record, tmp_path: Path) -> None:
    first = replace(small, samples=(timed("a", 1.0, 3.0), timed("b", error="no")), notes=("one",))
    second = replace(small, samples=(timed("a", 2.2, counters={"kernels": 1}), timed("b", 5.0)))
    record = measure.combine([first, second])
    a, b = record.samples
    assert (a.runs, len(a.passes), a.counters) == ((2.0, 2.2), 3, {"kernels": 1})
    assert a.between == pytest.approx(0.2 / 2.1)
    assert (b.runs, b.error, b.notes) == ((5.0,), None, ("failed in one run: no",))
    assert math.isnan(b.between)
    assert "one" in record.notes
    assert measure.load(record.save(tmp_path / "two.json")) == record
    other = replace(small, device={**small.device, "kind": "another"})
    for wrong, said in (([], "at least one record"), ([first, other], "of one device")):
        with pytest.raises(BadValue, match=said):
            measure.combine(wrong)


def test_records_are_merged(small: Record) -> None:
    older = replace(
        small,
        samples=(timed("kept", 1.0), timed("again", 2.0), timed("fails now", 3.0)),
        date="2026-01-01T00:00:00Z",
        software={"jax": "0.1"},
    )
    failed = timed("fails now", error="no memory")
    again, new, late = timed("again", 4.0), timed("new", 5.0), timed("no time left")
    newer = replace(small, samples=(failed, again, new, late))
    merged = measure.merge(older, newer)
    dates = {each.name: each.date for each in merged.samples}
    assert dates == {"kept": older.date, "again": None, "fails now": older.date, "new": None}
    assert [each.seconds for each in merged.samples] == [1.0, 4.0, 3.0, 5.0]
    assert "measured again: no memory" in merged.samples[2].notes[0]
    assert f"samples dated {older.date} were measured with jax 0.1" in merged.notes
    assert merged.date == small.date
    with pytest.raises(BadValue, match="of one device"):
        measure.merge(replace(older, device={**older.device, "kind": "another"}), newer)


def test_the_committed_record_of_the_same_device_is_found(
    small: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    h100 = measure.measured()["h100"]
    assert measure.beside(replace(small, device=h100.device)) == h100
    another = {**h100.device, "kind": "NVIDIA H100 PCIe"}
    assert measure.beside(replace(small, device=another)) is None
    # every CPU calls itself "cpu": the processor and the cores must be the same
    twin = replace(small, date="2026-01-01")
    monkeypatch.setattr(measure, "measured", lambda: {"twin": twin})
    assert measure.beside(small) == measure.beside() == twin
    assert measure.beside(replace(small, device={**small.device, "name": "other"})) is None
    assert measure.beside(replace(small, host={**small.host, "cores": 999})) is None
    with pytest.raises(BadType, match="must be a Record"):
        measure.beside("h100")  # type: ignore[arg-type]


def test_the_gpu_script_measures_in_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu.json"
    typed = ["--tiny", "--only", "decode", "--seconds", "0.001", "--no-counters"]
    monkeypatch.setattr("sys.argv", ["x", *typed, "--runs", "2", "--out", str(out)])
    assert measure_gpu.main() == 0
    record = measure.load(out)
    assert [len(each.runs) for each in record.samples] == [2]
    assert record.command.endswith("--runs 2 --out gpu.json")
    assert "2 runs" in capsys.readouterr().out
    monkeypatch.setattr(
        "sys.argv", ["x", *typed[:2], "vector", *typed[3:], "--merge", str(out), "--out", str(out)]
    )
    assert measure_gpu.main() == 0
    merged = measure.load(out)
    assert {each.group: each.date for each in merged.samples}["decode"] == record.date
    assert merged.sample(record.samples[0].name).runs == record.samples[0].runs
