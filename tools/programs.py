"""Programs that the TPU compiler has made, kept so that the checks need not make them again.

    python -m tools.programs            compile what is missing, forget what nobody uses
    python -m tools.programs TEST ...   compile what is missing of these tests, forget nothing
    python -m tools.programs live       compile all of them anew, which takes minutes

A program is found by what determines it: the lowered program (StableHLO, Mosaic kernels included,
with the names of its operations), the chip, the layout of its devices, and the versions of JAX and
of the compiler. The lines of code that it comes from don't count: moving a test compiles nothing.
`install` makes `roofline.xla.analyze` look there first; whatever isn't there is compiled,
so nobody's change goes unseen. What counts FLOPs and bytes in a program's text runs every time.
"""

import contextlib
import functools
import hashlib
import json
import lzma
import os
import re
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from roofline.xla import compiler
from roofline.xla.compiler import CompilerOutput, MemoryStats
from roofline.xla.lower import Lowered
from roofline.xla.targets import can_compile, compiler_version
from tools import books

PROGRAMS = books.ROOT / "tests/data/programs.json.xz"
TESTS = [
    "tests/package",
    "tests/examples/test_roofline_tests.py",
]
"""What compiles."""
KERNEL = re.compile(r"body\\22: \\22([A-Za-z0-9+/=]+)\\22")  # of Pallas, in a lowered program
HLO_KERNEL = re.compile(r'("body": ?")[A-Za-z0-9+/=]+"')
ROOT = "/the/book"  # in what is kept, for this repository's folder
HASTY = "jax_disable_most_optimizations"
"""Option of JAX: compile quickly for this machine's processor."""

_ahead = compiler.compile_ahead
used: dict[str, Any] = {}
"""What has been asked for in this process."""


def plain_kernel(match: re.Match[str]) -> str:
    """Return the text of a Mosaic kernel, without the positions that its bytes hold."""
    try:
        from jax._src.interpreters import mlir
        from jax._src.lib import tpu
        from jax._src.lib.mlir import ir

        with mlir.make_ir_context() as context:
            tpu.register_dialect(context)
            context.allow_unregistered_dialects = True
            return str(ir.Module.parse(b64decode(match[1])).operation)
    except Exception:  # JAX's own parts, which may change: then the bytes themselves are the key
        return match[0]


def moved(text: str) -> str:
    """Return a text as it would be on any machine."""
    return text.replace(str(books.ROOT), ROOT)


# --- what a program is found by -------------------------------------------------------------------

DEFINED = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
REFERRED = re.compile(r"#loc\d*")


def scopes(noted: str) -> list[str]:
    """Return the names of operations in a lowered program with its notes, without its lines."""
    defined = dict(DEFINED.findall(noted))

    def is_line(text: str) -> bool:
        return re.match(r'"[^"]*":\d', text) is not None

    names = []
    for text in defined.values():
        # a function of the stack stands at a line
        is_function = any(is_line(defined.get(one, "")) for one in REFERRED.findall(text))
        if text.startswith('"') and not is_line(text) and not is_function:
            names.append(text.split("(#")[0])
    return names


def key_of(lowered: Lowered) -> str:
    """Return what a lowered program is found by."""
    plain = KERNEL.sub(plain_kernel, str(lowered.module))
    noted = lowered.module.operation.get_asm(enable_debug_info=True)
    parts = [plain, *scopes(noted), lowered.target, lowered.topology, *made_by()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def made_by() -> list[str]:
    """Return the versions of what makes programs here."""
    import jax
    import jaxlib

    return [jax.__version__, jaxlib.__version__, compiler_version("tpu")]


# --- those that are kept --------------------------------------------------------------------------


@functools.cache
def kept() -> dict[str, Any]:
    """Return the programs that are kept; none where everything is to be compiled."""
    if "ROOFLINE_THOROUGH" in os.environ or not PROGRAMS.is_file():
        return {}
    stored = json.loads(lzma.decompress(PROGRAMS.read_bytes()))
    programs: dict[str, Any] = stored["programs"] if stored["made by"] == made_by() else {}
    return programs


def entry_of(program: CompilerOutput) -> dict[str, Any]:
    """Return what is kept of a program: nothing of this machine, no bytes of kernels."""
    text = HLO_KERNEL.sub(r'\1"', moved(program.text))
    memory = asdict(program.memory) if program.memory else None
    return {"text": text, "costs": dict(program.costs), "memory": memory}


def program_of(entry: Mapping[str, Any]) -> CompilerOutput:
    """Return the program of what is kept."""
    memory = MemoryStats(**entry["memory"]) if entry["memory"] else None
    text = entry["text"].replace(ROOT, str(books.ROOT))
    return CompilerOutput(text, entry["costs"], memory)


@contextlib.contextmanager
def optimised() -> Iterator[None]:
    """Compile as readers do, also where the programs that run here are compiled hastily."""
    import jax

    before = jax.config.read(HASTY)
    jax.config.update(HASTY, False)
    try:
        yield
    finally:
        jax.config.update(HASTY, before)


def ahead(lowered: Lowered) -> CompilerOutput:
    """Stand in for `compiler.compile_ahead`."""
    key = key_of(lowered)
    entry = kept().get(key)
    if entry is None:
        with optimised():
            entry = entry_of(_ahead(lowered))
    used[key] = entry
    return program_of(entry)


def install() -> None:
    """Let `analyze` take kept programs in this process."""
    compiler.compile_ahead = ahead


def pack(entries: Mapping[str, Any]) -> int:
    """Keep these programs, and only those; return how many bytes that takes."""
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1]["text"][:60], item[0])))
    PROGRAMS.parent.mkdir(exist_ok=True)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 26}]
    stored = {"made by": made_by(), "programs": ordered}
    packed = lzma.compress(json.dumps(stored).encode(), filters=filters)
    PROGRAMS.write_bytes(packed)
    return len(packed)


def main() -> int:
    """Compile programs of the tests, and keep them."""
    import pytest

    from tools import programs  # what the tests import: this is __main__

    some = [] if sys.argv[1:] == ["live"] else sys.argv[1:]
    if sys.argv[1:] == ["live"]:
        os.environ["ROOFLINE_THOROUGH"] = "1"
    missing = can_compile("v6e")
    if missing:
        print(f"programs can't be made here: {missing}", file=sys.stderr)
        return 1
    os.chdir(books.ROOT)
    failed = pytest.main(["-q", *(some or TESTS)])
    if not failed:
        entries = {**kept(), **programs.used} if some else programs.used
        print(f"{len(entries)} programs in {pack(entries):,} bytes: {PROGRAMS}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
