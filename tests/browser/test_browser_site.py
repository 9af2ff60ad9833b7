"""Every page of the built site in a real browser: themes, widths, keyboard, search, from disk.

Axe looks at each page in one of the four combinations of theme and width, the next page in the next
one; with ROOFLINE_THOROUGH set, in all four, and then a picture of every page as a phone and as a
desk shows it stays in ``_build/pictures``.
"""

import os
import re
import time
import tomllib
import zipfile

import pytest
from browser import drawn, overflow, until, violations
from playwright.sync_api import expect

from tools import books
from tools.site import slides

PICTURES = books.ROOT / "_build/pictures"
PAGES = [*books.pages(), "genindex", "search", "404"]
CHAPTER = "notebooks/fusion"
THOROUGH = bool(os.environ.get("ROOFLINE_THOROUGH"))
# Widths and themes that a page is shown in
LOOKS = [
    (390, "dark"),
    (1280, "light"),
    (390, "light"),
    (1280, "dark"),
]
CODE = 72  # characters of a line that fit, in a font that is a little wider than this machine's

OPENED = """() => dispatchEvent(new Event("beforeprint"))"""  # all that is folded
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
# Tables that are wider than their place, or that hide a column in it. On a phone a long one may be,
# where the keyboard reaches it and its first column stays when it scrolls
TABLES = """() => {
  return [...document.querySelectorAll("article .scroll")].flatMap((place) => {
    const frozen = innerWidth < 600 && place.querySelector(":scope > table.frozen");
    const head = place.innerText.slice(0, 60);
    const number = place.querySelector(":is(.number, .text-right):not(:first-child)");
    if (number?.checkVisibility() && getComputedStyle(number).display !== "table-cell") {
      return [`numbers fold into a stack: ${head}`];
    }
    if (frozen && place.checkVisibility()) {
      place.scrollLeft = 1e4;
      const left = (one) => one.getBoundingClientRect().left - place.getBoundingClientRect().left;
      const rows = [...frozen.rows].filter((row) => row.checkVisibility());
      const moved = rows.filter((row) => Math.abs(left(row.cells[0])) > 1).length;
      const named = !place.scrollLeft || (place.tabIndex === 0 && place.ariaLabel);
      place.scrollLeft = 0;
      return moved || !named ? [`${moved} first cells move (${place.ariaLabel}): ${head}`] : [];
    }
    const right = (one) => one.getBoundingClientRect().right;
    const cut = [...place.querySelectorAll("th, td")].some((one) => right(one) > right(place) + 1);
    const wide = place.scrollWidth - place.clientWidth;
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
def home(site, serve):
    """Return the address of the built site, with a last slash."""
    return serve(site)


def take_picture(page, name, width):
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name.replace('/', '-')}-{width}.jpg"
    height = page.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 16000)}
    page.screenshot(path=path, type="jpeg", quality=60, full_page=True, clip=clip)


def opened(page):
    """Open all of a page, and let it do what it does at the next drawing."""
    page.evaluate(OPENED)
    drawn(page)


def faults(page, width):
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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_sound(name, visit, home):
    """Each page at one width and theme, another for the next; weekly at all of them.

    Pages of the reference are long and all of one kind: axe reads them weekly.
    """
    problems = []
    for width, theme in LOOKS if THOROUGH else [LOOKS[PAGES.index(name) % len(LOOKS)]]:
        page = visit(f"{home}{name}.html", width=width, theme=theme)
        if THOROUGH:
            page.evaluate(LOADED)
            take_picture(page, name, width)
        found = faults(page, width)
        if THOROUGH or not name.startswith("book/api/"):
            found += violations(page)
        problems += [f"{width} px, {theme}: {one}" for one in found]
    assert not problems, "\n".join(problems)


def test_the_keyboard_reaches_everything_in_order_and_sees_where_it_is(visit, home):
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
    assert names[4] == "Predict first"
    assert names[5].startswith("Colours")
    assert "What is a roofline?" in names[6]
    assert all(visible for _, visible in seen), seen


@pytest.mark.parametrize("script", [True, False])
def test_a_phone_opens_and_closes_the_lists(visit, home, script):
    page = visit(f"{home}{CHAPTER}.html", width=390, java_script_enabled=script)
    for name, nav in (
        ("Chapters", "#contents"),
        ("On this page", "#sections"),
    ):
        expect(page.locator(nav)).to_be_hidden()
        page.get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        expect(page.locator(nav)).to_be_visible()
        if script:
            assert violations(page, nav) == []
        page.keyboard.press("Escape")
        expect(page.locator(nav)).to_be_hidden()
    page.get_by_role("button", name="Chapters").click()
    page.get_by_role("link", name="Anatomy of a roofline plot").click()
    page.wait_for_url("**/anatomy.html")


def test_chapters_read_to_their_end_are_marked_until_the_reader_clears_that(visit, home):
    page = visit(f"{home}notebooks/fusion.html")
    progress, mark = page.locator("nav.contents .progress"), page.locator("nav.contents a.read")
    expect(progress).to_be_hidden()
    page.locator("nav.onwards").scroll_into_view_if_needed()
    expect(mark).to_have_text(re.compile("Fusion"))
    page.goto(f"{home}index.html")
    expect(mark).to_have_count(1)
    expect(progress).to_contain_text("You have read 1 of ")
    assert violations(page, "nav.contents") == []
    progress.get_by_role("button", name="Forget it").click()
    expect(progress).to_be_hidden()
    page.reload()
    expect(mark).to_have_count(0)
    assert page.evaluate("localStorage.getItem('read')") is None


def test_colours_follow_the_system_and_then_the_reader(visit, home):
    page = visit(f"{home}{CHAPTER}.html", theme="dark")
    figure = page.locator("article picture img").first
    figure.scroll_into_view_if_needed()

    def look():
        return (
            page.evaluate("document.documentElement.dataset.theme"),
            figure.evaluate("one => one.currentSrc").endswith(".dark.png"),
            page.evaluate("getComputedStyle(document.documentElement).backgroundColor"),
        )

    def becomes(wanted):
        until(page, lambda: look() == wanted)  # a picture is chosen anew after the theme
        assert look() == wanted

    dark = ("dark", True, "rgb(18, 22, 28)")
    light = ("light", False, "rgb(255, 255, 255)")
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


def test_nothing_is_hidden_but_the_answers(visit, home):
    """Neither without scripts nor with them, as long as nobody asks for it."""
    for name in (CHAPTER, "notebooks/what-is-a-roofline"):
        for script in (False, True):
            page = visit(f"{home}{name}.html", java_script_enabled=script)
            shown = page.locator("article :is(table, figure img):not(roofline-instrument *)")
            assert shown.count() >= 2
            for one in shown.all():
                expect(one).to_be_visible()
            if not script:
                folds = page.locator("roofline-ask details")
                assert folds.count() > 3
                assert not any(folds.evaluate_all("all => all.map((one) => one.open)"))


def test_predict_first_covers_what_follows_a_question(visit, home):
    address = f"{home}notebooks/what-is-a-roofline.html"
    page = visit(address)
    figure = page.locator(".tag_after-answer figure img")
    switch = page.locator("header").get_by_role("button", name="Predict first")
    expect(switch).to_have_attribute("aria-pressed", "false")
    # At the first question, in words: that switches it on and off again
    offer = page.locator("article p.offer")
    offer.get_by_role("button", name="Predict first").click()
    expect(figure).to_be_hidden()
    expect(switch).to_have_attribute("aria-pressed", "true")
    offer.get_by_role("button", name="Show everything").click()
    expect(figure).to_be_visible()
    switch.click()
    expect(figure).to_be_hidden()
    assert violations(page) == []
    page.emulate_media(media="print")
    expect(figure).to_be_visible()
    page.emulate_media(media="screen")
    page.reload()
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(figure).to_be_hidden()
    question = page.locator("main [data-kind=question]").nth(1)
    question.get_by_role("radio").last.check()  # any answer will do
    question.get_by_role("button", name="Check").click()
    expect(figure).to_be_visible()
    page.goto(f"{home}notebooks/anatomy.html")
    waiting = page.locator(".tag_after-answer figure img").first
    expect(waiting).to_be_hidden()
    page.get_by_role("button", name="show it").first.click()
    expect(waiting).to_be_visible()
    page.reload()
    switch.click()
    expect(waiting).to_be_visible()


def test_a_term_leads_to_what_it_means(visit, home):
    page = visit(f"{home}notebooks/anatomy.html")
    term = page.locator("a.term").first
    meaning = str(term.get_attribute("title"))
    term.click()
    page.wait_for_url("**/glossary.html#term-*")
    expect(page.locator("dd").filter(has_text=meaning)).to_be_visible()


def test_rows_of_a_long_table_are_chosen_and_ordered(visit, home):
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
    assert violations(page) == []


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_the_front_page_s_roofline_is_in_view_and_dragged(visit, home, width, height):
    page = visit(f"{home}index.html", width=width, height=height)
    plot = page.locator("roofline-instrument svg").first
    box, dot = plot.bounding_box(), plot.locator(".dot").bounding_box()
    assert dot["y"] + dot["height"] < height
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 20)
    page.mouse.down()
    bounds = []
    for share in (0.3, 0.9, 0.4, 0.95):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 20)
        bounds.append(page.locator("roofline-instrument .facts dd").nth(2).inner_text())
    page.mouse.up()
    assert bounds == ["memory-bound", "compute-bound"] * 2
    value = page.get_by_role("textbox", name="FLOP/byte").input_value()
    page.mouse.move(box["x"], box["y"] + 20)
    assert page.get_by_role("textbox", name="FLOP/byte").input_value() == value


SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) window.shifts.push(one.value);
  }).observe({ type: "layout-shift", buffered: true });
}"""


