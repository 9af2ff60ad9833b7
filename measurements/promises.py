"""What `explain` promises of each pair that `repairs` timed, beside what the repair gained.

    python -m measurements.promises [FOLDER…]
    python -m measurements.promises --cpu FOLDER

Writes ``roofline/data/evidence/repairs.json`` from ``measurements/repairs-h200.tar.xz``, which has
the pairs' times, their HLO, and a profile of each program before its repair. Run it after each
change of what `explain` says; it needs no device. With folders that `repairs` wrote, their archives
unpacked in ``x``, that file is made of them first. Of a folder that `repairs` wrote on a CPU, with
what ``lscpu`` said in it, ``repairs-cpu.json`` is made: what `explain` said there is kept as it is.

Nothing runs, so the explanation is put together as `explain` does it beside a device: the profile
without CUDA graphs says how long kernels take, and the clock of the pair how long a call does.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import math
import re
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from measurements.pairs import PAIRS
from measurements.repairs import SIDES
from roofline import evidence
from roofline.diagnosis.explain import Task
from roofline.diagnosis.explanation import Explanation
from roofline.diagnosis.trace import programs_in, read_trace
from roofline.xla import minimum
from roofline.xla.causes import CAUSES, Finding
from roofline.xla.lower import Arguments
from roofline_helpers import chips

PAIRS_RUN = Path(__file__).parent / "repairs-h200.tar.xz"
"""Of the pairs that ran: times, HLO, and the profiles of the programs before their repair."""
FINDINGS = 3
"""Findings of a program that the record keeps."""
SEEN = """
    attention-gradient attention-scores cache-not-donated cast-again checkpoint-everywhere
    clean-layers factorised-again few-frequencies float64-inside fp32-layers linear-recurrence
    mapped-products mixed-product one-hot-lookup product-trace ragged-product real-fft
    scan-residuals short-turns small-solves sorted-for-a-few vmapped-branch widened-residual
""".split()
"""Half of the pairs, on which the rules were improved; the others were counted afterwards."""


def explained(folder: Path, name: str, runs: list[float], queue: int) -> Explanation:
    """Return the explanation of a profiled program, whose calls took these seconds."""
    trace = read_trace(folder)
    compiled = (folder / "compiled.hlo").read_text("utf-8")
    found = re.match(r"HloModule ([^ ,]+)", compiled)
    assert found is not None
    named = f"{found[1]}({trace.events[0].number})"
    program = programs_in(trace)[named]  # others of this name in the process were compiled before
    written = (folder / "written.hlo").read_text("utf-8")
    programs = {found[1]: replace(program, written=written)}
    profiled = tuple(run.seconds / queue for run in trace.runs)
    run = Explanation(
        name=name,
        arguments=(),
        platform=trace.platform,
        device="NVIDIA H200",
        origin="trace",
        runs=tuple(runs),
        traced=profiled,
        ungraphed=profiled,
        queue=queue,
        needed=minimum.needed(written),
    )
    task = Task(None, Arguments((), {}), ())
    return task.of_run(run, trace, programs, chips.chip("h200"))


def finite(seconds: float | None) -> float | None:
    """Return seconds, and None of an end that isn't known."""
    return seconds if seconds is not None and math.isfinite(seconds) else None


def told(finding: Finding) -> dict[str, Any]:
    """Return what the record keeps of a finding."""
    return {
        "cause": finding.cause,
        "kind": finding.kind,
        "line": finding.source,
        "evidence": finding.evidence,
        "seconds": finding.seconds,
        "grade": "known" if finding.known else "costs",
        "saves": finding.saves,
    }


def explanation_of(folder: Path, row: Mapping[str, Any]) -> Explanation:
    """Return the explanation of a pair's program before its repair."""
    runs = row["seconds"]["before"]
    return explained(folder / row["name"] / "before", row["name"], runs, row["queue"]["before"])


def row_of(row: Mapping[str, Any], why: Explanation) -> dict[str, Any]:
    """Return a pair's row of the record."""
    runs = row["seconds"]["before"]
    assert why.needed is not None
    least, expected = why.needed.seconds(chips.chip("h200")), why.expected
    kept = list(why.findings[:FINDINGS])
    kept += [finding for finding in why.findings[FINDINGS:] if finding.known][:1]
    return {
        "name": row["name"],
        "kind": row["kind"],
        "source": row["source"],
        "about": row["about"],
        "awaited": row["awaited"],
        "before": statistics.median(runs),
        "after": statistics.median(row["seconds"]["after"]),
        "spread": {side: [min(times), max(times)] for side, times in row["seconds"].items()},
        "ratio": row["ratio"],
        "apart": row["apart"],
        "then": row["then"],
        "unexplained": row["unexplained"],
        "first": row["first"],
        "now": [told(finding) for finding in kept],
        "needed": least,
        "refused": why.needed.refused,
        "expected": expected and list(map(finite, (expected.seconds, expected.low, expected.high))),
    }


