"""Every page of the built site in a real browser: themes, widths, keyboard, search, from disk.

Axe looks at wide light and narrow dark pages, and there at what is of a kind that it has not seen;
with ROOFLINE_THOROUGH set, at whole pages in all four combinations of theme and width. With that or
ROOFLINE_PICTURES set, a picture of every page as a phone and as a desk shows it stays in
``_build/pictures``; without, a page that was found sound and has not changed isn't opened again.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from browser import Serve, Visit, Watch, axe_source, drawn, overflow, until, violations, visitor
from playwright.sync_api import Browser, CDPSession, Page, expect
from thinning import (
    Seen,
    note,
    thin_out,
    violations_of_thinned,
    violations_of_unseen,
    violations_of_whole,
)
from unchanged import Sound

from tools import books

PICTURES = books.ROOT / "_build/pictures"
PAGES = [*books.pages(), "genindex", "search"]
CHAPTER = "notebooks/fusion"
THOROUGH = bool(os.environ.get("ROOFLINE_THOROUGH"))
PICTURED = THOROUGH or bool(os.environ.get("ROOFLINE_PICTURES"))
# Widths and themes that a page is shown in. It is loaded in the first: a phone keeps its width
LOOKS = [(390, "dark"), (1280, "light"), *([(390, "light"), (1280, "dark")] if THOROUGH else [])]
LOOKERS = ("browser.py", "thinning.py", "test_browser_site.py")
REFUSED = "Content Security Policy"
CODE = 72  # characters of a line that fit, in a font that is a little wider than this machine's

# Open all that is folded or locked
OPENED = """() => {
  for (const one of document.querySelectorAll("article details")) one.open = true;
  for (const one of document.querySelectorAll("[data-kind]")) {
    const locked = one.shadowRoot?.querySelector(".then");
    if (locked) locked.hidden = false;
  }
}"""
# Pictures of the page that don't load, and those without a size: the text jumps when they come.
LOADED = """async () => {
  const pictures = [...document.images];
  for (const one of pictures) one.loading = "eager";
  await Promise.all(pictures.map((one) => one.decode().catch(() => {})));
  const broken = pictures.filter((one) => !one.naturalWidth).map((one) => `broken: ${one.src}`);
  const sized = (one) => one.getAttribute("width") && one.getAttribute("height");
  const loose = pictures.filter((one) => one.closest("article") && !sized(one));
  return [...broken, ...loose.map((one) => `no size: ${one.src.slice(0, 80)}`)];
}"""
# Tables that are wider than their place, or that hide a column in it
TABLES = """() => {
  return [...document.querySelectorAll("article .scroll")].flatMap((place) => {
    const right = (one) => one.getBoundingClientRect().right;
    const cut = [...place.querySelectorAll("th, td")].some((one) => right(one) > right(place) + 1);
    const wide = place.scrollWidth - place.clientWidth;
    const head = place.innerText.slice(0, 60);
    return wide > 0 || cut ? [`a table is ${wide} px too wide: ${head}`] : [];
  });
}"""
# Blocks of code in which a line of so many characters would be cut
NARROW = """(characters) => [...document.querySelectorAll("article .highlight-python pre")]
  .filter((one) => one.checkVisibility()).flatMap((one) => {
    const line = document.createElement("span"), style = getComputedStyle(one);
    line.textContent = "0".repeat(characters);
    one.append(line);
    const needed = 1.03 * line.getBoundingClientRect().width;
    line.remove();
    const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return room < needed ? [`${characters} characters need ${needed} px of ${room}`] : [];
  })"""


@pytest.fixture(scope="module")
def home(site: Path, serve: Serve) -> str:
    """Return the address of the built site, with a last slash."""
    return serve(site)


@dataclass
class Looked:
    """A window for all pages, the kinds of elements that axe has seen in it, and what is sound.

    What it has seen on a page with faults may be one of them: after such a page none is noted.
    """

    page: Page
    watch: Watch
    touch: CDPSession
    sound: Sound
    seen: Seen = field(default_factory=dict)
    faulty: bool = False

    def show(self, width: int, theme: str) -> None:
        """Make it a narrow touch screen or a wide one with a pointer, light or dark."""
        self.touch.send("Emulation.setTouchEmulationEnabled", {"enabled": width < 600})
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def looked(chromium: Browser, home: str, site: Path) -> Iterator[Looked]:
    """One window for all pages; each test asserts what it watched."""
    here = Path(__file__).parent
    sources = [(here / name).read_text("utf-8") for name in LOOKERS]
    with visitor(chromium) as (page, watch):
        page.add_init_script(axe_source())
        page.goto(home + "search.html")
        by = "\0".join([chromium.version, axe_source(), *sources])
        yield Looked(page, watch, page.context.new_cdp_session(page), Sound(site, by))


def take_picture(page: Page, name: str, width: int) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name.replace('/', '-')}-{width}.jpg"
    height = page.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 16000)}
    page.screenshot(path=path, type="jpeg", quality=60, full_page=True, clip=clip)  # type: ignore[arg-type]


def opened(page: Page) -> None:
    """Open all of a page, and let it do what it does at the next drawing."""
    page.evaluate(OPENED)
    drawn(page)


def faults(page: Page, width: int) -> list[str]:
    """What is wrong with a whole page, all of it open, as it is shown now: but for barriers."""
    opened(page)
    problems = list(page.evaluate(LOADED))
    coarse = page.evaluate("matchMedia('(pointer: coarse)').matches")
    assert coarse is (width < 600), (
        "the rules of a touch screen are not in force where they are meant"
    )
    problems += page.evaluate(TABLES)
    if width == 1280:
        problems += page.evaluate(NARROW, CODE)
    if overflow(page) > 0:
        problems.append(f"the page is {overflow(page)} px too wide")
    return problems


@pytest.mark.xdist_group("pages")  # one window for all: what it has seen, it need not see again
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_sound_at_both_widths(name: str, looked: Looked, home: str) -> None:
    if not PICTURED and name in looked.sound:
        return
    page, watch, problems = looked.page, looked.watch, []
    looked.show(*LOOKS[0])
    page.goto(f"{home}{name}.html")
    for width, theme in LOOKS[:2] if PICTURED else ():
        looked.show(width, theme)
        page.evaluate(LOADED)
        take_picture(page, name, width)
    for width, theme in LOOKS:
        if PICTURED or (width, theme) != LOOKS[0]:
            looked.show(width, theme)
        problems += [f"{width} px, {theme}: {one}" for one in faults(page, width)]
        note(page)
    if not THOROUGH:
        thin_out(page, looked.seen)
    for width, theme in reversed(LOOKS):  # it is shown in the last one now
        if (width, theme) != LOOKS[-1]:
            looked.show(width, theme)
            opened(page)
        barriers = violations(page) if THOROUGH else violations_of_unseen(page)
        problems += [f"{width} px, {theme}: {one}" for one in barriers]
    problems += [f"asked {one}" for one in watch.outside] + watch.errors
    watch.outside.clear(), watch.errors.clear()
    looked.faulty |= bool(problems)
    assert not problems, "\n".join(problems)
    if not looked.faulty:
        looked.sound.add(name)


def test_the_keyboard_reaches_everything_in_order_and_sees_where_it_is(
    visit: Visit, home: str
) -> None:
    page = visit(f"{home}{CHAPTER}.html", width=1280)
    seen = []
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "() => { const one = document.activeElement, box = one.closest('.search') ?? one;"
                "const style = (e) => getComputedStyle(e).outlineStyle;"
                "return [one.textContent.trim() || one.getAttribute('aria-label'),"
                " style(one) !== 'none' || style(box) !== 'none'] }"
            )
        )
    names = [name for name, _ in seen]
    assert names[:2] == ["Skip to the text", "Roofline Analysis"]
    assert names[2:4] == ["Search the book", "Search"]
    assert names[4].startswith("Colours")
    assert "What is a roofline?" in names[5]
    assert all(visible for _, visible in seen), seen


def test_the_skip_link_skips(visit: Visit, home: str) -> None:
    page = visit(f"{home}{CHAPTER}.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main-content"
    page.keyboard.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('main')")


@pytest.mark.parametrize("script", [True, False])
def test_a_phone_opens_and_closes_the_lists(visit: Visit, home: str, script: bool) -> None:
    page = visit(f"{home}{CHAPTER}.html", width=390, java_script_enabled=script)
    for name, nav in (("Chapters", "#contents"), ("On this page", "#sections")):
        expect(page.locator(nav)).to_be_hidden()
        page.get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        expect(page.locator(nav)).to_be_visible()
        if script:
            assert violations_of_whole(page, {}, nav) == []
        page.keyboard.press("Escape")
        expect(page.locator(nav)).to_be_hidden()
    page.get_by_role("button", name="Chapters").click()
    page.get_by_role("link", name="Anatomy of a roofline plot").click()
    page.wait_for_url("**/anatomy.html")


def test_colours_follow_the_system_and_then_the_reader(visit: Visit, home: str) -> None:
    page = visit(f"{home}{CHAPTER}.html", theme="dark")
    figure = page.locator("article picture img").first
    figure.scroll_into_view_if_needed()

    def look() -> tuple[str, bool, str]:
        return (
            page.evaluate("document.documentElement.dataset.theme"),
            figure.evaluate("one => one.currentSrc").endswith(".dark.png"),
            page.evaluate("getComputedStyle(document.documentElement).backgroundColor"),
        )

    def becomes(wanted: tuple[str, bool, str]) -> None:
        until(page, lambda: look() == wanted)  # a picture is chosen anew after the theme
        assert look() == wanted

    dark, light = ("dark", True, "rgb(18, 22, 28)"), ("light", False, "rgb(255, 255, 255)")
    becomes(dark)
    page.emulate_media(color_scheme="light")
    becomes(light)
    button = page.locator("button.theme")
    button.click()
    button.click()
    assert button.get_attribute("aria-label") == "Colours: dark"
    becomes(dark)
    page.reload()
    figure.scroll_into_view_if_needed()
    becomes(dark)
    page.locator("button.theme").click()
    becomes(light)


def test_without_a_script_the_system_still_chooses(visit: Visit, home: str) -> None:
    page = visit(f"{home}{CHAPTER}.html", theme="dark", java_script_enabled=False)
    shot = page.screenshot(clip={"x": 1200, "y": 700, "width": 1, "height": 1})
    light = visit(f"{home}{CHAPTER}.html", theme="light", java_script_enabled=False)
    assert shot != light.screenshot(clip={"x": 1200, "y": 700, "width": 1, "height": 1})


def test_the_figure_with_the_answer_waits_for_one(visit: Visit, home: str) -> None:
    address = f"{home}notebooks/anatomy.html"
    page = visit(address)
    blurred = "one => getComputedStyle(one).filter !== 'none'"
    figures = page.locator(".tag_after-answer figure img")
    assert figures.evaluate_all(f"all => all.map({blurred})") == [True] * figures.count()
    page.emulate_media(media="print")
    assert not figures.first.evaluate(blurred)
    page.emulate_media(media="screen")
    question = page.locator("main [data-kind=question]").first
    question.get_by_role("radio").last.check()  # any answer will do
    question.get_by_role("button", name="Check my answer").click()
    expect(figures.first).to_have_css("filter", "none")
    assert figures.nth(1).evaluate(blurred)
    bare = visit(address, java_script_enabled=False)
    shot = bare.locator(".tag_after-answer figure").first
    expect(shot.locator("img")).to_be_visible()
    assert bare.locator("[data-waiting]").count() == 0


def test_the_code_with_the_answer_waits_for_one(visit: Visit, home: str) -> None:
    page = visit(f"{home}notebooks/fused-attention.html")
    code = page.locator(".tag_after-answer > .cell_input pre")
    expect(code).to_have_count(2)
    for i, key in enumerate(("multiply it by exp(m − m′)", "equal weights for all keys")):
        expect(code.nth(i)).not_to_have_css("filter", "none")
        page.get_by_label(key).check()
        asked = page.locator("main [data-kind=question]", has_text=key)
        asked.get_by_role("button", name="Check my answer").click()
        expect(code.nth(i)).to_have_css("filter", "none")


def test_a_term_shows_what_it_means(visit: Visit, home: str) -> None:
    page = visit(own=True)  # its clock stays replaced
    page.clock.install()
    page.goto(f"{home}book/what-is-a-roofline.html")
    term = page.locator("a[data-card]").first
    card = page.locator("#term-card")
    expect(card).to_be_hidden()
    term.hover()
    expect(card).to_have_text(str(term.get_attribute("data-card")))
    assert violations(page, "#term-card, [aria-describedby=term-card]") == []
    card.hover()
    page.clock.run_for(1000)  # it goes soon after the pointer has gone, but not while it is there
    expect(card).to_be_visible()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.mouse.move(0, 0)
    page.keyboard.press("Tab")
    term.focus()
    expect(card).to_be_visible()
    assert term.get_attribute("aria-describedby") == "term-card"
    page.keyboard.press("Enter")
    page.wait_for_url("**/glossary.html#term-*")


def test_rows_of_a_long_table_are_chosen_and_ordered(visit: Visit, home: str) -> None:
    page = visit(f"{home}book/scoreboard.html")
    rows = page.locator(".choosable tbody tr:visible")
    every = rows.count()
    assert every > 100
    page.get_by_label("chip").select_option("v6e")
    page.get_by_label("kind").select_option("experts")
    page.get_by_label("largest first").select_option("error")
    shown = rows.locator("td").filter(has_text=re.compile(r"^v6e$")).count()
    assert 1 < shown == rows.count() < every
    expect(page.locator(".choices output")).to_have_text(f"{shown} of {every} rows")
    texts = rows.locator("td:nth-last-child(2)").all_inner_texts()
    errors = [abs(int(text.replace("−", "-"))) for text in texts]
    assert errors == sorted(errors, reverse=True)
    rows.locator("summary").first.click()
    expect(rows.locator("details").first).to_contain_text("products")
    assert violations_of_thinned(page) == []


def test_the_search_finds_and_marks(visit: Visit, home: str) -> None:
    page = visit(f"{home}index.html")
    page.keyboard.press("/")
    page.keyboard.type("ridge point <b>")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=*")
    expect(page.locator("#found")).to_contain_text("0 sections have “ridge point <b>”")
    page.get_by_label("Search the book").fill("ridge point")
    page.keyboard.press("Enter")
    expect(page.locator("#results li").nth(2)).to_be_visible()
    assert page.locator("#results mark").count() > 2
    assert violations_of_thinned(page) == []
    page.locator("#results a").first.click()
    expect(page.locator("h1")).to_have_count(1)


def test_the_policy_refuses_scripts_that_are_not_the_sites(chromium: Browser, home: str) -> None:
    with visitor(chromium) as (page, watch):
        page.goto(f"{home}index.html")
        page.evaluate(
            """() => {
              const script = document.createElement("script");
              script.textContent = "window.broken = 1";
              document.body.append(script);
              const button = document.createElement("button");
              button.setAttribute("onclick", "window.broken = 2");
              document.body.append(button);
              button.click();
              document.body.append(Object.assign(document.createElement("script"),
                                                 {src: "http://example.org/x.js"}));
            }"""
        )
        until(page, lambda: len(watch.errors) >= 3)
        assert page.evaluate("window.broken ?? 0") == 0
        assert len([one for one in watch.errors if REFUSED in one]) == 3


def test_no_page_has_an_inline_script_handler_or_style(site: Path) -> None:
    policy = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')
    for path in sorted(site.rglob("*.html")):
        text = path.read_text("utf-8")
        assert policy.search(text), path.name
        assert "unsafe" not in policy.search(text)[1]  # type: ignore[index]
        for script in re.findall(r"<script\b[^>]*>", text):
            assert "src=" in script or 'type="text/turned"' in script, (path.name, script)
        markup = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
        tags = re.findall(r"<[a-z][^<>]*\s(?:on[a-z]+|style)=[^<>]*>|<style\b", markup)
        assert tags == [], path.name


def test_the_offline_copy_opens_from_disk(visit: Visit, site: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(site / "_static/roofline-analysis.zip") as packed:
        packed.extractall(tmp_path)
    home = tmp_path / "roofline-analysis/index.html"
    page = visit(home.as_uri(), offline=True)
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.get_by_role("link", name="Fusion", exact=True).first.click()
    page.wait_for_url("file://**/fusion.html")
    picture = page.locator("article picture img").first
    picture.evaluate("one => one.decode()")
    assert page.evaluate("getComputedStyle(document.querySelector('h2')).borderTopStyle") == "solid"
    page.get_by_label("Search the book").fill("ridge")
    page.keyboard.press("Enter")
    expect(page.locator("#results li").nth(2)).to_be_visible()
    page.goto((tmp_path / "roofline-analysis/book/what-is-a-roofline.html").as_uri())
    assert page.evaluate("document.fonts.ready.then(() => true)")
    assert page.locator("math").count() > 3


def test_descriptions_and_titles_are_the_pages_own(site: Path) -> None:
    seen: dict[str, str] = {}
    for name in books.pages():
        text = (site / f"{name}.html").read_text("utf-8")
        title = re.search(r"<title>(.*?)</title>", text)
        about = re.search(r'<meta name="description" content="([^"]*)"', text)
        assert title, name
        assert about, name
        assert 50 <= len(about[1]) <= 170, (name, about[1])
        for one in (title[1], about[1]):
            assert one not in seen, f"{name} says the same as {seen[one]}: {one}"
            seen[one] = name
        card = site / f"_static/cards/{name.replace('/', '-')}.png"
        assert card.is_file(), f"{name} has no card"
