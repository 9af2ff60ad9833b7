"""Targets of compilation: layouts of TPU chips, their clocks, and the installed compiler."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import math
import os
import platform as host
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from roofline.libtpu import ALONE, has_tpu
from roofline.network.topology import slice_of, topology, usual_layout
from roofline_helpers import chips
from roofline_helpers.common.checks import BadType, BadValue, RooflineError, UnknownName

if TYPE_CHECKING:
    import jax

# --- Silence the TPU compiler's C++ code ---------------------------------------------------------

WITHOUT_TPU = {
    **{name: ALONE[name] for name in ("TPU_SKIP_MDS_QUERY", "TPU_WORKER_HOSTNAMES")},
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # other processes may compile at the same time
}
"""The environment in which libtpu compiles, and looks for no TPU."""

_lock = threading.RLock()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence C++ code on stderr, and set the environment that the TPU compiler needs.

    The environment is restored afterwards. On a machine with a TPU it isn't changed.
    """
    with _lock, contextlib.ExitStack() as stack:
        if not has_tpu():
            stack.enter_context(mock.patch.dict(os.environ, WITHOUT_TPU))
            # if the first is set, cost_analysis of libtpu 0.0.23 aborts; the others are of one chip
            for name in ("TPU_ACCELERATOR_TYPE", *(ALONE.keys() - WITHOUT_TPU.keys())):
                os.environ.pop(name, None)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        sink = stack.enter_context(tempfile.TemporaryFile())
        with contextlib.suppress(OSError):  # no stderr to silence
            saved = os.dup(2)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, 2)
            os.dup2(sink.fileno(), 2)
        yield


TOPOLOGIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "v4": ("v4", {"chip_config_name": "megacore"}),
    "v5e": ("v5e", {}),
    "v5p": ("v5p", {}),
    "v6e": ("v6e", {}),
    "v7x": ("tpu7x", {}),
}
"""libtpu's name and options of each TPU. Without "megacore" a v4 chip would be two devices, but JAX
shows it as one."""

DERIVED_CLOCKS: Mapping[str, tuple[float, str]] = {
    "v6e": (918e12 / (2 * 4 * 256 * 256), "bf16 peak / (2 · 4 · 256²)"),
    "v7x": (1153.5e12 / (2 * 4 * 256 * 256), "bf16 peak of a device / (2 · 4 · 256²)"),
}
"""Hz of chips whose clock is not published, and the formula. For large matmuls the compiler
estimates more FLOPs per cycle than two 256 × 256 units can do (2 · 2 · 256²) but fewer than four.
So the clock is assumed to be the one at which four such units reach the published peak: 1.75 and
2.20 GHz. Google prints two such units for v6e, which would mean 3.5 GHz, so the cycles must count
other units. Published matmuls take 2.24 (v6e) and 2.06 to 2.14 cycles per ns (v7x,
`evidence.load("cycles")`), so the v6e's clock may be higher than the formula's."""


_HOST = 4
"""Chips of a host, the compiler's smallest layout."""
_PARTS = ("1x1", "2x1", "1x1x1", "2x1x1")
"""Slices that are a part of a host: they are compiled for the whole one."""
_LANES = 8 * 128 * 4


def assumed_vector_peak(chip: chips.Chip) -> tuple[float, str] | None:
    """Return the assumed FLOP/s of a TPU device's vector unit, and the formula.

    None if the FLOP/s are published, or if the clock isn't known. "How to Scale Your Model", part
    2, gives 8 × 128 lanes of 4 ALUs for v5e and v5p, one operation per ALU and cycle. Later TPUs
    are assumed to have the same, at their own clock.
    """
    ticks = clock_of(chip)
    if ticks is None or "fp32" in chip.vector:
        return None
    return _LANES * ticks[0], "8 × 128 lanes × 4 ALUs a core, as v5e and v5p have, at its clock"


class NoCompiler(RooflineError, RuntimeError):
    """The compiler for this chip is not installed.

    Examples
    --------
    >>> issubclass(NoCompiler, RooflineError)
    True
    """


class Target(NamedTuple):
    """A chip to compile for, which need not be here, and the layout of its devices if one is given.

    Examples
    --------
    >>> target_of("v6e-8").topology, target_of("v6e-8", "1x8").topology
    ('2x4', '1x8')
    """

    chip: chips.Chip
    topology: str | None = None


NO_CHIP = "topology= is the layout of chips that need not be here: give chip= too"


