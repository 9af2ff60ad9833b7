"""What the tests of the serving page's script share: points, what Python says, a comparison."""

import itertools
import json
import math
import os
import random

import roofline_helpers as rh
from roofline import serving
from roofline.labs.javascript import MODELS
from roofline.serving.setting import NARROW
from roofline.serving.strategies import STRATEGIES
from roofline_helpers.models import LLAMA_3_8B

TOLERANCE = 1e-12
THOROUGH = bool(os.environ.get("ROOFLINE_THOROUGH"))
SIZES = [
    *(
        (1, 1, 1),
        (1, 4096, 4096),
        (64, 14336, 4096),
        (127, 129, 131),
        (512, 512, 512),
    ),
    *(
        (2048, 2048, 2048),
        (8192, 8192, 8192),
        (3, 100_000_003, 7),
        (10**6, 10**6, 10**6),
    ),
]
INTENSITIES = (0, 0.25, 1, 17.3, 295.2, 1e4)
SHAPES = [
    (1, 1),
    (1, 2048),
    (64, 2048),
    (7, 333),
    (256, 8192),
    (3, 131072),
    (1000, 17),
    (9, 2),
]
RUN = """(points) => JSON.stringify(points.map(([what, ...given]) => {
  if (what === "product") {
    const [chip, dtype, unit, [m, n, k], intensity, types, reached] = given;
    const roof = model.roof(chip, dtype, unit, reached);
    const work = model.matmul(m, n, k, dtype, types);
    return {
      roof, work, time: model.time(roof, work), bound: model.bound(roof, intensity),
      roofed: model.attainable(roof, intensity),
    };
  }
  if (what === "step") return serving.step(given[0]);
  if (what === "instead") return serving.instead(given[0]);
  const best = serving.bestBatch(...given);
  return best && {batch: best.batch, seconds: best.step.seconds, fits: best.step.fits};
}))"""


# --- the points -----------------------------------------------------------------------------------


def formats(chip):
    """Return (weights, activations) that a chip can multiply."""
    weights = [(dtype, chip.half) for dtype in (chip.half, *NARROW)]
    return weights + [(dtype, dtype) for dtype in ("fp8", "int8") if dtype in chip.matrix]


def settings():
    """Yield a third of all chip × format × cache × phase × fusion × attention, shapes in turn."""
    chance = random.Random(7)
    shapes = itertools.cycle(SHAPES)
    flags = itertools.cycle(itertools.product((False, True), (True, False), (False, True)))
    reserves = itertools.cycle((0, 0.1, 0.25))
    for chip in rh.all_chips():
        every = itertools.product(
            formats(chip),
            (chip.half, *NARROW),
            serving.setting.PHASES,
            STRATEGIES,
            serving.setting.ATTENTION,
        )
        third = [values for values in every if chance.random() < 1 / 3]
        counts = serving.tensor_parallel.chip_counts(LLAMA_3_8B, chip)
        for (weights, activations), cache, phase, fusion, attention in third:
            batch, context = next(shapes)
            reached, floor, resident = next(flags)
            yield {
                **{"chip": chip.key, "phase": phase, "batch": batch, "context": context},
                **{"weights": weights, "activations": activations, "cache": cache},
                **{"fusion": fusion, "attention": attention},
                **{"reached": reached, "floor": floor, "resident": resident},
                **{"reserve": next(reserves), "model": chance.choice(MODELS)},
                "chips": chance.choice(counts),
            }


def products():
    intensities = itertools.cycle(INTENSITIES)
    reached = itertools.cycle((False, True))
    others = itertools.cycle(
        [
            {},
            {"b": "int4"},
            {"out": "fp32"},
            {"b": "fp8", "out": "bf16"},
        ]
    )
    for chip in rh.all_chips():
        pairs = [(dtype, unit) for unit in ("matrix", "vector") for dtype in getattr(chip, unit)]
        pairs += [(dtype, None) for dtype in {**chip.matrix, **chip.vector}]
        for (dtype, unit), size in itertools.product(pairs, SIZES):
            more = (next(intensities), next(others), next(reached))
            yield ["product", chip.key, dtype, unit, size, *more]


