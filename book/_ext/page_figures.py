"""The programs of prose pages, and what the front page's explains, kept in a record."""

import io
import os
import re
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

from roofline.xla import Report

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = ROOT / "book/explained.json"


def program(page: str) -> str:
    """Return the first Python program on a page."""
    block = re.search(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert block is not None, f"{page} has no program"
    return block[1]


def explained() -> Report:
    """Run the front page's program, in a folder of its own, and return what it explains."""
    names: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
        exec(compile(program("index.md"), "step.py", "exec"), names)
        assert os.listdir() == ["why.html"]
    why = names["why"]
    assert isinstance(why, Report)
    return why
