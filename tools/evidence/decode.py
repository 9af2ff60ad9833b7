"""Measured decode steps of Llama 3 8B, to hold the design lab against.

    python -m tools.evidence.decode

Reads the records of examples/llama_decode: medians of three of its programs, by batch, and those
of all rungs of its ladder, with what each changes; a later race of two of its programs with PyTorch
tuned as ours; the cache in either order, donated and not; and PyTorch's medians for whole prompts.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from tools import books
from tools.evidence import keep

ORDER = (
    "as first written",
    "unrolled",
    "donated",
    "in bfloat16",
    "by head",
    "side by side",
    "cuDNN",
    "own kernels",
    "overlapped",
    "narrow sums",
)
"""The rungs, from the first way to write it to the last."""

RECORD = books.ROOT / "examples/llama_decode/h200.json"
RACE = books.ROOT / "examples/llama_decode/h200-race.json"
CAUSES = books.ROOT / "examples/llama_decode/h200-causes.json"
PROMPTS = books.ROOT / "examples/llama_decode/h200-torch-prefill.json"


def steps() -> dict[str, Any]:
    """Return what was measured, on what, and the seconds of each program by batch."""
    record, raced = (json.loads(path.read_text("utf-8")) for path in (RECORD, RACE))
    rows, ladder = [], []
    for batch in sorted(record["rungs"], key=int):
        rungs = record["rungs"][batch]
        compiled = record["torch"]["batch"][batch]["steps"]
        rows.append(
            {
                "batch": int(batch),
                "kernels of our own": _median(rungs[ORDER[-1]]),
                "JAX with cuDNN's attention": _median(rungs["cuDNN"]),
                "PyTorch, compiled": min(_median(each) for each in compiled),
            }
        )
        for name in (name for name in ORDER if "seconds" in rungs.get(name, {})):
            row = {"batch": int(batch), "rung": name, "change": rungs[name]["change"]}
            row |= {"seconds": _median(rungs[name]), "error": rungs[name]["error"]}
            ladder.append(row)
    race = []
    for batch in sorted(raced["rungs"], key=int):
        ways = {"kernels of our own": raced["rungs"][batch][ORDER[-1]]}
        ways |= {"JAX with cuDNN's attention": raced["rungs"][batch]["cuDNN"]}
        ways |= {
            f"PyTorch, {one['setting']}": one for one in raced["torch"]["batch"][batch]["steps"]
        }
        for name, timed in ways.items():
            times = timed["seconds"]
            row = {"batch": int(batch), "program": name, "seconds": _median(timed)}
            race.append(row | {"spread": (max(times) - min(times)) / _median(timed)})
    made = {name: record[name] for name in ("date", "command", "device", "software")}
    made |= {"model": "Llama 3 8B", "context": record["tokens"], "steps": rows}
    commands = {"ours": raced["command"], "PyTorch": raced["torch"]["command"]}
    made["race"] = {"date": raced["date"], "commands": commands, "steps": race}
    causes = json.loads(CAUSES.read_text("utf-8"))["rungs"]["16"]
    made["causes"] = {name: _median(timed) for name, timed in causes.items()}
    roofs = {batch: record["roof"][batch] for batch in sorted(record["roof"], key=int)}
    prompts = json.loads(PROMPTS.read_text("utf-8"))["tokens"]
    read = {tokens: min(map(_median, row["steps"])) for tokens, row in prompts.items()}
    return {**made, "rungs": ladder, "roof": roofs, "prefill": read}


def _median(timed: dict[str, Any]) -> float:
    return float(statistics.median(timed["seconds"]))


if __name__ == "__main__":
    keep("decode", steps())
