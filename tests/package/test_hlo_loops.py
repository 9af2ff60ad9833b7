"""Loops and branches: how often what they hold counts."""

from __future__ import annotations

from hlo_programs import fixture, program

from roofline_helpers import xla


def loop(
    condition: str = "compare(%i, %n), direction=LT",
    step: str = "add(%i, %one)",
    start: str = "constant(0)",
    bound: str = "constant(7)",
    config: str = "",
) -> str:
    """Return a program with a loop whose body takes the tanh of 64 numbers."""
    tuple_of = "(s32[], f32[64]{0})"
    return program(
        f"  %x = f32[64]{{0}} parameter(0)\n  %s = s32[] {start}\n"
        f"  %t = {tuple_of} tuple(%s, %x)\n"
        f"  %w = {tuple_of} while(%t), condition=%cond, body=%body{config}\n"
        "  ROOT %y = f32[64]{0} get-tuple-element(%w), index=1",
        f"%cond (t: {tuple_of}) -> pred[] {{\n  %t = {tuple_of} parameter(0)\n"
        f"  %i = s32[] get-tuple-element(%t), index=0\n  %n = s32[] {bound}\n"
        f"  ROOT %c = pred[] {condition}\n}}",
        f"%body (t: {tuple_of}) -> {tuple_of} {{\n  %t = {tuple_of} parameter(0)\n"
        "  %i = s32[] get-tuple-element(%t), index=0\n  %one = s32[] constant(2)\n"
        f"  %j = s32[] {step}\n  %v = f32[64]{{0}} get-tuple-element(%t), index=1\n"
        f"  %u = f32[64]{{0}} tanh(%v)\n  ROOT %r = {tuple_of} tuple(%j, %u)\n}}",
    )


COUNTED = {
    "0, 2, 4, 6": ({}, 4),
    "≤ 7": ({"condition": "compare(%i, %n), direction=LE"}, 4),
    "≤ 8": ({"bound": "constant(8)", "condition": "compare(%i, %n), direction=LE"}, 5),
    "bound first": ({"condition": "compare(%n, %i), direction=GT"}, 4),
    "≠ 8": ({"bound": "constant(8)", "condition": "compare(%i, %n), direction=NE"}, 4),
    "from 3": ({"start": "constant(3)"}, 2),
    "from 9": ({"start": "constant(9)"}, 0),
    "down from 9": (
        {
            "start": "constant(9)",
            "step": "subtract(%i, %one)",
            "bound": "constant(0)",
            "condition": "compare(%i, %n), direction=GT",
        },
        5,
    ),
    "stated": ({"config": ', backend_config={"known_trip_count":{"n":"31"}}'}, 31),
    "stated in quotes": (
        {"config": ', backend_config="{\\"known_trip_count\\":{\\"n\\":\\"5\\"}}"'},
        5,
    ),
}


def test_trip_counts() -> None:
    ledgers = {
        name: xla.kernels(loop(**changes), strict=True) for name, (changes, _) in COUNTED.items()
    }
    assert {
        name: [(row.name, row.launches) for row in ledger.rows] for name, ledger in ledgers.items()
    } == {name: [("u", turns)] for name, (_, turns) in COUNTED.items()}
    assert not any("unknown" in note for ledger in ledgers.values() for note in ledger.notes)


UNKNOWN = {
    "a counter that is multiplied": {"step": "multiply(%i, %one)"},
    "no comparison": {"condition": "not(%i)"},
    "an unknown start": {"start": "parameter(1)"},
    "0, 2, 4, 6, 8 … never meets 7": {"condition": "compare(%i, %n), direction=NE"},
    "a test that the first turn fails": {"condition": "compare(%i, %n), direction=GT"},
    "a bound that is the counter": {"bound": "get-tuple-element(%t), index=0"},
}


def test_a_trip_count_that_is_unknown_is_said_to_be() -> None:
    ledgers = {name: xla.kernels(loop(**changes), strict=True) for name, changes in UNKNOWN.items()}
    found = {name: ([r.launches for r in one.rows], one.notes) for name, one in ledgers.items()}
    hint = "State it with turns={'w': n}"
    once = ([1], (f"loop w: its trip count is unknown; counted once. {hint}",))
    assert found == dict.fromkeys(UNKNOWN, once)


