"""Sphinx extension: sample reports, as `why.save("why.html")` writes them, from committed records.

They are made when the site is built, and are the files that a reader would send: each brings its
style along and needs no other file. Above each stands what it is about, with links back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from sphinx.application import Sphinx

from roofline.diagnosis import Explanation, ladder
from roofline_helpers.common.show import render

FOLDER = "samples"


class Sample(NamedTuple):
    """A rung of a ladder, what it is, and the chapter that tells of it."""

    ladder: str
    rung: str
    told: str
    chapter: str
    batch: int

    def explanation(self) -> Explanation:
        """Return the rung's explanation."""
        steps = ladder.committed()[self.ladder].select(batch=self.batch)
        return next(step.why for step in steps if step.rung == self.rung and step.why is not None)


DECODE = "a decode step of Llama-3-8B, 16 sequences of 2048 tokens"
SAMPLES = {
    "decode-first": Sample(
        "decode-rungs", "as first written", f"{DECODE}, as first written", "decode", 16
    ),
    "decode-last": Sample(
        "decode-rungs", "narrow sums", f"{DECODE}, after nine changes", "decode", 16
    ),
    "train-step": Sample(
        "train-step", "as first written", "a training step on four GPUs", "training", 16
    ),
}
"""Each page by its name."""

LEAD = """<p class="made">A sample report: {{ told }}. It is what <code>why.save("why.html")</code>
writes. <a href="../notebooks/where-the-time-goes.html">How to read it</a>,
<a href="../notebooks/{{ chapter }}-step-made-fast.html">how the step was changed</a>,
<a href="../index.html">the book</a>.</p>"""


def page(sample: Sample, file: Path) -> None:
    """Write one sample report."""
    text = sample.explanation().save(file).read_text("utf-8")
    body = '<main class="explained whole">'
    assert body in text
    lead = render(LEAD, told=sample.told, chapter=sample.chapter)
    file.write_text(text.replace(body, f"{body}{lead}"), "utf-8")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write all of them."""
    if error is None and app.builder.name == "html":
        folder = Path(app.outdir) / FOLDER
        folder.mkdir(exist_ok=True)
        for name, sample in SAMPLES.items():
            page(sample, folder / f"{name}.html")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx: before all is packed."""
    app.connect("build-finished", finish, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
