"""The riddle of the decode step in a real browser: played by keyboard, sound."""

import pytest
from browser import overflow, violations
from labs import PAGE
from playwright.sync_api import expect

from roofline.labs import riddle

STATES = riddle.orders()
LEAST, BEST = riddle.best(STATES)


@pytest.fixture(scope="session")
def home(serve, tmp_path_factory):
    """A page with the riddle alone."""
    folder = tmp_path_factory.mktemp("riddle")
    (folder / "index.html").write_text(PAGE.format(riddle.riddle().html()), "utf-8")
    return serve(folder)


def card(host, move):
    return host.get_by_role("button", name=riddle.MOVES[move][0])


def play(host, moves):
    """Choose changes with the keyboard."""
    for move in moves:
        card(host, move).focus()
        host.page.keyboard.press("Enter")


def values(host):
    """What stands beside each bar."""
    found = host.locator("li > div").evaluate_all(
        "(all) => all.map((one) => one.previousSibling.textContent)"
    )
    return found


def test_the_best_order_by_keyboard_scores_100(home, visit):
    host = visit(f"{home}index.html", width=390).locator("[data-kind=riddle]")
    first = values(host)
    assert first[0] == "6.85 ms"
    assert first[-2:] == ["69.8 ms", "8.95 ms"]
    card(host, "c").focus()
    host.page.keyboard.press("Enter")
    assert values(host)[-2] == "38.5 ms"
    expect(host).to_contain_text("transposes −18.8 ms")
    expect(host).to_contain_text("a loop copies a slice")
    play(host, BEST[1:])
    expect(host.locator(".score")).to_have_text("Your score: 100 of 100")
    assert values(host)[-2] == "8.48 ms"
    text = host.get_by_label("Text to share").input_value()
    assert text.startswith("A decode step of Llama-3-8B on one H200, 69.8 ms → 8.48 ms. I took 6")
    host.get_by_role("button", name="Begin again").click()
    expect(host.locator(".score")).to_have_count(0)
    play(host, "hduk")
    play(host, "os")
    sums = sum(STATES[state]["ms"] for state in ("", "h", "hd", "uhd", "k", "ko"))
    expect(host.locator(".score")).to_have_text(f"Your score: {100 * LEAST / sums:.0f} of 100")


def test_moves_that_cannot_be_combined_say_why_and_are_taken_back(home, visit):
    host = visit(f"{home}index.html").locator("[data-kind=riddle]")
    play(host, "h")
    expect(card(host, "c")).to_have_attribute("aria-disabled", "true")
    expect(card(host, "c")).to_contain_text("cuDNN wants the cache by token")
    play(host, "c")
    assert values(host)[-2] == "46.0 ms"
    play(host, "d")
    expect(host).to_contain_text("costs 8.09 ms")
    play(host, "d")
    expect(host).to_contain_text("Taking back “Donate the cache” gains 8.09 ms")
    expect(host).to_contain_text("3 moves")


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
def test_it_is_sound(width, theme, home, visit):
    page = visit(f"{home}index.html", width=width, theme=theme)
    host = page.locator("[data-kind=riddle]")
    assert violations(page) == []
    play(host, BEST)
    expect(host.locator(".score")).to_be_visible()
    assert overflow(page) <= 0
    assert violations(page) == []
