"""What the page of promises prints: pairs of programs, what `explain` promised, what was gained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import roofline_helpers as rh
from page_board import markdown
from roofline import evidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLEAN = "nothing in vain"
SAME = {"zeros and one-hots": "zeros", "done again": "again"}
"""Kinds that the pairs call otherwise than `explain` does."""
LEAST = 0.05
"""Share of the call from which on a promise counts as one."""
ALARM = 0.1
"""Share of the call above which a kind of waste in a clean program is a false alarm."""


@dataclass(frozen=True)
class Promised:
    """One pair: its row of the record, and how the first promise compares with the gain."""

    row: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.row["name"])

    @property
    def kind(self) -> str:
        kind = str(self.row["kind"])
        return SAME.get(kind, kind)

    @property
    def gain(self) -> float:
        return float(self.row["before"] - self.row["after"])

    @property
    def promise(self) -> Mapping[str, Any] | None:
        """The first finding that states a saving of more than `LEAST` of the call."""
        worth = LEAST * self.row["before"]
        stated = (f for f in self.row["now"] if f["saves"] and f["seconds"] >= worth)
        return next(stated, None)

    @property
    def ends(self) -> tuple[float, float]:
        assert self.promise is not None
        low, high = self.promise["saves"]
        return low, high

    @property
    def kept(self) -> bool:
        low, high = self.ends
        return low <= self.gain <= high

    def first(self, findings: int) -> bool:
        """Return whether one of the first findings is of the pair's kind."""
        return self.kind in [finding["kind"] for finding in self.row["now"][:findings]]

    @property
    def beaten(self) -> bool:
        return self.row["needed"] is not None and self.row["after"] < self.row["needed"]

    @property
    def alarms(self) -> list[Mapping[str, Any]]:
        """Kinds of waste that a program without any is said to have."""
        worth = ALARM * self.row["before"]
        return [f for f in self.row["now"] if f["kind"] and f["seconds"] > worth]


@cache
def pairs(record: str = "repairs") -> tuple[Promised, ...]:
    """Return all pairs that were timed, on a GPU, or on a CPU ("repairs-cpu")."""
    return tuple(map(Promised, evidence.load(record)["pairs"]))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}".replace("-", "−")


def _then(pair: Promised) -> str:
    then = pair.row["then"]
    if then is None:
        return "not asked"
    ends = then["saves"]
    return f"{_ms(ends[0])} to {_ms(ends[1])}" if ends else f"none ({then['cause']})"


def _now(pair: Promised) -> str:
    found = pair.promise
    if found is None:
        first = next(iter(pair.row["now"]), None)
        return f"none ({first['cause']})" if first else "none"
    return f"{_ms(pair.ends[0])} to {_ms(pair.ends[1])}"


def _row(pair: Promised) -> list[str]:
    source = pair.row["source"]
    name = f"[{pair.name}]({source})" if source else pair.name
    verdict = "–" if pair.promise is None else "yes" if pair.kept else "no"
    found = next(iter(pair.row["now"]), None)
    said = (found["kind"] or found["cause"]) if found else "nothing"
    times = [_ms(pair.row["before"]), _ms(pair.row["after"]), _ms(pair.gain)]
    return [name, pair.kind, said, _then(pair), _now(pair), verdict, *times]


def promises() -> dict[str, str]:
    """Return the texts of the page, by name."""
    record, every = evidence.load("repairs"), pairs()
    wasted = [pair for pair in every if pair.kind != CLEAN]
    clean = [pair for pair in every if pair.kind == CLEAN]
    stated = [pair for pair in every if pair.promise is not None]
    old = [pair for pair in every if pair.row["first"]]
    then = [pair for pair in old if pair.row["then"] and pair.row["then"]["saves"]]
    had = [p for p in then if p.row["then"]["saves"][0] <= p.gain <= p.row["then"]["saves"][1]]
    slower = [pair for pair in wasted if pair.row["ratio"] < 1]
    later = [pair for pair in stated if pair.name not in record["seen"]]
    missed = [pair for pair in wasted if not pair.first(2) and pair not in slower]
    known = [pair for pair in every if pair.row["needed"] is not None]
    heads = ["pair", "kind", "said first", "promised before", "promised now", "kept"]
    return {
        "promises_pairs": str(len(every)),
        "promises_wasted": str(len(wasted)),
        "promises_stated": str(len(stated)),
        "promises_kept": str(sum(pair.kept for pair in stated)),
        "promises_least": str(sum(pair.gain >= pair.ends[0] for pair in stated)),
        "promises_seen": str(len(record["seen"])),
        "promises_later": f"{sum(pair.kept for pair in later)} of {len(later)}",
        "promises_old": str(len(old)),
        "promises_then": str(len(then)),
        "promises_then_kept": str(len(had)),
        "promises_first": str(sum(pair.first(1) for pair in wasted)),
        "promises_two": str(sum(pair.first(2) for pair in wasted)),
        "promises_slower": f"{len(slower)} of them: {_names(slower)}",
        "promises_needed": str(len(known)),
        "promises_beaten": _reasons(BEATEN, [pair for pair in known if pair.beaten]),
        "promises_clean": str(len(clean)),
        "promises_alarms": str(sum(bool(pair.alarms) for pair in clean)),
        "promises_broken": _reasons(BROKEN, [pair for pair in stated if not pair.kept]),
        "promises_missed": _names(missed),
        "promises_not_run": ", ".join(f"`{name}`" for name in record["not_run"]),
        "promises_device": record["device"].removeprefix("NVIDIA "),
        "promises_jax": record["software"]["jax"],
        **_on_a_cpu(),
        "promises_table": markdown([*heads, "before, ms", "after", "gain"], map(_row, every), 3),
    }


