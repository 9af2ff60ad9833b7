"""Hold this CPU's measured ceilings against independent programs, in one interleaved run.

    python -m tools.cpu.compare [--rounds N] [--side N] [--one-core] [--pause S] [--out FILE.json]

Memory: STREAM in C (`stream.c` next to this file, compiled here with ``cc -O3 -fopenmp``) against
JAX's streaming kernels. Compute: NumPy's matrix product against JAX's. Each round runs all of
them one after another, so that what disturbs the machine disturbs both sides; of each kernel the
best round counts, on both sides, since whatever else runs can only make it slower. --one-core does
it again with one core for everyone: what is left between the sides is then not a matter of threads.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from roofline_helpers import measure, records, work  # noqa: E402

SOURCE = Path(__file__).resolve().parent / "stream.c"


class NoCompiler(RuntimeError):
    """There is no C compiler, or it can't compile STREAM."""


def compile_stream(folder: Path) -> Path:
    """Return STREAM, compiled from our source with OpenMP.

    Raises
    ------
    NoCompiler
        No compiler on this machine, or it refuses.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("no C compiler (cc, gcc, clang) is on this machine")
    program = folder / "stream"
    command = [compiler, "-O3", "-march=native", "-fopenmp", "-o", str(program), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoCompiler(f"{' '.join(command)}: {done.stderr.strip()[:300]}")
    return program


def stream(program: Path, size: int, repeats: int) -> dict[str, float]:
    """Return STREAM's best bandwidth of each kernel, byte/s, over arrays of `size` bytes."""
    done = subprocess.run(
        [str(program), str(size), str(repeats)], capture_output=True, text=True, check=True
    )
    runs_of = {}
    for line in done.stdout.splitlines():
        name, moved, *seconds = line.split()
        runs_of[name] = float(moved) / min(float(each) for each in seconds)
    return runs_of


@dataclass
class Side:
    """Best rates of one program, by kernel."""

    rates: dict[str, float]

    def add(self, name: str, rate: float) -> None:
        """Keep the best."""
        self.rates[name] = max(rate, self.rates.get(name, 0.0))

    @property
    def best(self) -> float:
        """The best of all kernels."""
        return max(self.rates.values())


def numpy_matmul(n: int, repeats: int) -> float:
    """Return NumPy's best FLOP/s of an n × n × n product in fp32, written into one array."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    out = np.empty_like(a)
    best = float("inf")
    for _ in range(repeats + 1):
        begun = perf_counter()
        np.matmul(a, b, out=out)
        best = min(best, perf_counter() - begun)
    return float(work.matmul(n, n, n, "fp32").flops) / best


def jax_best(case: measure.Case, kept: dict[str, Any], repeats: int) -> float:
    """Return the least seconds of a call of a case, compiled once."""
    program = measure.jax_program(
        case.fn or measure.array, case.make(), compiled=kept.get(case.name), **case.options
    )
    kept[case.name] = program.compiled
    return measure.clock(program, seconds=60.0, repeats=repeats, least=1e-4).low


def compare(
    rounds: int, size: int, sides: tuple[int, ...], repeats: int = 6
) -> Iterator[dict[str, Any]]:
    """Yield what there is after each round: best rates of both sides, and their ratios."""
    independent, ours = Side({}), Side({})
    numpy_side, jax_side = Side({}), Side({})
    kept: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = compile_stream(Path(folder))
        for number in range(rounds):
            for name, rate in stream(program, size, repeats).items():
                independent.add(name, rate)
            for case in measure.memory_cases(size, "fp32"):
                rate = float(case.work.bytes) / jax_best(case, kept, repeats)
                ours.add(case.work.name, rate)
            for side in sides:
                numpy_side.add(f"{side}", numpy_matmul(side, repeats))
                product = measure.matmul_case(side, side, side, "fp32")
                jax_side.add(
                    f"{side}", float(product.work.flops) / jax_best(product, kept, repeats)
                )
            yield {
                "cores": measure.host()["cores"],
                "rounds": number + 1,
                "memory": {
                    "stream": independent.rates,
                    "jax": ours.rates,
                    "ratio of the best": ours.best / independent.best,
                    "ratio by kernel": {
                        name: ours.rates[name.removesuffix("_past_cache")] / rate
                        for name, rate in independent.rates.items()
                    },
                },
                "compute": {
                    "numpy": numpy_side.rates,
                    "jax": jax_side.rates,
                    "ratio of the best": jax_side.best / numpy_side.best,
                },
            }


def on_one_core(options: argparse.Namespace) -> dict[str, Any]:
    """Compare in a process that has one core, as have the programs that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "one.json"
        command = [sys.executable, __file__, "--rounds", str(options.rounds), "--size"]
        command += [str(options.size), "--pause", str(options.pause), "--out", str(out)]
        command += [word for side in options.side for word in ("--side", str(side))]
        core = min(os.sched_getaffinity(0))
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip
        run: dict[str, Any] = json.loads(out.read_text("utf-8"))["runs"][0]
    return run


def main() -> int:
    """Read the command line, compare, print."""
    parser = argparse.ArgumentParser(description="JAX's ceilings against STREAM and NumPy.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=2**27, help="bytes of one array")
    parser.add_argument("--side", type=int, action="append", help="of the matrices, repeatable")
    parser.add_argument("--one-core", action="store_true", help="again, with one core for all")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between rounds")
    parser.add_argument("--out", metavar="FILE.json")
    options = parser.parse_args()
    options.side = options.side or [1024, 2048, 3072]
    run: dict[str, Any] = {}
    try:
        for run in compare(options.rounds, options.size, tuple(options.side)):
            print(
                f"round {run['rounds']}: load {measure.host()['load']:.1f}, memory "
                f"{run['memory']['ratio of the best']:.3f}, compute "
                f"{run['compute']['ratio of the best']:.3f}",
                flush=True,
            )
            sleep(options.pause)
        runs = [run, *([on_one_core(options)] if options.one_core else [])]
    except NoCompiler as error:
        print(f"no comparison: {error}", file=sys.stderr)
        return 1
    shown = [Path(each).name if each == options.out else each for each in sys.argv[1:]]
    data = {
        "schema": measure.COMPARED,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(["python -m tools.cpu.compare", *shown]),
        "device": measure.device(),
        "host": measure.host(),
        "software": measure.software(),
        "size": options.size,
        "notes": list(measure.busy()),
        "runs": runs,
    }
    print(json.dumps(data, indent=1))
    if options.out:
        records.save(options.out, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
