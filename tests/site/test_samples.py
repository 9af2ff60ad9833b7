"""Sample reports and the summary's table of causes are what the package has."""

import html
import re

import pytest

import page_numbers
import samples
from roofline.diagnosis import display
from roofline.diagnosis.answer import answer
from roofline_helpers.common.show import si
from tools import books


@pytest.mark.parametrize("name", list(samples.SAMPLES))
def test_a_sample_report_is_one_small_file_with_all_of_its_record(name, tmp_path):
    why, file = samples.explanation(name), samples.write(name, tmp_path)
    page = html.unescape(file.read_text("utf-8")).replace("<wbr>", "")  # after slashes of paths
    assert '<main class="explained whole"><p class="made">' in file.read_text("utf-8")
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len({*ids})
    assert file.stat().st_size <= 400_000
    assert not re.search(r"src=|@import|url\((?!#)|https?://(?!www\.w3\.org)", page)
    assert (
        page.index(samples.SAMPLES[name][2]) < page.index(answer(why)[0]) < page.index("By kernel")
    )
    for finding in why.findings:
        assert f'<a href="../{finding.page}"><strong>{finding.title}</strong>' in page
        assert finding.source in page
        cost = display.cost(why, finding)
        assert cost in page
        assert bool(cost) or not finding.named or not finding.kernels
    assert all(row.source in page for row in why.kernels)
    assert "ellipsis" not in page
    assert f'href="samples/{name}.html"' in (books.ROOT / "index.md").read_text("utf-8")


def test_the_front_page_and_the_readme_say_what_the_samples_say():
    first = samples.explanation("decode-first")
    assert first.hand is not None
    numbers = page_numbers._samples()
    assert numbers["front_why_least"] == si(first.hand, "s") == "4.06 ms"
    assert (numbers["front_why_first"], numbers["front_why_last"]) == ("27.3 ms", "5.1 ms")
    readme = (books.ROOT / "README.md").read_text("utf-8")
    assert f"> {' '.join(answer(first))}" in readme
    played = page_numbers._riddle()
    assert f"took {played['riddle_first']} on an H200" in readme
    assert f"{played['riddle_last']} after nine changes" in readme
    board = page_numbers.board()
    told = "Of {board_rows} published training and decode steps half are off by less than "
    assert (told + "{board_median}, and none beats its bound").format_map(board) in readme
    assert board["board_beaten"] == "0"
