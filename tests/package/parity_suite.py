"""What the tests of the serving page's script share: points, what Python says, a comparison."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import random
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser

import roofline_helpers as rh
from roofline_helpers import serving
from roofline_helpers.serving import LLAMA_3_8B, NARROW, STRATEGIES, Step

TOLERANCE = 1e-12
THOROUGH = bool(os.environ.get("ROOFLINE_THOROUGH"))
CHIPS = [chip.key for chip in rh.all_chips()]
SIZES = [
    *((1, 1, 1), (1, 4096, 4096), (64, 14336, 4096), (127, 129, 131), (512, 512, 512)),
    *((2048, 2048, 2048), (8192, 8192, 8192), (3, 100_000_003, 7), (10**6, 10**6, 10**6)),
]
INTENSITIES = (0, 0.25, 1, 17.3, 295.2, 1e4)
SHAPES = [(1, 1), (1, 2048), (64, 2048), (7, 333), (256, 8192), (3, 131072), (1000, 17), (9, 2)]
RUN = """(points) => JSON.stringify(points.map(([what, ...given]) => {
  if (what === "product") {
    const [chip, dtype, unit, [m, n, k], intensity, types, reached] = given;
    const roof = model.roof(chip, dtype, unit, reached);
    const work = model.matmul(m, n, k, dtype, types);
    const chain = [work, model.rowwise("rmsnorm", m, n, "bf16", {x: "c", y: "d"}),
                   model.rowwise("layernorm", m, n, "fp32", {x: "s", y: "t"})];
    return {
      roof, work, time: model.time(roof, work), row: model.time(roof, chain[2]),
      roofed: model.attainable(roof, intensity),
      bound: model.bound(roof, intensity), mfu: model.mfu(roof, 312e12),
      efficiency: intensity ? model.efficiency(roof, 312e12, intensity) : 0,
      fused: model.fuse(chain.slice(0, 2)), kept: model.fuse(chain.slice(0, 2), ["c"]),
      total: model.total(chain), first: model.firstComputeBound(roof, dtype),
    };
  }
  if (what === "types") {
    const pass = (x, y) => model.elementwise(given[1], x, y, 1, "bf16");
    const chain = [pass({x: "bf16"}, {t: "int8"}), pass({t: "int8"}, {y: "fp32"}),
                   pass({t: "int8", x: "bf16"}, {z: "bf16"})];
    return {types: serving.types(given[0]), formats: serving.formats(given[0]),
            counts: serving.counts(given[0]), stays: model.resident(chain, 1000, ["z"], [])};
  }
  if (what === "step") return serving.step(given[0]);
  if (what === "instead") return serving.instead(given[0]);
  const best = serving.bestBatch(...given);
  return best && {batch: best.batch, seconds: best.step.seconds, fits: best.step.fits};
}))"""


# --- the points -----------------------------------------------------------------------------------


def formats(chip: rh.Chip) -> list[tuple[str, str]]:
    """Return (weights, activations) that a chip can multiply."""
    weights = [(each, chip.half) for each in (chip.half, *NARROW)]
    return weights + [(each, each) for each in ("fp8", "int8") if each in chip.matrix]


def settings() -> Iterator[dict[str, Any]]:
    """Yield a third of all chip × format × cache × phase × fusion × attention, shapes in turn."""
    chance = random.Random(7)
    shapes = itertools.cycle(SHAPES)
    flags = itertools.cycle(itertools.product((False, True), (True, False), (False, True)))
    reserves = itertools.cycle((0, 0.1, 0.25))
    for chip in rh.all_chips():
        every = itertools.product(
            formats(chip),
            (chip.half, *NARROW),
            serving.PHASES,
            STRATEGIES,
            serving.ATTENTION,
        )
        third = [each for each in every if chance.random() < 1 / 3]
        counts = serving.chip_counts(LLAMA_3_8B, chip)
        for (weights, activations), cache, phase, fusion, attention in third:
            batch, context = next(shapes)
            reached, floor, resident = next(flags)
            yield {
                **{"chip": chip.key, "phase": phase, "batch": batch, "context": context},
                **{"weights": weights, "activations": activations, "cache": cache},
                **{"fusion": fusion, "attention": attention},
                **{"reached": reached, "floor": floor, "resident": resident},
                **{"reserve": next(reserves), "model": chance.choice(serving.MODELS)},
                "chips": chance.choice(counts),
            }


def products() -> Iterator[list[Any]]:
    intensities = itertools.cycle(INTENSITIES)
    reached = itertools.cycle((False, True))
    others = itertools.cycle([{}, {"b": "int4"}, {"out": "fp32"}, {"b": "fp8", "out": "bf16"}])
    for chip in rh.all_chips():
        pairs = [(dtype, unit) for unit in ("matrix", "vector") for dtype in getattr(chip, unit)]
        pairs += [(dtype, None) for dtype in {**chip.matrix, **chip.vector}]
        for (dtype, unit), size in itertools.product(pairs, SIZES):
            more = (next(intensities), next(others), next(reached))
            yield ["product", chip.key, dtype, unit, size, *more]


def points() -> list[list[Any]]:
    """Return all points to compare."""
    steps = [["step", each] for each in settings()]
    some = [setting for _, setting in steps[::41]]
    latencies = itertools.cycle([1e-3, 0.01, 0.05, 0.2, 2, 1e5])
    every = [*products(), *steps]
    sizes = itertools.cycle((1000, 200, 300, 400))  # all fits, and less and less of it
    every += [["types", chip, next(sizes)] for chip in CHIPS]
    every += [["instead", setting] for setting in some]
    every += [["best", setting, next(latencies)] for setting in some]
    return every


# --- what Python says -----------------------------------------------------------------------------


def work_data(job: rh.Work) -> dict[str, Any]:
    return {
        **{"reads": dict(job.reads), "writes": dict(job.writes), "dtype": job.dtype},
        **{"matrix": job.matrix_flops, "vector": job.vector_flops, "flops": job.flops},
        "bytes": job.bytes,
        "intensity": job.intensity if job.bytes else None,  # JSON has no infinity
    }


def product_data(
    chip: str,
    dtype: str,
    unit: str | None,
    size: tuple[int, int, int],
    intensity: float,
    types: dict[str, str],
    reached: bool,
) -> dict[str, Any]:
    roof = rh.chip(chip).roofline(dtype, unit, reached=reached)
    job = rh.work.matmul(*size, dtype, **types)
    m, n, _ = size
    # without parameters, which the page's version takes only where they are named
    norm = rh.work.rmsnorm(m, n, "bf16", x="c", y="d")
    norm = rh.Work(**{**_fields(norm), "reads": {"c": norm.reads["c"]}})
    other = rh.work.layernorm(m, n, "fp32", x="s", y="t")
    other = rh.Work(**{**_fields(other), "reads": {"s": other.reads["s"]}})
    chain = [job, norm, other]
    fitting = job.writes["c"] == norm.reads["c"]
    return {
        "roof": {
            **{"peak": roof.peak, "bandwidth": roof.bandwidth},
            **{"vector": roof.vector, "ridge": roof.ridge, "floor": roof.floor},
        },
        "work": work_data(job),
        "time": {"seconds": roof.time(job), "limit": roof.limit(job), "times": roof.times(job)},
        "row": {
            "seconds": roof.time(other),
            "limit": roof.limit(other),
            "times": roof.times(other),
        },
        "roofed": roof.attainable(intensity),
        "bound": roof.bound(intensity),
        "mfu": roof.mfu(312e12),
        "efficiency": roof.efficiency(312e12, intensity) if intensity else 0,
        # Python refuses to fuse where "c" is made in one type and read in another
        "fused": work_data(rh.fuse(job, norm)) if fitting else ...,
        "kept": work_data(rh.fuse(job, norm, keep=["c"])) if fitting else ...,
        "total": work_data(rh.total(*chain)),
        "first": first_compute_bound(roof, dtype),
    }


def _fields(job: rh.Work) -> dict[str, Any]:
    return {name: getattr(job, name) for name in rh.Work.__dataclass_fields__}


@functools.cache
def intensity_of_square(n: int, dtype: str) -> float:
    return float(rh.work.matmul(n, n, n, dtype).intensity)


def first_compute_bound(roof: rh.Roofline, dtype: str) -> int:
    def above(n: int) -> bool:
        return bool(roof.bound(intensity_of_square(n, dtype)) == "compute")

    low, high = 0, 1
    while not above(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def _sums(step: Step) -> dict[str, float] | None:
    if step.setting.chips == 1:
        return None
    ((_, count, each),) = step.exchanges
    own = {"count": count, "bytes": each.nbytes, "seconds": step.comms / count}
    return {**own, "total": step.comms}


def step_data(step: Step) -> dict[str, Any]:
    memory = step.memory
    return {
        "setting": {
            **{name: getattr(step.setting, name) for name in ("phase", "batch", "context")},
            **{name: getattr(step.setting, name) for name in ("weights", "activations", "cache")},
            **{name: getattr(step.setting, name) for name in ("fusion", "attention")},
            **{name: getattr(step.setting, name) for name in ("reached", "floor", "resident")},
            **{"reserve": step.setting.reserve, "chips": step.setting.chips},
        },
        "sums": _sums(step),
        "kernels": [
            {
                **work_data(kernel.work),
                **{"name": kernel.name, "ops": list(kernel.ops), "count": kernel.count},
                **{"seconds": kernel.seconds, "total": kernel.total, "limit": kernel.limit},
                **{"bound": kernel.bound, "attainable": kernel.attainable},
            }
            for kernel in step.kernels
        ],
        **{"seconds": step.seconds, "tokens": step.setting.tokens, "fits": step.fits},
        **{"tokensPerSecond": step.tokens_per_second, "timePerToken": step.time_per_token},
        **{"flops": step.flops, "bytes": step.bytes, "intensity": step.intensity},
        **{"mfu": step.mfu, "peak": step.peak, "room": memory.room},
        "memory": {
            **{"weights": memory.weights, "cache": memory.cache, "total": memory.total},
            **{"activations": memory.activations, "capacity": memory.capacity},
            "reserve": memory.reserve,
        },
    }


def expected(point: list[Any]) -> Any:
    what, *arguments = point
    if what == "product":
        return product_data(*arguments)
    if what == "types":
        chip = rh.chip(arguments[0])
        pairs = [{"weights": one, "activations": other} for one, other in formats(chip)]
        chain = [
            rh.work.elementwise(arguments[1], reads, writes, 1, "bf16")
            for reads, writes in (
                ({"x": "bf16"}, {"t": "int8"}),
                ({"t": "int8"}, {"y": "fp32"}),
                ({"t": "int8", "x": "bf16"}, {"z": "bf16"}),
            )
        ]
        stays = rh.work.resident(*chain, capacity=1000, onward=["z"])
        return {
            "types": [chip.half, *NARROW],
            "formats": pairs,
            "counts": serving.chip_counts(LLAMA_3_8B, chip),
            "stays": [work_data(each) for each in stays],
        }
    setting = dict(arguments[0])
    if what == "best":
        del setting["batch"]
        best = serving.best_batch(latency=arguments[1], **setting)
        return best and {"batch": best.setting.batch, "seconds": best.seconds, "fits": best.fits}
    step = serving.step(**setting)
    if what == "step":
        return step_data(step)
    return {
        "chips": step.fewest_chips(),
        "batch": step.largest_batch(),
        "context": step.largest_context(),
        "narrower": [
            {name: getattr(one.setting, name) for name in ("weights", "activations", "cache")}
            for one in step.narrower()
        ],
    }


# --- comparing ------------------------------------------------------------------------------------


def faults(mine: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Yield where what the page says differs from what Python says; ... is whatever it says."""
    if mine is ...:
        return
    if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() <= theirs.keys():
        # the page's results hold what Python's have elsewhere: chip, model, name of a product
        if more := theirs.keys() - mine.keys() - {"chip", "model", "name"}:
            yield f"{where}: {sorted(more)} are the page's alone"
        for key in mine:
            yield from faults(mine[key], theirs[key], f"{where}.{key}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for i, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from faults(one, other, f"{where}[{i}]")
    elif type(mine) in (int, float) and type(theirs) in (int, float):
        if not math.isclose(mine, theirs, rel_tol=TOLERANCE):
            yield f"{where}: {mine!r} and {theirs!r}"
    elif mine != theirs or type(mine) is not type(theirs):
        yield f"{where}: {mine!r} and {theirs!r}"


def in_browser(chromium: Browser, script: str, asked: list[list[Any]]) -> list[Any]:
    page = chromium.new_page()
    try:
        answers: list[Any] = json.loads(
            page.evaluate(f"(points) => {{ {script}\nreturn ({RUN})(points) }}", asked)
        )
        return answers
    finally:
        page.close()


def one_in_a_few(few: dict[str, int]) -> list[list[Any]]:
    """Return one point in so many of each kind."""
    every = points()
    return [point for kind, n in few.items() for point in [p for p in every if p[0] == kind][::n]]
