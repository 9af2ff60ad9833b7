"""Random programs against a count of what they ask for, which nothing of the package made.

`make test` tries the same programs each time, the weekly tests other ones each week. A failure is a
program to paste. `pytest tests/package/test_fuzz.py -m weekly --hypothesis-seed=7` tries others.
"""

import gzip
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import jax
import pytest
from compiled_reports import needs
from fuzz_oracle import Asked, asked_of
from fuzz_programs import (
    FAMILIES,
    Kernel,
    Program,
    divided_programs,
    kernels,
    programs,
    spread_programs,
)
from hlo_texts import FIXTURES
from hypothesis import HealthCheck, Phase, assume, example, given, settings

import roofline
from roofline import xla
from roofline.diagnosis.modelled import case_of
from roofline.diagnosis.trace import programs_in, read_trace
from roofline.xla.hlo import COLLECTIVES

Wrong = Iterator[tuple[str, str]]
"""Kinds of failures, and what is wrong."""


def wrong_with(program: Program, most: float = 8) -> list[tuple[str, str]]:
    """Return all that is wrong with what is said of a program.

    It may move so many times `most` what it would without any fusion.
    """
    fn, args = program.made()
    asked = asked_of(jax.make_jaxpr(fn)(*args))
    report = xla.analyze(fn, *args, chip=program.chip)
    divided = bool(program.mesh) and program.around == "f"
    return [*against(report, asked, most, divided), *sound(report)]


def holds(program: Program, most: float = 8) -> None:
    try:
        found = wrong_with(program, most)
    except xla.CannotCompile:  # such as a product of int4 with a batch, which no CPU has
        assume(False)
    failed_if(found, program)


def failed_if(found: list[tuple[str, str]], program: Program | Kernel) -> None:
    """Fail with what is wrong and the program, in lines that pytest puts nothing before."""
    if found:
        said = [f"{kind}: {what}" for kind, what in found]
        pytest.fail("\n".join([*said, "", str(program)]), pytrace=False)


# --- against the count ----------------------------------------------------------------------------


def against(report: xla.Report, asked: Asked, most: float, divided: bool) -> Wrong:
    """Yield where a report leaves the range of what the program asks for.

    Of one that the compiler `divided` among devices, each may do all, and what it sends is its
    choice.
    """
    count = asked.count
    assert not count.strange, f"the oracle has no rule for {sorted(count.strange)}"
    low = count.matrix.low - count.outer + 0.45 * count.other.low
    high = (count.matrix.high + 4 * count.other.high) * (report.devices if divided else 1)
    got = report.flops * report.devices
    if not report.unknown and not report.at_least and got < 0.97 * low - 16:
        yield "flops low", f"{got:.6g} < {low:.6g}"
    if got > 1.1 * high + 64:
        yield "flops high", f"{got:.6g} > {high:.6g}"
    if not count.open and report.most_flops * report.devices < 0.97 * (
        count.matrix.high - count.outer
    ):
        yield "range", f"at most {report.most_flops:.6g}, and {count.matrix.high:.6g} may run"
    if math.isinf(count.matrix.high) and not (report.at_least or report.unknown):
        yield "open", "data decide how much there is, and nothing says so"
    wanted, told = asked.requested, report.requested_flops
    if told is None and not asked.chooses:
        yield "requested", f"unknown, and {wanted.low:.6g} FLOP of matmuls are asked for"
    if told is not None and not wanted.low - 0.5 <= told <= wanted.high + 0.5:
        yield "requested", f"{told:.6g} for {wanted.low:.6g} to {wanted.high:.6g}"
    links = (row.collective.link_bytes * row.launches for row in report.rows if row.collective)
    sent = sum(links)
    if not divided and not 0.99 * count.sent.low - 8 <= sent <= 1.01 * count.sent.high + 8:
        yield "sent", f"{sent:,} for {count.sent.low:,} to {count.sent.high:,} bytes"
    moved = report.hbm_bytes * report.devices
    if moved < 0.995 * asked.least - 8:
        yield "bytes low", f"{moved:,} < {asked.least:,}"
    if moved > (most * count.moved + 512) * report.devices:
        yield "bytes high", f"{moved:,} > {count.moved:,} without any fusion"


# --- a report by itself ---------------------------------------------------------------------------

NUMBERS = (
    "flops matrix_flops vector_flops transcendentals hbm_bytes read_bytes written_bytes host_bytes "
    "most_flops most_bytes time_at_roof time_with_floor time_at_most cycle_seconds extra intensity"
).split()
NONSENSE = re.compile(r".*(\bnan\b|\bNone\b|-\d+(\.\d+)? (B|FLOP|s|µs)\b|Traceback).*")
EXCHANGE = re.compile(rf" ({'|'.join(COLLECTIVES)})(?:-start)?\(")


