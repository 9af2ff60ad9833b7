"""What JAX's settings on a GPU gain: CUDA graphs, loops, the autotuner, exchanges, host memory.

    python -m measurements.settings PART [--name NAME] --out FILE.json

Parts of one GPU are `graphs`, `loops`, `offload`, `products`, `precisions` and `compiling`; of
several, `ragged` and `step`. `compiling` and `step` take the flags of this process: run them once
for each setting of ``XLA_FLAGS`` or ``JAX_ENABLE_PGLE``, with its name. The rows of all parts are
in `roofline/data/evidence/settings.json`, by part.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import roofline
from examples.train_step import model, rungs
from roofline.diagnosis.runner import UNGRAPHED
from roofline.diagnosis.trace import read_trace
from roofline.measure.machine import now, software_versions

Row = dict[str, Any]
KEY = jax.random.key(0)


def normal(*shape: int, dtype: str = "bfloat16", scale: float = 1.0) -> jax.Array:
    """Return normal numbers."""
    return (jax.random.normal(KEY, shape) * scale).astype(dtype)


def weight(*shape: int, dtype: str = "bfloat16") -> jax.Array:
    """Return normal numbers over the square root of the last axis but one."""
    return normal(*shape, dtype=dtype, scale=shape[-2] ** -0.5)


def timed(call: Callable[..., Any], args: Any, runs: int = 15, queued: int = 4) -> list[float]:
    """Return the seconds of a call, sorted, in runs of so many queued ones."""
    for _ in range(3):
        jax.block_until_ready(call(*args))
    seconds = []
    for _ in range(runs):
        begun = perf_counter()
        for _ in range(queued):
            result = call(*args)
        jax.block_until_ready(result)
        seconds.append((perf_counter() - begun) / queued)
    return sorted(seconds)


def spread(seconds: list[float]) -> dict[str, float]:
    """Return the median of sorted seconds, and what a tenth, nine tenths and 99% stay below."""
    at = {"low": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99}
    return {name: seconds[int(share * len(seconds))] for name, share in at.items()}


def both_ways(fn: Any, args: Any) -> dict[str, Any]:
    """Return a function compiled as JAX does it, in CUDA graphs, and without them."""
    lowered = jax.jit(fn).lower(*args)
    plain = lowered.compile(compiler_options=dict(UNGRAPHED))
    return {"graphs": lowered.compile(), "plain": plain}


def kernels(call: Callable[..., Any], args: Any, runs: int = 5) -> tuple[float, float]:
    """Return a call's launches, and the seconds of its kernels, as profiled."""
    jax.block_until_ready(call(*args))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(runs):
                result = call(*args)
            jax.block_until_ready(result)
        events = read_trace(Path(folder)).events
    return len(events) / runs, math.fsum(event.seconds for event in events) / runs


# --- CUDA graphs ----------------------------------------------------------------------------------


def norm(x: Any) -> Any:
    """Return the root-mean-square norm of rows."""
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype)


def short_chain() -> tuple[Any, Any]:
    """Sums and cumulative sums of 1,024 numbers, thirty times."""

    def chain(x: Any) -> Any:
        for _ in range(30):
            x = jnp.cumsum(x / (1 + jnp.sum(jnp.abs(x)))) * 0.5
        return x

    return chain, (normal(1024, dtype="float32"),)


def decode(width: int, batch: int, layers: int = 4, length: int = 1024) -> tuple[Any, Any]:
    """A decode step of a small model, its cache not donated."""
    heads, head = width // 128, 128
    names = {"q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width)}
    names |= {"up": (width, 4 * width), "down": (4 * width, width)}
    weights = [{name: weight(*size) for name, size in names.items()} for _ in range(layers)]
    cache = [(normal(batch, length, heads, head), normal(batch, length, heads, head))] * layers

    def step(x: Any, weights: Any, cache: Any, out: Any, at: Any) -> Any:
        caches = []
        for w, (keys, values) in zip(weights, cache, strict=True):
            q, k, v = ((norm(x) @ w[name]).reshape(batch, 1, heads, head) for name in "qkv")
            keys = lax.dynamic_update_slice(keys, k, (0, at, 0, 0))
            values = lax.dynamic_update_slice(values, v, (0, at, 0, 0))
            caches.append((keys, values))
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys).astype(jnp.float32) * head**-0.5
            scores = jnp.where(jnp.arange(length) <= at, scores, -1e30)
            shares = jax.nn.softmax(scores).astype(x.dtype)
            x = x + jnp.einsum("bhqk,bkhd->bqhd", shares, values).reshape(batch, width) @ w["o"]
            x = x + jax.nn.silu(norm(x) @ w["up"]) @ w["down"]
        return jnp.argmax(norm(x) @ out, -1), caches

    return step, (normal(batch, width), weights, cache, weight(width, 32000), jnp.int32(500))


