"""Fit the laws of measured kernels, and judge them on shapes and chips that were left out.

    python -m measurements.laws ../shared/measured      every law, from the benchmark's files
    python -m measurements.laws FAMILY CHIP DTYPE       one, from a table of the package

Needs scipy and the tables of `measurements.condense`, the first also pyarrow. Left out of a fit
are 30% of the weights (pairs of n and k; heads and their size; experts), at random, with all their
shapes. On these the law is compared with the bare roof and with the nearest shape that was fitted.
Of collectives, all sizes of 30% of the messages are left out. Of what Google published for v7x,
each of the few points in turn; there only what so few points can tell is fitted.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.spatial import cKDTree

from measurements import condense
from roofline.network import collective, topology
from roofline.network.measured import COPIED, MODES, sent_to_experts
from roofline_helpers.chips import chip
from roofline_helpers.common.dtypes import width
from roofline_helpers.measured.laws import FASTEST, Errors, Law, every_law, least_times
from roofline_helpers.measured.tables import FOLDER, TYPES, count, summed_length, table
from roofline_helpers.work import matmul

# Columns that say which weights a shape has: shapes with the same ones are left out together
WEIGHTS = {
    "matmul": ["n", "k"],
    "prefill_attention": ["heads", "kv_heads", "head_dim"],
    "decode_attention": ["heads", "kv_heads", "head_dim"],
    "prefill_mla": ["batch"],
    "decode_mla": ["batch"],
    "grouped_matmul": ["hidden", "inter", "experts", "local_experts", "top_k"],
}
SIZES = {
    "matmul": ["m", "n", "k"],
    "prefill_attention": ["batch", "heads", "kv_heads", "head_dim", "kv_len"],
    "prefill_mla": ["batch", "heads", "kv_len"],
    "grouped_matmul": ["tokens", "hidden", "inter", "experts", "local_experts", "top_k"],
}
SIZES |= {"decode_attention": SIZES["prefill_attention"], "decode_mla": SIZES["prefill_mla"]}
# Of experts' exchanges, each way and in each mode
SENT = {f"{op}, {mode}": (op, mode) for op in ("dispatch", "combine") for mode in MODES}
WEIGHTS |= {name: ["hidden", "experts", "top_k", "gpus"] for name in SENT}
SIZES |= {name: ["tokens", "hidden", "top_k", "gpus"] for name in SENT}
FEWEST = 200  # shapes: below that nothing is fitted
BEGIN = np.log([3e-6, 0.7, 0.7, 2.0, 4e-10])
LOWEST = np.log([1e-7, 0.01, 0.01, 1.0, 1e-14])
HIGHEST = np.log([1e-3, 10.0, 10.0, 12.0, 1e-6])
# Of mixtures: what passes activations on is a term of its own, so no share of the peak is above 1
GROUPED = {"highest": np.log([1e-3, 1.0, 10.0, 12.0, 1e-6])}
# Of collectives, which compute nothing, and whose middle sizes take longer than the sum of parts
EXCHANGE = {
    "lowest": np.log([1e-7, 1.0, 0.01, 0.3, 1e-14]),
    "highest": np.log([1e-3, 1.0, 10.0, 12.0, 1e-4]),
    "begin": np.log([8e-6, 1.0, 0.7, 0.6, 1e-6]),
}


# What the tables call a collective, and its name elsewhere
COLLECTIVES = {
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_reduce": "all-reduce",
    "alltoall": "all-to-all",
}
# GB/s of one of a v7x's two devices, by MB copied: tpu-recipes, microbenchmarks/ironwood/hbm/hbm.md
COPIES = {
    2: 1379.3,
    4: 2249.7,
    8: 2246.1,
    16: 2757.3,
    32: 3009.8,
    64: 3097.2,
    128: 3176.5,
    256: 3167.1,
    512: 3199.0,
    1024: 3198.4,
    2048: 3203.5,
    4096: 3197.9,
    8192: 3210.5,
}


def curve(logs: Any, x: Any) -> Any:
    """Return the law's seconds for the logarithms of its constants."""
    start, compute, memory, corner, step = np.exp(logs)
    parts = (x[0] / compute) ** corner + (x[1] / memory) ** corner
    return start + (parts + (step * x[2]) ** corner) ** (1 / corner)


def fit(
    x: Any, seconds: Any, lowest: Any = LOWEST, highest: Any = HIGHEST, begin: Any = BEGIN
) -> Any:
    """Return the logarithms of the constants: least relative errors, outliers weighted down."""
    bounds = (lowest, highest + 1e-9)  # what may not vary has equal bounds

    def off(logs: Any) -> Any:
        return np.log(curve(logs, x) / seconds)

    first = np.clip(begin, *bounds)
    return least_squares(off, first, bounds=bounds, loss="soft_l1", f_scale=0.1).x


