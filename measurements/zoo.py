# mypy: ignore-errors

"""Time kernels of every kind, as XLA makes them on one GPU, each by itself and inside programs.

Families and sizes are drawn at random. Of each case the optimised HLO is kept, and for each
instruction that ran the name of its kernel, its launches, and its seconds by the profiler: cold
(256 MB of other data were read before each call) and warm (the same call again, on the same
operands). CUDA graphs are off, since a graph's kernels carry no instruction's name; programs of
several kernels are timed by a clock, too, as JAX runs them, with graphs.

python -m measurements.zoo --seed 1 --seconds 500 --out FILE.jsonl.gz     (on a GPU, JAX alone)

`measurements.kernels` makes the table of kernels of it, with the counts of each instruction.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import math
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.profiler import ProfileData

UNGRAPHED = {"xla_gpu_enable_command_buffer": ""}
BATCH = 6  # cases in one trace
COLD, WARM = 6, 8  # calls of each kind

draw = random.Random()
smoke = False
pools: dict[str, np.ndarray] = {}


# --- Operands -------------------------------------------------------------------------------------


def pool(dtype):
    """Return random numbers of a type, the same ones for every operand of it."""
    name = np.dtype(dtype).name
    if name not in pools:
        n = 2**16 if smoke else 2**26
        numbers = np.random.default_rng(0).standard_normal(n, np.float32) * 0.3
        pools[name] = numbers.astype(dtype)
    return pools[name]


def array(*shape, dtype=ml_dtypes.bfloat16):
    """Return a host array of random numbers."""
    numbers, size = pool(dtype), math.prod(shape)
    start = draw.randrange(max(len(numbers) - size, 1))
    part = numbers[start : start + size] if size <= len(numbers) else np.resize(numbers, size)
    return part.reshape(shape)


def integers(shape, high, dtype=np.int32):
    """Return indices, evenly drawn."""
    return np.random.default_rng(draw.randrange(2**31)).integers(0, high, shape, dtype=dtype)


def positive(n, batch=()):
    """Return symmetric positive definite matrices in fp32."""
    a = array(*batch, n, n, dtype=np.float32)
    return (a @ np.swapaxes(a, -1, -2) / n + np.eye(n, dtype=np.float32)).astype(np.float32)


def pick(*choices):
    return draw.choice(choices)


def size(low, high, step=1):
    """Return a size, evenly drawn in its logarithm, a multiple of `step`."""
    if smoke:
        low, high = max(min(low, 16), 1), min(high, 96)
    drawn = 2 ** draw.uniform(math.log2(low), math.log2(high))
    return max(step, round(drawn / step) * step)


BF16, FP32 = ml_dtypes.bfloat16, np.float32


def either():
    return pick(BF16, BF16, FP32)


def rows_and_columns(most=3e8, low=16):
    rows, columns = size(low, 262144), size(64, 65536, pick(1, 8, 64))
    return rows, max(min(columns, int(most / rows)), 32)


# --- Families: each gives its parameters, a function and its arguments ----------------------------


def product(m, n, k, dtype=BF16):
    sides = array(m, k, dtype=dtype), array(k, n, dtype=dtype)
    return {"m": m, "n": n, "k": k}, lambda a, b: a @ b, sides


def matmul_aligned():
    dtype, step = either(), pick(8, 64, 128)
    return product(size(8, 16384, 8), size(128, 16384, step), size(128, 16384, step), dtype)


def matmul_rows():
    return product(size(1, 128), size(512, 32768, 64), size(512, 16384, 64))


def matmul_unaligned():
    dtype = either()
    return product(size(1, 12000), size(100, 12000), size(100, 12000, 8), dtype)


def matmul_odd():
    dtype = either()
    m, n = size(16, 8192, pick(1, 8)), size(128, 8192, pick(1, 64))
    return product(m, n, size(100, 8192) | 1, dtype)


def matmul_transposed():
    dtype = either()
    m, n, k = size(64, 8192, 8), size(64, 8192, 8), size(64, 8192, 8)
    sizes = {"m": m, "n": n, "k": k}
    if pick(True, False):
        sides = array(m, k, dtype=dtype), array(n, k, dtype=dtype)
        return sizes | {"side": "b"}, lambda a, b: a @ b.T, sides
    sides = array(k, m, dtype=dtype), array(k, n, dtype=dtype)
    return sizes | {"side": "a"}, lambda a, b: a.T @ b, sides


def matmul_epilogue():
    m, n, k = size(64, 16384, 8), size(256, 16384, 64), size(256, 8192, 64)
    arguments = array(m, k), array(k, n), array(n)
    return {"m": m, "n": n, "k": k}, lambda a, b, c: jax.nn.gelu(a @ b + c), arguments


def matmul_int8():
    m, n, k = size(64, 8192, 16), size(256, 8192, 64), size(256, 8192, 64)

    sides = integers((m, k), 100, np.int8), integers((k, n), 100, np.int8)
    summed = functools.partial(lax.dot, preferred_element_type=jnp.int32)
    return {"m": m, "n": n, "k": k}, summed, sides


def matmul_fp8():
    m, n, k = size(64, 8192, 16), size(256, 8192, 64), size(256, 8192, 64)
    eight = ml_dtypes.float8_e4m3fn
    sides = array(m, k, dtype=eight), array(k, n, dtype=eight)
    summed = functools.partial(lax.dot, preferred_element_type=jnp.bfloat16)
    return {"m": m, "n": n, "k": k}, summed, sides


def batched():
    dtype = either()
    b, m, n, k = size(4, 1024), size(16, 1024, pick(1, 8)), size(16, 1024, 8), size(16, 512, 8)
    sides = array(b, m, k, dtype=dtype), array(b, k, n, dtype=dtype)
    return {"b": b, "m": m, "n": n, "k": k}, lambda a, c: a @ c, sides


def elementwise():
    dtype, n, ops = either(), size(1e2, 3e8, pick(1, 1, 4, 64)), pick(1, 1, 2, 8, 32)
    kind = pick("add", "exp", "tanh", "where", "sqrt")

    one = {
        "add": lambda x, y: x * y + 1,
        "exp": lambda x, y: jnp.exp(x) * y,
        "tanh": lambda x, y: jnp.tanh(x) + y,
        "where": lambda x, y: jnp.where(x > y, x, 0.5 * y),
        "sqrt": lambda x, y: jnp.sqrt(x * x + y * y),
    }[kind]

    def chain(x, y):
        for _ in range(ops):
            x = one(x, y)
        return x

    return {"n": n, "ops": ops, "kind": kind}, chain, (array(n, dtype=dtype), array(n, dtype=dtype))


def tiny():
    n, dtype = size(1, 20000), either()
    f = pick(lambda x: x + 1, lambda x: x.sum(), lambda x: jnp.exp(x) * x)
    return {"n": n}, f, (array(n, dtype=dtype),)


def many_operands():
    n, count = size(1e4, 3e7, pick(1, 8)), pick(3, 5, 9)
    arrays = tuple(array(n, dtype=either()) for _ in range(count))
    several = pick(True, False)

    def combine(*xs):
        total = sum(x.astype(jnp.float32) for x in xs)
        return (total, total * 2, xs[0] - total) if several else total

    return {"n": n, "count": count, "results": 3 if several else 1}, combine, arrays


def cast():
    n, eight = size(1e4, 3e8, pick(1, 8)), ml_dtypes.float8_e4m3fn
    pairs = (BF16, FP32), (FP32, BF16), (np.int8, BF16), (FP32, np.int8), (BF16, eight)
    narrow, to = pick(*pairs)
    x = integers((n,), 100, np.int8) if narrow is np.int8 else array(n, dtype=narrow)
    return {"n": n, "to": np.dtype(to).name}, lambda x: x.astype(to), (x,)


def broadcast():
    dtype, (rows, columns), along = either(), rows_and_columns(), pick(0, 1)
    v = array(columns if along == 0 else rows, dtype=dtype)
    f = (lambda x, v: x * v) if along == 0 else (lambda x, v: x * v[:, None])
    sizes = {"rows": rows, "columns": columns, "along": along}
    return sizes, f, (array(rows, columns, dtype=dtype), v)


def normalise():
    dtype, (rows, columns) = either(), rows_and_columns()
    kind = pick("softmax", "layernorm", "rmsnorm")

    def norm(x):
        y = x.astype(jnp.float32)
        if kind == "softmax":
            y = jax.nn.softmax(y, -1)
        elif kind == "layernorm":
            y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
        else:
            y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)
        return y.astype(x.dtype)

    def gradient(x, g):
        return jax.vjp(norm, x)[1](g)[0]

    sizes = {"rows": rows, "columns": columns, "kind": kind}
    if pick(True, True, False):
        return sizes, norm, (array(rows, columns, dtype=dtype),)
    arguments = array(rows, columns, dtype=dtype), array(rows, columns, dtype=dtype)
    return sizes | {"pass_": "backward"}, gradient, arguments


def reduce():
    dtype, (rows, columns), axis = either(), rows_and_columns(4e8), pick(0, 1, None)
    kind = pick("sum", "max", "argmax", "var")
    f = {
        "sum": lambda x: x.astype(jnp.float32).sum(axis),
        "max": lambda x: x.max(axis),
        "argmax": lambda x: x.argmax(axis),
        "var": lambda x: x.astype(jnp.float32).var(axis),
    }[kind]
    sizes = {"rows": rows, "columns": columns, "axis": axis, "kind": kind}
    return sizes, f, (array(rows, columns, dtype=dtype),)


def transpose():
    dtype = either()
    if pick(True, False):
        rows, columns = rows_and_columns()
        x = array(rows, columns, dtype=dtype)
        return {"rows": rows, "columns": columns}, lambda x: x.T * 2, (x,)
    a, b, c = size(4, 512), size(16, 2048, pick(1, 8)), size(16, 2048, pick(1, 8))
    a = max(1, min(a, int(2e8 / (b * c))))
    order = pick((1, 0, 2), (0, 2, 1), (2, 1, 0))
    x = array(a, b, c, dtype=dtype)
    return {"shape": [a, b, c], "order": order}, lambda x: x.transpose(order) * 2, (x,)


def move():
    dtype, (rows, columns) = either(), rows_and_columns(2e8)
    kind = pick(
        "reverse", "concatenate", "pad", "slice", "roll", "stack", "repeat", "update", "updates"
    )
    x, y = array(rows, columns, dtype=dtype), array(rows, columns, dtype=dtype)
    f, arguments = {
        "reverse": (lambda x: x[:, ::-1] + 1, (x,)),
        "concatenate": (lambda x, y: jnp.concatenate([x, y], 1), (x, y)),
        "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 3))), (x,)),
        "slice": (lambda x: x[:, 1 : columns // 2], (x,)),
        "roll": (lambda x: jnp.roll(x, 3, 1), (x,)),
        "stack": (lambda x, y: jnp.stack([x, y], -1), (x, y)),
        "repeat": (lambda x: jnp.repeat(x[:, : max(columns // 4, 1)], 4, 1), (x,)),
        "update": (lambda x, y: x.at[:, 1 : 1 + columns // 2].set(y[:, : columns // 2]), (x, y)),
        "updates": (
            lambda x, i: lax.dynamic_update_slice(x, x[:1] * 2, (i, 0)),
            (x, np.int32(rows // 2)),
        ),
    }[kind]
    return {"rows": rows, "columns": columns, "kind": kind}, f, arguments


def gather():
    dtype, table, width = either(), size(1000, 500000), size(1, 4096, pick(1, 8))
    n = size(1000, 1e6)
    table, n = min(table, int(4e8 / width)), min(n, int(4e8 / width))
    index, kind = integers((n,), table), pick("random", "random", "sorted")
    index = np.sort(index) if kind == "sorted" else index
    sizes = {"table": table, "width": width, "n": n, "order": kind}
    return sizes, lambda t, i: t[i], (array(table, width, dtype=dtype), index)


def gather_elements():
    dtype, rows, columns, n = either(), size(16, 100000), size(64, 32768), size(1, 2048)
    columns, n = min(columns, int(2e8 / rows) + 1), min(n, int(1e8 / rows) + 1)
    arguments = array(rows, columns, dtype=dtype), integers((rows, n), columns)
    sizes = {"rows": rows, "columns": columns, "n": n}
    return sizes, lambda x, i: jnp.take_along_axis(x, i, 1), arguments


def scatter():
    dtype, table, width, n = either(), size(1000, 200000), size(1, 1024), size(1000, 1e6)
    table, n = min(table, int(2e8 / width)), min(n, int(2e8 / width))
    kind, order = pick("add", "add", "set", "max"), pick("random", "sorted", "distinct")
    index = integers((n,), table)
    if order == "sorted":
        index = np.sort(index)
    elif order == "distinct":
        n = min(n, table)
        index = np.random.default_rng(1).permutation(table)[:n].astype(np.int32)

    def f(t, i, u):
        at = t.at[i]
        options = {"indices_are_sorted": order == "sorted", "unique_indices": order == "distinct"}
        return getattr(at, kind)(u, **options)

    sizes = {"table": table, "width": width, "n": n, "kind": kind, "order": order}
    return sizes, f, (array(table, width, dtype=dtype), index, array(n, width, dtype=dtype))


def segment_sum():
    n, width, groups, dtype = size(1000, 1e6), size(1, 512), size(4, 100000), either()
    n = min(n, int(2e8 / width))
    arguments = array(n, width, dtype=dtype), integers((n,), groups)
    sizes = {"n": n, "width": width, "groups": groups}
    return sizes, lambda x, i: jax.ops.segment_sum(x, i, groups), arguments


def cudnn():
    b, heads, tokens, head = size(1, 16), pick(8, 16, 32), size(256, 8192, 128), pick(64, 128)
    causal, kind, group = pick(True, False), pick("forward", "forward", "backward"), pick(1, 4)
    b = max(1, min(b, int(6e4 / tokens)))
    way = "xla" if smoke else "cudnn"
    q, kv = array(b, tokens, heads, head), lambda: array(b, tokens, heads // group, head)

    def forward(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=way)

    def backward(q, k, v):
        return jax.grad(lambda *x: forward(*x).astype(jnp.float32).sum(), (0, 1, 2))(q, k, v)

    sizes = {"b": b, "heads": heads, "kv": heads // group, "tokens": tokens, "head": head}
    f = forward if kind == "forward" else backward
    return sizes | {"causal": causal, "kind": kind}, f, (q, kv(), kv())


def attention_by_hand():
    b, heads, tokens = size(1, 8), pick(4, 8, 16), size(128, 2048, 64)
    head, causal = pick(64, 128), pick(True, False)
    b = max(1, min(b, int(4e8 / (heads * tokens * tokens)) or 1))
    dtype = either()

    def f(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / head**0.5
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -1e30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(q.dtype), v)

    sizes = {"b": b, "heads": heads, "tokens": tokens, "head": head, "causal": causal}
    return sizes, f, tuple(array(b, tokens, heads, head, dtype=dtype) for _ in range(3))


def convolution():
    dtype, n, hw = either(), size(1, 128), pick(7, 14, 28, 56, 112)
    ci, co = pick(3, 32, 64, 128, 256, 512), pick(32, 64, 128, 256, 512)
    k, stride, layout = pick(1, 3, 3, 5, 7), pick(1, 2), pick("NHWC", "NCHW")
    n = max(1, min(n, int(1e8 / (hw * hw * max(ci, co)))))
    last = layout == "NHWC"
    x = array(n, hw, hw, ci, dtype=dtype) if last else array(n, ci, hw, hw, dtype=dtype)
    w = array(k, k, ci, co, dtype=dtype) if last else array(co, ci, k, k, dtype=dtype)

    names = layout, "HWIO" if last else "OIHW", layout

    def f(x, w):
        strides = (stride, stride)
        return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=names)

    parameters = {"n": n, "hw": hw, "ci": ci, "co": co, "k": k, "stride": stride, "layout": layout}
    if pick(True, True, True, False):
        return parameters, f, (x, w)

    def gradients(x, w):
        return jax.grad(lambda x, w: f(x, w).astype(jnp.float32).sum(), (0, 1))(x, w)

    return parameters | {"pass_": "backward"}, gradients, (x, w)


def convolution_1d():
    dtype, n, length = either(), size(1, 64), size(128, 65536)
    ci, co, k = pick(1, 16, 64, 256), pick(16, 64, 256), pick(3, 5, 9, 31)
    n = max(1, min(n, int(5e7 / (length * max(ci, co)))))

    def f(x, w):
        names = "NWC", "WIO", "NWC"
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=names)

    arguments = array(n, length, ci, dtype=dtype), array(k, ci, co, dtype=dtype)
    return {"n": n, "length": length, "ci": ci, "co": co, "k": k}, f, arguments


def depthwise():
    dtype, n, hw = either(), size(1, 64), pick(14, 28, 56, 112)
    c, k = pick(32, 96, 256, 512), pick(3, 5, 7)
    n = max(1, min(n, int(5e7 / (hw * hw * c))))
    stride, last = pick(1, 2), pick(True, False)
    x = array(n, hw, hw, c, dtype=dtype) if last else array(n, c, hw, hw, dtype=dtype)
    w = array(k, k, 1, c, dtype=dtype) if last else array(c, 1, k, k, dtype=dtype)
    names = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW")

    def f(x, w):
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=names, feature_group_count=c
        )

    return {"n": n, "hw": hw, "c": c, "k": k, "stride": stride, "layout": names[0]}, f, (x, w)


def pooling():
    dtype, n, hw, c, k = either(), size(1, 64), pick(14, 28, 56, 112), pick(32, 64, 256), pick(2, 3)
    n = max(1, min(n, int(5e7 / (hw * hw * c))))

    def f(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, k, k, 1), (1, 2, 2, 1), "SAME")

    return {"n": n, "hw": hw, "c": c, "k": k}, f, (array(n, hw, hw, c, dtype=dtype),)


def sort():
    rows, columns, kind = size(1, 4096), size(256, 4e6), pick("sort", "sort", "argsort", "integers")
    columns = max(min(columns, int(3e7 / rows)), 256)
    if kind == "integers":
        x = integers((rows, columns), 2**30)
    else:
        x = array(rows, columns, dtype=pick(BF16, FP32))
    ordered = jnp.argsort if kind == "argsort" else jnp.sort
    return {"rows": rows, "columns": columns, "kind": kind}, lambda x: ordered(x, -1), (x,)


def top_k():
    rows, columns, k = size(1, 16384), size(64, 256000), pick(1, 2, 8, 50)
    columns = max(min(columns, int(1e8 / rows)), 64)
    x = array(rows, columns, dtype=either())
    return {"rows": rows, "columns": columns, "k": k}, lambda x: lax.top_k(x, k), (x,)


def cumulative():
    dtype, (rows, columns) = either(), rows_and_columns(1e8)
    kind, axis = pick("sum", "sum", "max", "prod"), pick(0, 1)
    x, f = array(rows, columns, dtype=dtype), getattr(lax, f"cum{kind}")
    sizes = {"rows": rows, "columns": columns, "kind": kind, "axis": axis}
    return sizes, lambda x: f(x, axis), (x,)


def associative_scan():
    rows, columns = size(64, 16384), size(16, 2048)
    columns = max(min(columns, int(3e7 / rows)), 8)

    def f(a, b):
        return lax.associative_scan(lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (a, b))[1]

    arguments = array(rows, columns, dtype=FP32), array(rows, columns, dtype=FP32)
    return {"rows": rows, "columns": columns}, f, arguments


def random_bits():
    n, kind, dtype = size(1e4, 2e8), pick("uniform", "normal", "bernoulli", "dropout"), either()
    key = np.array([1, 2], np.uint32)

    def f(key):
        key = jax.random.wrap_key_data(key)
        if kind == "bernoulli":
            return jax.random.bernoulli(key, 0.5, (n,))
        return getattr(jax.random, kind)(key, (n,), dtype)

    def dropout(key, x):
        keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
        return jnp.where(keep, x / 0.9, 0)

    if kind == "dropout":
        return {"n": n, "kind": kind}, dropout, (key, array(n, dtype=dtype))
    return {"n": n, "kind": kind, "type": np.dtype(dtype).name}, f, (key,)


def factorisation():
    kind = pick("cholesky", "cholesky", "lu", "qr", "solve", "triangular", "eigh", "inverse")
    batch = () if pick(True, False) else (size(4, 256),)
    most = {"eigh": 512, "qr": 1024, "inverse": 1024}.get(kind, 4096)
    n = size(16, most if not batch else min(most, 128), pick(1, 16))
    a = positive(n, batch)
    b = array(*batch, n, pick(1, 16, 128), dtype=FP32)
    left = {"left_side": True, "lower": True}
    f, arguments = {
        "cholesky": (lambda a: jnp.linalg.cholesky(a), (a,)),
        "lu": (lambda a: jax.scipy.linalg.lu_factor(a), (a,)),
        "qr": (lambda a: jnp.linalg.qr(a), (a,)),
        "solve": (lambda a, b: jnp.linalg.solve(a, b), (a, b)),
        "triangular": (functools.partial(lax.linalg.triangular_solve, **left), (a, b)),
        "eigh": (lambda a: jnp.linalg.eigh(a), (a,)),
        "inverse": (lambda a: jnp.linalg.inv(a), (a,)),
    }[kind]
    return {"kind": kind, "n": n, "batch": list(batch), "columns": b.shape[-1]}, f, arguments


def fft():
    rows, n, kind = size(1, 16384), size(64, 1 << 20), pick("fft", "rfft", "fft2")
    n = 2 ** round(math.log2(n)) if pick(True, False) else n
    rows = max(1, min(rows, int(3e7 / n)))
    x = array(rows, n, dtype=FP32)
    if kind == "fft2":
        n = min(n, 4096)
        x = array(max(1, min(rows, int(2e7 / (n * 256)))), 256, n, dtype=FP32)
    return {"rows": rows, "n": n, "kind": kind}, lambda x: getattr(jnp.fft, kind)(x), (x,)


def lookups():
    kind = pick("histogram", "searchsorted", "one-hot", "argmax-one-hot")
    n, bins = size(1000, 1e7), size(16, 4096)
    if "one-hot" in kind:
        n = min(n, int(1e8 / bins))
    sizes = {"kind": kind, "n": n, "bins": bins}
    if kind == "histogram":
        return sizes, lambda i: jnp.bincount(i, length=bins), (integers((n,), bins),)
    if kind == "searchsorted":
        edges = np.sort(array(bins, dtype=FP32))
        return sizes, lambda e, x: jnp.searchsorted(e, x), (edges, array(n, dtype=FP32))
    hot = functools.partial(jax.nn.one_hot, num_classes=bins, dtype=jnp.bfloat16)
    return sizes, hot, (integers((n,), bins),)


# --- Programs of several kernels ------------------------------------------------------------------


def weights(d, f):
    matrices = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, f), "gate": (d, f), "down": (f, d)}
    return {name: array(*shape) for name, shape in {**matrices, "a": (d,), "b": (d,)}.items()}


def rms(x, g):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def transformer(x, w, head, way):
    b, t, d = x.shape
    q, k, v = jnp.split((rms(x, w["a"]) @ w["qkv"]).reshape(b, t, 3 * d // head, head), 3, axis=2)
    attended = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=way)
    x = x + attended.reshape(b, t, d) @ w["out"]
    h = rms(x, w["b"])
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def layer():
    d, b, t = pick(512, 768, 1024, 2048, 4096), size(1, 16), size(128, 4096, 128)
    d = 128 if smoke else d
    b = max(1, min(b, int(3e4 / t)))
    way = "xla" if smoke else pick("cudnn", "xla")
    if way == "xla":
        t, b = min(t, 1024), min(b, 4)
    x, w = array(b, t, d), weights(d, 4 * d)

    def forward(x, w):
        return transformer(x, w, 64, way)

    def backward(x, w):
        return jax.grad(lambda x, w: forward(x, w).astype(jnp.float32).sum(), (0, 1))(x, w)

    kind = pick("forward", "backward")
    f = forward if kind == "forward" else backward
    return {"d": d, "b": b, "t": t, "way": way, "kind": kind}, f, (x, w)


def mlp_training():
    d, f, n, dtype = size(256, 4096, 64), size(512, 8192, 64), size(64, 16384, 64), either()
    shapes = {"up": (d, f), "down": (f, d), "bias": (f,)}
    w = {name: array(*shape, dtype=dtype) for name, shape in shapes.items()}

    def loss(w, x, y):
        h = jax.nn.gelu(x @ w["up"] + w["bias"])
        return jnp.square((h @ w["down"] - y).astype(jnp.float32)).mean()

    def step(w, m, x, y):
        g = jax.grad(loss)(w, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + g.astype(jnp.float32), m, g)
        return jax.tree.map(lambda w, m: (w - 1e-3 * m).astype(w.dtype), w, m), m

    m = jax.tree.map(lambda a: array(*a.shape, dtype=FP32), w)
    arguments = w, m, array(n, d, dtype=dtype), array(n, d, dtype=dtype)
    return {"d": d, "f": f, "n": n}, step, arguments


def decode():
    d, b, t, heads = pick(1024, 2048, 4096), size(1, 64), size(256, 8192, 64), 8
    d = 128 if smoke else d
    head = d // heads
    w = weights(d, 4 * d)
    cache = array(b, t, heads, head), array(b, t, heads, head)

    def step(x, w, k, v):
        q = (rms(x, w["a"]) @ w["qkv"])[:, :d].reshape(b, heads, head)
        s = jnp.einsum("bhd,bthd->bht", q, k, preferred_element_type=jnp.float32) / head**0.5
        o = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(s, -1).astype(x.dtype), v)
        x = x + o.reshape(b, d) @ w["out"]
        h = rms(x, w["b"])
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]

    return {"d": d, "b": b, "t": t}, step, (array(b, d), w, *cache)


def recurrent():
    d, b, t = size(64, 2048, 64), size(1, 256), size(4, 48)
    w, u = array(d, 4 * d), array(d, 4 * d)

    def f(xs, w, u):
        def turn(carry, x):
            h, c = carry
            i, g, o, k = jnp.split(x @ w + h @ u, 4, -1)
            c = jax.nn.sigmoid(i) * jnp.tanh(g) + jax.nn.sigmoid(k) * c
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zero = jnp.zeros((b, d), xs.dtype)
        return lax.scan(turn, (zero, zero), xs)[0][0]

    return {"d": d, "b": b, "t": t}, f, (array(t, b, d), w, u)


def cross_entropy():
    n, v, d = size(64, 8192, 8), size(1000, 130000, pick(1, 64)), pick(256, 1024)
    n = max(8, min(n, int(2e8 / v)))

    def loss(x, w, y):
        logits = (x @ w).astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    arguments = array(n, d), array(d, v), integers((n,), v)
    return {"n": n, "v": v, "d": d}, jax.value_and_grad(loss, (0, 1)), arguments


def adam():
    n, dtype = size(1e4, 1e8, pick(1, 64)), either()

    def f(w, g, m, v):
        g = g.astype(jnp.float32)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return (w - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(w.dtype), m, v

    w, g, m = array(n, dtype=dtype), array(n, dtype=dtype), array(n, dtype=FP32)
    return {"n": n}, f, (w, g, m, np.abs(array(n, dtype=FP32)))


def producer():
    """Return a kernel and one that reads its result: a reduction and a matmul can't fuse."""
    rows, columns = size(64, 8192, 8), size(64, 8192, 8)
    kind = pick("norm-matmul", "matmul-norm", "reverse-sum", "two-sums")
    w = array(columns, columns)

    def f(x, w):
        if kind == "norm-matmul":
            return rms(x, 1) @ w
        if kind == "matmul-norm":
            return rms(x @ w, 1)
        if kind == "reverse-sum":
            return jnp.cumsum(x, 0)[::-1].T.astype(jnp.float32).sum(0)
        return (x / x.astype(jnp.float32).sum(0)).sum(1)

    return {"rows": rows, "columns": columns, "kind": kind}, f, (array(rows, columns), w)


