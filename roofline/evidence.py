"""Evidence for the model's claims: recorded files, which tests reproduce.

>>> load("decode-layers")["device"]["chip"]
'h100'
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofline import storage
from roofline_helpers.common import records
from roofline_helpers.common.checks import name_of

SCHEMA = "roofline.evidence/1"
"""The header of each file."""


def load(name: str) -> dict[str, Any]:
    """Return a file of evidence: "cycles", "decode", "decode-layers", "grouped", and others.

    "cycles" has the TPU compiler's estimate of products, copies and reductions, and published times
    of some ("rows"). "decode-layers" has steps of the last
    rung of `examples/llama_decode` with 4 and 12 layers, other widths and contexts ("rows"), its
    kernels' seconds and hardware counters, and other ways to cut them ("tuned"), on an H100;
    "decode-layers-h200" has these "rows" and the whole step on an H200.
    "grouped" has the matmuls of two mixtures of experts on an H200, by mode, tokens and load: the
    rows of each expert ("sizes"), FLOPs, bytes and roof, and by way the seconds and the kernels.

    Raises
    ------
    UnknownName, BadType
        No such file.
    BadRecord
        A damaged one.

    Examples
    --------
    >>> load("cycles")["rows"][0]["program"]
    'matmul 128×128×128 bf16'
    """
    there = records.files(records.committed("roofline", "evidence"))
    return storage.load(there[name_of("file of evidence", name, there)], SCHEMA, dict)


def save(name: str, data: Mapping[str, Any]) -> None:
    """Write a file of evidence, as the scripts in `measurements` of the repository do."""
    path = Path(str(records.committed("roofline", "evidence"))) / f"{name}.json"
    print(f"written: {storage.save(path, {'schema': SCHEMA, **data})}")


def decode() -> dict[str, Any]:
    """Return measured decode steps: "device", "software", "context", and "steps" in seconds.

    One row per batch, one number per program: our own kernels, JAX with cuDNN's attention, PyTorch.
    "race" is from another day: two of these and PyTorch in each way it was compiled, with seconds
    and the spread of five runs. "causes" is from a third day, at batch 16: the seconds with the
    cache in either order, donated and not. "rungs" is the ladder of `examples/llama_decode`: the
    change of each rung, its seconds, and the distance of its logits from the last rung's ("error",
    relative, by norm).
    "roof" has the step's least seconds by batch: by the published bandwidth, by that of a copy
    ("reached"), and by that of a stream that only reads. "prefill" has the seconds of PyTorch's
    prefill, by tokens.

    Examples
    --------
    >>> decode()["context"]
    2048
    """
    return load("decode")
