"""Measure an NVIDIA GPU with JAX, PyTorch, Triton and hardware counters, and write one record.

    python -m tools.gpu.measure_gpu --out h100.json

Needs JAX for CUDA; PyTorch, Triton, pynvml and Nsight Compute (ncu) are used where they are. A
kernel that fails is recorded with its reason. What there is so far is kept in FILE.json.partial,
so that a run which is cut off isn't lost.

Everything is measured in three passes, JAX and PyTorch in turn. Between the first and the second,
ncu counts the DRAM bytes of the ledger's kernels in a process of its own, in which each kernel
runs often enough that what one launch leaves in the L2 is written back during the next. It needs
no change of the GPU's settings, and makes none.

--runs N measures everything in N processes, one after another: each compiles and tunes anew, and
the record keeps the median of each run as well as the passes. --only GROUP (repeatable; the groups
are those of `experiments`) with --merge FILE.json measures some groups again and keeps the rest of
that record.

Other options: --tiny (every size small: a rehearsal, on any device), --passes N, --seconds S (for
each case and pass), --deadline S (of all runs together), --no-counters, --counter-time S (no
kernel is counted after that), --counters-only FILE.json (add counters to that record).
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from roofline_helpers import measure
from roofline_helpers.measure import Case
from tools.gpu.counters import count, count_here
from tools.gpu.experiments import GROUPS, counted, suite
from tools.gpu.pytorch import torch_or_none
from tools.gpu.state import probe

ROOT = Path(__file__).resolve().parents[2]


def with_counters(
    record: measure.Record, by_case: Mapping[tuple[str, str], Any], notes: Sequence[str]
) -> measure.Record:
    """Return the record with each sample's counters, and with notes on them."""
    samples = []
    for sample in record.samples:
        counters = dict(by_case.get((sample.name, sample.source), {}))
        names = counters.pop("names", None)
        if counters:
            note = f"kernels: {', '.join(names)}"
            sample = replace(sample, counters=counters, notes=(*sample.notes, note))
        samples.append(sample)
    return replace(record, samples=tuple(samples), notes=(*record.notes, *notes))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure a GPU (see the head of this file).")
    parser.add_argument("--out", default="gpu.json", metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="GROUP", choices=GROUPS)
    parser.add_argument("--runs", type=int, default=1, help="processes, one after another")
    parser.add_argument("--passes", type=int, default=None, help="3, or 1 with several --runs")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--deadline", type=float, default=None)
    parser.add_argument("--counter-time", type=float, default=120.0)
    parser.add_argument("--no-counters", action="store_true")
    parser.add_argument("--counters-only", metavar="FILE.json", help="add counters to this record")
    parser.add_argument("--merge", metavar="FILE.json", help="keep the rest of this record")
    parser.add_argument("--strict", action="store_true", help="fail if any case failed")
    parser.add_argument("--count-into", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.runs < 1 or (options.passes is not None and options.passes < 1):
        parser.error("--runs and --passes must be at least 1")
    options.passes = options.passes or (3 if options.runs == 1 else 1)
    return options


def again(options: argparse.Namespace) -> list[str]:
    """Return the command that runs this script in a process of its own, with the same cases."""
    groups = [word for group in options.only for word in ("--only", group)]
    tiny = ["--tiny"] if options.tiny else []
    return [sys.executable, "-m", "tools.gpu.measure_gpu", *tiny, *groups]


def count_again(options: argparse.Namespace) -> tuple[dict[tuple[str, str], Any], list[str]]:
    """Return the counters of the same cases, read in a process of its own, and notes."""
    return count(again(options), ROOT, options.counter_time)


def in_processes(options: argparse.Namespace, command: str) -> measure.Record:
    """Measure in several processes, one after another; count; return one record of all."""
    begun = perf_counter()
    records, notes = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.runs):
            out = Path(folder) / f"{number}.json"
            child = [*again(options), "--out", str(out)]
            child += ["--passes", str(options.passes), "--seconds", str(options.seconds)]
            child += ["--no-counters"]
            if options.deadline is not None:
                left = options.deadline - (perf_counter() - begun)
                child += ["--deadline", str(max(left / (options.runs - number), 1.0))]
            print(f"run {number + 1} of {options.runs}", file=sys.stderr, flush=True)
            done = subprocess.run(child, stdout=subprocess.DEVNULL, cwd=ROOT)
            partial = out.with_name(out.name + ".partial")
            if done.returncode:
                notes.append(f"run {number + 1} of {options.runs} ended with {done.returncode}")
            for file in (out, partial):
                if file.exists():
                    records.append(measure.load(file))
                    break
            if records:  # what there is so far, should this be cut off
                kept = measure.combine(records)
                replace(kept, command=command).save(options.out + ".partial")
    if not records:
        raise SystemExit(f"nothing was measured: {'; '.join(notes)}")
    record = measure.combine(records)
    return replace(record, command=command, notes=(*record.notes, *notes))


