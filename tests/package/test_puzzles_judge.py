"""The judge of kernels, against small kernels that are right, wrong, faked or only odd."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from roofline.testing import judge as judging
from roofline.testing.judge import judge
from roofline.xla.targets import can_compile
from roofline_helpers.common.checks import BadType, BadValue

F32, BF16 = jnp.float32, jnp.bfloat16
like = jax.ShapeDtypeStruct
X = like((512, 256), F32)
SIZE = 2.0 * 512 * 256 * 4  # of X and of a result like it
ROWS = pl.BlockSpec((128, 256), lambda i: (i, 0))
HBM = pl.BlockSpec(memory_space=pl.ANY)
HOST = pl.BlockSpec(
    (128, 256), lambda i: (i, 0), memory_space=getattr(pl, "HOST", None) or pltpu.HOST
)
BUFFER = [pltpu.VMEM((128, 256), F32), pltpu.SemaphoreType.DMA]


@pytest.fixture(autouse=True)
def _without_compiler(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "compiler" not in request.node.name:
        monkeypatch.setattr(judging, "can_compile", lambda _: "not asked here")


def on_blocks(body: Any, *args: Any, **options: Any) -> Any:
    options = {"in_specs": [ROWS] * len(args), "out_specs": ROWS, "out_shape": X} | options
    return pl.pallas_call(body, **{"grid": (4,)} | options)(*args)


def double(x_ref: Any, y_ref: Any) -> None:
    y_ref[...] = 2 * x_ref[...]


def copy(x_ref: Any, y_ref: Any) -> None:
    y_ref[...] = x_ref[...]


def doubled(fn: Any, most: float = 1.01 * SIZE, **task: Any) -> str:
    return judge(fn, X, expected=lambda x: 2 * x, hbm_bytes=most, **task)


# --- right, however it is written -----------------------------------------------------------------


def pipelined(x: Any) -> Any:
    def body(x_ref: Any, y_ref: Any) -> None:
        specs = {"in_specs": [ROWS], "out_specs": [ROWS]}
        pltpu.emit_pipeline(double, grid=(4,), **specs)(x_ref, y_ref)

    return pl.pallas_call(body, in_specs=[HBM], out_specs=HBM, out_shape=X)(x)


def copied_by_hand(copies: Callable[[Callable[[], None], Any], None]) -> Any:
    """Return a kernel that calls `copies` with a function that fetches its block."""

    def fn(x: Any) -> Any:
        def body(x_ref: Any, y_ref: Any, block: Any, semaphore: Any) -> None:
            rows = pl.ds(pl.program_id(0) * 128, 128)

            def fetch() -> None:
                pltpu.sync_copy(x_ref.at[rows, :], block)

            copies(fetch, semaphore)
            y_ref[...] = 2 * block[...]

        return on_blocks(body, x, in_specs=[HBM], scratch_shapes=BUFFER)

    return fn


RIGHT = {
    "blocks": lambda x: on_blocks(double, x),
    "jitted": jax.jit(lambda x: on_blocks(double, x)),
    "interpreted": lambda x: on_blocks(double, x, interpret=True),
    "a pipeline": pipelined,
    "copies by hand": copied_by_hand(lambda fetch, _: fetch()),
    "under checkpoint": jax.checkpoint(lambda x: on_blocks(double, x)),
    "another shape outside": lambda x: on_blocks(double, x[None][0].reshape(512, 256))[None][0],
    "axes of any order": lambda x: on_blocks(
        double, x, compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",))
    ),
}


@pytest.mark.parametrize("fn", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_kernel_passes_however_it_is_written(fn: Any) -> None:
    assert doubled(fn).startswith("passes: 1.05 MB of 1.06 MB, but not compiled"), doubled(fn)


def test_a_row_of_an_array_is_a_reshape() -> None:
    line = pl.BlockSpec((1, 256), lambda i: (0, 0))

    def scaled(x: Any, s: Any) -> Any:
        def body(x_ref: Any, s_ref: Any, y_ref: Any) -> None:
            y_ref[...] = x_ref[...] * s_ref[...]

        return on_blocks(body, x, s[0][None], in_specs=[ROWS, line])

    task = {"expected": lambda x, s: x * s, "hbm_bytes": 1.01 * SIZE}
    assert judge(scaled, X, like((1, 256), F32), **task).startswith("passes")


# --- work, bytes and memory that would escape -----------------------------------------------------


def spilled(x: Any) -> Any:
    """Keep the rows in scratch in HBM, and fetch them from there."""

    def body(x_ref: Any, y_ref: Any, scratch: Any) -> None:
        pltpu.sync_copy(x_ref, scratch)
        pltpu.sync_copy(scratch, y_ref)
        y_ref[...] = 2 * y_ref[...]

    return on_blocks(body, x, scratch_shapes=[pl.ANY((128, 256), F32)])


def other_counter(fetch: Callable[[], None], _: Any) -> None:
    """Fetch eight times in a loop whose counter seems to go from 0 to 1."""

    def turn(count: Any) -> Any:
        fetch()
        return (count[1] + 1) // 8, count[1] + 1

    lax.while_loop(lambda count: count[0] < 1, turn, (0, 0))


def allocated(x: Any) -> Any:
    def body(x_ref: Any, y_ref: Any) -> None:
        def within(block: Any) -> None:
            pltpu.sync_copy(x_ref, block)
            block[...] = 2 * block[...]
            pltpu.sync_copy(block, y_ref)

        pl.run_scoped(within, pltpu.VMEM((512, 256), F32))

    return pl.pallas_call(body, in_specs=[HBM], out_specs=HBM, out_shape=X)(x)


def chosen_by_data(x: Any) -> Any:
    """Fetch again, or compute as many FLOPs as that has bytes: the data decide."""

    def body(x_ref: Any, y_ref: Any, block: Any, _: Any) -> None:
        rows = pl.ds(pl.program_id(0) * 128, 128)
        pltpu.sync_copy(x_ref.at[rows, :], block)

        def compute() -> None:
            block[...] = block[...] + 1 + 1 - 1 - 1

        def fetch() -> None:
            pltpu.sync_copy(x_ref.at[rows, :], block)

        lax.cond(block[0, 0] > 0, fetch, compute)
        y_ref[...] = 2 * block[...]

    return on_blocks(body, x, in_specs=[HBM], scratch_shapes=BUFFER)


def from_scalars(x: Any) -> Any:
    """Hold the whole array where scalars are prefetched to."""
    rows = pl.BlockSpec((128, 256), lambda i, _: (i, 0))
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(4,), in_specs=[], out_specs=rows
    )

    def body(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = 2 * x_ref[pl.ds(pl.program_id(0) * 128, 128), :]

    return pl.pallas_call(body, grid_spec=grid, out_shape=X)(x)


def of_another_machine(x: Any) -> Any:
    triton = pytest.importorskip("jax.experimental.pallas.triton")
    return on_blocks(double, x, compiler_params=triton.CompilerParams(num_warps=4))


@jax.custom_jvp
def twice(x: Any) -> Any:
    return 2 * x


twice.defjvp(lambda x, tangent: (2 * x[0], 2 * tangent[0]))


def on_the_host(x_ref: Any, y_ref: Any) -> None:
    y_ref[...] = jax.pure_callback(lambda x: 2 * np.asarray(x), like((128, 256), F32), x_ref[...])


def from_hbm(x_ref: Any, y_ref: Any) -> None:
    y_ref[...] = 2 * x_ref[pl.ds(pl.program_id(0) * 128, 128), :]


def read_as_int32(x_ref: Any, y_ref: Any) -> None:
    """Copy twice as many bytes as the elements seem to have."""

    def within(block: Any) -> None:
        rows = pl.ds(pl.program_id(0) * 64, 64)
        pltpu.sync_copy(x_ref.bitcast(jnp.int32).at[rows, :], block)
        y_ref[...] = 2 * pltpu.bitcast(block[...], BF16)

    pl.run_scoped(within, pltpu.VMEM((64, 256), jnp.int32))


ESCAPES: dict[str, tuple[Any, str]] = {
    "a wrapper": (lambda x: twice(on_blocks(copy, x)), "mul outside kernels"),
    "checkpoint": (lambda x: jax.checkpoint(lambda y: 2 * y)(on_blocks(copy, x)), "mul outside"),
    "a loop of kernels": (
        lambda x: lax.fori_loop(0, 2, lambda _, y: on_blocks(copy, y), x),
        "(scan|while) outside kernels",
    ),
    "a choice of kernels": (
        lambda x: lax.cond(True, lambda: on_blocks(double, x), lambda: x),
        "cond outside kernels",
    ),
    "a callback outside": (
        lambda x: jax.pure_callback(lambda y: 2 * np.asarray(y), X, on_blocks(copy, x)),
        "pure_callback outside kernels",
    ),
    "no kernel": (lambda x: x, "there is no kernel"),
    "a callback inside": (lambda x: on_blocks(on_the_host, x), "no TPU runs it: .*pure_callback"),
    "loads from HBM": (
        lambda x: on_blocks(from_hbm, x, in_specs=[HBM]),
        "no TPU runs it: Loads are only allowed on VMEM",
    ),
    "vectors of scalars": (from_scalars, "no TPU runs it: Can only load scalars from SMEM"),
    "a kernel of a GPU": (of_another_machine, "for another machine than a TPU"),
    "host memory": (
        lambda x: on_blocks(copy, on_blocks(double, x), in_specs=[HOST]),
        "arrays in host, whose traffic isn't counted",
    ),
    "scratch in HBM": (spilled, "2.1 MB cross HBM, 1.04 MB too many"),
    "a counter of another kind": (copied_by_hand(other_counter), "4.72 MB cross HBM"),
    "a branch of the data": (chosen_by_data, "data decide how many bytes it moves"),
    "half of the blocks": (
        lambda x: on_blocks(double, x, grid=(2,), input_output_aliases={0: 0}),
        "524 kB cross HBM, and arguments and results have 1.05 MB",
    ),
    "no step at all": (lambda x: on_blocks(double, x, grid=(0,)), "0 B cross HBM, and arguments"),
}


@pytest.mark.parametrize(("fn", "reason"), ESCAPES.values(), ids=ESCAPES.keys())
def test_no_work_and_no_byte_escapes(fn: Any, reason: str) -> None:
    assert re.match(f"refused: .*{reason}", doubled(fn)), doubled(fn)


def test_a_copy_counts_the_bytes_that_it_moves_as_another_type() -> None:
    half = like((512, 256), BF16)

    def fn(x: Any) -> Any:
        return on_blocks(read_as_int32, x, in_specs=[HBM], out_shape=half)

    said = judge(fn, half, expected=lambda x: 2 * x, hbm_bytes=0.45 * SIZE, least=0)
    assert said.startswith("refused: 524 kB cross HBM, 52.4 kB too many")


def test_a_kernel_says_by_how_much_it_takes_too_much_memory() -> None:
    taken = 4 * 128 * 256 * 4  # two buffers of both blocks
    assert doubled(RIGHT["blocks"], most=SIZE, vmem=taken).startswith("passes")
    assert judging.VMEM == 16 * 2**20  # what the compiler gives a kernel on a v5e
    for fn, has, too_much in (
        (RIGHT["blocks"], "524 kB", 2048),
        (pipelined, "524 kB", 2048),  # its buffers are allocated inside
        (allocated, "524 kB", 300_000),
    ):
        said = doubled(fn, vmem=taken - too_much)
        more = "2.05 kB" if too_much == 2048 else "300 kB"
        assert said == f"refused: a kernel takes {has} of VMEM, {more} more than allowed"


def test_scalars_have_a_memory_of_their_own() -> None:
    def fn(x: Any, words: int) -> Any:
        def body(x_ref: Any, y_ref: Any, _: Any) -> None:
            double(x_ref, y_ref)

        return on_blocks(body, x, scratch_shapes=[pltpu.SMEM((words,), jnp.int32)])

    task = judging._traced(lambda x: fn(x, 2**18), (X,), copy, [X], "v5e")
    assert judging._beyond(task, SIZE, SIZE, judging.VMEM) is None
    said = doubled(lambda x: fn(x, 2**18 + 250))
    assert said == "refused: a kernel takes 1.05 MB of SMEM, 1 kB more than allowed"


def test_of_two_kernels_the_larger_one_counts() -> None:
    whole = pl.BlockSpec((512, 256), lambda i: (i, 0))

    def both(x: Any) -> Any:
        large = on_blocks(copy, x, grid=(1,), in_specs=[whole], out_specs=whole)
        return on_blocks(double, large)

    for fn in (both, lambda x: both(on_blocks(copy, x))):
        said = doubled(fn, most=9 * SIZE, vmem=2e6)
        assert said == "refused: a kernel takes 2.1 MB of VMEM, 97.2 kB more than allowed"


# --- results that are wrong, or right by luck -----------------------------------------------------


def test_no_answer_can_be_stored() -> None:
    random = np.random.default_rng(0)  # what a notebook would draw
    x = jnp.asarray(random.standard_normal((512, 256)), F32)
    answer = 2 * x

    def stored(_: Any) -> Any:
        return on_blocks(copy, answer)

    def beside(x: Any) -> Any:
        on_blocks(copy, x)
        return answer

    def peeking(x: Any) -> Any:
        if isinstance(x, jax.core.Tracer):
            return on_blocks(copy, x)
        return 2 * x

    for fn in (stored, beside, peeking):
        said = judge(fn, x, expected=lambda x: 2 * x, hbm_bytes=1.01 * SIZE)
        assert said.startswith("refused: the result at")
    assert doubled(stored) != doubled(stored)  # other numbers in each call


def test_a_function_is_traced_once() -> None:
    calls = []

    def fn(x: Any) -> Any:
        calls.append(x)
        return on_blocks(double if len(calls) == 1 else copy, x)

    assert doubled(fn).startswith("passes")
    assert len(calls) == 1


def never_copied(x: Any) -> Any:
    def body(x_ref: Any, y_ref: Any, block: Any, semaphore: Any) -> None:
        rows = pl.ds(pl.program_id(0) * 128, 128)
        pltpu.make_async_copy(x_ref.at[rows, :], block, semaphore).start()
        y_ref[...] = 2 * block[...]

    return on_blocks(body, x, in_specs=[HBM], scratch_shapes=BUFFER)


def carried_along_a_parallel_axis(x: Any) -> Any:
    def body(x_ref: Any, y_ref: Any, before: Any) -> None:
        step = pl.program_id(0)
        y_ref[...] = jnp.where(step > before[0], 2, 0) * x_ref[...]
        before[0] = step

    parallel = pltpu.CompilerParams(dimension_semantics=("parallel",))
    scratch = [pltpu.SMEM((1,), jnp.int32)]
    return on_blocks(body, x, scratch_shapes=scratch, compiler_params=parallel)


def only_first_blocks(x_ref: Any, y_ref: Any) -> None:
    @pl.when(pl.program_id(0) < 3)
    def _() -> None:
        double(x_ref, y_ref)


WRONG: dict[str, tuple[Any, str]] = {
    "everywhere": (lambda x: on_blocks(copy, x), "the result at"),
    "a copy that nobody waited for": (never_copied, "the result at .* is nan"),
    "a block that isn't written": (lambda x: on_blocks(only_first_blocks, x), "the result at"),
    "a block beyond the array": (
        lambda x: on_blocks(double, x, grid=(5,)),
        "interpreted, it fails: .*Out-of-bounds",
    ),
    "an order that isn't promised": (carried_along_a_parallel_axis, "the result at"),
}


@pytest.mark.parametrize(("fn", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_result_is_refused(fn: Any, reason: str) -> None:
    assert re.match(f"refused: {reason}", doubled(fn, most=2 * SIZE)), doubled(fn, most=2 * SIZE)
    assert doubled(RIGHT["blocks"]).startswith("passes")  # and the next one isn't blamed for it


def test_a_sum_of_positive_numbers_shows_what_a_narrow_one_loses() -> None:
    """Of either sign, sums stay so small that a rounding to bf16 after every sixteen is allowed."""
    shape = like((512, 256), BF16)

    def body(x_ref: Any, y_ref: Any) -> None:
        x, total = x_ref[...].astype(F32), jnp.zeros((128, 1), F32)
        for at in range(0, 256, 16):
            total += jnp.sum(x[:, at : at + 16], 1, keepdims=True)
            total = total.astype(BF16).astype(F32)
        y_ref[...] = jnp.broadcast_to(total, x.shape).astype(BF16)

    def right(x: Any) -> Any:
        return jnp.broadcast_to(jnp.sum(x, 1, keepdims=True), x.shape)

    said = judge(
        lambda x: on_blocks(body, x, out_shape=shape), shape, expected=right, hbm_bytes=SIZE
    )
    assert said.startswith("refused: the result at"), said


def test_rows_of_zeros_are_drawn() -> None:
    def over_norm(least: float) -> Any:
        def fn(x: Any) -> Any:
            return x * lax.rsqrt(jnp.maximum(jnp.sum(x * x, 1, keepdims=True), least))

        return fn

    def body(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = over_norm(0.0)(x_ref[...])

    said = judge(lambda x: on_blocks(body, x), X, expected=over_norm(1e-30), hbm_bytes=1.01 * SIZE)
    assert re.fullmatch(r"refused: the result at \(\d+, \d+\) is nan, and should be -?0", said)


def test_a_block_that_is_summed_in_two_visits_is_refused() -> None:
    def fn(x: Any, w: Any) -> Any:
        def body(x_ref: Any, w_ref: Any, y_ref: Any) -> None:
            part = jnp.dot(x_ref[...], w_ref[...], precision="highest")
            y_ref[...] = jnp.where(pl.program_id(0) == 0, part, y_ref[...] + part)

        specs = {
            "in_specs": [
                pl.BlockSpec((128, 128), lambda k, i: (i, k)),
                pl.BlockSpec((128, 256), lambda k, i: (k, 0)),
            ],
            "out_specs": pl.BlockSpec((128, 256), lambda k, i: (i, 0)),
        }
        return pl.pallas_call(body, grid=(2, 4), **specs, out_shape=X)(x, w)

    said = judge(fn, X, like((256, 256), F32), expected=jnp.matmul, hbm_bytes=3 * SIZE)
    assert re.match("refused: interpreted, it fails: .*Revisited block", said), said


def quantised(x: Any) -> Any:
    step = jnp.abs(x).max(1, keepdims=True) / 127
    return jnp.round(x / jnp.where(step > 0, step, 1)).astype(jnp.int8), step


@pytest.mark.parametrize(
    ("rounded", "passes"),
    [
        (jnp.round, True),
        (lambda x: jnp.floor(x + 0.5), True),
        (jnp.trunc, False),
        (jnp.floor, False),
        (lambda x: jnp.minimum(jnp.round(x) + 1, 127), False),
        (lambda x: 2 * jnp.round(x / 2), False),
    ],
    ids=["even", "up", "truncated", "floor", "plus one", "even only"],
)
def test_whole_numbers_are_exact_but_for_ties(rounded: Any, passes: bool) -> None:
    def fn(x: Any) -> Any:
        def body(x_ref: Any, whole_ref: Any, step_ref: Any) -> None:
            step = jnp.abs(x_ref[...]).max(1, keepdims=True) / 127
            whole = rounded(x_ref[...] / jnp.where(step > 0, step, 1))
            whole_ref[...] = whole.astype(jnp.int8)
            step_ref[...] = step

        shapes = [like(X.shape, jnp.int8), like((512, 1), F32)]
        specs = [ROWS, pl.BlockSpec((128, 1), lambda i: (i, 0))]
        return on_blocks(body, x, out_specs=specs, out_shape=shapes)

    said = judge(fn, X, expected=quantised, hbm_bytes=SIZE)
    assert said.startswith("passes" if passes else "refused: result 1 at"), said


@pytest.mark.parametrize(
    ("added", "passes"),
    [
        (lambda x, y: x + y, True),
        (lambda x, y: (x.astype(F32) + y.astype(F32)).astype(BF16), True),
        (lambda x, y: x + jnp.where(jnp.abs(y) < 0.05, 0, y), False),
        (lambda x, y: jnp.where(jnp.abs(x + y) < 0.01, 0, x + y), False),
        (lambda x, y: x + y * BF16(1.05), False),
    ],
    ids=["bf16", "fp32", "small terms dropped", "small sums dropped", "a factor"],
)
def test_each_element_is_judged_by_its_own_scale(added: Any, passes: bool) -> None:
    shape = like((512, 256), BF16)

    def fn(x: Any, y: Any) -> Any:
        def body(x_ref: Any, y_ref: Any, z_ref: Any) -> None:
            z_ref[...] = added(x_ref[...], y_ref[...]).astype(BF16)

        return on_blocks(body, x, y, out_shape=shape)

    said = judge(fn, shape, shape, expected=jnp.add, hbm_bytes=SIZE)
    assert said.startswith("passes" if passes else "refused: the result at"), said


def test_a_float_may_be_off_by_two_roundings_and_six_times_what_it_moves() -> None:
    types = (BF16, F32, jnp.float16, jnp.float8_e4m3fn)
    assert [judging._rounding(t) for t in types] == [2**-8, 2**-16, 2**-11, 2**-4]
    task = SimpleNamespace(expected=lambda x: [x], results=[like((4,), BF16)])
    right = np.array([4.0, 4.0, -8.0, 0.0])
    answers = judging._Answers(task, [right])  # type: ignore
    # two arguments, over three rounds: root mean squares of 0.5 and 0.25, and of none
    answers.rounds = 3
    answers.squares = {at: [np.array([3 * r * r, 0, 0, 0])] for at, r in enumerate((0.5, 0.25))}
    assert answers.right[0].dtype == np.float64
    most = np.array([4 + 6 * 0.75 + 8 / 256, 4 + 8 / 256, -8 - 16 / 256, 2.0**-100])
    assert answers.wrong([right + 0.999 * (most - right)]) == (None, 0.0)
    for at in range(4):
        off = np.where(np.arange(4) == at, right + 1.001 * (most - right), right)
        said, share = answers.wrong([off])
        assert said is not None
        assert said.startswith(f"the result at ({at}) is {off[at]:.4g}, and should be")
        assert share == 0.25


def test_numbers_are_drawn_of_every_size_that_their_type_has() -> None:
    random = np.random.default_rng(0)
    drawn = [judging._drawn(like((9000,), dtype), random, False) for dtype in (jnp.int8, bool)]
    assert [(x.min(), x.max()) for x in drawn] == [(-128, 127), (False, True)]
    assert [x.dtype for x in drawn] == [np.int8, bool]
    positive = judging._drawn(like((4000, 5), F32), random, False)
    assert positive.min() > 0
    assert positive.std() == pytest.approx(np.sqrt(1 - 2 / np.pi), rel=0.03)
    mixed = judging._drawn(like((4000, 400), F32), random, True)
    sizes = np.round(np.log2(mixed.std(1)[mixed.std(1) > 0])).astype(int)
    assert [*np.unique(sizes)] == [-10, 0, 5]
    assert (mixed.std(1) == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert abs(mixed.mean()) < 0.1
    indices = np.array([3, 5])
    assert judging._drawn(indices, random, True) is indices  # wider whole numbers as they are


def running_sum(precision: str | None) -> Any:
    def fn(x: Any) -> Any:
        def body(x_ref: Any, y_ref: Any, before: Any) -> None:
            @pl.when(pl.program_id(0) == 0)
            def _() -> None:
                before[...] = jnp.zeros_like(before)

            lower = jnp.tril(jnp.ones((128, 128), F32))
            y_ref[...] = before[...] + jnp.dot(lower, x_ref[...], precision=precision)
            before[...] = y_ref[127:, :]

        return on_blocks(body, x, scratch_shapes=[pltpu.VMEM((1, 256), F32)])

    return fn


def test_fp32_is_multiplied_as_a_tpu_does() -> None:
    task: dict[str, Any] = {"expected": lambda x: jnp.cumsum(x, axis=0), "hbm_bytes": 1.01 * SIZE}
    assert judge(running_sum("highest"), X, **task).startswith("passes")
    assert judge(running_sum(None), X, **task).startswith("refused: the result at")


def test_other_sizes_count_too() -> None:
    def floored(x: Any) -> Any:
        return on_blocks(double, x, grid=(len(x) // 128,), out_shape=like(x.shape, F32))

    def ceiled(x: Any) -> Any:
        return on_blocks(double, x, grid=(pl.cdiv(len(x), 128),), out_shape=like(x.shape, F32))

    also = [[like((200, 256), F32)]]
    assert doubled(ceiled, also=also).startswith("passes")
    assert doubled(floored).startswith("passes")
    said = doubled(floored, also=also)
    assert "JAX can't trace" in doubled(RIGHT["another shape outside"], also=also)
    assert re.match(r"refused: with f32\[200,256\], the result at \(1[2-9]\d, \d+\) is nan", said)


def test_what_only_passes_between_two_kernels_is_too_much() -> None:
    """The last that writes a result has to, and the first that reads an argument."""
    said = doubled(lambda x: on_blocks(copy, on_blocks(double, x)))
    _, *blamed = [re.sub(r"s \S+:", "s:", line.strip()) for line in said.splitlines()]
    more = "524 kB, 524 kB more than needed"
    assert blamed == [f"kernel 2 reads: {more}", f"kernel 1 writes: {more}"]


# --- tasks that can't be judged -------------------------------------------------------------------


def test_a_task_that_cannot_be_judged_is_refused_by_name() -> None:
    with pytest.raises(BadType, match=r"expected has to be a function .* and this is ndarray"):
        judge(RIGHT["blocks"], X, expected=np.zeros((512, 256)), hbm_bytes=2e6)
    with pytest.raises(BadValue, match=r"hbm_bytes is 1 MB, and arguments and results have 1.05"):
        doubled(RIGHT["blocks"], most=1e6)
    with pytest.raises(BadValue, match="hbm_bytes must be a positive finite number"):
        doubled(RIGHT["blocks"], most=np.nan)
    with pytest.raises(BadValue, match=r"chip has to be a TPU.* got h100"):
        doubled(RIGHT["blocks"], chip="h100")
    with pytest.raises(BadValue, match="expected gives NaN"):
        judge(RIGHT["blocks"], X, expected=lambda x: jnp.log(-x), hbm_bytes=2e6)
    with pytest.raises(BadType, match="can't draw an argument"):
        judge(RIGHT["blocks"], like((512, 256), jnp.int32), expected=jnp.abs, hbm_bytes=2e6)


def test_what_the_compiler_alone_refuses() -> None:
    if missing := can_compile("v5e"):
        pytest.skip(missing)

    def reshaped(x: Any) -> Any:  # another layout in HBM: the compiler copies
        rows, wide = (pl.BlockSpec((128, n), lambda i: (i, 0)) for n in (1024, 4096))
        out = {"grid": (512,), "in_specs": [rows], "out_specs": rows, "out_shape": x}
        other = pl.pallas_call(double, **out)(x).reshape(16384, 4096)
        specs = {"grid": (128,), "in_specs": [wide], "out_specs": wide, "out_shape": other}
        return pl.pallas_call(copy, **specs)(other)

    large = like((65536, 1024), F32)  # more than the compiler keeps on the chip
    task: dict[str, Any] = {"expected": lambda x: 2 * x.reshape(16384, 4096), "hbm_bytes": 1.1e9}
    said = judge(reshaped, large, **task)
    assert re.match("refused: compiled for v5e, the program moves .* MB too many", said), said
    assert doubled(RIGHT["blocks"]) == "passes: 1.05 MB of 1.06 MB"
