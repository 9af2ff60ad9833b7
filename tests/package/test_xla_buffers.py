"""What fills a device's memory: the buffers that are alive at the peak, with their lines."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import spec
from compiled_reports import needs
from hlo_texts import program

from roofline.xla import DoesNotFit, analyze
from roofline.xla.buffers import Buffer, buffers_at_peak, listing
from roofline.xla.hlo import parse
from roofline.xla.metadata import SourceLine
from tools import programs

LAYERS, WIDTH, VOCABULARY = 4, 512, 32_000
WEIGHTS, TABLE = 2 * LAYERS * WIDTH**2, 2 * WIDTH * VOCABULARY


def line_of(text):
    """Return the line of this file that begins with a text."""
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip().startswith(text))


def loss(weights, table, x):
    def layer(h, w):
        return jnp.tanh(h @ w), None

    h, _ = jax.lax.scan(layer, x, weights)
    logits = jnp.matmul(h, table, preferred_element_type=jnp.float32)
    return jax.nn.logsumexp(logits, -1).mean()


def step(weights, table, x):
    found = jax.grad(loss, (0, 1))(weights, table, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, (weights, table), found)


def arguments(tokens):
    return spec(LAYERS, WIDTH, WIDTH), spec(WIDTH, VOCABULARY), spec(tokens, WIDTH)


def test_planted_buffers_have_their_bytes_and_lines():
    needs("v5e")
    kept, given = (
        analyze(step, *arguments(8192), chip="v5e", donate_argnums=donated).buffers
        for donated in (None, (0, 1))
    )
    largest = kept[0]
    assert (largest.shape, largest.kind) == (f"f32[8192,{VOCABULARY}]", "temporary")
    assert largest.bytes == 4 * 8192 * VOCABULARY
    moved = largest.source.line - line_of("logits =")  # since the program was kept
    saved = [b for b in kept if b.shape == f"bf16[{LAYERS},8192,{WIDTH}]"]
    assert sum(b.bytes for b in saved) >= 2 * LAYERS * 8192 * WIDTH
    lines = {b.source.line - moved for b in saved if b.source}
    assert lines <= {line_of("return jnp.t"), line_of("h, _")}
    table = {b.kind: b for b in kept if b.shape == f"bf16[{WIDTH},{VOCABULARY}]"}
    assert table["argument"].role == "table"
    assert table["result"].bytes == TABLE
    donated = sum(b.bytes for b in kept) - sum(b.bytes for b in given)
    assert donated == pytest.approx(WEIGHTS + TABLE, rel=0.01)


def test_what_does_not_fit_says_what_fills_it():
    needs("v5e")
    tokens = 262_144
    with pytest.raises(DoesNotFit) as caught:
        analyze(step, *arguments(tokens), chip="v5e")
    error = caught.value
    largest = error.buffers[0]
    assert largest.bytes == 4 * tokens * VOCABULARY
    assert f"f32[{tokens},{VOCABULARY}]" in str(error)
    assert f"test_xla_buffers.py:{line_of('logits =')}" in str(error)
    assert sum(b.bytes for b in error.buffers) == pytest.approx(error.needed, rel=0.01)


def test_programs_need_what_is_alive_at_their_peak():
    """By the compiler's own allocation, for nine tenths of what the tests compile."""
    near = []
    for entry in programs.kept().values():
        memory = programs.program_of(entry).memory
        alive = sum(b.bytes for b in buffers_at_peak(parse(entry["text"]), "tpu"))
        near.append(abs(alive / max(memory.total - memory.code, 1) - 1) < 0.01)
    assert not near or sum(near) > 0.88 * len(near)


# --- programs by hand -----------------------------------------------------------------------------

SLICES = """  a = bf16[100,64] parameter(0), metadata={op_name="weights"}
  q = f32[70,30] parameter(1), metadata={op_name="state[\\'m\\']"}
  t = f32[100,64] convert(a)
  u = f32[100,64] sine(t), metadata={op_name="jit(f)/sin" source_file="/me/model.py" source_line=7}
  d = f32[100,30] slice(u), slice={[0:100], [0:30]}
  e = f32[100,30] slice(u), slice={[0:100], [34:64]}
  m = f32[100,30] multiply(d, e)
  k = f32[5] constant({1, 2, 3, 4, 5})
  ROOT r = f32[70,30] slice(m), slice={[3:73], [0:30]}"""
