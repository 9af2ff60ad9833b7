"""The package as a whole: what importing it costs, which way imports point, what is shipped."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import roofline_helpers
from tools import books

PACKAGE = books.ROOT / "roofline_helpers"
# Ground floor first: a room, a file or a folder, imports from the ones before it only
FLOORS = [
    "common",
    "roofline",
    "chips",
    "work",
    "network",
    "evidence",
    "models",
    "training",
    "serving",
    "plot",
    "xla",
    "testing",
    "device",
    "validation",
    "kernels",
    "pages",
    "cli",
    "__main__",
]
HEAVY = ("jax", "jaxlib", "matplotlib", "seaborn", "pandas", "scipy", "IPython")


def python(code: str) -> str:
    # With compiled modules kept, as an installation has them
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, roofline_helpers; print(*sorted(m for m in sys.modules if '.' not in m))"
    assert set(python(code).split()) & set(HEAVY) == set()


def test_what_needs_jax_says_so_by_name_and_how_to_install_it() -> None:
    doors = "rh.explain(f) rh.explain('.') rh.device.time(f) rh.device.run() "
    doors += "rh.xla.pallas_kernels(f) rh.kernels rh.analyze(f) rh.analyze(f,chip='v6e')"
    code = """
import sys
sys.modules["jax"] = None
import roofline_helpers as rh
from roofline_helpers.cli import main
f = abs
for door in DOORS.split():
    try:
        eval(door)
    except rh.RooflineError as error:
        print(error)
sys.stderr = sys.stdout
main(["measure"])
main(["explain", "."])
""".replace("DOORS", repr(doors))
    said = python(code).splitlines()
    assert len(said) == len(doors.split()) + 2
    assert [line for line in said if "pip install jax" not in line] == []


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a file that run: all but what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            yield from statements(node)


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, inside functions too: "hlo.flops"."""
    for node in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == 0 and module.split(".")[0] != "roofline_helpers":
                continue
            inside = module.removeprefix("roofline_helpers").strip(".")
            for alias in node.names:
                whole = f"{inside}.{alias.name}".strip(".")
                path_of = PACKAGE.joinpath(*whole.split("."))
                is_module = path_of.is_dir() or path_of.with_suffix(".py").is_file()
                yield whole if is_module or not inside else inside
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("roofline_helpers."):
                    yield alias.name.removeprefix("roofline_helpers.")


def rooms(package: Path) -> dict[str, list[Path]]:
    """The files of each room, a module or a folder of them."""
    files = {path.stem: [path] for path in package.glob("*.py") if path.stem != "__init__"}
    folders = {path.parent.name: path.parent for path in package.glob("*/__init__.py")}
    return files | {name: sorted(folder.glob("*.py")) for name, folder in folders.items()}


def upward(package: Path) -> set[str]:
    return {
        f"{room} imports {other}"
        for room, paths in rooms(package).items()
        for path in paths
        for other in (each.split(".")[0] for each in imports(path))
        if other != room and other in FLOORS and FLOORS.index(other) >= FLOORS.index(room)
    }


def test_no_import_points_upwards() -> None:
    assert set(rooms(PACKAGE)) <= set(FLOORS), "a room has no floor: add it to FLOORS in its place"
    assert upward(PACKAGE) == set()


@pytest.mark.slow
def test_the_wheel_has_the_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(books.ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= 4_000_000
    assert wheel.name.split("-")[1] == roofline_helpers.__version__
    citation = (books.ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {roofline_helpers.__version__}\n" in citation
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    (points,) = (name for name in names if name.endswith("entry_points.txt"))
    assert "roofline = roofline_helpers.testing.plugin" in archive.read(points).decode()
    files = [
        path.relative_to(books.ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert "roofline_helpers/data/chips.toml" in files
    assert [name for name in files if name not in names] == []
    outside = [name for name in names if not name.startswith("roofline_helpers")]
    assert outside == [], "the wheel brings something else along"


def test_the_package_asks_for_ranges_and_never_for_jax() -> None:
    project = tomllib.loads((books.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for requirement in project["dependencies"]:
        assert re.fullmatch(r"[a-z0-9]+>=[\d.]+", requirement), requirement
        assert not requirement.startswith("jax")
    held = (books.ROOT / "requirements.txt").read_text("utf-8")
    assert not re.search(r"https?://|--index|--find-links|@ file", held)
    for name in ("jupyter-book", "jupyter", "numpy", "matplotlib", "seaborn", "jax", "nbval"):
        assert re.search(rf"^{name}==", held, re.MULTILINE), name
