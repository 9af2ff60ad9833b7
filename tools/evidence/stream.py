"""Hold this CPU's measured ceilings against STREAM and NumPy, on all cores and on one.

    python -m tools.evidence.stream    write roofline_helpers/data/compared/cpu.json

Memory: STREAM in C (`stream.c`) against JAX's streaming kernels. Compute: NumPy's matrix product
against JAX's. They run in turn, so that what disturbs the machine disturbs both sides; of each the
best round counts, since whatever else runs can only make it slower. Needs Linux and a C compiler.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

from roofline_helpers import device, work
from roofline_helpers.common import records
from roofline_helpers.device import machine
from roofline_helpers.device.record import COMPARED
from tools import books

SOURCE = Path(__file__).with_name("stream.c")
ROUNDS, REPEATS = 10, 6
SIZE = 2**27
"""Bytes of one array."""
SIDE = 1024
"""Rows and columns of a matrix."""


def compile_stream(folder: Path) -> Path:
    """Return STREAM, compiled into a folder."""
    program = folder / "stream"
    command = ["cc", "-O3", "-march=native", "-fopenmp", "-o", str(program), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return program


def stream(program: Path, size: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Return the bytes of one turn of each of STREAM's kernels, and the least seconds."""
    command = [str(program), str(size), str(repeats)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {name: (float(moved), min(map(float, seconds))) for name, moved, *seconds in rows}


def numpy_seconds(n: int) -> float:
    """Return the least seconds of NumPy's n × n × n product in fp32, written into one array."""
    a, b = np.random.default_rng(0).standard_normal((2, n, n), np.float32)
    out, seconds = np.empty_like(a), []
    for _ in range(REPEATS + 1):
        begun = perf_counter()
        np.matmul(a, b, out=out)
        seconds.append(perf_counter() - begun)
    return min(seconds)


def jax_seconds(case: device.workloads.Case) -> float:
    """Return the least seconds of a call of a case."""
    program = case.program(case.make())
    return device.timing.clock(program, seconds=60.0, repeats=REPEATS, least=1e-4).low


def compare(program: Path) -> dict[str, Any]:
    """Return the best rates of both sides over all rounds, on the cores that this process has."""
    best: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    product = device.workloads.matmul_case(SIDE, SIDE, SIDE, "fp32")
    flops = float(work.matmul(SIDE, SIDE, SIDE, "fp32").flops)

    def keep(side: str, name: str, rate: float) -> None:
        best[side][name] = max(rate, best[side][name])

    for _ in range(ROUNDS):
        for name, (moved, seconds) in stream(program, SIZE, REPEATS).items():
            keep("stream", name, moved / seconds)
        for case in device.workloads.memory_cases(SIZE, "fp32"):
            keep("streams of JAX", case.work.name, float(case.work.bytes) / jax_seconds(case))
        keep("numpy", str(SIDE), flops / numpy_seconds(SIDE))
        keep("products of JAX", str(SIDE), flops / jax_seconds(product))
        sleep(1)
    sides = {name: dict(rates) for name, rates in best.items()}
    theirs = sides["stream"]
    ours = sides["streams of JAX"]
    by_kernel = {name: ours[name.removesuffix("_past_cache")] / theirs[name] for name in theirs}
    memory: dict[str, Any] = {"stream": theirs, "jax": ours, "ratio by kernel": by_kernel}
    compute: dict[str, Any] = {"numpy": sides["numpy"], "jax": sides["products of JAX"]}
    for both, other in ((memory, "stream"), (compute, "numpy")):
        both["ratio of the best"] = max(both["jax"].values()) / max(both[other].values())
    cores = len(os.sched_getaffinity(0))
    return {"cores": cores, "rounds": ROUNDS, "memory": memory, "compute": compute}


def main() -> None:
    """Compare, and keep it."""
    cores, runs = os.sched_getaffinity(0), []
    with tempfile.TemporaryDirectory() as folder:
        program = compile_stream(Path(folder))
        for some in (cores, {min(cores)}):
            os.sched_setaffinity(0, some)  # of the process that is started next
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                runs.append(process.submit(compare, program).result())
    os.sched_setaffinity(0, cores)
    about = {
        "schema": COMPARED,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": "python -m tools.evidence.stream",
        "device": machine.device_facts(),
        "host": machine.host_facts(),
        "software": machine.software_versions(),
        "size": SIZE,
        "notes": list(machine.busy()),
    }
    path = books.ROOT / "roofline_helpers/data/compared/cpu.json"
    records.save(path, {**about, "runs": runs})


if __name__ == "__main__":
    main()