TILED, STACK = "f32[90,11]{1,0:T(8,128)}", "f32[7,90,11]{2,1,0}"
STATE = f"(s32[], {TILED}, {STACK})"
LOOP = f"""  x = {TILED} parameter(0)
  s = {STACK} parameter(1)
  i = s32[] constant(0)
  c = {TILED} copy(x)
  v = {TILED.replace(")}", ")S(1)}")} copy(c)
  t = {STATE} tuple(i, c, s)
  w = {STATE} while(t), condition=%cond, body=%body
  ROOT y = {TILED} get-tuple-element(w), index=1"""
COND = f"""%cond (t: {STATE}) -> pred[] {{
  t = {STATE} parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(7)
  ROOT q = pred[] compare(i, n), direction=LT
}}"""
BODY = f"""%body (t: {STATE}) -> {STATE} {{
  t = {STATE} parameter(0)
  i = s32[] get-tuple-element(t), index=0
  o = s32[] constant(1)
  j = s32[] add(i, o)
  h = {TILED} get-tuple-element(t), index=1
  z = {STACK} get-tuple-element(t), index=2
  g = f32[1,90,11] dynamic-slice(z, i, o, o), dynamic_slice_sizes={{1,90,11}}
  m = {TILED} fusion(h, g), kind=kOutput, calls=%less
  ROOT r = {STATE} tuple(j, m, z)
}}"""
LESS = f"%less (h: f32[]) -> f32[] {{\n  h = {TILED} parameter(0)\n  ROOT n = {TILED} negate(h)\n}}"
AWAITED = """  x = f32[1000]{0} parameter(0)
  s = (f32[1000]{0:S(1)}, f32[1000]{0}, u32[]{:S(2)}) copy-start(x)
  d = f32[1000]{0:S(1)} copy-done(s)
  n = f32[1000]{0} negate(d)
  g = (f32[1000]{0}, f32[4000]{0}) all-gather-start(n), dimensions={0}, replica_groups={{0,1,2,3}}
  q = f32[4000]{0} all-gather-done(g)
  ROOT r = f32[4000]{0} sine(q)"""
SINE = SourceLine("me/model.py", 7)
ALIVE = [  # while the second slice is made
    Buffer("f32[100,64]", 25_600, "temporary", "sine", SINE),
    Buffer("f32[100,30]", 2 * 12_000, "temporary", "slice", count=2),
    Buffer("bf16[100,64]", 12_800, "argument", "weights"),
    Buffer("f32[70,30]", 8400, "argument", "state['m']"),
    Buffer("f32[70,30]", 8400, "result", "slice"),
    Buffer("f32[5]", 20, "constant", "constant"),
]


@pytest.mark.parametrize(
    ("text", "alive"),
    [
        (program(SLICES), ALIVE),
        (  # the result has the memory of an argument
            program(SLICES).replace(
                "HloModule test", "HloModule t, input_output_alias={ {}: (1, {}, may-alias) }"
            ),
            ALIVE[:4] + ALIVE[5:],
        ),
        (  # at the end of a turn: 96 × 128 numbers, what the loop carries twice
            program(LOOP, COND, BODY, LESS),
            [
                Buffer("f32[90,11]", 49_152, "argument", "number 0"),
                Buffer("f32[90,11]", 49_152, "result", "negate"),
                Buffer("f32[7,90,11]", 27_720, "argument", "number 1"),
                Buffer("f32[1,90,11]", 3960, "temporary", "slice"),
                Buffer("s32[]", 12, "constant", "constant", count=3),
            ],
        ),
        (  # a gather's operand until it is done
            program(AWAITED),
            [
                Buffer("f32[4000]", 16_000, "result", "all-gather"),
                Buffer("f32[1000]", 4000, "argument", "number 0"),
                Buffer("f32[1000]", 4000, "temporary", "negate"),
            ],
        ),
    ],
)
def test_what_is_alive_at_the_peak(text, alive):
    assert list(buffers_at_peak(parse(text), "tpu")) == alive


def test_a_listing_has_the_largest_ten():
    many = [*ALIVE[:2], *(Buffer("f32[9]", 500 - n, "temporary", "add") for n in range(11))]
    first, sine, pair, *rest, last = listing(many).splitlines()
    assert (first, last) == ("55 kB are alive at its peak:", "  1.47 kB  in smaller ones")
    assert sine == "  25.6 kB  1 × f32[100,64]  temporary: sine (me/model.py:7)"
    assert (pair, len(rest)) == ("  24 kB  2 × f32[100,30]  temporary: slice", 8)
    assert "smaller" not in listing(many[:10])
