"""Notebooks say where they install the package from, once somebody has said it."""

import shutil

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tools import books, repository
from tools.notebooks import run as notebooks

URL = "https://github.com/someone/roofline-guide"
SOME = 3  # notebooks of the copy: the shortest ones


@pytest.fixture
def copy(tmp_path):
    """Some notebooks in a folder of their own, without an address."""
    (tmp_path / "notebooks").mkdir()
    contents = ["format: jb-book", "root: index", "chapters:"]
    for path in sorted(books.notebooks(), key=lambda one: one.stat().st_size)[:SOME]:
        shutil.copy(path, tmp_path / "notebooks")
        contents.append(f"  - file: notebooks/{path.stem}")
    (tmp_path / "_toc.yml").write_text("\n".join(contents) + "\n", "utf-8")
    repository.stamp(tmp_path, None)
    return tmp_path


ALL = {"roofline_helpers", "jax", "seaborn"}
ARCHIVE = f"{URL}/archive/main.zip"
# where the notebook is, what is installed, what its first cell installs: with an address, without
PLACES = {
    "a clone": (True, {"jax", "seaborn"}, [".."], [".."]),
    "a clone after `make lab`": (True, ALL, [], []),
    "Colab and Kaggle": (False, {"jax", "seaborn"}, [ARCHIVE], "OWNER/NAME/archive/main.zip"),
    "a local Jupyter": (False, set(), [ARCHIVE, "jax seaborn"], "in a clone of its repository"),
    "a clone without JAX": (True, set(), ["..", "jax seaborn"], ["..", "jax seaborn"]),
    "a wheel": (False, {"roofline_helpers"}, ["jax seaborn"], ["jax seaborn"]),
}


@pytest.mark.filterwarnings("ignore:To exit:UserWarning")
@pytest.mark.parametrize("place", PLACES)
def test_the_first_cell_installs_what_is_missing_or_says_what_to_do(place, tmp_path, monkeypatch):
    cloned, installed, *expected = PLACES[place]
    (tmp_path / "notebooks").mkdir()
    if cloned:
        (tmp_path / "roofline_helpers").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name in installed or None)
    for source, wanted in zip((repository.source(URL), None), expected, strict=True):
        asked = []
        shell = InteractiveShell()
        shell.register_magic_function(asked.append, magic_name="pip")
        result = shell.run_cell(repository.setup_cell(source))
        if isinstance(wanted, str):
            assert isinstance(result.error_in_exec, SystemExit)
            assert wanted in str(result.error_in_exec)
            assert asked == []
        else:
            assert result.error_in_exec is None
            assert asked == [f"install --quiet {packages}" for packages in wanted]


def test_an_address_reaches_every_notebook_and_goes_again(copy):
    paths = books.notebooks(copy)
    before = [path.read_bytes() for path in paths]
    problems = notebooks.check(paths)
    assert repository.current(copy) is None
    repository.stamp(copy, repository.source(f"{URL}.git", "v1"))
    assert repository.current(copy) == f"{URL}/archive/v1.zip"
    for path in paths:
        assert f"{URL}/archive/v1.zip" in notebooks.setup(notebooks.load(path)).source
    assert notebooks.check(paths) == problems
    repository.stamp(copy, None)
    assert [path.read_bytes() for path in paths] == before