def sound(report: xla.Report) -> Wrong:
    """Yield what contradicts itself, or can't be printed, kept and read again."""
    for name in NUMBERS:
        value = getattr(report, name)
        if value is not None and not value >= 0:
            yield "number", f"{name} = {value}"
    for kernel in report.kernels:
        amounts = [*kernel.traffic.values(), kernel.launches, kernel.work.flops.matrix]
        if min(amounts) < 0:
            yield "number", f"{kernel.name}: {amounts}"
    ends = (
        (report.flops, report.most_flops),
        (report.hbm_bytes, report.most_bytes),
        (report.time_at_roof or 0, report.time_at_most or 0),
    )
    if any(least > most * (1 + 1e-9) for least, most in ends):
        yield "order", f"{ends}"
    expected = report.expected
    if expected is not None and not 0 <= expected.low <= expected.known <= expected.high:
        yield "order", f"expected {expected.low}, {expected.seconds}, {expected.high}"
    text = report.describe()
    yield from (("wide", line) for line in text.splitlines() if len(line) > 100)
    if nonsense := NONSENSE.search(text):
        yield "text", nonsense[0]
    report._repr_html_()
    for by in ("scope", "function", "line", "role"):
        if sum(map(len, report.groups(by).values())) != len(report.kernels):
            yield "groups", by
    back = xla.Report.from_json(report.to_json())
    unlike = [
        field.name
        for field in fields(report)
        if field.compare and getattr(back, field.name) != getattr(report, field.name)
    ]
    if unlike or report.diff(back):
        yield "record", f"other {unlike}, {report.diff(back)}"
    brief = xla.Report.from_json(report.to_json(brief=True))
    if report.diff(brief):
        yield "record", f"its brief form: {report.diff(brief)}"
    said = Counter(EXCHANGE.findall(report.text))
    rows = Counter(row.collective.kind for row in report.rows if row.collective is not None)
    if sum(said.values()) > sum(rows.values()):
        yield "exchange", f"the program has {dict(said)}, the report {dict(rows)}"


# --- programs -------------------------------------------------------------------------------------

FIXED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "phases": [Phase.explicit, Phase.generate, Phase.shrink],
}


FUSED = "one_operand two_operands whole_numbers choice updating moving fourier".split()
MOST = dict.fromkeys(FAMILIES, 6.0) | dict.fromkeys(FUSED, 1.2) | {"product": 18.0}
"""What one operation moves on a CPU, at most, for its operands and results.

Often it does so in fp32: operands of four bits become eight times as wide, are written and read.
"""


@pytest.mark.parametrize("family", FAMILIES)
@settings(**FIXED, max_examples=8, derandomize=True)
@given(data=st.data())
def test_one_operation_is_what_it_asks_for(family: str, data: st.DataObject) -> None:
    holds(data.draw(programs((family,), steps=1)), MOST[family])


@settings(**FIXED, max_examples=30, derandomize=True)
@given(programs())
def test_what_is_said_of_a_program_is_what_it_asks_for(program: Program) -> None:
    holds(program)


@settings(**FIXED, max_examples=10, derandomize=True)
@given(spread_programs())
def test_a_device_of_a_mesh_does_its_part_and_sends_what_it_must(program: Program) -> None:
    needs("v6e")
    holds(program)


@settings(**FIXED, max_examples=5, derandomize=True)
@given(divided_programs())
def test_what_a_compiler_divides_is_at_least_the_whole(program: Program) -> None:
    needs("v6e")
    holds(program)


@pytest.mark.weekly
@pytest.mark.parametrize("family", FAMILIES)
@settings(**FIXED, max_examples=40)
@given(data=st.data())
def test_more_of_one_operation(family: str, data: st.DataObject) -> None:
    holds(data.draw(programs((family,), steps=1)), MOST[family])


@pytest.mark.weekly
@settings(**FIXED, max_examples=400)
@given(programs())
def test_more_programs(program: Program) -> None:
    holds(program)


FOR_CHIPS = programs(chip="v6e"), programs(chip="v7x"), spread_programs(), divided_programs()


@pytest.mark.weekly
@settings(**FIXED, max_examples=200)
@given(st.one_of(*FOR_CHIPS))
def test_more_programs_for_chips_and_their_explanations(program: Program) -> None:
    """Each second is claimed once: what findings lose is no more than there is."""
    needs("v6e")
    holds(program)
    fn, args = program.made()
    report = roofline.explain(fn, *args, chip=program.chip, progress=False)
    lost = sum(finding.seconds for finding in report.findings or ())
    whole = case_of(report).wall
    over = lost > whole * (1 + 1e-9)
    failed_if([("claimed", f"{lost:.3g} s of {whole:.3g} s")] if over else [], program)


