"""The fixtures of the browser tests notice what they are there to notice."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from browser import Serve, Visit, Watch, overflow, thin_out, violations, visitor
from playwright.sync_api import Browser, Error

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


def test_a_page_is_thinned_out_to_some_of_each_kind(write, visit: Visit) -> None:
    rows = "<tr><td>5</td></tr>" * 20 + "<tr><td class='pale'>5</td></tr>" * 2
    page = visit(write(f"{SOUND[:-7]}<article><table>{rows}</table></article></main>"))
    thin_out(page)
    assert page.locator("tr").count() == 5
    assert page.locator("td.pale").count() == 2


def test_a_notebook_runs_while_the_browser_is_open(chromium: Browser, tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell("6 * 7")]
    path = tmp_path / "a.ipynb"
    path.write_text(notebooks.dump(nbformat.v4.new_notebook(cells=cells)), "utf-8")
    assert notebooks.execute(path).cells[0].outputs[0].data["text/plain"] == "42"