FAMILIES = {
    matmul_aligned: 40, matmul_rows: 20, matmul_unaligned: 30, matmul_odd: 20,
    matmul_transposed: 15, matmul_epilogue: 10, matmul_int8: 6, matmul_fp8: 6, batched: 20,
    elementwise: 40, tiny: 15,
    many_operands: 15, cast: 12, broadcast: 10, normalise: 35, reduce: 35, transpose: 25, move: 30,
    gather: 20, gather_elements: 10, scatter: 45, segment_sum: 12, cudnn: 35, attention_by_hand: 10,
    convolution: 60, convolution_1d: 12, depthwise: 25, pooling: 8, sort: 25, top_k: 30,
    cumulative: 18, associative_scan: 8, random_bits: 18, factorisation: 45, fft: 15, lookups: 12,
    layer: 25, mlp_training: 10, decode: 8, recurrent: 8, cross_entropy: 8, adam: 6, producer: 25,
}  # fmt: skip
"""Each family, with its number of cases in a whole record of about 1,000."""

PROGRAMS = {layer, mlp_training, decode, recurrent, cross_entropy, attention_by_hand}


def order():
    """Yield families for ever, so that whenever time is up each has had its share."""
    taken = dict.fromkeys(FAMILIES, 0.0)
    while True:
        family = min(FAMILIES, key=lambda f: (taken[f] + draw.random()) / FAMILIES[f])
        taken[family] += 1
        yield family


