"""Where things come from: data have an origin and a licence, commits are in the history."""

import re
import subprocess

import pytest

from tools import books

ROOT = books.ROOT
ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.*?) ?\|$", re.M)
FOLDERS = ("roofline/data", "roofline_helpers/data", "tests/data")


def git(*words):
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"NOT TESTED: {done.stderr.strip()}")
    return done.stdout.splitlines()


def without_origin(folder):
    """Return what a folder of data has that its README doesn't give an origin and a licence."""
    said = {name: (origin, licence) for name, origin, licence in ROW.findall(_page(folder))}
    files = [path for path in folder.iterdir() if path.name != "README.md"]
    missing = [f"{folder.name}/{name}" for name in said if not (folder / name).exists()]
    for path in files:
        origin, licence = said.get(path.name, ("", ""))
        if origin == "see its own README":
            missing += without_origin(path)
        elif not (origin and licence) or (path.is_dir() and not origin.startswith("ours")):
            missing.append(f"{folder.name}/{path.name}")
    return missing


def _page(folder):
    page = folder / "README.md"
    return page.read_text("utf-8") if page.exists() else ""


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_file_of_data_has_its_origin_and_licence_beside_it(folder):
    missing = without_origin(ROOT / folder)
    assert missing == [], "each needs a row of origin and licence in the README.md beside it"


def test_the_licences_name_every_folder():
    said = (ROOT / "LICENSE-text").read_text("utf-8")
    folders = {path.partition("/")[0] for path in git("ls-files") if "/" in path}
    assert {folder for folder in folders if f"{folder}/" not in said} == set()


CITED = re.compile(r"(?:\bcommit|\bat|\brevision)\s+`?([0-9a-f]{7,40})\b")
ELSEWHERE = re.compile(r"[\w.-]+/[\w.-]+,?\s+commit\s+$")


def test_each_commit_that_is_cited_is_in_the_history():
    """Of this repository; of another one, its name stands before the commit."""
    if git("rev-parse", "--is-shallow-repository") == ["true"]:
        pytest.skip("NOT TESTED: a shallow clone has no history")
    history, lost = git("rev-list", "HEAD"), []
    cited = 0
    for name in git("grep", "-lIE", "(commit|at|revision)\\s+`?[0-9a-f]{7,40}"):
        text = (ROOT / name).read_text("utf-8")
        for found in CITED.finditer(text):
            before, commit = text[max(found.start() - 60, 0) : found.start(1)], found[1]
            if commit.isalpha() or commit.isdigit() or ELSEWHERE.search(before):
                continue
            cited += 1
            if not any(each.startswith(commit) for each in history):
                lost.append(f"{name}: {commit}")
    assert lost == []
    assert cited > 3
