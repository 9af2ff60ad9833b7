"""Two labs: measured matmuls under their roofs, and a model to serve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from markupsafe import Markup

from roofline import evidence as files
from roofline import serving
from roofline.labs.briefs import BRIEFS, COUNTED, DAYS, MARGIN, RENT, SHARING, judge
from roofline.labs.javascript import LAB
from roofline.serving import step
from roofline.serving.forward import StepKernel
from roofline_helpers import work
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.show import si, significant
from roofline_helpers.measured import law
from roofline_helpers.measured.tables import group
from roofline_helpers.models import LLAMA_3_8B
from roofline_helpers.pages.element import Element, fragment
from roofline_helpers.pages.instruments import percent, rate
from roofline_helpers.pages.questions import question
from roofline_helpers.roofline import Roofline
from roofline_helpers.work import Work


def lab(kind: str, data: Mapping[str, Any], predict: Element) -> Element:
    """Return a lab, with story, question and equations as the fallback."""
    parts = (Markup(predict.fallback), "\n".join(data["equations"]))
    plain = "\n".join([*data["story"], predict.plain])
    return Element(kind, data, str(fragment("lab", data["story"], *parts)), plain, bundle=LAB)


# --- Lab 1: two measured matmuls -----------------------------------------------------------------

SLOW, TUNABLE = (64, 8192, 8192), (512, 1024, 8192)
"""M, N and K of the story's matmuls: 64 tokens under a low roof, 512 tokens far below theirs."""

ROWS = [2**i for i in range(15)]
SIDES = (1024, 2048, 4096, 8192, 16384)
TIMED = {"h100": ("bf16", "fp8"), "h200": ("bf16", "fp8"), "b200": ("bf16", "fp8")}
"""The measured matmuls that the lab shows: M, N and K, chips with their types."""

WALL_EQUATIONS = [
    "attainable(I) = min(peak, bandwidth · I)          ridge = peak / bandwidth",
    "I of a matmul = FLOPs / bytes = 2·M·N·K / ((M·K + K·N) · input bytes + M·N · output bytes)",
    "MFU = achieved / peak          roofline efficiency = achieved / attainable(I)",
    "least time = max(FLOPs / peak, bytes / bandwidth)",
]


GOAL_SECONDS = 60e-6
"""The longest that a call may take in the memory wall's goal."""


def goal_cost(times: Mapping[str, Any], chip: str, dtype: str, m: int) -> float:
    """Return US dollars per billion tokens of a measured matmul with the goal's weights.

    Infinite where a call takes longer than the goal allows. `times` are the lab's, in microseconds.
    """
    seconds = 1e-6 * times[chip][dtype][f"{SLOW[1]}x{SLOW[2]}"][ROWS.index(m)]
    return RENT[chip] / 3600 * seconds / m * 1e9 if seconds <= GOAL_SECONDS else math.inf


def timed(chip: str, dtype: str, m: int, n: int, k: int) -> float:
    """Return the seconds of a measured matmul: the fastest library's."""
    rows = group("matmul", chip, dtype)
    here = (rows["m"] == m) & (rows["n"] == n) & (rows["k"] == k)
    return float(rows["seconds"][here].item())


def memory_wall() -> Element:
    """Return lab 1, "The memory wall": two measured matmuls, and which of them to tune.

    The reader predicts which kernel has more to gain, then plays with chip, shape and data type
    under the roof, where measured kernels appear, and chooses one for a goal that has a score.
    Answers and the last setting stay in the reader's ledger.

    Examples
    --------
    >>> memory_wall().kind  # doctest: +SKIP
    'memory-wall'
    """
    roof = chip_of("h100").roofline("bf16").without_floor()
    slow, tunable = (_Measured.matmul("h100", "bf16", *shape) for shape in (SLOW, TUNABLE))
    story = [
        f"Two bf16 matmuls of one model were timed on an H100. Its peak is {rate(roof.peak)}, and "
        f"its memory delivers {si(roof.bandwidth, 'B/s')}. Kernel A multiplies 64 tokens by an "
        f"8192 × 8192 weight matrix in {si(slow.seconds, 's')}. That is {rate(slow.achieved)}, or "
        f"{percent(roof.mfu(slow.achieved))} of the peak. Kernel B multiplies 512 tokens by an "
        f"8192 × 1024 matrix in {si(tunable.seconds, 's')}. That is "
        f"{rate(tunable.achieved)}, or {percent(roof.mfu(tunable.achieved))} of the peak.",
        "You have a week to tune one of the two kernels. The shape, the data type and the chip "
        "stay the same. Commit to an answer; the roofline opens after that.",
    ]
    usual = law("matmul", "h100", "bf16").seconds(tunable.work)
    predict = question("lab-memory-wall", slow=slow, tunable=tunable, roof=roof, usual=usual)
    measured = _times()
    data = {
        "key": "memory-wall",
        "keep": "Lab 1: your setting",
        "title": "Lab report: the memory wall",
        "story": story,
        "predict": predict.data,
        "locked": "The roofline opens when you have answered. A wrong answer opens it too.",
        "start": {
            "task": "free",
            "chip": "h100",
            "dtype": "bf16",
            **dict(zip("mnk", SLOW, strict=True)),
        },
        "measured": measured,
        "goal": _goal(measured["times"]),
        "tasks": [task.data for task in _wall_tasks(slow)],
        "reflect": _reflect_on_wall(slow).data,
        "equations": WALL_EQUATIONS,
    }
    return lab("memory-wall", data, predict)