# --- One batch: compile, trace, read --------------------------------------------------------------


def made(family, number):
    """Return a case: its parameters, its program, its arguments on the device."""
    parameters, f, arguments = family()

    def case(*arguments):
        return f(*arguments)

    case.__name__ = f"case{number}"
    arguments = jax.device_put(arguments)
    began = time.perf_counter()
    lowered = jax.jit(case).lower(*arguments)
    compiled = lowered.compile(compiler_options=None if smoke else UNGRAPHED)
    took = time.perf_counter() - began
    leaves = jax.tree.leaves(arguments)
    results = jax.block_until_ready(compiled(*arguments))
    began = time.perf_counter()
    jax.block_until_ready(compiled(*arguments))
    once = time.perf_counter() - began
    case = {
        "number": number,
        "family": family.__name__,
        "parameters": parameters | {"dtypes": sorted({str(x.dtype) for x in leaves})},
        "argument_bytes": sum(x.nbytes for x in leaves),
        "result_bytes": sum(x.nbytes for x in jax.tree.leaves(results)),
        "compile_s": round(took, 2),
        "cold_calls": max(3, min(COLD, int(0.06 / once))),
        "warm_calls": max(3, min(WARM, int(0.06 / once))),
        "hlo": compiled.as_text(),
    }
    del results
    if family in PROGRAMS:
        case["clock_s"] = clock(lowered, arguments, once)
    return case, compiled, arguments


