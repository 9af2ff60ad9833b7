"""What is said of programs that are kept, as accepted in `tests/data/diagnoses.json`.

    python -m tools.diagnoses    after a change of what is said: then read the difference

Of each pair of `measurements.repairs`: by the clock of an H200, and of both programs without one.
Of traces that GPUs recorded, and of what the TPU compiler made of the tests' programs.
`tests/package/test_diagnosis_accepted.py` says it again.
"""

import functools
import gzip
import json
import lzma
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import roofline
from measurements import promises
from measurements.repairs import SIDES
from roofline.diagnosis import Explanation
from roofline.diagnosis.answer import answer, parts_of
from roofline.diagnosis.modelled import found_in
from roofline.xla.causes import Finding
from roofline.xla.hlo import parse
from roofline.xla.ledger import kernels
from roofline.xla.report import Report
from roofline_helpers import chips
from tools import books, programs

ACCEPTED = books.ROOT / "tests/data/diagnoses.json"
TRACES = books.ROOT / "tests/package/data/traces"
QUEUES = {
    "h200-cudnn": 1,
    "h200-logits": 1,
    "h200-loop": 1,
    "h200-scan": 3,
    "h200-step-scan": 1,
    "h200x4-sliced": 4,
    "h200x4-straggler": 4,
}
"""Traces, and the calls in each of their runs."""
SUMMED = "seconds busy low high launches inside least reachable bytes matrix_flops kernels".split()
"""Numbers of rows whose sums are told."""


def of_finding(finding: Finding) -> list[str]:
    """Return all that is told of a finding."""
    ends = "" if finding.saves is None else " saves {:.6g} to {:.6g}".format(*finding.saves)
    known = ", known" if finding.known else ""
    return [
        f"{finding.cause} at {finding.source or 'no line'}: {finding.seconds:.6g} s{ends}{known}, "
        f"{finding.share:.4g} of the call, in {' '.join(finding.kernels) or 'no kernel'}",
        f"  {finding.evidence}" + (f" -> {finding.remedy}" if finding.remedy else ""),
    ]


def of_run(why: Explanation) -> list[str]:
    """Return what is said of a program that ran: answer, findings, bars, parts, and its rows."""
    sums = (sum(getattr(row, name) or 0.0 for row in why.groups) for name in SUMMED)
    return [
        *answer(why),
        *(line for finding in why.findings for line in of_finding(finding)),
        *(f"{bar.seconds:.6g} s {bar.name}" for bar in why.waterfall),
        *(f"{took:.6g} s to {part}" for part, took in parts_of(why).items() if took),
        *(f"{row.title}: {row.kind} {row.limit}" for row in why.groups[:5]),
        " ".join(f"{total:.6g}" for total in sums),
    ]


def report_of(compiled: str, target: str, written: str = "", name: str = "kept") -> Report:
    """Return the report of a program's text, of which nothing else is known."""
    platform = target if target == "cpu" else chips.chip(target).kind
    ledger = kernels(parse(compiled), platform)
    return Report(
        name=name,
        target=target,
        platform=platform,
        arguments=(),
        rows=ledger.rows,
        notes=ledger.notes,
        xla={},
        jax_version="",
        compiler="",
        text=compiled,
        written=written,
    )


def of_text(compiled: str, written: str, target: str) -> list[str]:
    """Return what is said of a program's text without a clock."""
    findings = found_in(report_of(compiled, target, written)).findings or ()
    return [line for finding in findings for line in of_finding(finding)]


def of_pair(folder: Path, row: Mapping[str, Any], why: Explanation) -> dict[str, list[str]]:
    """Return what is said of a pair of programs, whose texts are in a folder."""
    said = {"by the clock": of_run(why)}
    for side in SIDES:
        compiled, written = (
            (folder / row["name"] / side / f"{kind}.hlo").read_text("utf-8")
            for kind in ("compiled", "written")
        )
        said[side] = of_text(compiled, written, "h200")
    return said


@functools.cache
def texts() -> dict[str, str]:
    """Return the tests' programs as the TPU compiler made them, the shortest first."""
    kept = json.loads(lzma.decompress(programs.PROGRAMS.read_bytes()))["programs"]
    return dict(sorted(((k, kept[k]["text"]) for k in kept), key=lambda one: (len(one[1]), one[0])))


def of_texts() -> dict[str, list[str]]:
    """Return what is said of the shortest program of each set of causes, for a v6e."""
    said = {key: of_text(text, "", "v6e") for key, text in texts().items()}
    shortest: dict[tuple[str, ...], str] = {}
    for key, lines in said.items():
        shortest.setdefault(tuple(line.split()[0] for line in lines[::2]), key)
    return {key: said[key] for key in shortest.values()}


def main() -> None:
    """Accept what is said now."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {row["name"]: row for row in promises.kept(folder)["rows"]}
        pairs = {
            name: of_pair(folder, row, promises.explanation_of(folder, row))
            for name, row in rows.items()
        }
        traces = {}
        for name, queue in QUEUES.items():
            file = folder / f"{name}.xplane.pb"
            file.write_bytes(gzip.decompress((TRACES / f"{file.name}.gz").read_bytes()))
            traces[name] = of_run(roofline.explain(file, queue=queue, progress=False))
    said = {"pairs": pairs, "traces": traces, "for a TPU": of_texts()}
    ACCEPTED.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
