"""Why JAX compiles a function again: what differs from the calls that it has compiled before."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from unittest import mock

from roofline.xla.metadata import shortened

SHOWN = 3
"""Functions that are listed."""

_WHOSE = re.compile(r"(?:for |function:\n\s*)(\S+)(?: id=\d+)? defined at ([^\s:]+):(\d+)")
_CHANGED = re.compile(r"\* at (?!input path)(.+?), now (\S+?) and before (\S+?)(?=https:|\s|$)")
_STATIC = re.compile(
    r"static args:\s+now (\S+) and before (\S+)|val=(.+?)\) and before .*?val=(.+?)\)"
)


@contextlib.contextmanager
def compiled_anew() -> Iterator[list[str]]:
    """Collect JAX's messages on functions that it traces and compiles, while this lasts.

    They say that a function is defined again only if the earlier one was called in here, too.
    """
    import jax

    said: list[str] = []
    handler, logger = logging.Handler(), logging.getLogger("jax")
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    before = jax.config.jax_explain_cache_misses
    jax.config.update("jax_explain_cache_misses", True)
    with mock.patch.multiple(logger, handlers=[handler], propagate=False):
        try:
            yield said
        finally:
            jax.config.update("jax_explain_cache_misses", before)


def reasons_of(messages: Sequence[str]) -> tuple[str, ...]:
    """Return what JAX's messages say, a reason each: "g (a.py:3): x is f32[9], and was f32[8]"."""
    reasons: dict[str, str] = {}
    for message in messages:
        whose = _WHOSE.search(message)
        if "CACHE MISS" in message and whose is not None:
            name = f"{whose[1]} ({shortened(whose[2])}:{whose[3]})"
            reasons.setdefault(name, _difference(message))
    return tuple(f"{name}: {why}" for name, why in reasons.items())[:SHOWN]


def _difference(message: str) -> str:
    if changed := _CHANGED.findall(message):
        first = {argument: (now, old) for argument, now, old in reversed(changed)}
        pairs = [f"{key} is {now}, and was {old}" for key, (now, old) in reversed(first.items())]
        text = "; ".join(pairs).replace("{weak_type=False}", "")
        return text.replace("{weak_type=True}", " of a weak type (a Python number)")
    if static := _STATIC.search(message):
        now, old = filter(None, static.groups())
        return f"a static argument is {now}, and was {old}"
    if "pytree" in message:
        return "its arguments have another structure, or other static values"
    if "same line" in message:
        return "it is defined anew, and a new function is a new program"
    return "it wasn't called so before"
