"""assets/verdicts.js says of a kernel what `roofline_helpers.verdicts` says, on every chip."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import pytest
from hlo_programs import fixture, scripts
from playwright.sync_api import Browser

import roofline_helpers as rh
from roofline_helpers import hlo, serving, verdicts
from roofline_helpers.ask.element import to_json
from roofline_helpers.hlo import page

RUN = """(points) => JSON.stringify(points.map(([kind, given, chip, dtype]) => {
  try {
    const works = kind === "counts" ? [verdicts.counts(...given, dtype)]
      : kind === "attention" ? [verdicts.attention(given, dtype)]
      : kind === "matmul" ? [model.matmul(...given, dtype)]
      : verdicts.compiled(hlo.kernels(given).rows, dtype);
    const { matrix, vector, bytes } = works[0];
    return {...verdicts.of(works, chip, floors), matrix, vector, bytes};
  } catch (error) { return {error: error.message}; }
}))"""
SHAPES = [(4, 32, 8, 2048, 2048, 128), (1, 64, 8, 1, 8192, 128), (2, 6, 3, 77, 333, 64)]
COUNTS = [(1e12, 1e10), (3e12, 1e10), (1e6, 1e9), (1e9, 1e3), (2.5e9, 1e7)]
SIDES = [(512, 8192, 8192), (128, 128, 128), (256, 8192, 8192), (4096, 4096, 4096)]


def points() -> Iterator[list[Any]]:
    """Yield on each chip a few kernels of every kind, others on the next; and three programs."""
    names = ("batch", "heads", "kvHeads", "queries", "keys", "dim")
    attention = [
        {**dict(zip(names, shape, strict=True)), "causal": causal}
        for shape, causal in itertools.product(SHAPES, (False, True))
    ]
    counts, sides, shapes = (itertools.cycle(each) for each in (COUNTS, SIDES, attention))
    for chip in rh.all_chips():
        for kind, size in (("counts", counts), ("matmul", sides), ("attention", shapes)):
            yield [kind, next(size), chip.key, chip.half]
    for size in COUNTS:
        yield ["counts", size, "h100", "bf16"]
    yield ["hlo", fixture("scan-100.cpu.jax-0.10.2"), "h100", "bf16"]
    yield ["hlo", fixture("elementwise.v6e.jax-0.10.2"), "v6e", "bf16"]
    yield ["hlo", fixture("softmax.h100.jax-0.11.2"), "h100", "bf16"]


def kernels(kind: str, what: Any, dtype: str) -> list[rh.roofline.Kernel]:
    """Return what Python counts."""
    if kind == "hlo":
        ledger = hlo.kernels(what, "tpu" if hlo.is_tiled(what) else "gpu")
        return [rh.roofline.Kernel(_work(row, dtype), launches=row.launches) for row in ledger.rows]
    if kind == "counts":
        work = rh.Work("kernel", {"x": what[1]}, {}, matrix_flops=what[0], dtype=dtype)
    elif kind == "matmul":
        work = rh.work.matmul(*what, dtype)
    else:
        batch, heads, kv_heads, queries, keys, dim, causal = what.values()
        work = rh.work.flash_attention(
            batch, queries, keys, heads, dim, kv_heads, dtype, causal=causal
        )
    return [rh.roofline.Kernel(work)]


def _work(row: hlo.Row, dtype: str) -> rh.Work:
    return rh.Work(
        row.name,
        {"in": row.read.get("hbm", 0)},
        {"out": row.written.get("hbm", 0)},
        matrix_flops=row.flops.matrix + row.flops.declared,
        vector_flops=row.flops.vector,
        dtype=dtype,
    )


def of_python(kind: str, what: Any, chip: str, dtype: str) -> dict[str, Any]:
    counted = kernels(kind, what, dtype)
    verdict = verdicts.verdict(counted, chip)
    # the page asks nothing of what stays between kernels
    cases = {case: each for case, each in verdict.found.items() if case.between == "travels"}
    kept = verdicts.Verdict(verdict.name, verdict.chip, verdict.floor, cases)
    first: Any = counted[0].work
    return {
        **{"word": kept.word, "on": list(kept.on), "floor": kept.floor},
        **{"matrix": first.matrix_flops, "vector": first.vector_flops, "bytes": first.bytes},
        "cases": [
            {
                **{"ceilings": case.ceilings, "floor": case.floor},
                **{"bound": each.bound, "seconds": each.seconds},
            }
            for case, each in cases.items()
        ],
    }


def alike(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, Mapping):
        return mine.keys() == theirs.keys() and all(alike(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list):
        return len(mine) == len(theirs) and all(map(alike, mine, theirs))
    if isinstance(mine, int | float):
        return math.isclose(mine, theirs, rel_tol=1e-12)
    return bool(mine == theirs)


def asked(chromium: Browser, questions: list[list[Any]]) -> Any:
    folder = resources.files("roofline_helpers") / "assets"
    floors = {"tpu": verdicts.assumed_floor("tpu"), "other": verdicts.assumed_floor("gpu")}
    script = (
        f"{serving.script()}\n"
        f"const opcodes = {to_json(page.tables())}, floors = {to_json(floors)};\n"
        f"{scripts()}\n{(folder / 'verdicts.js').read_text('utf-8')}"
    )
    tab = chromium.new_page()
    try:
        answers = tab.evaluate(f"(points) => {{ {script}\nreturn ({RUN})(points) }}", questions)
        return json.loads(answers)
    finally:
        tab.close()


def test_the_page_says_what_python_says(chromium: Browser) -> None:
    questions = list(points())
    answers = asked(chromium, questions)
    wrong = [
        (point[0], point[2], mine, theirs)
        for point, theirs in zip(questions, answers, strict=True)
        if not alike(mine := of_python(*point), theirs)
    ]
    assert wrong == []
    assert {each["word"] for each in answers} == {"memory", "compute", "depends"}
    assert {tuple(each["on"]) for each in answers} >= {(), ("ceilings",), ("floor",)}


@pytest.mark.parametrize(
    ("change", "word"),
    [({"kvHeads": 5}, "multiple of KV heads"), ({"queries": 4096}, "as many keys as queries")],
)
def test_attention_that_cannot_be_is_refused(
    chromium: Browser, change: dict[str, int], word: str
) -> None:
    names = ("batch", "heads", "kvHeads", "queries", "keys", "dim")
    shape = {**dict(zip(names, SHAPES[0], strict=True)), "causal": True, **change}
    (answer,) = asked(chromium, [["attention", shape, "h100", "bf16"]])
    assert word in answer["error"]