def test_nothing_moves_while_the_front_page_loads_on_a_phone(visit, home):
    """Not even where scripts and fonts come long after the text has been painted."""
    page = visit(width=390, height=844)
    page.add_init_script(f"({SHIFTS})()")
    page.route(re.compile(r"\.(js|woff2)"), lambda one: (time.sleep(0.4), one.continue_()))
    page.goto(f"{home}index.html", wait_until="load")
    expect(page.locator("roofline-instrument svg").first).to_be_visible()
    drawn(page)
    assert page.evaluate("shifts.reduce((a, b) => a + b, 0)") <= 0.05


@pytest.mark.parametrize("name", ["lab-memory-wall", "lab-design-challenge"])
def test_a_lab_s_results_stay_in_view_below_its_fields(visit, home, name):
    page = visit(f"{home}notebooks/{name}.html", width=390, height=800)
    lab = page.locator("roofline-lab")
    lab.get_by_role("button", name="Show all").click()
    field, line = lab.get_by_label("Chip", exact=True), lab.locator(".result")
    box = field.bounding_box()
    page.evaluate("y => scrollBy(0, y)", box["y"] - 600)  # the line's own place is off the screen
    expect(line).to_be_in_viewport(ratio=1)
    before = line.inner_text()
    field.select_option("b200")
    expect(line).not_to_have_text(before)
    expect(line).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize(("x", "y", "moves"), [(0, -20, False), (15, 0, True)])
