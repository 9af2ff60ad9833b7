# mypy: ignore-errors
"""One decode step of Llama-3-8B: every rung of examples/llama_decode on this GPU, and PyTorch's.

    python -m tools.gpu.decode --out h200-decode.json

Writes one JSON file as it goes: for each batch the roof, each rung's seconds (at once, and after
0.3 s of work; runs of about 0.6 s) and how far its logits are from those of the rung timed first,
and what examples/llama_decode/torch_step.py measured in a process of its own before. --tune also
times the last rung cut in other ways. --only NAME (repeatable) measures some rungs, --limit S
stops after so many seconds, --layers N takes a shorter model: a rehearsal on any device
is `--layers 1 --small --no-torch --only donated`.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from time import perf_counter

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")

import jax
import jax.numpy as jnp

from examples.llama_decode import model, steps
from examples.llama_decode.plan import Cut, Kernels, Ring
from roofline_helpers import measure, serving

PUBLISHED, REACHED, READ = 4.8e12, 0.89 * 4.8e12, 4.558e12
"""Bytes a second of an H200's memory: its data sheet's, a copy's, a stream's that only reads."""
FIRST = ("overlapped", "narrow sums", "cuDNN")
"""The rungs that are timed first."""
SMALL = model.Llama(layers=2, width=512, hidden=1792, heads=16, groups=4, vocabulary=512)


def candidates():
    """Yield the last rung cut in other ways, and the batches for which that may gain."""
    last = steps.RUNGS[-1]
    two = {"o": Cut(64, 2, depth=128, ring=Ring(6))}
    ways = {
        "sums in float32": (Kernels(deep=8, middle=two), (16, 64)),
        "two tiles": (Kernels(deep=8, narrow=True, middle=two, tiles=Ring(2)), (16, 64)),
    }
    for name, (way, batches) in ways.items():
        yield replace(last, name=f"{last.name}: {name}", way=way), batches


def seconds(run, weights, cache, tokens, position, donate):
    """Return the step's logits; seconds a step at once, and of five runs after 0.3 s.

    A run queues steps for about 0.6 s, at least 3, as PyTorch's does.
    """
    first = None

    def many(count):
        nonlocal cache, first
        began = perf_counter()
        for _ in range(count):
            logits, fresh = run(weights, cache, tokens, position)
            if donate:
                cache = fresh
        jax.block_until_ready((logits, fresh))
        first = logits if first is None else first
        return (perf_counter() - began) / count

    many(1)
    count = max(3, int(0.6 / many(1)))
    at_once, began = many(count), perf_counter()
    while perf_counter() - began < 0.3:
        many(count)
    runs = [many(count) for _ in range(5)]
    return first, {"first": at_once, "calls a run": count, "seconds": runs}


def roof(batch, tokens):
    """Return the step's least seconds by the published, the copy's and the reading bandwidth."""
    least = serving.step(
        serving.LLAMA_3_8B, "h200", batch=batch, context=tokens, floor=False
    ).seconds
    rates = {"published": PUBLISHED, "reached": REACHED, "read": READ}
    return {name: least * PUBLISHED / rate for name, rate in rates.items()}


def pytorch(options):
    """Return what the PyTorch step took, from a process of its own: what is known at the limit."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "torch.json"
        command = [sys.executable, "-m", "examples.llama_decode.torch_step", "--out", str(out)]
        command += ["--tokens", str(options.tokens), "--layers", str(options.layers)]
        command += ["--batch", *map(str, options.batch), *options.torch.split()]
        try:
            subprocess.run(command, check=True, timeout=options.torch_limit)
        except subprocess.TimeoutExpired as error:
            print(error, flush=True)
        return json.loads(out.read_text()) if out.exists() else None


def rounds(rungs, batches, tune):
    """Yield rungs with batches in the order that matters, for a run that is cut short."""
    first = [rung for rung in rungs if rung.name in FIRST]
    rest = [rung for rung in rungs if rung.name not in FIRST]
    yield [(rung, batches) for rung in first]
    if tune:
        yield [(rung, [b for b in batches if b in wanted]) for rung, wanted in candidates()]
    yield [(rung, batches[:1]) for rung in rest]
    yield [(rung, batches[1:]) for rung in rest]


def ladder(shape, rungs, options, keep):
    """Time each rung at each batch; `keep` gets the row: seconds and error, or why it failed."""
    began, weights, wanted = perf_counter(), None, {}
    pool = ThreadPoolExecutor(12)
    for some in rounds(rungs, options.batch, options.tune):
        waiting = {
            (rung.name, batch): pool.submit(rung.compiled, shape, batch, options.tokens)
            for rung, batches in some
            for batch in batches
        }
        weights = weights or model.random_weights(shape)
        wait(waiting.values())  # nothing compiles, and is tuned, while another is timed
        for rung, batches in some:
            for batch in batches:
                if perf_counter() - began > options.limit:
                    return
                try:
                    run = waiting[rung.name, batch].result()
                    own = rung.prepare(weights, batch)
                    row = one_row(rung, run, own, shape, batch, options.tokens, wanted)
                    shown = f"{1e3 * statistics.median(row['seconds']):.3f} ms"
                    shown += f", error {row['error']:.1e}"
                except Exception as error:
                    row = {"failed": f"{type(error).__name__}: {error}"[:300]}
                    shown = row["failed"]
                print(f"{perf_counter() - began:.0f} s: {batch}, {rung.name}: {shown}", flush=True)
                keep(batch, rung.name, row)
                own = None
                gc.collect()


def one_row(rung, run, weights, shape, batch, tokens, wanted):
    """Return what is known of a rung at a batch, its logits compared with the first rung's."""
    cache = rung.cache(shape, batch, tokens)
    logits, row = seconds(run, weights, cache, *steps.places(batch, tokens), rung.donate)
    logits = logits.astype(jnp.float32)
    reference = wanted.setdefault(batch, logits)
    error = jnp.linalg.norm(logits - reference) / jnp.linalg.norm(reference)
    return row | {"change": rung.change, "error": float(error)}


def main():
    """Measure and write down."""
    parser = argparse.ArgumentParser(description="One decode step of Llama-3-8B, rung by rung.")
    parser.add_argument("--out", metavar="FILE.json")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--small", action="store_true", help="a tiny model: a rehearsal")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds for the rungs")
    parser.add_argument("--torch", default="", help="options of torch_step")
    parser.add_argument("--torch-limit", type=float, help="seconds for PyTorch")
    parser.add_argument("--no-torch", action="store_true")
    options = parser.parse_args()
    rungs = [
        rung for rung in reversed(steps.RUNGS) if not options.only or rung.name in options.only
    ]
    shape = replace(SMALL if options.small else model.Llama(), layers=options.layers)
    about = {
        "schema": "roofline_helpers.decode/1",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": "python -m tools.gpu.decode " + " ".join(sys.argv[1:]),
        "layers": options.layers,
        "tokens": options.tokens,
        "roof": {str(batch): roof(batch, options.tokens) for batch in options.batch},
    }
    if not options.no_torch:
        about["torch"] = pytorch(options)
    device = measure.device()
    about["device"] = {"kind": device["kind"], "chip": device["chip"]}
    about |= {"software": measure.software(), "notes": list(measure.busy())}
    about["rungs"] = {str(batch): {} for batch in options.batch}

    def keep(batch, name, row):
        about["rungs"][str(batch)][name] = row
        if options.out:
            Path(options.out).write_text(json.dumps(about, indent=1) + "\n")

    ladder(shape, rungs, options, keep)


if __name__ == "__main__":
    main()
