"""Sphinx extension: sample reports, as `why.save("why.html")` writes them, from committed records.

They are made when the site is built, and are the files that a reader would send: each brings its
style along and needs no other file. Above each stands what it is about, with links back.
"""

from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from roofline.diagnosis import Explanation, ladder
from roofline_helpers.common.show import render

FOLDER = "samples"


DECODE = "A decode step of Llama-3-8B, 16 sequences of 2048 tokens"
TRAIN = "A training step of eight layers of Llama-3-8B, as first written"
SAMPLES = {
    "decode-first": ("decode-rungs", "as first written", f"{DECODE}, as first written"),
    "decode-last": ("decode-rungs", "narrow sums", f"{DECODE}, after nine changes"),
    "train-step": ("train-step", "as first written", TRAIN),
}
"""By the name of each page its ladder, its rung and what it is."""

CHAPTERS = {"decode-rungs": "decode-step-made-fast", "train-step": "training-step-made-fast"}

LEAD = """<p class="made">A sample report, as <code>why.save("why.html")</code>
writes it. <a href="../notebooks/where-the-time-goes.html">How to read it</a>,
<a href="../notebooks/{{ chapter }}.html">how the step was changed</a>,
<a href="../index.html">the book</a>.</p>"""


def explanation(name: str) -> Explanation:
    """Return the explanation of a sample: with 16 sequences."""
    job, rung, told = SAMPLES[name]
    steps = ladder.committed()[job].select(batch=16)
    why = next(step.why for step in steps if step.rung == rung and step.why is not None)
    return replace(why, name=told)


def write(name: str, folder: Path) -> Path:
    """Write one sample report into a folder, and return its file."""
    job, *_ = SAMPLES[name]
    file = explanation(name).save(folder / f"{name}.html")
    head, main, rest = file.read_text("utf-8").partition('<main class="explained whole">')
    for finding in explanation(name).findings:
        title = f"<strong>{escape(finding.title, quote=False)}</strong>"
        rest = rest.replace(title, f'<a href="../{finding.page}">{title}</a>')
    lead = render(LEAD, chapter=CHAPTERS[job])
    file.write_text(f"{head}{main}{lead}{rest}", "utf-8")
    return file


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write all of them, in a book with the chapters that they link to."""
    chapters = {f"notebooks/{name}" for name in ("where-the-time-goes", *CHAPTERS.values())}
    if error is None and app.builder.name == "html" and chapters <= {*app.env.found_docs}:
        folder = Path(app.outdir) / FOLDER
        folder.mkdir(exist_ok=True)
        for name in SAMPLES:
            write(name, folder)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx: before all is packed."""
    app.connect("build-finished", finish, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
