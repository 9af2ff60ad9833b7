"""The batch at which a service is at its best."""

from __future__ import annotations

from typing import Any

from roofline.serving.forward import ServingStep, largest, step
from roofline_helpers.common.checks import BadType, single
from roofline_helpers.models import Decoder


def best_batch(
    model: Decoder | str, hardware: Any, *, latency: float, **setting: Any
) -> ServingStep | None:
    """Return the step with the most tokens per second that fits and takes at most `latency`.

    That is the largest batch allowed: each kernel's time grows by at most its share when the batch
    does, so tokens per second never fall with it. None if batch 1 is too slow or doesn't fit.

    Parameters
    ----------
    latency : float
        Seconds: between two tokens of a sequence in decode, to the first one in prefill.
    **setting
        Further arguments of `step`, without `batch`.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `step`; a latency that is not a positive number.

    Examples
    --------
    >>> best_batch("llama-3-8b", "h100", latency=0.02, context=2048).setting.batch
    184
    """
    if "batch" in setting:
        raise BadType(f"best_batch() looks for the batch: none can be given, got {setting}")
    limit = single("latency", latency)
    single_batch = step(model, hardware, **setting)
    most = single_batch.largest_batch()
    batch = largest(lambda n: limit - single_batch.but(batch=n).seconds, most)
    return single_batch.but(batch=batch) if batch else None
