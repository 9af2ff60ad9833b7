# mypy: ignore-errors
"""Explain each rung of examples/llama_decode on this GPU, and write the profiles down.

    python -m tools.gpu.explain_decode --out $OUT --limit 540

Three ladders of Llama-3-8B, a JSON file each: `decode` (batch 1, 16, 64), `prefill` (2048 and 8192
tokens), `training` (one layer, 4 × 2048 tokens); and `energy`: products of random and of zero
matrices. What is measured is written after every item, so that a limit or a failure loses no other
item. Every program is compiled twice, with CUDA graphs (JAX's default, timed) and without (timed,
profiled); nothing is compiled while another is timed, and other processes read the traces.
`--ladder NAME` (repeatable) and `--only RUNG` take some, `--batch` and `--tokens` other sizes,
`--torch` also times PyTorch's prefill, in a process of its own before. A rehearsal on any device
is `--small`.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")

import jax
import jax.numpy as jnp

from examples.llama_decode import model, prefill, steps, training
from roofline_helpers import records, serving, work
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.explain import ladder, running
from roofline_helpers.explain.ceilings import ceilings_of
from roofline_helpers.explain.explaining import Task

SMALL = model.Llama(layers=2, width=512, hidden=1792, heads=16, groups=4, vocabulary=512)
BEGAN = time.perf_counter()


@dataclass
class Item:
    """One program of a ladder: what it is called, how it is compiled, and its arguments."""

    rung: str
    change: str
    setting: dict[str, Any]
    lowered: Any
    donate: bool
    arguments: Any  # called when it is this one's turn
    hand: float | None = None


def say(*words):
    print(f"[{time.perf_counter() - BEGAN:5.0f}]", *words, flush=True)


def on_gpu():
    return jax.devices()[0].platform == "gpu"


def both(item):
    """Return the program compiled without CUDA graphs, and with them."""
    lowered = item.lowered()
    bare = lowered.compile(compiler_options=dict(running.UNGRAPHED) if on_gpu() else None)
    return bare, lowered.compile() if on_gpu() and not item.setting.get("chained") else None


class Weights:
    """The model's weights as each rung takes them: made when needed, the last ones kept."""

    def __init__(self, shape):
        self.shape, self.raw, self.kept = shape, None, (None, None)

    def of(self, rung, *batch):
        plain = getattr(rung.way, "plain", rung.way)
        key = rung.name if isinstance(plain, steps.Kernels) else (plain.scan, plain.fused)
        key = (key, *batch) if isinstance(plain, steps.Kernels) else key
        if self.kept[0] != key:
            self.kept = (None, None)
            gc.collect()
            self.raw = self.raw or model.random_weights(self.shape)
            self.kept = (key, rung.prepare(self.raw, *batch))
            if getattr(getattr(rung.way, "plain", rung.way), "scan", False):
                self.raw = None  # stacked weights are a copy of them all, and memory is short
        return self.kept[1]


# --- the ladders ----------------------------------------------------------------------------------


def decode(shape, weights, options):
    for rung in reversed(steps.RUNGS):  # the weights of the first take most memory
        for batch in options.batch:

            def lowered(rung=rung, batch=batch):
                specs = jax.eval_shape(
                    lambda: (
                        rung.prepare(model.random_weights(shape), batch),
                        rung.cache(shape, batch, options.context),
                    )
                )
                place = (
                    jax.ShapeDtypeStruct((batch,), jnp.int32),
                    jax.ShapeDtypeStruct((), jnp.int32),
                )
                jitted = jax.jit(rung.step(shape), donate_argnums=1 if rung.donate else ())
                return jitted.lower(*specs, *place)

            def arguments(rung=rung, batch=batch):
                cache = rung.cache(shape, batch, options.context)
                place = jnp.arange(batch, dtype=jnp.int32), jnp.int32(options.context - 1)
                return (weights.of(rung, batch), cache, *place)

            setting = {"batch": batch, "context": options.context}
            chained = isinstance(rung.way, steps.Kernels) and rung.way.chain
            setting |= {"chained": True} if chained else {}
            hand = least(batch, options.context) if shape == model.Llama() else None
            yield Item(rung.name, rung.change, setting, lowered, rung.donate, arguments, hand)


def least(batch, context):
    """Return the decode step's least seconds by published ceilings, counted by hand."""
    model = serving.LLAMA_3_8B
    return serving.step(model, "h200", batch=batch, context=context, floor=False).seconds