def target_of(chip: Any, topology: str | None = None) -> Target | None:
    """Return what `chip=` and `topology=` ask for; None for the device that JAX uses here.

    Raises
    ------
    UnknownName, BadType, BadValue
        No such chip or slice; a layout without a chip.
    """
    if chip is None or is_cpu_here(chip):
        if topology is not None:
            raise BadType(NO_CHIP)
        return None
    asked, layout = slice_of(chip)
    return Target(asked, layout if topology is None else topology)


def can_compile(chip: chips.Chip | jax.Device | str | None = None) -> str | None:
    """Return why this machine can't compile for a chip; None if it can.

    Parameters
    ----------
    chip : str, Chip, jax.Device or None
        None means JAX's device here.

    Examples
    --------
    >>> "only where there is one" in can_compile("h100")  # doctest: +SKIP
    True
    """
    target = chips.chip(chip) if chip is not None else None
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed: pip install jax, on Linux x86-64 'jax[tpu]'"
    if target is None:
        return None
    if target.kind != "tpu" or target.key not in TOPOLOGIES:
        if is_chip(first_device(), target):
            return None
        return (
            f"XLA compiles for {target.name} only where there is one. Possible here: a hand count "
            "(roofline_helpers.work), a report that was compiled there and saved with to_json, or "
            "the program for a TPU"
        )
    if (sys.platform, host.machine()) != ("linux", "x86_64"):
        return (
            f"the TPU compiler exists for Linux on x86-64 only, this is {sys.platform} on "
            f"{host.machine() or 'an unknown machine'}. Compile it there, as in Colab: "
            "report.to_json() keeps the result, and roofline.xla.Report.from_json reads "
            "it anywhere"
        )
    if importlib.util.find_spec("libtpu") is None:
        return "the TPU compiler is not installed: pip install 'jax[tpu]'"
    if target.key == "v7x" and jax_version() < (0, 8):
        return f"JAX {'.'.join(map(str, jax_version()))} can't compile for v7x; 0.10.2 can"
    return None


def jax_version() -> tuple[int, ...]:
    """Return the installed version of JAX."""
    import jax

    return tuple(jax.__version_info__[:3])


def first_device() -> jax.Device:
    """Return the device that JAX uses here."""
    import jax

    with quiet():
        return jax.devices()[0]


def is_chip(device: jax.Device, chip: chips.Chip) -> bool:
    """Return whether a JAX device is one of this chip."""
    # a CPU, where most programs are compiled for TPUs, isn't looked for in the table
    return platform_of(device) == chip.kind and chip_key(device) == chip.key


def chip_of(device: jax.Device | str) -> chips.Chip | None:
    """Return the chip of a JAX device, or of a name; None if it is not in the table."""
    try:
        return chips.chip(device)
    except UnknownName:
        return None


def is_cpu_here(given: Any) -> bool:
    """Return whether a chip is named that needs no name: the CPU that JAX uses here."""
    called = str(getattr(given, "device_kind", given)).casefold()
    return called == "cpu" and first_device().platform == "cpu"


def device_of(program: Any) -> jax.Device:
    """Return one of an executable's devices."""
    import jax

    for shardings in (program.input_shardings, program.output_shardings):
        for sharding in jax.tree.leaves(shardings):
            return sorted(sharding.device_set, key=lambda device: device.id)[0]
    return first_device()


def platform_of(device: jax.Device) -> str:
    """Return "tpu", "gpu" or "cpu"."""
    return {"cuda": "gpu", "rocm": "gpu"}.get(str(device.platform), str(device.platform))


def chip_key(device: jax.Device) -> str:
    """Return the key of a device's chip, or JAX's name if it is not in the table."""
    chip = chip_of(device)
    return str(device.device_kind) if chip is None else chip.key


def layout_for(chip: chips.Chip, count: int, layout: str | None = None) -> str:
    """Return a layout with `count` devices: the given one, else the smallest.

    Raises
    ------
    NoCompiler
        The installed compiler has no such layout.
    BadValue
        The layout has fewer devices, or no layout has so many.
    """
    if layout is None or layout in _PARTS:
        needed = math.ceil(count / chip.devices)
        layout = usual_layout(chip, max(_HOST, 1 << (needed - 1).bit_length()))
    topology(chip, split_layout(layout)[1])  # a layout that no such chip has is refused
    available = len(all_devices(chip, layout))
    if available < count:
        raise BadValue(
            f"{layout} of {chip.name} has fewer devices than the mesh, which has {count}"
        )
    if available % count:
        raise BadValue(
            f"a mesh of {count} devices doesn't divide {layout} of {chip.name}, which has "
            f"{available}: make it of a power of two, or give the topology that it fills"
        )
    return layout


