"""Programs as people write them, and repaired: both timed, and what `explain` said of the first.

    python -m measurements.repairs --out FOLDER [--seconds 330] [--only NAME …] [--smoke]

Each pair of `pairs` runs as its user would run it, jitted with JAX's defaults, in batches of queued
calls that alternate between both programs. Kept besides: both programs' HLO, as written and as
compiled, and a short profile of each without CUDA graphs, which `explain` reads without the device.

`repairs.json.gz` has a row a pair. `programs-N.tar.gz` unpack to folders ``NAME/before`` and
``NAME/after`` with ``written.hlo``, ``compiled.hlo`` and ``profile.xplane.pb``; what was queued in
each traced run is the row's "queue": ``roofline.explain("NAME/before", queue=…)``.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import os
import statistics
import tarfile
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp

from measurements.pairs import KINDS, PAIRS, Data, Pair, Program, in_turn
from roofline.diagnosis.runner import UNGRAPHED, Runner, compiled_runner
from roofline.measure.machine import now, software_versions
from roofline.xla.lower import Arguments

SIDES = ("before", "after")
PART = 8 << 20
"""Compressed bytes after which another archive begins."""
MOST = 24 << 20
"""Compressed bytes of archives after which the one in work is the last."""
LONGEST = 12 << 20
"""Bytes of a profile that is kept."""
PATIENCE = 7.0
"""Seconds of a pair after which `explain` isn't asked as well: its profile is kept anyway."""


class Archives:
    """Compressed archives, each of a size that a host takes, and the `size` of those closed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.size = folder, 0, 0
        self._open()

    def _open(self) -> None:
        self.file = gzip.open(self._path(), "wb", 6)  # noqa: SIM115 - closed by `close`
        self.tar = tarfile.open(fileobj=self.file, mode="w")  # noqa: SIM115

    def add(self, files: dict[str, bytes]) -> None:
        """Add files by their paths, and begin another archive if this one is long now."""
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            self.tar.addfile(entry, io.BytesIO(data))
        self.file.flush()
        if self._path().stat().st_size > PART:
            self.close()
            self.number += 1
            self._open()

    def _path(self) -> Path:
        return self.folder / f"programs-{self.number}.tar.gz"

    def close(self) -> None:
        """End the archive."""
        self.tar.close()
        self.file.close()
        self.size += self._path().stat().st_size


def written(lowered: Any) -> str:
    """Return the HLO before any pass, with the lines of the program."""
    try:
        return str(lowered.compiler_ir("hlo").get_hlo_module().to_string())
    except Exception:  # an older or newer JAX: without lines
        return str(lowered.as_text(dialect="hlo"))


class Side:
    """One program of a pair, compiled as its user runs it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.options = {"donate_argnums": tuple(program.donated)} if program.donated else {}
        jitted = jax.jit(program.fn, **self.options)
        begun = perf_counter()
        lowered = jitted.lower(*program.args)
        compiled = lowered.compile()
        self.compiling = perf_counter() - begun
        self.texts = {"written.hlo": written(lowered), "compiled.hlo": compiled.as_text()}
        self.result = jitted(*self._spare())
        self.runner = Runner(jitted, program.args, {}, donated=tuple(program.donated.items()))

    def _spare(self) -> list[Any]:
        donated = self.program.donated
        args = enumerate(self.program.args)
        return [jnp.array(arg, copy=True) if n in donated else arg for n, arg in args]

    def profile(self, seconds: float, gpu: bool) -> tuple[bytes, int]:
        """Return a profile of three runs, and how many calls were queued in each."""
        queue = min(max(math.ceil(0.002 / seconds), 1), 8)
        arguments = Arguments(self.program.args, {})
        options = UNGRAPHED if gpu else {}
        runner = compiled_runner(self.program.fn, arguments, self.options, options)
        runner.run(1)
        with tempfile.TemporaryDirectory() as folder:
            trace, _ = runner.traced(3, queue, folder)
            return trace.data, queue


def _apart(one: Any, other: Any) -> Any:
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    wide = [(a.astype(jnp.float32), b.astype(jnp.float32)) for a, b in pairs]
    worst = [jnp.max(jnp.abs(a - b)) / (jnp.max(jnp.abs(a)) + 1e-30) for a, b in wide]
    return jnp.max(jnp.array(worst))


def disagreement(pair: Pair, before: Any, after: Any) -> float:
    """Return how far the results are apart, as a share of the largest magnitude of each array."""
    one, other = (see(result) for see, result in zip(pair.seen, (before, after), strict=True))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if a.shape != b.shape:
            raise ValueError(f"the shapes of the results differ: {a.shape}, {b.shape}")
    return float(jax.jit(_apart)(one, other))


def timed(sides: dict[str, Side], smoke: bool) -> dict[str, list[float]]:
    """Return the seconds of a call in batches that alternate: each round has one of each."""
    batch, rounds = (0.001, 3) if smoke else (0.01, 9)
    calls = {}
    for name, side in sides.items():
        side.runner.run(2)
        calls[name] = min(max(math.ceil(batch / side.runner.run(3)), 2), 200)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in order:
            times[name].append(sides[name].runner.run(calls[name]))
    return times


