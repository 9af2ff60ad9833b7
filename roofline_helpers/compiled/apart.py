"""Compile in a process of its own: a compiler that dies takes only that one along.

The other process gets a module, options and the place of each device, and sends back the program's
text and what the compiler says of it. Its cost: some 3 seconds to start.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roofline_helpers import records
from roofline_helpers.compiled.program import Compiled, Memory
from roofline_helpers.show import progress

PATIENCE = 10.0
"""Seconds after which a compilation shows that it goes on."""


class Died(RuntimeError):
    """The compiler died, and its process with it."""


def compiled(
    code: bytes, options: bytes, places: Sequence[int], target: Mapping[str, str]
) -> Compiled:
    """Compile a module in another process.

    Parameters
    ----------
    code, options : bytes
        The module as bytecode, and the compiler's options.
    places : sequence of int
        The ids of the devices, in the order of the mesh.
    target : mapping of str to str
        "chip", "layout" and "name".

    Raises
    ------
    RuntimeError
        What the compiler said.
    Died
        It said nothing, and died.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "asked"), Path(folder, "answer")
        asked.write_bytes(pickle.dumps((code, options, list(places), dict(target))))
        with Path(folder, "said").open("w+b") as printed:
            done = _run(asked, answer, printed, target)
            printed.seek(0)
            heard = printed.read().decode("utf-8", "replace")
        if not answer.exists():
            raise Died(_last_words(done, heard))
        reply = json.loads(answer.read_text("utf-8"))
    if "error" in reply:
        raise RuntimeError(reply["error"])
    memory = None if reply["memory"] is None else Memory(**reply["memory"])
    return Compiled(reply["text"], reply["costs"], memory)


def _run(asked: Path, answer: Path, printed: Any, target: Mapping[str, str]) -> int:
    """Run the other process to its end, showing that it goes on; return how it ended."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "roofline_helpers.compiled.apart", str(asked), str(answer)]
    process = subprocess.Popen(
        command, stdout=printed, stderr=printed, stdin=subprocess.DEVNULL, env=environment
    )
    begun = time.monotonic()
    try:
        with progress() as say:
            while True:
                try:
                    return process.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    taken = time.monotonic() - begun
                    if taken > PATIENCE:
                        name = target.get("name", "a program")
                        say(f"compiling {name} for {target['chip']}: {taken:.0f} s")
    finally:
        if process.poll() is None:  # interrupted
            process.kill()
            process.wait()


def _last_words(status: int, heard: str) -> str:
    """Return how a compiler died: the signal, and the last lines that tell."""
    import signal

    how = f"ended with status {status}"
    if status < 0:
        with contextlib.suppress(ValueError):
            how = f"was killed by {signal.Signals(-status).name}"
    telling = [line.strip() for line in heard.splitlines() if line.strip()]
    words = " | ".join(telling[-3:])[:600]
    return f"the compiler's process {how}" + (f": {words}" if words else "")


def main(asked: str, answer: str) -> None:
    """Compile what a file asks for, and write the answer to another."""
    from dataclasses import asdict

    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jaxlib import xla_client

    from roofline_helpers import hardware
    from roofline_helpers.compiled import program, targets
    from roofline_helpers.compiled.quiet import quiet

    code, options, places, target = pickle.loads(Path(asked).read_bytes())
    with quiet():
        there = {
            int(device.id): device
            for device in targets.all_devices(hardware.chip(target["chip"]), target["layout"])
        }
    with mlir.make_ir_context():
        module = ir.Module.parse(code)
    reply: dict[str, Any]
    try:
        made = program.compiled_by(
            [there[place] for place in places],
            module,
            xla_client.CompileOptions.ParseFromString(options),
        )
        reply = {"text": made.text, "costs": dict(made.costs), "memory": None}
        if made.memory is not None:
            reply["memory"] = asdict(made.memory)
    except Exception as error:
        reply = {"error": str(error)}
    records.write(answer, json.dumps(reply))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
