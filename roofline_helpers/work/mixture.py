"""The feed-forward part of a mixture of experts, as one grouped matmul."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofline_helpers._checks import BadValue, each, shown, sizes
from roofline_helpers.dtypes import nbytes
from roofline_helpers.work.work import Work


def grouped_matmul(
    tokens: Any,
    hidden: Any,
    inter: Any,
    experts: Any,
    top_k: Any,
    dtype: Any = "bf16",
    *,
    local_experts: Any = None,
    weights: Any = None,
) -> Work:
    """Count the gated feed-forward of a mixture: three matmuls per token and chosen expert.

    2 · 3 · hidden · inter FLOPs for each of tokens · top_k pairs, spread evenly over the experts.
    The weights of an expert that got a token are read once; a token's row is read once for each
    pair, and a result written.

    Parameters
    ----------
    tokens, hidden, inter, experts, top_k : int or array
        Tokens in all, width of a token, inner width of one expert, experts in all, and how many
        of them each token visits.
    local_experts : int or array, optional
        Experts that this device holds; all unless given. It then does that share of the pairs.
    weights : str or data type, optional
        Type of the experts' weights, where it isn't `dtype`.

    Raises
    ------
    BadType, BadValue, UnknownName
        A size that is not a whole number from 1 to 10¹⁸; more visited or local experts than there
        are; no such data type.

    Examples
    --------
    >>> job = grouped_matmul(1024, 4096, 1536, 128, 8)
    >>> job.matrix_flops == 2 * 3 * 4096 * 1536 * 1024 * 8
    True
    """
    local = experts if local_experts is None else local_experts
    named = {"tokens": tokens, "hidden": hidden, "inter": inter, "experts": experts}
    named |= {"top_k": top_k, "local_experts": local}
    s = dict(zip(named, sizes(**named), strict=True))
    for name in ("top_k", "local_experts"):
        if np.any(np.greater(s[name], s["experts"])):
            raise BadValue(
                f"{name} must be at most experts ({shown(experts)}), got {shown(s[name])}"
            )
    pairs = each(_share, s["tokens"] * s["top_k"] * s["local_experts"], s["experts"])
    busy = each(min, s["local_experts"], pairs)
    matrix = s["hidden"] * s["inter"]
    return Work(
        name="grouped matmul",
        reads={
            "x": nbytes(pairs * s["hidden"], dtype),
            "weights": nbytes(3 * busy * matrix, dtype if weights is None else weights),
        },
        writes={"y": nbytes(pairs * s["hidden"], dtype)},
        matrix_flops=6 * pairs * matrix,
        vector_flops=2 * pairs * s["inter"],
        dtype=dtype,
        kind="grouped_matmul",
        dims=s,
    )


def _share(pairs: Any, experts: Any) -> Any:
    return max(1, round(pairs / experts))
