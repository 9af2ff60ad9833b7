"""CONTRIBUTING: the files that it names are there."""

import re

from tools import books

PAGE = books.ROOT / "CONTRIBUTING.md"


def test_the_files_that_the_page_names_are_there():
    named = set(re.findall(r"`([\w./-]+)`", PAGE.read_text("utf-8")))
    named -= {"_build/html", "_build/pictures", "roofline_helpers/data/questions/NAME.toml"}
    paths = {name for name in named if "/" in name or name.startswith("_")}
    assert len(paths) > 15
    missing = [
        name
        for name in paths
        if not (books.ROOT / name).exists() and not (books.ROOT / f"{name}.py").is_file()
    ]
    assert missing == []
