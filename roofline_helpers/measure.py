"""Measure: what this device really gives, and where kernels come to lie under it.

    import roofline_helpers as rh
    rh.measure.time(jnp.sin, x)          # seconds of one call, with their spread
    record = rh.measure.run(quick=True)  # ceilings and kernels of this device
    record.roofline("bf16")              # the measured roofline

The same from a shell: ``python -m roofline_helpers measure --out FILE.json``.

How a time is taken:

- The function is compiled before the clock starts, and called until it is warm.
- The buffers of one call's results are given to the next ("donated"), so that no call waits for
  fresh memory: on a CPU its page faults can take several times longer than the work.
- Inputs are larger than the last cache, or several sets of them take turns.
- Many calls are queued, then awaited once; so many that the clock's own error doesn't count.
- That is repeated. The median is the result; quartiles say how far to trust it. Times that creep
  up or down, or lie far apart, are noted beside the result.

JAX is imported when it is needed.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import itertools
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from roofline_helpers import hardware, records, work
from roofline_helpers._checks import (
    BadType,
    BadValue,
    RooflineError,
    name_of,
    shown,
    single,
    whole,
)
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.records import BadRecord
from roofline_helpers.roofline import Roofline
from roofline_helpers.show import si, table
from roofline_helpers.work import Work

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

SCHEMA = "roofline_helpers.measured/1"
"""What a record says of itself."""

UNSTABLE = 0.10
"""Quartiles further apart than this share of the median are noted."""

DRIFT = 0.05
"""A last third of the samples that is slower or faster than the first by more is noted."""

MOST_CALLS = 100_000
"""Calls that one sample may queue."""

JAX_DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
    "int32": "int32",
}
"""JAX's names of the data types that are measured."""


class CannotTime(RooflineError, RuntimeError):
    """The function failed where it was traced, compiled or called."""


