"""assets/hlo.js reads a program as `roofline_helpers.hlo` does: real ones, in a real browser."""

from __future__ import annotations

import json
import lzma
from typing import Any

import pytest
from hlo_programs import ADD, FIXTURES, behind_a_tile, program, scripts
from playwright.sync_api import Browser

from roofline_helpers import hlo
from roofline_helpers.ask.element import to_json
from roofline_helpers.hlo import page
from tools import programs

RUN = """(texts) => JSON.stringify(texts.map((text) => {
  try { return hlo.kernels(text); } catch (error) { return {error: error.message}; }
}))"""
LONGEST = 50_000  # characters: more takes time and shows no more
REFUSED = "which this page doesn't read"
BY_HAND = {
    "unknown opcode": "  %x = f32[64]{0} parameter(0)\n  ROOT %y = f32[64]{0} teleport(%x)",
    "sort": "  %x = f32[8,1000]{1,0} parameter(0)\n"
    "  ROOT %y = f32[8,1000]{1,0} sort(%x), dimensions={1}, to_apply=%add",
    "spread convolution": "  %x = f32[2,9,8]{2,1,0} parameter(0)\n"
    "  %k = f32[3,8,16]{2,1,0} parameter(1)\n"
    "  ROOT %y = f32[2,19,16]{2,1,0} convolution(%x, %k), "
    "window={size=3 pad=2_2 lhs_dilate=2 rhs_dilate=1}, dim_labels=b0f_0io->b0f",
    "a call that declares nothing": "  %x = f32[64]{0} parameter(0)\n"
    '  ROOT %y = f32[64]{0} custom-call(%x), custom_call_target="mine"',
    "linear algebra": "  %x = f32[4,64,64]{2,1,0} parameter(0)\n"
    '  ROOT %y = f32[4,64,64]{2,1,0} custom-call(%x), custom_call_target="Cholesky"',
    "complex": "  %x = c64[64]{0} parameter(0)\n  ROOT %y = c64[64]{0} multiply(%x, %x)",
    "odd bytes": "  %x = s4[65]{0:E(4)} parameter(0)\n  ROOT %y = s4[65]{0:E(4)} negate(%x)",
}


def texts() -> dict[str, str]:
    """Return programs by name: what XLA printed for the tests, every 12th that is kept, by hand."""
    kept = json.loads(lzma.decompress(programs.KEPT.read_bytes()))["programs"]
    short = [name for name in sorted(kept) if len(kept[name]["text"]) < LONGEST]
    some = {name: kept[name]["text"] for name in short[::12]}
    by_hand = {name: program(body, ADD) for name, body in BY_HAND.items()}
    by_hand |= {
        f"update behind a {root}": behind_a_tile(root) for root in ("copy(%q)", "negate(%q)")
    }
    return {path.stem: path.read_text("utf-8") for path in FIXTURES} | some | by_hand


def of_python(text: str) -> list[dict[str, Any]]:
    ledger = hlo.kernels(text, "tpu" if hlo.is_tiled(text) else "gpu")
    return [
        {
            **{"name": row.name, "opcode": row.opcode, "launches": row.launches},
            **{"matrix": row.flops.matrix, "vector": row.flops.vector},
            **{"transcendentals": row.flops.transcendentals, "declared": row.flops.declared},
            **{"unknown": list(row.flops.unknown)},
            **{"read": dict(row.read), "written": dict(row.written)},
        }
        for row in ledger.rows
    ]


def read(chromium: Browser, programs: list[str], source: str | None = None) -> list[Any]:
    """Return what the script makes of texts."""
    script = f"const opcodes = {to_json(page.tables())};\n{source or scripts()}"
    tab = chromium.new_page()
    try:
        answer = tab.evaluate(f"(texts) => {{ {script}\nreturn ({RUN})(texts) }}", programs)
        return list(json.loads(answer))
    finally:
        tab.close()


def differences(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[str]:
    if [row["name"] for row in mine] != [row["name"] for row in theirs]:
        return [f"{len(mine)} and {len(theirs)} kernels"]
    return [
        f"{row['name']}, {field}: {value!r} and {other[field]!r}"
        for row, other in zip(mine, theirs, strict=True)
        for field, value in row.items()
        if other[field] != (pytest.approx(value, rel=1e-12) if _number(value) else value)
    ]


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def test_the_page_counts_what_python_counts(chromium: Browser) -> None:
    programs = texts()
    answers = dict(zip(programs, read(chromium, list(programs.values())), strict=True))
    refused = [name for name, each in answers.items() if REFUSED in each.get("error", "")]
    assert len(refused) <= 2
    wrong = {
        name: each.get("error") or differences(of_python(programs[name]), each["rows"])
        for name, each in answers.items()
        if name not in refused
    }
    assert {name: what for name, what in wrong.items() if what} == {}
    read_whole = [programs[name] for name in programs.keys() - refused]
    for opcode in ("fusion", "convolution", "custom-call", "sort", "scatter", "while", "gather"):
        assert any(f" {opcode}(" in text for text in read_whole), opcode
    launches = [row["launches"] for each in answers.values() for row in each.get("rows", [])]
    assert max(launches) > 50, "loops turn"


def test_what_it_does_not_know_it_names(chromium: Browser) -> None:
    words = ("opcode teleport", "mine: it declares no FLOPs", "complex")
    asked = ["unknown opcode", "a call that declares nothing", "complex"]
    answers = read(chromium, [program(BY_HAND[name], ADD) for name in asked])
    for each, word in zip(answers, words, strict=True):
        assert any(word in note for note in each["notes"]), each["notes"]
    assert [each["rows"][0]["unknown"] for each in answers] == [["teleport"], ["mine"], []]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def f(x): return x", "HloModule"),
        ("HloModule m\n", "no whole ENTRY"),
        (program("  %x = f32[8]{0} parameter(0)\n  ROOT %y = f32[8]{0} tanh(%z)"), "uses z"),
        (program("  ROOT %y = f32[8]{0} call(), to_apply=%gone"), "calls gone"),
        (program("  ROOT %y = tanh(%x)"), "no shape"),
    ],
)
def test_what_is_no_program_is_told(chromium: Browser, text: str, word: str) -> None:
    (answer,) = read(chromium, [text])
    assert word in answer["error"]
