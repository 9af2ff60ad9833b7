"""Measured decode steps of Llama 3 8B, to hold the design lab against.

    python -m tools.evidence.decode

Reads the record of examples/llama_decode: the medians of three of its programs, by batch.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from tools import books
from tools.evidence import keep

RECORD = books.ROOT / "examples/llama_decode/h200.json"


def steps() -> dict[str, Any]:
    """Return what was measured, on what, and the seconds of each program by batch."""
    record = json.loads(RECORD.read_text("utf-8"))
    rows = []
    for batch in sorted(record["rungs"], key=int):
        rungs = record["rungs"][batch]
        compiled = record["torch"]["batch"][batch]["steps"]
        rows.append(
            {
                "batch": int(batch),
                "kernels of our own": _median(rungs["overlapped"]),
                "JAX with cuDNN's attention": _median(rungs["cuDNN"]),
                "PyTorch, compiled": min(_median(each) for each in compiled),
            }
        )
    made = {name: record[name] for name in ("date", "command", "device", "software")}
    return {**made, "model": "Llama 3 8B", "context": record["tokens"], "steps": rows}


def _median(timed: dict[str, Any]) -> float:
    return float(statistics.median(timed["seconds"]))


if __name__ == "__main__":
    keep("decode", steps())
