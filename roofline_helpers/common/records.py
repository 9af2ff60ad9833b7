"""Records: results kept as JSON files, the package's own among them.

A record is one JSON object. Its ``"schema"`` is ``family/version``, for instance
``roofline_helpers.measured/1``. `roofline.storage` writes them, and checks those of other people.
"""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Any, TypeAlias

import msgspec

from roofline_helpers.common.checks import RooflineError

Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
"""A positive finite number."""

Natural: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
"""Zero or a positive finite number."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
"""A whole number from 1."""


class BadRecord(RooflineError, ValueError):
    """A file that is not a record, or one that this version of the package can't read.

    Examples
    --------
    >>> issubclass(BadRecord, RooflineError)
    True
    """


def files(folder: Any) -> dict[str, Any]:
    """Return the JSON files of a folder or resource by name without suffix, sorted; {} if none."""
    there = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    return {file.name.removesuffix(".json"): file for file in there if file.name.endswith(".json")}


def committed(package: str, *parts: str) -> Any:
    """Return a file or folder of a package's own data, as a resource."""
    return resources.files(package).joinpath("data", *parts)