@settings(**FIXED, max_examples=8, derandomize=True)
@given(st.one_of(programs(), spread_programs(), divided_programs(), kernels()))
@example(Program((((), "float32", ""),), ("x0 = a0 * 2",), "jax.vmap(f)"))
def test_a_failure_is_ten_lines_that_run_as_they_are_pasted(failed: Program | Kernel) -> None:
    needs("v6e")
    assert len(str(failed).splitlines()) <= 10
    try:
        exec(str(failed), {})
    except xla.CannotCompile:
        assume(False)


# --- Pallas kernels -------------------------------------------------------------------------------


@settings(**FIXED, max_examples=60, derandomize=True)
@given(kernels())
def test_a_pallas_kernel_is_counted_as_a_walk_over_its_grid_does(kernel: Kernel) -> None:
    call, args, (product, other, moved) = kernel.walked()
    [counted] = xla.pallas_kernels(call, *args)
    got = counted.matrix_flops, counted.vector_flops, [*counted.reads, *counted.writes]
    wanted = product, other, moved
    failed_if([("kernel", f"{got} for {wanted}")] if got != wanted else [], kernel)


# --- programs of GPUs, as text --------------------------------------------------------------------


def texts() -> dict[str, str]:
    """Return the programs of GPUs in records of the repository, each once."""
    found = {path.stem: path.read_text("utf-8") for path in FIXTURES if ".h100." in path.stem}
    for file in sorted((Path(__file__).parent / "data" / "traces").glob("*.gz")):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / file.stem
            trace.write_bytes(gzip.decompress(file.read_bytes()))
            for name, program in programs_in(read_trace(trace)).items():
                if "(" not in name and isinstance(program.source, str):
                    found[f"{file.name} {name}"] = program.source
    return found


GPU = texts()


def products_in(text: str) -> float:
    """Return the FLOPs of a text's products and calls of cuBLAS, by its lines alone."""
    shape = r"\(?\w+\[([\d,]*)\]"
    bodies = {
        match[1]: match[2]
        for match in re.finditer(r"^(?:ENTRY )?%?([\w.\-]+) \(.*?\{\n(.*?)^\}", text, re.M | re.S)
    }
    entry = re.search(r"^ENTRY %?([\w.\-]+)", text, re.M)
    assert entry is not None

    def of(name: str) -> float:
        dims = dict(re.findall(rf"%?([\w.\-]+) = {shape}", bodies[name]))
        total = 0.0
        for line in bodies[name].splitlines():
            made = re.match(rf"\s+(?:ROOT )?%?[\w.\-]+ = {shape}.*? ([\w\-]+)\(%?([\w.\-]+)", line)
            inner = re.search(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d",]+)', line)
            if made and inner and (made[2] == "dot" or "__cublas" in line):
                left = [int(n) for n in dims[made[3]].split(",")]
                out = math.prod(int(n) for n in made[1].split(",") if n)
                axes = (int(n) for n in re.findall(r"\d+", inner[1]))
                total += 2 * out * math.prod(left[axis] for axis in axes)
            turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            for called in re.findall(r"(?:calls|body)=%?([\w.\-]+)", line):
                total += of(called) * (int(turns[1]) if turns and "body=" in line else 1)
        return total

    return of(entry[1])


@pytest.mark.parametrize("name", GPU)
def test_products_of_a_gpu_s_program_are_those_in_its_text(name: str) -> None:
    rows = xla.kernels(GPU[name], "gpu").rows
    flops = sum(
        row.flops.matrix * row.launches
        for row in rows
        if not row.role.startswith("cuDNN attention")
    )
    assert flops == products_in(GPU[name])


@settings(**FIXED, max_examples=25, derandomize=True)
@given(st.sampled_from(sorted(GPU)), st.randoms(use_true_random=False))
def test_names_order_and_notes_of_a_program_change_no_count(name: str, chance: Random) -> None:
    """Instructions under other names, computations in another order, metadata left out."""
    text = re.sub(r", metadata=\{(?:[^{}\"]|\"[^\"]*\")*\}", "", GPU[name])
    head, *computations = re.split(r"\n(?=(?:ENTRY )?%[\w.\-]+ \()", text)
    chance.shuffle(computations)
    names = set(re.findall(r"%([\w.\-]+)", text))
    others = {each: f"{chance.choice('abc')}.{number}" for number, each in enumerate(sorted(names))}
    moved = "\n".join([head, *computations])
    moved = re.sub(r"%([\w.\-]+)", lambda match: f"%{others[match[1]]}", moved)
    assert counts(moved) == counts(GPU[name])


def counts(text: str) -> Counter[Any]:
    return Counter(
        (row.opcode, row.flops, row.read_bytes, row.written_bytes, row.launches)
        for row in xla.kernels(text, "gpu").rows
    )