# --- timing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, from repeated samples of many calls each.

    Parameters
    ----------
    median, low, q1, q3, high : float
        Of the samples, in seconds a call; low and high are the extremes, q1 and q3 the quartiles.
    repeats, calls : int
        Samples taken, and calls in each.
    compile : float
        Seconds of what goes before: tracing, compiling and the first call.
    drift : float
        Median of the last third of the samples over that of the first third, minus 1.
    notes : tuple of str
        What makes the result doubtful; empty if nothing does.
    """

    median: float
    low: float
    q1: float
    q3: float
    high: float
    repeats: int
    calls: int
    compile: float = 0.0
    drift: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        return (self.q3 - self.q1) / self.median

    def __repr__(self) -> str:
        text = f"{si(self.median, 's')} a call ({si(self.q1, 's')} to {si(self.q3, 's')}, "
        text += f"{self.repeats} samples of {self.calls} calls)"
        return "; ".join([text, *self.notes])


class Program(Protocol):
    """Something that can be launched many times and awaited once."""

    def launch(self, calls: int) -> None:
        """Start `calls` calls, without waiting for them."""

    def wait(self) -> None:
        """Return when every call that was started has ended."""


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


def clock(
    program: Program,
    *,
    seconds: float = 0.5,
    repeats: int = 30,
    least: float | None = None,
    warm: float = 0.0,
    begun: float | None = None,
    probe: Callable[[], None] | None = None,
) -> Timing:
    """Return the seconds of one call of anything that can be launched and awaited.

    Parameters
    ----------
    program : Program
        Has `launch(calls)` and `wait()`: a JAX function (`jax_program`), or another framework's.
    seconds : float
        About how long to measure. At least 3 samples are taken, however long a call takes.
    repeats : int
        Samples at most.
    least : float, optional
        Seconds that one sample takes at least: calls are repeated until it does. By default
        10 ms on a CPU and 60 ms elsewhere, where the first launch and the last wait of a sample
        take some 0.2 ms together; or 1000 ticks of the clock if those are longer.
    warm : float
        Seconds to run before the first sample, beside the few calls that are always made: a chip
        at its power limit takes that long to find its clock.
    begun : float, optional
        `perf_counter()` when compiling began, for `Timing.compile`.
    probe : callable, optional
        Called once while the device is still busy with the last sample.

    Raises
    ------
    BadType, BadValue
        Seconds that aren't a positive number; repeats that aren't a whole number from 1.
    """
    budget, most = single("seconds", seconds), whole("repeats", repeats)
    begun = perf_counter() if begun is None else begun
    program.launch(1)
    program.wait()
    compiled = perf_counter() - begun
    # Two samples at least that don't count: allocators, clocks and caches reach their steady state
    calls, took = 1, _sample(program, 1)
    ticks = 1000 * _tick()
    enough = max(_least() if least is None else single("least", least), ticks)
    while took < enough and calls < MOST_CALLS:
        wanted = math.ceil(1.2 * calls * enough / max(took, _tick()))
        calls = min(wanted, 20 * calls, MOST_CALLS)
        took = _sample(program, calls)
    ready = perf_counter() + single("warm", warm, zero=True)
    while perf_counter() < ready:
        took = _sample(program, calls)
    count = max(3, min(most, math.ceil(budget / took)))
    samples = [_sample(program, calls, probe if n == count - 1 else None) for n in range(count)]
    return summary([each / calls for each in samples], calls, compiled)


def _sample(program: Program, calls: int, probe: Callable[[], None] | None = None) -> float:
    begun = perf_counter()
    program.launch(calls)
    if probe is not None:
        probe()
    program.wait()
    return max(perf_counter() - begun, _tick())


def _least() -> float:
    import jax

    return 0.01 if jax.default_backend() == "cpu" else 0.06


def _tick() -> float:
    from time import get_clock_info

    return get_clock_info("perf_counter").resolution


def summary(samples: Sequence[float], calls: int = 1, compiled: float = 0.0) -> Timing:
    """Return the summary of samples, in seconds a call, in the order they were taken.

    Raises
    ------
    BadValue
        No sample, or one that isn't a positive finite number.
    """
    values = [single("a sample", each) for each in samples]
    if not values:
        raise BadValue("at least one sample is needed, got none")
    median = statistics.median(values)
    q1, q3 = (float(np.quantile(values, q)) for q in (0.25, 0.75))
    third = max(len(values) // 3, 1)
    drift = statistics.median(values[-third:]) / statistics.median(values[:third]) - 1
    notes = []
    if len(values) >= 3 and (q3 - q1) / median > UNSTABLE:
        notes.append(f"unstable: quartiles {100 * (q3 - q1) / median:.0f} % apart")
    if len(values) >= 6 and abs(drift) > DRIFT:
        faster = "slower" if drift > 0 else "faster"
        notes.append(f"drifting: {100 * abs(drift):.0f} % {faster} at the end")
    return Timing(
        median=median,
        low=min(values),
        q1=q1,
        q3=q3,
        high=max(values),
        repeats=len(values),
        calls=calls,
        compile=compiled,
        drift=drift,
        notes=tuple(notes),
    )


class _JaxProgram:
    """A compiled JAX function with its arguments, its spare buffers, and what XLA says of it."""

    def __init__(self, call: Callable[..., Any], sets: list[Any], spare: Any, mode: str) -> None:
        self._call, self._sets, self._out, self._mode = call, sets, spare, mode
        self._turn = 0
        self.notes: tuple[str, ...] = ()
        self.xla_bytes: float | None = None
        self.compiled: Any = None

    def launch(self, calls: int) -> None:
        call, out, sets, turn = self._call, self._out, self._sets, self._turn
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
            raise CannotTime(f"it failed when it was called: {_reason(error)}") from error
        self._out, self._turn = out, (turn + calls) % len(sets)

    def wait(self) -> None:
        import jax

        try:
            jax.block_until_ready(self._out)
        except Exception as error:
            raise CannotTime(f"it failed while it ran: {_reason(error)}") from error


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
) -> _JaxProgram:
    """Return a JAX function and its arguments as something that `clock` can time.

    Parameters and errors as in `time`. `compiled` is what an earlier program of the same function
    and shapes has in its `compiled`: it saves compiling again. `xla_bytes` of the result is what
    XLA counts as bytes accessed.
    """
    import jax

    if not callable(fn):
        raise BadType(f"the first argument must be a function, got {shown(fn)}")
    try:
        args = tuple(jax.tree.map(_on_device, tuple(args)))
    except (TypeError, ValueError) as error:
        raise BadType(f"JAX can't take these arguments: {_reason(error)}") from error
    for leaf in jax.tree.leaves(args):
        if isinstance(leaf, jax.Array) and len(leaf.devices()) > 1:
            raise BadType(
                f"arguments must lie on one device, got {leaf.dtype}{list(leaf.shape)} on "
                f"{len(leaf.devices())}: a program over several devices can't be timed here"
            )
    unused = _dependence(fn, args)
    leaves = [leaf for leaf in jax.tree.leaves(args) if hasattr(leaf, "nbytes")]
    size = sum(leaf.nbytes for leaf in leaves)
    turns = 1
    if cold and not inplace and 0 < size < 2 * last_cache():
        turns = min(max(math.ceil(2 * last_cache() / size), 1), 32)
    try:
        # a function called as it is may donate: the caller's own arrays are not given away
        first = args if jit else jax.tree.map(_copied, args)
        sets = [first, *(jax.tree.map(_copied, args) for _ in range(turns - 1))]
        if not jit:
            program = _JaxProgram(fn, sets, None, "plain")
        else:
            program = _compiled(fn, sets, donate, inplace, compiler_options or {}, compiled)
    except RooflineError:
        raise
    except Exception as error:
        raise CannotTime(f"JAX couldn't compile it: {_reason(error)}") from error
    if unused:
        numbers = ", ".join(str(n) for n in unused)
        program.notes = (f"argument {numbers} isn't used",)
    return program


def _compiled(
    fn: Callable[..., Any],
    sets: list[Any],
    donate: bool,
    inplace: bool,
    options: Mapping[str, Any],
    compiled: Any,
) -> _JaxProgram:
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
        given = args
        mode = "inplace"
    elif donate:

        def into(spare: Any, *given: Any) -> Any:
            del spare  # only its memory is wanted
            return fn(*given)

        jitted = jax.jit(into, donate_argnums=0, keep_unused=True)
        spare = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), out)
        given = (spare, *args)
        mode = "donate"
    else:
        jitted, spare, given, mode = jax.jit(fn), None, args, "plain"
    if compiled is None:
        compiled = jitted.lower(*given).compile(compiler_options=dict(options) or None)
    program = _JaxProgram(compiled, sets, spare, mode)
    program.compiled = compiled
    with contextlib.suppress(Exception):  # not every backend has an analysis
        analysis = compiled.cost_analysis()
        analysis = analysis[0] if isinstance(analysis, list | tuple) else analysis
        counted = float(analysis["bytes accessed"])
        # a custom call that doesn't say what it moves is counted as less than nothing
        program.xla_bytes = counted if counted > 0 else None
    return program


def _on_device(leaf: Any) -> Any:
    import jax

    return jax.device_put(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _copied(leaf: Any) -> Any:
    return leaf.copy() if hasattr(leaf, "copy") else leaf


def _reason(error: Exception) -> str:
    """Return the first line of an error, which is the part that says something."""
    text = str(error).strip().split("\n")[0] or type(error).__name__
    if "RESOURCE_EXHAUSTED" in text or isinstance(error, MemoryError):
        return f"not enough memory ({text[:120]})"
    return f"{type(error).__name__}: {text[:300]}"


def _dependence(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[int]:
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
        raise CannotTime(f"JAX couldn't trace it: {_reason(error)}") from error
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


# --- the device ---------------------------------------------------------------------------------


def last_cache() -> int:
    """Return the bytes of the default device's last cache, or a generous guess.

    A CPU's is read from the operating system, a GPU's L2 from the chip table. A TPU has none
    between its memory and its VMEM; VMEM's size is taken.
    """
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu":
        return _cpu_cache() or 64 * 2**20
    with contextlib.suppress(RooflineError):
        memory = hardware.chip(device).memory
        for level in ("l2", "vmem"):
            if level in memory:
                return int(memory[level].capacity.value)
    return 128 * 2**20


def _cpu_cache() -> int | None:
    found = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = path.read_text("ascii").strip()
            found.append(int(text[:-1]) * {"K": 2**10, "M": 2**20, "G": 2**30}[text[-1]])
    if not found and sys.platform == "darwin":
        for name in ("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"):
            with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
                command = ["sysctl", "-n", name]
                found.append(int(subprocess.check_output(command, text=True, timeout=5)))
    return max(found, default=None)


def free_memory() -> int | None:
    """Return the bytes of the default device's memory that a measurement may count on.

    None where nothing says so.
    """
    import jax

    device = jax.devices()[0]
    if device.platform != "cpu":
        with contextlib.suppress(Exception):
            stats = device.memory_stats()
            return int(stats["bytes_limit"] - stats["bytes_in_use"])
        return None
    limits = []
    with contextlib.suppress(OSError, ValueError):
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("ascii"))
        limits += [int(found[1]) * 1024] if found else []
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text("ascii"))
        limits.append(limit - int((group / "memory.current").read_text("ascii")))
    return max(min(limits), 0) if limits else None


def device() -> dict[str, Any]:
    """Return what a record says of the default device: platform, kind, chip, driver, memory."""
    import jax

    one = jax.devices()[0]
    kind = str(one.device_kind)
    chip = None
    with contextlib.suppress(RooflineError):
        chip = hardware.chip(one).key
    name = _cpu_name() if one.platform == "cpu" else kind
    driver = None
    if one.platform == "gpu":
        driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    with contextlib.suppress(Exception):
        driver = driver or str(one.client.platform_version).strip().split("\n")[0][:200]
    return {
        "platform": one.platform,
        "kind": kind,
        "name": name,
        "chip": chip,
        "count": jax.device_count(),
        "driver": driver,
        "memory": free_memory(),
        "cache": last_cache(),
    }


def host() -> dict[str, Any]:
    """Return what a record says of the machine around the device."""
    load = None
    with contextlib.suppress(OSError, AttributeError):
        load = os.getloadavg()[0]
    return {
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": _cores(),
        "load": load,
    }


def _cores() -> int:
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def software() -> dict[str, str]:
    """Return the versions that a record names."""
    found = {"python": platform.python_version()}
    for name in ("roofline_helpers", "jax", "jaxlib", "numpy", "libtpu", "torch", "triton"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
        found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            return found[1].strip()
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def _output(*command: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip().split("\n")[0] or None
    return None


# --- what is measured, and what came out --------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Parameters
    ----------
    name : str
        Unique within a record, together with `source`.
    group : str
        "memory", "levels", "compute" and "vector" are ceilings; any other name is a set of kernels.
    work : Work
        FLOPs and bytes, counted by hand.
    make : callable
        Returns the arguments. Called anew at each pass, so that they needn't stay in memory.
    fn : callable, optional
        A JAX function of those arguments.
    start : callable, optional
        For other frameworks, in place of `fn`: takes the arguments, returns a `Program`.
    source : str
        Whose code it is: "jax", or another framework's name.
    needs : float
        Bytes of memory that it takes at the same time. Twice `work.bytes` if not given.
    loops : int
        How often one call does the work, inside the compiled program.
    warm : float
        Seconds to run before the first sample (`clock`).
    options : mapping
        Further arguments of `jax_program`.
    """

    name: str
    group: str
    work: Work
    make: Callable[[], tuple[Any, ...]]
    fn: Callable[..., Any] | None = None
    start: Callable[..., Program] | None = None
    source: str = "jax"
    needs: float | None = None
    loops: int = 1
    warm: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Name and source – what tells a case from the others of a record."""
        return self.name, self.source


@dataclass(frozen=True)
class Sample:
    """What came out of one case: a summary of each pass over it.

    Parameters
    ----------
    name, group, source, dtype : str
        As in `Case`; the data type is that of its work.
    flops, matrix_flops, bytes : float
        Of one call, counted by hand.
    passes : tuple of Timing
        One a pass; empty where it could not be measured.
    xla_bytes : float, optional
        Bytes accessed, as XLA counts them for the compiled program.
    counters : mapping, optional
        Hardware counters: "dram_read", "dram_written" (bytes of one call), "kernels".
    state : mapping, optional
        The device's state while it was busy: "clock" (Hz), "power" (W), "throttle" …
    notes : tuple of str
        What to know about it.
    error : str, optional
        Why it could not be measured.
    runs : tuple of float
        Median of each run, in seconds, where several processes measured it (`combine`).
    date : str, optional
        When it was measured, where that isn't the record's date (`merge`).
    """

    name: str
    group: str
    source: str
    dtype: str
    flops: float
    matrix_flops: float
    bytes: float
    passes: tuple[Timing, ...] = ()
    xla_bytes: float | None = None
    counters: Mapping[str, float] | None = None
    state: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None
    runs: tuple[float, ...] = ()
    date: str | None = None

    @property
    def seconds(self) -> float:
        """Median over the passes, in seconds a call; NaN where it could not be measured."""
        return statistics.median(t.median for t in self.passes) if self.passes else math.nan

    @property
    def spread(self) -> float:
        """Largest minus smallest median of the passes, over their median; 0 for a single pass."""
        medians = [timing.median for timing in self.passes]
        return (max(medians) - min(medians)) / self.seconds if medians else math.nan

    @property
    def between(self) -> float:
        """Largest minus smallest median of the runs, over their median; NaN for a single run."""
        if len(self.runs) < 2:
            return math.nan
        return (max(self.runs) - min(self.runs)) / statistics.median(self.runs)

    @property
    def rate(self) -> float:
        """FLOP/s achieved."""
        return self.flops / self.seconds

    @property
    def bandwidth(self) -> float:
        """Byte/s achieved, over the bytes counted by hand."""
        return self.bytes / self.seconds

    @property
    def intensity(self) -> float:
        """FLOP/byte, counted by hand."""
        return self.flops / self.bytes

    @property
    def dram_bytes(self) -> float:
        """Bytes of one call that crossed DRAM, by hardware counters; NaN where none were read."""
        counted = self.counters or {}
        return counted.get("dram_read", math.nan) + counted.get("dram_written", math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a record holds it."""
        return asdict(self)


