"""The fixtures of the browser tests notice what they are there to notice."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from browser import Serve, Visit, Watch, overflow, violations, visitor
from playwright.sync_api import Browser, Error
from thinning import note, thin_out

from tools.notebooks import run as notebooks

SOUND = "<!doctype html><html lang='en'><title>T</title><main><h1>Sound</h1><p>Text</p></main>"


@pytest.fixture
def write(tmp_path: Path, serve: Serve):
    def page(body: str) -> str:
        (tmp_path / "index.html").write_text(body, "utf-8")
        return serve(tmp_path) + "index.html"

    return page


def watched(chromium: Browser, address: str, **options) -> Watch:
    with visitor(chromium, **options) as (page, watch):
        page.goto(address, wait_until="load")
        page.evaluate("0")  # what the page has said before arrives before its answer
    return watch


def test_a_sound_page_passes(write, visit: Visit) -> None:
    page = visit(write(SOUND), width=390)
    assert violations(page) == []
    assert overflow(page) == 0


def test_a_request_to_elsewhere_is_refused_and_noticed(write, chromium: Browser) -> None:
    watch = watched(chromium, write(f"{SOUND}<img src='http://example.org/a.png' alt='a'>"))
    assert watch.outside == ["http://example.org/a.png"]
    with visitor(chromium) as (page, _), pytest.raises(Error, match="ERR_NAME_NOT_RESOLVED"):
        page.goto("http://example.org/")


@pytest.mark.parametrize("script", ["console.error('broken')", "throw Error('broken')"])
def test_errors_are_noticed(write, chromium: Browser, script: str) -> None:
    address = write(f"{SOUND}<script>{script}</script>")
    assert ["broken" in one for one in watched(chromium, address).errors] == [True]
    assert watched(chromium, address, allowed=("broken",)).errors == []


def test_barriers_and_overflow_are_found(write, visit: Visit) -> None:
    wide = "<input><div style='width:500px;color:#ccc;background:#fff'>pale</div>"
    page = visit(write(f"{SOUND[:-7]}{wide}</main>"), width=390)
    found = "\n".join(violations(page))
    assert "color-contrast (serious, 1)" in found
    assert "label (critical, 1)" in found
    assert overflow(page) > 100


# A page of many like ones, with a fault in one of the last: none of it is of a kind of its own but
# for what is wrong with it
LIKE = {
    "p": "<p>Text with <code>code</code> and <a href='#a'>a link</a></p>",
    "row": "<tr><td>5</td><td><button>Show</button></td></tr>",
    "entry": "<dt id='{i}'>name</dt><dd><p>What it <em>is</em></p></dd>",
    "field": "<label for='f{i}'>Size</label><input id='f{i}'>",
}
MANY = (
    "{head}<style>body {{background: #fff; color: #222}} p, li {{margin: 2em}} .pale {{color: #ccc}}"
    " .wide {{width: 99px; overflow: auto}} [data-ten] {{color: #bbb}} tr {{height: 40px}}"
    " @media (max-width: 600px) {{ .thin {{color: #ddd}} }}</style><h2 id='a'>Two</h2>"
    "{p}<table><thead><tr><th>N</th><th>Do</th></tr></thead><tbody>{row}</tbody></table>"
    "<dl>{entry}</dl><form>{field}</form></main>"
)
WRONG = {
    "color-contrast": ("p", "<p>Text with <code class='pale'>code</code></p>"),
    "color-contrast, by an attribute": ("row", "<tr><td data-ten='1'>ten</td><td>6</td></tr>"),
    "color-contrast, where it is narrow": ("p", "<p class='thin'>Text</p>"),
    "color-contrast, around": ("p", "<div class='pale'><p>Text</p></div>"),
    "link-name": ("p", "<p>Text with <code>code</code> and <a href='#a'></a></p>"),
    "button-name": ("row", "<tr><td>5</td><td><button></button></td></tr>"),
    "aria-roles": ("p", "<p role='buton'>Text</p>"),
    "aria-valid-attr-value": (
        "row",
        "<tr><td>5</td><td><button aria-expanded='maybe'>Show</button></td></tr>",
    ),
    "aria-allowed-attr": ("entry", "<dt>name</dt><dd><p aria-checked='true'>What</p></dd>"),
    "label": ("field", "<label for='nowhere'>Size</label><input id='f99'>"),
    "heading-order": ("p", "<h5>A title</h5>"),
    "dlitem": ("p", "<p>Text</p><dd>Text</dd>"),
    "scrollable-region-focusable": ("p", "<p class='wide'>" + "Longword" * 20 + "</p>"),
    "valid-lang": ("p", "<p lang='nonsense'>Text</p>"),
    "landmark-unique": ("p", "<nav>One</nav><nav>Two</nav>"),
    "image-alt": ("p", "<p>Text <img src='data:,' width='9' height='9'></p>"),
    "target-size": (
        "row",
        "<tr><td>5</td><td><a role='button' style='display:block;height:9px;line-height:9px' href='#a'>Show</a>"
        "<a role='button' style='display:block;height:9px;line-height:9px' href='#a'>Show</a></td></tr>",
    ),
}


def many(kind: str = "", wrong: str = "") -> str:
    """A page with forty of each of `LIKE`, and a wrong one of a kind before the last two."""
    made = {name: [one.format(i=f"{name}{i}") for i in range(40)] for name, one in LIKE.items()}
    if wrong:
        made[kind].insert(38, wrong)
    return MANY.format(head=SOUND[:-7], **{name: "".join(all_) for name, all_ in made.items()})


def test_what_a_page_repeats_is_taken_out_and_what_is_wrong_is_not(visit: Visit) -> None:
    page, seen, missed = visit(width=390), {}, []
    for rule, (kind, wrong) in {"": ("", ""), " ": ("", ""), **WRONG}.items():
        page.set_viewport_size({"width": 390, "height": 900})
        page.set_content(many(kind, wrong))
        note(page)
        page.set_viewport_size({"width": 1280, "height": 900})
        note(page)
        every = page.locator("body *").count()
        thin_out(page, seen)
        left = page.locator("body *").count()
        assert every > 500
        assert left < (50 if rule else 60), rule
        page.set_viewport_size({"width": 390, "height": 900})
        found = {one.split()[0] for one in violations(page)}
        wanted = {rule.split(",")[0]} if rule.strip() else set()
        missed += [f"{rule}: {found}"] if found != wanted else []
    assert not missed, "\n".join(missed)


def test_what_is_in_a_shadow_root_is_noted_too(write, visit: Visit) -> None:
    hosts = "<div data-kind='x'></div>" * 9
    page = visit(write(f"{SOUND[:-7]}{hosts}</main>"))
    page.evaluate(
        "document.querySelectorAll('[data-kind]').forEach((host, i) => host.attachShadow({mode:"
        " 'open'}).innerHTML = `<p>Text</p><button>${i === 7 ? '' : 'Check'}</button>`)"
    )
    note(page)
    thin_out(page, {})
    assert page.locator("[data-kind]").count() == 3
    assert [one.split()[0] for one in violations(page)] == ["button-name"]


def test_a_notebook_runs_while_the_browser_is_open(chromium: Browser, tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell("6 * 7")]
    path = tmp_path / "a.ipynb"
    path.write_text(notebooks.dump(nbformat.v4.new_notebook(cells=cells)), "utf-8")
    assert notebooks.execute(path).cells[0].outputs[0].data["text/plain"] == "42"