def explained(pair: Pair, program: Program, seconds: float) -> dict[str, Any]:
    """Return what `explain` says today of a program."""
    import roofline

    begun = perf_counter()
    why = roofline.explain(
        program.fn,
        *program.args,
        donate_argnums=tuple(program.donated) or None,
        seconds=seconds,
        progress=False,
        name=pair.name,
    )
    return {
        "wall": why.wall,
        "graphs": statistics.median(why.graphs) if why.graphs else None,
        "least": why.least,
        "expected": why.expected and [why.expected.seconds, why.expected.low, why.expected.high],
        "withheld": why.withheld,
        "text": why.describe(),
        "findings": [
            {
                "cause": finding.cause,
                "title": finding.title,
                "evidence": finding.evidence,
                "seconds": finding.seconds,
                "saves": finding.saves,
                "share": finding.share,
                "advice": finding.advice,
            }
            for finding in why.findings
        ],
        "took": perf_counter() - begun,
    }


def run(pair: Pair, archives: Archives, smoke: bool) -> dict[str, Any]:
    """Return a pair's row, and keep its programs."""
    gpu = jax.default_backend() == "gpu"
    row: dict[str, Any] = {
        "name": pair.name,
        "kind": pair.kind,
        "source": pair.source,
        "about": pair.make.__doc__,
        "awaited": pair.expected,
    }
    begun = perf_counter()
    programs = dict(zip(SIDES, pair.make(Data(smoke)), strict=True))
    jax.block_until_ready([program.args for program in programs.values()])
    row["preparing"] = perf_counter() - begun
    sides = {name: Side(program) for name, program in programs.items()}
    row["compiling"] = {name: side.compiling for name, side in sides.items()}
    apart = disagreement(pair, *(side.result for side in sides.values()))
    for side in sides.values():
        side.result = None
    row |= {"apart": apart, "agrees": apart <= pair.tolerance}
    times = timed(sides, smoke)
    ratios = [one / other for one, other in zip(*times.values(), strict=True)]
    row |= {"seconds": times, "ratio": statistics.median(ratios), "queue": {}, "unkept": []}
    files: dict[str, bytes] = {}
    for name, side in sides.items():
        for kind, text in side.texts.items():
            files[f"{pair.name}/{name}/{kind}"] = text.encode()
        try:
            data, row["queue"][name] = side.profile(statistics.median(times[name]), gpu)
        except Exception as error:
            row["unkept"].append(f"{name}: {type(error).__name__}: {error}"[:300])
            continue
        if len(data) > LONGEST:
            row["unkept"].append(f"{name}: a profile of {len(data)} bytes")
        else:
            files[f"{pair.name}/{name}/profile.xplane.pb"] = data
    if archives.size < MOST:
        archives.add(files)
    else:
        row["unkept"].append("no more room")
    row["explained"] = None
    if perf_counter() - begun > PATIENCE:
        row["unexplained"] = "no time for it"
    else:
        try:
            row["explained"] = explained(pair, programs["before"], 0.02 if smoke else 0.1)
        except Exception as error:
            row["unexplained"] = f"{type(error).__name__}: {error}"[:500]
    row["took"] = perf_counter() - begun
    return row


def chosen(only: list[str]) -> list[Pair]:
    """Return the pairs that are named, or all of them."""
    unknown = [name for name in only if name not in PAIRS]
    if unknown:
        raise SystemExit(f"no such pair: {', '.join(unknown)}. There are {', '.join(PAIRS)}")
    return [PAIRS[name] for name in only] or in_turn()


def rows_of(
    pairs: list[Pair], archives: Archives, seconds: float, smoke: bool
) -> Iterator[dict[str, Any]]:
    """Yield a row a pair, also of one that fails or for which no time is left."""
    begun = perf_counter()
    for pair in pairs:
        if perf_counter() - begun > seconds:
            yield {"name": pair.name, "kind": pair.kind, "failed": "no time was left"}
            continue
        try:
            with jax.enable_x64(True) if pair.x64 else nullcontext():
                row = run(pair, archives, smoke)
        except Exception as error:
            lines = traceback.format_exception(error)[-3:]
            failed = f"{type(error).__name__}: {error}"[:500]
            row = {"name": pair.name, "kind": pair.kind, "failed": failed, "where": lines}
        yield row


def said(row: dict[str, Any]) -> str:
    """Return a row in one line."""
    if "failed" in row:
        return f"{row['name']:24} FAILED: {row['failed'][:200]}"
    before, after = (1e3 * statistics.median(row["seconds"][name]) for name in SIDES)
    why = row["explained"]
    findings = why["findings"] if why else []
    first = findings[0]["cause"] if findings else row.get("unexplained", "") or "nothing"
    unkept = f"  UNKEPT {row['unkept']}" if row["unkept"] else ""
    unkept += "" if row["agrees"] else "  THE RESULTS DIFFER"
    return (
        f"{row['name']:24} {before:9.3f} {after:9.3f} ms  x{row['ratio']:6.2f}"
        f"  apart {row['apart']:.1e}  {first[:40]:20}  took {row['took']:.1f} s{unkept}"
    )


def main() -> None:
    """Run the pairs, and keep what they took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=330, help="no pair begins later")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on a CPU")
    options = parser.parse_args()
    pairs = chosen(options.only)
    options.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "schema": "roofline.repairs/1",
        "device": jax.devices()[0].device_kind,
        "software": software_versions(),
        "date": now(),
        "command": "python -m measurements.repairs",
        "kinds": KINDS,
        "rows": [],
    }
    with closing(Archives(options.out)) as archives:
        for row in rows_of(pairs, archives, options.seconds, options.smoke):
            record["rows"].append(row)
            print(said(row), flush=True)
            text = json.dumps(record, indent=1)
            (options.out / "repairs.json.gz").write_bytes(gzip.compress(text.encode(), 6))
    good = sum(row.get("agrees", False) for row in record["rows"])
    print(f"{good} of {len(pairs)} pairs, {archives.size / 1e6:.1f} MB of programs")
    if good < len(pairs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