def on_a_cpu(folder: Path) -> None:
    """Make the record of pairs that ran on a CPU, with what `explain` said of each there."""
    record = json.loads(gzip.decompress((folder / "repairs.json.gz").read_bytes()))
    pairs = []
    for row in record["rows"]:
        why = row["explained"]
        found = [
            {key: finding[key] for key in ("cause", "seconds", "saves", "evidence")}
            | {"kind": CAUSES[finding["cause"]].kind}
            for finding in why["findings"][:FINDINGS]
        ]
        pairs.append(
            {key: row[key] for key in ("name", "kind", "source", "ratio", "apart")}
            | {side: statistics.median(row["seconds"][side]) for side in SIDES}
            | {"now": found, "busy": bool(why["withheld"])}
        )
    processors = next(
        line.partition(":")[2].strip()
        for line in (folder / "lscpu").read_text("utf-8").splitlines()
        if line.startswith("CPU(s):")
    )
    head = {key: record[key] for key in ("software", "date", "command")}
    evidence.save("repairs-cpu", {**head, "processors": int(processors), "pairs": pairs})


def gather(folders: list[Path]) -> None:
    """Make the file of all pairs out of folders; what was said of a pair at first is kept."""
    records = [
        json.loads(gzip.decompress((folder / "repairs.json.gz").read_bytes())) for folder in folders
    ]
    said = {row["name"]: row for row in evidence.load("repairs")["pairs"]}
    files, rows = {}, []
    for folder, record in zip(folders, records, strict=True):
        for row in record["rows"]:
            name, why = row["name"], row.pop("explained", None)
            if "failed" in row:
                continue
            first = why["findings"][0] if why and why["findings"] else None
            told = first and {key: first[key] for key in ("cause", "title", "seconds", "saves")}
            new = {"then": told, "unexplained": row.get("unexplained", ""), "first": False}
            row |= {key: said.get(name, new)[key] for key in new}
            rows.append(row)
            kept = ["before/profile.xplane.pb"]
            kept += [f"{side}/{kind}.hlo" for side in SIDES for kind in ("written", "compiled")]
            for path in kept:
                files[f"{name}/{path}"] = (folder / "x" / name / path).read_bytes()
    head = {key: records[0][key] for key in ("device", "software")}
    head |= {"dates": [record["date"] for record in records], "rows": rows}
    files = {"repairs.json": json.dumps(head, indent=1).encode(), **dict(sorted(files.items()))}
    with tarfile.open(PAIRS_RUN, "w:xz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


@functools.cache
def texts() -> dict[str, str]:
    """Return the HLO of all pairs that ran, and their `repairs.json`, by the name of the file."""
    found = {}
    with tarfile.open(PAIRS_RUN) as tar:
        for entry in tar:
            file = tar.extractfile(entry) if entry.name.endswith((".hlo", ".json")) else None
            if file is not None:
                found[entry.name] = file.read().decode()
    return found


def kept(folder: Path) -> dict[str, Any]:
    """Put the files of all pairs that ran into a folder; return what was recorded of them."""
    with tarfile.open(PAIRS_RUN) as tar:
        tar.extractall(folder, filter="data")
    record: dict[str, Any] = json.loads((folder / "repairs.json").read_text("utf-8"))
    return record


def main(folders: list[Path]) -> None:
    """Make the record, of these folders or of what they gave before."""
    if folders:
        gather(folders)
    with tempfile.TemporaryDirectory() as name:
        record = kept(Path(name))
        pairs = []
        for row in record.pop("rows"):
            print(row["name"], flush=True)
            pairs.append(row_of(row, explanation_of(Path(name), row)))
    ran = [row["name"] for row in pairs]
    evidence.save(
        "repairs",
        {
            **record,
            "command": "python -m measurements.repairs, then python -m measurements.promises",
            "pairs": sorted(pairs, key=lambda row: list(PAIRS).index(row["name"])),
            "seen": [name for name in ran if name in SEEN],
            "not_run": [name for name in PAIRS if name not in ran],
        },
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cpu"]:
        on_a_cpu(Path(sys.argv[2]))
    else:
        main([Path(folder) for folder in sys.argv[1:]])