def filled(shape, weights, options):
    for rung in reversed(prefill.RUNGS):
        for tokens in options.tokens:

            def lowered(rung=rung, tokens=tokens):
                specs = jax.eval_shape(lambda: rung.prepare(model.random_weights(shape)))
                prompt = jax.ShapeDtypeStruct((1, tokens), jnp.int32)
                return jax.jit(rung.step(shape)).lower(specs, prompt)

            def arguments(rung=rung, tokens=tokens):
                return weights.of(rung), jnp.arange(tokens, dtype=jnp.int32)[
                    None
                ] % shape.vocabulary

            setting = {"batch": 1, "tokens": tokens}
            yield Item(rung.name, rung.change, setting, lowered, False, arguments)


def trained(shape, weights, options):
    size = (1, 64) if options.small else (4, 2048)
    for rung in training.RUNGS:

        def lowered(rung=rung):
            specs = jax.eval_shape(lambda: (training.state(shape), training.batch(shape, *size)))
            jitted = jax.jit(rung.step(shape), donate_argnums=0 if rung.donate else ())
            return jitted.lower(*specs)

        def arguments(rung=rung):
            return training.state(shape), training.batch(shape, *size)

        setting = {"batch": size[0], "tokens": size[1], "layers": 1}
        yield Item(rung.name, rung.change, setting, lowered, rung.donate, arguments)


def powered(shape, weights, options):
    n = 256 if options.small else 8192
    square = jax.ShapeDtypeStruct((n, n), jnp.bfloat16)
    fills = {
        "random": lambda key: jax.random.normal(key, (n, n), jnp.bfloat16),
        "zeros": lambda key: jnp.zeros((n, n), jnp.bfloat16),
        "ones": lambda key: jnp.ones((n, n), jnp.bfloat16),
        "small integers": lambda key: jax.random.randint(key, (n, n), -4, 5).astype(jnp.bfloat16),
        "half zeros": lambda key: jnp.where(
            jax.random.bernoulli(key, 0.5, (n, n)), jax.random.normal(key, (n, n), jnp.bfloat16), 0
        ),
    }
    for name, fill in fills.items():

        def arguments(fill=fill):
            return tuple(fill(key) for key in jax.random.split(jax.random.key(0)))

        def lowered():
            return jax.jit(jnp.matmul).lower(square, square)

        setting = {"n": n, "chained": True}
        counted = ceilings_of("h200", ["bf16"]).hand([work.matmul(n, n, n, "bf16")])
        yield Item(f"product of {name}", "", setting, lowered, False, arguments, counted)

    def stream():
        return jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((n * n * 8,), jnp.bfloat16))

    def long():
        return (jax.random.normal(jax.random.key(2), (n * n * 8,), jnp.bfloat16),)

    yield Item("x + 1", "", {"n": n * n * 8, "chained": True}, stream, False, long)


LADDERS = {"decode": decode, "prefill": filled, "training": trained, "energy": powered}


# --- measuring ------------------------------------------------------------------------------------


def taken(item, programs):
    """Return what the device tells of one item, and the seconds of a call by CUDA graphs."""
    bare, graphed = programs
    spec = Arguments(item.arguments(), {})
    task = Task(bare, spec, (), consume=item.donate, seconds=0.6, energy=True, name=item.rung)
    told = task.taken(lambda doing: None)
    graphs = ()
    if graphed is not None:
        spec = Arguments(item.arguments(), {}) if item.donate else spec
        runner = running.compiled_runner(graphed, spec, {}, {}, consume=item.donate)
        running.plain(runner, 2, told.queue)
        graphs = tuple(running.plain(runner, 7, told.queue))
    trace = replace(told.turns.trace, data=b"")
    return replace(
        told, device=told.device.device_kind, graphs=graphs, turns=told.turns._replace(trace=trace)
    )


def explained(told, hand):
    """Return the explanation of what was taken: in another process."""
    why = told.explained()
    return replace(why, hand=hand)


