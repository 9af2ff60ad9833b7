"""Is my time good?, in a real browser: what is given, what is said of it, and the link."""

from urllib.parse import parse_qs

import pytest
from browser import overflow, violations
from labs import PAGE
from playwright.sync_api import expect

import roofline_helpers as rh
from roofline.labs.judging import good_time
from roofline_helpers.common.show import si

KEY = "your-kernel"


@pytest.fixture(scope="session")
def home(serve, tmp_path_factory):
    """A page with the instrument alone."""
    folder = tmp_path_factory.mktemp("pasted")
    (folder / "index.html").write_text(PAGE.format(good_time().html()), "utf-8")
    return serve(folder)


@pytest.fixture
def host(visit, home):
    """The instrument on a phone's width, where it is tightest."""
    return visit(f"{home}index.html", width=390).locator(f"[data-kind={KEY}]")


def card(host, name):
    return host.locator("dl div").filter(has_text=name).locator("dd").first.inner_text()


def link(host):
    """The setting in the page's address."""
    _, _, setting = host.page.evaluate("location.hash").partition("?")
    return {name: values[0] for name, values in parse_qs(setting).items()}


def choose(host, **wanted):
    for label, value in wanted.items():
        host.get_by_label(label.replace("_", " "), exact=True).select_option(value)


def test_a_shape_has_the_verdict_that_python_gives(host):
    expect(host.locator("svg").first).to_be_visible()
    job = rh.work.matmul(64, 8192, 8192)
    judgement, verdict = rh.judge(job, "h100", 62e-6), rh.verdict(job, "h100")
    expect(host).to_contain_text(f"{judgement}.")
    assert card(host, "your time") == judgement.verdict == "slow for its kind"
    assert card(host, "bound") == si(judgement.least, "s")
    assert card(host, "limit") == f"{verdict.word}-bound"
    drawn = host.get_by_role("img", name="154 measured kernels like it: eight in ten")
    expect(drawn).to_contain_text("yours 62 µs")
    host.get_by_label("Measured time, µs").fill("30")
    expect(host).to_contain_text(f"{rh.judge(job, 'h100', 30e-6)}.")
    expect(host).to_contain_text("Next is step 3")
    host.get_by_label("M", exact=True).fill("300")
    verdict = rh.verdict(rh.work.matmul(300, 8192, 8192), "h100")
    assert verdict.on == ("ceilings",)
    expect(host).to_contain_text("it depends")
    assert "published or reached ceilings" in host.locator("dl").last.inner_text()
    assert link(host)["took"] == "30"
    assert link(host)["m"] == "300"


def test_counts_and_attention_are_read_and_a_link_carries_them(host, visit):
    choose(host, Chip="v6e", What_you_have="counts")
    host.get_by_label("FLOPs", exact=True).fill("1e12")
    host.get_by_label("Bytes to and from memory").fill("1e9")
    expect(host.locator("dl").last).to_contain_text("1,000 FLOP/byte")
    assert link(host)["flops"] == "1000000000000"
    other = visit(host.page.url, width=390).locator(f"[data-kind={KEY}]")
    expect(other.locator("dl").last).to_contain_text("1,000 FLOP/byte")
    choose(host, What_you_have="attention")
    host.get_by_label("KV heads").fill("5")
    expect(host).to_contain_text("must be a multiple of KV heads (5)")


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (390, "dark"),
        (1280, "light"),
    ],
)
def test_it_is_sound(width, theme, home, visit):
    page = visit(f"{home}index.html", width=width, theme=theme)
    expect(page.locator(f"[data-kind={KEY}]")).to_contain_text("measured, 154 like it")
    bars = page.locator(f"[data-kind={KEY}] .like .bar")
    assert bars.count() > 8
    assert overflow(page) <= 0
    assert violations(page) == []
