"""Whole results of the models as they were last accepted, so that a diff shows what changes.

    python -m tools.accepted             say which differ
    python -m tools.accepted --update    write them anew

A result is everything that a step of serving, a load, an answer or a kernel's expected time has:
each kernel with its tensors, each exchange, each field, each text. `tests/data/accepted.toml` has
the settings, few and very different. A change that moves a number is meant or it isn't;
`tests/package/test_accepted.py` makes somebody say so.
"""

import json
import math
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from measurements import promises
from roofline import network, serving, storage, validation
from roofline.configurations import configured
from roofline.serving.service import targets
from roofline.xla.analysis import find_record
from roofline.xla.expected import expected_features, expected_of, like
from roofline_helpers import chips, judge, work
from roofline_helpers.measured.kernels import features_of_row, kernel_laws, measured_kernels, parts
from roofline_helpers.models import Decoder
from tools import books
from tools.diagnoses import report_of

CASES, RESULTS = (books.ROOT / f"tests/data/accepted.{ending}" for ending in ("toml", "json"))
CLOSE = 1e-8
"""Share by which a number may differ from the one that was accepted."""

WITH_BOARD = ("predict: own steps", "validation")
"""Results that need every prediction of the scoreboard."""

OF_STEP = (
    *("seconds", "comms", "tokens_per_second", "time_per_token", "least_seconds", "flops"),
    *("matrix_flops", "bytes", "intensity", "peak", "mfu", "rests", "missed", "has_laws"),
)
OF_LOAD = (
    *("batch", "step_seconds", "time_per_token", "first_token", "rate", "waiting"),
    *("transfer", "reader_count", "chips", "per_chip", "per_user"),
)


