# mypy: ignore-errors
"""Time causal attention over 131,072 tokens on four GPUs, as examples/train_step/context cuts it.

python -m measurements.context --out FOLDER
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import shutil
import statistics
import time
from pathlib import Path

# Each kernel must show by itself: no command buffers
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer="

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from examples.train_step import context
from roofline.diagnosis.runner import UNGRAPHED, compiled_runner
from roofline.measure.machine import device_facts, now, software_versions
from roofline.xla.lower import Arguments

BEGAN = time.perf_counter()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    n, gpu = len(jax.devices()), jax.default_backend() == "gpu"
    heads, groups, head = (4, 2, 128) if options.tiny else (32, 8, 128)
    mesh = jax.make_mesh((n,), (context.AXIS,), axis_types=(AxisType.Auto,))
    cut = NamedSharding(mesh, P(None, context.AXIS))
    record = {
        "schema": "roofline_helpers.context/1",
        "what": f"causal attention, batch 1, {heads} heads, {groups} of keys and values, of {head}",
        "device": device_facts(),
        "count": n,
        "software": software_versions(),
        "date": now(),
        "command": "python -m measurements.context",
        "rows": [],
    }

    def arrays(length):
        sizes = [(1, length, h, head) for h in (heads, groups, groups)]

        def drawn():
            keys = jax.random.split(jax.random.key(0), 3)
            pairs = zip(keys, sizes, strict=True)
            return [jax.random.normal(key, size, jnp.bfloat16) for key, size in pairs]

        return jax.jit(drawn, out_shardings=cut)()

    def reference(q, k, v):  # one device has it all, where the scores fit
        return context.partial(q, k, v, causal=True)[0]

    lengths = (2048, 1024) if options.tiny else (131072, 32768)
    for length in lengths:
        q, k, v = arrays(length)
        wanted = None
        if length == lengths[-1]:
            one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            wanted = jax.jit(reference)(*(jax.device_put(x, one) for x in (q, k, v)))
        for name, (f, zigzag) in context.WAYS.items():
            if time.perf_counter() - BEGAN > options.limit:
                break
            row = {"way": name, "tokens": length, "devices": n}
            try:
                spec = P(None, context.AXIS)
                run = jax.shard_map(
                    functools.partial(f, n=n), mesh=mesh, in_specs=(spec,) * 3, out_specs=spec,
                    check_vma=False,
                )  # fmt: skip
                args = (q, k, v)
                if zigzag:
                    order = context.zigzag_order(length, n)
                    move = jax.jit(lambda xs, o: [x[:, o] for x in xs], out_shardings=cut)
                    args = tuple(move(args, order))
                began = time.perf_counter()
                options_ = dict(UNGRAPHED) if gpu else None
                program = jax.jit(run).lower(*args).compile(compiler_options=options_)
                row["compiling"] = time.perf_counter() - began
                out = program(*args)
                if wanted is not None:
                    got = jax.device_put(out, one).astype(jnp.float32)
                    right = wanted.astype(jnp.float32)
                    right = right[:, order] if zigzag else right
                    row["error"] = float(jnp.linalg.norm(got - right) / jnp.linalg.norm(right))
                runner = compiled_runner(program, Arguments(args, {}), {}, {})
                runner.run(2)
                row["seconds"] = [runner.run(4) for _ in range(5)]
                slug = f"context-{name.replace(' ', '-').replace(',', '')}-{length}"
                with gzip.open(options.out / f"{slug}.hlo.txt.gz", "wt") as file:
                    file.write(program.as_text())
                traced = options.out / "traces" / slug
                _, row["traced"] = runner.traced(3, 1, str(traced))
                file = next(traced.rglob("*.xplane.pb"))
                with gzip.open(options.out / f"{slug}.xplane.pb.gz", "wb") as packed:
                    packed.write(file.read_bytes())
                shutil.rmtree(traced)
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:400]
            middle = statistics.median(row.get("seconds", [0]))
            print(f"{name}, {length}: {1e3 * middle:.3f} ms", row.get("error"), row.get("failed"),
                  flush=True)  # fmt: skip
            record["rows"].append(row)
            (options.out / "context.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
