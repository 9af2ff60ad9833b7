"""A judge of kernels for a TPU that needn't be here: the same result, at most so many bytes.

Everything is judged from one trace of the function, in which it sees shapes only. The numbers are
drawn afterwards, and differ from call to call, so that a result can't be stored. How far a float
may be off is measured, too: as far as the right answer moves if each argument is off by a rounding.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from roofline.xla.analysis import analyze
from roofline.xla.body import MAIN, inside, item_bytes, space_of
from roofline.xla.compiler import CannotCompile
from roofline.xla.lower import (
    Arguments,
    CannotTrace,
    function_name,
    reason_of,
    trace_function,
    tracing_errors,
)
from roofline.xla.pallas import PallasKernel, counted
from roofline.xla.targets import can_compile, other_libtpu
from roofline_helpers import chips
from roofline_helpers.common.checks import BadType, BadValue, single
from roofline_helpers.common.show import si

VMEM = 16 * 2.0**20
"""Bytes of VMEM that a kernel may take on a v5e, unless its author raises the compiler's limit."""

SMEM = 2.0**20
"""Bytes of a TPU core's memory for scalars."""

Array = NDArray[Any]


def judge(
    fn: Callable[..., Any],
    *args: Any,
    expected: Callable[..., Any],
    hbm_bytes: float,
    least: float | None = None,
    also: Sequence[Sequence[Any]] = (),
    vmem: float = VMEM,
    chip: str = "v5e",
) -> str:
    """Judge a function that does all its work in Pallas kernels for a TPU, which needn't be here.

    Its bytes are those that block specs, index maps and copies move, which is exact on a TPU. Its
    kernels are lowered for one, and where the compiler is installed, they are compiled, and the
    program may move no more than `hbm_bytes` either. Then they run interpreted, on numbers that the
    judge draws: positive ones, then of either sign, with rows of zeros, of small and of large ones.
    As on a TPU, matrices of fp32 are multiplied in bf16, unless the precision is "highest".

    Parameters
    ----------
    fn : callable
        The function, which calls `pallas_call` itself.
    *args
        Its arguments, as arrays or as shapes (`jax.ShapeDtypeStruct`). Only shapes and types of
        floats, and of whole numbers of 8 bits or fewer, are used. An array of wider whole numbers,
        such as indices, is used as it is.
    expected : callable
        What the function should compute, in plain JAX. The judge calls it in fp64. A float may be
        off by two roundings, and by six times what it moves, as a root mean square, if each
        number in the arguments moves by one: by 2⁻⁸ of it in bf16, in fp32 by 2⁻¹⁶ for the sake of
        long sums. A whole number has to be exact, unless such a move turns it.
    hbm_bytes, least : float
        The most bytes that may cross HBM, and the fewest that any solution moves: by default those
        of arguments and results.
    also : sequence of sequences
        Arguments of other sizes, for which the result has to be right as well.
    vmem : float
        The most bytes that blocks and scratch of one kernel may take on the chip.
    chip : str
        The TPU that it is for.

    Returns
    -------
    str
        "passes: …" with the bytes, or "refused: …" with the reason.

    Raises
    ------
    CannotTrace
        JAX can't trace one of both functions with these arguments.
    BadType, BadValue
        `expected` isn't a function, or gives a NaN; an argument of wide whole numbers is a shape;
        bytes that aren't a number above 0, or `hbm_bytes` below `least`; a chip that is no TPU.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jax.experimental import pallas as pl
    >>> def double(x_ref, y_ref):
    ...     y_ref[...] = 2 * x_ref[...]
    >>> def twice(x):
    ...     return pl.pallas_call(double, out_shape=x)(x)
    >>> x = jax.ShapeDtypeStruct((512, 128), jnp.float32)
    >>> judge(twice, x, expected=lambda x: 2 * x, hbm_bytes=525e3)  # doctest: +ELLIPSIS
    'passes: 524 kB of 525 kB...'
    >>> judge(twice, x, expected=lambda x: 3 * x, hbm_bytes=6e5)  # doctest: +ELLIPSIS
    'refused: the result at (...) is ..., and should be ...'
    >>> judge(lambda x: 2 * twice(x), x, expected=lambda x: 4 * x, hbm_bytes=6e5)
    'refused: mul outside kernels; all work has to be in kernels'
    >>> judge(twice, x, expected=lambda x: 2 * x, hbm_bytes=6e5, vmem=1e6)
    'refused: a kernel takes 1.05 MB of VMEM, 48.6 kB more than allowed'
    """
    if not callable(expected):
        raise BadType(
            "expected has to be a function of the arguments, which the judge calls with numbers of "
            f"its own, and this is {type(expected).__name__}"
        )
    if chips.chip(chip).kind != "tpu":
        raise BadValue(f"chip has to be a TPU, whose kernels are judged, got {chip}")
    most, vmem = single("hbm_bytes", hbm_bytes), single("vmem", vmem, zero=True)
    wanted = [_results(expected, given) for given in (args, *also)]
    first = _traced(fn, args, expected, wanted[0], chip)
    least = first.size if least is None else single("least", least, zero=True)
    if most < least:
        raise BadValue(
            f"hbm_bytes is {si(most, 'B')}, and arguments and results have {si(least, 'B')}: "
            "if not all of them have to be moved, give in `least` what has to be"
        )
    missing = can_compile(chip) or next(other_libtpu(), None)
    reason = _unfit(first) or _beyond(first, least, most, vmem)
    if reason is None and missing is None:
        reason = _compiled(first, most)
    reason = reason or _wrong(first)
    for given, results in zip(also, wanted[1:], strict=True):
        if reason is None:
            reason = _wrong_too(fn, given, expected, results, chip)
    if reason is not None:
        return f"refused: {reason}"
    unsure = f", but not compiled for {chip}: {missing}" if missing else ""
    return f"passes: {si(first.moved, 'B')} of {si(most, 'B')}{unsure}"


