"""tools/programs.py: a kept program is what the compiler makes, and another one is never taken."""

import re

import pytest
from compiled_reports import needs, per_chip
from compiled_suite import SUITE

from roofline import xla
from roofline.xla import compiler
from tools import programs

# Who called the function: another one in each test
STACKS = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n?"
    r"| ?stack_frame_id=\d+",
    re.MULTILINE,
)


class Enough(BaseException):
    """Ends an analysis before anything is compiled."""


def asked(fn, *args, chip):
    """Return what `analyze` asks `compiler.compile_ahead` for."""
    needs(chip)
    seen = []

    def note(*arguments):
        seen.append(arguments)
        raise Enough

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "compile_ahead", note)
        with pytest.raises(Enough):
            xla.analyze(fn, *args, chip=chip)
    return seen[0]


@per_chip
@pytest.mark.parametrize("name", ["elementwise", "pallas"])
def test_a_kept_program_is_what_the_compiler_makes_now(name, chip):
    fn, args, _ = SUITE[name].call
    arguments = asked(fn, *args, chip=chip)
    if not programs.kept():
        pytest.skip("programs are kept for another JAX, or everything is compiled in this run")
    assert programs.key_of(*arguments) in programs.kept(), "it has changed: `make programs`"
    kept = programs.ahead(*arguments)
    made = programs.program_of(programs.entry_of(programs._ahead(*arguments)))
    assert STACKS.sub("", kept.text) == STACKS.sub("", made.text)
    assert (kept.costs, kept.memory) == (made.costs, made.memory)
