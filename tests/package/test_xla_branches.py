"""Conditionals: the branches that run, where their condition is known; a range, where it isn't."""

from dataclasses import replace

import jax.numpy as jnp
import pytest
from compiled_programs import spec
from hlo_texts import program
from jax import lax

from roofline import xla
from roofline.testing.budget import Limit

N = 256
X = spec(N, N, dtype="float32")
PRODUCT = 2 * N**3


def dear(x):
    return jnp.tanh(x @ x)


def cheap(x):
    return 2 * x


def by_counter(x):
    return lax.fori_loop(0, 40, lambda i, x: lax.cond(i % 10 == 3, dear, cheap, x), x)


def by_slices(x):
    def step(x, first):
        return lax.cond(first, dear, cheap, x), None

    return lax.scan(step, x, jnp.arange(40) < 7)[0]


def by_two_counters(x):
    def inner(i, x):
        return lax.fori_loop(0, 5, lambda j, x: lax.cond(i + 2 * j == 6, dear, cheap, x), x)

    return lax.fori_loop(0, 8, inner, x)


def by_another_condition(x):
    """Of the 20 even turns, 10 are multiples of four."""

    def even(i, x):
        return lax.cond(i % 4 == 0, dear, cheap, x)

    return lax.fori_loop(
        0, 40, lambda i, x: lax.cond(i % 2 == 0, lambda x: even(i, x), cheap, x), x
    )