_TIMING = {
    "median": records.positive,
    "low": records.positive,
    "q1": records.positive,
    "q3": records.positive,
    "high": records.positive,
    "repeats": records.count,
    "calls": records.count,
    "compile": records.natural,
    "drift": float,
    "notes": [str],
}
FIELDS: Mapping[str, Any] = {
    "schema": str,
    "date": str,
    "command": str,
    "complete": bool,
    "device": {
        "platform": str,
        "kind": str,
        "name": str,
        "chip?": str,
        "count": int,
        "driver?": str,
        "memory?": records.natural,
        "cache": records.positive,
    },
    "host": {"system": str, "machine": str, "cpu": str, "cores": int, "load?": float},
    "software": records.table_of(str),
    "flags": records.table_of(str),
    "notes": [str],
    "samples": [
        {
            "name": str,
            "group": str,
            "source": str,
            "dtype": str,
            "flops": records.natural,
            "matrix_flops": records.natural,
            "bytes": records.positive,
            "passes": [_TIMING],
            "xla_bytes?": records.natural,
            "counters?": records.table_of(records.natural),
            "state?": dict,
            "notes": [str],
            "error?": str,
            "runs?": [records.positive],
            "date?": str,
        }
    ],
}
"""What a record of a measurement holds (`roofline_helpers.records.check`)."""

COMPARED = "roofline_helpers.compared/1"
"""What a comparison with independent programs says of itself."""

_RATES = records.table_of(records.positive)
_SIDES: Mapping[str, Any] = {
    "cores": int,
    "rounds": int,
    "memory": {
        "stream": _RATES,
        "jax": _RATES,
        "ratio of the best": records.positive,
        "ratio by kernel": _RATES,
    },
    "compute": {"numpy": _RATES, "jax": _RATES, "ratio of the best": records.positive},
}
COMPARED_FIELDS: Mapping[str, Any] = {
    "schema": str,
    "date": str,
    "command": str,
    "device": FIELDS["device"],
    "host": FIELDS["host"],
    "software": FIELDS["software"],
    "size": records.positive,
    "notes": [str],
    "runs": [_SIDES],
}
"""What such a comparison holds."""

TRIAL = "roofline_helpers.trial/1"
"""What a trial of one kernel in several ways says of itself."""

TRIAL_FIELDS: Mapping[str, Any] = {
    "schema": str,
    "date": str,
    "command": str,
    "device": {"kind": str, "chip?": str},
    "software": records.table_of(str),
    "shape": [int],
    "error": records.positive,
    "notes": [str],
    "seconds": records.table_of([records.positive]),
}
"""What such a trial holds."""


