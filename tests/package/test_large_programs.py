"""Programs that made an analysis fail, or take longer than in proportion to their size."""

import time

import jax.numpy as jnp
import pytest
from compiled_programs import spec
from compiled_reports import needs
from hlo_texts import program

import roofline
from roofline.xla import analysis
from roofline.xla.compiler import CompilerOutput

X = spec(256, 512, dtype="float32")
LABELS = spec(256, dtype="int32")


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda x: jnp.argmax(x, -1).astype("float32").sum(), (X,)),
        (lambda x, labels: (jnp.argmax(x, -1) == labels).mean(), (X, LABELS)),
        (lambda x: (x - x.min(-1, keepdims=True)).argmin(-1) * 2, (X,)),
    ],
)
def test_a_reduction_of_several_arrays_is_explained(fn, args):
    needs("v6e")
    why = roofline.explain(fn, *args, chip="v6e", progress=False)
    assert why.rows


def doubling(x, a, b):
    """Return a choice by what has 2³⁰ paths back to its argument."""
    for _ in range(30):
        x = x * jnp.float32(1.5) + x
    return jnp.where(x > 0, a, b)


def test_paths_are_not_counted_one_by_one():
    needs("v6e")
    assert roofline.explain(doubling, X, X, X, chip="v6e", progress=False).rows


# --- in proportion to the program -----------------------------------------------------------------

WIDE = "f32[1024,64]{1,0}"


def chain(count, name="k"):
    """Return instructions of which each uses the one before, twice, and the name of the last."""
    lines, last = [], "x"
    for n in range(count):
        opcode = ("add", "multiply", "subtract")[n % 3]
        lines.append(f"  %{name}{n} = {WIDE} {opcode}(%{last}, %{last})")
        last = f"{name}{n}"
    return lines, last


def as_root(lines):
    return "\n".join([*lines[:-1], lines[-1].replace("  %", "  ROOT %", 1)])


PARAMETER = f"  %x = {WIDE} parameter(0)\n"


def one_fusion(count):
    inner = f"%inner () -> f32[] {{\n{PARAMETER}{as_root(chain(count)[0])}\n}}"
    return program(f"{PARAMETER}  ROOT %f = {WIDE} fusion(%x), kind=kLoop, calls=%inner", inner)


def many_fusions(count):
    inner, outer = [], []
    for n in range(count // 10):
        body = as_root(chain(8, f"i{n}_")[0])
        inner.append(f"%inner{n} () -> f32[] {{\n{PARAMETER}{body}\n}}")
        before = f"f{n - 1}" if n else "x"
        outer.append(f"  %f{n} = {WIDE} fusion(%{before}), kind=kLoop, calls=%inner{n}")
    return program(PARAMETER + as_root(outer), *inner)


def a_loop(count):
    state = f"(s32[], {WIDE})"
    lines, last = chain(count)
    taken = f"  %t = {state} parameter(0)\n  %i = s32[] get-tuple-element(%t), index=0\n"
    return program(
        f"{PARAMETER}  %z = s32[] constant(0)\n  %t = {state} tuple(%z, %x)\n"
        f"  %w = {state} while(%t), condition=%cond, body=%body\n"
        f"  ROOT %y = {WIDE} get-tuple-element(%w), index=1",
        f"%cond () -> pred[] {{\n{taken}  %n = s32[] constant(9)\n"
        "  ROOT %c = pred[] compare(%i, %n), direction=LT\n}",
        f"%body () -> {state} {{\n{taken}  %x = {WIDE} get-tuple-element(%t), index=1\n"
        "  %one = s32[] constant(1)\n  %j = s32[] add(%i, %one)\n"
        + "\n".join(lines)
        + f"\n  ROOT %r = {state} tuple(%j, %{last})\n}}",
    )


@pytest.mark.slow
@pytest.mark.parametrize("ask", [roofline.analyze, roofline.explain])
@pytest.mark.parametrize("shape", [one_fusion, many_fusions, a_loop])
def test_an_analysis_takes_time_in_proportion_to_the_program(ask, shape, monkeypatch):
    """Of 10,000 instructions, against a tenth of them; no compiler makes these."""
    needs("v6e")
    seconds = []
    for count in (1_000, 10_000):
        output = CompilerOutput(shape(count))
        monkeypatch.setattr(analysis, "compile_program", lambda _, output=output: output)
        begun = time.process_time()
        ask(jnp.tanh, spec(1024, 64), chip="v6e").describe()
        seconds.append(time.process_time() - begun)
    assert seconds[1] < 30 * (seconds[0] + 0.1), seconds  # in proportion: 10 times, squared: 100