def clock(lowered, arguments, once):
    """Return the seconds of a call as JAX runs it, queued."""
    compiled = lowered.compile()
    calls = max(2, min(30, int(0.02 / once)))
    times = []
    for _ in range(6):
        began = time.perf_counter()
        for _ in range(calls):
            result = compiled(*arguments)
        jax.block_until_ready(result)
        times.append((time.perf_counter() - began) / calls)
    return statistics.median(times[1:])


def events_of(folder):
    """Return (start, module, op, label, details, seconds) of every kernel, in order of start."""
    found = []
    for path in Path(folder).rglob("*.xplane.pb"):
        for plane in ProfileData.from_file(str(path)).planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    stats = {str(k): v for k, v in event.stats}
                    details = str(stats.get("kernel_details") or stats.get("memcpy_details") or "")
                    of = str(stats.get("hlo_module", "")), str(stats.get("hlo_op", ""))
                    took = event.duration_ns * 1e-9
                    found.append((event.start_ns, *of, event.name, details, took))
    return sorted(found)


def kernels_of(case, events):
    """Return [op, label, details, launches a call, cold seconds a call, warm seconds a call]."""
    module = f"jit_case{case['number']}"
    own = [n for n, event in enumerate(events) if event[1] == module]
    if not own:
        return []
    calls, cold = [], case["cold_calls"]
    # Each cold call follows a flush; the warm ones follow another
    window = []
    for event in events[own[0] : own[-1] + 1]:
        if event[1] in ("jit_flush", "jit_mark"):
            if window:
                calls.append(window)
            window = []
        elif event[1] in (module, ""):
            window.append(event)
    calls.append(window)
    cold_calls, warm = calls[:cold], calls[cold] if len(calls) > cold else []
    by_op: dict[tuple, list] = defaultdict(lambda: [[], []])
    for call in cold_calls:
        sums = defaultdict(lambda: [0, 0.0])
        for _, _, op, label, details, seconds in call:
            sums[op, label, details][0] += 1
            sums[op, label, details][1] += seconds
        for key, (launches, seconds) in sums.items():
            by_op[key][0].append((launches, seconds))
    for _, _, op, label, details, seconds in warm:
        by_op[op, label, details][1].append(seconds)
    rows = []
    for (op, label, details), (cold_sums, warm_times) in by_op.items():
        launches = statistics.median([count for count, _ in cold_sums] or [0])
        cold_s = statistics.median([seconds for _, seconds in cold_sums] or [math.nan])
        warm_s = sum(warm_times) / case["warm_calls"]
        if warm_times and len(warm_times) % case["warm_calls"] == 0:
            each = np.reshape(warm_times, (case["warm_calls"], -1)).sum(1)
            warm_s = float(np.median(each))
        rows.append([op, label, details, launches, float(f"{cold_s:.5g}"), float(f"{warm_s:.5g}")])
    return rows


