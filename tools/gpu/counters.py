"""Hardware counters: DRAM bytes, time and number of kernels of a case, from Nsight Compute."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from roofline_helpers.device.workloads import Case
from tools.gpu.pytorch import torch_or_none

LAUNCHES = 5
"""Of each kernel under ncu; the median of the last three counts."""

MARKER = "spin_kernel"
"""What PyTorch's `torch.cuda._sleep` launches: it comes before each kernel in ncu's list."""

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum")


def count_here(cases: Sequence[Case], report: Path, seconds: float) -> None:
    """Run each case LAUNCHES times, a marker before each, between the profiler's start and stop.

    This is the process that ncu watches. `report` gets the names, in order, of those that ran. No
    case is begun after these seconds: ncu has nothing to tell before the process ends.
    """
    begun = perf_counter()
    torch = torch_or_none()
    if torch is None:
        raise SystemExit("counting needs PyTorch: its marker tells the kernels apart")
    ran: list[tuple[str, str]] = []
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    for case in cases:
        if perf_counter() - begun > seconds:
            print(f"not counted: {case.name} ({case.source}): no time", file=sys.stderr)
            continue
        try:
            program = case.program(case.make())
            program.launch(3)
            program.wait()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"not counted: {case.name} ({case.source}): {error}", file=sys.stderr)
            continue
        torch.cuda.cudart().cudaProfilerStart()
        torch.cuda._sleep(1000)
        torch.cuda.synchronize()
        program.launch(LAUNCHES)
        program.wait()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        ran.append(case.key)
        report.write_text(json.dumps(ran), encoding="utf-8")
        del program
        torch.cuda.empty_cache()


def count(
    counting: Sequence[str], folder: Path, timeout: float
) -> tuple[dict[tuple[str, str], Any], list[str]]:
    """Run a command under ncu; return the counters of each case, and notes.

    Parameters
    ----------
    counting : sequence of str
        The command that calls `count_here`. It gets ``--count-into FILE`` and ``--counter-time S``.
    folder : Path
        Where it is run.
    timeout : float
        Seconds after which it begins no kernel any more.
    """
    ncu = shutil.which("ncu") or next(
        iter(map(str, Path("/opt/nvidia").glob("nsight-compute/*/ncu"))), None
    )
    if ncu is None:
        return {}, ["no hardware counters: Nsight Compute (ncu) is not on this machine"]
    with tempfile.TemporaryDirectory() as scratch:
        names = Path(scratch) / "names.json"
        command = [ncu, "--clock-control", "none", "--cache-control", "none", "--csv"]
        command += ["--print-units", "base", "--profile-from-start", "off"]
        command += ["--target-processes", "all", "--metrics", ",".join(METRICS)]
        command += [*counting, "--count-into", str(names), "--counter-time", str(timeout)]
        environment = {**os.environ, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25"}
        log = Path(scratch) / "ncu.csv"
        within = ["timeout", "--signal=KILL", f"{timeout + 180:.0f}"]  # ncu, and what it watches
        with log.open("w", encoding="utf-8") as out:
            done = subprocess.run(
                [*within, *command],
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=folder,
            )
        notes = [line for line in done.stderr.split("\n") if line.startswith("not counted")]
        if done.returncode:
            notes.append(f"ncu ended with {done.returncode}: {done.stderr[-300:]}")
        text = log.read_text("utf-8", errors="replace")
        try:
            ran = [tuple(load) for load in json.loads(names.read_text("utf-8"))]
        except (OSError, ValueError):
            return {}, [*notes, f"no hardware counters: {text[-300:]}"]
    return parse(text, ran), notes


def parse(text: str, ran: Sequence[Any]) -> dict[tuple[str, str], Any]:
    """Return the counters of one call of each case, from ncu's CSV with its markers.

    Of each kernel the median over the last LAUNCHES − 2 calls counts.
    """
    groups: list[list[dict[str, Any]]] = []
    for launch in _launches(text):
        if MARKER in launch["kernel"]:
            groups.append([])
        elif groups:
            groups[-1].append(launch)
    counters: dict[tuple[str, str], Any] = {}
    for key, group in zip(ran, groups, strict=False):
        kernels, odd = divmod(len(group), LAUNCHES)
        if odd or not kernels:
            continue
        calls = [group[n * kernels : (n + 1) * kernels] for n in range(2, LAUNCHES)]
        middle = {}
        for metric in METRICS:
            sums = [sum(one.get(metric, 0.0) for one in call) for call in calls]
            middle[metric] = statistics.median(sums)
        counters[key] = {
            "dram_read": middle[METRICS[0]],
            "dram_written": middle[METRICS[1]],
            "seconds": middle[METRICS[2]] / 1e9,
            "kernels": kernels,
            "names": [one["kernel"][:80] for one in calls[0]],
        }
    return counters


def _launches(text: str) -> list[dict[str, Any]]:
    """Return each launch of ncu's CSV in order: its kernel's name, and its metrics."""
    lines = text.splitlines()
    header = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        return []
    launches: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[header:]))):
        if row.get("Metric Name") in METRICS:
            one = launches.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
            one[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return [one for _, one in sorted(launches.items(), key=lambda item: int(item[0]))]
