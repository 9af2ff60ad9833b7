# mypy: ignore-errors
"""Time the last rung of examples/llama_decode with 4, 12 and 32 layers: what a layer takes.

python -m measurements.layers --out FILE
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")

import jax

from examples.llama_decode import model, steps
from roofline.measure.machine import device_facts, now, software_versions

BEGAN = time.perf_counter()
LAST = steps.RUNGS[-1]
APART = replace(LAST, name="not overlapped", way=replace(LAST.way, chain=False))


def cases():
    """Yield batch, width of the feed-forward layer, tokens, layers, vocabulary, rung."""
    for batch in (16, 1):
        for layers in (4, 12):
            yield batch, 14336, 2048, layers, 8192, LAST
            yield batch, 28672, 2048, layers, 8192, LAST
            yield batch, 14336, 4096, layers, 8192, LAST
            yield batch, 14336, 2048, layers, 8192, APART
        yield batch, 14336, 2048, 32, 128256, LAST


def build(case):
    batch, hidden, tokens, layers, vocabulary, rung = case
    shape = model.Llama(layers=layers, hidden=hidden, vocabulary=vocabulary)
    specs = jax.eval_shape(lambda: rung.arguments(shape, batch, tokens))
    return rung.jitted(shape), shape, specs


def timed(program, weights, cache, *rest):
    """Return the seconds of a step, five times over, each the mean of many."""
    runs = []
    for _ in range(6):
        began = time.perf_counter()
        for _ in range(40):
            logits, cache = program(weights, cache, *rest)
        jax.block_until_ready((logits, cache))
        runs.append((time.perf_counter() - began) / 40)
    return runs[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=150)
    options = parser.parse_args()
    record = {
        "what": "decode steps of Llama-3-8B with fewer layers, other widths and contexts: "
        "seconds a step. Two numbers of layers give a layer's time",
        "device": device_facts(),
        "software": software_versions(),
        "date": now(),
        "command": "python -m measurements.layers --out FILE",
        "rows": [],
    }

    def compiled(case):
        jitted, _, specs = build(case)
        return jitted.lower(*specs).compile()

    pool = ThreadPoolExecutor(6)
    programs = [(case, pool.submit(compiled, case)) for case in cases()]
    while time.perf_counter() - BEGAN < 0.6 * options.limit and not all(
        program.done() for _, program in programs
    ):
        time.sleep(0.5)
    for _, program in programs:
        program.cancel()
    pool.shutdown(wait=True)
    for case, program in programs:
        faulthandler.dump_traceback_later(60, exit=True)
        batch, hidden, tokens, layers, vocabulary, rung = case
        if program.cancelled() or time.perf_counter() - BEGAN > options.limit:
            print("no time for", case[:5], rung.name, flush=True)
            continue
        _, shape, _ = build(case)
        runs = timed(program.result(), *rung.arguments(shape, batch, tokens))
        row = {"batch": batch, "hidden": hidden, "tokens": tokens, "layers": layers}
        row |= {"vocabulary": vocabulary, "rung": rung.name, "seconds": runs}
        record["rows"].append(row)
        options.out.write_text(json.dumps(record))
        took = time.perf_counter() - BEGAN
        print(f"[{took:.0f}] {row} {1e6 * statistics.median(runs):.1f} µs", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