def _goal(times: Mapping[str, Any]) -> dict[str, Any]:
    costs = [goal_cost(times, c, dtype, m) for c in TIMED for dtype in TIMED[c] for m in ROWS]
    rent = {chip: RENT[chip] for chip in TIMED}
    prices = ", ".join(
        f"{chip_of(c).name.removeprefix('NVIDIA ')} ${price:.2f}" for c, price in rent.items()
    )
    return {
        "name": "The goal: the cheapest token",
        "story": "Choose chip, type and tokens per call M for kernel A's weights, "
        f"{SLOW[2]} × {SLOW[1]}. A call may take {si(GOAL_SECONDS, 's')} at most, by the "
        "measured time, and a token should cost as little as possible. The score "
        "compares your cost with the cheapest of the measured kernels.",
        "priced": f"Illustrative prices per chip and hour, not offers: {prices}. Accuracy isn't "
        "scored: a narrow type has to be tested on the task.",
        "seconds": GOAL_SECONDS,
        "shape": {"n": SLOW[1], "k": SLOW[2]},
        "rent": rent,
        "best_cost": min(costs),
    }


class _Measured(NamedTuple):
    """A measured matmul under its roof, without the floor: many run one after the other."""

    roof: Roofline
    work: Work
    seconds: float

    @classmethod
    def matmul(cls, chip: str, dtype: str, m: int, n: int, k: int) -> _Measured:
        roof = chip_of(chip).roofline(dtype).without_floor()
        job = work.matmul(m, n, k, dtype, out="bf16")
        return cls(roof, job, timed(chip, dtype, m, n, k))

    @property
    def achieved(self) -> float:
        return float(self.work.flops / self.seconds)

    @property
    def limit(self) -> float:
        return float(self.roof.attainable(self.work))

    @property
    def of_roof(self) -> float:
        return self.achieved / self.limit

    @property
    def room(self) -> float:
        """The largest speed-up still possible."""
        return self.limit / self.achieved


def _times() -> dict[str, Any]:
    """Return the measured matmuls for the page, in microseconds of three digits."""
    times: dict[str, Any] = {}
    for chip, dtypes in TIMED.items():
        for dtype in dtypes:
            rows = group("matmul", chip, dtype)
            columns = zip(rows["m"], rows["n"], rows["k"], rows["seconds"], strict=True)
            found = {(m, n, k): float(f"{1e6 * seconds:.3g}") for m, n, k, seconds in columns}
            by_weights = times.setdefault(chip, {}).setdefault(dtype, {})
            for n, k in product(SIDES, SIDES):
                if (1, n, k) in found:  # some shapes are kept for blind tests
                    by_weights[f"{n}x{k}"] = [found[m, n, k] for m in ROWS]
    return {"rows": ROWS, "sides": SIDES, "times": times}


def _wall_tasks(slow: _Measured) -> list[Element]:
    narrow = _Measured.matmul("h100", "fp8", *SLOW)
    faster = _Measured.matmul("h200", "bf16", *SLOW)
    _, n, k = SLOW
    jobs = {m: work.matmul(m, n, k, "bf16") for m in ROWS}
    wide = _Measured.matmul("h100", "bf16", TUNABLE[0], 8192, 8192)
    return [
        question(
            "lab-wall-ridge",
            first=next(m for m, job in jobs.items() if slow.roof.bound(job) == "compute"),
            jobs=jobs,
            roof=slow.roof,
        ),
        question(
            "lab-wall-fp8",
            gain=slow.seconds / narrow.seconds,
            narrow=narrow,
            slow=slow,
            bytes=slow.work.bytes / narrow.work.bytes,
        ),
        question(
            "lab-wall-h200",
            gain=slow.seconds / faster.seconds,
            faster=faster,
            slow=slow,
            bandwidths=faster.roof.bandwidth / slow.roof.bandwidth,
        ),
        question("lab-wall-wide", wide=wide, share=100 * wide.of_roof),
    ]


