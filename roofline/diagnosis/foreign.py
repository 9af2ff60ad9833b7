"""Profiles that others wrote: what a file is that JAX's profiler did not write, and what to do."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from roofline_helpers.common.show import many

JAX = "jax.profiler.trace(FOLDER) around a few steps writes what explain reads"
XLA_ONLY = "explain reads what XLA compiled and JAX's profiler traced"


class Kind(NamedTuple):
    """A kind of file: what it is called, how one knows it, and what to do instead."""

    called: str
    named: str
    begins: str
    advice: str


KINDS = (
    Kind(
        "a trace of PyTorch's profiler",
        r"\.pt\.trace\.json(\.gz)?$",
        r'"(deviceProperties|record_shapes|with_stack|distributedInfo)"',
        f"{XLA_ONLY}. A PyTorch trace opens in ui.perfetto.dev; to hold its kernels against a "
        "roof, count them with roofline_helpers.work and ask roofline_helpers.measured.expected",
    ),
    Kind(
        "a Chrome or Perfetto trace",
        r"trace\.json(\.gz)?$|\.(perfetto-trace|perfetto|pftrace)$",
        r'"traceEvents"',
        f"it is drawn from a profile, without its programs. {JAX}: give its *.xplane.pb",
    ),
    Kind(
        "a report of NVIDIA Nsight Systems",
        r"\.(nsys-rep|qdrep)$|\.sqlite$",
        r"CUPTI_ACTIVITY|TARGET_INFO_|nvtx",
        f"{XLA_ONLY}. Of a JAX program: {JAX}, without Nsight",
    ),
    Kind(
        "a report of NVIDIA Nsight Compute",
        r"\.ncu-rep$",
        r"^NVR\0",
        f"it has counters of single kernels. For a program's time: {JAX}",
    ),
    Kind(
        "a profile of AMD's tools",
        r"\.(rpd|rocpd|pftrace)$|results\.(csv|json|db)$",
        r"rocpd_|rocprof|roctx",
        f"{XLA_ONLY}, on AMD too. Of a JAX program: {JAX}",
    ),
    Kind(
        "what XProf made of a profile",
        r"\.(overview_page|hlo_proto|kernel_stats|op_stats|input_pipeline|memory_profile)\S*\.pb$",
        r"$.",
        "give the *.xplane.pb that it was made of, which lies in the same folder",
    ),
    Kind(
        "a profile of memory",
        r"\.prof$|memory\S*\.(pickle|pkl)$",
        r"$.",
        f"it has no times. {JAX}; roofline.analyze says what fills the memory",
    ),
    Kind(
        "a program's text",
        r"\.(hlo|mlir|stablehlo)$",
        r"^HloModule |^module @|^#loc",
        "no clock has seen it: roofline.analyze counts a function's program",
    ),
    Kind(
        "a record of explain",
        r"$.",
        r'"schema": ?"roofline\.explained/',
        "roofline compare takes two of them, roofline.diagnosis.load_explanation reads one",
    ),
    Kind(
        "a record of this package",
        r"$.",
        r'"schema": ?"roofline',
        "roofline compare takes two reports of roofline analyze --out",
    ),
)
"""Kinds of files that people have, the most telling first."""


def kind_of(file: Path) -> Kind | None:
    """Return what a file is, by what it begins with, else by its name."""
    try:
        opened = gzip.open if file.name.endswith(".gz") else open
        with opened(file, "rb") as stream:
            text = stream.read(1 << 16).decode("latin-1")
    except (OSError, EOFError):
        text = ""
    known: list[Kind] = []
    if text.startswith("SQLite format 3"):
        known = [kind for kind in KINDS if "sqlite" in kind.named or "rpd" in kind.named]
    elif text.lstrip()[:1] in ("{", "[", "H", "m", "#", "N"):
        known = list(KINDS)
    by_content = next((kind for kind in known if re.search(kind.begins, text)), None)
    return by_content or next((kind for kind in KINDS if re.search(kind.named, file.name)), None)


def instead(file: Path) -> str:
    """Return what a file is and what to do with it; empty if nobody knows."""
    kind = kind_of(file)
    if kind is None:
        return ""
    beside = sorted(file.parent.glob("*.xplane.pb"))
    advice = f"the same run is in {beside[0]}: give that" if beside else kind.advice
    return f"{kind.called}: {advice}"


def contents(folder: Path) -> str:
    """Return what a folder without a profile of JAX has in it, and what to do."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not files:
        begun = (folder / "plugins/profile").is_dir()
        return f"it is empty. {'stop_trace() was never called' if begun else JAX}"
    kinds = Counter(kind for file in files[:500] if (kind := kind_of(file)) is not None)
    if not kinds:
        return f"no *.xplane.pb in it, among {many(len(files), 'file')}. {JAX}"
    kind, count = kinds.most_common(1)[0]
    more = f" and {count - 1} more" if count > 1 else ""
    return f"no *.xplane.pb in it, but {kind.called}{more}: {kind.advice}"
