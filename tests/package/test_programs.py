"""tools/programs.py: a kept program is what the compiler makes, and another one is never taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compiled_reports import jax, needs, per_chip, spec
from compiled_suite import SUITE

from roofline_helpers.compiled import analysis, targets
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.hardware import chip as chip_of
from tools import programs


def lowered(fn: Callable[..., Any], *args: Any, chip: str = "v6e") -> programs.Lowered:
    """Return a function as `analyze` lowers it in these tests."""
    needs(chip)
    task = analysis._Task(fn, Arguments(args, {}), chip_of(chip))
    program = task._lowered(targets.first_device(), task.arguments.described())
    assert isinstance(program, programs.Lowered)
    return program


def found_by(program: programs.Lowered) -> str:
    return programs.key_of(program.lowered, program.chip, program.layout)


@per_chip
@pytest.mark.parametrize("name", ["elementwise", "pallas"])
def test_a_kept_program_is_what_the_compiler_makes_now(name: str, chip: str) -> None:
    fn, args, _ = SUITE[name].make()
    program = lowered(fn, *args, chip=chip)
    if not programs.kept():
        pytest.skip("programs are kept for another JAX, or everything is compiled in this run")
    assert found_by(program) in programs.kept(), "it has changed: `make programs`"
    made = program.lowered.compile()
    assert program.compile().as_text() == programs.bare(made.as_text())
    assert program.compile().cost_analysis() == analysis._cost_analysis(made)


def test_a_program_is_found_by_what_it_computes_and_not_by_where_it_is_written() -> None:
    source = "def scaled(x):\n    return {} * x + 1"

    def made(text: str, file: str, **where: Any) -> Any:
        names: dict[str, Any] = {}
        exec(compile(text, file, "exec"), names)
        return lowered(names["scaled"], spec(256, 256), **where)

    one = found_by(made(source.format(2), "a.py"))
    assert found_by(made("\n\n" + source.format(2), "/elsewhere/b.py")) == one
    others = [
        made(source.format(3), "a.py"),
        made(source.format(2), "a.py", chip="v5e"),
        lowered(jax.jit(lambda x: 2 * x + 1), spec(256, 256)),
    ]
    assert one not in {found_by(other) for other in others}


def test_pallas_kernels_are_told_apart_without_their_lines() -> None:
    fn, args, _ = SUITE["pallas"].make()
    again, _, _ = SUITE["pallas"].make()
    other, more, _ = SUITE["pallas-declared"].make()
    assert found_by(lowered(fn, *args)) == found_by(lowered(again, *args))
    assert found_by(lowered(fn, *args)) != found_by(lowered(other, *more))
    text = lowered(fn, *args).lowered.as_text()
    assert programs.KERNEL.sub(programs.plain_kernel, text) != text, "its bytes were not read"


def test_what_is_not_kept_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lowered(lambda x: x * 1.25 + 0.125, spec(128, 256, dtype="float32"))
    assert found_by(program) not in programs.kept()
    assert "fusion" in program.compile().as_text()
    monkeypatch.setattr(programs, "kept", lambda: {found_by(program): {"text": "T", "costs": {}}})
    assert program.compile().as_text() == "T"