def points():
    """Return all points to compare."""
    steps = [["step", setting] for setting in settings()]
    some = [setting for _, setting in steps[::41]]
    latencies = itertools.cycle([1e-3, 0.01, 0.05, 0.2, 2, 1e5])
    every = [*products(), *steps]
    every += [["instead", setting] for setting in some]
    every += [["best", setting, next(latencies)] for setting in some]
    return every


# --- what Python says -----------------------------------------------------------------------------


def work_data(job):
    return {
        **{"reads": dict(job.reads), "writes": dict(job.writes), "dtype": job.dtype},
        **{"matrix": job.matrix_flops, "vector": job.vector_flops, "flops": job.flops},
        "bytes": job.bytes,
        "intensity": job.intensity if job.bytes else None,  # JSON has no infinity
    }


def product_data(chip, dtype, unit, size, intensity, types, reached):
    roof = rh.chip(chip).roofline(dtype, unit, reached=reached)
    job = rh.work.matmul(*size, dtype, **types)
    return {
        "roof": {
            **{"peak": roof.peak, "bandwidth": roof.bandwidth},
            **{"vector": roof.vector, "ridge": roof.ridge, "floor": roof.floor},
        },
        "work": work_data(job),
        "time": {"seconds": roof.time(job), "limit": roof.limit(job), "times": roof.times(job)},
        "roofed": roof.attainable(intensity),
        "bound": roof.bound(intensity),
    }


def step_data(step):
    memory = step.memory
    return {
        "kernels": [
            {
                **work_data(kernel.work),
                **{"name": kernel.name, "count": kernel.launches},
                **{"seconds": kernel.seconds, "total": kernel.total, "limit": kernel.limit},
                **{"bound": kernel.bound, "attainable": kernel.roof.attainable(kernel.work)},
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


def expected(point):
    kind, *arguments = point
    if kind == "product":
        return product_data(*arguments)
    setting = dict(arguments[0])
    setting["hardware"] = setting.pop("chip")
    if kind == "best":
        del setting["batch"]
        best = serving.best_batch(latency=arguments[1], **setting)
        return best and {"batch": best.setting.batch, "seconds": best.seconds, "fits": best.fits}
    step = serving.step(**setting)
    if kind == "step":
        return step_data(step)
    return {
        "chips": step.fewest_chips(),
        "batch": step.largest_batch(),
        "context": step.largest_context(),
        "narrower": [
            {name: getattr(narrow.setting, name) for name in ("weights", "activations", "cache")}
            for narrow in step.narrower()
        ],
    }


# --- comparing ------------------------------------------------------------------------------------


def faults(mine, theirs, where=""):
    """Yield where what the page says differs from what Python says."""
    if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() <= theirs.keys():
        for key in mine:
            yield from faults(mine[key], theirs[key], f"{where}.{key}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for i, (my_item, their_item) in enumerate(zip(mine, theirs, strict=True)):
            yield from faults(my_item, their_item, f"{where}[{i}]")
    elif type(mine) in (int, float) and type(theirs) in (int, float):
        if not math.isclose(mine, theirs, rel_tol=TOLERANCE):
            yield f"{where}: {mine!r} and {theirs!r}"
    elif mine != theirs or type(mine) is not type(theirs):
        yield f"{where}: {mine!r} and {theirs!r}"


def in_browser(chromium, script, asked):
    page = chromium.new_page()
    try:
        answers = json.loads(
            page.evaluate(f"(points) => {{ {script}\nreturn ({RUN})(points) }}", asked)
        )
        return answers
    finally:
        page.close()


def one_in_a_few(few):
    """Return one point in so many of each kind."""
    every = points()
    return [point for kind, n in few.items() for point in [p for p in every if p[0] == kind][::n]]
