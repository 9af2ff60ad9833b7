"""Language models as shapes: the widths of a decoder, and a catalogue of published ones."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from roofline_helpers.common.checks import BadValue, name_of
from roofline_helpers.models.decoder import Decoder
from roofline_helpers.models.layers import Experts, Latent, Local, Stored

FLAGS = ("gated", "tied", "ahead")
PARTS: Mapping[str, Any] = {"experts": Experts, "latent": Latent, "local": Local}

__all__ = ["Decoder", "model", "LLAMA_3_8B"]


def model(given: Any) -> Decoder:
    """Return a decoder of the catalogue by its key or name.

    Parameters
    ----------
    given : str or Decoder
        "llama-3-8b", "Mixtral 8x7B". Case, spaces, "-" and "_" don't matter. A decoder is returned
        as it is. `roofline.model` also reads a ``config.json``.

    Raises
    ------
    UnknownName, BadType
        No such model; the message gives the nearest and lists all. Not a name.
    BadValue
        A file.

    Examples
    --------
    >>> model("mixtral-8x7b").experts.active
    2
    """
    if isinstance(given, Decoder):
        return given
    if isinstance(given, Path) or str(given).endswith(".json"):
        raise BadValue(f"a configuration on disk is read by roofline.model, got {given}")
    known = catalogue()
    also = {decoder.name: key for key, decoder in known.items()}
    return known[name_of("model", given, known, also)]


@cache
def catalogue() -> dict[str, Decoder]:
    """Return the published models by key."""
    text = resources.files("roofline_helpers").joinpath("data", "models.toml").read_text("utf-8")
    found = {}
    for key, entry in tomllib.loads(text).items():
        shape = {name: entry[name] for name in (*FLAGS, *PARTS) if name in entry}
        decoder = shaped(entry["name"], entry["widths"] | shape, entry["source"])
        stored = Stored(**entry["ships"]) if "ships" in entry else None
        found[key] = replace(decoder, stored=stored)
    return found


def shaped(name: str, table: Mapping[str, Any], source: str = "") -> Decoder:
    """Return a decoder of the widths, flags and parts in a table of a TOML file."""
    fields = {key: PARTS[key](**part) if key in PARTS else part for key, part in table.items()}
    return Decoder(name, **fields, source=source)


LLAMA_3_8B = model("llama-3-8b")
"""Llama 3 8B, trained on contexts of 8192 tokens; Llama 3.1 8B has the same shape, and 131 072."""
