"""Whole texts of reports, explanations and comparisons, exactly as a reader has accepted them.

To accept another text, remove its file in data/said and run this test: it writes the new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hlo_texts import FIXTURES
from kept_records import kept_report, step_of

from roofline.cli import main
from roofline.diagnosis import Explanation, compare
from roofline.diagnosis.ceilings import Roofs
from roofline.diagnosis.modelled import found_in
from roofline.diagnosis.rows import TimedRow
from roofline.diagnosis.upgrade import Upgrade
from roofline.terminal import text_of
from roofline.xla import Flops, Row
from roofline.xla.causes import Finding
from roofline.xla.changes import Changes
from roofline.xla.collectives import CollectiveOp
from roofline.xla.compiler import MemoryStats
from roofline.xla.metadata import SourceLine
from roofline.xla.minimum import Needed
from roofline.xla.report import Report
from roofline_helpers.measured.kernels import Expected
from tools.diagnoses import report_of

KEPT = Path(__file__).parent / "data" / "said"


def read(name: str, **facts: Any) -> Report:
    """Return the report of a program whose text lies in data/hlo, with its causes."""
    file = next(file for file in FIXTURES if file.name.startswith(f"{name}.jax"))
    function, chip, _ = file.name.split(".", 2)
    report = report_of(file.read_text("utf-8"), chip, name=function)
    return found_in(replace(report, **facts))


# --- made by hand, so that each number differs from the others ------------------------------------

LINE = SourceLine("model.py", 18, "mlp")
SENT = CollectiveOp("x", "all-gather", 3_000_000, 12_000_000, 4, launches=2, axis="data")
CHOSEN = (
    Row("a", "fusion", "matmul", LINE, flops=Flops(matrix=7e9), read={"hbm": 6_000_000}),
    Row("b", "fusion", "softmax", flops=Flops(0, 3e9, 2e8), read={"hbm": 90_000_000}, launches=3),
    Row("c", "fusion", "sum", written={"hbm": 70_000_000}, launches=0, dearest=5),
    Row("d", "fusion", "GELU", read={"hbm": 900_000, "vmem": 5000}, launches=4, dearest=2),
    Row("e", "all-gather", "gather of w", LINE, collective=SENT, launches=2, dearest=6),
)
MEMORY = MemoryStats(9_000_000_000, 4_000_000_000, 2_000_000_000, 1_000_000_000, 50_000_000)
BASE = Report(
    "step", "v5e", "tpu", ("bf16[8,9]", "f32[7]"), CHOSEN, ("a caveat",), {}, "0.1", "libtpu 2"
)
FINDINGS = (
    Finding("zeros", 3e-5, ("a",), "f32[8,9] holds zeros", str(LINE), 0.5, known=True),
    Finding("attention", 2e-5, ("b",), "scores pass through", "", 0.997),
    Finding("unknown-loop", 0.0, ("d",), "while.4 turns"),
    Finding("host", 1e-5, (), "no kernel runs", "", 0.25, remedy="queue more"),
    Finding("scores", 9e-6, ("e",), "scores", "a.py:3", 0.3, (1e-6, 4e-6), "two pairs"),
    Finding("below-roof", 8e-6, ("a",), "matmul takes", str(LINE), 0.4),
    Finding("below-roof", 7e-6, ("b",), "softmax takes", "", 0.2),
    Finding("least-memory-bound", 6e-6, ("b",), "is near", "", 0.2),
)
CHOICE = replace(
    BASE,
    devices=4,
    mesh={"data": 4},
    topology="2x2",
    memory=MEMORY,
    xla={"flops": 5e9, "bytes accessed": 8e7, "optimal_seconds": 3e-4},
    needed=Needed(40_000_000, {"bf16": 6e9}, 5e7),
    findings=FINDINGS,
)
PLACES = tuple(
    replace(CHOSEN[0], op_name=f"jit(f)/layer_{n}/up_{n}x/dot", launches=n) for n in range(1, 28)
)
SHORT = Row("k", "add", "add", read={"hbm": 1000}, written={"hbm": 3000})
REPORTS: dict[str, Callable[[], Report]] = {
    "chosen": lambda: CHOICE,
    "chosen-of-many": lambda: replace(CHOICE, rows=(*CHOSEN[3:] * 4, *PLACES), findings=()),
    "latency": lambda: replace(BASE, target="h200", platform="gpu", rows=(SHORT,), findings=()),
    "nothing": lambda: replace(BASE, rows=(), notes=()),
    "loop": lambda: read("while-unknown.v6e", needed=Needed(3e6, refused="its loop is unknown")),
    "gpu": lambda: read("layernorm.h100", needed=Needed(5e7, {}, 4e8)),
    "cpu": lambda: read("layernorm.cpu"),
    "again": lambda: read("remat.v6e", requested_flops=1e9),
    "scan": lambda: read("scan-100.v7x"),
    "unknown": lambda: read("attention.v6e"),
    "slow-kernel": lambda: kept_report("chain-xla", "v5e"),
    "network": lambda: kept_report("shard-fsdp-32768", "v6e"),
    "needed": lambda: kept_report("reshard-columns-rows-rows", "v5e"),
    "groups": lambda: kept_report("experts-megablox-by_rows", "v6e"),
    "host": lambda: kept_report("whole-v6e-8-llama-3_1-8b", "v6e"),
    "not-measured": lambda: kept_report("fuse-gather", "v6e"),
    "on-zeros": lambda: kept_report("experts-ragged-by_weights", "v6e"),
}


ROWS = (
    TimedRow(
        "a",
        "kernel",
        0.4,
        0.4,
        0.38,
        0.44,
        3.0,
        "jit_f",
        CHOSEN[0],
        limit="matrix",
        least=0.3,
        reachable=0.35,
    ),
    TimedRow(
        "b",
        "kernel",
        0.2,
        0.21,
        0.2,
        0.23,
        2.0,
        "jit_f",
        CHOSEN[1],
        limit="hbm",
        least=0.1,
        reachable=0.12,
    ),
    TimedRow("c", "kernel", 0.11, 0.11, 0.1, 0.12, 5.0, "jit_g", CHOSEN[2], label="sum_7"),
    TimedRow("between kernels", "gap", 0.15, 0.15, 0.15, 0.15),
    TimedRow("MemcpyH2D", "transfer", 0.05, 0.05, 0.05, 0.05),
)
CALL = Explanation(
    "step",
    ("bf16[8,9]", "f32[7]"),
    "gpu",
    "NVIDIA H200",
    "measured",
    (0.9, 1.2, 1.0),
    rows=ROWS,
    findings=FINDINGS[:4],
    traced=(1.05, 1.1, 1.4),
    ungraphed=(1.3, 1.7, 1.25),
    queue=3,
    compiling=2.5,
    hand=0.25,
    needed=Needed(4e11, {"bf16": 3e13}, 2e11),
    expected=Expected(0.6, 0.5, 0.8, why="a table"),
    roofs=Roofs({"hbm": 4.8e12}, {"hbm": 4.3e12}, "a record"),
    notes=("a caveat",),
    software={"jax": "0.9", "xla": "7"},
)
ABOVE = (
    replace(ROWS[1], seconds=0.3, reachable=0.2, least=0.15),
    replace(ROWS[0], seconds=0.7, reachable=0.1, least=0.09),
)
LATER = replace(
    CALL,
    device="NVIDIA H100",
    arguments=("bf16[8,9]",),
    runs=(2.4, 2.6),
    rows=(
        replace(CALL.rows[0], seconds=0.9, busy=0.9, low=0.8, high=1.0),
        replace(CALL.rows[1], seconds=0.1, busy=0.1, low=0.1, high=0.1),
        replace(CALL.rows[3], seconds=0.9),
        TimedRow("new", "kernel", 0.3, 0.3, 0.3, 0.3),
    ),
    withheld="it is slowed",
    software={"jax": "0.10", "cuda": "13"},
)

EXPLANATIONS: dict[str, Callable[[Any], Explanation]] = {
    "graphs": lambda recorded: CALL,
    "withheld": lambda recorded: replace(CALL, withheld="the profiler slows it", expected=None),
    "above": lambda recorded: replace(
        CALL, platform="cpu", rows=ABOVE, runs=(1.0,), findings=FINDINGS[5:7], needed=None
    ),
    "little": lambda recorded: replace(
        CALL, rows=ABOVE[1:], findings=(replace(FINDINGS[0], share=0.04),), expected=None, hand=None
    ),
    "no-rows": lambda recorded: replace(CALL, rows=(), traced=(), origin="trace", name="a.pb"),
    "decode": lambda recorded: step_of("decode", 0, batch=16),
    "devices": lambda recorded: step_of("train-step", 0),
    "roofless": lambda recorded: step_of("context", 2),
    "no-cause": lambda recorded: step_of("energy", 2),
    "straggler": lambda recorded: recorded("h200x4-straggler", 4),
    "profile": lambda recorded: recorded("h200-scan", 3),
    "waits": lambda recorded: recorded("h200-loop"),
}
MANY = tuple(
    replace(ROWS[0], name=name, seconds=0.1, busy=0.1, low=0.1, high=0.1, kernel=Row(role=name))
    for name in "uvwxyz"
)
SLOWER = [replace(row, seconds=0.13, busy=0.13, low=0.12, high=0.13) for row in MANY]
PAIRS: dict[str, Callable[[], Changes | Upgrade]] = {
    "upgrade-by-hand": lambda: compare(CALL, LATER),
    "upgrade-back": lambda: compare(LATER, CALL),
    "upgrade-of-clock": lambda: compare(
        replace(CALL, rows=MANY, ungraphed=()), replace(CALL, rows=(*SLOWER, ROWS[1]), runs=(1.3,))
    ),
    "diff-rows": lambda: CHOICE.diff(
        replace(
            CHOICE,
            rows=(*CHOSEN[1:3], replace(CHOSEN[3], launches=9), CHOSEN[3], SHORT),
            memory=replace(MEMORY, temporaries=3_000_000_000, code=60_000_000),
            needed=Needed(50_000_000),
            compiler="libtpu 3",
        )
    ),
    "diff-turns": lambda: replace(CHOICE, rows=(replace(CHOSEN[0], launches=3), *CHOSEN)).diff(
        replace(
            CHOICE,
            rows=(*CHOSEN[:1] * 4, replace(CHOSEN[4], collective=replace(SENT, bytes_in=4))),
            memory=replace(MEMORY, aliased=200_000_000),
            arguments=(),
            topology="",
        )
    ),
    "diff-kernels": lambda: kept_report("chain-xla", "v6e").diff(
        kept_report("chain-pallas", "v6e")
    ),
    "diff-chip": lambda: kept_report("shard-fsdp-8192", "v5e").diff(
        kept_report("shard-fsdp-8192", "v6e")
    ),
    "upgrade": lambda: compare(step_of("decode", 0, batch=16), step_of("decode", 2, batch=16)),
    "upgrade-many": lambda: compare(step_of("train-step", 0), step_of("train-step", 4)),
}
SERVE = "serve llama-3-70b --chip h200 --chips 8 --weights fp8"
COMMANDS = {
    "chips": "chip v6e h200 mi300x",
    "turns": "analyze x.py --turns a",
    "serve": f"{SERVE} --concurrency 48",
    "serve-for": f"{SERVE} --for 9\xa0requests/s,\xa0time\xa0per\xa0token\xa020\xa0ms",
    "mfu": "mfu llama-3-8b --chip h100 --tokens-per-second 9000 --seq 8192 --recompute full",
}


FRAMES: dict[str, Callable[[], Any]] = {
    "table-of-chosen": lambda: CHOICE.table(),
    "table-of-call": lambda: CALL.table(),
    "table-of-functions": lambda: replace(CALL, rows=(*ROWS, *ABOVE)).table(by="function"),
    "table-of-devices": lambda: step_of("train-step", 0).table(by="device"),
    "table-of-upgrade": lambda: compare(CALL, LATER).table(),
}


def check(name: str, text: str) -> None:
    """Compare a text with the accepted one, without the versions on its last line."""
    file = KEPT / f"{name}.txt"
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if not file.exists():
        file.write_text(text, "utf-8")
        pytest.fail(f"{file} was written anew: read it, and run the test again")
    assert text == file.read_text("utf-8")


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_says_what_was_accepted(name: str) -> None:
    report = REPORTS[name]()
    check(name, f"{report!r}\n\n{report.describe().rpartition('(')[0]}")


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_an_explanation_says_what_was_accepted(name: str, recorded: Any) -> None:
    why = EXPLANATIONS[name](recorded)
    check(name, f"{why!r}\n\n{why.describe()}\n")


@pytest.mark.parametrize("name", PAIRS)
def test_a_comparison_says_what_was_accepted(name: str) -> None:
    pair = PAIRS[name]()
    if isinstance(pair, Upgrade):
        check(name, f"{pair!r}\n\n{text_of(*pair.parts())}")
        return
    numbers = [
        f"{each.kind}: {each.seconds:.6g} s, {each.hbm_bytes:.6g} B, {each.flops:.6g} FLOP"
        for each in pair.changes
    ]
    check(name, "\n".join([repr(pair), "", pair.describe(), "", *numbers]))


@pytest.mark.parametrize("name", FRAMES)
def test_a_table_has_what_was_accepted(name: str) -> None:
    check(name, FRAMES[name]().to_csv(float_format="%.6g"))


def test_a_comparison_says_the_same_to_programs() -> None:
    check("upgrade-data", json.dumps(compare(LATER, CALL).data(), indent=1))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_was_accepted(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([word.replace("\xa0", " ") for word in COMMANDS[name].split(" ")])
    check(name, "".join(capsys.readouterr()) + f"exits with {status}\n")
