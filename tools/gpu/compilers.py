"""Chapter 14's programs on an NVIDIA GPU: kernels and seconds, by XLA and by torch.compile.

python -m tools.gpu.compilers > roofline_helpers/data/compared/compilers.json
"""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from roofline_helpers import device, xla
from tools.gpu.pytorch import torch_or_none

N, CALLS = 8192, 20
PROGRAMS: dict[str, Callable[..., Any]] = {
    "relu(x·2 + 1).sum(-1)": lambda f, x: f.relu(x * 2 + 1).sum(-1),
    "sqrt((x·x).sum())": lambda f, x: f.sqrt((x * x).sum()),
    "x / x.sum()": lambda f, x: x / x.sum(),
    "row sums of x and x·x": lambda f, x: (x.sum(-1), (x * x).sum(-1)),
    "softmax(x)": lambda f, x: f.softmax(x, -1),
    "x.T + y": lambda f, x, y: x.T + y,
    "x[::2] + y": lambda f, x, y: x[::2] + y[: N // 2],
    "x[indices] + y": lambda f, x, y: x[f.indices] + y,
    "x @ w @ w": lambda f, x, y: x @ y @ y,
    "gelu(x @ w) · (x @ w)": lambda f, x, y: f.gelu(x @ y) * (x @ y),
    "layernorm(x)": lambda f, x: f.layernorm(x),
    "relu(2x + bias)": lambda f, x, y: f.relu(2 * x + y),
    "relu(x) + sigmoid(y)": lambda f, x, y: f.relu(x) + f.sigmoid(y),
    "sin(x), cos(x)": lambda f, x: (f.sin(x), f.cos(x)),
    "((x − y)²).sum()": lambda f, x, y: ((x - y) ** 2).sum(),
    "relu(x @ w + b)": lambda f, x, y: f.relu(x @ y + f.row),
}


def layernorm(x: Any) -> Any:
    """Return the chapter's LayerNorm, with a scale of one and no shift."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def main() -> None:
    """Measure every program in both, and print the record."""
    torch = torch_or_none()
    order, row = jax.random.permutation(jax.random.key(1), N), jnp.ones(N, jnp.bfloat16)
    names = {name: getattr(jax.nn, name) for name in ("relu", "gelu", "softmax", "sigmoid")}
    ours = SimpleNamespace(
        **names,
        sqrt=jnp.sqrt,
        sin=jnp.sin,
        cos=jnp.cos,
        layernorm=layernorm,
    )
    theirs = SimpleNamespace(
        gelu=functools.partial(torch.nn.functional.gelu, approximate="tanh"),
        layernorm=lambda x: torch.layer_norm(x, x.shape[-1:]),
        indices=torch.asarray(jax.device_get(order).tolist(), device="cuda"),
        row=torch.ones(N, dtype=torch.bfloat16, device="cuda"),
        **{
            name: getattr(torch, name)
            for name in ("relu", "softmax", "sigmoid", "sqrt", "sin", "cos")
        },
    )
    x, y = jax.random.normal(jax.random.key(0), (2, N, N), jnp.bfloat16) / N**0.5
    a, b = torch.randn(2, N, N, device="cuda", dtype=torch.bfloat16) / N**0.5
    found: dict[str, Any] = {}
    for name, fn in PROGRAMS.items():

        def jitted(order: Any, row: Any, *args: Any, fn: Any = fn) -> Any:
            return fn(SimpleNamespace(**vars(ours), indices=order, row=row), *args)

        args = order, row, *(x, y)[: fn.__code__.co_argcount - 1]
        report = xla.analyze(jitted, *args)
        kernels = device.explain(jitted, *args).kernels
        found[name] = {
            "xla": {kernel.name: kernel.hbm_bytes for kernel in report.kernels},
            "xla_seconds": sum(kernel.seconds for kernel in kernels),
        }
    # Afterwards: the profilers of both can't be used in turn
    for name, fn in PROGRAMS.items():
        torch._dynamo.reset()  # or the ninth program finds the limit of recompilations
        compiled = torch.compile(functools.partial(fn, theirs))
        given = (a, b)[: fn.__code__.co_argcount - 1]
        for _ in range(3):
            compiled(*given)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(CALLS):
                compiled(*given)
            torch.cuda.synchronize()
        events = [one for one in profile.events() if one.name.startswith(("triton", "nvjet"))]
        found[name] |= {
            "inductor": [event.name for event in events[: len(events) // CALLS]],
            "inductor_seconds": 1e-6 * sum(event.device_time for event in events) / CALLS,
        }
        print(name, file=sys.stderr)
    record = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "pytorch": torch.__version__,
        "triton": importlib.import_module("triton").__version__,
        "date": str(datetime.date.today()),
        "command": "python -m tools.gpu.compilers",
        "programs": found,
    }
    print(json.dumps(record, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
