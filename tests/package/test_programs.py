"""tools/programs.py: a kept program is what the compiler makes, and another one is never taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from compiled_reports import jax, needs, per_chip, spec
from compiled_suite import SUITE

from roofline_helpers import compiled, hlo
from roofline_helpers.compiled import compiling
from tools import programs

Asked = tuple[Any, Any, Any]  # what `compiling.ahead` is asked: lowered, devices, target
# Who called the function: another one in each test
STACKS = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n?"
    r"| ?stack_frame_id=\d+",
    re.MULTILINE,
)


class Enough(BaseException):
    """Ends an analysis before anything is compiled."""


def asked(fn: Callable[..., Any], *args: Any, chip: str = "v6e") -> Asked:
    """Return what `analyze` asks for."""
    needs(chip)
    seen: list[Asked] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments)
        raise Enough

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "ahead", note)
        with pytest.raises(Enough):
            compiled.analyze(fn, *args, chip=chip)
    return seen[0]


def found_by(each: Asked) -> str:
    lowered, _, target = each
    return programs.key_of(lowered.module, target)


@per_chip
@pytest.mark.parametrize("name", ["elementwise", "pallas"])
def test_a_kept_program_is_what_the_compiler_makes_now(name: str, chip: str) -> None:
    fn, args, _ = SUITE[name].make()
    each = asked(fn, *args, chip=chip)
    if not programs.kept():
        pytest.skip("programs are kept for another JAX, or everything is compiled in this run")
    assert found_by(each) in programs.kept(), "it has changed: `make programs`"
    kept, made = (
        programs.ahead(*each),
        programs.program_of(programs.entry_of(programs._ahead(*each))),
    )
    assert hlo.kernels(kept.text, "tpu") == hlo.kernels(made.text, "tpu")
    assert STACKS.sub("", kept.text) == STACKS.sub("", made.text)
    assert (kept.costs, kept.memory) == (made.costs, made.memory)


def test_a_program_is_found_by_what_it_computes() -> None:
    source = "def scaled(x):\n    return {} * x + 1"

    def made(text: str, file: str, **where: Any) -> Asked:
        names: dict[str, Any] = {}
        exec(compile(text, file, "exec"), names)
        return asked(names["scaled"], spec(256, 256), **where)

    here, there = str(programs.books.ROOT / "a.py"), f"{programs.ROOT}/a.py"
    one = found_by(made(source.format(2), here))
    assert found_by(made(source.format(2), there)) == one, "the folder counts"
    others = [
        made(source.format(3), here),
        made("\n" + source.format(2), here),  # a report names the line
        made(source.format(2), here, chip="v5e"),
        asked(jax.jit(lambda x: 2 * x + 1), spec(256, 256)),
    ]
    assert one not in {found_by(other) for other in others}


def test_pallas_kernels_are_told_apart_without_their_lines() -> None:
    fn, args, _ = SUITE["pallas"].make()
    again, _, _ = SUITE["pallas"].make()
    other, more, _ = SUITE["pallas-declared"].make()
    assert found_by(asked(fn, *args)) == found_by(asked(again, *args))
    assert found_by(asked(fn, *args)) != found_by(asked(other, *more))
    text = str(asked(fn, *args)[0].module)
    assert programs.KERNEL.sub(programs.plain_kernel, text) != text, "its bytes were not read"


def test_what_is_not_kept_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    each = asked(lambda x: x * 1.25 + 0.125, spec(128, 256, dtype="float32"))
    assert found_by(each) not in programs.kept()
    made = programs.ahead(*each)
    assert "fusion" in made.text
    assert made.memory is not None
    entry = {**programs.entry_of(made), "text": f"T {programs.ROOT}/a.py"}
    monkeypatch.setattr(programs, "kept", lambda: {found_by(each): entry})
    assert programs.ahead(*each).text == f"T {programs.books.ROOT}/a.py"
    assert programs.ahead(*each).memory == made.memory
