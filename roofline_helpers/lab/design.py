"""Lab 2: serve Llama 3 8B from one chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from roofline_helpers import ask, serving
from roofline_helpers.ask import Element
from roofline_helpers.hardware import all_chips
from roofline_helpers.lab.shared import lab, percent
from roofline_helpers.serving import LLAMA_3_8B, best_batch, step
from roofline_helpers.show import significant

TODAY: Mapping[str, Any] = {
    "phase": "decode",
    "batch": 8,
    "context": 2048,
    "fusion": "none",
    "attention": "naive",
}
"""The server of the story."""

PRODUCTS = "The products with weights: projections, feed-forward, LM head"
ATTENTION = "Attention over the KV cache"
REST = "Norms, RoPE, SwiGLU, residual adds"
"""The groups of kernels that the question asks about."""

TASKS = [
    "Raise the batch. Which kernels move to the right, and which stay where they are?",
    "Narrow the weights, then the cache. Which helps more at batch 1, which at batch 128?",
    "Change to prefill, batch 1. Which kernels have crossed the ridge? What do fusion and "
    "flash attention gain now, and what did they gain in decode?",
    "Take the v5e, then the Jetson Orin NX. What does not fit, and what would instead?",
    "On each chip: the most tokens per second within 20 ms per token.",
]

EQUATIONS = [
    "time of a kernel = max(matrix FLOPs / peak, vector FLOPs / vector peak, bytes / bandwidth)",
    "time of a step = sum over all kernels of runs · time",
    "decode:  time per token = step,  tokens per second = batch / step",
    "prefill: time to the first token = step,  tokens per second = batch · context / step",
    "bytes of a fused kernel = tensors that enter + tensors that leave",
    "KV cache = 2 · layers · KV heads · head size · bytes per element · context · batch "
    f"({LLAMA_3_8B.cache_per_token('bf16') // 1024} KiB a token in bf16)",
    "memory needed = weights + KV cache + the most activations alive at once",
]


def design_challenge() -> Element:
    """Return lab 2, "The design challenge": serve Llama 3 8B from one chip.

    The reader predicts which kernels are memory-bound, then chooses chip, phase, batch, context,
    data types, fusion and attention, against memory and a latency target, and looks back.
    Answers and the last design stay in the reader's ledger.
    """
    today = step(LLAMA_3_8B, "h100", **TODAY)
    ridge = significant(today.setting.chip.roofline("bf16").ridge)
    between = _intensities(today)
    story = [
        f"You serve {LLAMA_3_8B.name} from one H100. Today's server decodes "
        f"{TODAY['batch']} sequences at a time, each with {TODAY['context']:,} tokens of "
        "context, in bf16, with every operation a kernel of its own and the attention scores in "
        f"memory. With each kernel at its roof it gives {significant(today.tokens_per_second)} "
        "tokens per second.",
        "There is time for one change. Half of the team wants to fuse the small kernels, the "
        "other half to tune the matrix products. Look before you choose.",
    ]
    predict = _prediction(today, ridge, between)
    data = {
        "key": "design",
        "keep": "Lab 2: your design",
        "story": story,
        "predict": predict.data,
        "locked": "The instruments open when you have answered. A wrong answer opens them too.",
        "start": {"chip": "h100", **TODAY, "format": "bf16/bf16", "cache": "bf16", "latency": 20},
        "tasks": TASKS,
        "reflect": _reflection(today).data,
        "equations": EQUATIONS,
    }
    alt = (
        f"Kernels of a decode step of {LLAMA_3_8B.name}, batch {TODAY['batch']}, under the roof "
        f"of the H100: all of them are far left of the ridge at {ridge}, from the norms at 1 "
        f"FLOP/byte to the products at {between[PRODUCTS]}."
    )
    return lab("design", data, predict, _chip_rows(), lambda ax: _draw(today, ax), alt)


def _chip_rows() -> list[dict[str, Any]]:
    """Return what each chip does with the model: its largest batch, and the best in time."""
    return [
        {
            "chip": chip.name,
            "largest batch": one.largest_batch(),
            "within 20 ms per token": best.setting.batch if best else None,
            "tokens per second": best.tokens_per_second if best else None,
            "ms per token": best.seconds * 1e3 if best else None,
        }
        for chip in all_chips()
        for one in [step(LLAMA_3_8B, chip)]
        for best in [best_batch(LLAMA_3_8B, chip, latency=0.02)]
    ]


def _intensities(one: serving.Step) -> dict[str, str]:
    """Return the range of FLOP/byte of each group of kernels."""
    return {
        name: " to ".join(
            dict.fromkeys(
                significant(end([k.work.intensity for k in kernels if k.work.flops]), 2)
                for end in (min, max)
            )
        )
        for name, kernels in groups_of(one).items()
    }


def _prediction(today: serving.Step, ridge: str, between: Mapping[str, str]) -> Element:
    groups = groups_of(today)
    share = {name: sum(k.total for k in group) / today.seconds for name, group in groups.items()}
    products, attention, rest = groups
    return ask.choice(
        "Which kernels of this decode step are memory-bound on the H100? Choose all.",
        {
            products: (
                f"Memory-bound: each weight is read for only {TODAY['batch']} tokens, "
                f"{between[products]} FLOP/byte against a ridge of {ridge}. They take "
                f"{percent(share[products])} of the step."
            ),
            attention: (
                f"Memory-bound: {between[attention]} FLOP/byte, since each sequence reads its own "
                f"keys and values. {percent(share[attention])} of the step, and more with longer "
                "contexts; a larger batch does not help it."
            ),
            rest: (
                f"Memory-bound: {between[rest]} FLOP/byte at any batch. But together they take "
                f"{percent(share[rest])} of the step: little to gain by fusing them here."
            ),
            "None: tensor cores are what limits a language model": (
                f"The step uses {percent(today.mfu)} of the peak. Nothing in it comes near the "
                "ridge; the tensor cores wait for weights and cache."
            ),
        },
        right=[products, attention, rest],
        multi=True,
        key="lab-design",
        lead="",
    )


def groups_of(one: serving.Step) -> dict[str, list[serving.StepKernel]]:
    """Return the kernels of a step as the question names them."""
    groups: dict[str, list[serving.StepKernel]] = {PRODUCTS: [], ATTENTION: [], REST: []}
    for kernel in one.kernels:
        matrix = kernel.work.matrix_flops > 0
        groups[ATTENTION if _attends(kernel) else PRODUCTS if matrix else REST].append(kernel)
    return groups


def _attends(kernel: serving.StepKernel) -> bool:
    return bool({"Q·Kᵀ", "softmax", "P·V", "flash attention"} & set(kernel.ops))


def _reflection(today: serving.Step) -> Element:
    def gain(one: serving.Step) -> str:
        times = one.tokens_per_second / today.tokens_per_second
        return f"{significant(times)} times today's tokens per second"

    h100 = today.setting.chip
    doubled = {
        name: replace(figure, value=2 * figure.value) for name, figure in h100.matrix.items()
    }
    tuned = today.but(chip=replace(h100, matrix=doubled))
    fused = today.but(fusion="epilogue", attention="flash")
    narrow, batch = today.but(weights="int4"), today.but(batch=64)
    prompt = today.but(phase="prefill", batch=1)
    prompt_fused = prompt.but(fusion="epilogue", attention="flash")
    prefill = significant(prompt.seconds / prompt_fused.seconds)
    ms = [significant(one.seconds * 1e3) for one in (today, batch)]
    options = {
        "Fuse what can be fused, and use flash attention": (
            f"{gain(fused)}. Weights and cache are nearly all of the bytes, and fusion doesn't "
            f"remove those. In prefill of one prompt the same change is worth {prefill} times."
        ),
        "Tensor cores of twice the speed": (
            f"{gain(tuned)}: no kernel of the step is bound by them, nor by how well a product is "
            "tuned, once it reads its weights at full bandwidth."
        ),
        "Weights of 4 bits": (
            f"{gain(narrow)}: most bytes are weights. It stacks with a larger batch, and leaves "
            "more memory for it."
        ),
        "Batch 64 in place of 8": (
            f"{gain(batch)}: the weights are read once for all 64. The price is latency, {ms[0]} "
            f"ms to {ms[1]} ms per token, and memory for the cache."
        ),
    }
    best = max((fused, tuned, narrow, batch), key=lambda one: one.tokens_per_second)
    if best is not batch:
        raise RuntimeError("the lab's last question says that the batch gains most")
    return ask.choice(
        "One change to the server of the story. Which gives the most tokens per second?",
        options,
        right="Batch 64 in place of 8",
        key="lab-design-back",
        lead="",
    )


def _draw(one: serving.Step, ax: Any) -> None:
    from roofline_helpers import plot

    roof = one.setting.chip.roofline("bf16")
    shown_ones = ("RMSNorm 1", "softmax", "Q·Kᵀ", "QKV projection")
    jobs = {k.name: k.work for k in one.kernels if k.name in shown_ones}
    plot.roofline(roof, jobs, ax=ax)