@dataclass(frozen=True)
class _Traced:
    """A function as traced for a TPU with arguments of one size, and what it should compute."""

    program: Any
    kernels: tuple[PallasKernel, ...]
    given: Sequence[Any]
    results: Sequence[Any]
    expected: Callable[..., Sequence[Any]]
    name: str
    chip: str

    @property
    def size(self) -> float:
        """Bytes of arguments and results."""
        return sum(map(_bytes, (*self.given, *self.results)))

    @property
    def moved(self) -> float:
        """Bytes that its kernels move across HBM."""
        return sum(kernel.bytes for kernel in self.kernels)


def _results(expected: Callable[..., Any], args: Sequence[Any]) -> Sequence[Any]:
    """Return shape and type of each array that a function should return."""
    import jax

    for array in jax.tree.leaves(tuple(args)):
        kind = getattr(array, "dtype", None)
        if kind is None or (_counts(kind) and isinstance(array, jax.ShapeDtypeStruct)):
            raise BadType(
                f"the judge can't draw an argument like {array}: give an array, or its shape if "
                "it has floats, or whole numbers of 8 bits or fewer"
            )
    shapes = Arguments(tuple(args)).shapes()
    with tracing_errors(expected, shapes.described()):
        return list(jax.tree.leaves(jax.eval_shape(expected, *shapes.positional)))


def _traced(
    fn: Callable[..., Any],
    args: Sequence[Any],
    expected: Callable[..., Any],
    results: Sequence[Any],
    chip: str,
) -> _Traced:
    """Trace a function: from here on nothing of it runs but what JAX has recorded."""
    import jax

    given, tree = jax.tree.flatten(tuple(args))
    shapes = Arguments(tuple(args)).shapes()
    with _on(chip), tracing_errors(fn, shapes.described()):
        program = trace_function(fn, shapes, {})[0].jaxpr
        kernels = counted(program)

    def flat(*numbers: Any) -> list[Any]:
        return list(jax.tree.leaves(expected(*tree.unflatten(numbers))))

    return _Traced(program, kernels, given, results, jax.jit(flat), function_name(fn), chip)


def _wrong_too(
    fn: Callable[..., Any],
    args: Sequence[Any],
    expected: Callable[..., Any],
    results: Sequence[Any],
    chip: str,
) -> str | None:
    """Return what is wrong for arguments of another size."""
    try:
        other = _traced(fn, args, expected, results, chip)
    except CannotTrace as error:
        return str(error)
    found = _unfit(other) or _wrong(other)
    return found and f"with {', '.join(Arguments(tuple(args)).described())}, {found}"


def _counts(dtype: Any) -> bool:
    """Return whether it is a type of whole numbers that may be indices: too wide to be drawn."""
    import jax.numpy as jnp

    return bool(jnp.issubdtype(dtype, jnp.integer)) and item_bytes(dtype) > 1


def _bytes(array: Any) -> float:
    return float(math.prod(array.shape) * item_bytes(array.dtype))


@dataclass(frozen=True)
class _Device:
    """What JAX asks of a device when it traces and lowers kernels."""

    device_kind: str
    platform: str = "tpu"
    num_cores: int = 1
    process_index: int = 0
    id: int = 0


