"""``roofline doctor``: what this machine can do, and what to install for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import roofline_helpers
from roofline_helpers.command import tables


@dataclass(frozen=True)
class Ability:
    """One thing that a machine can do or not: what it has for it, or what is missing."""

    name: str
    can: bool
    text: str


def doctor(*, json: bool) -> int:
    """Print what this machine can do; return 1 where it can't compile anything."""
    abilities = list(found())
    if json:
        tables.as_json([asdict(each) for each in abilities])
    else:
        rows = [[each.name, "yes" if each.can else "no", each.text] for each in abilities]
        tables.console().print(tables.table(["", "", ""], rows, right=False))
    return 0 if any(each.can for each in abilities if each.name.startswith("compile")) else 1


def found() -> Iterator[Ability]:
    """Yield what this machine can do, one thing after another."""
    own = f"roofline_helpers {roofline_helpers.__version__}, Python {platform.python_version()}"
    yield Ability("count by hand", True, f"{own}, {platform.system()} {platform.machine()}")
    yield _has("draw", "matplotlib", "pip install matplotlib")
    jax = _has("run JAX", "jax", "pip install jax, on Linux x86-64 'jax[tpu]'")
    yield jax
    if not jax.can:
        yield Ability("compile", False, "needs JAX")
        return
    yield from _compilers()
    yield from _device()


def _has(what: str, module: str, install: str) -> Ability:
    if importlib.util.find_spec(module) is None:
        return Ability(what, False, f"{module} is not installed: {install}")
    return Ability(what, True, f"{module} {importlib.metadata.version(module)}")


def _compilers() -> Iterator[Ability]:
    from roofline_helpers.compiled import targets

    for key in targets.TOPOLOGIES:
        missing = targets.can_compile(key)
        text = missing or f"{targets.compiler('tpu')}, no TPU needed"
        yield Ability(f"compile for {key}", missing is None, text)


def _device() -> Iterator[Ability]:
    from roofline_helpers.compiled import targets

    try:
        device = targets.first_device()
    except RuntimeError as error:
        yield Ability("run here", False, str(error).splitlines()[0])
        return
    import jax

    chip = targets.chip_of(device)
    known = f"the chip table has it as {chip.key}" if chip else "it is not in the chip table"
    many = len(jax.devices())
    yield Ability(
        "compile here, and measure",
        True,
        f"{many} × {device.device_kind}: {known}; roofline measure finds its ceilings",
    )
    yield Ability("explain", True, "the profiler of JAX gives each kernel's time on this device")
    yield _counters(str(device.platform))
    yield _joules(str(device.platform))


def _counters(kind: str) -> Ability:
    name = "counters of memory"
    if kind != "gpu":
        return Ability(name, False, "only NVIDIA's GPUs have them here (Nsight Compute)")
    ncu = shutil.which("ncu")
    if ncu is None:
        return Ability(name, False, "install Nsight Compute (ncu), and allow it to read them")
    return Ability(name, True, ncu)


def _joules(kind: str) -> Ability:
    if kind != "gpu":
        return Ability("joules", False, "only NVIDIA's GPUs report them here")
    return _has("joules", "pynvml", "pip install nvidia-ml-py")
