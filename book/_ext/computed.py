"""Sphinx extension: prose pages take their numbers from ``page_numbers.py``.

A page writes ``{{ ridge_v7x_bf16 }}``; the value is computed from the package at build time. A name
that ``numbers()`` does not return is a warning, which fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError

from chapters import texts
from page_numbers import numbers

NAME = re.compile(r"[a-z][a-z0-9_]*")


def fill(app: Sphinx, config: Config) -> None:
    """Put the computed values into ``myst_substitutions``."""
    values = {**texts(Path(app.srcdir)), **numbers()}
    for name, text in values.items():
        if not NAME.fullmatch(name):
            raise ConfigError(f"numbers(): {name!r} is no lower_case name")
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"numbers(): {name} is {text!r}, not a text")
    config.myst_substitutions = {**config.myst_substitutions, **values}


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx, before myst-nb reads its own configuration."""
    app.connect("config-inited", fill, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