@contextlib.contextmanager
def _on(chip: str) -> Iterator[None]:
    """Make JAX trace as on a TPU, which needs no compiler: `emit_pipeline` asks which it is."""
    import jax
    from jax.sharding import Mesh, use_abstract_mesh

    device = _Device(chips.chip(chip).device_kinds[0])
    mesh = Mesh(np.array([device], object), ("chip",)).abstract_mesh
    with use_abstract_mesh(mesh), mock.patch.object(jax, "default_backend", return_value="tpu"):
        yield


# --- what a function does -------------------------------------------------------------------------

_CALLS = frozenset(
    "jit pjit closed_call core_call remat2 checkpoint custom_jvp_call custom_vjp_call".split()
)
_RESHAPES = frozenset("reshape squeeze expand_dims broadcast_in_dim slice dynamic_slice".split())
"""Operations that move nothing, if what they make is as large as what they take."""


_SPACES = frozenset((*MAIN, "default", "none", "vmem", "smem", "semaphore", "semaphore_mem"))
"""Memories in which a kernel may have arrays."""


def _evaluate(jaxpr: Any, constants: Sequence[Any], args: Sequence[Any], interpret: Any) -> Any:
    """Evaluate a traced function, with its kernels interpreted, or as kernels of a TPU."""
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *args], strict=True))

    def value(var: Any) -> Any:
        return var.val if hasattr(var, "val") else known[var]

    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        taken = list(map(value, equation.invars))
        if name in _CALLS:
            inner, within = next(inside(equation))
            made = _evaluate(inner, within, taken, interpret)
        else:
            if name == "pallas_call":
                params = params | {"interpret": interpret}
            made = equation.primitive.bind(*taken, **params)
            made = made if equation.primitive.multiple_results else [made]
        known.update(zip(equation.outvars, made, strict=True))
    return list(map(value, jaxpr.outvars))


def _outside(jaxpr: Any) -> Iterator[Any]:
    """Yield the operations of a traced function, each kernel as one, without reshapes."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in _CALLS:
            yield from _outside(next(inside(equation))[0])
        elif not (
            equation.primitive.name in _RESHAPES
            and equation.invars[0].aval.size == equation.outvars[0].aval.size
        ):
            yield equation


def _unfit(task: _Traced) -> str | None:
    """Return what a function does that no kernel of a TPU may, or that can't be counted."""
    import jax

    done = list(_outside(task.program.jaxpr))
    outside = sorted({equation.primitive.name for equation in done} - {"pallas_call"})
    if outside:
        return f"{', '.join(outside)} outside kernels; all work has to be in kernels"
    if not done or len(done) > len(task.kernels):
        return "there is no kernel, or one whose bytes can't be counted"
    if any(kernel.machine != "tpu" for kernel in task.kernels):
        return "a kernel is for another machine than a TPU: leave out its compiler_params"
    spaces = {space_of(ref.aval) for call in done for ref in call.params["jaxpr"].invars}
    if odd := sorted(spaces - _SPACES):
        return f"a kernel has arrays in {', '.join(odd)}, whose traffic isn't counted"
    if any(kernel.most is not None or {*kernel.unsure} - {"branches"} for kernel in task.kernels):
        return "data decide how many bytes it moves: there is no exact count"
    has, form = (
        ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
        for arrays in (task.program.out_avals, task.results)
    )
    if has != form:
        return f"the result is {has}, and should be {form}"
    try:
        with _on(task.chip):
            jax.jit(_as_kernels(task)).trace(*task.program.in_avals).lower(
                lowering_platforms=("tpu",)
            )
    except Exception as error:  # of any kind: what Mosaic can't express
        return f"no TPU runs it: {reason_of(error)}"
    return None


def _as_kernels(task: _Traced) -> Callable[..., Any]:
    """Return the traced function, its kernels those of a TPU whatever their author asked for."""

    def fn(*args: Any) -> Any:
        return _evaluate(task.program.jaxpr, task.program.consts, args, False)

    fn.__name__ = task.name
    return fn


def _beyond(task: _Traced, least: float, most: float, vmem: float) -> str | None:
    """Return by how much a function's kernels move, or hold, more than they may."""
    if task.moved < least:
        return (
            f"{si(task.moved, 'B')} cross HBM, and arguments and results have {si(least, 'B')}: it "
            "leaves out a part, or moves it in a way that isn't counted"
        )
    if task.moved > most:
        said = f"{si(task.moved, 'B')} cross HBM, {si(task.moved - most, 'B')} too many"
        return "\n  ".join([said, *_excess(task.kernels, task.given, task.results)])
    for held, limit, memory in (
        (max(kernel.vmem for kernel in task.kernels), vmem, "VMEM"),
        (max(kernel.smem for kernel in task.kernels), SMEM, "SMEM"),
    ):
        if held > limit:
            more = si(held - limit, "B")
            return f"a kernel takes {si(held, 'B')} of {memory}, {more} more than allowed"
    return None


