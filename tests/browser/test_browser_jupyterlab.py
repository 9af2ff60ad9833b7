"""Questions in the real JupyterLab and Notebook 7, which must leave the keys to the question.

A committed notebook has no script: its questions are plain until their cells are executed. So
there are three: as committed, as its reader saves it, and one that nobody trusts."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

import nbformat
import pytest
from browser import violations
from nbformat.sign import NotebookNotary
from playwright.sync_api import Page, expect

from tools.notebooks import run as notebooks

ACTIVE = re.compile(r"\bjp-mod-active\b")
TOKEN = "a-token-of-the-tests"
SECONDS = 120
ASKS = """import roofline_helpers as rh
q = rh.pages.questions
options = {"the batch": "The smallest decides.", "4096": "It is large.", "16384": "Larger."}
table = rh.table([{"N": 64, "FLOP/byte": 21.3}])
number = q.NumberEntry(prompt="How much?", solution=3, why="One and two.", below="Deep.")
inner = q.build("lab-number", q.Asked("t", False, number), {})
choice = q.ChoiceEntry(prompt="Which?", options=[q.Option(*one) for one in options.items()])
q.build("lab-choice", q.Asked("t", False, choice), {}, ["the batch"], [table, inner])"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Return the address of a JupyterLab with a notebook as committed, executed and untrusted."""
    folder = tmp_path_factory.mktemp("lab")
    code = nbformat.v4.new_code_cell
    lab = "import roofline; roofline.labs.memory_wall()"
    sources = {"before": "1", "asks": ASKS, "lab": lab, "after": "2"}
    written = nbformat.v4.new_notebook(cells=[code(text, id=id) for id, text in sources.items()])
    nbformat.write(written, folder / "executed.ipynb")
    executed = notebooks.execute(folder / "executed.ipynb")
    nbformat.write(executed, folder / "executed.ipynb")
    text = notebooks.dump(notebooks.normalise(executed))
    (folder / "committed.ipynb").write_text(text, "utf-8")
    # Trust goes by content: another one has none
    (folder / "untrusted.ipynb").write_text(text.replace('"2"', '"3"'), "utf-8")
    environment = dict(os.environ)
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        environment[f"JUPYTER_{name}"] = str(folder / name.lower())
    environment["IPYTHONDIR"] = environment["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
    (folder / "data_dir").mkdir()
    notary = NotebookNotary(data_dir=str(folder / "data_dir"))  # as `jupyter trust` does
    for name in ("committed", "executed"):
        notary.sign(nbformat.read(folder / f"{name}.ipynb", as_version=4))
    notary.store.close()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0", "--allow-root"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.news_url="]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield address_of(server, folder / "runtime_dir", folder / "log")
    finally:
        stop(server)


def address_of(server, runtime, log):
    """Return where a JupyterLab listens, from the file that it writes, once it answers."""
    told = runtime / f"jpserver-{server.pid}.json"
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            address = f"http://127.0.0.1:{json.loads(told.read_text('utf-8'))['port']}"
            urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=2)
            return address
        except (OSError, ValueError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start: {log.read_text('utf-8')[-2000:]}")


def stop(server):
    """End a server at once: it keeps nothing, and takes up to 10 s to end by itself.

    Its kernels end when it does.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait(SECONDS)


Opened = Callable[[str], Page]


@pytest.fixture
def opened(visit, lab):
    """Return a function that opens a place of the server."""

    def open_page(place):
        # Lab logs errors of its own; what it asks for must still be on this machine
        page = visit(allowed=("",))
        page.set_default_timeout(1000 * SECONDS)
        page.goto(f"{lab}/{place}?token={TOKEN}")
        return page

    return open_page


def test_a_question_is_answered_by_keyboard_in_both_themes(opened):
    page = opened("lab/tree/executed.ipynb")
    expect(page.locator("[data-kind][data-look]")).to_have_count(3, timeout=1000 * SECONDS)
    cells = page.locator(".jp-Notebook-cell")
    expect(cells).to_have_count(4)
    answer(page, cells)
    expect(cells).to_have_count(4)
    expect(page.locator(".jp-MarkdownCell")).to_have_count(0)
    hosts = page.locator("[data-kind]")
    for look, light in (
        ("light", "true"),
        ("dark", "false"),
    ):
        page.evaluate("light => document.body.dataset.jpThemeLight = light", light)
        for at in range(hosts.count()):
            expect(hosts.nth(at)).to_have_attribute("data-look", look)
        assert violations(page, "[data-kind]") == []


def answer(page, cells):
    """Answer the questions of the second cell by keyboard."""
    cells.nth(1).locator(".jp-InputPrompt").click()  # command mode
    expect(cells.nth(1)).to_have_class(ACTIVE)
    page.get_by_label("the batch").focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("16384")).to_be_checked()
    expect(cells.nth(1)).to_have_class(ACTIVE)  # no arrow key went to the notebook
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".feedback").first.get_by_text("Larger.")).to_be_visible()
    # Letters that are commands there: a, b, x, d d, m, 1
    field = page.get_by_label("How much?")
    field.focus()
    page.keyboard.type("1abxddm")
    expect(field).to_have_value("1abxddm")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Not a number").first).to_be_visible()
    page.keyboard.press("Control+A")
    page.keyboard.type("4")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Too large.").first).to_be_visible()
    expect(page.get_by_text("Deep.", exact=True)).to_be_visible()
    expect(cells).to_have_count(4)
    expect(page.locator(".jp-MarkdownCell")).to_have_count(0)
    expect(cells.nth(1)).to_have_class(ACTIVE)


def test_an_untrusted_notebook_shows_the_question_and_a_folded_answer(opened):
    # A workspace of its own: the usual one opens what another test left open
    page = opened("lab/workspaces/untrusted/tree/untrusted.ipynb")
    expect(page.get_by_text("Predict. Which?")).to_be_visible(timeout=1000 * SECONDS)
    expect(page.get_by_text("Not “4096”: It is large.", exact=True)).to_be_hidden()
    page.get_by_text("Show the answer", exact=True).first.click()
    expect(page.get_by_text("Not “4096”: It is large.", exact=True)).to_be_visible()
    shown = page.locator(".jp-NotebookPanel:visible")
    assert shown.locator("[data-look]").count() == 0
