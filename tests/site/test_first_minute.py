"""The first minute: commands and programs of the front page, *Install and run* and the README."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv

import pytest

import page_figures
import page_numbers
from roofline import cli, xla
from roofline.xla.report import load_report
from tools import books, repository

SLUG = "some-one/guide"
FENCE = re.compile(r"^```(.*)\n([\s\S]*?)^```", re.MULTILINE)
PAGES = ("index.md", "book/install.md", "README.md")
ARCHIVE = f"roofline_helpers[all] @ https://github.com/{SLUG}/archive/main.zip"


def commands(monkeypatch):
    """Every command of the pages, built without the repository's address and with it."""
    texts = [(books.ROOT / page).read_text("utf-8") for page in PAGES]
    for slug in ("", SLUG):
        monkeypatch.setenv("GITHUB_REPOSITORY", slug)
        texts += page_numbers._install().values()
    blocks = [block for text in texts for block in FENCE.findall(text)]
    shell = [block for language, block in blocks if language in ("", "sh")]
    lines = [line.partition("  #")[0].strip() for block in shell for line in block.splitlines()]
    return sorted({line for line in lines if line})


def test_every_command_is_one_that_works(monkeypatch):
    pips = set()
    for line in commands(monkeypatch):
        first, *rest = shlex.split(line)
        if first == "make":
            subprocess.run([first, "-n", *rest], cwd=books.ROOT, check=True, capture_output=True)
        elif first == "roofline":
            cli._parser().parse_args(rest)
        elif first == "pip":
            pips.add(line)
        else:
            assert line in CLONES
    assert pips == {*PIPS, GPU, f'pip install "{ARCHIVE}"'}
    extras = importlib.metadata.metadata("jax").get_all("Provides-Extra") or []
    assert {"cuda12", "cuda13"} <= {*extras}
    assert (books.ROOT / ".binder/requirements.txt").read_text("utf-8").strip() == ".[all]"


CLONES = {
    f"git clone https://github.com/{SLUG}",
    "cd guide",
    "git clone https://github.com/OWNER/NAME",  # as the README has it, which knows no address
    "cd NAME",
}
PIPS = (
    "pip install .",
    "pip install '.[all]'",
    "pip wheel --wheel-dir wheels '.[all]'",
    "pip install --no-index --find-links wheels 'roofline_helpers[all]'",
)
GPU = "pip install '.[cuda13,plots]'"


@pytest.mark.parametrize("address", ["", f"https://github.com/{SLUG}"])
def test_a_button_is_promised_only_where_the_chapters_have_one(monkeypatch, tmp_path, address):
    cell = repository.setup_cell(repository.source(address) if address else None)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/one.ipynb").write_text(json.dumps({"source": [cell]}), "utf-8")
    monkeypatch.setattr(page_numbers, "ROOT", tmp_path)
    for slug in ("", SLUG):  # of the build: a repository's first one has unstamped chapters
        monkeypatch.setenv("GITHUB_REPOSITORY", slug)
        text = page_numbers._install()["install_colab"]
        assert ("no Colab button" in text) == (not address)
        assert ("%pip install" in text) == bool(slug)


def test_the_doctor_and_the_chips_are_shown(capsys):
    cli.main(["doctor"])
    assert cli.main(["chip", "v6e", "h200"]) == 0
    assert "count by hand" in capsys.readouterr().out


def test_what_the_page_prints_without_jax_needs_none():
    program = page_figures.program("book/install.md")
    without = f"import sys\nsys.modules['jax'] = None\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", without], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in page_numbers._install()["install_without_jax"]
    assert done.stdout.startswith("memory ")


@pytest.mark.slow
def test_the_front_page_prints_what_its_program_prints():
    if xla.can_compile("v6e") is not None:
        pytest.skip(str(xla.can_compile("v6e")))
    kept, now = load_report(page_figures.EXPLAINED), page_figures.explained()
    assert now.describe() == kept.describe(), "run python -m tools.site.pictures"
    # the text says that x is read twice
    reading = [row.work.role for row in kept.kernels if row.work.read_bytes >= 2 * 65536 * 4096]
    assert reading == ["sum on x", "GELU"]


@pytest.mark.weekly
def test_the_install_line_is_enough_in_a_fresh_environment(tmp_path):
    clone = tmp_path / "clone"
    for package in ("roofline_helpers", "roofline"):
        shutil.copytree(books.ROOT / package, clone / package)
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(books.ROOT / name, clone)

    def run(name, *command):
        if not (tmp_path / name).exists():
            venv.create(tmp_path / name, with_pip=True)
        tool, *rest = command
        path = {"PATH": f"{tmp_path / name / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            [tmp_path / name / "bin" / tool, *rest],
            cwd=clone,
            env={**os.environ, **path, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    bare, full, wheels, offline = map(shlex.split, PIPS)
    run("without-jax", *bare)
    run("without-jax", "roofline", "chip", "v6e", "h200")
    run("whole", *full)
    assert "yes" in run("whole", "roofline", "doctor")
    programs = [page_figures.program("README.md"), page_figures.program("index.md")]
    if sys.platform == "linux":
        for code in programs:
            run("whole", "python", "-c", code)
            (clone / "why.html").unlink()
    run("whole", *wheels)
    run("offline", *offline)
    run("offline", "python", "-c", "import jax, matplotlib, roofline_helpers")
