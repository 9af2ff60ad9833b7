"""A real browser for the tests: headless Chromium through Playwright, outside requests refused.

Fixtures, offered to every test file by ``tests/conftest.py``::

    def test_x(visit, serve):
        page = visit(serve(folder) + "index.html", width=390, theme="dark")
        assert violations(page) == []

A page that asks for anything outside this machine, logs an error or throws one fails its test when
the test ends. Chromium is the one that ``tools/site/chrome.py`` finds. Without any the tests are
skipped, loudly; where ``CI`` is set they fail.
"""

import functools
import json
import os
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Error, Page, expect

from tools.site.chrome import launched

REQUIRED = os.environ.get("CI", "") not in {"", "0", "false"}
LOCAL = {"127.0.0.1", "localhost"}
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What it finds comes as one text: anything else is copied value by value between processes
AXE = """async ([within, only]) => JSON.stringify(
  (await axe.run(within || document, {runOnly: only, resultTypes: ["violations"]})).violations)"""
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

    def request(self, address):
        """Keep an address that does not lie on this machine."""
        parts = urlsplit(address)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in LOCAL:
            self.outside.append(address)

    def error(self, text):
        """Keep an error unless it was expected."""
        if not any(part in text for part in self.allowed):
            self.errors.append(text)


def _said(message):
    """What an error on the console says, with the address that it is about."""
    return f"{message.text} ({message.location.get('url', '')})"


@contextmanager
def visitor(browser, width=1280, height=900, theme="light", allowed=(), **options):
    """Open a page in a window of its own, with nothing stored, and watch what it does.

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
    watch = Watch(allowed)
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        reduced_motion="reduce",
        has_touch=width < 600,
        **options,
    )
    context.set_default_timeout(PATIENCE)
    context.on("request", lambda request: watch.request(request.url))
    context.on("console", lambda m: watch.error(_said(m)) if m.type == "error" else None)
    context.on("weberror", lambda raised: watch.error(str(raised.error)))
    try:
        yield context.new_page(), watch
    finally:
        context.close()


@contextmanager
def shelf():
    """Serve folders on this machine while the block runs; yield what takes one to its address.

    One server has them all: each of its own would wake up again and again.
    """
    folders = []

    class Quiet(SimpleHTTPRequestHandler):
        def translate_path(self, path):
            _, number, rest = path.split("/", 2)
            self.directory = str(folders[int(number)])
            return super().translate_path(f"/{rest}")

        def do_GET(self):
            if self.path == "/favicon.ico":  # asked for by the browser, not by the page
                self.send_response(204)
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, *_):
            pass

    def serve(folder):
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
def chromium():
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
def serve():
    """Return a function that serves a folder until the session ends, and gives its address."""
    with shelf() as one:
        yield one


@pytest.fixture
def visit(chromium):
    """Return a function that opens an address (or "" for an empty page) as `visitor` does."""
    with ExitStack() as stack:
        watches = []

        def open_page(address="", **options):
            page, watch = stack.enter_context(visitor(chromium, **options))
            watches.append(watch)
            if address:
                page.goto(address)
            return page

        yield open_page
        for watch in watches:
            assert not watch.outside, f"the page asked the network: {watch.outside}"
            assert not watch.errors, "the page logged errors:\n" + "\n".join(watch.errors)


@functools.cache
def axe_source():
    """Return axe-core, which looks for barriers on a page."""
    import axe_playwright_python

    folder = Path(axe_playwright_python.__file__).parent
    return (folder / "axe.min.js").read_text("utf-8")


def violations(page, within=None):
    """Return what axe finds on a page, one line a violation: rule, impact, first places.

    Shadow roots are looked into. With a CSS selector `within`, axe looks only there.
    """
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe_source())
    return [
        f"{one['id']} ({one['impact']}, {len(one['nodes'])}): "
        + "; ".join(f"{node['target']} {node['failureSummary']}" for node in one["nodes"][:3])
        for one in json.loads(page.evaluate(AXE, [within, AXE_TAGS]))
    ]


def until(page, done):
    """Let a page go on until something is so, or until patience ends: then the test says what."""
    end = time.monotonic() + PATIENCE / 1000
    while not done() and time.monotonic() < end:
        page.wait_for_timeout(50)


def drawn(page):
    """Let a page draw twice: what follows a new size does so within a frame."""
    page.evaluate(
        "() => new Promise((on) => requestAnimationFrame(() => requestAnimationFrame(on)))"
    )


def overflow(page):
    """Return by how many CSS pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
