"""assets/briefs.js judges a design as `roofline.labs.briefs` does."""

import itertools
import json
import random

import pytest

from roofline import labs
from roofline.labs.briefs import BRIEFS, COUNTED, DAYS, RENT, days, judge
from roofline.labs.javascript import script as model_script
from roofline.serving.tensor_parallel import chip_counts
from roofline_helpers.pages.element import to_json
from tools import books

RUN = """([key, settings]) => JSON.stringify(settings.map((setting) =>
  briefs.judge(data, data.briefs[key], setting)))"""


def designs(brief):
    """Every design that the page offers."""
    fields = {
        "chip": brief.chips,
        "types": brief.formats,
        "cache": brief.caches,
        "fusion": DAYS["fusion"],
        "attention": DAYS["attention"],
        "batch": [2**i for i in range(11)],
    }
    found = []
    for values in itertools.product(*fields.values()):
        one = dict(zip(fields, values, strict=True))
        types = dict(zip(("weights", "activations"), one.pop("types"), strict=True))
        found += [{**one, **types, "chips": n} for n in chip_counts(brief.model, one["chip"])]
    return found


@pytest.mark.weekly
@pytest.mark.parametrize("key", BRIEFS)
def test_no_design_beats_the_best_known_one(key):
    brief = BRIEFS[key]
    least = judge(brief, brief.best)
    assert least.met
    for one in designs(brief):
        if RENT[one["chip"]] * one["chips"] > brief.dollars or days(one) > brief.days:
            continue
        # The largest batch between this one and its double: a step takes longer with every sequence
        met, missed = one["batch"], 2 * one["batch"]
        while judge(brief, {**one, "batch": met}).met and missed - met > 1:
            middle = (met + missed) // 2
            if judge(brief, {**one, "batch": middle}).met:
                met = middle
            else:
                missed = middle
        outcome = judge(brief, {**one, "batch": min(met, 1024)})
        assert outcome.cost >= least.cost * (1 - 1e-12) or not outcome.met, (one, met)


@pytest.mark.parametrize("key", BRIEFS)
def test_the_page_judges_as_python_does(chromium, key):
    brief = BRIEFS[key]
    tried = [brief.best, *random.Random(3).sample(designs(brief), 20)]
    served = {"model": brief.model, "context": brief.context, **COUNTED[brief.counted]}
    names = ("roofline_helpers/pages/assets/numbers.js", "roofline/labs/assets/briefs.js")
    files = "".join((books.ROOT / name).read_text("utf-8") for name in names)
    script = f"{model_script()}\n{files}\nconst data = {to_json(labs.design_challenge().data)};"
    page = chromium.new_page()
    asked = [key, [{**each, **served} for each in tried]]
    answers = json.loads(page.evaluate(f"(given) => {{ {script}\nreturn ({RUN})(given) }}", asked))
    page.close()
    for design, answer in zip(tried, answers, strict=True):
        assert answer == pytest.approx(judge(brief, design)._asdict(), rel=1e-9), design
    assert answers[0]["met"]
    assert not all(each["met"] for each in answers)