def _reflect_on_wall(slow: _Measured) -> Element:
    def gain(kernel: _Measured) -> str:
        times = kernel.limit / slow.limit
        return f"{rate(kernel.limit)}, {significant(times)} times as high"

    m, n, k = SLOW
    return question(
        "lab-memory-wall-back",
        narrow=gain(_Measured.matmul("h100", "fp8", m, n, k)),
        large=gain(_Measured.matmul("h100", "bf16", 4 * m, n, k)),
        faster=gain(_Measured.matmul("h200", "bf16", m, n, k)),
    )


# --- Lab 2: serve a model from one chip or several -----------------------------------------------

TODAY: Mapping[str, Any] = {
    "phase": "decode",
    "batch": 8,
    "context": 2048,
    "fusion": "none",
    "attention": "naive",
    **COUNTED["reached"],
}
"""The server of the story, counted by measured rates and the floor of a launch."""

START: Mapping[str, Any] = {
    **{name: TODAY[name] for name in ("phase", "batch", "context", "fusion", "attention")},
    **{"brief": "free", "model": "llama-3-8b", "chip": "h100", "chips": "1"},
    **{"format": "bf16/bf16", "cache": "bf16", "counted": "reached"},
}
"""The initial values of the fields: the server of the story."""

EDGE: Mapping[str, Any] = {
    **{**TODAY, **COUNTED["published"], "batch": 1},
    **{"weights": "int8", "activations": "bf16", "cache": "bf16"},
}
"""The device of the other story: nobody measured its rates here, so published ones count."""

EDGE_CHIPS = ("orin-nx", "l4")

DESIGN_EQUATIONS = [
    "time of a kernel = max(matrix FLOPs / peak, vector FLOPs / vector peak, bytes / bandwidth, "
    "floor)",
    "time of a step = sum over all kernels of runs · time, and of the all-reduces",
    "all-reduces of n chips: 2 · layers of tokens · width · 2 bytes; each takes "
    "2 · (n − 1) / n times that over a chip's links, or as long as a server's own was measured",
    "decode:  time per token = step,  tokens per second = batch / step",
    "prefill: time to the first token = step,  tokens per second = batch · context / step",
    "bytes of a fused kernel = tensors that enter + tensors that leave",
    "KV cache = 2 · layers · KV heads · head size · bytes per element · context · batch "
    f"({LLAMA_3_8B.cache_per_token('bf16') // 1024} KiB per token in bf16)",
    "memory needed = weights + KV cache + the most activations alive at once + what the runtime "
    "keeps",
]


def design_challenge() -> Element:
    """Return lab 2, "The design challenge": serve Llama 3 8B from one chip.

    In a data centre the reader predicts which kernels are memory-bound, then changes today's
    server freely or designs one for a brief, which has a target, a budget, prices and a best known
    design. At the edge the server is a small device with one user. Answers and the last design
    stay in the reader's ledger.

    Examples
    --------
    >>> design_challenge().kind  # doctest: +SKIP
    """
    today = step(LLAMA_3_8B, "h100", **TODAY)
    roof = today.setting.chip.roofline("bf16", reached=True)
    between = _intensities(today)
    story = [
        f"You serve {LLAMA_3_8B.name} from one H100. Today's server decodes "
        f"{TODAY['batch']} sequences at a time, each with {TODAY['context']:,} tokens of "
        "context, in bf16, with every operation a kernel of its own. With each kernel as fast as "
        "its bytes, its FLOPs and its launch allow, it gives "
        f"{significant(today.tokens_per_second)} tokens per second.",
        "There is time for one change. Half of the team wants to fuse the small kernels, the "
        "other half to tune the matmuls. Look before you choose.",
    ]
    predict = _prediction(today, roof, between)
    data = {
        "key": "design",
        "keep": "Lab 2: your design",
        "story": story,
        "predict": predict.data,
        "locked": "The instruments open when you have answered. A wrong answer opens them too.",
        "title": "Lab report: the design challenge",
        "place": "In a data centre",
        "back": "Back to today's server",
        "start": dict(START),
        "edge": _edge(),
        "measured": _measured(),
        **_priced(),
        "tasks": [task.data for task in _design_tasks(today)],
        "reflect": _reflection(today).data,
        "equations": DESIGN_EQUATIONS,
    }
    return lab("design", data, predict)


