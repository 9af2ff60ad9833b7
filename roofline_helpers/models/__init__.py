"""Language models as shapes: the catalogue, and configurations on disk."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from roofline_helpers.common.checks import BadValue, mapping, name_of
from roofline_helpers.models.configurations import configured
from roofline_helpers.models.decoder import WIDTHS
from roofline_helpers.models.decoder import Decoder as Decoder
from roofline_helpers.models.layers import Block as Block
from roofline_helpers.models.layers import Experts as Experts
from roofline_helpers.models.layers import FeedForward as FeedForward
from roofline_helpers.models.layers import Latent as Latent
from roofline_helpers.models.layers import Local as Local
from roofline_helpers.models.layers import Mixer as Mixer
from roofline_helpers.models.layers import Stored as Stored

FLAGS = ("gated", "tied")
PARTS: Mapping[str, Any] = {"experts": Experts, "latent": Latent, "local": Local}

__all__ = ["Decoder", "model", "LLAMA_3_8B"]


def model(given: Any) -> Decoder:
    """Return a decoder by its key or name, or that of a ``config.json`` on disk.

    Parameters
    ----------
    given : str, Path or Decoder
        "llama-3-8b", "Mixtral 8x7B". Case, spaces, "-" and "_" don't matter. Or the path of a
        configuration as Hugging Face's transformers write it, or of its folder. Of a model that
        reads pictures too it is the language part.

    Raises
    ------
    UnknownName, BadType
        No such model; the message gives the nearest and lists all. Not a name.
    BadValue
        No such file; or a configuration of an architecture that isn't read, or with a key that may
        change its shape and isn't understood: the message names it.

    Examples
    --------
    >>> model("mixtral-8x7b").experts.active
    2
    """
    if isinstance(given, Decoder):
        return given
    known = _catalogue()
    also = {each.name: key for key, each in known.items()}
    if isinstance(given, Path) or (isinstance(given, str) and given not in known):
        path = Path(given)
        if isinstance(given, Path) or "/" in given or path.suffix == ".json" or path.is_dir():
            return configured(path / "config.json" if path.is_dir() else path)
    return known[name_of("model", given, known, also)]


@cache
def _catalogue() -> dict[str, Decoder]:
    text = resources.files("roofline_helpers").joinpath("data", "models.toml").read_text("utf-8")
    found = {}
    for key, entry in tomllib.loads(text).items():
        given = entry["widths"] | {name: entry[name] for name in (*FLAGS, *PARTS) if name in entry}
        found[key] = shaped(entry["name"], given, entry["source"])
    return found


def shaped(name: str, given: Mapping[str, Any], source: str = "") -> Decoder:
    """Return a decoder of widths and settings in a table, as a TOML file has them.

    Raises
    ------
    BadType, BadValue, UnknownName
        A width or setting that is wrong, missing, or that no decoder has.
    """
    for key in given:
        name_of("width or setting of a model", key, (*WIDTHS, *FLAGS, *PARTS))
    missing = [key for key in WIDTHS if key not in given]
    if missing:
        raise BadValue(f"{name}: {', '.join(missing)} missing")
    made = dict(given)
    for key in PARTS.keys() & given.keys():
        table = mapping(key, given[key])
        for inner in table:
            name_of(f"setting of {key}", inner, [field.name for field in fields(PARTS[key])])
        made[key] = PARTS[key](**table)
    return Decoder(name, **made, source=source)


LLAMA_3_8B = model("llama-3-8b")
"""Llama 3 8B, trained on contexts of 8192 tokens; Llama 3.1 8B has the same shape, and 131 072."""
