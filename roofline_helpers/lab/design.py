"""Lab 2: serve Llama 3 8B from one chip, or from several, and its larger sister."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from roofline_helpers import ask, evidence, serving
from roofline_helpers.ask import Element
from roofline_helpers.hardware import all_chips
from roofline_helpers.lab.shared import lab, percent, rate
from roofline_helpers.roofline import Roofline
from roofline_helpers.serving import LLAMA_3_8B, best_batch, step
from roofline_helpers.show import si, significant

TODAY: Mapping[str, Any] = {
    "phase": "decode",
    "batch": 8,
    "context": 2048,
    "fusion": "none",
    "attention": "naive",
    "reached": True,
    "resident": True,
    "reserve": 0.1,
}
"""The server of the story: ceilings that were reached, a floor for each kernel, activations on the
chip where they fit, and the share of memory that vLLM leaves alone unless told otherwise."""

START: Mapping[str, Any] = {
    **{name: TODAY[name] for name in ("phase", "batch", "context", "fusion", "attention")},
    **{"model": "llama-3-8b", "chip": "h100", "chips": "1"},
    **{"format": "bf16/bf16", "cache": "bf16", "latency": 20},
    **{"ceilings": "reached", "floor": "with", "between": "stays", "kept": 10},
}
"""What the fields say at first: the server of the story, in the fields' own words."""

TASKS = [
    "Raise the batch. Which kernels move to the right, and which stay where they are?",
    "Narrow the weights, then the cache. Which helps more at batch 1, which at batch 128?",
    "Change to prefill, batch 1. Which kernels have crossed the ridge? What do fusion and "
    "flash attention gain now, and what did they gain in decode?",
    "Take the v5e, then the Jetson Orin NX. What does not fit, and what would instead?",
    "Back to decode. Take published ceilings and leave the floor out: only the H100 and the H200 "
    "have a measured floor, and few chips measured ceilings. On each chip: the most tokens per "
    "second within 20 ms per token.",
    "Back to the H100, with the floor and the ceilings that were reached. Which of your choices "
    "would you make otherwise now?",
    "Fused into products, with flash attention, batch 8: double the chips that share the model "
    "until a step gets longer. Which part of it grew, and which shrank? At what batch does the "
    "last doubling pay after all?",
    "Take the 70B model. How few H100 hold it at batch 8, and how few at batch 64? How many v6e?",
]

EQUATIONS = [
    "time of a kernel = max(matrix FLOPs / peak, vector FLOPs / vector peak, bytes / bandwidth, "
    "floor)",
    "time of a step = sum over all kernels of runs · time, and of the all-reduces",
    "all-reduces of n chips: 2 · layers, each of tokens · width · 2 bytes and, by a ring, of "
    "2 · (n − 1) / n times that over each chip's links",
    "decode:  time per token = step,  tokens per second = batch / step",
    "prefill: time to the first token = step,  tokens per second = batch · context / step",
    "bytes of a fused kernel = tensors that enter + tensors that leave",
    "KV cache = 2 · layers · KV heads · head size · bytes per element · context · batch "
    f"({LLAMA_3_8B.cache_per_token('bf16') // 1024} KiB a token in bf16)",
    "memory needed = weights + KV cache + the most activations alive at once + what the runtime "
    "keeps",
]


def design_challenge() -> Element:
    """Return lab 2, "The design challenge": serve Llama 3 8B from one chip.

    The reader predicts which kernels are memory-bound, then chooses model, chip and how many of
    them share it, phase, batch, context, data types, fusion and attention, against memory and a
    latency target, and looks back.
    Answers and the last design stay in the reader's ledger.

    Examples
    --------
    >>> design_challenge().kind  # doctest: +SKIP
    """
    today = step(LLAMA_3_8B, "h100", **TODAY)
    roof = today.setting.chip.roofline("bf16", reached=True)
    ridge = significant(roof.ridge)
    between = _intensities(today)
    story = [
        f"You serve {LLAMA_3_8B.name} from one H100. Today's server decodes "
        f"{TODAY['batch']} sequences at a time, each with {TODAY['context']:,} tokens of "
        "context, in bf16, with every operation a kernel of its own. With each kernel as fast as "
        "its bytes, its FLOPs and its launch allow, it gives "
        f"{significant(today.tokens_per_second)} tokens per second.",
        "There is time for one change. Half of the team wants to fuse the small kernels, the "
        "other half to tune the matrix products. Look before you choose.",
    ]
    predict = _prediction(today, roof, between)
    data = {
        "key": "design",
        "keep": "Lab 2: your design",
        "story": story,
        "predict": predict.data,
        "locked": "The instruments open when you have answered. A wrong answer opens them too.",
        "start": dict(START),
        "measured": _measured(),
        "tasks": [*TASKS, _against_a_clock()],
        "reflect": _reflection(today).data,
        "equations": EQUATIONS,
    }
    alt = (
        f"Kernels of a decode step of {LLAMA_3_8B.name}, batch {TODAY['batch']}, under the roof "
        f"of the H100: all of them are far left of the ridge at {ridge}: attention's products "
        f"at {between['attention']} FLOP/byte, those with weights at {between['products']}, the "
        f"norms at {between['norms']}."
    )
    return lab("design", data, predict, _chip_rows(), lambda ax: _draw(today, ax), alt)