def _edge() -> dict[str, Any]:
    """Return what differs at the edge: one user, a small chip, published rates."""
    today = step(LLAMA_3_8B, EDGE_CHIPS[0], **EDGE)
    chip, wide = today.setting.chip, today.but(weights="bf16")
    changed = {
        "narrow": today.but(weights="int4"),
        "cache": today.but(cache="int8"),
        "fused": today.but(fusion="epilogue", attention="flash"),
        "batch": today.but(batch=8),
    }
    gain = {k: step.tokens_per_second / today.tokens_per_second for k, step in changed.items()}
    larger = step(LLAMA_3_8B, EDGE_CHIPS[1], **EDGE)
    bandwidth, missing = chip.roofline("bf16").bandwidth, -wide.memory.room
    story = [
        f"You build a device that answers without a network: {LLAMA_3_8B.name} on one "
        f"{chip.name.removeprefix('NVIDIA ')}, for the one person who speaks to it. Its memory "
        f"holds {si(wide.memory.capacity, 'B')} and delivers {si(bandwidth, 'B/s')}. "
        f"In bf16 the model doesn't fit: with the runtime's tenth, {si(missing, 'B')} are "
        "missing. So the weights have 8 bits.",
        f"With {EDGE['context']:,} tokens of context the device gives "
        f"{significant(today.tokens_per_second)} tokens per second at most, by published rates: "
        "nobody measured this chip for this book. There is time for one change.",
    ]
    tasks = [
        question("lab-edge-batch", times=gain["batch"], today=today, changed=changed),
        question(
            "lab-edge-room",
            most=changed["narrow"].largest_batch(),
            changed=changed,
        ),
        question(
            "lab-edge-l4",
            times=larger.tokens_per_second / today.tokens_per_second,
            bandwidths=larger.setting.chip.roofline().bandwidth / bandwidth,
        ),
    ]
    own = {"brief": "free", "model": "llama-3-8b", "chip": chip.key, "chips": "1"}
    counted = {"format": "int8/bf16", "cache": "bf16", "counted": "published"}
    fields = {name: EDGE[name] for name in ("phase", "batch", "context", "fusion", "attention")}
    return {
        "key": "edge",
        "keep": "Lab 2: your device",
        "place": "At the edge",
        "back": "Back to today's device",
        "title": "Lab report: the design challenge at the edge",
        "story": story,
        "predict": question("lab-edge", gain=gain, today=today, changed=changed).data,
        "tasks": [task.data for task in tasks],
        "reflect": question("lab-edge-back", changed=changed).data,
        "start": {**own, **counted, **fields},
        "chips": EDGE_CHIPS,
        "briefs": {},
    }


def _measured() -> dict[str, Any]:
    """Return the measured steps for the page: milliseconds by program, for each batch."""
    record = files.decode()
    steps = [
        {"batch": row["batch"], "ms": {n: 1e3 * row[n] for n in row if n != "batch"}}
        for row in record["steps"]
    ]
    setting = {
        "model": "llama-3-8b",
        "chip": record["device"]["chip"],
        "context": record["context"],
    }
    return {**setting, "steps": steps}


def _priced() -> dict[str, Any]:
    """Return the briefs for the page, with their prices and the costs of the best known designs."""
    briefs = {}
    for key, brief in BRIEFS.items():
        types = "/".join(brief.best[name] for name in ("weights", "activations"))
        choices = {
            name: brief.best[name] for name in ("chip", "cache", "fusion", "attention", "batch")
        }
        fields = {**choices, "chips": str(brief.best["chips"]), "format": types}
        cost = judge(brief, brief.best).cost
        briefs[key] = {**brief._asdict(), "fields": fields, "best_cost": cost}
    words = (
        f"{DAYS['fusion']['epilogue']} to fuse into matmuls, {DAYS['attention']['flash']} for "
        f"flash attention, {DAYS['weights']['fp8']} for 8-bit and {DAYS['weights']['int4']} for "
        f"4-bit weights, {DAYS['activations']['fp8']} more for 8-bit activations, "
        f"{DAYS['cache']['fp8']} for an 8-bit cache, {SHARING} to share a model among chips"
    )
    prices = {"rent": RENT, "days": DAYS, "sharing": SHARING, "priced": words, "margin": MARGIN}
    return {"briefs": briefs, "counted": COUNTED, **prices}


