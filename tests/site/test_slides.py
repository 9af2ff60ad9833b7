"""Slides and the answer key have what the pages have, and find their pictures."""

from pathlib import Path

from bs4 import BeautifulSoup

from tools.site import slides

PAGE = """<article><h1>Fusion</h1><p>What you'll learn</p><ul><li>To <a href="x">fuse</a>.</li></ul>
<figure><picture><source srcset="../_images/dark.png"><img loading="lazy" src="../_images/a.png">
</picture><figcaption>Two kernels.</figcaption></figure>
<roofline-ask data-json="{}"><p>How many?</p>
<details><summary>Show the answer</summary><p>Four.</p></details></roofline-ask>
<section id="end"><h2>Take-away<a class="headerlink" href="#y">#</a></h2>
<p>Count.</p></section></article>"""


def test_a_chapter_becomes_goals_figures_take_away_and_a_key(tmp_path: Path) -> None:
    site = tmp_path / "html"
    site.mkdir()
    (site / "index.html").write_text('<link rel="stylesheet" href="s.css">', "utf-8")
    for name, page in (("one", PAGE), ("two", PAGE.replace("roofline-ask", "p"))):
        (site / f"{name}.html").write_text(page, "utf-8")
    slides.write(site, ["one", "two"])
    made, answers = (
        BeautifulSoup((tmp_path / f"{name}.html").read_text("utf-8"), "html.parser")
        for name in ("slides", "answers")
    )
    texts = [" ".join(one.get_text(" ").split()) for one in made.select(".slide")]
    chapter = ["Fusion To fuse.", "Fusion Two kernels.", "Fusion Take-away Count."]
    assert texts == ["Slides Arrow keys turn the slides.", *chapter * 2]
    assert [str(image) for image in made.select("img")] == ['<img src="html/_images/a.png"/>'] * 2
    links = [str(one["href"]) for one in made.select(".slide .where a")]
    assert links == [f"html/{page}.html{part}" for page in ("one", "two") for part in ("", "#end")]
    assert "Four." not in made.get_text()
    [key] = answers.select(".key")
    assert key.select_one("details[open] p").get_text() == "Four."  # type: ignore[union-attr]
