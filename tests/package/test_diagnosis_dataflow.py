"""What detectors claim of small programs, worked out by hand."""

import re
from dataclasses import replace

import pytest
from hlo_texts import ADD, by_hand, fused

from roofline.diagnosis.ceilings import Ceilings, Roofs
from roofline.diagnosis.findings import again, kernels, moved, small, vain, wide
from roofline.diagnosis.flow import Flow, Kept, largest
from roofline.diagnosis.modelled import modelled_case
from roofline.diagnosis.program import Program
from roofline.xla.hlo import parse

ROOFS = Ceilings(measured=Roofs(reached={"fp32": 1e13, "bf16": 2e13, "hbm": 1e12, "vector": 1e13}))
ROOMS = again, kernels, moved, small, vain, wide
DETECTORS = {name: one for room in ROOMS for name, one in vars(room).items()}
HEADERS = {
    "devices": "num_partitions=4",
    "donated": "input_output_alias={ {}: (0, {}, may-alias) }",
}
LESS = """%less (a: f32[], b: f32[]) -> pred[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}"""
ENTRY = """HloModule test
ENTRY %main () -> f32[] {
LINES
}"""
TURNS = """HloModule test
%more (t: T) -> pred[] {
  t = T parameter(0)
  ROOT p = pred[] custom-call(t), custom_call_target="ask"
}
%turn (t: T) -> T {
  t = T parameter(0)
  i = s32[] get-tuple-element(t), index=0
  c = f32[32,128] get-tuple-element(t), index=1
  x = f32[7,32,128] get-tuple-element(t), index=2
  y = f32[7,32,128] get-tuple-element(t), index=3
  z = s32[] constant(0)
  one = s32[] constant(1)
  j = s32[] add(i, one)
LINES
  ROOT u = T tuple(j, CARRIED)
}
ENTRY %main () -> f32[7,32,128] {
  c = f32[32,128] parameter(0)
  x = f32[7,32,128] parameter(1)
  y = f32[7,32,128] parameter(2)
  n = s32[] parameter(3)
BEFORE
  t = T tuple(n, GIVEN)
  w = T while(t), condition=%more, body=%turn, backend_config={"known_trip_count":{"n":"7"}}
  ROOT o = f32[7,32,128] get-tuple-element(w), index=3
}"""
FUSION = re.compile(r"^(  .*?(\w+) = .*? fusion\((.*?)\))(.*)\n((?:   .*\n)+)", re.MULTILINE)


def indented(lines: str, last: str = "") -> str:
    """Return lines with two more spaces, and a word before the last instruction."""
    *others, result = re.split(r"\n(?! )", lines)
    return re.sub("^", "  ", "\n".join([*others, last + result]), flags=re.MULTILINE)


def spelled(lines: str, how: list[str]) -> str:
    """Return the HLO of a block: lines of an entry, or what a loop is given and does in a turn."""
    if "loop" in how:
        turn = lines.rpartition("---\n")[2]
        before, _, given = lines.removesuffix(turn).removesuffix("\n---\n").rpartition("\n")
        body, _, carried = turn.rpartition("\n")
        text = TURNS.replace("LINES", indented(body))
        text = text.replace("BEFORE", indented(before)).replace("GIVEN", given or "c, x, y")
        text = text.replace("CARRIED", carried)
    else:
        text = ENTRY.replace("LINES", indented(lines, "ROOT "))
    text = re.sub(r"\bT\b", "(s32[], f32[32,128], f32[7,32,128], f32[7,32,128])", text)
    text = re.sub(r" @(\S+)", r', metadata={op_name="\1" source_file="\1.py" source_line=3}', text)
    inside, kinds = [ADD, LESS], dict(re.findall(r"(\w+) = (\S+)", text))
    for _, name, operands, _, inner in FUSION.findall(text):
        given = [
            f"  {operand} = {kinds[operand]} parameter({number})"
            for number, operand in enumerate(operands.split(", "))
        ]
        body = indented(inner.replace("    ", "").rstrip(), "ROOT ")
        inside.append("\n".join([f"%in_{name} () -> f32[] {{", *given, body, "}"]))
    text = FUSION.sub(r"\1, kind=kLoop, calls=%in_\2\4\n", text)
    return text.replace("\n", "\n".join(["", *inside, ""]), 1)


