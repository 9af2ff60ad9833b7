"""assets/mfu.js computes and says what `roofline.validation.mfu` does, and the page shows it."""

import json
import random

import pytest
from browser import overflow, violations
from playwright.sync_api import expect

from roofline.labs.mfu import MFU, TYPES, script, training_mfu
from roofline.training.setting import RECOMPUTE
from roofline.validation import mfu
from roofline_helpers.chips import all_chips, chip
from roofline_helpers.models import catalogue
from roofline_helpers.pages import element
from roofline_helpers.pages.instruments import model_script

RUN = "(settings) => JSON.stringify(settings.map((setting) => mfu.of(setting)))"


def settings():
    """Return settings of every model and chip: little, usual, and more than the peak."""
    chance, found = random.Random(5), []
    for device in all_chips():
        for model in chance.sample(sorted(catalogue()), 4):
            dtype = chance.choice([dtype for dtype in device.matrix if dtype in TYPES])
            shape = {"seq": chance.choice([1, 333, 4096, 131072]), "chips": chance.choice([1, 8])}
            how = chance.choice(sorted(RECOMPUTE))
            asked = {"model": model, "chip": device.key, "dtype": dtype, "recompute": how, **shape}
            one = mfu(model, device, 1.0, **{k: asked[k] for k in ("seq", "dtype", "recompute")})
            goal = chance.choice([1e-3, 0.2, 0.4, 0.8, 0.97, 5.0])
            found.append({**asked, "tokens": goal / one.mfu * shape["chips"]})
    return found


def test_the_page_computes_and_says_what_python_does(chromium):
    page, asked = chromium.new_page(), settings()
    code = f"(settings) => {{ {_alone()}\nreturn ({RUN})(settings) }}"
    answers = json.loads(page.evaluate(code, asked))
    page.close()
    for setting, answer in zip(asked, answers, strict=True):
        given = {k: setting[k] for k in ("chips", "seq", "dtype", "recompute")}
        run = mfu(setting["model"], chip(setting["chip"]), setting["tokens"], **given)
        for name, value in (("counts", run.counts), ("mfu", run.mfu), ("hfu", run.hfu)):
            assert answer[name] == pytest.approx(value, rel=1e-12), (setting, name)
        assert [one["key"] for one in answer["runs"]] == [one.key for one in run.like.runs], setting
        said = run.headline(), run.standing(), [*run.faults()], [*run.doubts()]
        names = "headline", "standing", "faults", "doubts"
        assert tuple(answer[name] for name in names) == said, setting
    assert {setting["chip"] for setting in asked} == {device.key for device in all_chips()}
    assert any(answer["faults"] for answer in answers)


def _alone():
    """Return the script without its element, which needs a page."""
    numbers = next(text for text in element.ASK.scripts() if "const numbers" in text)
    return f"{numbers}\n{model_script()}\n{script().partition(chr(10) + '{' + chr(10))[0]}"


RULES = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:"
PAGE = (
    "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>MFU</title>"
    f'<meta http-equiv="Content-Security-Policy" content="{RULES}">'
    "<meta name='viewport' content='width=device-width'><meta name='roofline-site' content='1'>"
    "<script defer src='a.js'></script></head><body><main><h1>MFU</h1>{}</main></body></html>"
)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_device_by_the_name_that_it_prints(visit, serve, tmp_path, width):
    (tmp_path / "index.html").write_text(PAGE.replace("{}", training_mfu().markup()), "utf-8")
    (tmp_path / "a.js").write_text(element.script(MFU), "utf-8")
    page = visit(f"{serve(tmp_path)}index.html", width=width)
    host = page.locator("[data-kind=mfu]")
    expect(host).to_contain_text("Llama 3 8B on NVIDIA H100 SXM: MFU 41.6%")
    host.get_by_label("What JAX, PyTorch or nvidia-smi calls the device").fill("NVIDIA GB200")
    expect(host).to_contain_text("of 2,500 TFLOP/s in bf16, dense")
    host.get_by_label("What JAX, PyTorch or nvidia-smi calls the device").fill("NVIDIA H9000")
    expect(host).to_contain_text("choose the chip below")
    host.get_by_label("Tokens a second, of all chips").fill("6400000")
    expect(host).to_contain_text("More than the peak is impossible")
    host.get_by_label("Model", exact=True).select_option("own")
    expect(host).to_contain_text("Your model on NVIDIA GB200")
    expect(host.get_by_role("img")).to_have_count(1)
    assert overflow(page) == 0
    assert violations(page) == []