def measured_here(options: argparse.Namespace, chosen: Sequence[Case], command: str) -> Any:
    """Measure in this process; return the record."""

    def between(number: int, record: measure.Record) -> measure.Record:
        if number or options.no_counters:
            return record
        torch = torch_or_none()
        if torch is not None:
            torch.cuda.empty_cache()  # the other process needs it
        return with_counters(record, *count_again(options))

    return measure.run(
        chosen=chosen,
        passes=options.passes,
        seconds=options.seconds,
        deadline=options.deadline,
        command=command,
        partial=options.out + ".partial",
        probe=probe(),
        between=between,
    )


def main() -> int:
    """Measure, count, write the record and print what came out."""
    options = arguments()
    older = measure.load(options.merge) if options.merge else None
    if options.count_into:
        chosen = suite(options.tiny, options.only)
        wanted = chosen if options.tiny else [case for case in chosen if counted(case)]
        count_here(wanted, Path(options.count_into), options.counter_time)
        return 0
    if options.counters_only:
        record = measure.load(options.counters_only)
        if measure.device()["kind"] != record.device["kind"]:
            raise SystemExit(f"{options.counters_only} is of another device: {record!r}")
        record = with_counters(record, *count_again(options))
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        note = f"hardware counters of a second run on a device of this kind, {now}"
        replace(record, notes=(*record.notes, note)).save(options.out)
        print(summary(record))
        return 0

    out = Path(options.out)
    files = (options.out, options.merge)
    shown = [Path(each).name if each in files else each for each in sys.argv[1:]]
    command = " ".join(["python -m tools.gpu.measure_gpu", *shown])
    if options.runs > 1:  # this process must not hold the device's memory, so it builds no case
        record = in_processes(options, command)
        if not options.no_counters:
            record = with_counters(record, *count_again(options))
    else:
        record = measured_here(options, suite(options.tiny, options.only), command)
    if older is not None:
        record = measure.merge(older, record)
    record.save(out)
    out.with_name(out.name + ".partial").unlink(missing_ok=True)
    print(summary(record))
    failed = [sample for sample in record.samples if sample.error]
    for sample in failed:
        print(f"FAILED {sample.name} ({sample.source}): {sample.error}")
    return 1 if failed and options.strict else 0


def summary(record: measure.Record) -> str:
    """Return the record as short lines: one a sample."""
    lines = [repr(record), *record.notes]
    for s in record.samples:
        if not s.passes:
            continue
        line = f"{s.name} [{s.source}]: {s.seconds * 1e6:.1f} us, {s.bandwidth / 1e9:.0f} GB/s"
        line += f", {s.rate / 1e12:.1f} TF" if s.flops else ""
        line += f", ±{100 * s.spread:.1f}%"
        line += f", {len(s.runs)} runs ±{100 * s.between:.1f}%" if len(s.runs) > 1 else ""
        if s.counters:
            line += f", DRAM {s.dram_bytes / s.bytes:.3f} of hand"
        if s.xla_bytes:
            line += f", XLA {s.xla_bytes / s.bytes:.3f}"
        if s.state and "clock" in s.state:
            line += f", {s.state['clock'] / 1e6:.0f} MHz {s.state.get('power', 0):.0f} W"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
