"""assets/judging.js says of a measured time what `roofline_helpers.judge` says."""

import itertools
import json
import random
from pathlib import Path

import pytest

import roofline_helpers as rh
from roofline.labs import judging
from roofline_helpers.common.show import si
from roofline_helpers.pages import element, instruments

RUN = """(asked) => JSON.stringify(asked.map(([shape, chip, dtype, seconds]) => {
  const { kind, op } = shape, causal = shape.causal === true;
  const many = (letter, n) =>
    Object.fromEntries(Array.from({length: n}, (_, i) => [letter + i, dtype]));
  const parameters = {layernorm: ["γ", "β"], rmsnorm: ["γ"], softmax: []}[op];
  const job = kind === "matmul" ? model.matmul(shape.m, shape.n, shape.k, dtype)
    : kind === "attention" ? verdicts.attention(shape, dtype)
    : kind === "counts" ? verdicts.counts(shape.flops, shape.bytes, dtype)
    : kind === "rowwise" ? model.rowwise(op, shape.rows, shape.columns, dtype, {parameters})
    : model.elementwise(
        shape.elements, many("x", shape.reads), many("y", shape.writes), shape.each, dtype);
  const answer = judging.of(job, {...shape, causal}, model.chip(chip), seconds);
  return {...answer, high: answer.high === Infinity ? null : answer.high};
}))"""
PAGE = Path(__file__).parents[2] / "book/your-kernel.md"
KINDS = ("matmul", "attention", "elementwise", "rowwise", "counts")


def shape_of(kind, chance):
    """Return a kernel's sizes: round ones as programs have them, and odd ones."""

    def size(low, high):
        n = 2 ** chance.uniform(low, high)
        return max(1, round(n)) if chance.random() < 0.3 else 2 ** round(chance.uniform(low, high))

    sizes = {
        "matmul": lambda: {name: size(3, 14) for name in "mnk"},
        "attention": lambda: {"batch": size(0, 6), "kvHeads": 2 ** chance.randint(0, 3)},
        "elementwise": lambda: {
            "elements": size(8, 30),
            **{"reads": chance.randint(1, 4), "writes": chance.randint(1, 2)},
            "each": chance.choice([0, 1, 3, 20]),
        },
        "rowwise": lambda: {
            "op": chance.choice(["softmax", "layernorm", "rmsnorm"]),
            **{"rows": size(0, 17), "columns": size(5, 15)},
        },
        "counts": lambda: {"flops": 10.0 ** chance.randint(6, 15), "bytes": 10.0**9},
    }[kind]()
    if kind == "attention":
        sizes |= {"heads": sizes["kvHeads"] * 2 ** chance.randint(0, 3), "dim": 128}
        keys, queries = size(6, 14), chance.choice(["one", "all", "all, no mask"])
        sizes |= {"keys": keys, "queries": 1 if queries == "one" else keys}
        sizes |= {"causal": queries == "all"}
    return {"kind": kind, **sizes}


def work_of(shape, dtype):
    """Return what Python counts."""
    s, kind = shape, shape["kind"]
    if kind == "matmul":
        return rh.work.matmul(s["m"], s["n"], s["k"], dtype)
    if kind == "elementwise":
        return rh.work.elementwise(s["elements"], s["reads"], s["writes"], s["each"], dtype)
    if kind == "rowwise":
        return getattr(rh.work, s["op"])(s["rows"], s["columns"], dtype)
    if kind == "counts":
        return rh.Work("kernel", {"x": s["bytes"]}, {}, matrix_flops=s["flops"], dtype=dtype)
    heads = s["heads"], s["dim"], s["kvHeads"]
    sides = s["batch"], s["queries"], s["keys"]
    return rh.work.flash_attention(*sides, *heads, dtype, causal=s["causal"])


def asked():
    """Return kernels of every kind on every chip and type, more where XLA's were measured."""
    chance, found = random.Random(11), []
    for chip in rh.all_chips():
        types = [*dict.fromkeys([*chip.matrix, *chip.vector])]
        for kind, dtype in itertools.product(KINDS, types):
            for _ in range(8 if chip.key in ("h100", "h200") else 2):
                shape = shape_of(kind, chance)
                job, device = work_of(shape, dtype), chip.per_device()
                normal = rh.measured.judging.expected(job, chip)
                seconds = (normal.seconds or normal.low) * chance.choice([0.3, 0.8, 1, 1.3, 3])
                found.append([shape, device.key, dtype, seconds])
    return found


def test_the_page_says_what_python_says(chromium):
    questions, page = asked(), chromium.new_page()
    numbers = next(text for text in element.ASK.scripts() if "const numbers" in text)
    verdicts = next(text for text in instruments.INSTRUMENT.scripts() if "const verdicts" in text)
    alone = judging.script().partition("\n{\n")[0]
    code = f"{numbers}\n{instruments.model_script()}\n{verdicts}\n{alone}"
    answers = json.loads(
        page.evaluate(f"(asked) => {{ {code}\nreturn ({RUN})(asked) }}", questions)
    )
    page.close()
    seen = set()
    for (shape, chip, dtype, seconds), answer in zip(questions, answers, strict=True):
        one = rh.judge(work_of(shape, dtype), chip, seconds)
        where = shape, chip, dtype
        for name in ("verdict", "step", "source", "bound", "next"):
            assert answer[name] == getattr(one, name), (*where, name)
        assert answer["said"] == str(one), where
        for name in ("expected", "low", "least"):
            assert answer[name] == pytest.approx(getattr(one, name), rel=1e-6), (*where, name)
        if one.expected is not None:
            assert answer["high"] == pytest.approx(one.high, rel=1e-6), where
        seen.add((one.verdict, one.source.partition(",")[0]))
    assert {verdict for verdict, _ in seen} == {
        *("normal", "slow for its kind", "far off", "faster than its kind", "impossible"),
        "not measured",
    }
    assert {source for _, source in seen} == {
        *("measured", "its class", "not measured", "the law of libraries' kernels"),
    }


def test_the_page_begins_with_a_true_example():
    one = rh.judge(rh.work.matmul(64, 8192, 8192), "h100", 62e-6)
    said = PAGE.read_text("utf-8")
    for number in (one.least, one.expected, one.low, one.high):
        assert f"{si(number, 's').removesuffix(' µs')}" in said
    assert one.verdict in said
    assert one.source.removeprefix("measured, ").removesuffix(" like it") in said
