# mypy: ignore-errors
"""Time each rung of examples/train_step on these GPUs, trace it, and write down what it computed.

    python -m measurements.train_step --out FOLDER --limit 300

`ladder.json` is written after each rung; a trace and the compiled program of each lie beside it.
Nothing is compiled while a rung is timed. `--tiny` is a rehearsal on any four devices.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import shutil
import statistics
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

# Each kernel must show by itself: no command buffers
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer="
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.92"

import jax

from examples.train_step import model, rungs
from roofline.diagnosis.runner import UNGRAPHED, compiled_runner
from roofline.measure.machine import device_facts, host_facts, now, software_versions
from roofline.xla.lower import Arguments

BEGAN = time.perf_counter()


def say(*words):
    print(f"[{time.perf_counter() - BEGAN:5.0f}]", *words, flush=True)


def compile_one(shape, rung, tokens):
    """Return a rung's program, its mesh, and how long it took to compile."""
    began = time.perf_counter()
    gpu = jax.default_backend() == "gpu"
    way = replace(rung.way, flags={**rung.way.flags, **UNGRAPHED}) if gpu else rung.way
    on = model.mesh(way)
    return model.compiled(shape, way, on, tokens), on, time.perf_counter() - began


def measure(shape, rung, tokens, program, on, folder, steps):
    """Return a rung's row: its losses, its times, its memory; the trace goes to the folder."""
    state = model.state(shape, rung.way, on)
    ids = model.batch(shape, *tokens, on)
    losses = []
    for _ in range(steps):
        state, loss = program(state, ids)
        losses.append(loss)
    row = {"losses": [float(loss) for loss in losses]}
    runner = compiled_runner(program, Arguments((state, ids), {}), {}, {}, consume=True)
    del state
    row["seconds"] = [runner.run(3) for _ in range(5)]
    memory = program.memory_analysis()
    names = ("argument", "output", "alias", "temp")
    row["memory"] = {n: getattr(memory, f"{n}_size_in_bytes") for n in names}
    slug = rung.name.replace(" ", "-").replace(",", "")
    with gzip.open(folder / f"{slug}.hlo.txt.gz", "wt") as file:
        file.write(program.as_text())
    try:
        traced = folder / "traces" / slug
        _, row["traced"] = runner.traced(3, 1, str(traced))
        file = next(traced.rglob("*.xplane.pb"))
        with gzip.open(folder / f"{slug}.xplane.pb.gz", "wb") as out:
            out.write(file.read_bytes())
        shutil.rmtree(traced)
    except Exception as error:
        row["untraced"] = f"{type(error).__name__}: {error}"[:300]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--limit", type=float, default=300, help="seconds")
    parser.add_argument("--only", action="append", metavar="RUNG")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    shape, tokens = rungs.SHAPE, rungs.TOKENS
    if options.tiny:
        shape = rungs.Llama(2, 512, 1024, 4, 2, 128, 512)
        tokens = (8, 128)
    record = {
        "schema": "roofline_helpers.train_step/1",
        "what": f"a training step: {shape}, {tokens[0]} sequences of {tokens[1]} tokens, Adam",
        "device": device_facts(),
        "count": len(jax.devices()),
        "host": host_facts(),
        "software": software_versions(),
        "date": now(),
        "command": "python -m measurements.train_step",
        "rungs": [],
    }

    def spent():
        return time.perf_counter() - BEGAN

    def keep(rung, row):
        about = {"rung": rung.name, "change": rung.change, "after": rung.after}
        record["rungs"].append({**about, **row})
        (options.out / "ladder.json").write_text(json.dumps(record, indent=1))

    for group in (rungs.RUNGS, rungs.ASIDE):
        chosen = [r for r in group if not options.only or r.name in options.only]
        if options.tiny and jax.default_backend() != "gpu":
            small = [replace(r.way, attention="einsum", flags={}) for r in chosen]
            chosen = [replace(r, way=w) for r, w in zip(chosen, small, strict=True)]
        if not chosen or spent() > options.limit - 40:
            continue
        pool = ThreadPoolExecutor(options.threads)
        programs = [pool.submit(compile_one, shape, rung, tokens) for rung in chosen]
        for rung, future in zip(chosen, programs, strict=True):
            try:
                left = options.limit - 15 - spent()
                say(rung.name, f"compiled in {future.result(timeout=max(left, 1))[2]:.1f} s")
            except Exception as error:
                say(rung.name, "not compiled:", f"{type(error).__name__}: {error}"[:300])
        pool.shutdown(wait=False, cancel_futures=True)
        for rung, future in zip(chosen, programs, strict=True):
            if spent() > options.limit - 12:
                say("the time is up: left out", rung.name)
                continue
            try:
                program, on, seconds = future.result(timeout=1)
                row = measure(shape, rung, tokens, program, on, options.out, 4)
                row["compiling"] = seconds
                best = statistics.median(row["seconds"])
                shown = [round(x, 5) for x in row["losses"]]
                say(rung.name, f"{1e3 * best:.2f} ms", shown, row.get("untraced", ""))
                keep(rung, row)
            except Exception as error:
                traceback.print_exc(limit=-3)
                keep(rung, {"failed": f"{type(error).__name__}: {error}"[:500]})
            gc.collect()


if __name__ == "__main__":
    main()