def _measured() -> dict[str, Any]:
    """Return the measured steps for the page: milliseconds by program, for each batch."""
    record = evidence.decode()
    steps = [
        {"batch": row["batch"], "ms": {n: 1e3 * row[n] for n in row if n != "batch"}}
        for row in record["steps"]
    ]
    same = {"model": "llama-3-8b", "chip": record["device"]["chip"], "context": record["context"]}
    return {**same, "steps": steps}


def _against_a_clock() -> str:
    """Return the task that holds the lab against a measured step."""
    record = evidence.decode()
    device, row = record["device"], record["steps"][1]
    here = step(
        LLAMA_3_8B,
        device["chip"],
        batch=row["batch"],
        context=record["context"],
        fusion="epilogue",
        reached=True,
        resident=True,
    )
    timed = [f"{significant(1e3 * row[name])} ms in {name}" for name in row if name != "batch"]
    return (
        f"Hold it against a clock: on an {here.setting.chip.name.split()[1]}, batch "
        f"{row['batch']}, fused into products, with flash attention, the lab says "
        f"{significant(1e3 * here.seconds)} ms. Measured there: {', '.join(timed)}. Set "
        "ceilings, floor and “between kernels” to their other choice, one at a time: which one "
        "takes the lab's time furthest from the measured ones?"
    )


def _chip_rows() -> list[dict[str, Any]]:
    """Return what each chip does with the model: its largest batch, and the best in time.

    All by published ceilings and without a floor: few chips have measured ones.
    """
    way = {**{name: TODAY[name] for name in ("resident", "reserve")}, "floor": False}
    return [
        {
            "chip": chip.name,
            "largest batch": one.largest_batch(),
            "within 20 ms per token": best.setting.batch if best else None,
            "tokens per second": best.tokens_per_second if best else None,
            "ms per token": best.seconds * 1e3 if best else None,
        }
        for chip in all_chips()
        for one in [step(LLAMA_3_8B, chip, **way)]
        for best in [best_batch(LLAMA_3_8B, chip, latency=0.02, **way)]
    ]


def _intensities(one: serving.Step) -> dict[str, str]:
    """Return the range of FLOP/byte of the products, of attention and of the norms."""
    groups = groups_of(one)
    groups["norms"] = [k for k in groups.pop("rest") if "RMSNorm" in k.name]
    return {
        name: " to ".join(
            dict.fromkeys(
                significant(end([k.work.intensity for k in kernels if k.work.flops]), 2)
                for end in (min, max)
            )
        )
        for name, kernels in groups.items()
    }


def _prediction(today: serving.Step, roof: Roofline, between: Mapping[str, str]) -> Element:
    groups = groups_of(today)
    share = {
        name: percent(sum(k.total for k in kernels) / today.seconds)
        for name, kernels in groups.items()
    }
    apart = groups_of(today.but(resident=False, floor=False))
    return ask.question(
        "lab-design",
        launches=sum(kernel.count for kernel in groups["rest"]),
        floor=si(groups["rest"][0].roof.floor, "s"),
        longest=si(max(kernel.seconds for kernel in apart["rest"]), "s"),
        batch=TODAY["batch"],
        between=between,
        ridge=significant(roof.ridge),
        peak=rate(roof.peak),
        share=share,
        used=percent(today.mfu),
    )


def groups_of(one: serving.Step) -> dict[str, list[serving.StepKernel]]:
    """Return the kernels of a step that the question asks about together."""
    groups: dict[str, list[serving.StepKernel]] = {"products": [], "attention": [], "rest": []}
    for kernel in one.kernels:
        other = "products" if kernel.work.matrix_flops > 0 else "rest"
        groups["attention" if _attends(kernel) else other].append(kernel)
    return groups


def _attends(kernel: serving.StepKernel) -> bool:
    return bool({"Q·Kᵀ", "P·V", "flash attention"} & set(kernel.ops))


def _reflection(today: serving.Step) -> Element:
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
        "tuned": today.but(chip=faster),
        "narrow": today.but(weights="int4"),
        "batch": today.but(batch=64),
    }
    gain = {k: one.tokens_per_second / today.tokens_per_second for k, one in changed.items()}
    return ask.question(
        "lab-design-back",
        right=max(gain, key=lambda name: gain[name]),
        gain=gain,
        launches={
            name: sum(kernel.count for kernel in one.kernels)
            for name, one in {"today": today, "fused": changed["fused"]}.items()
        },
        today=today,
        batch=changed["batch"],
    )


def _draw(one: serving.Step, ax: Any) -> None:
    from roofline_helpers import plot

    roof = one.setting.chip.roofline("bf16", reached=True).without_floor()
    shown_ones = ("RMSNorm 1", "Q·Kᵀ", "QKV projection")
    jobs = {k.name: k.work for k in one.kernels if k.name in shown_ones}
    plot.roofline(roof, jobs, ax=ax)