def _design_tasks(today: serving.ServingStep) -> list[Element]:
    wide = today.but(batch=64)
    prompt = today.but(phase="prefill", batch=1)
    fused = prompt.but(fusion="epilogue")
    large = step("llama-3-70b", "h100", **{**TODAY, "batch": 64})
    record = files.decode()
    row = record["steps"][1]
    way = {"context": record["context"], "batch": row["batch"], "fusion": "epilogue"}
    said = {
        name: step(LLAMA_3_8B, record["device"]["chip"], **way, **counted).seconds
        for name, counted in COUNTED.items()
    }
    clock = min(value for name, value in row.items() if name != "batch")
    return [
        question(
            "lab-design-batch",
            gain=wide.tokens_per_second / today.tokens_per_second,
            today=today,
            wide=wide,
        ),
        question(
            "lab-design-norms",
            floor=groups_of(today)["rest"][0].roof.floor,
            longest=max(
                kernel.seconds for kernel in groups_of(today.but(**COUNTED["published"]))["rest"]
            ),
        ),
        question(
            "lab-design-why",
            gain=prompt.seconds / fused.seconds,
            fused=fused,
            prompt=prompt,
        ),
        question("lab-design-70b", fewest=large.fewest_chips(), large=large),
        question(
            "lab-design-clock",
            right=min(said, key=lambda name: abs(said[name] - clock)),
            clock=clock,
            said=said,
        ),
    ]


def _intensities(step: serving.ServingStep) -> dict[str, str]:
    """Return the range of FLOP/byte of the matmuls, of attention and of the norms."""
    groups = groups_of(step)
    groups["norms"] = [k for k in groups.pop("rest") if "RMSNorm" in k.name]
    ranges = {}
    for name, kernels in groups.items():
        every = [kernel.work.intensity for kernel in kernels if kernel.work.flops]
        ends = significant(min(every), 2), significant(max(every), 2)
        ranges[name] = " to ".join(dict.fromkeys(ends))  # one number where both are the same
    return ranges


def _prediction(today: serving.ServingStep, roof: Roofline, between: Mapping[str, str]) -> Element:
    groups = groups_of(today)
    share = {
        name: percent(sum(k.total for k in kernels) / today.seconds)
        for name, kernels in groups.items()
    }
    apart = groups_of(today.but(resident=False, floor=False))
    return question(
        "lab-design",
        launches=sum(kernel.launches for kernel in groups["rest"]),
        floor=si(groups["rest"][0].roof.floor, "s"),
        longest=si(max(kernel.seconds for kernel in apart["rest"]), "s"),
        batch=TODAY["batch"],
        between=between,
        ridge=significant(roof.ridge),
        peak=rate(roof.peak),
        share=share,
        used=percent(today.mfu),
    )


def groups_of(step: serving.ServingStep) -> dict[str, list[StepKernel]]:
    """Return the kernels of a step in the question's groups."""
    groups: dict[str, list[StepKernel]] = {
        "products": [],
        "attention": [],
        "rest": [],
    }
    for kernel in step.kernels:
        name = "products" if kernel.work.matrix_flops > 0 else "rest"
        groups["attention" if _attends(kernel) else name].append(kernel)
    return groups


def _attends(kernel: StepKernel) -> bool:
    return bool({"Q·Kᵀ", "P·V", "flash attention"} & set(kernel.ops))


def _reflection(today: serving.ServingStep) -> Element:
    h100 = today.setting.chip
    doubled = {
        name: replace(figure, value=2 * figure.value) for name, figure in h100.matrix.items()
    }
    reached = {
        name: replace(figure, value=2 * figure.value)
        for name, figure in h100.reached.matrix.items()
    }
    faster = replace(h100, matrix=doubled, reached=replace(h100.reached, matrix=reached))
    changed = {
        "cache": today.but(cache="fp8"),
        "fused": today.but(fusion="epilogue", attention="flash"),
        "tuned": today.but(hardware=faster),
        "narrow": today.but(weights="int4"),
        "batch": today.but(batch=64),
    }
    gain = {k: step.tokens_per_second / today.tokens_per_second for k, step in changed.items()}
    return question(
        "lab-design-back",
        right=max(gain, key=lambda name: gain[name]),
        gain=gain,
        launches={
            name: sum(kernel.launches for kernel in step.kernels)
            for name, step in {"today": today, "fused": changed["fused"]}.items()
        },
        today=today,
        batch=changed["batch"],
    )
