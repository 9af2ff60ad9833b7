"""The page of causes: every cause has its place there, its programs run, its gains are measured."""

import ast
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from jax import lax

import page_causes
from page_promises import pairs
from roofline.diagnosis import ladder
from roofline.xla.causes import CAUSES, KINDS, Finding
from tools import books

TOLD = page_causes.programs()
KEYS = sorted(TOLD.keys() - {"kinds"})
TEXT = page_causes.causes()
PAGES = {
    entry["file"]
    for part in yaml.safe_load((books.ROOT / "_toc.yml").read_text())["parts"]
    for entry in part["chapters"]
}


def test_every_cause_has_its_place_and_nothing_else_has():
    named = {key for key, cause in CAUSES.items() if cause.named}
    assert named ^ {*KEYS} == set(), "in roofline/data/causes.toml or book/causes.toml only"
    assert set(TOLD["kinds"]) == {*KINDS, "other", "none"}
    heads = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
    assert sorted(heads) == sorted(CAUSES)
    for cause in CAUSES.values():
        place = TEXT.partition(f"### {cause.key}\n")[2].partition("\n#")[0]
        assert cause.title[1:] in place
        assert cause.advice in place


def test_links_of_findings_land_on_a_heading():
    slugs = re.findall(r"^##+ (.+)$", TEXT, re.MULTILINE)
    ids = [re.sub(r"[^a-z0-9-]", "", slug.lower().replace(" ", "-")) for slug in slugs]
    assert len(ids) == len({*ids})  # or one of them would be renamed
    for key in CAUSES:
        page, _, fragment = Finding(key, 0.0, (), "").page.partition("#")
        assert fragment in ids
        assert page.removesuffix(".html") in PAGES
    assert {TOLD[key]["read"] for key in KEYS if "read" in TOLD[key]} <= PAGES


def run(code, names):
    """Run code, and return the value of its last line."""
    body = ast.parse(code.strip()).body
    last = body.pop()
    exec(compile(ast.Module(body, []), "causes", "exec"), names)
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "causes", "eval"), names)


@pytest.mark.parametrize("key", [key for key in KEYS if "given" in TOLD[key]])
def test_both_programs_give_the_same_result(key):
    told, drawn = TOLD[key], np.random.default_rng(0)
    results = []
    names = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "math": math}
    names["normal"] = lambda *shape: jnp.asarray(drawn.standard_normal(shape), "float32")
    exec(told["given"], names)
    for side in ("before", "after"):
        results.append(np.asarray(run(told[side], dict(names)), np.float32))
    assert results[0].shape == results[1].shape
    if told.get("alike", True):
        np.testing.assert_allclose(results[0], results[1], rtol=1e-2, atol=1e-4)


def test_a_pair_stands_under_a_cause_of_its_kind_or_that_explain_named():
    rows = {pair.name: pair for pair in pairs()}
    told = [(key, name) for key in KEYS for name in TOLD[key].get("pairs", ())]
    assert len(told) == len({name for _, name in told})
    for key, name in told:
        named = [finding["cause"] for finding in rows[name].row["now"]]
        assert rows[name].kind == CAUSES[key].kind or key in named, (key, name)
    clean = {name for name, pair in rows.items() if pair.kind == "nothing in vain"}
    assert {name for _, name in told} | clean >= {*rows} - {"symmetric-solves", "small-solves"}


def test_gains_are_those_of_the_records():
    rows = {pair.name: pair.row for pair in pairs()}
    hot = next(page_causes.gains(TOLD["one-hot"]))
    assert hot == ("`one-hot-lookup`", *(rows["one-hot-lookup"][s] for s in ("before", "after")))
    ran = ladder.committed()["decode-rungs"].select(batch=16)
    steps = {step.rung: step.why.wall for step in ran if step.why is not None}
    loop = list(page_causes.gains(TOLD["scan-copy"]))[-1]
    assert loop[1:] == (steps["as first written"], steps["unrolled"])
    slower = [gain for gain in page_causes.gains(TOLD["gather"]) if gain[2] > gain[1]]
    assert len(slower) == 4  # "often gain nothing"