def test_the_dearest_branch_counts() -> None:
    def branch(name: str, opcode: str) -> str:
        return (
            f"%{name} (p: f32[64]) -> f32[64] {{\n  %p = f32[64]{{0}} parameter(0)\n"
            f"  ROOT %{name}_y = f32[64]{{0}} {opcode}(%p)\n}}"
        )

    both = branch("little", "bitcast"), branch("dear", "tanh")
    text = program(
        "  %i = s32[] parameter(0)\n  %x = f32[64]{0} parameter(1)\n"
        "  ROOT %c = f32[64]{0} conditional(%i, %x, %x), branch_computations={%little, %dear}",
        *both,
    )
    ledger = xla.kernels(text, strict=True)
    assert [row.name for row in ledger.rows] == ["dear_y"]
    assert ledger.notes == ("conditional c: the dearest of 2 branches counts (dear)",)


def test_loops_of_the_real_compiler_say_how_often_they_turn() -> None:
    ledger = xla.kernels(fixture("nested-loops.v5p.jax-0.10.2"), strict=True)
    assert sorted({row.launches for row in ledger.rows}) == [1, 4, 20]
    notes = " ".join(ledger.notes)
    assert "counts 4 times" in notes
    assert "counts 5 times" in notes


def test_an_exchange_that_a_loop_carries_on_is_one() -> None:
    """A TPU's fusions start an exchange, carry it on in the turns of a loop, and wait for it."""
    pair, kept = "(f32[16]{0}, f32[64]{0})", "(s32[], f32[16]{0}, f32[64]{0})"
    parts = "%p: f32[16], %q: f32[64]"

    def fused(name: str, given: str, root: str) -> str:
        gather = "all-gather(%p), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}"
        named = "".join(
            f"  %{each} = f32[{size}]{{0}} parameter({i})\n"
            for i, (each, size) in enumerate((("p", 16), ("q", 64))[: given.count(":")])
        )
        body = f"{named}  %g = f32[64]{{0}} {gather}\n  ROOT {root}\n"
        return f"%{name} ({given}) -> {pair} {{\n{body}}}"

    call = "custom-call(%p, %g), custom_call_target"
    text = program(
        "  %x = f32[16]{0} parameter(0)\n  %s = s32[] constant(0)\n"
        f"  %b = {pair} fusion(%x), kind=kCustom, calls=%begin\n"
        "  %v = f32[16]{0} get-tuple-element(%b), index=0\n"
        "  %u = f32[64]{0} get-tuple-element(%b), index=1\n"
        f"  %t = {kept} tuple(%s, %v, %u)\n"
        f"  %w = {kept} while(%t), condition=%cond, body=%body\n"
        "  %c = f32[16]{0} get-tuple-element(%w), index=1\n"
        "  %d = f32[64]{0} get-tuple-element(%w), index=2\n"
        "  ROOT %e = f32[64]{0} fusion(%c, %d), kind=kCustom, calls=%end",
        fused("begin", "%p: f32[16]", f'%r = {pair} {call}="AsyncCollectiveStart"'),
        fused("carry", parts, f"%r = {pair} tuple(%p, %g)"),
        fused("end", parts, f'%r = f32[64]{{0}} {call}="AsyncCollectiveDone"'),
        f"%cond (t: {kept}) -> pred[] {{\n  %t = {kept} parameter(0)\n"
        "  %i = s32[] get-tuple-element(%t), index=0\n  %n = s32[] constant(4)\n"
        "  ROOT %l = pred[] compare(%i, %n), direction=LT\n}",
        f"%body (t: {kept}) -> {kept} {{\n  %t = {kept} parameter(0)\n"
        "  %i = s32[] get-tuple-element(%t), index=0\n  %one = s32[] constant(1)\n"
        "  %j = s32[] add(%i, %one)\n  %v = f32[16]{0} get-tuple-element(%t), index=1\n"
        "  %u = f32[64]{0} get-tuple-element(%t), index=2\n"
        f"  %f = {pair} fusion(%v, %u), kind=kOutput, calls=%carry, "
        "output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}\n"
        "  %a = f32[16]{0} get-tuple-element(%f), index=0\n"
        "  %z = f32[64]{0} get-tuple-element(%f), index=1\n"
        f"  ROOT %r = {kept} tuple(%j, %a, %z)\n}}",
    )
    exchanges = [row for row in xla.kernels(text, "tpu").rows if row.collective]
    assert [(row.name, row.collective.launches) for row in exchanges] == [("b", 1)]
    assert exchanges[0].behind >= 1
