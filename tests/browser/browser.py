"""A real browser for the tests: headless Chromium through Playwright, outside requests refused.

Fixtures, offered to every test file by ``tests/conftest.py``::

    def test_x(visit, serve):
        page = visit(serve(folder) + "index.html", width=390, theme="dark")
        assert violations(page) == []

A page that asks for anything outside this machine, logs an error or throws one fails its test when
the test ends. Chromium is the one that ``tools/site/chrome.py`` finds. Without any the tests are
skipped, loudly; where ``CI`` or ``ROOFLINE_BROWSER`` is set they fail.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Frame, Page, expect

from tools.site.chrome import launched

REQUIRED = os.environ.get("CI", "") not in {"", "0", "false"} or "ROOFLINE_BROWSER" in os.environ
LOCAL = {"127.0.0.1", "localhost"}
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What it finds comes as one text: anything else is copied value by value between processes
AXE = """async ([within, only, off, selector]) => {
  axe.configure({ rules: [{ id: "color-contrast", selector }] });
  const rules = Object.fromEntries(off.map((rule) => [rule, { enabled: false }]));
  const options = { runOnly: only, resultTypes: ["violations"], rules };
  return JSON.stringify((await axe.run(within || document, options)).violations);
}"""
PATIENCE = 30_000  # milliseconds for what takes 50 on a machine with nothing else to do
expect.set_options(timeout=PATIENCE)
Serve = Callable[[Path], str]
Visit = Callable[..., Page]


@dataclass
class Watch:
    """What a browser context did that a page of this book never does."""

    allowed: tuple[str, ...] = ()
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def request(self, address: str) -> None:
        """Keep an address that does not lie on this machine."""
        parts = urlsplit(address)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in LOCAL:
            self.outside.append(address)

    def error(self, text: str) -> None:
        """Keep an error unless it was expected."""
        if not any(part in text for part in self.allowed):
            self.errors.append(text)


def _said(message: ConsoleMessage) -> str:
    """What an error on the console says, with the address that it is about."""
    return f"{message.text} ({message.location.get('url', '')})"


# A page's last writes may reach the store after it was cleared: what a test opens first clears it
FRESH = """if (window === top && location.protocol !== "about:" && window.name !== "used") {
  window.name = "used";
  localStorage.clear();
  sessionStorage.clear();
}"""


class Window:
    """A window of the browser, opened with nothing stored, and what is noticed of it."""

    def __init__(self, browser: Browser, width: int, **options: Any) -> None:
        self.touch = width < 600
        options = {"reduced_motion": "reduce", "has_touch": self.touch, **options}
        self.watch = Watch()
        self.origins: set[str] = set()
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE)
        self.context.on("request", lambda request: self._request(request.url))
        self.context.on(
            "console", lambda m: self.watch.error(_said(m)) if m.type == "error" else None
        )
        self.context.on("weberror", lambda raised: self.watch.error(str(raised.error)))
        self.page = self.context.new_page()
        self.page.add_init_script(FRESH)

    def _request(self, address: str) -> None:
        self.watch.request(address)
        if address.startswith("http"):
            self.origins.add("/".join(address.split("/")[:3]))

    def empty(self) -> None:
        """Leave its page and forget what was stored, so that the next test finds it as new."""
        for other in self.context.pages:
            if other is not self.page:
                other.close()
        self.page.goto("about:blank")
        self.page.evaluate("window.name = ''")
        devtools = self.context.new_cdp_session(self.page)
        for origin in self.origins:
            wanted = {"origin": origin, "storageTypes": "all"}
            devtools.send("Storage.clearDataForOrigin", wanted)
        devtools.detach()
        self.page.mouse.move(0, 0)
        self.origins.clear()

    def prepare(self, width: int, height: int, theme: str, watch: Watch) -> None:
        """Give it the size and the theme that a test asks for."""
        self.watch = watch
        self.page.set_default_timeout(PATIENCE)
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(media="null", color_scheme=theme)  # type: ignore[arg-type]


@contextmanager
def visitor(
    browser: Browser,
    width: int = 1280,
    height: int = 900,
    theme: str = "light",
    allowed: tuple[str, ...] = (),
    **options: Any,
) -> Iterator[tuple[Page, Watch]]:
    """Open a page in a window of its own, and watch what it does.

    Parameters
    ----------
    browser : Browser
        Where to open it.
    width, height : int
        Of the window, in CSS pixels. Below 600 it is a touch screen.
    theme : str
        "light" or "dark": what the system prefers.
    allowed : tuple of str
        Errors that contain one of these are expected.
    options
        Of Playwright's ``new_context``: ``java_script_enabled=False``, …
    """
    window = Window(browser, width, **options)
    watch = Watch(allowed)
    try:
        window.prepare(width, height, theme, watch)
        yield window.page, watch
    finally:
        window.context.close()


@contextmanager
def shelf() -> Iterator[Serve]:
    """Serve folders on this machine while the block runs; yield what takes one to its address.

    One server has them all: each of its own would wake up again and again.
    """
    folders: list[Path] = []

    class Quiet(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            _, number, rest = path.split("/", 2)
            self.directory = str(folders[int(number)])
            return super().translate_path(f"/{rest}")

        def do_GET(self) -> None:
            if self.path == "/favicon.ico":  # asked for by the browser, not by the page
                self.send_response(204)
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    def serve(folder: Path) -> str:
        if folder not in folders:
            folders.append(folder)
        return f"http://127.0.0.1:{server.server_address[1]}/{folders.index(folder)}/"

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield serve
        finally:
            server.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Return the browser of this session."""
    with ExitStack() as stack:
        try:
            browser = stack.enter_context(launched())
        except Error as error:
            if REQUIRED:
                raise
            warnings.warn("NO BROWSER: the tests in a browser did not run", stacklevel=1)
            pytest.skip(f"NO BROWSER: install Chromium or set CHROMIUM: {error.message[:200]}")
        yield browser


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Return a function that serves a folder until the session ends, and gives its address."""
    with shelf() as one:
        yield one


@pytest.fixture(scope="session")
def idle() -> dict[bool, list[Window]]:
    """Return the windows that no test uses now: of touch screens, and of others."""
    return {True: [], False: []}


@pytest.fixture
def visit(chromium: Browser, idle: dict[bool, list[Window]]) -> Iterator[Visit]:
    """Return a function that opens an address (or "" for an empty page) as `visitor` does.

    Opening a window takes a second of the processor's time, so the next test gets it, emptied. A
    test that asks for other options, or for ``own=True``, gets windows of its own.
    """
    with ExitStack() as stack:
        watches, used = [], []

        def open_page(
            address: str = "",
            width: int = 1280,
            height: int = 900,
            theme: str = "light",
            allowed: tuple[str, ...] = (),
            own: bool = False,
            **options: Any,
        ) -> Page:
            if own or options:
                fresh = visitor(chromium, width, height, theme, allowed, **options)
                page, watch = stack.enter_context(fresh)
            else:
                left = idle[width < 600]
                window = left.pop() if left else Window(chromium, width)
                used.append(window)
                page, watch = window.page, Watch(allowed)
                window.prepare(width, height, theme, watch)
            watches.append(watch)
            if address:
                page.goto(address)
            return page

        yield open_page
        for watch in watches:
            assert not watch.outside, f"the page asked the network: {watch.outside}"
            assert not watch.errors, "the page logged errors:\n" + "\n".join(watch.errors)
        # Not reached where something was wrong: those windows close with the browser
        for window in used:
            window.empty()
            idle[window.touch].append(window)


@functools.cache
def axe_source() -> str:
    """Return axe-core, which looks for barriers on a page."""
    import axe_playwright_python

    folder = Path(axe_playwright_python.__file__).parent
    return (folder / "axe.min.js").read_text("utf-8")


def violations(
    page: Page | Frame,
    within: str | None = None,
    skip: tuple[str, ...] = (),
    rules: tuple[str, ...] = (),
    coloured: str = "*",
) -> list[str]:
    """Return what axe finds on a page, one line a violation: rule, impact, first places.

    Parameters
    ----------
    page : Page or Frame
        Where to look. Shadow roots are looked into.
    within : str, optional
        A CSS selector: only there.
    skip : tuple of str
        Rules to leave out.
    rules : tuple of str, optional
        Only these; else all of `AXE_TAGS`.
    coloured : str
        A CSS selector: the contrast of colours is judged only of these, in shadow roots too.
    """
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe_source())
    violated = page.evaluate(AXE, [within, list(rules) or AXE_TAGS, list(skip), coloured])
    return [
        f"{one['id']} ({one['impact']}, {len(one['nodes'])}): "
        + "; ".join(f"{node['target']} {node['failureSummary']}" for node in one["nodes"][:3])
        for one in json.loads(violated)
    ]


def until(page: Page, done: Callable[[], bool]) -> None:
    """Let a page go on until something is so, or until patience ends: then the test says what."""
    end = time.monotonic() + PATIENCE / 1000
    while not done() and time.monotonic() < end:
        page.wait_for_timeout(50)


def drawn(page: Page) -> None:
    """Let a page draw twice: what follows a new size does so within a frame."""
    page.evaluate(
        "() => new Promise((on) => requestAnimationFrame(() => requestAnimationFrame(on)))"
    )


def overflow(page: Page) -> int:
    """Return by how many CSS pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
