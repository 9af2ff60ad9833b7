"""The operations of a step on one device, and their kernels by fusion strategy."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from roofline.serving.feeding import feed_forward
from roofline.serving.layer import Layer, stored
from roofline.serving.mixing import mix_tokens
from roofline.serving.setting import ServingSetting, Sizes, split
from roofline.serving.strategies import SPLIT, STRATEGIES
from roofline_helpers import work
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.models.layers import Block
from roofline_helpers.work import Work

HANDED_ON = ("x''", "next n1", "next n1, narrow")
"""The output of a layer, which the next one reads."""

_LAST = ("final RMSNorm", "LM head")
ELSEWHERE = {"embedding", "RMSNorm 1", "quantise 1", "next RMSNorm 1", "next quantise 1", *_LAST}
"""Operations between layers, which run where a strategy has them."""


class Job(NamedTuple):
    """A kernel without a chip: the operations fused into it, how often it runs, its work."""

    ops: tuple[str, ...]
    launches: int
    work: Work


def jobs(setting: ServingSetting) -> list[Job]:
    """Return the kernels of a step, each once: those of each kind of layer in order."""
    kinds = fused(setting.sizes)
    if setting.resident:
        kinds = tuple(_staying(kind, setting) for kind in kinds)
    listed: list[Job] = []
    for job in chain.from_iterable(kinds):
        same = (n for n, other in enumerate(listed) if job[::2] == other[::2])
        at = next(same, None)
        if at is None:
            listed.append(job)
        else:  # layers of another kind have it too
            listed[at] = job._replace(launches=job.launches + listed[at].launches)
    return listed


@lru_cache(maxsize=1024)
def fused(sizes: Sizes) -> tuple[tuple[Job, ...], ...]:
    """Return the kernels of each kind of layer, with those before the first and after the last.

    Many steps share them, with any chip, ceilings and memory.
    """
    blocks = sizes.model.blocks or sizes.model.alike
    strategy = (SPLIT if sizes.widths > 1 else STRATEGIES)[sizes.fusion]
    kinds = []
    for block, layers in sizes.model.kinds.items():
        ops = operations(sizes, block)
        is_last = block == blocks[-1]
        counts = {"layers": layers, "between": layers - is_last}
        chosen = []
        for kernel in strategy:
            present = tuple(op for op in kernel.ops if op in ops)
            ends = is_last if {*kernel.ops} & {*_LAST} else block == blocks[0]
            launches = counts.get(kernel.count, int(ends))
            if kernel.ops[0] in ops and launches:
                job = ops[present[0]]
                if len(present) > 1:
                    job = work.fuse(*(ops[op] for op in present), keep=kernel.keep)
                chosen.append(Job(present, launches, job))
        rest = {*ops} - {op for job in chosen for op in job.ops} - ELSEWHERE
        chosen += [Job((op,), layers, ops[op]) for op in rest]
        order = {op: number for number, op in enumerate(ops)}
        kinds.append(tuple(sorted(chosen, key=lambda job: order[job.ops[0]])))
    return tuple(kinds)


def _staying(chosen: tuple[Job, ...], setting: ServingSetting) -> tuple[Job, ...]:
    """Return the kernels with activations on the chip between them, if they fit.

    Weights and cache never stay: each layer has its own. A layer's output stays for the next one.
    """
    made = {tensor for job in chosen for tensor in job.work.writes}
    level, capacity = setting.chip.on_chip
    works = work.resident(
        *(job.work for job in chosen),
        capacity=capacity,
        level=level,
        onward=[tensor for tensor in HANDED_ON if tensor in made],
        travels=[t for job in chosen for t in (*job.work.reads, *job.work.writes) if stored(t)],
    )
    return tuple(job._replace(work=stays) for job, stays in zip(chosen, works, strict=True))


def stored_bytes(job: Work) -> float:
    """Return the bytes of such tensors that a kernel reads and writes."""
    sizes = {**job.reads, **job.writes}.items()
    return sum(float(size) for tensor, size in sizes if stored(tensor))


def operations(sizes: Sizes, block: Block) -> dict[str, Work]:
    """Return every operation of a kind of layer, and before and after it, as its own kernel.

    A tensor's first letter says whether it stays in memory: W and γ weights, K and V the cache, S
    states (`layer.WEIGHTS`, `STATES`).
    """
    layer, half, d = Layer(sizes, block), sizes.half, sizes.model.d_model
    taken = nbytes(sizes.tokens * d, half)
    looked_up = nbytes(sizes.tokens * d, sizes.vocabulary)
    gathered = {"ids": nbytes(sizes.tokens, "int32"), "W embedding, rows": looked_up}
    layer.ops["embedding"] = Work("embedding", gathered, {"x": taken}, dtype=half)
    feeds = [sizes.experts if block.experts else sizes.weights] if block.feeds else []
    first, second = ([sizes.projections], feeds) if block.mixer else (feeds, [])
    if block.parallel:
        first = [*first, *second]
    apart = bool(block.mixer and block.feeds) and not block.parallel
    layer.norm("RMSNorm 1", "x", "n1", "1")
    layer.quantise("quantise 1", "n1", sizes.tokens, d, *first)
    if block.mixer:
        mix_tokens(layer, block.mixer)
    if apart:
        layer.add("residual 1", "x", "a", to="x'")
        layer.norm("RMSNorm 2", "x'", "n2", "2")
        layer.quantise("quantise 2", "n2", sizes.tokens, d, *second)
    if block.feeds:
        feed_forward(layer, "n2" if apart else "n1")
    terms = ["x'"] if apart else ["x"]
    if block.mixer and not apart:  # otherwise the first residual has added it
        terms.append("a")
    if block.feeds:
        terms.append("f")
    layer.add("residual 2", *terms, to="x''")
    layer.norm("next RMSNorm 1", "x''", "next n1", "1")
    layer.quantise("next quantise 1", "next n1", sizes.tokens, d, *first)
    layer.norm("final RMSNorm", "x''", "n", "")
    names = ("n", "W head", "logits")  # of n, only the rows whose logits are needed
    columns = split(sizes.model.vocabulary, sizes.widths)
    layer.ops["LM head"] = work.matmul(
        sizes.ends, columns, d, half, b=sizes.vocabulary, names=names
    )
    return layer.ops