def small_training() -> tuple[Any, Any]:
    """A training step of six layers of 512, with momentum."""
    weights = [weight(512, 512, dtype="float32") for _ in range(6)]

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jax.nn.gelu(x @ w)
        return jnp.mean(x * x)

    def step(weights: Any, mean: Any, x: Any) -> Any:
        slopes = jax.grad(loss)(weights, x)
        mean = jax.tree.map(lambda m, g: 0.9 * m + g, mean, slopes)
        return jax.tree.map(lambda w, m: w - 1e-3 * m, weights, mean), mean

    zeros = [jnp.zeros_like(w) for w in weights]
    return step, (weights, zeros, normal(64, 512, dtype="float32"))


def large_layers() -> tuple[Any, Any]:
    """Three MLPs of width 4,096 on as many tokens: few long kernels."""

    def layers(x: Any, up: Any, down: Any) -> Any:
        for _ in range(3):
            x = x + jax.nn.gelu(x @ up) @ down
        return x

    return layers, (normal(4096, 4096), weight(4096, 16384), weight(16384, 4096))


def scanned_layers() -> tuple[Any, Any]:
    """A scan over 32 layers of width 1,024."""

    def layers(x: Any, weights: Any) -> Any:
        return lax.scan(lambda x, w: (jax.nn.gelu(x @ w) + x, jnp.sum(x, -1)), x, weights)

    return layers, (normal(16, 1024), weight(32, 1024, 1024))


def many_arrays() -> tuple[Any, Any]:
    """An optimiser on 120 arrays of 256 × 256."""
    arrays = [normal(256, 256, dtype="float32") for _ in range(120)]

    def step(weights: Any, slopes: Any) -> Any:
        return [
            w - 1e-3 * g / (jnp.sqrt(jnp.mean(g * g)) + 1e-8)
            for w, g in zip(weights, slopes, strict=True)
        ]

    return step, (arrays, [0.1 * a for a in arrays])


PROGRAMS = {
    "short chain": short_chain,
    "decode, width 1,024": functools.partial(decode, 1024, 1),
    "decode, width 4,096": functools.partial(decode, 4096, 8),
    "small training step": small_training,
    "large layers": large_layers,
    "scanned layers": scanned_layers,
    "many arrays": many_arrays,
}


def graphs(name: str) -> Iterator[Row]:
    """Yield a row a program: calls alone and eight queued, in graphs and without, and explained."""
    make: Any
    for program, make in PROGRAMS.items():
        fn, args = make()
        row: Row = {"program": program}
        for way, call in both_ways(fn, args).items():
            launches, seconds = kernels(call, args)
            row[way] = {"launches": launches, "kernels": seconds}
            for often, queued in (("alone", 1), ("queued", 8)):
                row[way][often] = spread(timed(call, args, 200, queued))
        why = roofline.explain(fn, *args, seconds=0.3, progress=False, name=program)
        row["explain"] = {"wall": why.wall, "ungraphed": sorted(why.ungraphed), "queue": why.queue}
        yield row


# --- Loops ----------------------------------------------------------------------------------------


def reduced(x: Any) -> Any:
    """Return numbers over the sum of their squares."""
    return x / (1 + jnp.sum(x * x))


