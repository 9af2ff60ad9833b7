"""Kernels of a decode step for Hopper GPUs: rotary embedding, the cache, attention over it.

The cache is [B, G, T, 128]: the tokens of one head in one piece. Heads come in groups of four that
share keys and values. See `hopper` for what the kernels have in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as gpu

from .hopper import FAST, SWIZZLE, Array, M, Stream, let_next_start, wait_for_previous
from .plan import Ring

WIDTH, HALF = 128, 64
"""Numbers in a head, and the half of them that the rotary embedding pairs with the other."""
GROUP = 4
"""Query heads of one group."""
TILE = 128
"""Tokens of one step of attention."""
LOWEST = -1e30
FOUR_HEADS = gpu.Layout.TILED(
    gpu.Tiling(((GROUP, HALF), (2,))), warp_dims=(-3,), lane_dims=(-2,), vector_dim=-1
)
"""[4, 64] in registers: a warp a head."""


def rotate_and_append(
    parts: Array,
    cos: Array,
    sin: Array,
    position: Array,
    keys: Any,
    values: Any,
    *,
    chain: bool = True,
    interpret: Any = None,
) -> Array:
    """Sum `parts` to queries, keys, values; rotate the first two; write the last two to the cache.

    parts: [S, B′ ≥ B, (4 G + 2 G) · 128] in float32, cos and sin: [64], position: [1], keys and
    values: references to [B, G, T, 128], changed in place. Returns queries as [B, G, 8, 128], of
    which attention reads four of each eight rows. A program four heads of a sequence.
    """
    many, padded, _ = parts.shape
    rows, groups = keys.shape[:2]
    parts = parts.reshape(many, padded, (GROUP + 2) * groups, 2, HALF)
    halves = pl.ds(0, HALF), pl.ds(HALF, HALF)
    blocks = groups // GROUP  # of four heads of keys, and as many of values

    def body(
        parts_ref: Any, cos_ref: Any, sin_ref: Any, at_ref: Any, k_ref: Any, v_ref: Any, q_ref: Any
    ) -> None:
        row, block = lax.axis_index("row"), lax.axis_index("block")

        def across(ref: Any) -> Any:
            layout = FOUR_HEADS.reduce((0,))
            one = gpu.load(ref, layout=layout, optimized=False)
            return lax.broadcast_in_dim(one, (GROUP, HALF), (1,))

        def total(half: int) -> Any:
            heads = pl.ds(block * GROUP, GROUP)
            each = (parts_ref.at[i, row, heads, half] for i in range(many))
            return sum(gpu.load(ref, layout=FOUR_HEADS, optimized=False) for ref in each)

        let_next_start(chain)
        token, c, s = at_ref[0], across(cos_ref), across(sin_ref)
        wait_for_previous(chain)
        low, high = total(0), total(1)
        rotated = low * c - high * s, high * c + low * s

        @pl.when(block < groups)
        def _() -> None:
            for columns, part in zip(halves, rotated, strict=True):
                ref = q_ref.at[row, block, pl.ds(0, GROUP), columns]
                ref[...] = part.astype(jnp.bfloat16)

        def append(cache_ref: Any, first: Any, pair: Any) -> None:
            for columns, part in zip(halves, pair, strict=True):
                ref = cache_ref.at[row, pl.ds(first * GROUP, GROUP), token, columns]
                ref[...] = part.astype(jnp.bfloat16)

        @pl.when((block >= groups) & (block < groups + blocks))
        def _() -> None:
            append(k_ref, block - groups, rotated)

        @pl.when(block >= groups + blocks)
        def _() -> None:
            append(v_ref, block - groups - blocks, (low, high))

    return gpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((rows, groups, 8, WIDTH), jnp.bfloat16),
        grid=(rows, groups + 2 * blocks),
        grid_names=("row", "block"),
        compiler_params=FAST,
        interpret=interpret,
        kernel_name="rotate_and_append",
    )(parts, cos, sin, position, keys, values)


def attend(
    q: Array,
    keys: Array,
    values: Array,
    position: Array,
    *,
    ring: Ring,
    programs: int,
    splits: int = 1,
    chain: bool = True,
    interpret: Any = None,
) -> Any:
    """Return attention of one token of each sequence over the cache up to and with `position`.

    A program takes one or several pairs of sequence and group, or one split of one pair, and
    streams tiles of 128 tokens. The product of queries and the next tile's keys is under way while
    this tile's softmax is worked out. The tile with the new token is asked for after the wait.

    Parameters
    ----------
    q : Array
        [B, G, 8, 128] in bfloat16, not scaled, see `rotate_and_append`.
    keys, values : Array
        [B, G, T, 128] in bfloat16, T a multiple of 128 · splits.
    position : Array
        [1], the new token's place in the cache.
    ring : Ring
        Of tiles of keys, and another of values.
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
    sizes = Sizes(groups, splits, mine, per, *ring.within(mine * per), chain=chain)
    dtype: Any = jnp.float32 if splits > 1 else jnp.bfloat16
    shapes = [jax.ShapeDtypeStruct((rows, GROUP * groups, WIDTH), dtype)]
    if splits > 1:
        more = jax.ShapeDtypeStruct((rows, GROUP * groups), jnp.float32)
        shapes = [each.update(shape=(splits, *each.shape)) for each in (*shapes, more)]
    out = gpu.kernel(
        lambda *refs: Program.of(sizes, *refs).run(),
        out_type=tuple(shapes),
        grid=(programs,),
        grid_names=("program",),
        scratch_types=_shared(sizes, dtype, interpret is not None),
        compiler_params=FAST,
        interpret=interpret,
        kernel_name="attend",
    )(q, keys, values, position)
    return out if splits > 1 else out[0]