class Book:
    """A ladder's record, written anew after each item that was read."""

    def __init__(self, name, out):
        self.name, self.out, self.steps = name, out, {}

    def add(self, number, item, result):
        """Keep an item's explanation, or why there is none."""
        setting = {k: v for k, v in item.setting.items() if k != "chained"}
        label = f"{self.name}, {item.rung}, {setting}"
        if isinstance(result, Exception):
            say(label, "FAILED", str(result)[:300])
            made = ladder.Step(item.rung, item.change, setting, failed=str(result)[:300])
        else:
            causes = [f"{f.cause} {f.seconds * 1e3:.2f}" for f in result.findings]
            graphs = f"{1e3 * min(result.graphs):.3f}" if result.graphs else "-"
            say(label, f"{result.wall * 1e3:.3f} ms, in graphs {graphs}", causes)
            made = ladder.Step(item.rung, item.change, setting, result)
        self.steps[number] = made
        self.write()

    def write(self, full=False):
        """Write the record; every kernel of every layer too, for whoever wants to look closer."""
        steps = tuple(self.steps[number] for number in sorted(self.steps))
        made = ladder.Ladder(self.name, "python -m tools.gpu.explain_decode", steps)
        if full:
            whole = gzip.compress(ladder.dumps(made).encode())
            (self.out / f"{self.name}-full.json.gz").write_bytes(whole)
        short = (replace(s, why=None if s.why is None else s.why.brief()) for s in steps)
        records.write(
            self.out / f"{self.name}.json", ladder.dumps(replace(made, steps=tuple(short)))
        )


def measured(name, items, options, out, readers):
    """Explain the items of a ladder one by one, and write down what there is after each."""
    book, threads = Book(name, out), ThreadPoolExecutor(options.threads)
    programs = [threads.submit(both, item) for item in items]
    left = options.limit - (time.perf_counter() - BEGAN)
    wait(programs, timeout=max(left / 2, 1))
    say(name, "compiled:", sum(each.done() for each in programs), "of", len(programs))
    reading: dict[Future, Any] = {}

    def collect(timeout):
        for future in wait(reading, timeout=timeout).done:
            number, item = reading.pop(future)
            book.add(number, item, future.exception() or future.result())

    for number, (item, future) in enumerate(zip(items, programs, strict=True)):
        left = options.limit - (time.perf_counter() - BEGAN)
        if left < 20:
            say(name, "the time is up: left out", item.rung, item.setting)
            future.cancel()
            continue
        try:
            told = taken(item, future.result(timeout=left - 10))
            reading[readers.submit(explained, told, item.hand)] = number, item
            say(name, item.rung, item.setting, f"{min(told.turns.plain) * 1e3:.3f} ms")
        except Exception as error:
            traceback.print_exc(limit=-3)
            book.add(number, item, error)
        told = None
        gc.collect()
        collect(0)
    collect(60)
    threads.shutdown(wait=False, cancel_futures=True)
    if name == "decode":
        book.write(full=True)


def pytorch(options, out):
    """Time PyTorch's prefill in a process of its own, and write it down."""
    command = [
        sys.executable,
        "-m",
        "examples.llama_decode.torch_prefill",
        "--out",
        str(out / "torch-prefill.json"),
    ]
    command += ["--tokens", *map(str, options.tokens)]
    try:
        subprocess.run(command, timeout=min(90, options.limit / 2), check=True)
    except Exception as error:
        say("PyTorch", str(error)[:300])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=os.environ.get("OUT", "."), help="a folder")
    parser.add_argument("--ladder", action="append", choices=list(LADDERS))
    parser.add_argument("--only", action="append", metavar="RUNG")
    parser.add_argument("--batch", type=int, nargs="+", default=[16, 64, 1])
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--limit", type=float, default=540, help="seconds")
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--small", action="store_true", help="a rehearsal: a tiny model")
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    shape = SMALL if options.small else model.Llama(layers=options.layers)
    if options.small:
        options.batch, options.context, options.tokens = options.batch[:2], 128, [64]
    if options.torch:
        pytorch(options, out)
    weights = Weights(shape)
    jax.devices()  # before the readers' platform is chosen
    os.environ["JAX_PLATFORMS"] = "cpu"
    readers = ProcessPoolExecutor(options.readers, multiprocessing.get_context("spawn"))
    for name in options.ladder or LADDERS:
        items = list(LADDERS[name](shape, weights, options))
        chosen = [i for i in items if not options.only or i.rung in options.only]
        if chosen:
            measured(name, chosen, options, out, readers)
            say(name, json.dumps({p.name: p.stat().st_size for p in out.iterdir()}))


if __name__ == "__main__":
    main()
