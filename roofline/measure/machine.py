"""This machine: its device, caches, free memory, host, software."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from roofline.xla.targets import first_device
from roofline_helpers import chips
from roofline_helpers.common.checks import RooflineError
from roofline_helpers.measured.record import Device, Host


def on_cpu() -> bool:
    """Return whether the default device is a CPU."""
    return str(first_device().platform) == "cpu"


def last_cache() -> int:
    """Return the bytes of the default device's last cache, or a generous guess.

    A CPU's is read from the operating system, a GPU's L2 from the chip table. A TPU has no cache
    between its memory and its VMEM, so this is VMEM's size.

    Examples
    --------
    >>> last_cache() > 2**18
    True
    """
    device = first_device()
    if device.platform == "cpu":
        return _cpu_cache() or 64 * 2**20
    with contextlib.suppress(RooflineError):
        memory = chips.chip(device).memory
        for level in ("l2", "vmem"):
            if level in memory:
                return int(memory[level].capacity.value)
    return 128 * 2**20


def _cpu_cache() -> int | None:
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = path.read_text("ascii").strip()
            sizes.append(int(text[:-1]) * 1024 ** " KMG".index(text[-1]))
    return max(sizes, default=None)


def free_memory() -> int | None:
    """Return the free bytes of the default device's memory; None if it doesn't report them.

    Examples
    --------
    >>> free = free_memory()
    >>> free is None or free > 0
    True
    """
    device = first_device()
    if device.platform != "cpu":
        with contextlib.suppress(Exception):
            stats = device.memory_stats()
            return int(stats["bytes_limit"] - stats["bytes_in_use"])
        return None
    limits = []
    with contextlib.suppress(OSError, ValueError):
        free = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("ascii"))
        limits += [int(free[1]) * 1024] if free else []
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text("ascii"))
        limits.append(limit - int((group / "memory.current").read_text("ascii")))
    return max(min(limits), 0) if limits else None


def device_facts() -> Device:
    """Return a record's facts about the default device: platform, kind, chip, driver, memory.

    Examples
    --------
    >>> sorted(device_facts())[:3]
    ['cache', 'chip', 'count']
    """
    import jax

    device = first_device()
    kind = str(device.device_kind)
    chip = None
    with contextlib.suppress(RooflineError):
        chip = chips.chip(device).key
    name = _cpu_name() if device.platform == "cpu" else kind
    driver = None
    if device.platform == "gpu":
        driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    with contextlib.suppress(Exception):
        driver = driver or str(device.client.platform_version).strip().split("\n")[0][:200]
    return {
        "platform": device.platform,
        "kind": kind,
        "name": name,
        "chip": chip,
        "count": jax.device_count(),
        "driver": driver,
        "memory": free_memory(),
        "cache": last_cache(),
    }


def host_facts() -> Host:
    """Return a record's facts about the host machine.

    Examples
    --------
    >>> "machine" in host_facts()
    True
    """
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


def now() -> str:
    """Return the current time in UTC, in the format of records.

    Examples
    --------
    >>> now()[-1]
    'Z'
    """
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def software_versions() -> dict[str, str]:
    """Return the versions that a record names.

    Examples
    --------
    >>> "jax" in software_versions()
    True
    """
    versions = {"python": platform.python_version()}
    for name in ("roofline_helpers", "jax", "jaxlib", "numpy", "libtpu", "torch", "triton"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
        model = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
        if model:
            return model[1].strip()
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def _output(*command: str) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip().split("\n")[0] or None
    return None


def busy() -> Iterator[str]:
    """Yield a note if other processes keep the host busy.

    Examples
    --------
    >>> all("busy" in note for note in busy())
    True
    """
    with contextlib.suppress(OSError, AttributeError):
        load, cores = os.getloadavg()[0], _cores()
        if load > cores + 0.5:
            yield (
                f"busy machine: load {load:.1f} on {cores} cores, so figures of the CPU are too low"
            )
