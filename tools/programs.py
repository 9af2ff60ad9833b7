"""Programs that the TPU compiler has made, kept so that the checks need not make them again.

    python -m tools.programs          compile all of them anew, which takes minutes

A program is found by what determines it: the lowered program (StableHLO, Mosaic kernels included,
with the names of its operations), the chip, the layout of its devices, and the versions of JAX and
of the compiler. `install` makes `roofline_helpers.compiled.analyze` look there first; whatever
isn't there is compiled, so nobody's change goes unseen. What counts FLOPs and bytes in a program's
text runs every time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofline_helpers.compiled import analysis, targets
from tools import books

KEPT = books.ROOT / "tests/data/programs.json.xz"
SOURCE = "ROOFLINE_PROGRAMS"
"""Environment variable: "live" to compile everything."""
WRITE_TO = "ROOFLINE_PROGRAMS_TO"
"""Environment variable: a folder that each program that is compiled, or used, is written to."""
TESTS = ["tests/package", "tests/notebooks/test_compiled_records.py"]
"""What compiles, the execution of the notebooks included."""
KERNEL = re.compile(r"body\\22: \\22([A-Za-z0-9+/=]+)\\22")  # of Pallas, in a lowered program
NAMES = re.compile(r'loc\("([^"]*)"\(')  # of operations, in a lowered program with its notes
# Where in which file something comes from: differs by folder, and nothing counts it
TABLES = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n?", re.M
)
FRAME = re.compile(r" ?stack_frame_id=\d+")
HLO_KERNEL = re.compile(r'("body": ?")[A-Za-z0-9+/=]+"')

_lower = getattr(analysis._Task, "_lowered", None)


@dataclass(frozen=True)
class Program:
    """A compiled program, as far as `analyze` asks."""

    text: str
    costs: dict[str, float]

    def as_text(self) -> str:
        """Return its HLO."""
        return self.text

    def cost_analysis(self) -> dict[str, float]:
        """Return XLA's own totals."""
        return self.costs


def plain_kernel(found: re.Match[str]) -> str:
    """Return the text of a Mosaic kernel, without the positions that its bytes hold."""
    try:
        from jax._src.interpreters import mlir
        from jax._src.lib import tpu
        from jax._src.lib.mlir import ir

        with mlir.make_ir_context() as context:
            tpu.register_dialect(context)
            context.allow_unregistered_dialects = True
            return str(ir.Module.parse(b64decode(found[1])).operation)
    except Exception:  # JAX's own parts, which may change: then the bytes themselves are the key
        return found[0]


def key_of(lowered: Any, chip: str, layout: str | None) -> str:
    """Return what a lowered program is found by."""
    import jax
    import jaxlib

    names = NAMES.findall(lowered.as_text(debug_info=True))
    parts = [KERNEL.sub(plain_kernel, lowered.as_text()), *names, chip, str(layout)]
    parts += [jax.__version__, jaxlib.__version__, targets.compiler("tpu")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def bare(text: str) -> str:
    """Return a compiled program without positions in files."""
    return HLO_KERNEL.sub(r'\1"', FRAME.sub("", TABLES.sub("", text)))


@functools.cache
def kept() -> dict[str, Any]:
    """Return the programs that are kept."""
    if os.environ.get(SOURCE) == "live" or not KEPT.is_file():
        return {}
    found: dict[str, Any] = json.loads(lzma.decompress(KEPT.read_bytes()))
    return found


@dataclass(frozen=True)
class Lowered:
    """A lowered program, whose compiled one may be here already."""

    lowered: Any
    chip: str
    layout: str | None

    def compile(self) -> Program:
        """Return the compiled program, from those that are kept or from the compiler."""
        key = key_of(self.lowered, self.chip, self.layout)
        entry = kept().get(key)
        if entry is None:
            program = self.lowered.compile()
            entry = {"text": bare(program.as_text()), "costs": program.cost_analysis()}
        folder = os.environ.get(WRITE_TO)
        if folder:
            place = Path(folder) / f"{key}.json"
            beside = place.with_suffix(f".{os.getpid()}")
            beside.write_text(json.dumps(entry), "utf-8")
            beside.replace(place)
        return Program(**entry)


def lowered(task: Any, here: Any, described: tuple[str, ...]) -> Any:
    """Stand in for `_Task._lowered`, where it is for a TPU that isn't here."""
    assert _lower is not None
    program, ahead = _lower(task, here, described), task._ahead(here)
    return program if ahead is None else Lowered(program, ahead.key, task.topology)


def install() -> None:
    """Let `analyze` take kept programs in this process."""
    if _lower is not None:
        analysis._Task._lowered = lowered  # type: ignore


def pack(folder: Path) -> int:
    """Keep the programs of a folder, and only those; return how many bytes that takes."""
    entries = {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1]["text"][:60], item[0])))
    KEPT.parent.mkdir(exist_ok=True)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 26}]
    packed = lzma.compress(json.dumps(ordered).encode(), filters=filters)
    beside = KEPT.with_suffix(".new")
    beside.write_bytes(packed)
    beside.replace(KEPT)
    return len(packed)


def main() -> int:
    """Compile all programs of the tests and of the notebooks, and keep them."""
    missing = targets.can_compile("v6e")
    if missing:
        print(f"programs can't be made here: {missing}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, SOURCE: "live", WRITE_TO: folder, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", *TESTS]
        failed = subprocess.run(command, cwd=books.ROOT, env=environment).returncode
        if not failed:
            many = len(list(Path(folder).glob("*.json")))
            print(f"{many} programs in {pack(Path(folder)):,} bytes: {KEPT}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
