"""Fit a law to each class of the measured kernels, and judge it on what was left out.

    python -m measurements.kernel_laws

Reads `kernels.csv`, and writes `kernel-laws.json` and `kernel-errors.csv` beside it. A case counts
once, however many of its kernels are of a class. Cases are left out in turn, in twenty parts (of
fewer than twenty cases, one by one); laws fitted on one GPU are judged on the other; and families
are left out whole, which tells how wide an interval must be for kernels of a class that nobody
measured. Needs SciPy; a minute.
"""

import csv
import math
from collections import Counter, defaultdict
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares

from measurements.kernels import CHIPS
from measurements.kernels import cases as kernel_cases
from roofline_helpers.chips import chip
from roofline_helpers.measured.kernels import (
    FEWEST,
    Call,
    KernelLaw,
    Neighbours,
    features_of_row,
    interval,
    measured_kernels,
    parts,
)
from roofline_helpers.measured.laws import law_of
from roofline_helpers.measured.tables import FOLDER
from roofline_helpers.work import Work, flash_attention, matmul

TERMS = {
    "stream": "bytes, blocks, instructions, chain",
    "transpose": "bytes, elements, elements of a byte, instructions",
    "normalisation": "bytes, rows",
    "reduction": "bytes, vector, along, along across, chain, instructions",
    "matmul": "bytes, FLOPs, FLOPs unaligned, FLOPs of a byte, waves, along",
    "attention": "bytes, FLOPs, FLOPs of 128, rows, along",
    "attention backward": "bytes, FLOPs, FLOPs of 128, rows, along",
    "convolution": "bytes, waves, narrow",
    "depthwise convolution": "bytes, elements",
    "scan": "bytes, vector, elements, instructions, chain",
    "gather": "bytes, blocks, elements, chain",
    "scatter": "bytes, elements, sectors",
    "atomics": "bytes, elements, hits, sectors",
    "atomics of 16 bits": "bytes, elements, retries",
    "sort": "bytes, compares, rounds, passes",
    "radix sort": "bytes, rows, along",
    "FFT": "bytes, bytes of odd lengths, rounds",
    "random bits": "bytes, vector",
    "Cholesky": "along together, along alone, cubes, bytes",
    "LU": "along together, along alone, squares, bytes",
    "pivots": "along together, along alone, elements",
    "triangular solve": "along together, along alone, columns, bytes",
    "eigenvalues": "along together, along alone, squares, cubes",
}
FEW = 10
"""Cases below which nothing is fitted."""
PARTS = 20
Guess = tuple[Any, list[Any], Any]
"""Of each row the seconds by a law, the residuals of rows like it, and how many cases those are."""
START = np.log([3e-7, 1.2e-6, 2e-5])
CORNER = np.log([1.0, 1.5, 6.0])


def model(p: Any, x: Any) -> Any:
    """Return seconds by a law's constants, whose logarithms are `p`: start, weights, corner."""
    shares = x * np.exp(p[1:-1])
    largest = np.maximum(shares.max(1), 1e-30)
    q = np.exp(p[-1])
    return np.exp(p[0]) + largest * ((shares / largest[:, None]) ** q).sum(1) ** (1 / q)


def fit(x: Any, y: Any, weights: Any, begin: Any = None) -> Any:
    """Return the logarithms of a law's constants that err least, in logarithms."""
    if begin is None:
        there = [column > 0 for column in x.T]
        usual = [np.median(y[at] / x[at, n]) if at.any() else 1.0 for n, at in enumerate(there)]
        begin = np.concatenate([[START[1]], np.log(np.array(usual) * 0.3), [CORNER[1]]])
    k = x.shape[1]
    lowest = np.concatenate([[START[0]], np.full(k, -60.0), [CORNER[0]]])
    highest = np.concatenate([[START[2]], np.full(k, 30.0), [CORNER[2]]])
    begin = np.clip(begin, lowest + 1e-6, highest - 1e-6)
    found = least_squares(
        lambda p: np.sqrt(weights) * np.log(model(p, x) / y),
        begin,
        bounds=(lowest, highest),
        loss="soft_l1",
        f_scale=0.2,
        max_nfev=300,
    )
    return found.x


