"""The same prefill in PyTorch, done justice: compiled layers, the best attention, a CUDA graph.

    python -m examples.llama_decode.torch_prefill --tokens 2048 8192 --out torch-prefill.json

For each length, PyTorch's ways to causal attention are timed on one layer's shapes, then the whole
model with the fastest: q, k and v in one matmul, gate and up in one, logits of the last token.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from .model import Llama
from .torch_step import BACKENDS, clock, graph, rotate, tried

WAYS = tuple(f"{how} {name}" for how in ("gqa", "repeated") for name in BACKENDS)
"""With `enable_gqa`, or with keys and values repeated for each head of a group."""


def attend(way: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention of q [1, H, T, D] over k and v [1, G, T, D]."""
    how, _, backend = way.partition(" ")
    with sdpa_kernel(BACKENDS[backend]):
        if how == "gqa":
            return nnf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        many = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(many, 1), v.repeat_interleave(many, 1)
        return nnf.scaled_dot_product_attention(q, k, v, is_causal=True)


def layer(
    way: str, shape: Llama, x: Tensor, w: list[Tensor], turn: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one layer's x [T, D], and its keys and values; w: qkv, o, gate_up, down, two gains."""
    qkv, o, gate_up, down, norm1, norm2 = w
    tokens, wide, narrow = len(x), shape.heads * shape.head, shape.groups * shape.head
    y = nnf.rms_norm(x, (shape.width,), norm1, shape.epsilon)
    parts = nnf.linear(y, qkv).split([wide, narrow, narrow], -1)
    q, k, v = (part.view(1, tokens, -1, shape.head).transpose(1, 2) for part in parts)
    q, k = rotate(q, turn), rotate(k, turn)
    out = attend(way, q, k, v).transpose(1, 2).reshape(tokens, -1)
    x = x + nnf.linear(out, o)
    gate, up = nnf.linear(nnf.rms_norm(x, (shape.width,), norm2, shape.epsilon), gate_up).chunk(
        2, -1
    )
    return x + nnf.linear(nnf.silu(gate) * up, down), k, v


class Reader:
    """The model's random weights in bfloat16, and its prefill with one way to attention."""

    def __init__(self, shape: Llama) -> None:
        s = self.shape = shape
        generator = torch.Generator("cuda").manual_seed(0)

        def draw(*size: int) -> Tensor:
            how: Any = {"device": "cuda", "generator": generator, "dtype": torch.bfloat16}
            x = torch.randn(size, **how)
            return 1 + 0.1 * x if len(size) == 1 else x * size[-1] ** -0.5

        wide, narrow = s.heads * s.head, s.groups * s.head
        of_layer = ((wide + 2 * narrow, s.width), (s.width, wide), (2 * s.hidden, s.width))
        self.layers = [
            [
                *(draw(*size) for size in of_layer),
                draw(s.width, s.hidden),
                *map(draw, [s.width] * 2),
            ]
            for _ in range(s.layers)
        ]
        self.embedding = draw(s.vocabulary, s.width) * s.width**0.5
        self.norm, self.head = draw(s.width), draw(s.vocabulary, s.width)

    def call(self, way: str, tokens: Tensor, one: Callable[..., Any]) -> tuple[Tensor, list[Any]]:
        """Return the last token's logits, and each layer's keys and values."""
        s = self.shape
        at = torch.arange(len(tokens), device="cuda")[:, None]
        angle = at * s.theta ** (-torch.arange(0, s.head, 2, device="cuda") / s.head)
        turn = torch.stack([angle.cos(), angle.sin()])
        x, cache = self.embedding[tokens], []
        for w in self.layers:
            x, *pair = one(way, s, x, w, turn)
            cache.append(pair)
        last = nnf.rms_norm(x[-1:], (s.width,), self.norm, s.epsilon)
        return nnf.linear(last, self.head), cache


def attentions(shape: Llama, tokens: int) -> dict[str, float | str]:
    """Return seconds of each way to attention, or why it failed."""

    def draw(heads: int) -> Tensor:
        return torch.randn(1, heads, tokens, shape.head, device="cuda", dtype=torch.bfloat16)

    qkv = draw(shape.heads), draw(shape.groups), draw(shape.groups)
    return tried({way: functools.partial(attend, way, *qkv) for way in WAYS})


def timed(reader: Reader, tokens: int, mode: str) -> dict[str, Any]:
    """Return the ways to attention, and the prefill's seconds with the fastest."""
    ways = attentions(reader.shape, tokens)
    worked = {way: took for way, took in ways.items() if not isinstance(took, str)}
    best = min(worked, key=lambda way: worked[way])
    torch._dynamo.reset()
    one = torch.compile(layer, mode=mode, fullgraph=True, dynamic=False)
    prompt = torch.arange(tokens, device="cuda")
    row = clock(graph(lambda: reader.call(best, prompt, one)))
    print(f"PyTorch, {tokens} tokens, {best}: {1e3 * statistics.median(row['seconds']):.2f} ms")
    return {"attention": ways, "steps": [{"setting": mode, "attention": best, **row}]}


def main() -> None:
    """Time the prefill at each length; write the numbers down."""
    parser = argparse.ArgumentParser(description="A prefill of Llama-3-8B in PyTorch.")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--mode", default="default")
    parser.add_argument("--out", metavar="FILE.json")
    options = parser.parse_args()
    about: dict[str, Any] = {"torch": torch.__version__, "tokens": {}}
    with torch.no_grad():
        reader = Reader(Llama(layers=options.layers))
        for tokens in options.tokens:
            try:
                about["tokens"][str(tokens)] = timed(reader, tokens, options.mode)
            except Exception as error:
                about["tokens"][str(tokens)] = {"failed": f"{type(error).__name__}: {error}"[:300]}
                print(about["tokens"][str(tokens)]["failed"])
            if options.out:
                Path(options.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
