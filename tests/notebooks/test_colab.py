"""A notebook opens alone, as in Colab: it installs the package, and JAX and NumPy stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
import warnings
from pathlib import Path

import pytest

from tools import books, repository

# Colab's versions (August 2026), on the Python that runs this test
COLAB = [
    "pip==24.1.2",
    "jax==0.7.2",
    "jaxlib==0.7.2",
    "numpy==2.1.3",
    "matplotlib==3.10.0",
    "pandas==2.2.3",
    "seaborn==0.13.2",
    "ipykernel",
    "nbclient",
]
CHOSEN = ("anatomy", "cost-analysis")


def call(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def clone_of_the_working_tree(folder: Path) -> Path:
    """A git repository with every file of this one, committed or not, that git does not ignore."""
    listing = call(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=books.ROOT
    )
    for name in listing.stdout.split("\0"):
        if name and (books.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(books.ROOT / name, folder / name)
    call("git", "init", "--quiet", "--initial-branch=main", cwd=folder)
    return folder


def commit(folder: Path) -> None:
    call("git", "add", "--all", cwd=folder)
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    call("git", *who, "commit", "--quiet", "--message=stamped", cwd=folder)


@pytest.mark.skipif("ROOFLINE_THOROUGH" not in os.environ, reason="part of `make thorough`")
def test_notebooks_run_alone_and_replace_nothing(tmp_path: Path) -> None:
    clone = clone_of_the_working_tree(tmp_path / "clone")
    address = repository.Address(f"git+file://{clone}")
    repository.stamp(clone, address)
    commit(clone)

    folder = tmp_path / "colab"
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*map(str, install), *COLAB], capture_output=True, text=True)
    if done.returncode and os.environ.get("CI") != "true" and offline(done.stderr):
        warnings.warn("OFFLINE: the test of Colab did not run", stacklevel=1)
        pytest.skip("OFFLINE: nothing could be installed, so no notebook was run as in Colab")
    assert done.returncode == 0, done.stderr

    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(books.ROOT / "tools/notebooks/alone.py", alone)
    for name in CHOSEN:
        shutil.copy(clone / f"notebooks/{name}.ipynb", alone)
    ran = subprocess.run(
        [str(python), "alone.py", *(f"{name}.ipynb" for name in CHOSEN)],
        cwd=alone,
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ""},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [f"{name}.ipynb: ran alone" in ran.stdout for name in CHOSEN] == [True, True]
    report = json.loads(ran.stdout.strip().splitlines()[-1])
    assert report["from"]["url"] == f"file://{clone}"
    head = call("git", "rev-parse", "HEAD", cwd=clone).stdout.strip()
    assert report["from"]["vcs_info"]["commit_id"] == head
    assert report["versions"]["jax"] == report["versions"]["jaxlib"] == "0.7.2"
    assert report["versions"]["numpy"] == "2.1.3"


def offline(message: str) -> bool:
    """Whether pip failed because there is no network, not because of what was asked."""
    signs = ("NewConnectionError", "Temporary failure in name resolution", "Network is unreachable")
    return any(sign in message for sign in signs)