@dataclass(frozen=True)
class Sizes:
    """What is known of `attend` before it runs: pairs and tiles of a program, its rings."""

    groups: int
    splits: int
    mine: int
    per: int
    stages: int
    ahead: int
    flight: int
    chain: bool

    @property
    def queries(self) -> int:
        """Buffers of queries: those of the next pair arrive during this one."""
        return min(2, self.mine)


def _shared(sizes: Sizes, dtype: Any, interpreted: bool) -> tuple[Any, ...]:
    """Return what `attend` has in shared memory, in the order of `Program.of`.

    With one pair a program, its result takes the place of its queries. The interpreter wants the
    probabilities in shared memory, where the GPU takes them from registers.
    """
    q = gpu.SMEM((sizes.queries, M, WIDTH), jnp.bfloat16, transforms=SWIZZLE)
    out = gpu.SMEM((M, WIDTH), dtype)
    tiles = gpu.SMEM((sizes.stages, TILE, WIDTH), jnp.bfloat16, transforms=SWIZZLE)
    probabilities = gpu.SMEM((M, TILE), jnp.bfloat16, transforms=SWIZZLE)
    return (
        gpu.RefUnion((q,), (out,)) if sizes.queries == 1 else ((q,), (out,)),
        tiles,
        tiles,
        gpu.SMEM((M,), jnp.float32),
        probabilities if interpreted else None,
        *(gpu.Barrier(num_barriers=n) for n in (sizes.queries, sizes.stages, sizes.stages)),
    )


