"""The package as a whole: what importing it costs, which way imports point, what is shipped."""

import ast
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest

import roofline_helpers
from tools import books

# Ground floor first: a room, a file or a folder, imports from the ones before it only
FLOORS = {
    "roofline_helpers": "common roofline chips work verdicts plot measured models pages".split(),
    "roofline": (
        "libtpu storage terminal recurrent configurations evidence network training serving xla"
        " testing measure diagnosis validation kernels labs cli __main__"
    ).split(),
}
HEAVY = ("jax", "jaxlib", "matplotlib", "seaborn", "pandas", "scipy", "IPython")


def python(code):
    # With compiled modules kept, as an installation has them
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    names = "analyze, explain, labs, model, scoreboard, serving, training, validation"
    code = f"import sys; from roofline import {names}"
    code += "; print(*sorted(m for m in sys.modules if '.' not in m))"
    assert set(python(code).split()) & set(HEAVY) == set()


@pytest.mark.skipif(find_spec("libtpu") is None, reason="the TPU compiler isn't installed")
def test_whoever_starts_jax_without_a_tpu_reads_nothing_of_it():
    """As after a plain installation: JAX asks libtpu for a TPU, which complains of its hosts."""
    mine = ("TPU_", "JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    code = "import roofline, jax; print(jax.devices()[0].platform)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
    assert done.stderr == ""
    assert done.stdout.strip() in ("cpu", "gpu", "tpu")


def test_what_needs_jax_says_so_by_name_and_how_to_install_it():
    doors = (
        "roofline.explain(f) roofline.explain('.') roofline.measure.time(f) roofline.measure.run() "
    )
    doors += "roofline.xla.pallas_kernels(f) roofline.kernels roofline.analyze(f) "
    doors += "roofline.analyze(f,chip='v6e')"
    code = """
import sys
sys.modules["jax"] = None
import roofline
import roofline
import roofline_helpers as rh
from roofline.cli import main
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


def statements(tree):
    """The nodes of a file that run: all but what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            yield from statements(node)


def imports(path):
    """The modules of both packages that a file imports, inside functions too."""
    for node in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.split(".")[0] not in FLOORS:
                continue
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                path_of = books.ROOT.joinpath(*whole.split("."))
                is_module = path_of.is_dir() or path_of.with_suffix(".py").is_file()
                yield whole if is_module else module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in FLOORS)


def rooms(package):
    """The files of each room, a module or a folder of them."""
    folder = books.ROOT / package
    files = {path.stem: [path] for path in folder.glob("*.py") if path.stem != "__init__"}
    folders = {path.parent.name: path.parent for path in folder.glob("*/__init__.py")}
    return files | {name: sorted(room.glob("*.py")) for name, room in folders.items()}


def upward(package):
    floors = FLOORS[package]
    found = set()
    for room, paths in rooms(package).items():
        for module in (module for path in paths for module in imports(path)):
            other, _, rest = module.partition(".")
            at = rest.split(".")[0]
            if other != package:
                if package == "roofline_helpers":
                    found.add(f"{room} imports {module}")
            elif at in floors and at != room and floors.index(at) >= floors.index(room):
                found.add(f"{room} imports {at}")
    return found


@pytest.mark.parametrize("package", FLOORS)
def test_no_import_points_upwards(package):
    assert set(rooms(package)) <= set(FLOORS[package]), "a room has no floor: add it to FLOORS"
    assert upward(package) == set()


def test_the_helpers_need_no_jax():
    heavy = [
        path
        for path in (books.ROOT / "roofline_helpers").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom) and "jax" in ast.unparse(node).split()
    ]
    assert heavy == []


@pytest.mark.slow
def test_the_wheel_has_the_data(tmp_path):
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
    assert "roofline = roofline.testing.plugin" in archive.read(points).decode()
    files = [
        path.relative_to(books.ROOT).as_posix()
        for package in FLOORS
        for path in (books.ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert "roofline_helpers/data/chips.toml" in files
    assert [name for name in files if name not in names] == []
    ours = (*(f"{package}/" for package in FLOORS), "roofline_helpers-")
    outside = [name for name in names if not name.startswith(ours)]
    assert outside == [], "the wheel brings something else along"
    archive.extractall(tmp_path / "alone")
    paths = [str(tmp_path / "alone"), str(Path(numpy.__file__).parents[1])]
    # without `site`, which would find the editable installation of this repository
    said = f"import sys; sys.path += {paths}; from roofline.cli import main; main(['chip', 'v6e'])"
    tried = [sys.executable, "-S", "-E", "-c", said]
    told = subprocess.run(tried, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "918 TFLOP/s" in told
