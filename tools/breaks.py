"""Break one thing after another in a copy of the working tree, and show which check catches it.

    python -m tools.breaks [NAME ...]      a table in Markdown; fails where a break goes unseen

Each break is one that a slip of the hand makes. The tests that are named for it run in the copy,
with this environment; the table says which failed first, and how long that took.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tools import books

CHAPTER = "fusion"
NOTEBOOK = f"notebooks/{CHAPTER}.ipynb"
OUTPUTS = "tests/notebooks/test_outputs.py"
GIVEN = f"{OUTPUTS}::test_committed_outputs_are_given_now"
RECORDS = "tests/notebooks/test_compiled_records.py"


@dataclass(frozen=True)
class Break:
    """One thing to break.

    Attributes
    ----------
    what : str
        In words.
    file : str
        Where.
    change : callable
        Makes the broken text out of the sound one.
    tests : sequence of str
        What pytest runs; nothing where the site is built instead.
    """

    what: str
    file: str
    change: Callable[[str], str]
    tests: Sequence[str] = ()


def replaced(old: str, new: str) -> Callable[[str], str]:
    """Return a change of the first place that says `old`."""

    def change(text: str) -> str:
        if old not in text:
            raise SystemExit(f"nothing says {old!r} any more")
        return text.replace(old, new, 1)

    return change


def raised(pattern: str) -> Callable[[str], str]:
    """Return a change of the first number of a pattern, by one in its last digit."""

    def change(text: str) -> str:
        match = re.search(pattern, text)
        if match is None:
            raise SystemExit(f"nothing is like {pattern!r} any more")
        number = match[1][:-1] + str((int(match[1][-1]) + 1) % 10)
        return text[: match.start(1)] + number + text[match.end(1) :]

    return change


def drawn_over(text: str) -> str:
    """Return a notebook whose first picture has a line that its cell does not draw."""
    from PIL import Image, ImageDraw

    book = json.loads(text)
    data = next(
        output["data"]
        for cell in book["cells"]
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    )
    png = "".join(data["image/png"])
    image = Image.open(BytesIO(b64decode(png))).convert("RGBA")
    ImageDraw.Draw(image).line((0, 0, image.width // 3, image.height // 3), "black", 2)
    written = BytesIO()
    image.save(written, "png")
    return text.replace(json.dumps(png)[1:-1], b64encode(written.getvalue()).decode())


BREAKS = {
    "formula": Break(
        "a ridge is 1 % too high",
        "roofline_helpers/roofline/ceilings.py",
        replaced("return self.peak / self.bandwidth", "return 1.01 * self.peak / self.bandwidth"),
        ["tests/package/test_roofline.py", "tests/package/test_identities.py"],
    ),
    "count": Break(
        "what is written to HBM is counted twice in compiled programs",
        "roofline_helpers/compiled/totals.py",
        replaced(
            "self.read_bytes + self.written_bytes", "self.read_bytes + 2 * self.written_bytes"
        ),
        ["tests/package/test_compiled_counts.py"],
    ),
    "chip": Break(
        "v7x's bf16 peak in its last digit",
        "roofline_helpers/data/chips.toml",
        raised(r'matrix\.bf16 = \{ value = (2307)e12, source = "google-tpu7x"'),
        ["tests/package/test_chips.py", "tests/package/test_hardware.py"],
    ),
    "javascript": Break(
        "attention's products are counted once in JavaScript",
        "roofline_helpers/assets/serving.js",
        replaced("matrix: 4 * seen * head_dim", "matrix: 2 * seen * head_dim"),
        ["tests/package/test_parity.py"],
    ),
    "picture": Break(
        "a line in a committed picture", NOTEBOOK, drawn_over, [f"{GIVEN}[{CHAPTER}]"]
    ),
    "output": Break(
        "a digit of a committed table",
        NOTEBOOK,
        raised(r'"text/html": \[(?:.|\n)*?<td[^>]*>([\d,.]*\d)'),
        [f"{GIVEN}[{CHAPTER}]"],
    ),
    "prose": Break(
        "a number in a chapter's text that no cell gives",
        NOTEBOOK,
        replaced('"## Take-away', '"## Take-away\\n\\nThat saves 8,765 bytes.'),
        [f"tests/notebooks/test_prose.py::test_numbers_in_the_text_are_computed[{CHAPTER}]"],
    ),
    "right answer": Break(
        "another option of a question is right",
        f"roofline_helpers/data/questions/{CHAPTER}.toml",
        lambda text: text.replace("right = true\n", "", 1).replace(
            "[[questions.fu-tail.options]]\n", "[[questions.fu-tail.options]]\nright = true\n", 1
        ),
        [f"{GIVEN}[{CHAPTER}]"],
    ),
    "question's key": Break(
        "a question has another key than the cell that asks it",
        f"roofline_helpers/data/questions/{CHAPTER}.toml",
        lambda text: text.replace("questions.fu-tail", "questions.fu-end"),
        ["tests/notebooks/test_questions.py"],
    ),
    "compiled record": Break(
        "bytes of a kernel in a compiled record",
        "roofline_helpers/data/compiled/fuse-chain.v6e.json",
        raised(r'"vector": (\d+)'),
        [f"{RECORDS}::test_records_are_what_the_compiler_says_now[compiler-fusion]"],
    ),
    "measured record": Break(
        "a time of a measured record",
        "roofline_helpers/data/measured/h100.json",
        raised(r'"median": (\d\.0*\d\d)'),
        [f"{GIVEN}[fusion-measured]"],
    ),
    "link": Break(
        "a link to a page that is not there",
        "book/what-is-a-roofline.md",
        lambda text: text + "\nSee [elsewhere](elsewhere.md).\n",
    ),
}


def copied(folder: Path) -> None:
    """Copy the working tree, what git ignores left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=books.ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listing.stdout.split("\0")):
        if (books.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(books.ROOT / name, folder / name)


def checked(each: Break, folder: Path) -> tuple[str, float]:
    """Run the check of a break; return the first test that failed, if any, and the seconds."""
    pytest = ["-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *each.tests]
    arguments = pytest if each.tests else ["-m", "tools.site.build"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    command, begun = [sys.executable, *arguments], time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    took = time.perf_counter() - begun
    if done.returncode == 0:
        return "", took
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return (first[1] if first else arguments[1]), took


def caught(each: Break, folder: Path) -> tuple[str, float]:
    """Check what is sound, break it, check again, mend it; return what `checked` does.

    Raises
    ------
    SystemExit
        The check fails without the break, or the break changes nothing.
    """
    path = folder / each.file
    sound = path.read_text("utf-8")
    broken = each.change(sound)
    if broken == sound:
        raise SystemExit(f"{each.what}: nothing has changed in {each.file}")
    before, _ = checked(each, folder)
    if before:
        raise SystemExit(f"{each.what}: {before} fails without that")
    path.write_text(broken, "utf-8")
    try:
        return checked(each, folder)
    finally:
        path.write_text(sound, "utf-8")


def main() -> int:
    """Read the command line, break and print."""
    names = sys.argv[1:] or list(BREAKS)
    unseen = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copied(folder)
        print("| broken | where | caught by | seconds |\n|---|---|---|---|", flush=True)
        for name in names:
            each = BREAKS[name]
            try:
                by, took = caught(each, folder)
            except SystemExit as error:
                print(error, file=sys.stderr, flush=True)
                unseen.append(name)
                continue
            unseen += [] if by else [name]
            print(f"| {each.what} | {each.file} | {by or '**nothing**'} | {took:.0f} |", flush=True)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
