"""The fixtures of the browser tests notice what they are there to notice."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from browser import Serve, Visit, Watch, overflow, violations, visitor
from playwright.sync_api import Browser, Error
from thinning import note, thin_out, violations_of_unseen, violations_of_whole
from unchanged import Sound

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
    listed = "\n".join(violations(page))
    assert "color-contrast (serious, 1)" in listed
    assert "label (critical, 1)" in listed
    assert overflow(page) > 100


# A page of many like ones, with what is wrong before the last two: it is of a kind of its own only
# by what is wrong with it
LIKE = {
    "p": "<p>Text with <code>code</code> and <a href='#a'>a link</a></p>",
    "tr": "<tr><td>5</td><td><button>Show</button></td></tr>",
    "dl": "<dt id='{i}'>name</dt><dd><p>What it <em>is</em></p></dd>",
    "form": "<label for='f{i}'>Size</label><input id='f{i}'>",
}
STYLE = """<style>body {background: #fff; color: #222} p {margin: 2em} tr {height: 40px}
  .pale {color: #ccc} [data-ten] {color: #bbb} .wide {width: 99px; overflow: auto}
  .low {display: block; height: 9px; line-height: 9px}
  @media (max-width: 600px) { .thin {color: #ddd} }</style>"""
LOW = "<a class='low' role='button' href='#a'>Show</a>"
WRONG = {
    "color-contrast": ("p", "<p>Text with <code class='pale'>code</code></p>"),
    "color-contrast, by an attribute": ("tr", "<tr><td data-ten='1'>ten</td><td>6</td></tr>"),
    "color-contrast, where it is narrow": ("p", "<p class='thin'>Text</p>"),
    "color-contrast, by what is around": ("p", "<div class='pale'><p>Text</p></div>"),
    "link-name": ("p", "<p>Text with <code>code</code> and <a href='#a'></a></p>"),
    "button-name": ("tr", "<tr><td>5</td><td><button></button></td></tr>"),
    "aria-roles": ("p", "<p role='buton'>Text</p>"),
    "aria-valid-attr-value": ("tr", "<tr><td><button aria-expanded='x'>Show</button></td></tr>"),
    "aria-allowed-attr": ("dl", "<dt>name</dt><dd><p aria-checked='true'>What</p></dd>"),
    "label": ("form", "<label for='nowhere'>Size</label><input id='f99'>"),
    "heading-order": ("p", "<h5>A title</h5>"),
    "dlitem": ("p", "<p>Text</p><dd>Text</dd>"),
    "scrollable-region-focusable": ("p", f"<p class='wide'>{'Longword' * 20}</p>"),
    "valid-lang": ("p", "<p lang='nonsense'>Text</p>"),
    "landmark-unique": ("p", "<nav>One</nav><nav>Two</nav>"),
    "image-alt": ("p", "<p>Text <img src='data:,' width='9' height='9'></p>"),
    "target-size": ("tr", f"<tr><td>5</td><td>{LOW}{LOW}</td></tr>"),
}


def many(wrong: dict[str, tuple[str, str]]) -> str:
    """A page with forty of each of `LIKE`, and before the last two of each what is wrong."""
    made = {name: [one.format(i=f"{name}{i}") for i in range(40)] for name, one in LIKE.items()}
    for name, one in wrong.values():
        made[name].insert(-2, one)
    parts = {name: "".join(every) for name, every in made.items()}
    head = "<thead><tr><th>N</th><th>Do</th></tr></thead>"
    return (
        f"{SOUND[:-7]}{STYLE}<h2 id='a'>Two</h2>{parts['p']}<table>{head}<tbody>{parts['tr']}"
        f"</tbody></table><dl>{parts['dl']}</dl><form>{parts['form']}</form></main>"
    )


def test_what_a_page_repeats_is_taken_out_and_what_is_wrong_is_not(visit: Visit) -> None:
    page, seen, every = visit(width=390), {}, []

    def thinned(text: str) -> int:
        page.set_content(text)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            note(page)
        every.append(page.locator("body *").count())
        thin_out(page, seen)
        page.set_viewport_size({"width": 390, "height": 900})
        return page.locator("body *").count()

    left = [thinned(many({})), thinned(many({}))]
    assert violations_of_unseen(page) == []
    assert every[0] > 500
    assert left[1] < left[0] < 60
    wrong = many(WRONG)
    assert thinned(wrong) < left[0] + 60
    rules = sorted(one.partition(":")[0] for one in violations_of_unseen(page))
    assert {one.split()[0] for one in rules} == {rule.split(",")[0] for rule in WRONG}
    page.set_content(wrong)
    assert rules == sorted(one.partition(":")[0] for one in violations_of_whole(page, {}))
    assert rules == sorted(one.partition(":")[0] for one in violations(page))


def test_a_second_look_finds_what_only_it_shows(visit: Visit) -> None:
    """In colours and sizes of what was there before, and in names of what was not."""
    late = (
        "<style>.late {display: none} @media (max-width: 600px) { .late {display: block} }</style>"
    )
    pale = "<p class='thin'>Text</p>"
    page = visit()
    for wrong, rule in (
        (pale, ["color-contrast"]),
        ("<button class='late'></button>", ["button-name"]),
    ):
        page.set_content(f"{SOUND[:-7]}{STYLE}{late}{wrong}</main>")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            note(page)
        thin_out(page, {})
        assert violations_of_unseen(page) == []
        page.set_viewport_size({"width": 390, "height": 900})
        assert [one.split()[0] for one in violations_of_unseen(page)] == rule


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
    assert [one.split()[0] for one in violations_of_unseen(page)] == ["button-name"]


def test_a_notebook_runs_while_the_browser_is_open(chromium: Browser, tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell("6 * 7")]
    path = tmp_path / "a.ipynb"
    path.write_text(notebooks.dump(nbformat.v4.new_notebook(cells=cells)), "utf-8")
    assert notebooks.execute(path).cells[0].outputs[0].data["text/plain"] == "42"


def test_a_page_is_kept_as_sound_until_something_of_it_changes(tmp_path: Path) -> None:
    site, notes = tmp_path / "site", tmp_path / "notes"
    files = ["_static/book.css", "_static/site.js", "_static/search-index.js", "interactive/ask.js"]
    pictures = ["_images/a.png", "_images/a.dark.png", "_images/b.png"]
    for name in [*files, *pictures, "notebooks/fusion.html", "search.html"]:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("as it was", "utf-8")
    page = site / "notebooks/fusion.html"
    page.write_text("".join(f"<img src=../{name}>" for name in pictures[:2]), "utf-8")
    sound = Sound(site, "axe", notes)
    assert "notebooks/fusion" not in sound
    sound.add("notebooks/fusion"), sound.add("search")
    assert "notebooks/fusion" in sound
    assert "notebooks/fusion" not in Sound(site, "another axe", notes)
    kept = {}
    for name in [*files, *pictures, "notebooks/fusion.html"]:
        before = (site / name).read_text("utf-8")
        (site / name).write_text(f"{before} no more", "utf-8")
        kept[name] = "notebooks/fusion" in sound, "search" in sound
        (site / name).write_text(before, "utf-8")
    (site / pictures[0]).unlink()
    assert "notebooks/fusion" not in sound
    assert kept == {
        **dict.fromkeys(files, (False, False)),
        "_static/search-index.js": (True, False),
        **dict.fromkeys(pictures[:2], (False, True)),
        "_images/b.png": (True, True),
        "notebooks/fusion.html": (False, True),
    }
