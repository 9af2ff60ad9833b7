"""Pages with an instrument or a lab, for their tests in a browser."""

import functools
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator

import roofline_helpers as rh
from roofline import labs
from roofline_helpers import pages

ELEMENTS = {
    "point": pages.point,
    "ridges": pages.ridges,
    "matmul": pages.matmul,
    "chain": pages.chain,
    "sharding": labs.sharding,
    "memory-wall": labs.memory_wall,
    "design": labs.design_challenge,
}
LABS = ("memory-wall", "design")
PAGE = (
    "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Labs</title>"
    "<meta name='viewport' content='width=device-width'><meta name='roofline-site' content='1'>"
    "<style>body {{margin: 0 12px}} @media (prefers-color-scheme: dark)"
    " {{body {{background: #121212; color: #eee}}}}</style></head>"
    "<body><main><h1>Labs</h1><h2>One</h2>{}</main></body></html>"
)
FOCUSED = "document.activeElement.shadowRoot?.activeElement?.outerHTML ?? ''"
# Type into fields and choose in lists as a reader does, by what their labels say
FILL = """(host, settings) => settings.map((setting) => {
  const root = host.shadowRoot;
  for (const [name, value] of Object.entries(setting)) {
    const label = [...root.querySelectorAll("label")].find((one) => one.textContent === name);
    const field = root.getElementById(label.htmlFor), list = field.localName === "select";
    if (!field.checkVisibility() || field.disabled) throw Error(`${name} can't be changed`);
    field.value = value;
    if (field.value !== value) throw Error(`${name} has no ${value}`);
    field.dispatchEvent(new Event(list ? "change" : "input", { bubbles: true }));
  }
  const cards = [...root.querySelectorAll(".facts > div")];
  return Object.fromEntries(cards.map((one) =>
    [one.querySelector("dt").innerText, one.querySelector("dd").innerText]));
})"""
Shown = Callable[..., Locator]


@functools.cache
def html(kind):
    """A page with one element."""
    return PAGE.format(ELEMENTS[kind]().html())


@pytest.fixture(scope="session")
def served_labs(serve, tmp_path_factory):
    """A page for each element, served: a file's reload can miss what was stored just before."""
    folder = tmp_path_factory.mktemp("labs")
    for kind in ELEMENTS:
        (folder / f"{kind}.html").write_text(html(kind), "utf-8")
    return serve(folder)


@pytest.fixture
def shown(visit, served_labs):
    """Open a page with one element, its setting in the address."""

    def show(kind, setting=None, **options):
        address = f"{served_labs}{kind}.html"
        if setting:
            address += f"#{kind}?{urlencode(setting)}"
        page = visit(address, **options)
        host = page.locator(f"[data-kind={kind}]")
        if kind in LABS and options.get("java_script_enabled", True):
            unlock(host)
        return host

    return show


def fill(host, settings):
    """Set fields by their labels, one setting after another; return all cards after each."""
    return list(host.evaluate(FILL, settings))


def unlock(host):
    host.locator("input[type=radio], input[type=checkbox]").first.check()
    host.get_by_role("button", name="Check").first.click()


def cards(host):
    """The values of all cards by their names."""
    return fill(host, [{}])[0]


def card(host, name):
    """The value of a card."""
    return cards(host)[name]


def said(host):
    """What the chart says to those who cannot see it."""
    return host.locator("svg title").first.text_content() or ""


def rate(flops):
    whole = len(str(int(flops / 1e12)))
    return rh.si(flops, "FLOP/s", "T" if flops >= 1e12 else None, max(3, whole))