def quantiles(values: Any, weights: Any, at: tuple[float, ...]) -> list[float]:
    """Return weighted quantiles."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return [float(values[order][min(np.searchsorted(share, q), len(order) - 1)]) for q in at]


class Kind:
    """The measured kernels of one class."""

    def __init__(self, kind: str, rows: list[dict[str, str]]) -> None:
        self.names = TERMS[kind].split(", ")
        self.chips = np.array([row["chip"] for row in rows])
        self.families = np.array([row["family"] for row in rows])
        self.cases = np.array([f"{row['chip']} {row['case']}" for row in rows])
        found = [parts(features_of_row(row), chip(row["chip"])) for row in rows]
        self.x = np.array([[each[name] for name in self.names] for each in found])
        self.y = np.array([float(row["cold_s"]) for row in rows])
        often = Counter(self.cases)
        self.runs = np.array([float(row["runs"]) * float(row["alike"]) for row in rows])
        self.weights = np.array([1 / often[case] for case in self.cases])
        self.p = fit(self.x, self.y, self.weights)

    def predicted(self, inside: Any, judged: Any) -> Guess:
        """Return what a law fitted to some rows says of others.

        Seconds by the law, residuals of those like each, weighted towards none, and how many cases.
        """
        p = fit(self.x[inside], self.y[inside], self.weights[inside], self.p)
        shares = self.x * np.exp(p[1:-1])
        by_law = model(p, self.x)
        known = Neighbours(shares[inside], self.y[inside], by_law[inside], self.cases[inside])
        numbers, residuals = [], []
        for n in np.flatnonzero(judged):
            like = known.like(shares[n], np.exp(p[0]))
            numbers.append(len(set(known.cases[like])))
            residuals.append(np.log(known.seconds[like] / known.by_law[like]))
        return by_law[judged], residuals, np.array(numbers)

    def left_out(self, groups: Any) -> Guess:
        """Return the same for every row, with its group left out."""
        seconds, numbers = np.zeros(len(self.y)), np.zeros(len(self.y))
        residuals: list[Any] = [None] * len(self.y)
        for group in sorted(set(groups)):
            judged = groups == group
            if judged.all():
                continue
            by_law, near, number = self.predicted(~judged, judged)
            seconds[judged], numbers[judged] = by_law, number
            for at, each in zip(np.flatnonzero(judged), near, strict=True):
                residuals[at] = each
        return seconds, residuals, numbers


def centred(seconds: Any, residuals: list[Any], numbers: Any) -> Any:
    """Return the seconds to expect: by the law, and by those like each where there are some."""
    return np.array(
        [
            interval(t, r, n, 1.0, 1.0)[0]
            for t, r, n in zip(seconds, residuals, numbers, strict=True)
        ]
    )


def intervals(law: KernelLaw, guess: Guess) -> Any:
    """Return the seconds to expect of each row, and the ends of its interval."""
    return np.array(
        [
            interval(t, r, n, *((law.low, law.high) if n >= FEWEST else law.wide))
            for t, r, n in zip(*guess, strict=True)
        ]
    )


def judged(kind: Kind, ends: Any, numbers: Any, at: Any) -> dict[str, Any]:
    """Return median error, share inside and width of predictions for some rows."""
    middle, low, high = ends[at].T
    y, weights = kind.y[at], kind.weights[at]
    errors = np.abs(middle / y - 1)
    whole = weights.sum()
    return {
        "kernels": int(at.sum()),
        "cases": len(set(kind.cases[at])),
        "median_error": round(quantiles(errors, weights, (0.5,))[0], 4),
        "error_90": round(quantiles(errors, weights, (0.9,))[0], 4),
        "inside": round(float((((low <= y) & (y <= high)) * weights).sum() / whole), 3),
        "width": round(quantiles(high / low, weights, (0.5,))[0], 3),
        "like_it": round(float(((numbers[at] >= FEWEST) * weights).sum() / whole), 3),
    }


def summary(kind: Kind) -> tuple[KernelLaw, Guess, Guess]:
    """Return a class's law, and what it says of each row with its case or family left out."""
    cases = sorted(set(kind.cases))
    number = {case: n % PARTS for n, case in enumerate(cases)}
    guess = kind.left_out(np.array([number[case] for case in kind.cases]))
    apart = np.log(kind.y / centred(*guess))
    near = guess[2] >= FEWEST
    near = near if near.sum() >= FEW else np.ones(len(near), bool)
    low, high = np.exp(quantiles(apart[near], kind.weights[near], (0.1, 0.9)))
    families = kind.left_out(kind.families)
    known = families[0] > 0
    wide = low**1.5, high**1.5  # of few families: those of left-out cases, with a margin
    if len(set(kind.families[known])) > 2:
        far = np.log(kind.y[known] / families[0][known])
        often = Counter(kind.families[known])
        even = np.array([1 / often[family] for family in kind.families[known]])
        ends = np.exp(quantiles(far, np.sqrt(even) * kind.weights[known], (0.1, 0.9)))
        wide = min(ends[0], low), max(ends[1], high)
    shares = kind.x * np.exp(kind.p[1:-1]) / model(kind.p, kind.x)[:, None]
    weights = zip(kind.names, np.exp(kind.p[1:-1]), shares.max(0), strict=True)
    law = KernelLaw(
        start=rounded(np.exp(kind.p[0])),
        corner=rounded(np.exp(kind.p[-1])),
        weights={name: rounded(weight) for name, weight, share in weights if share > 0.02},
        low=rounded(low),
        high=rounded(high),
        wide=(rounded(wide[0]), rounded(wide[1])),
        cases=len(cases),
        families=len(set(kind.families)),
    )
    return law, guess, families