def bodies() -> dict[str, tuple[Any, jax.Array]]:
    """Return what turns do, each with what it begins with."""
    small, square = weight(256, 256, dtype="float32"), normal(2048, 2048)
    x = normal(1024, dtype="float32")

    def twice(x: Any) -> Any:
        return reduced(reduced(x) * 1.5)

    return {
        "elementwise": (lambda x: x * 1.0001 + 0.5, x),
        "reduce": (reduced, x),
        "reduce2": (twice, x),
        "reduce4": (lambda x: twice(twice(x)), x),
        "matmul": (lambda x: jnp.tanh(x @ small), normal(8, 256, dtype="float32")),
        "big matmul": (lambda x: (x @ square) * 0.02, normal(2048, 2048, scale=0.02)),
    }


def loops_of(body: Any, n: int) -> dict[str, Any]:
    """Return loops of `n` turns around a body; "dynamic" and "condition" have no known length."""

    def counted(_: Any, x: Any) -> Any:
        return body(x)

    return {
        "fori": lambda x: lax.fori_loop(0, n, counted, x),
        "dynamic": lambda x, n: lax.fori_loop(0, n, counted, x),
        "condition": lambda x: lax.while_loop(
            lambda c: (jnp.sum(c[1]) < 1e30) & (c[0] < n), lambda c: (c[0] + 1, body(c[1])), (0, x)
        ),
        "scan": lambda x, xs: lax.scan(lambda c, v: (body(c + v), jnp.max(c)), x, xs),
        "stack": lambda x: lax.scan(lambda c, _: (body(c), c), x, None, length=n),
        "nested": lambda x: lax.fori_loop(
            0, n // 10, lambda _, x: lax.fori_loop(0, 10, counted, x), x
        ),
        "branch": lambda x: lax.fori_loop(
            0, n, lambda _, x: lax.cond(x[0] > 0, body, lambda x: -x, x), x
        ),
    }


def loops(name: str) -> Iterator[Row]:
    """Yield a row a loop and body: seconds of 200 and of 400 turns, and a turn's kernels."""
    for body, (fn, x) in bodies().items():
        simple = body in ("elementwise", "reduce")
        for loop in loops_of(fn, 200):
            if loop not in ("fori", "dynamic", "condition") and not simple:
                continue
            row: Row = {"loop": loop, "body": body}
            calls: dict[str, list[float]] = {"graphs": [], "plain": []}
            for n in (200, 400):
                more = {"dynamic": (jnp.int32(n),), "scan": (jnp.ones((n, 1024)),)}
                args = (x, *more.get(loop, ()))
                for way, call in both_ways(loops_of(fn, n)[loop], args).items():
                    calls[way].append(timed(call, args, 8, 1)[0])
            launches, seconds = kernels(call, args)
            yield row | calls | {"launches": launches / n, "kernels": seconds / n}


# --- Products, the compiler, host memory ----------------------------------------------------------

SHAPES = [
    *[(4096, k, 4096) for k in (4096, 4097, 4100, 4104)],
    *[(4096, 4096, n) for n in (4097, 4098, 4100, 4104)],
    *[(4097, 4096, 4096), (2048, 2048, 50257), (2048, 2048, 50264), (2048, 2048, 50304)],
    *[(8192, 8192, 8191), (1000, 1000, 1001)],
]


def maker(call: Any) -> str:
    """Return by what a compiled product is multiplied."""
    text = call.as_text()
    return "cuBLAS" if "__cublas" in text else "Triton" if "triton" in text else "XLA"


def products(name: str) -> Iterator[Row]:
    """Yield a row a product of sizes (m, k, n), as it is and padded to multiples of 64."""
    for m, k, n in SHAPES:
        args = normal(m, k), normal(k, n)

        def padded(a: Any, b: Any, m: int = m, n: int = n) -> Any:
            up = [[(0, -size % 64) for size in x.shape] for x in (a, b)]
            return (jnp.pad(a, up[0]) @ jnp.pad(b, up[1]))[:m, :n]

        row: Row = {"m": m, "k": k, "n": n}
        for way, fn in {"default": lambda a, b: a @ b, "padded": padded}.items():
            call = jax.jit(fn).lower(*args).compile()
            row |= {way: timed(call, args, 15, 8), f"{way} by": maker(call)}
        yield row


