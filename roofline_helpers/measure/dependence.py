"""Which arguments a JAX function's result depends on: what doesn't, XLA leaves out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from roofline_helpers._checks import BadType, BadValue, RooflineError
from roofline_helpers.compiled import lowering
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.measure.timing import CannotTime, reason


def unused_arguments(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[int]:
    """Return the arguments that the result doesn't need; refuse a function that needs none."""
    import jax
    from jax.interpreters.partial_eval import dce_jaxpr

    sizes = [len(jax.tree.leaves(arg)) for arg in args]
    if not any(hasattr(leaf, "nbytes") for leaf in jax.tree.leaves(args)):
        raise BadType(
            "at least one array is needed among the arguments: XLA would compute a result"
        )
    try:
        traced = lowering.trace(fn, Arguments(args), {})[0].jaxpr.jaxpr
    except RooflineError:
        raise
    except Exception as error:
        raise CannotTime(f"JAX couldn't trace it: {reason(error)}") from error
    if not traced.outvars:
        raise BadValue("the function returns nothing: there is no result to wait for")
    _, needed = dce_jaxpr(traced, [True] * len(traced.outvars))
    if not any(needed):
        raise BadValue("the result doesn't depend on any argument: nothing to time")
    arguments = {id(var) for var in traced.invars}
    if all(id(var) in arguments or hasattr(var, "val") for var in traced.outvars):
        raise BadValue("the function hands its arguments back as they are: nothing to time")
    ends = list(itertools.accumulate(sizes, initial=0))
    spans = itertools.pairwise(ends)
    return [n for n, (low, high) in enumerate(spans) if high > low and not any(needed[low:high])]
