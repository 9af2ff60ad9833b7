"""The package as a whole: what importing it costs, which way imports point, what is shipped."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import roofline_helpers
from tools import books

PACKAGE = books.ROOT / "roofline_helpers"
# Ground floor first: a module imports from the ones before it only
FLOORS = [
    "_checks",
    "show",
    "judge",
    "dtypes",
    "roofline",
    "hardware",
    "work",
    "serving",
    "records",
    "plot",
    "hlo",
    "compiled",
    "measure",
    "kernels",
    "ask",
    "lab",
    "__main__",
]
HEAVY = ("jax", "jaxlib", "matplotlib", "seaborn", "pandas", "scipy", "IPython")
SECONDS = 0.1


def python(code: str) -> str:
    # With compiled modules kept, as an installation has them
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, roofline_helpers; print(*sorted(m for m in sys.modules if '.' not in m))"
    assert set(python(code).split()) & set(HEAVY) == set()


def test_import_is_quick() -> None:
    code = (
        # the processor's time: other programs of the machine do not count
        "import time, numpy; begun = time.process_time(); import roofline_helpers;"
        "roofline_helpers.hardware, roofline_helpers.work;"
        "print(time.process_time() - begun)"
    )
    assert min(float(python(code)) for _ in range(5)) <= SECONDS


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == 0 and not module.startswith("roofline_helpers"):
                continue
            inner = module.removeprefix("roofline_helpers").strip(".")
            yield from [inner.split(".")[0]] if inner else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("roofline_helpers."):
                    yield alias.name.split(".")[1]


def upward(files: dict[str, Path]) -> list[str]:
    return [
        f"{name} imports {other}"
        for name, path in files.items()
        for other in imports(path)
        if other in FLOORS and FLOORS.index(other) >= FLOORS.index(name)
    ]


def test_no_import_points_upwards() -> None:
    files = {path.stem: path for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    assert set(files) <= set(FLOORS), "a module has no floor: add it to FLOORS in its place"
    assert upward(files) == []


def test_an_import_that_points_upwards_is_noticed(tmp_path: Path) -> None:
    for text in (
        "from .work import Work",
        "from . import work",
        "import roofline_helpers.work",
        "def f():\n    from roofline_helpers.work import Work",
    ):
        path = tmp_path / "roofline.py"
        path.write_text(text, "utf-8")
        assert upward({"roofline": path}) == ["roofline imports work"]


def modules() -> list[ModuleType]:
    names = [one.name for one in pkgutil.iter_modules(roofline_helpers.__path__)]
    return [
        importlib.import_module(f"roofline_helpers.{name}") for name in names if name != "__main__"
    ]


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions, classes, methods and properties that a module defines for others."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            for inner, member in vars(value).items():
                if not inner.startswith("_") and (
                    inspect.isfunction(member) or isinstance(member, property | classmethod)
                ):
                    yield f"{module.__name__}.{name}.{inner}", member


def test_everything_public_has_a_docstring() -> None:
    bare = [
        name
        for module in modules()
        for name, value in public(module)
        if len((value.__doc__ or "").strip()) < 10
        # what dataclass writes by itself
        or re.match(rf"{name.rsplit('.', 1)[-1]}\(", value.__doc__)
    ]
    assert not bare
    assert [module.__name__ for module in modules() if not module.__doc__] == []


@pytest.mark.slow
def test_the_wheel_has_the_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(books.ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
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
        assert re.fullmatch(r"[a-z]+>=[\d.]+", requirement), requirement
        assert not requirement.startswith("jax")
    held = (books.ROOT / "requirements.txt").read_text("utf-8")
    assert not re.search(r"https?://|--index|--find-links|@ file", held)
    for name in ("jupyter-book", "jupyter", "numpy", "matplotlib", "seaborn", "jax", "nbval"):
        assert re.search(rf"^{name}==", held, re.MULTILINE), name