@pytest.mark.parametrize(("block", "claims"), [*by_hand("findings.txt"), *by_hand("kernels.txt")])
def test_what_is_claimed_of_small_programs(block: str, claims: str) -> None:
    """Causes, shares of kernels' times, evidence, lines of code and remedies."""
    asked, _, lines = block.partition("\n")
    lines = re.sub(
        r"^( *)(.*)", lambda m: m[1] + m[2].replace("; ", f"\n{m[1]}"), lines, flags=re.M
    )
    name, platform, *how = asked.split()
    lines, _, written = lines.partition("\nwritten\n")
    text = spelled(lines, how)
    written = spelled(written, []) if written else ""
    for word in how:
        text = text.replace("HloModule test", f"HloModule test, {HEADERS.get(word, '')}")
        text = text.replace("32,128", "8192,1024") if word == "large" else text
    case = modelled_case(Program(text, platform, written=written), ROOFS)
    if "slow" in how:
        slow = tuple(replace(row, seconds=10 * row.seconds) for row in case.rows)
        case = replace(case, rows=slow, measured=True)
    found = []
    for claim in DETECTORS[name](case):
        parts = [f"{row.name} {seconds / row.seconds:.3g}" for row, seconds in claim.parts]
        told = f"{claim.cause}{'' if claim.known else '?'} {', '.join(parts)}: {claim.evidence}"
        told += f" @{claim.source}" if claim.source else ""
        found.append(told + (f" -> {claim.remedy}" if claim.remedy else ""))
    assert "\n".join(found or ["-"]) == claims.strip()


SAME = "copy transpose reshape bitcast convert reverse slice dynamic-slice"
MADE = """  zero = f32[] constant(0)
  i = s32[] constant(0)
  new = f32[64,8] tanh(%x)
  few = f32[16,8] tanh(%y)
  xs = f32[128,8] pad(%x, zero), padding=0_64x0_0
  ys = f32[128,8] pad(%y, zero), padding=64_48x0_0
  views = f32[128,8] bitcast(ys)
  sums = f32[128,8] add(xs, ys)
  rest = f32[128,8] pad(%y, zero), padding=112_0x0_0
  many = f32[128,8] or(sums, rest)
  shifted = f32[128,8] exponential(xs)
  mixed = f32[128,8] add(ys, shifted)
  fews = f32[64,8] pad(few, zero), padding=0_48x0_0
  rows = s32[64,8] iota(), iota_dimension=0
  sixteen = s32[] constant(16)
  limit = s32[64,8] broadcast(sixteen), dimensions={}
  m = pred[64,8] compare(rows, limit), direction=LT
  both = pred[64,8] and(m, %p)
  either = pred[64,8] or(m, %p)
  one = pred[] constant(true)"""
GIVEN = """  x = f32[64,8] parameter(0)
  y = f32[16,8] parameter(1)
  p = pred[64,8] parameter(2)"""


@pytest.mark.parametrize(
    ("value", "share"),
    [
        *(
            (f"{op}(%x, i, i), slice={{[0:64], [0:8]}}, dimensions={{0,1}}", 1)
            for op in SAME.split()
        ),
        ("reduce-precision(%x), exponent_bits=5, mantissa_bits=3", 1),
        ("copy(new)", 0),
        ("negate(%x)", 0),
        ("[80,8] concatenate(%x, few), dimensions={0}", 64 / 80),
        ("[128,8] pad(%x, zero), padding=0_64x0_0", 1 / 2),
        ("[128,8] pad(new, zero), padding=0_64x0_0", 0),
        ("[8,8] pad(%x, zero), padding=0_-56x0_0", 1),
        ("dynamic-update-slice(%x, few, i, i)", 3 / 4),
        ("dynamic-update-slice(new, %y, i, i)", 1 / 4),
        ("[128,8] add(xs, views)", 5 / 8),
        ("[128,8] or(rest, views)", 2 / 8),
        ("[128,8] subtract(xs, many)", 1),
        ("[128,8] add(xs, mixed)", 0),
        ("[128,8] maximum(new, xs)", 0),
        ("add(%x, fews)", 3 / 4),
        ("subtract(fews, %x)", 3 / 4),
        ("maximum(%x, fews)", 3 / 4),
        ("or(fews, %x)", 3 / 4),
        ("multiply(%x, fews)", 0),
        ("select(m, %x, new)", 1 / 4),
        ("select(m, new, %x)", 3 / 4),
        ("select(%p, %x, %x)", 0),  # data choose between two arrays
        ("select(both, new, %x)", 3 / 4),
        ("select(either, %x, new)", 1 / 4),
        ("select(one, %x, %x)", 0),  # a whole array or the other
    ],
)
def test_the_share_of_a_value_that_a_kernel_takes_unchanged(value: str, share: float) -> None:
    value = value if value.startswith("[") else f"[64,8] {value}"
    flow = Flow(parse(fused(f"{GIVEN}\n{MADE}\n  ROOT r = f32{value}", GIVEN, "%x, %y, %p")))
    assert moved.moved_share(flow, flow.graph.results[0], "f") == pytest.approx(share)