def precisions(name: str) -> Iterator[Row]:
    """Yield a row a precision or algorithm of fp32 products: seconds, error, and how it is stated.

    The error is the root mean square's, beside that of the exact result, in a few of its rows.
    """
    presets = lax.DotAlgorithmPreset
    names = "F32_F32_F32 TF32_TF32_F32 TF32_TF32_F32_X3 BF16_BF16_F32 BF16_BF16_F32_X3".split()
    names += ["BF16_BF16_F32_X6", "BF16_BF16_F32_X9"]
    ways = {"default": None, "high": lax.Precision.HIGH, "highest": lax.Precision.HIGHEST}
    for side in (1024, 4096, 8192):
        # one row more, so that the second isn't the first again
        args = normal(side, side, dtype="float32"), normal(side + 1, side, dtype="float32")[1:]
        exact = np.asarray(args[0][:64], np.float64) @ np.asarray(args[1], np.float64)
        for way, precision in (ways | {each: presets[each] for each in names}).items():
            lowered = jax.jit(functools.partial(jnp.dot, precision=precision)).lower(*args)
            call, stated = lowered.compile(), lowered.compiler_ir("hlo").as_hlo_module().to_string()
            off = np.asarray(call(*args)[:64], np.float64) - exact
            yield {
                "asked": way,
                "side": side,
                "stated": re.findall(r"(?:operand_precision|algorithm)=[\w{},]*\w}?", stated),
                "seconds": timed(call, args),
                "error": float(np.sqrt((off**2).mean() / (exact**2).mean())),
                "by": maker(call),
            }


def compiling(name: str) -> Iterator[Row]:
    """Yield a row a program: seconds of compiling it, and of a call, under this process's flags."""
    layers = [(weight(4096, 16384), weight(16384, 4096)) for _ in range(4)]

    def loss(layers: Any, x: Any) -> Any:
        for up, down in layers:
            x = x + jax.nn.gelu(x @ up) @ down
        return jnp.mean(x.astype(jnp.float32) ** 2)

    def training(layers: Any, x: Any) -> Any:
        return jax.tree.map(lambda w, g: w - 1e-3 * g, layers, jax.grad(loss)(layers, x))

    programs: dict[str, Any] = {"training": (training, (layers, normal(4096, 4096)))}
    for m, k, n in SHAPES:
        programs[f"{m}×{k}×{n}"] = (lambda a, b: a @ b, (normal(m, k), normal(k, n)))
    for program, (fn, args) in programs.items():
        lowered = jax.jit(fn).lower(*args)
        begun = perf_counter()
        call = lowered.compile()
        took = perf_counter() - begun
        yield {"setting": name, "program": program, "compiling": took, "seconds": timed(call, args)}


def offload(name: str) -> Iterator[Row]:
    """Yield a row a size: seconds of copies to the host's memory and back; then layers from it."""
    device = jax.devices()[0]
    near = SingleDeviceSharding(device, memory_kind="device")
    far = SingleDeviceSharding(device, memory_kind="pinned_host")
    for size in (1, 16, 64, 256, 1024):
        x = jnp.ones((size << 19,), jnp.bfloat16)
        down = jax.jit(lambda x: jax.device_put(x, far), out_shardings=far)
        up = jax.jit(lambda x: jax.device_put(x, near) + 1, out_shardings=near)
        there = (jax.block_until_ready(down(x)),)
        yield {"bytes": size << 20, "down": timed(down, (x,), 9, 1), "up": timed(up, there, 9, 1)}
    weights, x = jnp.ones((8, 4096, 16384), jnp.bfloat16), jnp.ones((8192, 4096), jnp.bfloat16)

    def layer(x: Any, w: Any) -> Any:
        return x + 1e-3 * (jax.nn.gelu(x @ w) @ w.T)

    def fetched(x: Any, weights: Any) -> Any:
        def turn(x: Any, w: Any) -> Any:
            return layer(x, jax.device_put(w, near)), None

        return lax.scan(turn, x, weights)[0]

    here = jax.jit(lambda x, ws: lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0])
    yield {
        "layers": len(weights),
        "bytes": weights.nbytes // len(weights),
        "tokens": len(x),
        "near": timed(here, (x, weights), 7, 1),
        "fetched": timed(jax.jit(fetched), (x, jax.device_put(weights, far)), 7, 1),
    }