def _on_a_cpu() -> dict[str, str]:
    every = pairs("repairs-cpu")
    wasted = [pair for pair in every if pair.kind != CLEAN]
    stated = [pair for pair in every if pair.promise is not None]
    broken = [
        f"`{pair.name}` (promised {_now(pair)} ms, gained {_ms(pair.gain)})"
        for pair in stated
        if not pair.kept
    ]
    return {
        "promises_cpu_processors": str(evidence.load("repairs-cpu")["processors"]),
        "promises_cpu_pairs": str(len(every)),
        "promises_cpu_busy": str(sum(pair.row["busy"] for pair in every)),
        "promises_cpu_wasted": str(len(wasted)),
        "promises_cpu_first": str(sum(pair.first(1) for pair in wasted)),
        "promises_cpu_two": str(sum(pair.first(2) for pair in wasted)),
        "promises_cpu_stated": str(len(stated)),
        "promises_cpu_kept": str(sum(pair.kept for pair in stated)),
        "promises_cpu_broken": ", ".join(broken),
    }


def _names(some: list[Promised]) -> str:
    return ", ".join(f"`{pair.name}`" for pair in some) or "none"


def _reasons(reasons: Mapping[str, str], some: list[Promised]) -> str:
    def told(pair: Promised) -> str:
        numbers = f"promised {_now(pair)}, gained {_ms(pair.gain)}"
        if pair.beaten:
            least, after = (rh.si(pair.row[name], "s") for name in ("needed", "after"))
            numbers = f"needed {least}, and the repair takes {after}"
        fastest, slowest = pair.row["spread"]["after"]
        times = {"after": pair.row["after"], "fastest": fastest, "slowest": slowest}
        reason = reasons.get(pair.name, "").format(
            **{name: rh.si(t, "s") for name, t in times.items()}
        )
        return f"- `{pair.name}`, {numbers}: {reason}"

    return "\n".join(map(told, some)) or "- none"


BEATEN: dict[str, str] = {}
"""Why a repair is faster than what the program before it needs."""

BROKEN = {
    "pair-hessian": "the promise is for the zeros alone. The array that holds them is named first, "
    "without a number, and the repair does without it, too.",
    "shifted-buffer": "the loop of the repair doesn't copy the buffer any more, but its 64 turns "
    "still take {after}, probably for launches, which the copies had hidden.",
    "cache-order": "the promise is for one of two copies, each with its line. The repair does "
    "without both.",
    "repeated-heads": "the promise is for reordering one array. That heads are repeated isn't "
    "found, since no kernel writes them, and the repair gains more.",
}
"""Why a promise isn't kept, as far as we know."""


def picture() -> Figure:
    """Draw what was promised against what was gained, one marker a pair."""
    import matplotlib.pyplot as plt

    from roofline_helpers import plot

    plot.use_style()
    figure, ax = plt.subplots(figsize=(4.5, 3.9))
    stated = [pair for pair in pairs() if pair.promise is not None]
    ends = (3e-6, 3e-2)
    ax.plot(ends, ends, color="gray", linewidth=1)
    looks = {True: ("o", "C0", "kept"), False: ("x", "C1", "not kept")}
    for kept, (marker, colour, label) in looks.items():
        own = [pair for pair in stated if pair.kept == kept]
        x = [math.sqrt(math.prod(pair.ends)) for pair in own]
        reach = [[x - p.ends[0], p.ends[1] - x] for x, p in zip(x, own, strict=True)]
        y = [max(pair.gain, ends[0]) for pair in own]
        ax.errorbar(x, y, xerr=list(zip(*reach, strict=True)), fmt="none", ecolor=colour, alpha=0.4)
        ax.scatter(x, y, marker=marker, color=colour, label=label, zorder=3, gid=f"pairs:{label}")
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda seconds, _: rh.si(seconds, "s", digits=2))
    ax.set(xlabel="promised saving of a call", ylabel="what the repair gained")
    ax.legend(loc="upper left")
    return figure