@pytest.mark.parametrize(
    ("sort", "other", "inside"),
    [
        ("jit(f)/jit(sort)/sort", "jit(f)/jit(sort)/neg", True),
        ("jit(f)/jit(sort)/sort", "jit(f)/jit(sort)/jit(clip)/neg", True),
        ("jit(f)/jit(sort)/sort", "jit(f)/jit(g)/neg", False),
        ("jit(f)/jit(g)/while/jit(sort)/sort", "jit(f)/jit(g)/while/neg", False),
        ("jit(f)/sort", "jit(f)/neg", False),  # of the reader's own function
        ("jit(main)/jit(f)/sort", "jit(main)/jit(f)/neg", False),
    ],
)
def test_what_is_in_a_library_s_call(sort: str, other: str, inside: bool) -> None:
    text = f"""x = f32[8] parameter(0)
s = f32[8] sort(x), dimensions={{0}}, to_apply=%less, metadata={{op_name="{sort}"}}
n = f32[8] negate(s), metadata={{op_name="{other}"}}"""
    flow = Flow(parse(spelled(text, [])))
    (made,) = flow.graph.results
    assert flow.in_library(made) == inside
    assert [flow.is_algorithm(node) for node in (made, made.ops[0])] == [False, True]


@pytest.mark.parametrize(
    ("name", "at", "turns_at", "inner"),
    [
        ("f/while", "stack_frame_id=3", "stack_frame_id=3", True),
        ("f/while", "stack_frame_id=3", "stack_frame_id=4", False),
        ("f/while", "source_file=m", "source_file=m", False),  # a line may have several
        ("f/while", "", "", False),
        ("f/cumsum", "", "", True),
    ],
)
def test_loops_that_a_library_wrote(name: str, at: str, turns_at: str, inner: bool) -> None:
    text = spelled(f"k = f32[32,128] tanh(c), metadata={{{turns_at}}}\nk, x, y", ["loop"])
    text = text.replace("body=%turn", f'body=%turn, metadata={{op_name="{name}" {at}}}')
    flow = Flow(parse(text))
    (made,) = (node for node in flow.graph.nodes if node.op == "tanh")
    assert (len(flow.inner_loops), flow.in_library(made)) == (inner, inner)


def test_what_kernels_make_and_take() -> None:
    """A tanh counts ten; of its third result half is needed."""
    text = """x = f32[64] parameter(0)
y = f32[32] parameter(1)
f = (f32[64], f32[64], f32[32]) fusion(x, y)
  t = f32[64] tanh(x)
  s = f32[64] multiply(t, t)
  n = f32[32] negate(y)
  r = (f32[64], f32[64], f32[32]) tuple(t, s, n)
t = f32[64] get-tuple-element(f), index=0
s = f32[64] get-tuple-element(f), index=1
n = f32[32] get-tuple-element(f), index=2
v = f32[8,8] bitcast(s)
w = f32[64] bitcast(v)
a = f32[64] add(w, t)
b = f32[64] negate(w)
e = f32[16] slice(n), slice={[0:16]}
r = (f32[8,8], f32[64], f32[64], f32[16]) tuple(v, a, b, e)"""
    flow = Flow(parse(spelled(text, [])))
    node = {each.instruction.name: each for each in flow.graph.nodes if each.instruction}

    def names(nodes: object) -> str:
        return " ".join(each.instruction.name for each in nodes)  # type: ignore[attr-defined]

    assert names(flow.made("f")) == "t s n"
    taken = [(value.op, reader.op, part.share) for value, reader, part in flow.taken("f")]
    assert taken == [("parameter", "tanh", 1), ("parameter", "negate", 0.5)]
    assert (names(flow.readers(node["s"])), names(flow.readers(node["t"]))) == ("a b", "a")
    assert flow.source(node["w"]) is node["s"]
    assert (node["s"].number in flow.returned, node["s"].number in flow.results) == (True, False)
    for read, share in ((384, 320 / 384), (100, 1), (0, 1), (3840, 320 / 3840)):
        kept = flow.kept("f", read, flow.needs.useful)
        assert kept == Kept(720 / 736, share, 576 / 640)
        assert kept.least == 576 / 640
    assert flow.kept("none", 8, flow.needs.useful) == Kept(1, 0, 1)
    assert replace(kept, flops=0.5).least == 0.5
    assert largest([node["x"]], flow.work) is None
    assert largest([node["n"], node["t"], node["s"]], flow.work) is node["t"]
