"""JAX functions as something that the clock can time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from roofline_helpers._checks import BadType, RooflineError, shown
from roofline_helpers.compiled import compiling, lowering
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.measure.dependence import unused_arguments
from roofline_helpers.measure.machine import last_cache
from roofline_helpers.measure.timing import CannotTime, Timing, clock, reason


def time(
    fn: Callable[..., Any],
    *args: Any,
    jit: bool = True,
    cold: bool = True,
    donate: bool = True,
    inplace: bool = False,
    seconds: float = 0.5,
    compiler_options: Mapping[str, Any] | None = None,
) -> Timing:
    """Return the seconds that one call of a JAX function takes on the default device.

    Parameters
    ----------
    fn : callable
        The function. It is compiled with `jax.jit` here, and must not be a generator or have
        side effects: it runs many times.
    *args : arrays, numbers, or pytrees of them
        NumPy arrays are moved to the device first.
    jit : bool
        False calls `fn` as it is, on copies of the arguments: operation by operation, each result
        in fresh memory. A function that donates an argument can't be timed so: at the second call
        it finds it deleted.
    cold : bool
        Whether to copy the arguments until all sets together are twice the last cache (32 sets at
        most), and use them in turn. False lets small arguments stay in the cache.
    donate : bool
        Whether each call writes into the memory of the results of the call before. False asks for
        fresh memory at each call, as a bare loop would.
    inplace : bool
        Whether the result, which must be like the first argument, replaces it at the next call.
    seconds : float
        About how long to measure, after compiling and warm-up.
    compiler_options : mapping, optional
        XLA options for this function, as `jax.jit` takes them.

    Returns
    -------
    Timing

    Raises
    ------
    BadValue
        The function returns nothing, or doesn't depend on its arguments, or hands them back: its
        time would be that of nothing.
    BadType
        Not a function; no array among the arguments, or one on several devices; `inplace` with a
        result unlike it.
    CannotTime
        JAX couldn't trace, compile or run it: the message gives the reason, memory included.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> time(lambda x: x + 1, jnp.zeros(1000), seconds=0.01).median < 1
    True
    >>> time(lambda x: 2.0, jnp.zeros(1000))
    Traceback (most recent call last):
    ...
    roofline_helpers._checks.BadValue: the result doesn't depend on any argument: nothing to time
    """
    begun = perf_counter()
    program = jax_program(
        fn,
        args,
        jit=jit,
        cold=cold,
        donate=donate,
        inplace=inplace,
        compiler_options=compiler_options,
    )
    timing = clock(program, seconds=seconds, begun=begun)
    return replace(timing, notes=(*timing.notes, *program.notes))


class JaxProgram:
    """A compiled JAX function with its arguments, its spare buffers, and what XLA says of it.

    Parameters
    ----------
    call : callable
        What is launched.
    sets : list of tuple
        Arguments, used in turn.
    spare : pytree of arrays
        The first buffers for a result; None in mode "plain".
    mode : {"plain", "donate", "inplace"}
        Whether a call gets the last result as well, to write into, or in place of the first
        argument.
    """

    def __init__(self, call: Callable[..., Any], sets: list[Any], spare: Any, mode: str) -> None:
        self.sets = sets
        self.result = spare
        self.notes: tuple[str, ...] = ()
        self.xla_bytes: float | None = None
        self.compiled: Any = None
        self._call, self._mode, self._turn = call, mode, 0

    def launch(self, calls: int) -> None:
        """Queue the calls, each on the next set of arguments."""
        call, out, sets, turn = self._call, self.result, self.sets, self._turn
        try:
            if self._mode == "inplace":
                rest = sets[0][1:]
                for _ in range(calls):
                    out = call(out, *rest)
            elif self._mode == "donate":
                for n in range(calls):
                    out = call(out, *sets[(turn + n) % len(sets)])
            else:
                for n in range(calls):
                    out = call(*sets[(turn + n) % len(sets)])
        except Exception as error:
            raise CannotTime(f"it failed when it was called: {reason(error)}") from error
        self.result, self._turn = out, (turn + calls) % len(sets)

    def wait(self) -> None:
        """Return when the last call has ended."""
        import jax

        try:
            jax.block_until_ready(self.result)
        except Exception as error:
            raise CannotTime(f"it failed while it ran: {reason(error)}") from error


def jax_program(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    jit: bool = True,
    cold: bool = True,
    donate: bool = True,
    inplace: bool = False,
    compiler_options: Mapping[str, Any] | None = None,
    compiled: Any = None,
) -> JaxProgram:
    """Return a JAX function and its arguments as something that `clock` can time.

    Parameters and errors as in `time`. `compiled` is what an earlier program of the same function
    and shapes has in its `compiled`: it saves compiling again. `xla_bytes` of the result is what
    XLA counts as bytes accessed.

    Examples
    --------
    >>> jax_program(lambda x: x + 1, [1.0]).launch()  # doctest: +SKIP
    """
    import jax

    if not callable(fn):
        raise BadType(f"the first argument must be a function, got {shown(fn)}")
    try:
        args = tuple(jax.tree.map(_on_device, tuple(args)))
    except (TypeError, ValueError) as error:
        raise BadType(f"JAX can't take these arguments: {reason(error)}") from error
    for leaf in jax.tree.leaves(args):
        if isinstance(leaf, jax.Array) and len(leaf.devices()) > 1:
            raise BadType(
                f"arguments must lie on one device, got {leaf.dtype}{list(leaf.shape)} on "
                f"{len(leaf.devices())}: a program over several devices can't be timed here"
            )
    if jit:
        with lowering.errors_of(fn):
            fn, taken = lowering.pure(fn, Arguments(args, {}), {})
        args = taken.positional
    unused = unused_arguments(fn, args)
    turns = _sets_needed(args) if cold and not inplace else 1
    try:
        # a function called as it is may donate: the caller's own arrays are not given away
        first = args if jit else jax.tree.map(_copied, args)
        sets = [first, *(jax.tree.map(_copied, args) for _ in range(turns - 1))]
        if not jit:
            program = JaxProgram(fn, sets, None, "plain")
        else:
            program = _compile(fn, sets, donate, inplace, compiler_options or {}, compiled)
    except RooflineError:
        raise
    except Exception as error:
        raise CannotTime(f"JAX couldn't compile it: {reason(error)}") from error
    if unused:
        numbers = ", ".join(str(n) for n in unused)
        program.notes = (f"argument {numbers} isn't used",)
    return program


def _sets_needed(args: tuple[Any, ...]) -> int:
    """Return how many copies of the arguments are together twice the last cache: 32 at most."""
    import jax

    size = sum(leaf.nbytes for leaf in jax.tree.leaves(args) if hasattr(leaf, "nbytes"))
    return min(max(math.ceil(2 * last_cache() / size), 1), 32) if size else 1


def _compile(
    fn: Callable[..., Any],
    sets: list[Any],
    donate: bool,
    inplace: bool,
    options: Mapping[str, Any],
    compiled: Any,
) -> JaxProgram:
    import jax
    import jax.numpy as jnp

    args = sets[0]
    out = jax.eval_shape(fn, *args)
    if inplace:
        first = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), args[0])
        if first != jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), out):
            raise BadType(f"inplace needs a result like the first argument, got {shown(out)}")
        jitted = jax.jit(fn, donate_argnums=0)
        spare = jax.tree.map(_copied, args[0])  # the caller's own array is not given away
        operands, mode = args, "inplace"
    elif donate:

        def into(spare: Any, *args: Any) -> Any:
            del spare  # only its memory is wanted
            return fn(*args)

        jitted = jax.jit(into, donate_argnums=0, keep_unused=True)
        spare = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), out)
        operands, mode = (spare, *args), "donate"
    else:
        jitted, spare, operands, mode = fn, None, args, "plain"
    if compiled is None:
        lowered, *_ = lowering.lower_here(jitted, Arguments(operands, {}), {})
        compiled = compiling.executable(lowered, options)
    program = JaxProgram(compiled, sets, spare, mode)
    program.compiled, program.xla_bytes = compiled, _bytes_accessed(compiled)
    return program


def _bytes_accessed(compiled: Any) -> float | None:
    """Return the bytes that XLA counts; None where the backend has no analysis."""
    with contextlib.suppress(Exception):
        analysis = compiled.cost_analysis()
        analysis = analysis[0] if isinstance(analysis, list | tuple) else analysis
        counted = float(analysis["bytes accessed"])
        # a custom call that doesn't say what it moves is counted as less than nothing
        return counted if counted > 0 else None
    return None


def _on_device(leaf: Any) -> Any:
    import jax

    return jax.device_put(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _copied(leaf: Any) -> Any:
    return leaf.copy() if hasattr(leaf, "copy") else leaf
