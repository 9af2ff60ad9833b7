"""Which arguments a JAX function's result depends on: what doesn't, XLA leaves out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from roofline_helpers._checks import BadType, BadValue, RooflineError
from roofline_helpers.measure.timing import CannotTime, reason


def unused_arguments(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[int]:
    """Return the arguments that the result doesn't need; refuse a function that needs none."""
    import jax

    sizes = [len(jax.tree.leaves(arg)) for arg in args]
    if not any(hasattr(leaf, "nbytes") for leaf in jax.tree.leaves(args)):
        raise BadType(
            "at least one array is needed among the arguments: XLA would compute a result"
        )
    try:
        traced = jax.make_jaxpr(fn)(*args).jaxpr
    except RooflineError:
        raise
    except Exception as error:
        raise CannotTime(f"JAX couldn't trace it: {reason(error)}") from error
    if not traced.outvars:
        raise BadValue("the function returns nothing: there is no result to wait for")
    needed = _needed(traced, [True] * len(traced.outvars))
    if not any(needed):
        raise BadValue("the result doesn't depend on any argument: nothing to time")
    arguments = {id(var) for var in traced.invars}
    if all(id(var) in arguments or hasattr(var, "val") for var in traced.outvars):
        raise BadValue("the function hands its arguments back as they are: nothing to time")
    ends = list(itertools.accumulate(sizes, initial=0))
    spans = itertools.pairwise(ends)
    return [n for n, (low, high) in enumerate(spans) if high > low and not any(needed[low:high])]


_CALLS = {"pjit", "jit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
          "custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint"}  # fmt: skip


def _needed(jaxpr: Any, wanted: Sequence[bool]) -> list[bool]:
    """Return which inputs of a jaxpr its wanted outputs are made from."""
    live = {
        id(var)
        for var, is_wanted in zip(jaxpr.outvars, wanted, strict=True)
        if is_wanted and not hasattr(var, "val")
    }
    for eqn in reversed(jaxpr.eqns):
        outs = [id(var) in live for var in eqn.outvars]
        if not any(outs) and not getattr(eqn, "effects", None):
            continue
        ins = [True] * len(eqn.invars)
        inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        inner = getattr(inner, "jaxpr", inner)
        if eqn.primitive.name in _CALLS and inner is not None:
            fits = len(inner.invars) == len(ins) and len(inner.outvars) == len(outs)
            ins = _needed(inner, outs) if fits else ins
        live |= {
            id(var)
            for var, is_needed in zip(eqn.invars, ins, strict=True)
            if is_needed and not hasattr(var, "val")
        }
    return [id(var) in live for var in jaxpr.invars]