def _placed(case: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return model, hardware and mesh of a case, and its further arguments."""
    asked = {name: value for name, value in case.items() if name != "name"}
    hardware, mesh = asked.pop("chip"), asked.pop("mesh", None)
    if "shape" in asked:
        ceilings = asked.pop("ceilings", "published")
        hardware = network.topology(hardware, asked.pop("shape"), ceilings=ceilings)
    if "config" in asked:
        asked["model"] = _configured(asked.pop("config"))
    return (asked.pop("model"), hardware, mesh), asked


def _configured(name: str) -> Decoder:
    """Return a decoder of tests/data/configurations.json."""
    every = json.loads((books.ROOT / "tests/data/configurations.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(every[name]), "utf-8")
        return replace(configured(path), name=name)


def of_step(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return all kernels, exchanges, bytes and times of a step."""
    place, asked = _placed(case)
    step = serving.step(*place, **asked)
    found: dict[str, Any] = {"title": step._title(), "facts": step._facts()}
    for kernel in step.kernels:
        job, law = kernel.work, kernel.law
        flops = [job.matrix_flops, job.vector_flops, job.transcendentals]
        by = [law.family, law.dtype, law.library, law.chip] if law else []
        moved = [job.reads, job.writes, job.dims]
        found[kernel.name] = [kernel.launches, kernel.seconds, flops, *moved, by]
    for sent in step.exchanges:
        own = sent.collective
        found[f"{sent.role}: {sent.purpose}, {own.kind}"] = [
            *(sent.count, sent.seconds, own.nbytes, network.collectives.least_busy([sent])),
            [phase.algorithm for phase in own.phases],
        ]
    memory = step.memory
    found["memory"] = [*asdict(memory).values(), memory.total, memory.room, memory.fits]
    found |= {name: getattr(step, name) for name in OF_STEP}
    found["most"] = step.largest_batch() if asked.get("new", 1) == 1 else None
    found["mesh"] = {role: step.setting.size(role) for role in serving.ROLES}
    return found


def of_load(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a service does at each concurrency."""
    place, asked = _placed(case)
    if "readers" in asked:
        asked["readers"] = serving.Readers(**asked["readers"])
    loads = serving.curve(*place, **asked)
    worker = loads[0].worker
    found: dict[str, Any] = {
        name: getattr(worker, name) for name in ("fresh", "chunks", "prompt", "room", "most")
    }
    for load in loads:
        own = {name: getattr(load, name) for name in OF_LOAD}
        found[str(load.concurrency)] = [repr(load), own, serving.ranges(load)]
    return found


def of_answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `roofline serve` prints and hands over."""
    place, asked = _placed(case)
    target = targets(asked.pop("for")) if "for" in case else None
    model, chip, _ = place
    answer = serving.answer(model, chip, asked.pop("concurrency", []), target, **asked)
    printed = [part if isinstance(part, str) else part.rows for part in answer.parts()]
    return {"printed": printed, "data": answer.data()}


def of_judge(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of each of several times of a kernel."""
    asked = {name: value for name, value in case.items() if name not in ("name", "count")}
    chip, seconds, sizes = (asked.pop(name) for name in ("chip", "seconds", "sizes"))
    clock = asked.pop("clock", None)
    job = getattr(work, case["count"])(*sizes, **asked)
    said = {f"{took:g} s": judge(job, chip, took, clock) for took in seconds}
    return {took: [str(own), asdict(own)] for took, own in said.items()}


def of_mfu(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of a training run."""
    asked = {name: value for name, value in case.items() if name not in ("name", "tokens")}
    run = validation.mfu(tokens_per_second=case["tokens"], **asked)
    printed = [part if isinstance(part, str) else part.rows for part in run.parts()]
    return {"printed": printed, "numbers": [run.mfu, run.hfu, run.recomputed, *run.counts.values()]}


def of_predict(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the predictions of a file of steps."""
    return _by_row(validation.predict(CASES.with_name(case["file"])))


def _by_row(table: Any) -> dict[str, Any]:
    return {"columns": [*table], **{str(at): row for at, row in table.T.to_dict("list").items()}}


def of_kind(kind: str) -> dict[str, Any]:
    """Return what is expected of kernels of a kind: of some that were measured, and of larger."""
    rows = [features_of_row(row) for row in measured_kernels() if row["kind"] == kind]
    found: dict[str, Any] = {}
    for name, of in {"first": rows[0], "middle": rows[len(rows) // 2], "last": rows[-1]}.items():
        sizes = tuple(3 * size + 1 for size in of.sizes)
        other = {"bytes": 31 * of.bytes, "flops": 29 * of.flops, "sizes": sizes}
        for scale, own in {"": of, ", larger": msgspec.structs.replace(of, **other)}.items():
            both = [expected_features(own, chips.chip(key)) for key in ("h200", "b200")]
            found[name + scale] = [known and asdict(known) for known in both]
            found[f"{name}{scale}, parts"] = [*parts(own, chips.chip("h100")).values()]
    return found


def of_program(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is expected of each kernel of a compiled program, and of the whole."""
    report: Any
    if "record" in case:
        report = find_record(case["record"], case["chip"])
    else:
        text = promises.texts()[f"{case['pair']}/compiled.hlo"]
        report = report_of(text, case["chip"], name=case["pair"])
    found: dict[str, Any] = {"whole": report.expected and asdict(report.expected)}
    for kernel in report.kernels:
        near = like(kernel.work, kernel.chip) if kernel.chip else None
        found[kernel.name] = [*asdict(expected_of(kernel)).values(), near]
    return found


def of_validation() -> dict[str, Any]:
    """Return the predictions of measured layers, of some served points, and errors by kind."""
    tables = {
        "layers": validation.layers().drop(columns=["device", "predicted ms"]),
        "served": validation.served(40).drop(columns=["date", "engine", "source", "error"]),
        "kinds": validation.kinds(every=40),
    }
    return {name: _by_row(table) for name, table in tables.items()}


WAYS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "step": of_step,
    "load": of_load,
    "answer": of_answer,
    "judge": of_judge,
    "program": of_program,
    "mfu": of_mfu,
    "predict": of_predict,
}


def cases() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return what works out each result, by name."""
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for section, own in tomllib.loads(CASES.read_text("utf-8")).items():
        found |= {f"{section}: {case['name']}": partial(WAYS[section], case) for case in own}
    known = {*(row["kind"] for row in measured_kernels())} & kernel_laws().kinds.keys()
    found |= {f"kind: {kind}": partial(of_kind, kind) for kind in sorted(known)}
    return {**found, "validation": of_validation}


def now(name: str) -> dict[str, Any]:
    """Return one result of today's code, as JSON has it: numbers of ten digits."""
    return json.loads(json.dumps(_plain(cases()[name]())))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)


def kept() -> dict[str, dict[str, Any]]:
    """Return the results that were accepted, by name."""
    return json.loads(RESULTS.read_text("utf-8"))  # type: ignore[no-any-return]


def differing(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each place where two results differ, the order of members included."""
    if isinstance(one, dict) and isinstance(other, dict) and [*one] == [*other]:
        for name in one:
            yield from differing(one[name], other[name], f"{where} / {name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from differing(*pair, f"{where}[{at}]")
    elif {type(one), type(other)} <= {float, int} and math.isclose(one, other, rel_tol=CLOSE):
        return
    elif one != other or isinstance(one, dict):  # of dicts, the order at least
        yield f"{where}: {one!r}, now {other!r}"


def changed(name: str) -> list[str]:
    """Return what differs in one result, and how to accept it."""
    lines = [line[:300] for line in differing(kept()[name], now(name), name)]
    return [*lines[:20], "if meant: python -m tools.accepted --update"] if lines else []


def main() -> int:
    """Compare, or write."""
    found = {name: now(name) for name in cases()}
    if sys.argv[1:] == ["--update"]:
        storage.write(RESULTS, storage.dumps(found))
        return 0
    lines = [line for name in found for line in differing(kept().get(name), found[name], name)]
    print("\n".join(lines) or "all results as accepted")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
