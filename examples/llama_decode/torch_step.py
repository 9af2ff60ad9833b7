"""The same decode step in PyTorch, done justice: compiled layers, CUDA graphs, the best attention.

    python -m examples.llama_decode.torch_step --batch 1 16 64 --out torch.json

For each batch, all of PyTorch's ways to attention are timed on the layers' own caches, then the
whole step with the fastest: compiled as it comes, with max-autotune, and with programmatic
dependent launch as well. One layer is compiled and called for all of them, and the step is one CUDA
graph. `--whole BATCH` also compiles the whole model at once, with PyTorch's own graphs.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as nnf
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from .model import Llama

BACKENDS = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
WAYS = (
    *(f"{how} {name}" for how in ("gqa", "grouped") for name in BACKENDS),
    "flex",
    "matmul",
)
"""One query a head with `enable_gqa`, or a group's four heads as four queries; and two others."""


def attend(way: str, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention of q [B, H, D] over whole caches [B, G, T, D]: the context fills them."""
    batch, heads, width = q.shape
    groups = keys.shape[1]
    how, _, backend = way.partition(" ")
    if how == "matmul":
        scores = q.view(batch, groups, -1, width) @ keys.mT * width**-0.5
        return (torch.softmax(scores.float(), -1).to(q.dtype) @ values).view(batch, heads, width)
    if how == "flex":
        return flex_attention(q[:, :, None], keys, values, enable_gqa=True)[:, :, 0]
    with sdpa_kernel(BACKENDS[backend]):
        if how == "gqa":
            many = q[:, :, None]
            return nnf.scaled_dot_product_attention(many, keys, values, enable_gqa=True)[:, :, 0]
        few = q.view(batch, groups, -1, width)
        return nnf.scaled_dot_product_attention(few, keys, values).view(batch, heads, width)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Return x [B, H, D] after the rotary embedding; turn: cosines and sines [2, D / 2]."""
    low, high = x.float().chunk(2, -1)
    return torch.cat([low * turn[0] - high * turn[1], high * turn[0] + low * turn[1]], -1).to(
        x.dtype
    )


def layer(
    way: str,
    shape: Llama,
    x: Tensor,
    w: list[Tensor],
    cache: tuple[Tensor, Tensor],
    turn: Tensor,
    at: Tensor,
) -> Tensor:
    """Return one layer's x [B, D]; its keys and values [B, G, T, D] get the new token in place.

    w: qkv, o, gate_up, down, then two gains.
    """
    qkv, o, gate_up, down, norm1, norm2 = w
    batch, wide, narrow = len(x), shape.heads * shape.head, shape.groups * shape.head
    y = nnf.rms_norm(x, (shape.width,), norm1, shape.epsilon)
    q, k, v = nnf.linear(y, qkv).split([wide, narrow, narrow], -1)
    q, k, v = (each.view(batch, -1, shape.head) for each in (q, k, v))
    cache[0].index_copy_(2, at, rotate(k, turn)[:, :, None])
    cache[1].index_copy_(2, at, v[:, :, None])
    out = attend(way, rotate(q, turn), cache[0], cache[1]).reshape(batch, -1)
    x = x + nnf.linear(out, o)
    y = nnf.rms_norm(x, (shape.width,), norm2, shape.epsilon)
    gate, up = nnf.linear(y, gate_up).chunk(2, -1)
    return x + nnf.linear(nnf.silu(gate) * up, down)


def last(shape: Llama, x: Tensor, norm: Tensor, head: Tensor) -> Tensor:
    """Return the logits."""
    return nnf.linear(nnf.rms_norm(x, (shape.width,), norm, shape.epsilon), head)


class Decoder(torch.nn.Module):  # type: ignore[misc]
    """The model with random weights in bfloat16 and a cache: q, k, v side by side, gate and up."""

    def __init__(self, shape: Llama, batch: int, tokens: int, device: str = "cuda") -> None:
        super().__init__()
        s = self.shape = shape
        generator = torch.Generator(device).manual_seed(0)

        def draw(*size: int) -> Tensor:
            how: Any = {"device": device, "generator": generator, "dtype": torch.bfloat16}
            x = torch.randn(size, **how)
            return 1 + 0.1 * x if len(size) == 1 else x * size[-1] ** -0.5

        wide, narrow = s.heads * s.head, s.groups * s.head
        for i in range(s.layers):
            q, k, v = (draw(n, s.width) for n in (wide, narrow, narrow))
            o, gate, up = draw(s.width, wide), draw(s.hidden, s.width), draw(s.hidden, s.width)
            products = [torch.cat([q, k, v]), o, torch.cat([gate, up])]
            rest = draw(s.width, s.hidden), draw(s.width), draw(s.width)
            for j, w in enumerate([*products, *rest]):
                self.register_buffer(f"w{i}_{j}", w)
            for name in ("keys", "values"):
                cache = draw(batch, s.groups, tokens, s.head) * s.head**0.5
                self.register_buffer(f"{name}{i}", cache)
        for name, w in {
            "embedding": draw(s.vocabulary, s.width) * s.width**0.5,
            "norm": draw(s.width),
            "head": draw(s.vocabulary, s.width),
        }.items():
            self.register_buffer(name, w)
        angle = (tokens - 1) * s.theta ** (-torch.arange(0, s.head, 2, device=device) / s.head)
        self.register_buffer("turn", torch.stack([angle.cos(), angle.sin()]))
        self.register_buffer("at", torch.tensor([tokens - 1], device=device))
        self.each: Callable[..., Tensor] = layer
        self.end: Callable[..., Tensor] = last

    def caches(self) -> list[tuple[Tensor, Tensor]]:
        """Return each layer's keys and values."""
        b = dict(self.named_buffers())
        return [(b[f"keys{i}"], b[f"values{i}"]) for i in range(self.shape.layers)]

    def forward(self, way: str, tokens: Tensor) -> Tensor:
        """Return the logits [B, V] of one step."""
        b = dict(self.named_buffers())
        many = sum(name.startswith("w0_") for name in b)
        x = b["embedding"][tokens]
        for i, cache in enumerate(self.caches()):
            w = [b[f"w{i}_{j}"] for j in range(many)]
            x = self.each(way, self.shape, x, w, cache, b["turn"], b["at"])
        return self.end(self.shape, x, b["norm"], b["head"])


def graph(call: Callable[[], Any]) -> Callable[[], None]:
    """Return a call's replay as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        call()
    replay: Callable[[], None] = captured.replay
    return replay


def clock(call: Callable[[], Any], warm: float = 0.3, queue: float = 0.6) -> dict[str, Any]:
    """Return seconds a call: at once, and of five runs after `warm` seconds of it.

    A run queues calls for about `queue` seconds, at least 3.
    """

    def run(count: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / count

    run(1)
    count = max(3, int(queue / run(1)))
    first, began = run(count), time.perf_counter()
    while time.perf_counter() - began < warm:
        run(count)
    return {"first": first, "calls a run": count, "seconds": [run(count) for _ in range(5)]}


@dataclass(frozen=True)
class Setting:
    """How the step is compiled."""

    mode: str
    whole: bool = False  # PyTorch's own graphs over the whole model, not ours over its layers
    early: bool = False  # programmatic dependent launch: a kernel starts while another ends

    @property
    def name(self) -> str:
        """In words."""
        early = ", dependent launch" * self.early
        return f"{self.mode}, {'whole model' if self.whole else 'layer by layer'}{early}"


def tried(ways: Mapping[str, Callable[[], Any]]) -> dict[str, float | str]:
    """Return seconds of each way to attention, or why it failed."""
    results: dict[str, float | str] = {}
    for way, run in ways.items():
        try:
            results[way] = statistics.median(clock(graph(run), warm=0.02, queue=0.01)["seconds"])
        except Exception as error:
            results[way] = f"{type(error).__name__}: {error}"[:200]
    return results


def attentions(decoder: Decoder, batch: int) -> dict[str, float | str]:
    """Return seconds a layer of each way to attention, or why it failed."""
    shape, caches = decoder.shape, decoder.caches()
    q = torch.randn(batch, shape.heads, shape.head, device="cuda", dtype=torch.bfloat16)

    def through(way: str, call: Any) -> None:
        for cache in caches:
            call(way, q, *cache)

    compiled = dict.fromkeys(("flex", "matmul"), torch.compile(attend, dynamic=False))
    runs = {way: functools.partial(through, way, compiled.get(way, attend)) for way in WAYS}
    took = tried(runs)
    return {way: t if isinstance(t, str) else t / len(caches) for way, t in took.items()}


def timed(decoder: Decoder, setting: Setting, way: str, batch: int) -> tuple[Tensor, Any]:
    """Return the logits; the step's seconds, and how often PyTorch skipped its graphs."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    tokens = torch.arange(batch, device="cuda")
    how: Any = {"fullgraph": True, "dynamic": False}
    if setting.whole:
        decoder.each, decoder.end = layer, last
        for buffer in decoder.buffers():
            torch._dynamo.mark_static_address(buffer)
        compiled = torch.compile(decoder, mode=setting.mode, **how)
        logits = compiled(way, tokens).float()
        seconds = clock(lambda: compiled(way, tokens))
    else:
        decoder.each = torch.compile(layer, mode=setting.mode, **how)
        decoder.end = torch.compile(last, mode=setting.mode, **how)
        logits = decoder(way, tokens).float()
        seconds = clock(graph(lambda: decoder(way, tokens)))
    return logits, {**seconds, "skipped graphs": counters["inductor"]["cudagraph_skips"]}


def measured(
    shape: Llama, batch: int, tokens: int, settings: list[Setting], keep: Callable[[Any], None]
) -> None:
    """Time all ways to attention, then the step with the fastest in each setting.

    `keep` gets what is known so far, after each setting: a row has the logits' error, compared with
    the first setting's.
    """
    rows: list[dict[str, Any]] = []
    decoder = Decoder(shape, batch, tokens)
    ways = attentions(decoder, batch)
    worked = {way: took for way, took in ways.items() if not isinstance(took, str)}
    best = min(worked, key=lambda way: worked[way])
    wanted: Tensor | None = None
    for setting in settings:
        try:
            with torch._inductor.config.patch({"triton.enable_pdl": True} if setting.early else {}):
                logits, row = timed(decoder, setting, best, batch)
            wanted = logits if wanted is None else wanted
            row["error"] = float((logits - wanted).norm() / wanted.norm())
            shown = f"{1e3 * statistics.median(row['seconds']):.3f} ms, error {row['error']:.1e}"
        except Exception as error:
            row = {"failed": f"{type(error).__name__}: {error}"[:300]}
            shown = row["failed"]
        print(f"PyTorch, batch {batch}, {best}, {setting.name}: {shown}", flush=True)
        rows.append({"setting": setting.name, "attention": best, **row})
        keep({"attention": ways, "steps": rows})
    del decoder
    torch.cuda.empty_cache()


def main() -> None:
    """Time the step at each batch; write the numbers down."""
    parser = argparse.ArgumentParser(description="One decode step of Llama-3-8B in PyTorch.")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--whole", type=int, nargs="+", default=[], metavar="BATCH")
    parser.add_argument("--quick", action="store_true", help="mode default alone")
    parser.add_argument("--out", metavar="FILE.json")
    options = parser.parse_args()
    tuned = "max-autotune-no-cudagraphs"
    settings = [Setting("default"), Setting(tuned), Setting(tuned, early=True)]
    settings = settings[:1] if options.quick else settings
    about: dict[str, Any] = {"torch": torch.__version__, "batch": {}}
    runs = [(batch, settings) for batch in options.batch]
    runs += [(batch, [Setting("max-autotune", whole=True)]) for batch in options.whole]
    for batch, some in runs:
        before = about["batch"].get(str(batch), {"steps": []})["steps"]

        def keep(found: Any, batch: int = batch, before: Any = before) -> None:
            about["batch"][str(batch)] = {**found, "steps": [*before, *found["steps"]]}
            if options.out:
                Path(options.out).write_text(json.dumps(about, indent=1))

        with torch.no_grad():
            measured(Llama(layers=options.layers), batch, options.tokens, some, keep)


if __name__ == "__main__":
    main()
