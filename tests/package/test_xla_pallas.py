"""Pallas kernels counted from what JAX traced: FLOPs of the body, bytes of the blocks, by hand."""

import math

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import spec
from compiled_reports import needs
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import roofline_helpers as rh
from roofline import xla
from roofline.diagnosis import explain
from roofline.diagnosis.modelled import case_of
from roofline.xla.pallas import counted, unused
from roofline_helpers.chips import assumed_floor
from roofline_helpers.common.checks import BadValue

BF16 = 2


def matmul(m, n, k, rows, columns, depth, **options):
    def body(x, y, out, total):
        @pl.when(pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            out[...] = total[...].astype(out.dtype)

    def product(x, y):
        return pl.pallas_call(
            body,
            grid=(pl.cdiv(m, rows), pl.cdiv(n, columns), pl.cdiv(k, depth)),
            in_specs=[
                pl.BlockSpec((rows, depth), lambda i, j, s: (i, s)),
                pl.BlockSpec((depth, columns), lambda i, j, s: (s, j)),
            ],
            out_specs=pl.BlockSpec((rows, columns), lambda i, j, s: (i, j)),
            out_shape=jax.ShapeDtypeStruct((m, n), "bfloat16"),
            scratch_shapes=[pltpu.VMEM((rows, columns), jnp.float32)],
            **options,
        )(x, y)

    return product, (spec(m, k), spec(k, n))


def only(fn, *args):
    (kernel,) = counted(jax.jit(fn).trace(*args).jaxpr)
    return kernel


def test_a_product_in_blocks_fetches_each_operand_once_for_each_block_of_the_other():
    n = 4096
    fn, args = matmul(n, n, n, 512, 512, 512)
    kernel = only(fn, *args)
    assert kernel.matrix_flops == 2 * n**3
    assert kernel.reads == (8 * BF16 * n * n, 8 * BF16 * n * n)
    assert kernel.writes == (BF16 * n * n,)
    assert kernel.vector_flops == n * n * 8  # the sums, once for each step along k
    assert kernel.types == ("bf16",)
    assert kernel.unsure == ()
    # two buffers for each block, one for the sums in fp32: the compiler takes 4.00 MiB, no less
    assert kernel.vmem == 512 * 512 * (3 * 2 * BF16 + 4) == 4 * 2**20
    assert [operand.fetches for operand in kernel.operands] == [8**3, 8**3, 8**2]
    assert list(kernel.table().index) == ["x", "y", "out, written"]
    roof = rh.chip("v6e").roofline("bf16")
    assert roof.bound(kernel) == ("memory" if kernel.intensity < roof.ridge else "compute")


@pytest.mark.slow
def test_the_compiler_accepts_the_vmem_that_was_counted_and_no_less():
    needs("v6e")
    fn, args = matmul(2048, 2048, 2048, 512, 512, 512)
    counted = int(only(fn, *args).vmem)

    def within(limit, block=512, chip="v6e"):
        options = pltpu.CompilerParams(vmem_limit_bytes=limit)
        fn, args = matmul(2048, 2048, 2048, block, block, block, compiler_params=options)
        return xla.analyze(fn, *args, chip=chip)

    assert within(counted).flops > 0
    with pytest.raises(xla.CannotCompile, match="scoped vmem limit"):
        within(counted * 15 // 16)
    for chip in ("v5e", "v6e"):  # blocks of 1024: about a sixth more than counted
        assert within(19 * 2**20, 1024, chip).flops > 0
        with pytest.raises(xla.CannotCompile, match=r"size 18.\d\dM and limit 16.00M"):
            within(4 * counted, 1024, chip)
    fn, args = matmul(4096, 4096, 4096, 2048, 2048, 256)
    for chip, most in {"v5e": 16, "v6e": 32}.items():  # the compiler's own limits
        with pytest.raises(xla.CannotCompile, match=f"limit {most}.00M"):
            xla.analyze(fn, *args, chip=chip)


B, H, S, D = 2, 4, 1024, 128
BLOCK = 128


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_that_ships_with_jax(causal):
    flash = pytest.importorskip("jax.experimental.pallas.ops.tpu.flash_attention")
    kernel = only(lambda *qkv: flash.flash_attention(*qkv, causal=causal), *[spec(B, H, S, D)] * 3)
    blocks = S // BLOCK
    steps = blocks * (blocks + 1) // 2 if causal else blocks**2
    assert kernel.matrix_flops == B * H * steps * 2 * 2 * BLOCK**2 * D
    once = BF16 * B * H * S * D
    assert (kernel.reads[0], kernel.writes[0]) == (once, once)
    if not causal:
        assert kernel.reads[1:] == (blocks * once, blocks * once)
    assert kernel.unsure == ()


def grouped_matmul(m, k, n, groups):
    megablox = pytest.importorskip("jax.experimental.pallas.ops.tpu.megablox")
    args = spec(m, k), spec(groups, k, n), spec(groups, dtype="int32")
    return lambda *a: megablox.gmm(*a, preferred_element_type=jnp.bfloat16), args


def test_bytes_of_blocks_that_data_choose_are_a_range_and_no_verdict():
    needs("v5p")
    m, k, n, groups = 4096, 2048, 4096, 8
    fn, args = grouped_matmul(m, k, n, groups)
    report = explain(fn, *args, chip="v5p", progress=False)
    (kernel,) = [kernel for kernel in report.kernels if kernel.matrix_flops]
    once = BF16 * (m * k + k * n + m * n)  # at least one group has rows
    # By hand: 128 × 128 blocks, the whole contraction for each block of the result
    by_blocks = BF16 * (m * k * n / 128 + (m / 128) * k * n + m * n)
    assert kernel.hbm_bytes == pytest.approx(once, rel=1e-3)
    assert once < by_blocks <= kernel.most_bytes < 1.5 * by_blocks
    assert (kernel.limit, kernel.bound, kernel.depends) == ("matrix", None, True)
    assert (report.bound, report.bounds) == (None, ("compute", "memory"))
    assert report.time_at_roof < report.time_at_most
    stored = xla.Report.from_json(report.to_json())
    assert (stored.bounds, stored.most_bytes) == (report.bounds, report.most_bytes)
    (row,) = (row for row in case_of(report).rows if row.name == kernel.name)
    assert row.limit == "matrix or hbm"
    assert [found.cause for found in report.findings if row.name in found.kernels] == ["depends"]
    ends = kernel.roof_seconds, kernel.most_seconds
    assert (row.seconds, row.high) == pytest.approx(ends, rel=1e-5)
    assert case_of(report).wall == pytest.approx(report.expected.seconds)
    # The groups' table is made by sorts and scatters, of whose time the compiler says nothing
    assert report.time_at_most < report.expected.high == math.inf


def scalars_first(body, blocks, out, *scratch, grid=8):
    """Return a kernel whose first operand, of whole numbers, is there before its blocks."""
    spec_of = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(grid,),
        in_specs=[blocks],
        out_specs=pl.BlockSpec((8, 128), lambda i, s: (i, 0)),
        scratch_shapes=list(scratch),
    )
    return pl.pallas_call(body, grid_spec=spec_of, out_shape=out)


def test_what_data_decide_is_a_range_or_has_no_end():
    x, numbers = spec(4096, 128, dtype="float32"), spec(8, dtype="int32")
    out, block, done = spec(64, 128, dtype="float32"), 8 * 128 * 4, pltpu.SemaphoreType.DMA

    def chosen(s, x, out):
        out[...] = x[...]

    taken = scalars_first(chosen, pl.BlockSpec((8, 128), lambda i, s: (s[i], 0)), out)
    kernel = only(taken, numbers, x)  # at least one block, if all numbers are the same
    assert (kernel.bytes, kernel.most) == (32 + block + 8 * block, 32 + 8 * block + 8 * block)

    def some(s, x, out):
        @pl.when(s[pl.program_id(0)] > 0)
        def _():
            out[...] = jnp.dot(x[...], x[...].T)[:, :1] + out[...]

    skipped = scalars_first(some, pl.BlockSpec((8, 128), lambda i, s: (i, 0)), out)
    kernel = only(skipped, numbers, x)
    product, sums = 8 * 2 * 8 * 8 * 128, 8 * 8 * 128
    assert (kernel.flops, kernel.most_flops, kernel.at_least) == (0, product + sums, "")

    def copies(turns, size):
        def body(s, x, out, done):
            def turn(i, _):
                copy = pltpu.make_async_copy(x.at[pl.ds(s[i], size(s))], out, done)
                copy.start()
                copy.wait()
                return 0

            jax.lax.fori_loop(0, turns(s), turn, 0)

        return scalars_first(body, pl.BlockSpec(memory_space=pl.ANY), out, done)

    exact = only(copies(lambda s: 5, lambda s: 8), numbers, x)
    assert (exact.bytes, exact.most, exact.unsure) == (32 + 8 * 5 * block + 8 * block, None, ())
    for endless, decided in (
        (copies(lambda s: s[0], lambda s: 8), "trip counts"),
        (copies(lambda s: 5, lambda s: s[0]), "sizes of copies"),
    ):
        kernel = only(endless, numbers, x)
        assert (kernel.bytes, kernel.most) == (32 + 8 * block, float("inf"))
        assert kernel.at_least == f"data decide its {decided}"
        with pytest.raises(BadValue, match=f"the least: data decide its {decided}"):
            rh.chip("v6e").roofline("bf16").bound(kernel)


def test_copies_that_depend_on_the_turn_of_a_known_loop_are_exact():
    needs("v6e")
    n, side = 2048, 512

    def body(x, y, out):
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    def tile(index):
        return pl.BlockSpec((side, side), index)

    def whole(*refs):
        pltpu.emit_pipeline(
            body,
            grid=(n // side,) * 3,
            in_specs=[tile(lambda i, j, k: (i, k)), tile(lambda i, j, k: (k, j))],
            out_specs=[tile(lambda i, j, k: (i, j))],
        )(*refs)

    in_place, out = pl.BlockSpec(memory_space=pl.ANY), spec(n, n, dtype="float32")
    call = pl.pallas_call(whole, in_specs=[in_place] * 2, out_specs=in_place, out_shape=out)
    (kernel,) = xla.analyze(call, spec(n, n), spec(n, n), chip="v6e").calls
    reads = n // side  # how often each operand is read: once for each block of the other's side
    assert kernel.bytes == 2 * reads * BF16 * n * n + 4 * n * n
    assert (kernel.most, kernel.unsure, kernel.matrix_flops) == (None, (), 2 * n**3)


def copying(loop, *scratch):
    """Return a kernel whose `loop` gets a function that copies block `i` of x into scratch."""

    def body(x, out, block, *rest):
        loop(lambda i: pltpu.sync_copy(x.at[pl.ds(i * 8, 8), :], block), x, *rest)
        out[...] = block[...]

    first = pltpu.VMEM((8, 128), jnp.float32)
    in_place, out = pl.BlockSpec(memory_space=pl.ANY), spec(8, 128, dtype="float32")
    options = {"in_specs": [in_place], "out_shape": out, "scratch_shapes": [first, *scratch]}
    return pl.pallas_call(body, **options)


def test_loops_are_counted_by_what_their_counters_do():
    def run(more, then, first, block=lambda i: i):
        def turn(copy, state):
            copy(block(state))
            return then(state)

        return lambda copy, *_: lax.while_loop(more, lambda state: turn(copy, state), first)

    x = spec(512, 128, dtype="float32")
    for loop, turns in (
        (run(lambda i: i < 8, lambda i: i + 1, 0), 8),
        (run(lambda i: i < 8, lambda i: i + 2, 0), 4),
        (run(lambda i: i > 0, lambda i: i - 1, 8), 8),
        (run(lambda i: i < 1.0, lambda i: i + 0.125, 0.0, lambda i: 0), 8),
        (run(lambda s: s[0] < 1, lambda s: ((s[1] + 1) // 64, s[1] + 1), (0, 0), sum), 64),
        (run(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1] - 1), (0, 8), sum), 4),
    ):
        kernel = only(copying(loop), x)
        assert (kernel.reads, kernel.most, kernel.unsure) == ((turns * 8 * 128 * 4,), None, ())


def test_scratch_counts_where_it_lies():
    block = 8 * 128 * 4

    def through(copy, x, main, scalars):
        pltpu.sync_copy(x.at[pl.ds(0, 8), :], main)

        def and_back(rows):
            pltpu.sync_copy(main, rows.at[pl.ds(0, 8), :])
            pltpu.sync_copy(rows.at[pl.ds(0, 8), :], main)

        def within(rows):
            and_back(rows)
            pl.run_scoped(and_back, pltpu.VMEM((24, 128), jnp.float32))
            pl.run_scoped(and_back, pltpu.VMEM((16, 128), jnp.float32))

        pl.run_scoped(within, pltpu.VMEM((8, 128), jnp.float32))
        scalars[0] = 0

    scratch = pl.ANY((8, 128), jnp.float32), pltpu.SMEM((4,), jnp.int32)
    kernel = only(copying(through, *scratch), spec(512, 128, dtype="float32"))
    # into the scratch once, three times out of it and back
    assert (kernel.reads, kernel.spilled, kernel.bytes) == ((block,), 7 * block, 9 * block)
    # two buffers of the result, the first scratch, and of what the body allocates the most at once
    assert (kernel.vmem, kernel.smem) == ((2 + 1 + 1 + 3) * block, 16)

    blocks, out = pl.BlockSpec((8, 128), lambda i, s: (i, 0)), spec(64, 128, dtype="float32")
    fetched = scalars_first(lambda s, x, out: None, blocks, out)
    assert only(fetched, spec(8, dtype="int32"), out).smem == 8 * 4


def test_a_loop_without_a_known_count_has_no_verdict():
    needs("v6e")

    def until(x):
        return jax.lax.while_loop(lambda c: c.sum() < 1e9, lambda c: jnp.tanh(c @ c), x)

    report = explain(until, spec(2048, 2048), chip="v6e", progress=False)
    (loop,) = {row.loop for row in report.rows if row.loop}
    assert report.at_least == f"the trip count of {loop} is unknown"
    assert (report.bounds, report.most_bytes) == ((), float("inf"))
    assert "at least 17.2 GFLOP, at least" in repr(report)
    first = report.findings[0]
    assert (first.cause, first.evidence.split(":")[0]) == ("unknown-loop", loop)
    assert {finding.share for finding in report.findings} == {0.0}  # of what call?
    stated = xla.analyze(until, spec(2048, 2048), chip="v6e", turns={loop: 100})
    assert (stated.at_least, stated.bounds) == ("", ("compute",))


def test_a_verdict_survives_the_floor_of_each_turn_and_an_assumed_vector_peak():
    needs("v6e")

    def turns(x):
        return jax.lax.fori_loop(0, 400, lambda _, c: jnp.tanh(c) * 1.01 + 0.1, x)

    report = xla.analyze(turns, spec(8, 128, dtype="float32"), chip="v6e")
    assert (report.bound, report.bounds) == (None, ("memory", "compute", "latency"))
    assert report.time_with_floor == pytest.approx(400 * assumed_floor("tpu"), rel=0.01)
    whole = " ".join(report.describe().split())
    assert "for each launch and each iteration of a loop (400) it takes 648 µs" in whole
    assert "vector work is assumed to reach 7.17 TFLOP/s at most" in whole
    (kernel,) = [kernel for kernel in report.kernels if kernel.vector_flops]
    assert kernel.most_seconds == pytest.approx(kernel.vector_flops / 7.17e12, rel=1e-3)
    assert report.time_at_roof < kernel.most_seconds == report.time_at_most
    large = xla.analyze(jnp.matmul, spec(4096, 4096), spec(4096, 4096), chip="v6e")
    assert large.bounds == ("compute",)


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_the_rows_of_causes_take_no_less_than_the_program_s_roof(chip):
    """Copies that kernels can't hide, and exchanges on the links that they run along, show."""
    needs(chip)
    over = NamedSharding(AbstractMesh((8,), ("data",)), PartitionSpec("data"))
    spread = jax.ShapeDtypeStruct((4096, 512), jnp.bfloat16, sharding=over)
    cases = [
        (chip, jnp.matmul, (spec(8, 2048), spec(2048, 2048))),
        (chip, lambda x, w, v: jnp.tanh(x @ w) @ v, (spec(8, 4096), *[spec(4096, 4096)] * 2)),
        (f"{chip}-8", lambda x: x @ x.T[:, :512], (spread,)),
    ]
    for where, fn, args in cases:
        report = xla.analyze(fn, *args, chip=where)
        case = case_of(report)
        assert report.time_at_roof <= report.expected.low <= report.expected.seconds
        assert case.wall == pytest.approx(report.expected.seconds)
        assert sum(row.least for row in case.rows) == pytest.approx(report.time_at_roof)
        assert sum(row.seconds for row in case.rows) == pytest.approx(case.wall)
        said = f"compiled {report.expected}: {report.expected.why}"
        assert said in " ".join(report.describe().split())
        for exchange in report.exchanges[-1:]:
            (row,) = (row for row in case.rows if row.name == exchange.collective.name)
            assert row.seconds == pytest.approx(exchange.exposed, rel=1e-3)


def test_a_report_counts_and_says_what_was_declared():
    needs("v6e")
    n = 2048
    wrong = pl.CostEstimate(flops=7, bytes_accessed=11, transcendentals=0)
    fn, args = matmul(n, n, n, 512, 512, 512, cost_estimate=wrong)
    report = xla.analyze(fn, *args, chip="v6e")
    (kernel,) = [kernel for kernel in report.kernels if kernel.matrix_flops]
    assert kernel.matrix_flops == 2 * n**3
    moved = sum(kernel.traffic[level] for level in ("hbm", "vmem") if level in kernel.traffic)
    assert moved == 9 * BF16 * n * n
    assert kernel.work.matrix_types == ("bf16",)
    notes = " ".join(report.notes)
    assert "declares 11 bytes, it moves" in notes
    assert "declares 7 FLOP, its matmuls have" in notes
    assert report.unknown == ()


def test_the_unused_share_is_of_the_matmuls_that_were_asked_for():
    def wasteful(x, w):
        _, kept = x @ w, x @ w[:, :3]  # of 5 + 3 columns, the result needs 3
        return kept

    x, w = jnp.ones((2, 7)), jnp.ones((7, 5))
    assert unused(jax.make_jaxpr(wasteful)(x, w)) == pytest.approx(5 / 8)
