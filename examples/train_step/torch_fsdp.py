# mypy: ignore-errors
"""The same training step in PyTorch: FSDP2, each layer under `torch.compile`, several settings.

torchrun --nproc-per-node 4 examples/train_step/torch_fsdp.py --out FILE.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BEGAN = time.perf_counter()


@dataclass(frozen=True)
class Shape:
    layers: int = 8
    width: int = 4096
    hidden: int = 14336
    heads: int = 32
    groups: int = 8
    head: int = 128
    vocabulary: int = 128256
    theta: float = 5e5
    epsilon: float = 1e-5


@dataclass(frozen=True)
class Setting:
    """How the step is written and compiled."""

    name: str
    again: bool = False  # the backward pass computes each layer again
    chunks: int = 0  # parts of the tokens in the loss, whose gradient is worked out at once
    reshard: bool = True  # weights are given up after the forward pass
    attention: str = "cudnn"
    mode: str = "default"
    ahead: int = 0  # layers whose weights are gathered ahead, by hand


SETTINGS = (
    Setting("all computed twice", again=True),
    Setting("all kept"),
    Setting("chunked loss", chunks=4),
    Setting("gathered weights kept", chunks=4, reshard=False),
    Setting("FlashAttention", chunks=4, reshard=False, attention="flash"),
    Setting("two layers ahead", chunks=4, ahead=2),
    Setting("whole loss, gathered weights kept", reshard=False),
    Setting("autotuned", chunks=4, reshard=False, mode="max-autotune-no-cudagraphs"),
)


class Layer(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.shape = s
        wide, narrow = s.heads * s.head, s.groups * s.head

        def linear(i, o):
            return nn.Linear(i, o, bias=False)

        self.q, self.k, self.v = linear(s.width, wide), *(linear(s.width, narrow) for _ in "kv")
        self.o = linear(wide, s.width)
        self.gate, self.up = linear(s.width, s.hidden), linear(s.width, s.hidden)
        self.down = linear(s.hidden, s.width)
        self.norm1 = nn.RMSNorm(s.width, s.epsilon)
        self.norm2 = nn.RMSNorm(s.width, s.epsilon)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(b, t, -1, self.shape.head) for f in (self.q, self.k, self.v))

        def turned(z):
            low, high = z.float().chunk(2, -1)
            return torch.cat([low * cos - high * sin, high * cos + low * sin], -1).to(z.dtype)

        q, k, v = (z.transpose(1, 2) for z in (turned(q), turned(k), v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(out.transpose(1, 2).reshape(b, t, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class ChunkedLoss(torch.autograd.Function):
    """The sum of cross-entropies, a part of the tokens at a time, and their gradient at once."""

    @staticmethod
    def forward(ctx, x, head, targets, chunks):
        to_head = torch.zeros(head.shape, dtype=torch.float32, device=x.device)
        to_x, loss = [], 0.0
        for rows, wanted in zip(x.chunk(chunks), targets.chunk(chunks), strict=True):
            part, slope = entropy(rows @ head.T, wanted)
            loss = loss + part
            to_x.append(slope @ head)
            to_head += slope.T @ rows
        ctx.save_for_backward(torch.cat(to_x), to_head.to(head.dtype))
        return loss

    @staticmethod
    def backward(ctx, slope):
        to_x, to_head = ctx.saved_tensors
        return slope.to(to_x.dtype) * to_x, slope.to(to_head.dtype) * to_head, None, None


def plain_entropy(logits, wanted):
    wide = logits.float()
    total = torch.logsumexp(wide, -1, keepdim=True)
    right = wide.gather(1, wanted[:, None])
    hit = torch.arange(wide.shape[1], device=wide.device)[None] == wanted[:, None]
    return (total - right).sum(), ((wide - total).exp() - hit.float()).to(logits.dtype)


def plain_loss(logits, targets):
    return F.cross_entropy(logits.float(), targets, reduction="sum")


entropy = torch.compile(plain_entropy, dynamic=False)
whole = torch.compile(plain_loss, dynamic=False)


class Head(nn.Module):
    def __init__(self, s: Shape, chunks: int):
        super().__init__()
        self.norm = nn.RMSNorm(s.width, s.epsilon)
        self.head = nn.Parameter(torch.empty(s.vocabulary, s.width))
        self.chunks = chunks

    def forward(self, x, targets):
        flat = self.norm(x).flatten(0, 1)
        if self.chunks:
            return ChunkedLoss.apply(flat, self.head, targets.flatten(), self.chunks)
        return whole(flat @ self.head.T, targets.flatten())


class Model(nn.Module):
    def __init__(self, s: Shape, setting: Setting):
        super().__init__()
        self.embedding = nn.Embedding(s.vocabulary, s.width)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.last = Head(s, setting.chunks)

    def forward(self, ids, cos, sin):
        x = self.embedding(ids[:, :-1])
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.last(x, ids[:, 1:])


def built(s: Shape, setting: Setting, mesh, device):
    """Return the model on all devices, compiled layer by layer, with random weights."""
    with torch.device("meta"):
        model = Model(s, setting)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    how = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": setting.reshard}
    for i, layer in enumerate(model.layers):
        layer = checkpoint_wrapper(layer) if setting.again else layer
        mode = None if setting.mode == "default" else setting.mode
        layer.compile(fullgraph=True, dynamic=False, mode=mode)
        model.layers[i] = fully_shard(layer, **how)
    fully_shard(model.embedding, **how)
    fully_shard(model.last, **how)
    fully_shard(model, **how)
    for i, layer in enumerate(model.layers if setting.ahead else ()):
        layer.set_modules_to_forward_prefetch(list(model.layers[i + 1 : i + 1 + setting.ahead]))
        before = [model.layers[j] for j in range(i - 1, max(i - 1 - setting.ahead, -1), -1)]
        layer.set_modules_to_backward_prefetch(before)
    model.to_empty(device=device)
    torch.manual_seed(dist.get_rank())
    for name, p in model.named_parameters():
        with torch.no_grad():
            if p.dim() == 1:
                p.fill_(1.0)
            elif "embedding" in name:
                p.normal_(0, 1)
            else:
                p.normal_(0, p.shape[1] ** -0.5)
    return model


def timed(s: Shape, setting: Setting, sizes, mesh, device, runs, calls):
    model = built(s, setting, mesh, device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    size, length = sizes
    torch.manual_seed(100 + dist.get_rank())
    local = size // dist.get_world_size()
    ids = torch.randint(0, s.vocabulary, (local, length + 1), device=device)
    turn = torch.arange(0, s.head, 2, device=device) / s.head
    angle = torch.arange(length, device=device)[:, None, None] * s.theta**-turn
    cos, sin = angle.cos(), angle.sin()
    # FSDP divides summed gradients by the number of devices
    share = 1.0 / (local * length)
    kinds = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    order = [kinds[setting.attention], *(k for k in kinds.values())]

    def step():
        with sdpa_kernel(list(dict.fromkeys(order)), set_priority=True):
            loss = model(ids, cos, sin) * share
            loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()

    began = time.perf_counter()
    losses = [step() for _ in range(4)]
    for loss in losses:
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    losses = [float(loss) for loss in losses]
    first = time.perf_counter() - began

    def run():
        torch.cuda.synchronize()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
        took = torch.tensor((time.perf_counter() - began) / calls, device=device)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        return float(took)

    run()
    seconds = [run() for _ in range(runs)]
    memory = torch.cuda.max_memory_allocated()
    profile = {}
    with contextlib.suppress(Exception):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
            step()
            torch.cuda.synchronize()
        for event in prof.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                kind = profile.setdefault(event.name[:80], [0, 0.0])
                kind[0] += 1
                kind[1] += event.device_time
        profile = dict(sorted(profile.items(), key=lambda kv: -kv[1][1])[:25])
    row = {"losses": losses, "seconds": seconds, "compiling": first, "memory": memory}
    return {**row, "kernels, launches and µs": profile}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--limit", type=float, default=150)
    parser.add_argument("--only", action="append")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    s, sizes = Shape(), (16, 2048)
    if options.tiny:
        s, sizes = Shape(2, 512, 1024, 8, 4, 64, 1024), (8, 256)
    card = torch.cuda.get_device_name()
    record = {"device": card, "count": dist.get_world_size(), "torch": torch.__version__}
    record |= {"nccl": ".".join(map(str, torch.cuda.nccl.version())), "settings": []}
    for setting in SETTINGS:
        if options.only and setting.name not in options.only:
            continue
        spent = torch.tensor(time.perf_counter() - BEGAN, device=device)
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        if float(spent) > options.limit:
            break
        torch._dynamo.reset()
        try:
            row = timed(s, setting, sizes, mesh, device, 5, 3)
        except Exception as error:
            row = {"failed": f"{type(error).__name__}: {error}"[:500]}
        gc.collect()
        torch.cuda.empty_cache()
        if rank == 0:
            shown = f"{1e3 * statistics.median(row['seconds']):.2f} ms" if "seconds" in row else row
            print(f"[{float(spent):4.0f}] PyTorch, {setting.name}:", shown, flush=True)
            print("      losses", row.get("losses"), flush=True)
            record["settings"].append({**asdict(setting), **row})
            Path(options.out).write_text(json.dumps(record, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