@dataclass(frozen=True)
class Program:
    """One program of `attend`: the pairs and tiles that are its own, and what it streams."""

    sizes: Sizes
    position: Any
    count: Any  # tiles of each pair
    queries: Stream
    keys: Stream
    values: Stream
    out: Any
    sums: Any
    out_smem: Any
    sums_smem: Any
    p_smem: Any

    @classmethod
    def of(
        cls, sizes: Sizes, q_ref: Any, k_ref: Any, v_ref: Any, at_ref: Any, *rest: Any
    ) -> Program:
        """Return the program that runs here."""
        *outs, shared, k_smem, v_smem, sums_smem, p_smem, q_ready, k_ready, v_ready = rest
        (q_smem,), (out_smem,) = shared
        first = lax.axis_index("program") * sizes.mine
        split = lax.rem(first, sizes.splits)
        count = jnp.clip(at_ref[0] // TILE + 1 - split * sizes.per, 0, sizes.per)

        def of_pair(ref: Any, item: Any) -> Any:
            pair = (first + item) // sizes.splits
            return ref.at[pair // sizes.groups, lax.rem(pair, sizes.groups)]

        def tiles(ref: Any, smem: Any, ready: Any) -> Stream:
            def block(i: Any) -> Any:
                item, tile = i // jnp.maximum(count, 1), lax.rem(i, jnp.maximum(count, 1))
                return of_pair(ref, item).at[pl.ds((split * sizes.per + tile) * TILE, TILE)]

            return Stream(block, smem, ready, sizes.mine * count, sizes.stages, sizes.flight)

        both = sizes.queries
        queries = Stream(lambda i: of_pair(q_ref, i), q_smem, q_ready, sizes.mine, both, both, 8)
        return cls(
            sizes,
            at_ref[0],
            count,
            queries,
            tiles(k_ref, k_smem, k_ready),
            tiles(v_ref, v_smem, v_ready),
            outs[0],
            outs[1] if sizes.splits > 1 else None,
            out_smem,
            sums_smem,
            p_smem,
        )

    def item(self, i: Any) -> Any:
        """Return the pair to which tile i belongs."""
        return i // jnp.maximum(self.count, 1)

    def inside(self, i: Any) -> Any:
        """Return the tile's number within its pair and split."""
        return lax.rem(i, jnp.maximum(self.count, 1))

    @property
    def start(self) -> Any:
        """The first token of the program's split."""
        split = lax.rem(lax.axis_index("program") * self.sizes.mine, self.sizes.splits)
        return split * self.sizes.per * TILE

    def ask_first(self, early: bool) -> None:
        """Ask for the first tiles: before the wait all but the new token's and those after it."""
        for i in map(jnp.int32, range(self.sizes.stages)):
            new = (self.start + self.inside(i) * TILE) // TILE == self.position // TILE
            late = new | (i >= self.sizes.ahead)
            now = ~late if early else late

            @pl.when((i < self.keys.blocks) & now)
            def _(i: Any = i) -> None:
                self.keys.ask(i)
                self.values.ask(i)

    def score(self, ref: Any, i: Any) -> None:
        """Start the product of the queries and the keys of tile i."""
        q = self.queries.buffer(self.item(i))
        gpu.wgmma(ref, q, self.keys.buffer(i).transpose((1, 0)))

    def run(self) -> None:
        """Stream the tiles."""
        chain = self.sizes.chain
        self.ask_first(early=True)
        let_next_start(chain)
        for i in range(self.sizes.queries):
            zeros = jnp.zeros((M, WIDTH), jnp.bfloat16)
            self.queries.buffers[i] = gpu.layout_cast(zeros, gpu.Layout.WGMMA)
        gpu.commit_smem()
        wait_for_previous(chain)
        self.queries.ask(0)
        self.ask_first(early=False)
        self.queries.wait(0)
        pl.when(self.keys.blocks > 0)(lambda: self.keys.wait(0))

        def opening(ref: Any) -> Any:
            self.score(ref, jnp.int32(0))
            return ref[...]

        scores = pl.run_scoped(opening, gpu.ACC((M, TILE), jnp.float32))
        self.keys.refill(jnp.int32(0))
        acc = gpu.layout_cast(jnp.zeros((M, WIDTH), jnp.float32), gpu.Layout.WGMMA)
        carry = scores, acc, _rows(LOWEST), _rows(0.0)
        lax.fori_loop(0, self.keys.blocks, self.step, carry)
        if self.sizes.splits > 1:  # a split that no token has reached yet
            nothing = 0, acc, _rows(2 * LOWEST), _rows(1.0)
            pl.when(self.keys.blocks == 0)(lambda: self.finish(*nothing))
        gpu.wait_smem_to_gmem(0)

    def step(self, i: Any, carry: Any) -> Any:
        """Take tile i: its scores are here; make the next tile's meanwhile."""
        scores, acc, top, total = carry
        following = i + 1
        if self.sizes.mine > 1:
            top, total = self.change_pair(i, top, total)
        pl.when(following < self.keys.blocks)(lambda: self.keys.wait(following))

        def products(next_ref: Any, out_ref: Any) -> Any:
            self.score(next_ref, following)  # after the last tile: of old keys, and not used
            p, *sums = self.softmax(i, scores, top, total)
            if self.p_smem is not None:
                self.p_smem[...] = p
                gpu.commit_smem()
                p = self.p_smem
            self.values.wait(i)
            gpu.wgmma(out_ref, p, self.values.buffer(i))
            return next_ref[...], out_ref[...], *sums

        room = gpu.ACC((M, TILE), jnp.float32), gpu.ACC((M, WIDTH), jnp.float32)
        scores, more, top, total, shrink = pl.run_scoped(products, *room)
        acc = acc * lax.broadcast_in_dim(shrink, acc.shape, (0,)) + more
        self.keys.refill(following)
        self.values.refill(i)
        last = self.inside(i) == self.count - 1
        pl.when(last)(lambda: self.finish(self.item(i), acc, top, total))
        return scores, acc, top, total

    def change_pair(self, i: Any, top: Any, total: Any) -> tuple[Any, Any]:
        """Return top and total, emptied where tile i is the first of a pair; fetch queries."""
        item = self.item(i)
        more, first = item + 1 < self.sizes.mine, self.inside(i) == 0
        pl.when(more & first)(lambda: self.queries.ask(item + 1))
        ending = self.inside(i) == self.count - 1
        pl.when(more & ending)(lambda: self.queries.wait(item + 1))
        kept = 1 - first.astype(jnp.float32)
        return top * kept + (1 - kept) * LOWEST, total * kept

    def softmax(self, i: Any, scores: Any, top: Any, total: Any) -> tuple[Any, ...]:
        """Return exponentials of scores in bfloat16, the new top and total, what acc shrinks by."""
        scale = WIDTH**-0.5 / math.log(2)
        places = gpu.broadcasted_iota(jnp.int32, (M, TILE), 1, layout=gpu.Layout.WGMMA)
        seen = places <= self.position - self.start - self.inside(i) * TILE
        scores = jnp.where(seen, scores, LOWEST)
        best = jnp.maximum(top, scores.max(axis=1) * scale)
        p = jnp.exp2(scores * scale - lax.broadcast_in_dim(best, scores.shape, (0,)))
        shrink = jnp.exp2(top - best)
        return p.astype(jnp.bfloat16), best, total * shrink + p.sum(axis=1), shrink

    def finish(self, item: Any, acc: Any, top: Any, total: Any) -> None:
        """Write a pair's result."""
        flat = lax.axis_index("program") * self.sizes.mine + item
        pair, split = flat // self.sizes.splits, lax.rem(flat, self.sizes.splits)
        row, heads = pair // self.sizes.groups, lax.rem(pair, self.sizes.groups)
        place = (row, pl.ds(heads * GROUP, GROUP))
        gpu.wait_smem_to_gmem(0, wait_read_only=True)
        result = acc / lax.broadcast_in_dim(total, acc.shape, (0,))
        self.out_smem[...] = result.astype(self.out.dtype)
        if self.sums is not None:
            place = (split, *place)
            self.sums_smem[...] = top + jnp.log(total) * (1 / math.log(2))
        gpu.commit_smem()
        gpu.copy_smem_to_gmem(self.out_smem.at[pl.ds(0, GROUP)], self.out.at[place])
        if self.sums is not None:
            gpu.copy_smem_to_gmem(self.sums_smem.at[pl.ds(0, GROUP)], self.sums.at[place])


def _rows(value: float) -> Any:
    """Return a number for each of the matrix unit's rows, in registers."""
    return gpu.layout_cast(jnp.full((M,), value), gpu.Layout.WGMMA.reduce((1,)))


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