@dataclass(frozen=True)
class Record:
    """A measurement of one device: what it is, how it was measured, and every sample's summary."""

    device: Mapping[str, Any]
    host: Mapping[str, Any]
    software: Mapping[str, str]
    date: str
    command: str
    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True

    def __repr__(self) -> str:
        measured = sum(bool(sample.passes) for sample in self.samples)
        text = f"{self.name}: {measured} of {len(self.samples)} cases, JAX "
        text += f"{self.software.get('jax', '?')}, {self.date}"
        return f"<{text}{'' if self.complete else ', incomplete'}>"

    @property
    def name(self) -> str:
        """The chip's name where the chip table has it, else what the device calls itself."""
        key = self.device.get("chip")
        return hardware.chip(key).name if key else str(self.device["name"])

    @property
    def chip(self) -> hardware.Chip | None:
        """One device of the chip that was measured; None where the chip table hasn't got it."""
        key = self.device.get("chip")
        return hardware.chip(key).per_device() if key else None

    def sample(self, name: str, source: str = "jax") -> Sample:
        """Return a sample by its name.

        Raises
        ------
        UnknownName
            No such sample of that source; the message gives the nearest.
        """
        of_source = {each.name: each for each in self.samples if each.source == source}
        return of_source[name_of(f"sample of {source}", name, of_source)]

    def group(self, group: str, source: str | None = None) -> tuple[Sample, ...]:
        """Return the samples of a group that could be measured, of one source or of all.

        Raises
        ------
        UnknownName
            No such group in this record.
        """
        group = name_of(
            "group of samples", group, list(dict.fromkeys(s.group for s in self.samples))
        )
        return tuple(
            each
            for each in self.samples
            if each.group == group and each.passes and source in (None, each.source)
        )

    @property
    def bandwidth(self) -> float:
        """Measured memory ceiling, byte/s – the best of JAX's streaming kernels at the full size.

        Raises
        ------
        BadRecord
            No streaming kernel was measured.
        """
        found = self.streams
        if not found:
            raise BadRecord(f"{self!r} has no memory ceiling")
        return max(found.values())

    @property
    def streams(self) -> dict[str, float]:
        """Best bandwidth of each streaming kernel, byte/s – "read", "write", "copy", "triad" …"""
        return {name: each.bandwidth for name, each in self._best("memory").items()}

    @property
    def peaks(self) -> dict[str, float]:
        """Measured compute ceilings, FLOP/s by data type – the best of JAX's matrix products."""
        return {dtype: each.rate for dtype, each in self._best("compute").items()}

    @property
    def vector_peaks(self) -> dict[str, float]:
        """Measured ceilings of the vector unit, FLOP/s by data type – the multiply-add chain."""
        return {dtype: each.rate for dtype, each in self._best("vector").items()}

    def _best(self, group: str) -> dict[str, Sample]:
        """Return the best sample of each stream of "memory", of each data type elsewhere."""
        best: dict[str, Sample] = {}
        for each in self.samples:
            if each.group == group and _counts(each):
                streams = group == "memory"
                key = re.sub(r" [\d.]+ [KMG]?i?B .*", "", each.name) if streams else each.dtype
                rivals = (best.get(key, each), each)
                best[key] = max(rivals, key=lambda one: one.bandwidth if streams else one.rate)
        return best

    def roofline(self, dtype: Any = "bf16") -> Roofline:
        """Return the measured roofline for a data type.

        Raises
        ------
        UnknownName
            That type was not measured; the message lists those that were.
        """
        wanted = name_of("data type measured here", dtype_of(dtype), self.peaks)
        return Roofline(
            peak=self.peaks[wanted],
            levels={"hbm": self.bandwidth},
            vector=self.vector_peaks.get("fp32"),
            name=f"{self.name} {wanted}, measured",
            origin="measured",
        )

    def table(self, group: str | None = None) -> pandas.DataFrame:
        """Return the samples as a table for reading, of one group or of all.

        Raises
        ------
        UnknownName, BadType
            No such group; nothing to show.
        """
        chosen = self.samples
        if group is not None:
            self.group(group)
            chosen = tuple(each for each in self.samples if each.group == group)
        return table(_row(each) for each in chosen)

    def draw(
        self, dtype: Any = None, ax: Axes | None = None, *, beside: Record | None = None
    ) -> Axes:
        """Draw the measured roofline, and the kernels of its data type where they came to lie.

        Parameters
        ----------
        dtype : str or data type, optional
            By default bf16 where it is the faster, else fp32, else what there is.
        beside : Record, optional
            Another record, such as `beside` gives: its roof is drawn dashed, and its samples of
            the same kernels as crosses. A data type that it lacks leaves it out.
        """
        from roofline_helpers import plot

        if beside is not None and not isinstance(beside, Record):
            raise BadType(f"beside must be a Record, got {shown(beside)}")
        peaks = self.peaks
        if dtype is None:
            order = sorted(peaks, key=lambda name: name not in ("bf16", "fp32"))
            dtype = max(order[:2], key=lambda name: peaks[name]) if peaks else "fp32"
        roof = self.roofline(dtype)
        wanted = dtype_of(dtype)
        kernels = {
            each.name: each
            for each in self.samples
            if each.group not in CEILINGS and each.dtype == wanted and each.passes and each.flops
        }
        suffix = f" {wanted}"  # the roof's name says it for all
        points = {name.removesuffix(suffix): each.intensity for name, each in kernels.items()}
        achieved = {name.removesuffix(suffix): each.rate for name, each in kernels.items()}
        drawn = plot.roofline(roof, points, achieved=achieved, ax=ax)
        if beside is not None and wanted in beside.peaks:
            theirs = beside.roofline(wanted)
            grey = {"color": plot.PALETTE["muted"], "zorder": 2}
            low, high = drawn.get_xlim()
            across = [low, *([theirs.ridge] if low < theirs.ridge < high else []), high]
            label = f"the record of {beside.date[:10]}"
            heights = [theirs.attainable(x) for x in across]
            drawn.plot(across, heights, ls="--", label=label, gid="beside:roof", **grey)
            same = [s for s in beside.samples if s.name in kernels and s.passes]
            found = [(s.intensity, s.rate) for s in same if s.source == kernels[s.name].source]
            if found:
                drawn.plot(*zip(*found, strict=True), "x", gid="beside:kernels", **grey)
            drawn.set(xlim=(low, high))
            drawn.legend(loc="lower right", fontsize="small")
        return drawn

    def to_dict(self) -> dict[str, Any]:
        """Return it as its file holds it."""
        return {"schema": SCHEMA, **asdict(self)}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file, whole or not at all (`records.save`)."""
        return records.save(path, self.to_dict())


CEILINGS = ("memory", "levels", "compute", "vector")
"""Groups that are ceilings; the samples of all others are kernels."""


OURS = ("jax", "pallas")
"""Sources whose samples make the ceilings: what JAX reaches by itself."""


def _counts(sample: Sample) -> bool:
    return sample.source in OURS and bool(sample.passes)


def _notes(sample: Sample) -> list[str]:
    """Return the notes of a sample and of its passes, each once."""
    passed = (note for timing in sample.passes for note in timing.notes)
    return list(dict.fromkeys([*sample.notes, *passed]))


def _row(sample: Sample) -> dict[str, Any]:
    roofed = bool(sample.passes)
    return {
        "": sample.name if sample.source == "jax" else f"{sample.name} ({sample.source})",
        "type": sample.dtype,
        "time": si(sample.seconds, "s") if roofed else None,
        "GB/s": sample.bandwidth / 1e9 if roofed else None,
        "GFLOP/s": sample.rate / 1e9 if roofed and sample.flops else None,
        "FLOP/byte": sample.intensity,
        "note": ", ".join(
            dict.fromkeys(
                note.removeprefix("unstable: ").removeprefix("drifting: ")
                for note in [*([sample.error] if sample.error else []), *_notes(sample)]
            )
        ),
    }


def load(path: Any) -> Record:
    """Return the record in a file.

    Raises
    ------
    BadRecord
        No such file; damaged, foreign, older or newer: see `records.load`.
    """
    data = records.load(path, SCHEMA, FIELDS)
    samples = []
    for each in data["samples"]:
        passes = tuple(
            Timing(**{**_only(Timing, one), "notes": tuple(one["notes"])}) for one in each["passes"]
        )
        given = {**_only(Sample, each), "passes": passes, "notes": tuple(each["notes"])}
        given["runs"] = tuple(each.get("runs") or ())
        samples.append(Sample(**given))
    given = {**_only(Record, data), "samples": tuple(samples), "notes": tuple(data["notes"])}
    return Record(**given)


def _only(kind: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that a dataclass has: a later minor version may add some."""
    return {name: data[name] for name in kind.__dataclass_fields__ if name in data}