def beside_libraries(rows: list[dict[str, str]], name: str) -> KernelLaw:
    """Return what XLA's kernels take of the time by serving libraries' law, where both are known.

    It is what can be said of a GPU on which only the libraries' kernels were measured.
    """
    like: dict[str, Work] = {
        "matmul": matmul(64, 64, 64),
        "attention": flash_attention(1, 128, 128, causal=True),
    }
    shares, cases, families = [], set(), set()
    for row in rows:
        of = features_of_row(row)
        law = law_of(like[name], row["chip"])
        if law is None or of.kind != name or of.dtype != "bf16":
            continue
        roof = chip(row["chip"]).roofline("bf16")
        by_law = law.time(of.flops / roof.peak, of.bytes / roof.bandwidth, of.sizes[1])
        shares.append(float(row["cold_s"]) / by_law)
        cases.add((row["chip"], row["case"]))
        families.add(row["family"])
    low, middle, high = map(float, np.quantile(shares, (0.1, 0.5, 0.9)))
    ends = rounded(low / middle), rounded(high / middle)
    return KernelLaw(0.0, 1.0, {"law": rounded(middle)}, *ends, ends, len(cases), len(families))


def of_calls(by_case: dict[str, list[Any]]) -> Call:
    """Return how kernels add up to a call: the programs that a clock timed, and what was left out.

    `by_case` has, of each case, its rows' seconds measured, expected, low and high, and how often
    each ran.
    """
    clocks, sums, launches = [], [], []
    for key in CHIPS:
        for case in kernel_cases(key):
            own = [kernel for kernel in case["kernels"] if kernel[0]]
            if case.get("clock_s", 0) > 8e-5 and (total := sum(kernel[5] for kernel in own)) > 8e-5:
                clocks.append(case["clock_s"])
                sums.append(total)
                launches.append(sum(kernel[3] for kernel in own))
    clock, added, count = map(np.array, (clocks, sums, launches))
    gap = float(np.median(np.maximum(clock - added, 0) / count))
    apart = clock / (added + gap * count)
    programs = [np.array(rows) for rows in by_case.values() if len(rows) > 3]
    for correlation in (0.0, 0.1, 0.2, 0.3, 0.5, 1.0):
        inside = []
        for rows in programs:
            took, middle, low, high, often = rows.T
            below, above = ((middle - low) * often, (high - middle) * often)
            total = float((took * often).sum())
            ends = [
                math.sqrt(correlation * d.sum() ** 2 + (1 - correlation) * (d**2).sum())
                for d in (below, above)
            ]
            expected = float((middle * often).sum())
            inside.append(expected - ends[0] <= total <= expected + ends[1])
        if np.mean(inside) >= 0.8:
            break
    print(
        f"{len(programs)} programs: {np.mean(inside):.0%} inside with a correlation {correlation}"
    )
    print(f"{len(clock)} calls: {gap}, {np.quantile(apart, (0.1, 0.5, 0.9))}")
    low, high = map(float, np.quantile(apart, (0.1, 0.9)))
    return Call(rounded(gap), rounded(low), rounded(high), correlation)


def small(row: dict[str, str], key: str) -> bool:
    return row["chip"] == key and row["kind"] == "stream" and float(row["bytes"]) < 1e4


def rounded(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    """Fit, judge, and write both files."""
    rows = measured_kernels()
    laws, errors = {}, []
    by_case: dict[str, list[Any]] = defaultdict(list)
    for name in TERMS:
        kind = Kind(name, [row for row in rows if row["kind"] == name])
        law, guess, families = summary(kind)
        laws[name] = law
        ends = intervals(law, guess)
        for case, took, middle, often in zip(kind.cases, kind.y, ends, kind.runs, strict=True):
            by_case[case].append((took, *middle, often))
        for key in CHIPS:
            here = kind.chips == key
            other = kind.left_out(kind.chips)
            for what, said in (("cases", guess), ("chip", other)):
                found = judged(kind, intervals(law, said), said[2], here)
                errors.append({"kind": name, "chip": key, "left_out": what, **found})
        if families[0].all() and law.families > 2:
            every = np.ones(len(kind.y), bool)
            found = judged(kind, intervals(law, families), families[2], every)
            errors.append({"kind": name, "chip": "", "left_out": "family", **found})
        print(name, law, *errors[-3:], sep="\n  ")
    for name in ("matmul", "attention"):
        laws[f"{name} beside libraries"] = beside_libraries(rows, name)
    least = {
        key: rounded(np.quantile([float(row["cold_s"]) for row in rows if small(row, key)], 0.1))
        for key in CHIPS
    }
    text = msgspec.json.encode({"kinds": laws, "call": of_calls(by_case), "least": least})
    (FOLDER / "kernel-laws.json").write_bytes(msgspec.json.format(text, indent=1) + b"\n")
    with (FOLDER / "kernel-errors.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(errors[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(errors)


if __name__ == "__main__":
    main()