def by_a_choice_of_three(x):
    """An index beyond the last branch takes the last one."""
    return lax.fori_loop(0, 12, lambda i, x: lax.switch(i // 4, [cheap, dear, jnp.sin], x), x)


@pytest.mark.parametrize(
    ("fn", "products"),
    [
        (by_counter, 4),
        (by_slices, 7),
        (by_two_counters, sum(i + 2 * j == 6 for i in range(8) for j in range(5))),
        (by_another_condition, 10),
        (by_a_choice_of_three, 4),
    ],
)
def test_branches_count_as_often_as_a_known_condition_takes_them(fn, products):
    report = xla.analyze(fn, X)
    assert report.matrix_flops == products * PRODUCT
    assert (report.flops, report.hbm_bytes) == (report.most_flops, report.most_bytes)
    assert len(report.ends) == 1


def by_data(x, p):
    return lax.cond(p, dear, cheap, x)


def by_data_in_a_loop(x, p):
    return lax.fori_loop(0, 9, lambda _, x: by_data(x, p | (x[0, 0] > 0)), x)


@pytest.mark.parametrize(("fn", "times"), [(by_data, 1), (by_data_in_a_loop, 9)])
def test_data_leave_a_range_from_the_cheapest_branch_to_the_dearest(fn, times):
    report = xla.analyze(fn, X, spec(dtype="bool"))
    little, much = (xla.analyze(branch, X) for branch in (cheap, dear))
    assert report.matrix_flops == 0
    assert report.most_flops - report.flops == times * (much.flops - little.flops)
    assert report.most_bytes - report.hbm_bytes == times * (much.hbm_bytes - little.hbm_bytes)
    assert report.requested_flops is None
    [note] = [note for note in report.notes if note.startswith("conditional")]
    assert "data choose one of 2 branches" in note
    # whatever chip it is for: a bound is that of the cheapest branches
    on_chip, by_cheap, by_dear = (
        replace(each, target="v6e", platform="tpu") for each in (report, little, much)
    )
    around = on_chip.time_at_roof - times * by_cheap.time_at_roof
    assert 0 <= around < by_cheap.time_at_roof * 20
    assert on_chip.ends[-1].time_at_roof - around == pytest.approx(times * by_dear.time_at_roof)
    assert on_chip.time_at_most >= on_chip.ends[-1].time_at_roof > on_chip.time_at_roof
    assert on_chip.expected.low <= on_chip.expected.seconds < on_chip.expected.high
    assert on_chip.expected.high >= on_chip.ends[-1].expected.high


def test_a_branch_is_as_dear_as_its_own_dearest_branch():
    """One product, or as other data choose none or three."""

    def chosen(x, p, q):
        def none_or_three(x):
            return lax.cond(q, lambda x: dear(dear(dear(x))), cheap, x)

        return lax.cond(p, none_or_three, dear, x)

    report = xla.analyze(chosen, X, spec(dtype="bool"), spec(dtype="bool"))
    assert [end.matrix_flops for end in report.ends] == [0, 3 * PRODUCT]


@pytest.mark.parametrize(
    ("metric", "limit", "holds"),
    [
        ("flops", "<= 20 GFLOP", True),
        ("flops", "<= 10 GFLOP", False),
        ("seconds", "<= 50 us", True),
        ("seconds", "<= 30 us", False),
        ("seconds", ">= 20 us", True),
    ],
)
def test_limits_hold_at_both_ends(metric, limit, holds):
    report = xla.analyze(by_data, spec(2048, 2048, dtype="float32"), spec(dtype="bool"))
    on_a_chip = replace(report, target="v6e", platform="tpu")
    assert (Limit.parse(metric, limit).broken(on_a_chip) is None) == holds


def branches(index, dtype="s32[]", named="branch_computations={%none, %one, %two}"):
    """Return the ledger of a choice between nothing, one tanh, and two of them."""
    bodies = ("bitcast(%p)", "tanh(%p)", "tanh(%y)")
    middle = "  %y = f32[64]{0} tanh(%p)\n"
    texts = [
        f"%{name} (p: f32[64]) -> f32[64] {{\n  %p = f32[64]{{0}} parameter(0)\n"
        f"{middle if name == 'two' else ''}  ROOT %{name}_y = f32[64]{{0}} {body}\n}}"
        for name, body in zip(("none", "one", "two"), bodies, strict=True)
    ]
    arguments = ", ".join(["%x"] * named.count("%"))
    return xla.kernels(
        program(
            f"  %i = {dtype} {index}\n  %x = f32[64]{{0}} parameter(1)\n"
            f"  ROOT %c = f32[64]{{0}} conditional(%i, {arguments}), {named}",
            *texts,
        )
    )


def test_a_constant_chooses_its_branch():
    two = "true_computation=%one, false_computation=%none"
    for index, dtype, named, names in (
        ("constant(0)", "s32[]", None, []),
        ("constant(1)", "s32[]", None, ["one_y"]),
        ("constant(2)", "s32[]", None, ["y", "two_y"]),
        ("constant(-1)", "s32[]", None, ["y", "two_y"]),  # whatever isn't there is the last
        ("constant(9)", "s32[]", None, ["y", "two_y"]),
        ("constant(true)", "pred[]", two, ["one_y"]),
        ("constant(false)", "pred[]", two, []),
    ):
        ledger = branches(index, dtype, *([named] if named else []))
        assert [row.name for row in ledger.rows] == names, index
        assert ledger.notes == ()


ASYNC = """
%slice (p: pred[4], n: s32[]) -> pred[1] {
  %p = pred[4]{0} parameter(0)
  %n = s32[] parameter(1)
  ROOT %s = pred[1]{0} dynamic-slice(%p, %n), dynamic_slice_sizes={1}
}
%one (x: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  ROOT %tanh = f32[64]{0} tanh(%x)
}
%none (x: f32[64]) -> f32[64] {
  ROOT %x = f32[64]{0} parameter(0)
}
%body (c: (s32[], f32[64], pred[4])) -> (s32[], f32[64], pred[4]) {
  %c = (s32[], f32[64]{0}, pred[4]{0}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %x = f32[64]{0} get-tuple-element(%c), index=1
  %all = pred[4]{0} get-tuple-element(%c), index=2
  %begun = ((pred[4]{0}, s32[]), pred[1]{0}, u32[]) START(%all, %n), kind=kLoop, calls=%slice
  %first = s32[] constant(1)
  %next = s32[] add(%n, %first)
  %done = pred[1]{0} DONE(%begun)
  %if = pred[] bitcast(%done)
  %y = f32[64]{0} conditional(%if, %x, %x), true_computation=%one, false_computation=%none
  ROOT %t = (s32[], f32[64]{0}, pred[4]{0}) tuple(%next, %y, %all)
}
%again (c: (s32[], f32[64], pred[4])) -> pred[] {
  %c = (s32[], f32[64]{0}, pred[4]{0}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %end = s32[] constant(4)
  ROOT %less = pred[] compare(%n, %end), direction=LT
}"""


@pytest.mark.parametrize("wrapper", ["fusion", "async"])
def test_a_condition_is_known_behind_a_slice_that_runs_beside_others(wrapper):
    """As XLA for GPUs takes what a scan gives each of its turns."""
    text = (
        program(
            "  %zero = s32[] constant(0)\n  %x = f32[64]{0} parameter(0)\n"
            "  %p = pred[4]{0} constant({true, false, true, true})\n"
            "  %c = (s32[], f32[64]{0}, pred[4]{0}) tuple(%zero, %x, %p)\n"
            "  ROOT %w = (s32[], f32[64]{0}, pred[4]{0}) while(%c), condition=%again, body=%body",
            ASYNC,
        )
        .replace("START", f"{wrapper}-start")
        .replace("DONE", f"{wrapper}-done")
    )
    rows = xla.kernels(text, "gpu").rows
    assert [(row.launches, row.dearest) for row in rows if row.name == "tanh"] == [(3, None)]


def test_every_branch_has_rows_where_data_choose():
    ledger = branches("parameter(0)")
    assert [(row.name, row.launches, row.dearest) for row in ledger.rows] == [
        ("one_y", 0, None),
        ("y", 0, 1),
        ("two_y", 0, 1),
    ]
    [note] = ledger.notes
    assert "at least those of the cheapest, none, and at most those of the dearest, two" in note


def test_a_loop_without_an_end_in_one_branch_leaves_all_open():
    def until(x):
        return lax.while_loop(lambda x: x.sum() < 9, jnp.tanh, x)

    report = xla.analyze(lambda x, p: lax.cond(p, until, cheap, x), X, spec(dtype="bool"))
    assert report.at_least
    assert report.most_flops == report.most_bytes == float("inf")
    assert report.flops == xla.analyze(cheap, X).flops