def _compiled(task: _Traced, most: float) -> str | None:
    """Return why a TPU's compiler doesn't take a function, or how much more it moves there."""
    try:
        whole = analyze(_as_kernels(task), *task.program.in_avals, chip=task.chip).hbm_bytes
    except (CannotTrace, CannotCompile) as error:
        return str(error)
    more = si(whole - most, "B")
    said = f"compiled for {task.chip}, the program moves {si(whole, 'B')}, {more} too many"
    return said if whole > most else None


def _excess(
    kernels: Sequence[PallasKernel], args: Sequence[Any], results: Sequence[Any]
) -> Iterator[str]:
    """Yield the operands that move notably more than each argument, and each result, once."""
    numbered = list(enumerate(kernels, 1))
    for result, arrays, order in ((False, args, numbered), (True, results, numbered[::-1])):
        once = Counter(map(_bytes, arrays))
        for at, operand in ((at, o) for at, k in order for o in k.operands if o.result == result):
            once[operand.size] -= 1
            extra = operand.moved - (operand.size if once[operand.size] >= 0 else 0.0)
            if extra > 0.01 * sum(kernel.bytes for kernel in kernels):
                does = f"kernel {at} {'writes' if result else 'reads'} {operand.name}"
                yield f"{does}: {si(operand.moved, 'B')}, {si(extra, 'B')} more than needed"


# --- what a function returns ----------------------------------------------------------------------

_ROUNDS = 16
"""How often each argument is moved, at most, before a result counts as wrong."""


def _bind_as_tpu(*factors: Any, precision: Any, **params: Any) -> Any:
    """Multiply matrices of fp32 as a TPU does unless it is asked for more: rounded to bf16."""
    from jax import lax

    if precision in (None, (lax.Precision.DEFAULT,) * 2):
        in_fp32 = (array.dtype == np.float32 for array in factors)
        factors = tuple(
            lax.reduce_precision(array, 8, 7) if wide else array
            for array, wide in zip(factors, in_fp32, strict=True)
        )
    kind = type(lax.dot_general_p)
    return kind.bind(lax.dot_general_p, *factors, precision=precision, **params)


_CALLBACKS = logging.getLogger("jax._src.callback")
"""It prints what the interpreter raises, which the verdict says."""


def _wrong(task: _Traced) -> str | None:
    """Return how the results are wrong, for numbers that nobody has seen; None if they are right.

    First they are positive; then of either sign, with rows that are zero, 2¹⁰ times smaller or 2⁵
    times larger.
    """
    import jax
    from jax import lax
    from jax._src import dispatch
    from jax.experimental.pallas import tpu as pltpu

    def interpreted(*args: Any) -> Any:
        program = task.program
        return _evaluate(program.jaxpr, program.consts, args, machine)

    random = default_rng()
    # axes that are declared as parallel are walked through in any order
    machine = pltpu.InterpretParams(random_seed=int(random.integers(2**31)))
    for mixed in (False, True):
        numbers = [_drawn(array, random, mixed) for array in task.given]
        answers = _Answers(task, numbers)
        try:
            with (
                _on(task.chip),
                mock.patch.object(_CALLBACKS, "disabled", True),
                mock.patch.object(lax.dot_general_p, "bind", _bind_as_tpu),
            ):
                results = [np.asarray(result) for result in jax.jit(interpreted)(*numbers)]
        except Exception as error:  # of any kind: what the interpreter finds out
            pltpu.reset_tpu_interpret_mode_state()
            dispatch.runtime_tokens.clear()  # else every later kernel fails with the same error
            *_, last = (line for line in str(error).splitlines() if line.strip())
            return f"interpreted, it fails: {last.strip()}"
        for done in range(1, _ROUNDS + 1):
            answers.move(random)
            found, share = answers.wrong(results)
            if found is None:
                break
            if done == _ROUNDS or (done > 2 and share > 0.01):  # more moves won't make it right
                return found
    return None