# --- Several GPUs ---------------------------------------------------------------------------------


def ragged(name: str) -> Iterator[Row]:
    """Yield a row a share and cut: seconds of a ragged exchange, and of one padded to the largest.

    Two devices of 16,384 tokens of 4,096 in bf16 each send a `share` to the last, in as many
    updates of a receiver as `experts`.
    """
    tokens, width, count = 16384, 4096, len(jax.devices())
    if count != 2:
        raise SystemExit(f"ragged is for two devices, here are {count}")
    on = jax.make_mesh((2,), ("e",))
    shared = functools.partial(
        jax.shard_map, mesh=on, in_specs=P("e"), out_specs=P("e"), check_vma=False
    )
    ids = (jnp.arange(2 * tokens)[:, None] % 251 + jnp.zeros((1, width))).astype(jnp.bfloat16)
    x = jax.device_put(ids, NamedSharding(on, P("e")))
    cuts = [(0.5, 1), (0.5, 4), (0.5, 16), (0.5, 64), (0.5, 256), (0.8, 16), (0.8, 64)]
    for share, experts in cuts:
        first = int(tokens * (1 - share)) // 256 * 256
        sizes = np.array([first, tokens - first], np.int32)
        most = int(sizes.max())

        def by_rows(x: Any, sizes: Any = sizes, most: int = most, experts: int = experts) -> Any:
            me, part = lax.axis_index("e"), sizes // experts

            def each(start: Any) -> Any:
                steps = jnp.arange(experts) * part[:, None]
                return (start[:, None] + steps).reshape(-1).astype(jnp.int32)

            sent = jnp.repeat(jnp.asarray(part), experts)
            got = jnp.full(2 * experts, jnp.asarray(part)[me])
            out = jnp.zeros((2 * most, width), x.dtype)
            starts = np.cumsum(sizes) - sizes
            mine = jnp.asarray(sizes) * me
            return lax.ragged_all_to_all(x, out, each(starts), sent, each(mine), got, axis_name="e")

        def padded(x: Any, sizes: Any = sizes, most: int = most) -> Any:
            parts = jnp.split(x, [int(sizes[0])])
            parts = [jnp.pad(part, ((0, most - len(part)), (0, 0))) for part in parts]
            return lax.all_to_all(jnp.stack(parts), "e", 0, 0)

        row: Row = {"share": share, "experts": experts}
        row |= {"sent": sizes.tolist(), "row": 2 * width}
        for way, fn in {"ragged": by_rows, "padded": padded}.items():
            row[way] = timed(jax.jit(shared(fn)), (x,))
        yield row


def step(name: str) -> Iterator[Row]:
    """Yield one row: the seconds of training steps, one after another, as rung *cuDNN* has them."""
    way, shape = rungs.CUDNN, rungs.SHAPE
    on, count = model.mesh(way), len(jax.devices())
    tokens = (4 * count, 2048)
    state, batch = model.state(shape, way, on), model.batch(shape, *tokens, on)
    where = model.placed(way, shape.layers, on)
    jitted = jax.jit(
        model.step(shape, way, on, tokens),
        donate_argnums=0,
        out_shardings=(where, NamedSharding(on, P())),
    )
    seconds, losses = [], []
    for _ in range(16):
        begun = perf_counter()
        state, loss = jax.block_until_ready(jitted(state, batch))
        seconds.append(perf_counter() - begun)
        losses.append(float(loss))
    yield {"setting": name, "devices": count, "tokens": tokens, "steps": seconds, "losses": losses}


PARTS = {
    part.__name__: part
    for part in (graphs, loops, offload, products, precisions, compiling, ragged, step)
}


def main() -> None:
    """Run a part, and keep its rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--name", default="as JAX does it")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    settings = {key: os.environ.get(key, "") for key in ("XLA_FLAGS", "JAX_ENABLE_PGLE")}
    record: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "software": software_versions(),
        "date": now(),
        "settings": settings,
        "rows": [],
    }
    for row in PARTS[options.part](options.name):
        record["rows"].append(row)
        options.out.write_text(json.dumps(record, indent=1), "utf-8")
        print(json.dumps(row)[:400], flush=True)


if __name__ == "__main__":
    main()
