"""assets/briefs.js judges a design as `roofline_helpers.pages.briefs` does."""

from __future__ import annotations

import json
import random
from importlib import resources

import pytest
from playwright.sync_api import Browser

from roofline_helpers import pages
from roofline_helpers.pages.briefs import BATCHES, BRIEFS, COUNTED, designs, judge
from roofline_helpers.pages.element import to_json
from roofline_helpers.serving.page import script as model_script

RUN = """([key, settings]) => JSON.stringify(settings.map((setting) =>
  briefs.judge(data, data.briefs[key], setting)))"""


@pytest.mark.parametrize("key", BRIEFS)
def test_the_page_judges_as_python_does(chromium: Browser, key: str) -> None:
    brief = BRIEFS[key]
    chosen = random.Random(3)
    some = chosen.sample(list(designs(brief)), 20)
    tried = [brief.best, *({**each, "batch": chosen.choice(BATCHES)} for each in some)]
    served = {"model": brief.model, "context": brief.context, **COUNTED[brief.counted]}
    folder = resources.files("roofline_helpers") / "pages/assets"
    names = ("numbers.js", "briefs.js")
    files = "".join((folder / name).read_text("utf-8") for name in names)
    script = f"{model_script()}\n{files}\nconst data = {to_json(pages.design_challenge().data)};"
    page = chromium.new_page()
    asked = [key, [{**each, **served} for each in tried]]
    answers = json.loads(page.evaluate(f"(given) => {{ {script}\nreturn ({RUN})(given) }}", asked))
    page.close()
    for design, answer in zip(tried, answers, strict=True):
        assert answer == pytest.approx(judge(brief, design)._asdict(), rel=1e-9), design
    assert answers[0]["met"]
    assert not all(each["met"] for each in answers)