def errors(predicted: Any, seconds: Any) -> Errors:
    off = np.abs(predicted / seconds - 1)
    return Errors(*(round(float(np.quantile(off, q)), 4) for q in (0.5, 0.9)))


def law_of(names: tuple[str, ...], logs: Any, **judged: Any) -> Law:
    constants = [float(f"{value:.4g}") for value in np.exp(logs)]
    known: dict[str, Any] = dict(zip(Law.__struct_fields__, (*names, *constants), strict=False))
    return Law(**known, **judged)


def inputs(rows: pd.DataFrame, family: str, on: str, dtype: str) -> Any:
    """Return what the law of a family takes for each row: two least times, and a length."""
    if family in COLLECTIVES.values():
        place = {n: topology(on, n, multicast=False) for n in (2, 4, 8)}
        # an all-to-all is named by all devices' arrays together
        whole = rows["bytes"] * (rows["gpus"] if family == "all-to-all" else 1)
        ways = [
            collective(family, v, place[n].fast) for v, n in zip(whole, rows["gpus"], strict=True)
        ]
        link = [way.phases[0].transfer for way in ways]
        return np.stack([np.zeros(len(rows)), link, rows["gpus"] - 1.0])
    if family in SENT:
        wired, zero, mode = chip(on).links["nvlink"], np.zeros(len(rows)), SENT[family][1]
        sent = sent_to_experts(mode, rows["tokens"], rows["top_k"], rows["gpus"])
        sent *= rows["hidden"] * width(dtype)
        others = rows["gpus"] - 1.0 if mode == COPIED else zero
        return np.stack([zero, sent / (wired.count * wired.rate.value), others])
    job = count(family, rows, dtype)
    zero = np.zeros(len(rows))
    first = least_times(job, chip(on))
    return np.stack([first[0] + zero, first[1] + zero, summed_length(job) + zero])


def judged(rows: pd.DataFrame, names: tuple[str, ...]) -> Law | None:
    """Fit one law on 70% of the weights, judge it on the others."""
    family, on, dtype, _ = names
    exchange = family in (*COLLECTIVES.values(), *SENT)
    groups = rows.groupby(WEIGHTS.get(family, "bytes")).ngroup().to_numpy()
    if family == "grouped_matmul":  # whole models, if there are enough
        models = rows.groupby(["hidden", "experts", "top_k"]).ngroup().to_numpy()
        groups = models if models.max() >= 4 else groups
    if (len(rows) < FEWEST and not exchange) or groups.max() < 4:
        return None
    try:
        x = inputs(rows, family, on, dtype)
    except LookupError:  # the chip has no such unit: weights only, say
        return None
    seconds = rows["seconds"].to_numpy()
    out = np.random.default_rng(0).random(groups.max() + 1)[groups] < 0.3
    ends: dict[str, Any] = EXCHANGE if exchange else {}
    ends = GROUPED if family == "grouped_matmul" else ends
    logs = fit(x[:, ~out], seconds[~out], **ends)
    sizes = np.log(rows[SIZES.get(family, ["bytes", "gpus"])].to_numpy(dtype=float))
    _, near = cKDTree(sizes[~out]).query(sizes[out])
    return law_of(
        names,
        logs,
        shapes=int((~out).sum()),
        left_out=int(out.sum()),
        law=errors(curve(logs, x[:, out]), seconds[out]),
        roof=errors(np.maximum(x[0], x[1])[out], seconds[out]),
        nearest=errors(seconds[~out][near], seconds[out]),
    )


def of_tpu(family: str, x: Any, seconds: Any, lowest: Any, highest: Any) -> Law:
    """Fit the few points of v7x, and judge each by the others: what has equal bounds is given."""
    every = range(len(seconds))
    others = [[other for other in every if other != one] for one in every]
    fits = [fit(x[:, rest], seconds[rest], lowest, highest) for rest in others]
    out = np.array([curve(logs, x[:, one]) for one, logs in enumerate(fits)])
    near = [one - 1 if one else 1 for one in every]  # sizes double, or nearly
    return law_of(
        (family, "v7x", "bf16", FASTEST),
        fit(x, seconds, lowest, highest),
        shapes=len(seconds),
        left_out=len(seconds),
        law=errors(out, seconds),
        roof=errors(np.maximum(x[0], x[1]), seconds),
        nearest=errors(seconds[near], seconds),
    )


