"""Pictures on prose pages are those of the notebooks."""

from tools import books
from tools.site.pictures import copies


def test_copies_are_what_the_notebooks_have():
    for name, content in copies().items():
        same = (books.ROOT / name).read_bytes() == content
        assert same, f"{name}: run python -m tools.site.pictures"