def measured() -> dict[str, Record]:
    """Return the committed records, by name: "h100", "h200", …"""
    found = records.files(records.committed("measured"))
    return {name: load(file) for name, file in found.items()}


def compared(name: str = "cpu") -> dict[str, Any]:
    """Return a committed comparison with independent programs, as `tools/cpu/compare.py` made it.

    Best byte/s of STREAM's and JAX's kernels, best FLOP/s of NumPy's and JAX's matrix products,
    and the ratios of the best, on all cores of that machine and on one.

    Raises
    ------
    BadRecord
        No such file, or a damaged one.
    """
    return records.load(records.committed("compared", f"{name}.json"), COMPARED, COMPARED_FIELDS)


def trial(name: str) -> dict[str, Any]:
    """Return a committed trial: seconds of one kernel in several ways, on one device in one run.

    "h200-tma" is that of `tools/gpu/hopper_chain.py`. `error` is the largest difference between the
    results. Its medians stand alone, without the passes and spreads of a `Record`.

    Raises
    ------
    BadRecord
        No such file, or a damaged one.
    """
    return records.load(records.committed("trials", f"{name}.json"), TRIAL, TRIAL_FIELDS)


def beside(record: Record | None = None) -> Record | None:
    """Return the committed record of the same device, to be shown beside one's own.

    Parameters
    ----------
    record : Record, optional
        One's own; the default device if not given.

    Returns
    -------
    Record or None
        The latest of those whose device calls itself the same: by JAX's name of it
        (`device_kind`), or on a CPU, where that is only "cpu", by the processor's name and the
        number of cores. None if there is none.

    Raises
    ------
    BadType
        Not a record.
    """
    if record is not None and not isinstance(record, Record):
        raise BadType(f"record must be a Record, got {shown(record)}")
    own = _identity(device(), host()) if record is None else _identity(record.device, record.host)
    same = [each for each in measured().values() if _identity(each.device, each.host) == own]
    return max(same, key=lambda each: each.date, default=None)


def _identity(device: Mapping[str, Any], host: Mapping[str, Any]) -> tuple[Any, ...]:
    if device["platform"] == "cpu":
        return "cpu", device["name"], host["cores"]
    return device["platform"], device["kind"]


def combine(runs: Sequence[Record]) -> Record:
    """Return one record of several runs of the same cases, each in a process of its own.

    A sample has the passes of all runs, and the median of each in `Sample.runs`: their spread is
    `Sample.between`. What failed in every run keeps its error. The rest is that of the last run.

    Raises
    ------
    BadValue
        No run; runs of different devices.
    """
    _one_device(runs)
    found: dict[tuple[str, str], list[Sample]] = {}
    for record in runs:
        for each in record.samples:
            found.setdefault((each.name, each.source), []).append(each)
    return replace(
        runs[-1],
        samples=tuple(_combined(samples) for samples in found.values()),
        notes=tuple(dict.fromkeys(note for record in runs for note in record.notes)),
        complete=all(record.complete for record in runs),
    )


def _combined(samples: Sequence[Sample]) -> Sample:
    worked = [each for each in samples if each.passes]
    if not worked:
        return samples[-1]
    notes = [note for each in samples for note in each.notes]
    notes += [f"failed in one run: {each.error}" for each in samples if each.error]
    with_counters = [each for each in worked if each.counters]
    return replace(
        worked[-1],
        passes=tuple(timing for each in worked for timing in each.passes),
        runs=tuple(each.seconds for each in worked),
        counters=with_counters[-1].counters if with_counters else None,
        notes=tuple(dict.fromkeys(notes)),
    )


def merge(older: Record, newer: Record) -> Record:
    """Return the newer record, with the older one's samples of what was not measured again.

    Those keep their date (`Sample.date`); a note says so where the software was another. What
    neither has measured, for want of time, is left out.

    Raises
    ------
    BadValue
        Records of different devices.
    """
    _one_device([older, newer])
    again = {(each.name, each.source): each for each in newer.samples}
    notes = [*older.notes, *newer.notes]
    samples = []
    for each in older.samples:
        new = again.pop((each.name, each.source), None)
        if new is None or (each.passes and not new.passes):
            kept = replace(each, date=each.date or older.date)
            said = f"failed when it was measured again: {new.error}" if new else ""
            new = replace(kept, notes=(*kept.notes, said)) if said else kept
        samples.append(new)
    samples += [each for each in again.values() if each.passes or each.error]
    if older.software != newer.software and any(each.date == older.date for each in samples):
        was = ", ".join(f"{name} {version}" for name, version in older.software.items())
        notes.append(f"samples dated {older.date} were measured with {was}")
    return replace(newer, samples=tuple(samples), notes=tuple(dict.fromkeys(notes)))


def _one_device(runs: Sequence[Record]) -> None:
    if not isinstance(runs, Sequence) or not all(isinstance(one, Record) for one in runs):
        raise BadType(f"records (measure.load) are needed, got {shown(runs)}")
    if not runs:
        raise BadValue("at least one record is needed, got none")
    kinds = list(dict.fromkeys(str(record.device["kind"]) for record in runs))
    if len(kinds) > 1:
        raise BadValue(f"the records must be of one device, got {', '.join(kinds)}")


# --- cases --------------------------------------------------------------------------------------


def _kind(dtype: Any) -> Any:
    import jax.numpy as jnp

    return jnp.dtype(JAX_DTYPES[name_of("data type to measure", dtype_of(dtype), JAX_DTYPES)])


