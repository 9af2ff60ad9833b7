"""Kernels of a decode step for Hopper GPUs: rotary embedding, the cache, attention over it.

The cache is [B, G, T, 128]: the tokens of one head in one piece. Heads come in groups of four that
share keys and values. See `hopper` for what the kernels have in common.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as gpu

from .hopper import FAST, SWIZZLE, M, Stream, let_next_start, wait_for_previous
from .model import Array
from .plan import Ring

WIDTH, HALF = 128, 64
"""Numbers in a head, and the half of them that the rotary embedding pairs with the other."""
GROUP, EIGHT = 4, 8
"""Query heads of one group, and rows of a tile of them in shared memory."""
TILE, HALVES = 64, 2
"""Tokens of one step of attention, and the warpgroups that take every other step."""
SHARED_BY_TILES = 196_608
"""Bytes of shared memory for the tiles of one program."""
LOWEST, TINY = -1e30, 1e-30
SCALE = WIDTH**-0.5 / math.log(2)
"""What scores are multiplied by, as exponentials are to the base 2."""
ROWS, COLUMNS = gpu.Layout.WGMMA.reduce((1,)), gpu.Layout.WGMMA.reduce((0,))
FOUR_HEADS = gpu.Layout.TILED(
    gpu.Tiling(((GROUP, HALF), (2,))), warp_dims=(-3,), lane_dims=(-2,), vector_dim=-1
)
"""[4, 64] in registers: a warp a head."""


def attend(
    parts: Array,
    turn: tuple[Array, Array],
    position: Array,
    keys: Any,
    values: Any,
    *,
    ring: Ring,
    programs: int,
    splits: int = 1,
    chain: bool = True,
    interpret: Any = None,
) -> Any:
    """Add a token to the cache and return its attention over the cache.

    A program takes one or several pairs of sequence and group, or one split of one pair. Its two
    halves, a warpgroup each, stream every other tile of tokens, and add up at the end. The new
    token's key and value never come from the cache: it starts the softmax, as its first term.

    Parameters
    ----------
    parts : Array
        [S, B′ ≥ B, (4 G + 2 G) · 128] in float32 or bfloat16, whose sum over S is queries, keys
        and values.
    turn : (Array, Array)
        The rotary embedding's cosines and sines, [64].
    position : Array
        [1], the new token's place.
    keys, values : references
        [B, G, T, 128] in bfloat16, T a multiple of 128 · splits; changed in place. Where no token
        is yet, they hold finite numbers.
    ring : Ring
        Of tiles of keys, and another of values, for each half.
    programs : int
        At most so many, one on each multiprocessor.
    splits : int
        Parts of the tokens that programs of their own take; their results go to `merge`.

    Returns
    -------
    Array or (Array, Array)
        [B, 4 G, 128] in bfloat16; with splits [splits, B, 4 G, 128] in float32 and the base-2
        logarithms of the sums of exponentials, [splits, B, 4 G].

    Raises
    ------
    ValueError
        More splits than there are programs.
    """
    rows, groups, tokens = keys.shape[:3]
    items, per = rows * groups * splits, tokens // TILE // splits
    programs = max(n for n in range(1, min(programs, items) + 1) if items % n == 0)
    mine = items // programs
    if splits > 1 and mine > 1:
        raise ValueError(f"{splits} splits of {rows * groups} pairs need {items} programs")
    room = min(SHARED_BY_TILES // (TILE * WIDTH * 2) // (2 * HALVES), mine * per // HALVES)
    sizes = Sizes(rows, groups, splits, mine, per, *ring.within(room), chain)
    dtype: Any = jnp.float32 if splits > 1 else jnp.bfloat16
    shapes = [jax.ShapeDtypeStruct((rows, GROUP * groups, WIDTH), dtype)]
    if splits > 1:
        more = jax.ShapeDtypeStruct((rows, GROUP * groups), jnp.float32)
        shapes = [each.update(shape=(splits, *each.shape)) for each in (*shapes, more)]
    many, padded, _ = parts.shape
    out = gpu.kernel(
        lambda *refs: Program.of(sizes, *refs).run(),
        out_type=tuple(shapes),
        grid=(programs,),
        grid_names=("program",),
        num_threads=HALVES,
        thread_name="half",
        scratch_types=_shared(sizes, dtype, interpret is not None),
        compiler_params=replace(FAST, reduction_scratch_bytes=1024),
        interpret=interpret,
        kernel_name="attend",
    )(parts.reshape(many, padded, -1, 2, HALF), *turn, position, keys, values)
    return out if splits > 1 else out[0]


@dataclass(frozen=True)
class Sizes:
    """What is known of `attend` before it runs: pairs and tiles of a program, its rings."""

    rows: int
    groups: int
    splits: int
    mine: int
    per: int
    stages: int
    ahead: int
    chain: bool


def _shared(sizes: Sizes, dtype: Any, interpreted: bool) -> tuple[Any, ...]:
    """Return what `attend` has in shared memory, in the order of `Program.of`.

    Sums take the place of queries, once those have met all keys. The interpreter wants the
    probabilities in shared memory, where the GPU takes them from registers.
    """
    q = gpu.SMEM((M, WIDTH), jnp.bfloat16, transforms=SWIZZLE)
    tiles = gpu.SMEM((HALVES * sizes.stages, TILE, WIDTH), jnp.bfloat16, transforms=SWIZZLE)
    probabilities = gpu.SMEM((HALVES, M, TILE), jnp.bfloat16, transforms=SWIZZLE)
    ready = gpu.Barrier(num_barriers=HALVES * sizes.stages)
    return (
        gpu.RefUnion((q,), (gpu.SMEM((M, WIDTH), jnp.float32),), (gpu.SMEM((M, WIDTH), dtype),)),
        tiles,
        tiles,
        gpu.SMEM((4, M), jnp.float32),
        probabilities if interpreted else None,
        ready,
        ready,
        gpu.Barrier(num_arrivals=HALVES),
    )


@dataclass(frozen=True)
class Program:
    """One half of a program of `attend`: the pairs and tiles that are its own, its streams."""

    sizes: Sizes
    parts: Any
    turn: tuple[Any, Any]
    position: Any
    half: Any
    count: Any  # tiles of each pair
    cache: tuple[Any, Any]
    keys: Stream
    values: Stream
    out: Any
    logarithms: Any
    q: Any
    sums: Any
    result: Any
    rows: Any  # of 64 numbers: scores of the new token, or top; total; two of its value
    probabilities: Any
    both: Any

    @classmethod
    def of(
        cls,
        sizes: Sizes,
        parts_ref: Any,
        cos_ref: Any,
        sin_ref: Any,
        at_ref: Any,
        k_ref: Any,
        v_ref: Any,
        *rest: Any,
    ) -> Program:
        """Return the program and half that run here."""
        *outs, shared, k_smem, v_smem, rows, probabilities, k_ready, v_ready, both = rest
        (q,), (sums,), (result,) = shared
        first, half = lax.axis_index("program") * sizes.mine, lax.axis_index("half")
        start = lax.rem(first, sizes.splits) * sizes.per
        seen = jnp.clip((at_ref[0] + TILE - 1) // TILE - start, 0, sizes.per)
        count = (seen + HALVES - 1 - half) // HALVES

        def tiles(ref: Any, smem: Any, ready: Any) -> Stream:
            def block(i: Any) -> Any:
                pair = (first + i // jnp.maximum(count, 1)) // sizes.splits
                tile = start + lax.rem(i, jnp.maximum(count, 1)) * HALVES + half
                place = pair // sizes.groups, lax.rem(pair, sizes.groups), pl.ds(tile * TILE, TILE)
                return ref.at[place]

            many, base = sizes.mine * count, half * sizes.stages
            return Stream(block, smem, ready, many, sizes.stages, base=base)

        return cls(
            sizes,
            parts_ref,
            (cos_ref, sin_ref),
            at_ref[0],
            half,
            count,
            (k_ref, v_ref),
            tiles(k_ref, k_smem, k_ready),
            tiles(v_ref, v_smem, v_ready),
            outs[0],
            outs[1] if sizes.splits > 1 else None,
            q,
            sums,
            result,
            rows,
            probabilities,
            both,
        )

    @property
    def start(self) -> Any:
        """The first token of the program's split."""
        split = lax.rem(lax.axis_index("program") * self.sizes.mine, self.sizes.splits)
        return split * self.sizes.per * TILE

    def place(self, item: Any) -> tuple[Any, Any, Any]:
        """Return split, sequence and group of a pair."""
        flat = lax.axis_index("program") * self.sizes.mine + item
        pair, split = flat // self.sizes.splits, lax.rem(flat, self.sizes.splits)
        return split, pair // self.sizes.groups, lax.rem(pair, self.sizes.groups)

    def meet(self) -> None:
        """Wait for the other half."""
        gpu.barrier_arrive(self.both)
        gpu.barrier_wait(self.both)

    def run(self) -> None:
        """Stream the tiles."""

        def ask(begin: int, end: int) -> None:
            for i in range(begin, end):
                pl.when(i < self.keys.blocks)(functools.partial(self.keys.ask, i))
                pl.when(i < self.values.blocks)(functools.partial(self.values.ask, i))

        ask(0, self.sizes.ahead)
        let_next_start(self.sizes.chain)
        wait_for_previous(self.sizes.chain)
        ask(self.sizes.ahead, self.sizes.stages)

        def pair(item: Any) -> None:
            pl.when(self.half == 0)(lambda: self.begin(item))
            self.meet()
            acc, top, total = lax.fori_loop(
                0, self.count, lambda i, carry: self.step(item, i, carry), self.first_term()
            )
            self.meet()
            pl.when(self.half == 1)(lambda: self.hand_over(acc, top, total))
            self.meet()
            pl.when(self.half == 0)(lambda: self.finish(item, acc, top, total))

        pl.loop(0, self.sizes.mine)(pair)

    def begin(self, item: Any) -> None:
        """Rotate queries and the new key, and add key and value to the cache."""
        split, row, group = self.place(item)
        many, heads = self.parts.shape[0], GROUP * self.sizes.groups
        one_head = FOUR_HEADS.reduce((0,))

        def total(at: Any, half: int, layout: Any) -> Any:
            each = (self.parts.at[i, row, at, half] for i in range(many))
            loaded = [gpu.load(ref, layout=layout, optimized=False) for ref in each]
            return sum(x.astype(jnp.float32) for x in loaded)

        def across(x: Any) -> Any:
            return lax.broadcast_in_dim(x, (EIGHT, HALF), (1,))

        def rotate(pair: list[Any], c: Any, s: Any) -> list[Any]:
            low, high = pair
            return [low * c - high * s, high * c + low * s]

        c, s = (gpu.load(ref, layout=one_head, optimized=False) for ref in self.turn)
        of_group = pl.ds(group * GROUP, EIGHT)  # four more than needed: a whole tile of q
        q = [total(of_group, half, FOUR_HEADS) for half in (0, 1)]
        k = [total(heads + group, half, one_head) for half in (0, 1)]
        v = [total(heads + self.sizes.groups + group, half, one_head) for half in (0, 1)]
        q, k = rotate(q, across(c), across(s)), rotate(k, c, s)
        q, k, v = ([each.astype(jnp.bfloat16) for each in pair] for pair in (q, k, v))
        halves, score = (pl.ds(0, HALF), pl.ds(HALF, HALF)), jnp.float32(0)
        for i, columns in enumerate(halves):
            self.q.at[pl.ds(0, EIGHT), columns][...] = q[i]
            self.rows.at[2 + i][...] = v[i].astype(jnp.float32)
            score += (q[i].astype(jnp.float32) * across(k[i].astype(jnp.float32))).sum(axis=1)
        self.rows.at[0, pl.ds(0, EIGHT)][...] = score
        gpu.commit_smem()

        def append() -> None:
            for ref, pair in zip(self.cache, (k, v), strict=True):
                for columns, each in zip(halves, pair, strict=True):
                    ref.at[row, group, self.position, columns][...] = each

        pl.when(split == self.position // (self.sizes.per * TILE))(append)

    def first_term(self) -> tuple[Any, Any, Any]:
        """Return acc, top and total with the new token alone, or, where it isn't, with nothing."""
        split = self.start // (self.sizes.per * TILE)
        here = split == self.position // (self.sizes.per * TILE)
        kept = (here & (self.half == 0)).astype(jnp.float32)
        score = gpu.load(self.rows.at[0], layout=ROWS, optimized=False) * SCALE
        top = score * kept + (1 - kept) * LOWEST
        parts = (gpu.load(self.rows.at[i], layout=COLUMNS, optimized=False) for i in (2, 3))
        acc = jnp.concatenate([lax.broadcast_in_dim(x * kept, (M, HALF), (1,)) for x in parts], 1)
        total = gpu.layout_cast(jnp.full((M,), 1.0), ROWS) * kept
        return acc, top, total

    def step(self, item: Any, tile: Any, carry: Any) -> Any:
        """Take a tile."""
        acc, top, total = carry
        i = item * self.count + tile
        self.keys.wait(i)

        def score(ref: Any) -> Any:
            gpu.wgmma(ref, self.q, self.keys.buffer(i).transpose((1, 0)))
            return ref[...]

        scores = pl.run_scoped(score, gpu.ACC((M, TILE), jnp.float32))
        self.keys.refill(i)
        places = gpu.broadcasted_iota(jnp.int32, (M, TILE), 1, layout=gpu.Layout.WGMMA)
        end = self.position - self.start - (tile * HALVES + self.half) * TILE
        scores = jnp.where(places < end, scores, LOWEST)
        best = jnp.maximum(top, scores.max(axis=1) * SCALE)
        p = jnp.exp2(scores * SCALE - lax.broadcast_in_dim(best, scores.shape, (0,)))
        shrink = jnp.exp2(top - best)
        total = total * shrink + p.sum(axis=1)
        p = p.astype(jnp.bfloat16)
        if self.probabilities is not None:
            self.probabilities[self.half] = p
            gpu.commit_smem()
            p = self.probabilities.at[self.half]
        self.values.wait(i)

        def weigh(ref: Any) -> Any:
            gpu.wgmma(ref, p, self.values.buffer(i))
            return ref[...]

        more = pl.run_scoped(weigh, gpu.ACC((M, WIDTH), jnp.float32))
        self.values.refill(i)
        return acc * lax.broadcast_in_dim(shrink, acc.shape, (0,)) + more, best, total

    def hand_over(self, acc: Any, top: Any, total: Any) -> None:
        """Leave the second half's sums to the first."""
        self.sums[...] = acc
        self.rows[0] = top
        self.rows[1] = total

    def finish(self, item: Any, acc: Any, top: Any, total: Any) -> None:
        """Add the other half's sums and write the result."""
        other = gpu.load(self.sums, layout=gpu.Layout.WGMMA)
        its_top, its_total = (
            gpu.load(self.rows.at[i], layout=ROWS, optimized=False) for i in (0, 1)
        )
        best = jnp.maximum(top, its_top)
        own, others = jnp.exp2(top - best), jnp.exp2(its_top - best)
        total = jnp.maximum(total * own + its_total * others, TINY)

        def across(x: Any) -> Any:
            return lax.broadcast_in_dim(x, acc.shape, (0,))

        acc = (acc * across(own) + other * across(others)) / across(total)
        gpu.commit_smem()  # all of it is read: the result takes its place
        self.result[...] = acc.astype(self.out.dtype)
        split, row, group = self.place(item)
        place: Any = (row, pl.ds(group * GROUP, GROUP))
        if self.logarithms is not None:
            place = (split, *place)
            self.rows[0] = best + jnp.log(total) * (1 / math.log(2))
        gpu.commit_smem()
        gpu.copy_smem_to_gmem(self.result.at[pl.ds(0, GROUP)], self.out.at[place])
        if self.logarithms is not None:
            gpu.copy_smem_to_gmem(self.rows.at[0, pl.ds(0, GROUP)], self.logarithms.at[place])
        gpu.wait_smem_to_gmem(0)


def merge(
    parts: Array, sums: Array, padded: int, *, chain: bool = True, interpret: Any = None
) -> Array:
    """Return the splits of `attend` as one: [padded ≥ B, 4 G, 128] in bfloat16, zeros below B."""
    splits, rows, heads, _ = parts.shape

    def body(parts_ref: Any, sums_ref: Any, out_ref: Any) -> None:
        row = lax.axis_index("row")
        four = pl.ds(lax.axis_index("block") * GROUP, GROUP)

        def read(ref: Any, layout: Any) -> Any:
            return gpu.load(ref, layout=layout, optimized=False)

        def mix() -> None:
            across = FOUR_HEADS.reduce((1,))
            each = [read(sums_ref.at[i, row, four], across) for i in range(splits)]
            top = each[0]
            for one in each[1:]:
                top = jnp.maximum(top, one)
            weights = [jnp.exp2(one - top) for one in each]
            inverse = 1 / sum(weights)
            for columns in (pl.ds(0, HALF), pl.ds(HALF, HALF)):
                mean: Any = 0.0
                for i, weight in enumerate(weights):
                    part = read(parts_ref.at[i, row, four, columns], FOUR_HEADS)
                    mean += part * lax.broadcast_in_dim(weight * inverse, part.shape, (0,))
                out_ref.at[row, four, columns][...] = mean.astype(jnp.bfloat16)

        def blank() -> None:
            for columns in (pl.ds(0, HALF), pl.ds(HALF, HALF)):
                zeros = gpu.layout_cast(jnp.zeros((GROUP, HALF), jnp.bfloat16), FOUR_HEADS)
                out_ref.at[row, four, columns][...] = zeros

        let_next_start(chain)
        wait_for_previous(chain)
        pl.when(row < rows)(mix)
        pl.when(row >= rows)(blank)

    return gpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((padded, heads, WIDTH), jnp.bfloat16),
        grid=(padded, heads // GROUP),
        grid_names=("row", "block"),
        compiler_params=FAST,
        interpret=interpret,
        kernel_name="merge",
    )(parts, sums)
