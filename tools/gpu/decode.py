# mypy: ignore-errors
"""One decode step of Llama-3-8B: every rung of examples/llama_decode on this GPU, and PyTorch's.

    python -m tools.gpu.decode --out h200-decode.json

Writes one JSON file: for each batch the roof, each rung's seconds (at once, and after a second of
work) and how far its logits lie from the first rung's, and what examples/llama_decode/torch_step.py
measured in a process of its own before. --tune also times other rings of buffers for the last rung.
--only NAME (repeatable) measures some rungs, --layers N a shorter model: a rehearsal on any device
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import perf_counter

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")

import jax
import jax.numpy as jnp

from examples.llama_decode import model, steps
from examples.llama_decode.plan import Kernels, Ring
from roofline_helpers import measure, serving

PUBLISHED, REACHED, READ = 4.8e12, 0.89 * 4.8e12, 4.558e12
"""Bytes a second of an H200's memory: its data sheet's, a copy's, a stream's that only reads."""
SMALL = model.Llama(layers=2, width=512, hidden=1792, heads=16, groups=4, vocabulary=512)


def candidates():
    """Yield the last rung with other rings of buffers."""
    last = steps.RUNGS[-1]
    cuts = Kernels().products

    def rung(name, rings, **tiles):
        products = {key: replace(cuts[key], ring=ring) for key, ring in rings.items()}
        way = Kernels(products={**cuts, **products}, tiles=Ring(**tiles))
        return replace(last, name=f"{last.name}: {name}", way=way)

    yield rung("three tiles", {}, stages=3, flight=2)
    yield rung("three tiles, one ahead", {}, stages=3, ahead=1, flight=2)
    yield rung("all in flight", dict.fromkeys(cuts, Ring()), stages=2)
    few = {"qkv": Ring(5), "o": Ring(4), "gate_up": Ring(4, ahead=2), "down": Ring(4)}
    yield rung("few stages", few, stages=2)
    yield rung("few ahead", {**few, "gate_up": Ring(4, ahead=2), "o": Ring(4, ahead=2)}, stages=2)


def seconds(run, weights, cache, tokens, position, donate):
    """Return the step's logits, seconds a step at once and after a second, the last over 9 runs."""
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
    count = max(3, min(20, int(0.1 / many(1))))
    at_once, began = many(count), perf_counter()
    while perf_counter() - began < 1:
        many(count)
    return first, {"first": at_once, "seconds": [many(count) for _ in range(9)]}


def roof(batch, tokens):
    """Return the step's least seconds by the published, the copy's and the reading bandwidth."""
    least = serving.step(serving.LLAMA_3_8B, "h200", batch=batch, context=tokens).seconds
    rates = {"published": PUBLISHED, "reached": REACHED, "read": READ}
    return {name: least * PUBLISHED / rate for name, rate in rates.items()}


def pytorch(given):
    """Return what the PyTorch step took, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "torch.json"
        command = [sys.executable, "-m", "examples.llama_decode.torch_step", "--out", str(out)]
        command += ["--tokens", str(given.tokens), "--layers", str(given.layers)]
        command += ["--batch", *map(str, given.batch), *["--whole"][: given.whole]]
        subprocess.run(command, check=True)
        return json.loads(out.read_text())


def ladder(shape, rungs, given):
    """Return for each batch and rung its seconds and error, or why it failed."""
    with ThreadPoolExecutor(8) as pool:  # all of them before any is timed
        waiting = {
            (rung.name, batch): pool.submit(rung.compiled, shape, batch, given.tokens)
            for rung in rungs
            for batch in given.batch
        }
    weights = model.random_weights(shape)
    wanted, results = {}, {str(batch): {} for batch in given.batch}
    for rung in rungs:
        own = rung.prepare(weights)
        for batch in given.batch:
            row = results[str(batch)]
            try:
                run = waiting[rung.name, batch].result()
                cache = rung.cache(shape, batch, given.tokens)
                place = jnp.arange(batch, dtype=jnp.int32), jnp.int32(given.tokens - 1)
                logits, row[rung.name] = seconds(run, own, cache, *place, rung.donate)
                logits = logits.astype(jnp.float32)
                reference = wanted.setdefault(batch, logits)
                error = jnp.linalg.norm(logits - reference) / jnp.linalg.norm(reference)
                row[rung.name] |= {"change": rung.change, "error": float(error)}
                shown = f"{1e3 * statistics.median(row[rung.name]['seconds']):.3f} ms"
            except Exception as error:
                row[rung.name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
                shown = row[rung.name]["failed"]
            cache = run = None
            print(f"batch {batch}, {rung.name}: {shown}", flush=True)
        del own
        gc.collect()
    return results


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
    parser.add_argument("--whole", action="store_true", help="PyTorch: its own graphs too")
    parser.add_argument("--no-torch", action="store_true")
    given = parser.parse_args()
    rungs = [rung for rung in steps.RUNGS if not given.only or rung.name in given.only]
    if given.tune:
        rungs += candidates()
    shape = replace(SMALL if given.small else model.Llama(), layers=given.layers)
    about = {
        "schema": "roofline_helpers.decode/1",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": "python -m tools.gpu.decode " + " ".join(sys.argv[1:]),
        "layers": given.layers,
        "tokens": given.tokens,
        "roof": {str(batch): roof(batch, given.tokens) for batch in given.batch},
    }
    if not given.no_torch:
        about["torch"] = pytorch(given)
    about["rungs"] = ladder(shape, rungs, given)
    device = measure.device()
    about |= {"device": {"kind": device["kind"], "chip": device["chip"]}}
    about |= {"software": measure.software(), "notes": list(measure.busy())}
    if given.out:
        Path(given.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