def test_a_finger_moves_the_point_sideways_and_the_page_up(visit, home, x, y, moves):
    page = visit(f"{home}index.html", width=390, height=844)
    plot = page.locator("roofline-instrument svg").first
    plot.scroll_into_view_if_needed()
    box, field = plot.bounding_box(), page.get_by_role("textbox", name="FLOP/byte")
    before, top = field.input_value(), page.evaluate("scrollY")
    touch = page.context.new_cdp_session(page)
    start = (box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    for n in range(9):
        point = {"x": start[0] + n * x, "y": start[1] + n * y}
        kind = "touchMove" if n else "touchStart"
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    if not moves:
        page.wait_for_function("top => scrollY > top", arg=top)
    assert (field.input_value() != before) == moves
    assert (page.evaluate("scrollY") == top) == moves


def test_a_slide_is_no_taller_than_its_screen_and_arrow_keys_turn_it(visit, site, tmp_path):
    (tmp_path / "html").symlink_to(site)
    slides.write(tmp_path / "html", ["notebooks/low-precision"])
    page = visit((tmp_path / "slides.html").as_uri(), width=1024, height=768)
    assert page.title().startswith("Roofline Analysis")
    until(page, lambda: page.evaluate("document.querySelectorAll('[style]').length > 4"))
    sizes = page.locator(".slide").evaluate_all(
        "all => all.map((one) => [one.scrollHeight, one.clientHeight])"
    )
    assert len(sizes) > 4
    assert all(needed <= shown <= 768 for needed, shown in sizes)
    for key, top in (("ArrowRight", 768), ("ArrowDown", 1536), ("ArrowLeft", 768), ("Home", 0)):
        page.keyboard.press(key)
        assert page.evaluate("scrollY") == top


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
def test_a_picture_that_is_shrunk_opens_large(visit, home, width, theme):
    page = visit(f"{home}notebooks/anatomy.html", width=width, theme=theme)
    figure, button = page.locator("article figure img").first, page.locator(".enlarge").first
    natural = int(str(figure.get_attribute("width")))
    expect(button).to_be_visible(visible=width < natural)
    if width > natural:
        return
    button.focus()
    page.keyboard.press("Enter")
    large = page.get_by_role("dialog")
    expect(large.locator("img")).to_have_attribute("alt", str(figure.get_attribute("alt")))
    assert large.locator("img").evaluate("one => one.clientWidth") >= natural
    assert large.locator("img").evaluate("one => one.currentSrc").endswith(".dark.png")
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(large).to_be_hidden()
    expect(button).to_be_focused()
    figure.click()
    large.get_by_role("button", name="Close").click()
    expect(large).to_be_hidden()


QUERIES = tomllib.loads((books.ROOT / "tests/data/queries.toml").read_text("utf-8"))


def test_the_search_finds_what_readers_look_for(visit, site):
    """In the engine as the reader has it, from a folder, while they type."""
    page = visit((site / "search.html").as_uri())
    field = page.get_by_label("Search the book")

    def found(asked, most):
        field.fill(asked)
        links = page.locator("#results a").evaluate_all(
            "all => all.map((one) => one.getAttribute('href'))"
        )
        return list(map(str, links[:most]))

    lost = {}
    for name, most in (("first", 1), ("three", 3)):
        for asked, places in QUERIES[name].items():
            best = found(asked, most)
            if not any(address.startswith(tuple(places)) for address in best):
                lost[asked] = best
    assert len(lost) <= len(QUERIES["three"]) // 20, lost
    assert not {*lost} & {*QUERIES["first"]}, lost
    assert found("color", 3) == found("colour", 3) != []


def test_the_search_finds_and_marks(visit, home):
    page = visit(f"{home}index.html")
    page.keyboard.press("/")
    page.keyboard.type("zzzq <b>")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=*")
    expect(page.locator("#found")).to_contain_text("0 sections have words of “zzzq <b>”")
    page.get_by_label("Search the book").fill("ridge point")
    page.keyboard.press("Enter")
    expect(page.locator("#results li").nth(2)).to_be_visible()
    assert page.locator("#results mark").count() > 2
    assert violations(page) == []
    page.locator("#results a").first.click()
    expect(page.locator("h1")).to_have_count(1)


def test_the_offline_copy_opens_from_disk(visit, site, tmp_path):
    with zipfile.ZipFile(site / "_static/roofline-analysis.zip") as packed:
        packed.extractall(tmp_path)
    home = tmp_path / "roofline-analysis/index.html"
    page = visit(home.as_uri(), offline=True)
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.get_by_role("link", name="Fusion", exact=True).first.click()
    page.wait_for_url("file://**/fusion.html")
    picture = page.locator("article picture img").first
    picture.evaluate("one => one.decode()")
    assert page.evaluate("document.fonts.load('1em \"Book Serif\"').then(f => f.length)") == 1
    page.get_by_label("Search the book").fill("ridge")
    page.keyboard.press("Enter")
    expect(page.locator("#results li").nth(2)).to_be_visible()
    page.goto((tmp_path / "roofline-analysis/notebooks/what-is-a-roofline.html").as_uri())
    assert page.evaluate("document.fonts.ready.then(() => true)")
    assert page.locator("math").count() > 3