def all_devices(chip: chips.Chip, layout: str) -> list[jax.Device]:
    """Return the devices of a layout of TPU chips, which need not exist.

    Raises
    ------
    BadValue
        Not a number of slices.
    NoCompiler
        The compiler that is here has no such layout.
    """
    family = TOPOLOGIES[chip.key][0]
    split_layout(layout)  # a malformed layout raises BadValue first, not NoCompiler
    try:
        return list(_topology(chip.key, layout).devices)
    except Exception as error:
        first = (str(error).strip() or repr(error)).splitlines()[0]
        raise NoCompiler(
            f"this TPU compiler ({compiler_version('tpu')}) has no topology "
            f"{family}:{layout}: {first}"
        ) from error


def mesh_devices(chip: chips.Chip, layout: str, mesh: Sequence[int]) -> list[jax.Device]:
    """Return the devices of a layout in JAX's order for a mesh.

    That is the order of `jax.make_mesh`, which places an axis of the mesh on as few axes of the
    torus as possible. If it finds none, or the mesh doesn't fill the layout, it is the layout's own
    order. Slices follow one after the other: the mesh's first axis crosses them.
    """
    from jax.experimental import mesh_utils

    slices, _ = split_layout(layout)
    devices, count = all_devices(chip, layout), math.prod(mesh)
    across = mesh[0] if mesh else 1
    inner = (across // slices, *mesh[1:])
    shaped = len(mesh) > 1 if slices == 1 else inner[0] > 1 or len(inner) > 2
    if shaped and len(devices) == count and across % slices == 0:
        for first in range(0, count, count // slices):
            members = slice(first, first + count // slices)
            with contextlib.suppress(Exception):
                devices[members] = list(mesh_utils.create_device_mesh(inner, devices[members]).flat)
    return devices[:count]


def split_layout(layout: str) -> tuple[int, str]:
    """Return the number of slices of a layout, and the layout of each: "4*16x16" is four of 16x16.

    Raises
    ------
    BadValue
        The part before the star isn't a number.
    """
    count, _, single = layout.rpartition("*")
    if count and not count.strip().isdecimal():
        raise BadValue(f"several slices are given as '4*16x16', got {layout!r}")
    return int(count or 1), single.strip()


@functools.lru_cache(maxsize=32)
def _topology(key: str, layout: str) -> Any:
    from jax.experimental import topologies

    family, options = TOPOLOGIES[key]
    slices, single = split_layout(layout)
    more = {"num_slices": slices} if slices > 1 else {}
    with quiet():
        return topologies.get_topology_desc(
            platform="tpu", topology_name=f"{family}:{single}", **options, **more
        )


def compiler_version(platform: str) -> str:
    """Return the name and version of the package that compiles for a platform."""
    names = {"tpu": ("libtpu", "libtpu-nightly")}.get(platform, ("jaxlib",))
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(name)}"
    return names[0]


def other_libtpu() -> Iterator[str]:
    """Yield what to install if the libtpu that is here isn't the one that this JAX is made for.

    An older one can't read the Pallas kernels of a newer JAX; a newer one fails on some programs.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed = importlib.metadata.version("libtpu")
        for line in importlib.metadata.requires("jax") or ():
            if made_for := re.match(r"libtpu==([\d.]+\d)(\.\*)?(?=;| )", line):
                if f"{installed}.".startswith(f"{made_for[1]}."):
                    return
                pinned = f"libtpu=={made_for[1]}{made_for[2] or ''}"
                jax = ".".join(map(str, jax_version()))
                yield (
                    f"JAX {jax} is made for {pinned}, and {installed} is here: "
                    f"pip install '{pinned}', and start Python again"
                )


def clock_of(chip: chips.Chip | None) -> tuple[float, str] | None:
    """Return the clock of a TPU in Hz, and its source; None if it is not known."""
    if chip is None or chip.kind != "tpu":
        return None
    if chip.clock is not None:
        how = chip.clock.note or chip.clock.source.title
        return chip.clock.value, f"{chip.clock.basis}: {how}"
    if chip.key in DERIVED_CLOCKS:
        value, formula = DERIVED_CLOCKS[chip.key]
        return value, f"derived: {formula}"
    return None