def flush(x):
    return x.sum()


def mark(x):
    return x + 1


def main():
    global smoke
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to try it on a CPU")
    options = parser.parse_args()
    began = time.perf_counter()
    smoke = options.smoke
    draw.seed(options.seed)
    device = jax.devices()[0]
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = "" if smoke else subprocess.check_output(asked, text=True).strip()
    head = {
        "what": "kernels of every kind, as XLA makes them, timed by the profiler",
        "device": device.device_kind,
        "driver": driver,
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": f"python -m measurements.zoo --seed {options.seed} --seconds "
        f"{options.seconds:g} --out FILE.jsonl.gz",
    }
    print(head, flush=True)
    other = jax.device_put(np.zeros(2**12 if smoke else 2**26, np.float32))
    flushed, marked = jax.jit(flush), jax.jit(mark)
    jax.block_until_ready((flushed(other), marked(other[:8])))
    families, number, failed = order(), 0, 0
    with gzip.open(options.out, "wt") as file:
        file.write(json.dumps(head) + "\n")
        while time.perf_counter() - began < options.seconds:
            batch, held = [], 0
            while (
                len(batch) < BATCH and held < 6e9 and time.perf_counter() - began < options.seconds
            ):
                number += 1
                family = next(families)
                try:
                    batch.append(made(family, number))
                    held += batch[-1][0]["argument_bytes"]
                except Exception as error:
                    failed += 1
                    print("FAILED", family.__name__, repr(error)[:180], flush=True)
            settings = jax.profiler.ProfileOptions()
            settings.python_tracer_level = 0
            settings.host_tracer_level = 1
            with tempfile.TemporaryDirectory() as folder:
                jax.profiler.start_trace(folder, profiler_options=settings)
                for case, compiled, arguments in batch:
                    for _ in range(case["cold_calls"]):
                        flushed(other)
                        compiled(*arguments)
                    jax.block_until_ready(marked(other[:8]))
                    for _ in range(case["warm_calls"]):
                        result = compiled(*arguments)
                    jax.block_until_ready(result)
                    del result
                jax.profiler.stop_trace()
                events = events_of(folder)
            for case, _, _ in batch:
                case["kernels"] = kernels_of(case, events)
                file.write(json.dumps(case) + "\n")
            file.flush()
            del batch
    print(f"{number} cases, {failed} failed, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