def _drawn(array: Any, random: Generator, mixed: bool) -> Array:
    """Return numbers for an argument."""
    import jax.numpy as jnp

    shape, dtype = tuple(array.shape), array.dtype
    if _counts(dtype):
        return np.asarray(array)
    if jnp.issubdtype(dtype, jnp.bool_):
        return random.integers(2, size=shape).astype(bool)
    if jnp.issubdtype(dtype, jnp.integer):
        ends = jnp.iinfo(dtype)
        return random.integers(ends.min, ends.max + 1, shape).astype(dtype)
    numbers = random.standard_normal(shape)
    if not mixed:
        numbers = np.abs(numbers)  # so that sums grow, and with them what is lost in narrow ones
    else:
        rows = (*shape[:-1], 1) if math.prod(shape[:-1]) > 1 else shape
        numbers *= random.choice([0, 2.0**-10, 1, 2.0**5], rows)
    return numbers.astype(dtype)


class _Answers:
    """The right results in fp64, and how far each element moves if an argument does."""

    def __init__(self, task: _Traced, numbers: Sequence[Array]) -> None:
        self.expected, self.numbers = task.expected, numbers
        self.types = [result.dtype for result in task.results]
        self.right = self._computed(numbers, np.float64)
        if any(np.isnan(array).any() for array in self.right):
            raise BadValue(
                "expected gives NaN for numbers that the judge draws, which are of either sign, "
                "and whole rows of them zero: say what is right for those"
            )
        self.base = self._computed(numbers, np.float32)  # differences need no more
        self.ends = [(array, array) for array in self.right]
        moving = (at for at, array in enumerate(numbers) if _is_real(array.dtype))
        self.rounds = 0
        self.squares = {at: [np.zeros(array.shape) for array in self.base] for at in moving}

    def _computed(self, args: Sequence[Array], dtype: type) -> list[Array]:
        import jax

        in_fp64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
        args = [a.astype(dtype) if _is_real(a.dtype) else a for a in args]
        with in_fp64(dtype is np.float64):
            return [np.asarray(array).astype(dtype) for array in self.expected(*args)]

    def move(self, random: Generator) -> None:
        """Move each argument by half a rounding to a whole one, up or down by chance."""
        whole = not all(map(_is_real, self.types))
        self.rounds += 1
        for at, squares in self.squares.items():
            array = self.numbers[at]
            share = random.random(array.shape, np.float32) - np.float32(0.5)
            share = _rounding(array.dtype) * (share + np.copysign(np.float32(0.5), share))
            for sign in (1, -1) if whole else (1,):  # whole numbers at a half turn one of both ways
                moved = array.astype(np.float32) * (1 + sign * share)
                probes = self._computed(
                    [*self.numbers[:at], moved, *self.numbers[at + 1 :]], np.float32
                )
                for i, (probe, base) in enumerate(zip(probes, self.base, strict=True)):
                    squares[i] += (probe.astype(np.float64) - base) ** 2
                    if whole:
                        low, high = self.ends[i]
                        self.ends[i] = np.minimum(low, probe), np.maximum(high, probe)

    def wrong(self, results: Sequence[Array]) -> tuple[str | None, float]:
        """Return in words which element is off the most, and the share of those off too far."""
        import jax.numpy as jnp

        for i, (result, right, dtype) in enumerate(
            zip(results, self.right, self.types, strict=True)
        ):
            has = result.astype(np.float64)
            low, high = self.ends[i]
            off = np.where((low <= has) & (has <= high), 0, np.inf)
            if _is_real(dtype):
                allowed = 6 * sum(np.sqrt(part[i] / self.rounds) for part in self.squares.values())
                allowed += 2 * _rounding(dtype) * np.abs(right)
                allowed += max(float(jnp.finfo(dtype).tiny), 2.0**-100)
                with np.errstate(invalid="ignore"):
                    off = np.where(has == right, 0, np.abs(has - right) / allowed)
            off = np.nan_to_num(off, nan=np.inf)
            if off.max() > 1:
                at = np.unravel_index(int(off.argmax()), off.shape)
                which = f"result {i + 1}" if len(results) > 1 else "the result"
                place = ", ".join(map(str, at))
                said = f"{which} at ({place}) is {has[at]:.4g}, and should be {right[at]:.4g}"
                return said, float(np.mean(off > 1))
        return None, 0.0


def _is_real(dtype: Any) -> bool:
    import jax.numpy as jnp

    return bool(jnp.issubdtype(dtype, jnp.floating))


def _rounding(dtype: Any) -> float:
    """Return the largest relative error of a rounding; in fp32, of a long sum of them."""
    import jax.numpy as jnp

    return max(float(jnp.finfo(dtype).eps) / 2, 2.0**-16)
