"""Sphinx extension: prose pages take their numbers from ``page_numbers.py``.

A page writes ``{{ ridge_v7x_bf16 }}``; the value is computed from the package at build time. A name
that ``numbers()`` does not return is a warning, which fails the build.
"""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from chapters import texts
from page_causes import causes
from page_numbers import numbers


def fill(app: Sphinx, config: Config) -> None:
    """Put the computed values into ``myst_substitutions``."""
    values = {**texts(Path(app.srcdir)), **numbers()}
    config.myst_substitutions = {**config.myst_substitutions, **values}


def fill_headings(app: Sphinx, docname: str, source: list[str]) -> None:
    """Write the list of causes into its page: headings can't come from a substitution."""
    if docname == "book/causes":
        source[0] = source[0].replace("{{ causes }}", causes())


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx, before myst-nb reads its own configuration."""
    app.connect("config-inited", fill, priority=100)
    app.connect("source-read", fill_headings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
