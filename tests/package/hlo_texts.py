"""HLO for the tests of its reader: text that XLA printed (data/hlo), and small programs by hand."""

from pathlib import Path

from roofline import xla
from roofline.xla.hlo import read_shape

FIXTURES = sorted((Path(__file__).resolve().parent / "data" / "hlo").glob("*.hlo"))

# a computation that many instructions apply
ADD = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}"""
# a buffer of which a slice is needed
BIG = "  %x = f32[1000,64]{1,0} parameter(0)\n  %i = s32[] parameter(1)"
# parameters of a fusion that updates a buffer
UPDATE = (
    "  %p = f32[1000,64]{1,0} parameter(0)\n  %u = f32[1,64]{1,0} parameter(1)\n"
    "  %i = s32[] parameter(2)\n  %z = s32[] constant(0)\n"
)


def program(body, *others):
    """Return a module whose entry has these lines; others are whole computations."""
    return "\n".join(["HloModule test", *others, "ENTRY %main () -> f32[] {", body, "}"])


def by_hand(name):
    """Return the programs of a file of tests/data, each with what was worked out of it."""
    text = (Path(__file__).resolve().parents[1] / "data" / name).read_text("utf-8")
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = [tuple(block.strip().split("\n=> ")) for block in kept.strip().split("\n\n")]
    assert len(found) > 10
    return found


def lines_of(text, *others):
    """Return a program of these lines, of which the last is its result."""
    *before, last = text.splitlines()
    return program("\n".join([*(f"  {line}" for line in before), f"  ROOT {last}"]), *others)


def listed(numbers):
    """Return numbers by name as the files of tests/data have them."""
    return " ".join(f"{name}:{number:.10g}" for name, number in numbers.items()) or "-"


def only_row(text, platform="tpu"):
    """Return the only kernel of a program."""
    (row,) = xla.kernels(text, platform).rows
    return row


def fused(inner, parameters, operands, result="f32[64]{0}"):
    """Return a program of one fusion, whose computation has these lines."""
    computation = f"%inner (p: f32[]) -> f32[] {{\n{inner}\n}}"
    outer = f"{parameters}\n  ROOT %f = {result} fusion({operands}), kind=kLoop, calls=%inner"
    return program(outer, ADD, computation)


def behind_a_tile(says):
    """Return an update of what a fusion inside makes of the buffer, with this attribute."""
    wide = "f32[1000,64]{1,0:T(8,128)}"
    tall = "f32[1000,64]{1,0:T(16,128)}"
    tile = f"%tile () -> f32[] {{\n  %q = {tall} parameter(0)\n  ROOT %o = {wide} copy(%q)\n}}"
    return fused(
        f"{UPDATE}  %g = {wide} fusion(%p), kind=kLoop{says}, calls=%tile\n"
        f"  ROOT %d = {tall} dynamic-update-slice(%g, %u, %i, %z)",
        f"  %x = {tall} parameter(0)\n  %v = f32[1,64]{{1,0}} parameter(1)\n"
        "  %j = s32[] parameter(2)",
        "%x, %v, %j",
        tall,
    ).replace("%inner (", f"{tile}\n\n%inner (", 1)


def shape(text):
    """Return the shape that all of a text is."""
    whole, end = read_shape(text)
    assert end == len(text)
    return whole


def dot():
    """Return a program of one product: 4 × [8, 32] · [32, 16]."""
    return program(
        "  %a = f32[4,8,32]{2,1,0} parameter(0)\n  %b = f32[4,32,16]{2,1,0} parameter(1)\n"
        "  ROOT %y = f32[4,8,16]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