def tpus() -> list[Law]:
    """Return the laws of v7x: one device's copies, and its products of square matrices."""
    device = chip("v7x").per_device()
    moved = np.array([2 * 2**20 * size for size in COPIES], dtype=float)
    bandwidth = device.roofline().bandwidth
    x = np.stack([0 * moved, moved / bandwidth, 0 * moved])
    no_step = np.array([LOWEST[4]])
    low, high = (np.concatenate([[ends[0], 0, ends[2], 0], no_step]) for ends in (LOWEST, HIGHEST))
    copied = of_tpu("copy", x, moved / np.array(list(COPIES.values())) / 1e9, low, high)
    sides = np.array(list(chip("v7x").reached.sizes["bf16"]))
    rates = np.array(list(chip("v7x").reached.sizes["bf16"].values())) / chip("v7x").devices
    job = matmul(sides, sides, sides)
    x = np.stack([*least_times(job, device), sides])
    plateau = np.log([copied.memory])
    low, high = (np.concatenate([e[:2], plateau, e[3:4], no_step]) for e in (LOWEST, HIGHEST))
    return [of_tpu("matmul", x, job.flops / rates, low, high), copied]


def unseen(laws: list[Law], rows: dict[tuple[str, ...], pd.DataFrame]) -> list[Law]:
    """Return the laws with the error of constants taken from the other chips alone."""
    done = []
    for law in laws:
        others = [
            [one.start, one.compute, one.memory, one.corner, one.step]
            for one in laws
            if one.chip != law.chip
            and (one.family, one.dtype, one.library) == (law.family, law.dtype, law.library)
        ]
        if len(others) >= 3:
            here = rows[law.family, law.chip, law.dtype, law.library]
            x = inputs(here, law.family, law.chip, law.dtype)
            logs = np.log(np.maximum(others, 1e-17)).mean(axis=0)
            law = msgspec.structs.replace(law, unseen=errors(curve(logs, x), here["seconds"]))
        done.append(law)
    return done


def measured(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each family with the rows that its laws are fitted to."""
    for family in [name for name in WEIGHTS if name not in SENT]:
        best = table(family).astype({"dtype": str, "chip": str}).assign(library=FASTEST)
        every = condense.FAMILIES[family](folder, {}) if family == "matmul" else best[:0]
        every["dtype"] = every["dtype"].replace(condense.DTYPES)
        yield family, pd.concat([best, every], ignore_index=True)
    exchanged = table("collective")
    wired = exchanged["chip"].map(lambda on: "nvlink" in chip(str(on)).links).astype(bool)
    exchanged = exchanged[wired & (exchanged["dtype"] == "fp16")].assign(library=FASTEST)
    for op, family in COLLECTIVES.items():
        yield family, exchanged[exchanged["op"] == op]
    sent = table("expert_exchange").assign(library=FASTEST)
    for family, (op, mode) in SENT.items():
        yield family, sent[(sent["op"] == op) & (sent["mode"] == mode)]


def one(*names: str) -> list[Law]:
    """Return all laws, that of a family, a chip and a type fitted anew to its table."""
    rows = table(names[0]).astype({"chip": str, "dtype": str})
    rows = rows[(rows["chip"] == names[1]) & (rows["dtype"] == names[2])]
    law = judged(rows, (*names, FASTEST))
    if law is None:
        sys.exit(f"{len(rows)} shapes: {FEWEST} of five or more pairs of weights make a law")
    print(law, law.law, law.roof, law.nearest)
    laws = {_names(known): known for known in every_law()}  # a new one comes last
    return list({**laws, _names(law): law}.values())


def _names(law: Law) -> tuple[str, ...]:
    return law.family, law.chip, law.dtype, law.library


def write(laws: list[Law]) -> None:
    """Write the laws, one a line."""
    every = [msgspec.json.format(msgspec.json.encode(law), indent=0) for law in laws]
    (FOLDER / "laws.json").write_bytes(b"[\n" + b",\n".join(every) + b"\n]\n")


def main() -> None:
    if len(sys.argv) > 2:
        write(one(*sys.argv[1:]))
        return
    laws, frames = [], {}
    for family, rows in measured(Path(sys.argv[1])):
        for key, here in rows.groupby(["chip", "dtype", "library"], observed=True):
            names = (family, *(str(part) for part in key))
            law = judged(here, names) if names[2] in {*TYPES, "fp16"} else None
            if law:
                laws.append(law)
                frames[names] = here
                print(*names, law.law, law.roof, law.nearest, flush=True)
    write(unseen(laws, frames) + tpus())


if __name__ == "__main__":
    main()