def array(*shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
    """Return an array of normally distributed numbers on the default device.

    The numbers repeat after 1,048,583, a prime, so that no two rows are the same. Zeros would be
    easier to make, and easier on the device: products of zeros take less power and run faster.
    """
    import jax

    kind = _kind(dtype)
    n = math.prod(shape)
    pool = np.random.default_rng(0).standard_normal(min(1_048_583, n), np.float32) * scale
    pool = (np.rint(pool * 20) if kind.kind in "iu" else pool).astype(kind)
    if jax.devices()[0].platform == "cpu":
        return jax.device_put(np.resize(pool, shape))
    return _repeated()(jax.device_put(pool), shape)  # sent once, repeated there


@functools.cache
def _repeated() -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    def repeated(pool: Any, shape: tuple[int, ...]) -> Any:
        n = math.prod(shape)
        return jnp.tile(pool, -(-n // pool.size))[:n].reshape(shape)

    jitted: Callable[..., Any] = jax.jit(repeated, static_argnums=1)
    return jitted


def _stream(name: str, n: int, dtype: str, tensors: int, flops: int) -> Work:
    reads = {f"x{i}": dtype for i in range(tensors - 1)} if tensors > 1 else {}
    return work.elementwise(n, reads, {"y": dtype}, flops, dtype, name=name)


def memory_cases(size: int, dtype: str = "fp32") -> list[Case]:
    """Return the streaming kernels whose best is the memory ceiling; tensors of `size` bytes.

    Bytes are counted as STREAM does: each tensor once. A cache that fetches a line before it is
    written moves more, which shows as a lower bandwidth of copy, add and triad; "scale in place"
    writes what it has read, and so is free of that.
    """
    import jax.numpy as jnp

    kind = _kind(dtype)
    n = size // kind.itemsize
    half = kind.type(0.5)

    def vectors(count: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: tuple(array(n, dtype=dtype) for _ in range(count))

    def one(name: str, count: int, tensors: int, flops: int, fn: Any, **options: Any) -> Case:
        job = _stream(name, n, dtype, tensors, flops)
        label = f"{name} {_bytes(size)} {dtype}"
        return Case(label, "memory", job, vectors(count), fn, needs=4 * size, options=options)

    read = replace(work.reduction(1, n, dtype), name="read")
    write = Case(
        f"write {_bytes(size)} {dtype}",
        "memory",
        Work("write", {}, {"y": n * kind.itemsize}, dtype=dtype),
        lambda: (array(1, dtype=dtype),),
        lambda s: jnp.broadcast_to(s, (n,)) + half,
        needs=2 * size,
    )
    return [
        Case(
            f"read {_bytes(size)} {dtype}",
            "memory",
            read,
            vectors(1),
            lambda x: jnp.max(x),
            needs=2 * size,
        ),
        write,
        one("copy", 1, 2, 0, lambda x: jnp.copy(x)),
        one("scale", 1, 2, 1, lambda x: x * half),
        one("scale in place", 1, 2, 2, lambda x: x * half + half, inplace=True),
        one("add", 2, 3, 1, lambda x, y: x + y),
        one("triad", 2, 3, 2, lambda x, y: x + half * y),
    ]


def level_cases(sizes: Sequence[int], dtype: str = "fp32") -> list[Case]:
    """Return "scale in place" over working sets of these bytes, repeated inside one program.

    Each cache level shows as a step. The repetition keeps the launch, which takes longer than a
    pass over a small cache, out of the result.

    Raises
    ------
    BadType, BadValue
        A size that isn't a whole number from 1.
    """
    import jax

    kind = _kind(dtype)
    half = kind.type(0.5)

    def body(_: Any, x: Any) -> Any:
        return x * half + half

    on_cpu = jax.devices()[0].platform == "cpu"

    def looped(x: Any, turns: Any) -> Any:
        # the number of turns is an argument, so that XLA can't merge them
        return jax.lax.fori_loop(0, turns, body, x)

    def fixed(turns: int, x: Any) -> Any:
        # an accelerator takes microseconds to turn a loop: written out, with a barrier so that
        # XLA can't merge the turns
        for _ in range(turns):
            x = jax.lax.optimization_barrier(body(0, x))
        return x

    def arguments(n: int, turns: int) -> tuple[Any, ...]:
        return (array(n, dtype=dtype), *((np.int32(turns),) if on_cpu else ()))

    cases = []
    for size in (whole("a size of sizes", each) for each in sizes):
        n = max(size // kind.itemsize, 1)
        loops = min(max(2**26 // size, 1), 2**10 if on_cpu else 2**6)
        job = _stream("scale in place, looped", n, dtype, 2, 2)
        cases.append(
            Case(
                f"scale in place, looped {_bytes(size)} {dtype}",
                "levels",
                job,
                functools.partial(arguments, n, loops),
                looped if on_cpu else functools.partial(fixed, loops),
                needs=3 * size,
                loops=loops,
                options={"inplace": True},
            )
        )
    return cases


def matmul_case(
    m: int,
    n: int,
    k: int,
    dtype: str = "bf16",
    *,
    batch: int = 1,
    group: str = "compute",
    label: str = "",
    **options: Any,
) -> Case:
    """Return C[m, n] = A[m, k] · B[k, n], `batch` of them.

    int8 products sum in int32. "tf32" is fp32 at JAX's default precision, which means that on
    GPUs of NVIDIA's; "fp32" asks for all of its bits.
    """
    import jax
    import jax.numpy as jnp

    out = {"int8": "int32", "fp8": "bf16", "tf32": "fp32"}.get(dtype, dtype)
    stored = "fp32" if dtype == "tf32" else dtype
    preferred = _kind(out)
    # On accelerators JAX's default for fp32 is the matrix unit's tf32 or bf16
    exact = jax.lax.Precision.HIGHEST if dtype in ("fp32", "fp64") else None

    def product(a: Any, b: Any) -> Any:
        return jnp.matmul(a, b, precision=exact, preferred_element_type=preferred)

    lead = (batch,) if batch > 1 else ()
    size = f"{batch} × " * (batch > 1) + f"{m}×{n}×{k}"
    counted = work.matmul(m, n, k, dtype, out=out, batch=batch)
    on_cpu = jax.devices()[0].platform == "cpu"
    return Case(
        f"matmul {size} {dtype}{label}",
        group,
        counted,
        lambda: (array(*lead, m, k, dtype=stored), array(*lead, k, n, dtype=stored)),
        product,
        warm=1.0 if counted.flops > 1e11 and not on_cpu else 0.0,
        options=options,
    )


def vector_case(dtype: str = "fp32", n: int = 2**20, steps: int = 256) -> Case:
    """Return a chain of multiply-adds on the vector unit: 2 · steps FLOPs for each element.

    Where the compiler keeps multiply and add apart, half of a peak that counts a fused
    multiply-add as two is the most that can come out: on an H100, 31.5 of 67 TFLOP/s in fp32.
    """

    def chain(x: Any, a: Any, b: Any) -> Any:
        for _ in range(steps):
            x = x * a + b
        return x

    job = work.elementwise(n, {"x": dtype}, {"y": dtype}, 2 * steps, dtype, name="multiply-add")
    numbers = np.array([0.5], np.float32)
    return Case(
        f"{steps} multiply-adds on {n} {dtype}",
        "vector",
        job,
        lambda: (
            array(n, dtype=dtype),
            *(array(1, dtype=dtype) * 0 + v for v in numbers.repeat(2)),
        ),
        chain,
        options={"cold": False},
    )


def kernel_cases(rows: int, columns: int, dtype: str = "fp32") -> list[Case]:
    """Return a small set of kernels to place under the roof: rows × columns elements each."""
    import jax
    import jax.numpy as jnp

    n = rows * columns
    seq, width = min(columns, 1024), 64
    heads = max(n // (seq * width * 4), 1)
    naive = work.naive_attention(1, seq, heads=heads, head_dim=width, dtype=dtype)

    def one(name: str, job: Work, fn: Any, *shapes: tuple[int, ...]) -> Case:
        return Case(
            f"{name} {dtype}",
            "kernels",
            replace(job, dtype=dtype),
            lambda: tuple(array(*shape, dtype=dtype) for shape in shapes),
            fn,
            needs=6.0 * float(job.bytes),
        )

    def layernorm(x: Any, g: Any, b: Any) -> Any:
        wide = x.astype(jnp.float32)
        centred = wide - wide.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return (scaled * g + b).astype(x.dtype)

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / math.sqrt(width)
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)

    full, row = (rows, columns), (columns,)
    return [
        one(f"GELU {rows}×{columns}", work.gelu(n, dtype), jax.nn.gelu, full),
        one(
            f"row sums {rows}×{columns}",
            work.reduction(rows, columns, dtype),
            lambda x: x.sum(1),
            full,
        ),
        one(f"softmax {rows}×{columns}", work.softmax(rows, columns, dtype), jax.nn.softmax, full),
        one(
            f"LayerNorm {rows}×{columns}",
            work.layernorm(rows, columns, dtype),
            layernorm,
            full,
            row,
            row,
        ),
        one(
            f"attention {heads}×{seq}×{width}",
            work.total(*naive),
            attention,
            *[(heads, seq, width)] * 3,
        ),
        one(
            f"matvec {columns}×{columns}",
            work.matmul(1, columns, columns, dtype),
            lambda x, w: x @ w,
            (1, columns),
            (columns, columns),
        ),
    ]


def cases(quick: bool = False) -> list[Case]:
    """Return what `run` measures on the default device, sized for it.

    Parameters
    ----------
    quick : bool
        Fewer sizes and data types.
    """
    import jax

    on_cpu = jax.devices()[0].platform == "cpu"
    budget = free_memory() or 4 * 2**30
    # A launch leaves a gap of some 10 µs on a GPU: 4 GiB tensors make that less than a percent
    size = max(4 * last_cache(), 2**27 if on_cpu else 2**32)
    size = 2 ** math.ceil(math.log2(size))
    while 4 * size > budget / 2 and size > 2**20:
        size //= 2
    found = memory_cases(size)
    if not quick:
        # half the size may still half fit the cache: it shows that, and is no ceiling
        found += [replace(case, group="levels") for case in memory_cases(size // 2)]
        found += level_cases(
            [2**e for e in range(14, int(math.log2(size)) + 1, 1 if on_cpu else 2)]
        )
    if on_cpu:
        side = [512, 1024, 2048] if quick else [256, 512, 1024, 2048, 3072]
        found += [matmul_case(s, s, s, "fp32") for s in side]
        found += [matmul_case(512, 512, 512, "fp32", batch=8)]
        found += [] if quick else [matmul_case(s, s, s, "bf16") for s in (256, 512, 1024)]
        found += [vector_case("fp32", 2**16)]
        found += kernel_cases(2048, 2048) if quick else kernel_cases(4096, 4096)
    else:
        side = [4096, 8192] if quick else [1024, 2048, 4096, 8192]
        for dtype in ("bf16", "fp32") if quick else ("bf16", "fp16", "fp8", "int8", "fp32"):
            found += [matmul_case(s, s, s, dtype) for s in side]
        found += [] if quick else [matmul_case(1024, 1024, 1024, "bf16", batch=64)]
        found += [vector_case(dtype, 2**24) for dtype in ("fp32", "bf16")]
        found += kernel_cases(16384, 8192, "bf16")
    return found


def _bytes(size: int) -> str:
    for prefix, factor in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size >= factor and size % (factor // 8) == 0:
            return f"{size / factor:g} {prefix}B"
    return f"{size} B"


# --- running ------------------------------------------------------------------------------------


class Bar:
    """A progress bar on stderr: a line redrawn on a terminal, a line a tenth elsewhere."""

    def __init__(self, total: int, stream: Any = None, width: int = 24) -> None:
        self.total, self.width = max(total, 1), width
        self.stream = stream or sys.stderr
        self.terminal = bool(getattr(self.stream, "isatty", lambda: False)())
        self.done, self._tenth, self._begun = 0, -1, perf_counter()

    def step(self, name: str) -> None:
        """Say what is being measured now, and count it."""
        share = self.done / self.total
        passed = perf_counter() - self._begun
        filled = round(self.width * share)
        text = f"[{'#' * filled}{'.' * (self.width - filled)}] {self.done}/{self.total}"
        text += f"  {passed:.0f} s  {name}"
        if self.terminal:
            self.stream.write(f"\r\x1b[K{text[:110]}")
        elif int(10 * share) > self._tenth:
            self._tenth = int(10 * share)
            self.stream.write(text + "\n")
        self.stream.flush()
        self.done += 1

    def close(self) -> None:
        """Leave the cursor on a clean line."""
        if self.terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def run(
    quick: bool = False,
    *,
    chosen: Sequence[Case] | None = None,
    passes: int = 1,
    seconds: float | None = None,
    deadline: float | None = None,
    progress: bool = True,
    command: str | None = None,
    partial: str | os.PathLike[str] | None = None,
    probe: Callable[[], Mapping[str, Any]] | None = None,
    between: Callable[[int, Record], Record] | None = None,
) -> Record:
    """Measure the default device, and return the record.

    A case that this device can't do (no memory, no such data type, a compiler that refuses) is
    kept with its reason, and the rest goes on.

    Parameters
    ----------
    quick : bool
        Fewer cases, each measured for a shorter time.
    chosen : sequence of Case, optional
        In place of `cases(quick)`.
    passes : int
        Times that the whole list is gone through, back and forth: their difference is the spread
        between runs.
    seconds : float, optional
        About how long to measure each case in each pass.
    deadline : float, optional
        Seconds after which no case is begun any more; the record says so.
    progress : bool
        Whether to draw a bar on stderr.
    command : str, optional
        What the record names as the command that made it.
    partial : path, optional
        Where to keep what there is so far, once every few seconds.
    probe : callable, optional
        Returns the device's state; called while it is busy.
    between : callable, optional
        Called after each pass with its number and the record so far; returns the record to go on
        with.

    Returns
    -------
    Record

    Raises
    ------
    BadType, BadValue
        A budget that isn't a positive number; passes that aren't a whole number from 1.
    """
    begun = perf_counter()
    todo = cases(quick) if chosen is None else chosen
    if not isinstance(todo, Sequence) or not all(isinstance(case, Case) for case in todo):
        raise BadType(f"chosen must be a sequence of Case, got {shown(chosen)}")
    rounds = whole("passes", passes)
    each = single("seconds", (0.15 if quick else 0.3) if seconds is None else seconds)
    record = Record(
        device=device(),
        host=host(),
        software=software(),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command or "roofline_helpers.measure.run()",
        samples=tuple(_blank(case) for case in todo),
        notes=tuple(busy()),
        flags={k: os.environ[k] for k in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") if os.environ.get(k)},
        complete=False,
    )
    bar = Bar(rounds * len(todo)) if progress else None
    compiled: list[Any] = [None] * len(todo)
    saved = begun
    left_out = 0
    try:
        for number in range(rounds):
            # Back and forth: what comes second may find the chip warm or slowed down
            order = range(len(todo)) if number % 2 == 0 else range(len(todo) - 1, -1, -1)
            for index in order:
                case = todo[index]
                if bar:
                    bar.step(case.name)
                if deadline is not None and perf_counter() - begun > deadline:
                    left_out += 1
                    continue
                before = record.samples[index]
                sample, compiled[index] = _attempt(case, before, each, compiled[index], probe)
                samples = list(record.samples)
                samples[index] = sample
                record = replace(record, samples=tuple(samples))
                if partial is not None and perf_counter() - saved > 5:
                    record.save(partial)
                    saved = perf_counter()
            if between is not None:
                record = between(number, record)
                if partial is not None:
                    record.save(partial)
    finally:
        if bar:
            bar.close()
    notes = [*record.notes]
    if left_out:
        notes.append(f"{left_out} measurements left out: the time was up after {deadline:.0f} s")
    notes += [note for note in busy() if note not in notes]
    return replace(record, notes=tuple(notes), complete=True)


def _blank(case: Case) -> Sample:
    return Sample(
        name=case.name,
        group=case.group,
        source=case.source,
        dtype=case.work.dtype,
        flops=float(case.work.flops),
        matrix_flops=float(case.work.matrix_flops),
        bytes=float(case.work.bytes),
    )


def _attempt(
    case: Case,
    sample: Sample,
    seconds: float,
    compiled: Any,
    probe: Callable[[], Mapping[str, Any]] | None,
) -> tuple[Sample, Any]:
    """Return the sample with one more pass, or why there is none, and the compiled program."""
    if sample.error:
        return sample, None
    needs = 2 * float(case.work.bytes) if case.needs is None else case.needs
    free = free_memory()
    if free is not None and needs > 0.8 * free:
        reason = f"not enough memory: needs {si(needs, 'B')}, {si(free, 'B')} are free"
        return replace(sample, error=reason), None
    state: dict[str, Any] = {}

    def look() -> None:
        if probe is not None:
            state.update(probe())

    try:
        begun = perf_counter()
        args = case.make()
        made = perf_counter() - begun
        if case.fn is not None:
            program: Any = jax_program(case.fn, args, compiled=compiled, **case.options)
            compiled = program.compiled
        elif case.start is not None:
            program = case.start(*args)
        else:
            return replace(sample, error="nothing to run"), None
        del args
        timing = clock(program, seconds=seconds, warm=case.warm, begun=begun + made, probe=look)
        xla_bytes = getattr(program, "xla_bytes", None)
        notes = getattr(program, "notes", ())
        if case.loops > 1:
            names = ("median", "low", "q1", "q3", "high")
            timing = replace(timing, **{n: getattr(timing, n) / case.loops for n in names})
            xla_bytes = None  # XLA does not know how often the loop turns
        sample = replace(
            sample,
            passes=(*sample.passes, timing),
            xla_bytes=sample.xla_bytes or xla_bytes,
            state=state or sample.state,
            notes=tuple(dict.fromkeys([*sample.notes, *notes])),
        )
        return sample, compiled
    except Exception as error:  # one kernel that fails must not take the others with it
        reason = str(error) if isinstance(error, RooflineError) else _reason(error)
        if sample.passes:  # it worked before
            note = f"failed in a later pass: {reason}"
            return replace(sample, notes=(*sample.notes, note)), compiled
        return replace(sample, error=reason), None


def busy() -> Iterator[str]:
    """Say if others keep the host busy: its load is then above what we make ourselves."""
    with contextlib.suppress(OSError, AttributeError):
        load, cores = os.getloadavg()[0], _cores()
        if load > cores + 0.5:
            yield (
                f"busy machine: load {load:.1f} on {cores} cores, so figures of the CPU are too low"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m roofline_helpers measure``; return the exit status."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m roofline_helpers", description="Roofline analysis: measure this device."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure", help="find this device's ceilings, and place kernels")
    measure.add_argument("--out", metavar="FILE.json", help="where to write the record")
    measure.add_argument("--quick", action="store_true", help="fewer sizes, shorter samples")
    measure.add_argument("--passes", type=int, default=1, help="go through the list so many times")
    given = parser.parse_args(arguments)
    try:
        whole("--passes", given.passes)
    except BadValue as error:
        parser.error(str(error))
    try:
        import jax

        platform_name = jax.devices()[0].platform
    except ImportError:
        print("measuring needs JAX: pip install jax", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"JAX finds no device: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    out = Path(given.out or f"roofline-{platform_name}.json")
    wrong = _refused(out)
    if wrong is not None:
        print(wrong, file=sys.stderr)
        return 1
    typed = ["python -m roofline_helpers measure", *(["--quick"] if given.quick else [])]
    typed += [f"--passes {given.passes}"] if given.passes > 1 else []
    named = out.name.encode("utf-8", "replace").decode()  # a record holds no other text
    typed += [f"--out {named}"] if given.out else []
    try:
        record = run(given.quick, passes=given.passes, command=" ".join(typed))
    except KeyboardInterrupt:
        kept = f"; {out} is as it was" if out.exists() else ""
        print(f"interrupted: no record is written{kept}", file=sys.stderr)
        return 130
    try:
        record.save(out)  # before anything is printed: that can fail too
    except OSError as error:
        print(f"{out}: can't be written: {error.strerror}", file=sys.stderr)
        with contextlib.suppress(OSError):
            spare = record.save(Path(tempfile.mkdtemp(prefix="roofline-"), out.name))
            print(f"the record is kept as {spare}", file=sys.stderr)
        _say(report(record))
        return 1
    _say(f"{report(record)}\n\nrecord: {out}")
    picture = out.with_suffix(".png")
    if picture.exists() and not _drawn_here(picture):
        print(f"no picture: {picture} is there, and this command didn't make it", file=sys.stderr)
        return 0
    try:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 5.5))
        record.draw(ax=figure.add_subplot(), beside=beside(record))
        figure.savefig(picture, dpi=150, bbox_inches="tight", metadata={"Source": SCHEMA})
        _say(f"picture: {picture}")
    except (RooflineError, ImportError, OSError) as error:
        print(f"no picture: {error}", file=sys.stderr)
    return 0


def _drawn_here(picture: Path) -> bool:
    """Tell whether a file is a picture that `main` drew: it says so itself."""
    try:
        return b"tEXtSource\0" + SCHEMA.encode() in picture.read_bytes()
    except OSError:
        return False


def _say(text: str) -> None:
    """Print what the terminal can show; the record is safe already if it can't be printed."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except (OSError, ValueError) as error:
        if not isinstance(error, BrokenPipeError):  # a reader that has gone, `head`, is no error
            print(f"can't print: {error}", file=sys.stderr)
        sys.stdout = None  # what is still in its buffer would fail again at the end


def _refused(out: Path) -> str | None:
    """Return why a record can't be written to a file, or would destroy what is there."""
    if "\0" in str(out):
        return f"--out must be the name of a file, got {shown(str(out))}"
    if out.is_dir():
        return f"{out}: it is a folder, where a file is needed"
    if out.suffix != ".json":
        return f"{out}: --out must end in .json, got {shown(out.name)}"
    if not out.parent.is_dir():
        return f"{out}: there is no folder {out.parent}"
    try:
        tempfile.TemporaryFile(dir=out.parent).close()
        if out.exists():
            load(out)
    except OSError as error:
        return f"{out}: can't be written: {error.strerror}"
    except BadRecord as error:
        return f"{error}. It is left as it is: move it away, or give another --out"
    return None


def report(record: Record) -> str:
    """Return a record as text: the device, its ceilings, then every sample.

    The line of a ceiling ends with the notes of the sample that sets it.
    """
    about = record.device
    lines = [
        f"{record.name} ({about['platform']}, {record.host['cores']} host cores), "
        f"JAX {record.software.get('jax', '?')}, {record.date}"
    ]
    ceilings = []
    with contextlib.suppress(BadRecord):
        ceiling = f"memory ceiling: {si(record.bandwidth, 'B/s')}"
        fastest = max(record._best("memory").values(), key=lambda each: each.bandwidth)
        ceilings.append((ceiling, fastest))
    published = record.chip
    for dtype, best in record._best("compute").items():
        ceiling = f"compute ceiling, {dtype}: {si(best.rate, 'FLOP/s')}"
        if published is not None and dtype in published.matrix:
            share = 100 * best.rate / float(published.peak(dtype))
            ceiling += f", {share:.1f} % of the published peak"
        ceilings.append((ceiling, best))
    for dtype, best in record._best("vector").items():
        ceilings.append((f"vector ceiling, {dtype}: {si(best.rate, 'FLOP/s')}", best))
    lines += ["; ".join([ceiling, *_notes(best)]) for ceiling, best in ceilings]
    same = beside(record)
    if same is not None:
        with contextlib.suppress(BadRecord):
            lines.append(
                f"the book's record of this device, {same.date[:10]}: "
                f"{si(same.bandwidth, 'B/s')}, "
                + ", ".join(f"{si(peak, 'FLOP/s')} {dtype}" for dtype, peak in same.peaks.items())
            )
    lines += [f"note: {note}" for note in record.notes]
    lines += ["", record.table().to_string()]
    return "\n".join(lines)
