"""Questions and the page around: themes, widths, sandboxes, rules, no script at all."""

import json

import pytest
from asking import (
    HEAD,
    TABLE,
    asked,
    choice,
    number,
    piece,
    sheet,
    status,
)
from browser import overflow, violations
from playwright.sync_api import expect

from roofline_helpers import pages
from roofline_helpers.pages import questions

THEMES = {
    "site": ("document.documentElement.dataset.theme", "dark", "light"),
    "JupyterLab": ("document.body.dataset.jpThemeLight", "false", "true"),
    "VS Code": ("document.body.className", "vscode-dark", "vscode-light"),
    "VS Code, kind": (
        "document.body.dataset.vscodeThemeKind",
        "vscode-high-contrast",
        "vscode-light",
    ),
}
# Take back what any of them has set
AS_BEFORE = """() => {
  for (const one of [document.documentElement, document.body]) {
    for (const { name } of [...one.attributes]) if (name !== "lang") one.removeAttribute(name);
  }
}"""


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_theme_is_the_page_s_and_follows_it(show, system):
    page = show(choice(), theme=system)
    host = piece(page)
    for where, dark, light in THEMES.values():
        expect(host).to_have_attribute("data-look", system)
        for value, look in (
            (dark, "dark"),
            (light, "light"),
            (dark, "dark"),
        ):
            page.evaluate(f"() => {{ {where} = {json.dumps(value)} }}")
            expect(host).to_have_attribute("data-look", look)
        page.evaluate(AS_BEFORE)


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (390, "dark"),
        (1280, "light"),
    ],
)
def test_no_barrier_and_no_overflow(show, theme, width):
    prompt = "Which? " + "A long question needs many words. " * 8
    options = {"a" * 60: "Long.", "b " * 60: "Longer."}
    long = asked("t-long", prompt, options, right="a" * 60)
    elements = (choice(then=TABLE), number(then=TABLE), sheet(), long, questions.ledger())
    page = show(*elements, theme=theme, width=width)
    assert violations(page) == []
    assert overflow(page) <= 0
    for fold in page.locator("summary").all():
        fold.click()
    for field in page.get_by_role("textbox").all()[:2]:
        field.fill("x")
    assert violations(page) == []
    for box in page.get_by_role("radio").all():
        box.check()
    for field in page.get_by_role("textbox").all():
        field.fill("3")
    for button in page.get_by_role("button", name="Check").element_handles():
        button.click()
    page.get_by_role("button", name="Export").click()
    expect(page.get_by_role("table")).to_have_count(3)
    assert violations(page) == []
    assert overflow(page) <= 0
    if width < 600:
        heights = page.evaluate(
            "[...document.querySelectorAll('[data-kind]')].flatMap(h => [...h.shadowRoot"
            ".querySelectorAll('button, .option, input[type=text]')])"
            ".filter(n => n.checkVisibility()).map(n => n.getBoundingClientRect().height)"
        )
        assert min(heights) >= 44


def test_without_javascript_the_answer_is_folded(show):
    page = show(choice(then=TABLE), sheet(), questions.ledger(), java_script_enabled=False)
    expect(page.get_by_text("Which decides?")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="16384")).to_be_visible()
    expect(page.get_by_role("table")).to_be_visible()
    reason = page.get_by_text("It is large beside the batch.")
    expect(reason).to_be_hidden()
    page.get_by_text("Show the answer").first.click()
    expect(reason).to_be_visible()


def test_the_site_s_rules_allow_it(visit, serve, tmp_path):
    """With the script in a file, a page needs neither inline scripts nor eval."""
    rules = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{rules}">'
    head += '<meta name="roofline-site" content="1"><script defer src="a.js"></script>'
    body = choice(then=TABLE).markup() + sheet().markup()
    (tmp_path / "a.js").write_text(pages.element.script(pages.element.ASK), "utf-8")
    (tmp_path / "index.html").write_text(HEAD.format(head=head) + body, "utf-8")
    for address in (serve(tmp_path) + "index.html", (tmp_path / "index.html").as_uri()):
        page = visit(address)
        page.get_by_label("4096").check()
        page.get_by_role("button", name="Check").first.click()
        assert "Wrong: It is large beside the batch." in status(page)
