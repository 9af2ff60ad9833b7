"""Measure an NVIDIA GPU with JAX, PyTorch, Triton and hardware counters, and write one record.

    python -m tools.gpu.measure_gpu --out h100.json [--only GROUP] [--tiny]

Needs JAX for CUDA; PyTorch, Triton, pynvml and Nsight Compute (ncu) are used where they are. A
kernel that fails is recorded with its reason. Everything is measured in several processes, one
after another: each compiles and tunes anew, and the record keeps the median of each. Then ncu
counts the DRAM bytes of the ledger's kernels in a process of its own, in which each kernel runs
often enough that what one launch leaves in the L2 is written back during the next.

--only (repeatable; the groups are those of `experiments`) measures some groups. --tiny makes every
size small: a rehearsal, on any device.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofline_helpers import device
from roofline_helpers.device.record import combine
from tools.gpu.counters import count, count_here
from tools.gpu.experiments import GROUPS, counted, suite
from tools.gpu.state import probe

ROOT = Path(__file__).resolve().parents[2]
COUNTING = 120.0  # seconds after which no kernel is counted any more


def with_counters(
    record: device.Record, by_case: Mapping[tuple[str, str], Any], notes: Sequence[str]
) -> device.Record:
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


def in_processes(runs: int, child: list[str]) -> device.Record:
    """Measure in several processes, one after another; return one record of all."""
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs):
            print(f"run {number + 1} of {runs}", file=sys.stderr, flush=True)
            out = f"{folder}/{number}.json"
            subprocess.run([*child, "--one", "--out", out], check=True, cwd=ROOT)
            records.append(device.load(out))
    return combine(records)


def main() -> None:
    """Measure, count, write the record and print what came out."""
    parser = argparse.ArgumentParser(description="Measure a GPU (see the head of this file).")
    parser.add_argument("--out", default="gpu.json", metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="GROUP", choices=GROUPS)
    parser.add_argument("--runs", type=int, default=3, help="processes, one after another")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each case and run")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--count-into", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--counter-time", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count_into:
        chosen = suite(options.tiny, options.only)
        wanted = chosen if options.tiny else [case for case in chosen if counted(case)]
        count_here(wanted, Path(options.count_into), options.counter_time)
        return
    if options.one:
        chosen = suite(options.tiny, options.only)
        device.run(chosen=chosen, seconds=options.seconds, probe=probe()).save(options.out)
        return
    child = [sys.executable, "-m", "tools.gpu.measure_gpu", *["--tiny"] * options.tiny]
    child += [word for group in options.only for word in ("--only", group)]
    shown = [Path(each).name if each == options.out else each for each in sys.argv[1:]]
    record = in_processes(options.runs, [*child, "--seconds", str(options.seconds)])
    record = with_counters(record, *count(child, ROOT, COUNTING))
    record = replace(record, command=" ".join(["python -m tools.gpu.measure_gpu", *shown]))
    record.save(options.out)
    print("\n".join([repr(record), *record.notes, *map(line, record.samples)]))


def line(s: device.Sample) -> str:
    """Return a sample as a short line."""
    if not s.passes:
        return f"FAILED {s.name} ({s.source}): {s.error}"
    text = f"{s.name} [{s.source}]: {s.seconds * 1e6:.1f} us, {s.bandwidth / 1e9:.0f} GB/s"
    text += f", {s.rate / 1e12:.1f} TF" if s.flops else ""
    text += f", {len(s.runs)} runs ±{100 * s.run_spread:.1f}%" if len(s.runs) > 1 else ""
    return text


if __name__ == "__main__":
    main()
