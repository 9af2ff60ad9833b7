"""assets/verdicts.js says of a kernel on every chip what `roofline_helpers.verdicts` says."""

import itertools
import json
from importlib import resources

from parity_suite import faults

import roofline_helpers as rh
from roofline_helpers import verdicts
from roofline_helpers.chips import assumed_floor, floor_of
from roofline_helpers.pages.element import to_json
from roofline_helpers.pages.instruments import model_script

RUN = """(points) => JSON.stringify(points.map(([kind, given, chip, dtype]) => {
  try {
    const job = kind === "counts" ? verdicts.counts(...given, dtype)
      : kind === "attention" ? verdicts.attention(given, dtype) : model.matmul(...given, dtype);
    const { matrix, vector, bytes } = job;
    return {...verdicts.of(job, chip, floors), matrix, vector, bytes};
  } catch (error) { return {error: error.message}; }
}))"""
SHAPES = [
    (4, 32, 8, 2048, 2048, 128),
    (1, 64, 8, 1, 8192, 128),
    (2, 6, 3, 77, 333, 64),
]
COUNTS = [
    (1e12, 1e10),
    (3e12, 1e10),
    (1e6, 1e9),
    (1e9, 1e3),
    (2.5e9, 1e7),
]
SIDES = [
    (512, 8192, 8192),
    (128, 128, 128),
    (256, 8192, 8192),
    (4096, 4096, 4096),
]


def points():
    """Yield on each chip a few kernels of every kind, others on the next."""
    names = ("batch", "heads", "kvHeads", "queries", "keys", "dim")
    attention = [
        {**dict(zip(names, shape, strict=True)), "causal": causal}
        for shape, causal in itertools.product(SHAPES, (False, True))
    ]
    counts, sides, shapes = (itertools.cycle(sizes) for sizes in (COUNTS, SIDES, attention))
    for chip in rh.all_chips():
        for kind, size in (
            ("counts", counts),
            ("matmul", sides),
            ("attention", shapes),
        ):
            yield [kind, next(size), chip.key, chip.half]
    for size in COUNTS:
        yield ["counts", size, "h100", "bf16"]


def work_of(kind, given, dtype):
    """Return what Python counts."""
    if kind == "counts":
        return rh.Work("kernel", {"x": given[1]}, {}, matrix_flops=given[0], dtype=dtype)
    if kind == "matmul":
        return rh.work.matmul(*given, dtype)
    batch, heads, kv_heads, queries, keys, dim, causal = given.values()
    return rh.work.flash_attention(batch, queries, keys, heads, dim, kv_heads, dtype, causal=causal)


def of_python(kind, given, chip, dtype):
    job = work_of(kind, given, dtype)
    verdict = verdicts.verdict(job, chip)
    # the page asks nothing of what stays between kernels
    cases = {case: result for case, result in verdict.found.items() if case.between == "travels"}
    kept = verdicts.Verdict(verdict.name, verdict.chip, cases)
    return {
        **{"word": kept.word, "on": list(kept.on), "floor": floor_of(kept.chip)},
        **{"matrix": job.matrix_flops, "vector": job.vector_flops, "bytes": job.bytes},
        "cases": [
            {
                **{"ceilings": case.ceilings, "floor": case.floor},
                **{"bound": result.bound, "seconds": result.seconds},
            }
            for case, result in cases.items()
        ],
    }


def asked(chromium, questions):
    folder = resources.files("roofline_helpers") / "pages/assets"
    floors = {"tpu": assumed_floor("tpu"), "other": assumed_floor("gpu")}
    script = (
        f"{model_script()}\nconst floors = {to_json(floors)};\n"
        f"{(folder / 'verdicts.js').read_text('utf-8')}"
    )
    tab = chromium.new_page()
    try:
        answers = tab.evaluate(f"(points) => {{ {script}\nreturn ({RUN})(points) }}", questions)
        return json.loads(answers)
    finally:
        tab.close()


def test_the_page_says_what_python_says(chromium):
    questions = list(points())
    answers = asked(chromium, questions)
    wrong = [
        fault
        for point, theirs in zip(questions, answers, strict=True)
        for fault in faults(of_python(*point), theirs, str(point))
    ]
    assert wrong == []
    assert {answer["word"] for answer in answers} == {"memory", "compute", "depends"}
    assert {tuple(answer["on"]) for answer in answers} >= {
        (),
        ("ceilings",),
        ("floor",),
    }
