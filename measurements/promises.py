"""What `explain` promises of each pair that `repairs` timed, beside what the repair gained.

    python -m measurements.promises FOLDER…

Each folder is one that `repairs` wrote, its archives unpacked in ``x``. Writes
``roofline/data/evidence/repairs.json`` and, for what is recomputed from it, the programs'
HLO: ``measurements/repairs-h200.tar.gz``. Needs no device.

Nothing runs, so the explanation is put together as `explain` does it beside a device: the profile
without CUDA graphs says how long kernels take, and the clock of the pair how long a call does.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import statistics
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from measurements.pairs import PAIRS
from roofline import evidence
from roofline.diagnosis.explain import Task
from roofline.diagnosis.explanation import Explanation
from roofline.diagnosis.trace import programs_in, read_trace
from roofline.xla import minimum
from roofline.xla.causes import Finding
from roofline.xla.lower import Arguments
from roofline_helpers import chips

HLO = Path(__file__).parent / "repairs-h200.tar.gz"
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


def row_of(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Return a pair's row of the record."""
    runs = row["seconds"]["before"]
    why = explained(
        folder / "x" / row["name"] / "before", row["name"], runs, row["queue"]["before"]
    )
    assert why.needed is not None
    least, expected, then = why.needed.seconds(chips.chip("h200")), why.expected, row["explained"]
    kept = list(why.findings[:FINDINGS])
    kept += [finding for finding in why.findings[FINDINGS:] if finding.known][:1]
    first = then["findings"][0] if then and then["findings"] else None
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
        "then": first and {key: first[key] for key in ("cause", "title", "seconds", "saves")},
        "unexplained": row.get("unexplained", ""),
        "now": [told(finding) for finding in kept],
        "needed": least,
        "refused": why.needed.refused,
        "expected": expected and list(map(finite, (expected.seconds, expected.low, expected.high))),
    }


def main(folders: list[Path]) -> None:
    """Make the record of these folders."""
    pairs, programs, heads = [], {}, []
    for folder in folders:
        record = json.loads(gzip.decompress((folder / "repairs.json.gz").read_bytes()))
        heads.append(record)
        for row in record["rows"]:
            if "failed" in row:
                continue
            print(row["name"], flush=True)
            pairs.append(row_of(folder, row))
            for side in ("before", "after"):
                for kind in ("written.hlo", "compiled.hlo"):
                    path = folder / "x" / row["name"] / side / kind
                    programs[f"{row['name']}/{side}/{kind}"] = path.read_bytes()
    with gzip.GzipFile(HLO, "wb", 9, mtime=0) as file, tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in sorted(programs.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    ran = [row["name"] for row in pairs]
    evidence.save(
        "repairs",
        {
            "device": heads[0]["device"],
            "software": heads[0]["software"],
            "dates": [head["date"] for head in heads],
            "command": "python -m measurements.repairs, then python -m measurements.promises",
            "pairs": sorted(pairs, key=lambda row: list(PAIRS).index(row["name"])),
            "seen": [name for name in ran if name in SEEN],
            "not_run": [name for name in PAIRS if name not in ran],
        },
    )


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
