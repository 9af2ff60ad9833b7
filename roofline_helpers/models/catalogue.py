"""The decoders of `data/models.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from roofline_helpers._checks import name_of
from roofline_helpers.models.decoder import Decoder, Experts, Latent, Local


def model(given: Any) -> Decoder:
    """Return a decoder by its key or name.

    Parameters
    ----------
    given : str or Decoder
        "llama-3-8b", "Mixtral 8x7B". Case, spaces, "-" and "_" don't matter.

    Raises
    ------
    UnknownName, BadType
        No such model; the message gives the nearest and lists all. Not a name.

    Examples
    --------
    >>> model("mixtral-8x7b").experts.active
    2
    """
    if isinstance(given, Decoder):
        return given
    known = _catalogue()
    return known[name_of("model", given, known, {each.name: key for key, each in known.items()})]


def all_models() -> tuple[Decoder, ...]:
    """Return every decoder of the catalogue.

    Examples
    --------
    >>> "Llama 3 8B" in [each.name for each in all_models()]
    True
    """
    return tuple(_catalogue().values())


@cache
def _catalogue() -> dict[str, Decoder]:
    text = resources.files("roofline_helpers").joinpath("data", "models.toml").read_text("utf-8")
    return {key: _decoder(entry) for key, entry in tomllib.loads(text).items()}


def _decoder(entry: dict[str, Any]) -> Decoder:
    parts = {"experts": Experts, "latent": Latent, "local": Local}
    return Decoder(
        name=entry["name"],
        **entry["widths"],
        gated=entry.get("gated", True),
        tied=entry.get("tied", False),
        source=entry["source"],
        **{name: kind(**entry[name]) for name, kind in parts.items() if name in entry},
    )


LLAMA_3_8B = model("llama-3-8b")
"""Llama 3 8B, trained on contexts of 8192 tokens; Llama 3.1 8B has the same shape, and 131 072."""
