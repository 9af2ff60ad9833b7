"""The interactive pieces with a roofline in them: four instruments and two labs.

Each function returns an element that shows itself in notebooks and on the published page, where it
needs no kernel and no network. Without JavaScript a table stands there, and in the labs a figure
and the question with its answer. The numbers come from `work`, `roofline` and `serving`, here and
in the browser; `ask` makes the questions.

>>> print(matmul("h100", 512))
512 × 512 × 512 matmul in bf16 on NVIDIA H100 SXM: 171 FLOP/byte, memory-bound, at most 572 TFLOP/s
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from io import BytesIO
from typing import Any

from roofline_helpers import ask, serving, work
from roofline_helpers._checks import BadType, BadValue, quantity, shown, whole
from roofline_helpers.ask import Element
from roofline_helpers.dtypes import BITS
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.hardware import Chip, all_chips
from roofline_helpers.hardware import chip as chip_of
from roofline_helpers.roofline import Roofline
from roofline_helpers.serving import LLAMA_3_8B, best_batch, step
from roofline_helpers.show import si, significant, table, table_html
from roofline_helpers.work import Work

LARGEST_SIDE = 1_000_000
"""No side of a matmul above this is accepted in a field."""


# --- instruments ---------------------------------------------------------------------------------


def point(
    chip: Any = "v7x",
    intensity: float = 200.0,
    dtype: Any = None,
    *,
    flops: float = 1e12,
    key: str = "point",
    title: str = "Any kernel, any chip",
) -> Element:
    """Return an instrument: a kernel of any intensity under the roof of any chip.

    Shows what it can attain, what bounds it, and its least time.

    Parameters
    ----------
    chip : str, Chip or jax.Device
        What it starts with, as the next three.
    intensity : float
        FLOP/byte, 0.01 to 100,000.
    dtype : str or data type, optional
        The chip's 16-bit type if not given.
    flops : float
        FLOPs of the kernel.
    key : str
        Its name in the page's address.
    title : str
        The bold line above it.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; an intensity outside the range; not a positive
        number.
    """
    start = _start(chip, dtype)
    value = _one("intensity", quantity("intensity", intensity))
    if not 0.01 <= value <= 1e5:
        raise BadValue(f"intensity must be from 0.01 to 100,000, got {shown(intensity)}")
    amount = _one("flops", quantity("flops", flops))
    roof = chip_of(chip).roofline(start["dtype"])
    rows = [
        {
            "FLOP/byte": f"{significant(i)}",
            "attainable": _rate(roof.attainable(i)),
            "bound": roof.bound(i),
        }
        for i in sorted({value, roof.ridge, *(10.0**p for p in range(0, 5))})
    ]
    plain = (
        f"{significant(value)} FLOP/byte on {roof.name}: {roof.bound(value)}-bound, "
        f"at most {_rate(roof.attainable(value))}"
    )
    return _instrument(
        "point", key, title, {**start, "intensity": value, "flops": amount}, plain, rows
    )


def ridges(
    chips: Sequence[Any] = ("v5p", "v6e", "v7x"),
    dtype: Any = None,
    *,
    n: int = 600,
    key: str = "ridges",
    title: str = "One matmul, several chips",
) -> Element:
    """Return an instrument: roofs of up to four chips, and a square matmul under each of them.

    Shows each ridge, and from which N on the chip is compute-bound.

    Parameters
    ----------
    chips : sequence of str, Chip or jax.Device
        One to four to start with.
    dtype : str or data type, optional
        The first chip's 16-bit type if not given.
    n : int
        Size of the matmul.
    key, title : str
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; not one to four chips; a size that is not a whole
        positive number.
    """
    if isinstance(chips, str) or not isinstance(chips, Sequence) or not 1 <= len(chips) <= 4:
        raise BadType(f"chips must be a sequence of one to four chips, got {shown(chips)}")
    found = [_listed(each) for each in chips]
    kind = dtype_of(found[0].half if dtype is None else dtype)
    found[0].peak(kind)
    side = whole("n", n, LARGEST_SIDE)
    slots = dict(zip("abcd", [*(each.key for each in found), *[""] * 3], strict=False))
    job = work.matmul(side, side, side, kind)
    roofs = [each.roofline(kind) for each in found if kind in (*each.matrix, *each.vector)]
    rows: list[dict[str, Any]] = [
        {
            "chip": roof.name,
            "peak": _rate(roof.peak),
            "memory": si(roof.bandwidth, "B/s"),
            "ridge": significant(roof.ridge),
            "compute-bound from N": _first(roof, kind),
            f"N = {side}": f"{roof.bound(job)}-bound",
        }
        for roof in roofs
    ]
    plain = f"{kind} matmul of size {side}, {significant(job.intensity)} FLOP/byte: " + ", ".join(
        f"{roof.bound(job)}-bound on {roof.name} (ridge {significant(roof.ridge)})"
        for roof in roofs
    )
    return _instrument("ridges", key, title, {**slots, "dtype": kind, "n": side}, plain, rows)


def matmul(
    chip: Any = "h100",
    m: int = 512,
    n: int | None = None,
    k: int | None = None,
    dtype: Any = None,
    *,
    key: str = "matmul",
    title: str = "Any matmul, any chip",
) -> Element:
    """Return an instrument: C[m, n] = A[m, k] · B[k, n] under the roof of any chip.

    Shows intensity, attainable FLOP/s, share of the peak, regime, and the formula with the
    numbers put in.

    Parameters
    ----------
    chip : str, Chip or jax.Device
        What it starts with, as the next four.
    m, n, k : int
        Sides, 1 to `LARGEST_SIDE`; n and k are m if not given.
    dtype : str or data type, optional
        The chip's 16-bit type if not given.
    key, title : str
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; a side that is not a whole number in the range.
    """
    start = _start(chip, dtype)
    sides = {
        side: whole(side, m if given is None else given, LARGEST_SIDE)
        for side, given in (("m", m), ("n", n), ("k", k))
    }
    roof = chip_of(chip).roofline(start["dtype"])
    job = work.matmul(sides["m"], sides["n"], sides["k"], start["dtype"])
    plain = (
        f"{' × '.join(str(v) for v in sides.values())} matmul in {start['dtype']} on "
        f"{chip_of(chip).name}: {significant(job.intensity)} FLOP/byte, {roof.bound(job)}-bound, "
        f"at most {_rate(roof.attainable(job))}"
    )
    rows = [_matmul_row(roof, start["dtype"], side) for side in (128, 512, 1024, 2048, 8192)]
    return _instrument("matmul", key, title, {**start, **sides}, plain, rows)


def chain(
    chip: Any = "v7x",
    rows: int = 65536,
    width: int = 4096,
    dtype: Any = None,
    *,
    key: str = "chain",
    title: str = "Cut the chain where you like",
) -> Element:
    """Return an instrument: LayerNorm, GELU, dropout and residual add, fused as the reader likes.

    Shows bytes, time and the ratio to four kernels: the bytes are those that enter and leave each
    kernel.

    Parameters
    ----------
    chip : str, Chip or jax.Device
        What it starts with, as the next three.
    rows, width : int
        Tokens, and elements of each.
    dtype : {"bf16", "fp16", "fp32"}, optional
        Type of every tensor, the mask included; the chip's 16-bit type if not given.
    key, title : str
        As in `point`.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such chip or type, or a changed chip; sizes that are not whole numbers in the range.
    """
    start = _start(chip, dtype)
    if start["dtype"] not in ("bf16", "fp16", "fp32"):
        raise BadValue(f"dtype must be bf16, fp16 or fp32, got {shown(dtype)}")
    tokens, wide = whole("rows", rows, 1e8), whole("width", width, LARGEST_SIDE)
    roof = chip_of(chip).roofline(start["dtype"])
    apart = work.fusion_chain(tokens, wide, start["dtype"])
    cuts = {
        "4 kernels": apart,
        "2 kernels": [work.fuse(*apart[:2]), work.fuse(*apart[2:])],
        "1 kernel": [work.fuse(*apart)],
    }
    seconds = {name: roof.time(*kernels) for name, kernels in cuts.items()}
    listed = [
        {
            "as": name,
            "bytes": si(work.total(*kernels).bytes, "B"),
            "least time": si(seconds[name], "s"),
            "ratio": f"{significant(seconds['4 kernels'] / seconds[name])}×",
        }
        for name, kernels in cuts.items()
    ]
    plain = f"On {roof.name}: " + "; ".join(
        f"{row['as']}: {row['bytes']}, {row['least time']}" for row in listed
    )
    joints = dict.fromkeys(("ab", "bc", "cd"), "no")
    start |= {"rows": tokens, "width": wide, **joints}
    return _instrument("chain", key, title, start, plain, listed)


def _instrument(
    kind: str,
    key: str,
    title: str,
    start: Mapping[str, Any],
    plain: str,
    rows: Sequence[Mapping[str, Any]],
) -> Element:
    data = {"key": ask.key_of(key), "title": ask.filled("title", title), "start": dict(start)}
    listed = table_html(table(rows))
    fallback = f"<p><strong>{escape(title)}</strong></p>\n<p>{escape(plain)}.</p>\n{listed}"
    return Element(kind, data, fallback, plain, bundle="lab")


def _listed(chip: Any) -> Chip:
    """Return a chip as the catalogue has it: the script shows no other."""
    found = chip_of(chip)
    if found != chip_of(found.key):
        raise BadValue(
            f"a chip of the catalogue is needed, such as rh.chip({found.key!r}), "
            f"got a changed one: {shown(found.name)}"
        )
    return found


def _start(chip: Any, dtype: Any) -> dict[str, Any]:
    found = _listed(chip)
    kind = dtype_of(found.half if dtype is None else dtype)
    found.peak(kind)
    return {"chip": found.key, "dtype": kind}


def _one(name: str, given: Any) -> float:
    if not isinstance(given, int | float):
        raise BadType(f"{name} must be one number, got {shown(given)}")
    return given


def _first(roof: Roofline, dtype: str) -> int:
    """Return the first N of a square matmul that is compute-bound."""
    n = max(1, int(roof.ridge * BITS[dtype] * 3 / 16) - 2)
    while roof.bound(work.matmul(n, n, n, dtype)) != "compute":
        n += 1
    return n


def _matmul_row(roof: Roofline, dtype: str, side: int) -> dict[str, Any]:
    job = work.matmul(side, side, side, dtype)
    return {
        "N": side,
        "FLOP/byte": job.intensity,
        "attainable": _rate(roof.attainable(job)),
        "of the peak": _percent(roof.mfu(roof.attainable(job))),
        "regime": f"{roof.bound(job)}-bound",
    }


def _rate(flops: float) -> str:
    """Return FLOP/s as the charts do: TFLOP/s, not PFLOP/s."""
    text = si(flops, "FLOP/s")
    return (
        si(flops, "FLOP/s", "T", max(3, len(str(int(flops / 1e12))))) if "PFLOP" in text else text
    )


def _percent(share: float) -> str:
    return f"{significant(100 * share, 2 if share < 0.995 else 3)} %"


# --- lab 1 ---------------------------------------------------------------------------------------

_ACHIEVED = 312e12  # given by the story


def memory_wall() -> Element:
    """Return lab 1, "The memory wall": a matmul that three weeks of tuning have not moved.

    The reader predicts what stops it, then plays with chip, shape and data type under the roof,
    and looks back. Answers and the last setting stay in the reader's ledger.
    """
    h100 = chip_of("h100")
    roof, job = h100.roofline("bf16"), work.matmul(512, 512, 512, "bf16")
    top = roof.attainable(job)
    peak, limit, done = (_rate(rate) for rate in (roof.peak, top, _ACHIEVED))
    of_peak, of_roof = _percent(roof.mfu(_ACHIEVED)), _percent(roof.efficiency(_ACHIEVED, job))
    intensity, ridge, first = (
        significant(job.intensity),
        significant(roof.ridge),
        _first(roof, "bf16"),
    )
    story = [
        "A kernel multiplies many independent pairs of 512 × 512 matrices in bf16 on an H100, "
        f"and reaches {done}. The data sheet promises {peak} for dense matrices, so that is "
        f"{of_peak} of the peak. Three weeks of tuning the inner loop have not moved it.",
        "You are asked why. Commit yourself first; the roofline opens after that.",
    ]
    predict = ask.choice(
        f"What holds this kernel at {done}?",
        {
            "Its arithmetic: a matmul is compute-bound, so the inner loop has a fault": (
                f"A matmul is compute-bound only if it is large enough. This one does {intensity} "
                f"FLOPs for each byte, and the ridge of an H100 is at {ridge}: left of it the "
                f"memory allows {limit}, however good the inner loop is."
            ),
            "Its memory, and nothing else: it runs as fast as its bytes arrive": (
                f"Half of the answer. At {intensity} FLOP/byte the memory allows {limit}, less "
                f"than the peak. But {done} is only {of_roof} of that. The memory doesn't explain "
                "the rest: the kernel doesn't even reach its own roof."
            ),
            "Two things: its roof is lower than the peak, and it stays below its roof": (
                f"Each has its own cure. The roof is at {limit}, not {peak}, "
                f"because {intensity} FLOP/byte lies left of the ridge ({ridge}): only more FLOPs "
                f"per byte, or faster memory, lift it. And {done} is {of_roof} of that roof: this "
                "part is the kernel's own, for instance bytes moved twice, or waiting."
            ),
            "Nothing: about a third of the peak is what tensor cores really give": (
                f"The same chip's roof reaches the peak for larger matrices, from N = {first} on. "
                f"Here the roof is {limit}, so there is room above {done}: it is {of_roof} of it."
            ),
        },
        right="Two things: its roof is lower than the peak, and it stays below its roof",
        key="lab-memory-wall",
        lead="",
    )
    data = {
        "key": "memory-wall",
        "keep": "Lab 1: your setting",
        "story": story,
        "predict": predict.data,
        "locked": "The roofline opens when you have answered. A wrong answer opens it too.",
        "start": {
            "chip": "h100",
            "dtype": "bf16",
            "m": 512,
            "n": 512,
            "k": 512,
            "achieved": _ACHIEVED / 1e12,
        },
        "tasks": [
            "Raise all three sides together until the point meets the ridge. At which N is that?",
            "Keep 512 and change the type to fp8. Do point, roof and ridge all move? What stays?",
            "Keep 512 and take the Jetson Orin NX. Is the same matmul still memory-bound?",
            "Set M to 1, as when a model makes one token. Which side decides now?",
        ],
        "reflect": _wall_reflection(h100).data,
        "equations": [
            "attainable(I) = min(peak, bandwidth · I)          ridge = peak / bandwidth",
            "I of a matmul = 2·M·N·K / ((M·K + K·N + M·N) · bytes per element)",
            "I of a square one = 2·N / (3 · bytes per element): N/3 in bf16",
            "MFU = achieved / peak          roofline efficiency = achieved / attainable(I)",
            "least time = max(FLOPs / peak, bytes / bandwidth)",
        ],
    }
    rows = [_matmul_row(roof, "bf16", side) for side in (128, 512, 1024, 2048, 8192)]
    alt = (
        f"Roofline of the H100 in bf16. A 512 cubed matmul lies left of the ridge at {ridge}, "
        f"under a roof of {limit}; the {done} achieved are {of_roof} of that roof."
    )
    return _lab("memory-wall", data, predict, rows, lambda ax: _wall_picture(roof, job, ax), alt)


def _wall_reflection(h100: Chip) -> Element:
    def top(chip: Chip, side: int, dtype: str) -> float:
        return float(chip.roofline(dtype).attainable(work.matmul(side, side, side, dtype)))

    before = top(h100, 512, "bf16")

    def gain(chip: Any, side: int, dtype: str) -> str:
        after = top(chip_of(chip), side, dtype)
        return f"{_rate(after)}, {significant(after / before)} times as high"

    fp8, large = "fp8 in place of bf16, for inputs and output", "Products of 1024 × 1024 matrices"
    memory = "An H200: the same peak, faster memory"
    return ask.choice(
        "Back to the 512 × 512 matrices on the H100. Which of these lift their roof? Choose all.",
        {
            "A higher clock of the tensor cores, the same memory": (
                "That lifts the flat part only. This kernel is under the slope, which is bandwidth."
            ),
            fp8: f"Half the bytes, twice the intensity. The roof is then {gain(h100, 512, 'fp8')}.",
            large: "Work grows with the cube, bytes with the square. The roof is then "
            f"{gain(h100, 1024, 'bf16')}.",
            memory: f"The slope is steeper. The roof is then {gain('h200', 512, 'bf16')}.",
            "Twice the memory capacity at the same bandwidth": (
                "How much the memory holds is not how fast it delivers: the roof doesn't move."
            ),
        },
        right=[fp8, large, memory],
        multi=True,
        key="lab-memory-wall-back",
        lead="",
    )


def _wall_picture(roof: Roofline, job: Work, ax: Any) -> None:
    from roofline_helpers import plot

    plot.roofline(roof, {"N = 512": job}, achieved={"N = 512": _ACHIEVED}, ax=ax)


# --- lab 2 ---------------------------------------------------------------------------------------

_TODAY: Mapping[str, Any] = {
    "phase": "decode",
    "batch": 8,
    "context": 2048,
    "fusion": "none",
    "attention": "naive",
}
_PRODUCTS = "The products with weights: projections, feed-forward, LM head"
_ATTENTION = "Attention over the KV cache"
_REST = "Norms, RoPE, SwiGLU, residual adds"


def design_challenge() -> Element:
    """Return lab 2, "The design challenge": serve Llama 3 8B from one chip.

    The reader predicts which kernels are memory-bound, then chooses chip, phase, batch, context,
    data types, fusion and attention, against memory and a latency target, and looks back.
    Answers and the last design stay in the reader's ledger.
    """
    today = step(LLAMA_3_8B, "h100", **_TODAY)
    ridge = significant(today.setting.chip.roofline("bf16").ridge)
    groups = _groups(today)
    share = {name: sum(k.total for k in found) / today.seconds for name, found in groups.items()}
    between = {
        name: " to ".join(
            dict.fromkeys(
                significant(end([k.work.intensity for k in found if k.work.flops]), 2)
                for end in (min, max)
            )
        )
        for name, found in groups.items()
    }
    products, attention, rest = groups
    story = [
        f"You serve {LLAMA_3_8B.name} from one H100. Today's server decodes "
        f"{_TODAY['batch']} sequences at a time, each with {_TODAY['context']:,} tokens of "
        "context, in bf16, with every operation a kernel of its own and the attention scores in "
        f"memory. With each kernel at its roof it gives {significant(today.tokens_per_second)} "
        "tokens per second.",
        "There is time for one change. Half of the team wants to fuse the small kernels, the "
        "other half to tune the matrix products. Look before you choose.",
    ]
    predict = ask.choice(
        "Which kernels of this decode step are memory-bound on the H100? Choose all.",
        {
            products: (
                f"Memory-bound: each weight is read for only {_TODAY['batch']} tokens, "
                f"{between[products]} FLOP/byte against a ridge of {ridge}. They take "
                f"{_percent(share[products])} of the step."
            ),
            attention: (
                f"Memory-bound: {between[attention]} FLOP/byte, since each sequence reads its own "
                f"keys and values. {_percent(share[attention])} of the step, and more with longer "
                "contexts; a larger batch does not help it."
            ),
            rest: (
                f"Memory-bound: {between[rest]} FLOP/byte at any batch. But together they take "
                f"{_percent(share[rest])} of the step: little to gain by fusing them here."
            ),
            "None: tensor cores are what limits a language model": (
                f"The step uses {_percent(today.mfu)} of the peak. Nothing in it comes near the "
                "ridge; the tensor cores wait for weights and cache."
            ),
        },
        right=[products, attention, rest],
        multi=True,
        key="lab-design",
        lead="",
    )
    data = {
        "key": "design",
        "keep": "Lab 2: your design",
        "story": story,
        "predict": predict.data,
        "locked": "The instruments open when you have answered. A wrong answer opens them too.",
        "start": {"chip": "h100", **_TODAY, "format": "bf16/bf16", "cache": "bf16", "latency": 20},
        "tasks": [
            "Raise the batch. Which kernels move to the right, and which stay where they are?",
            "Narrow the weights, then the cache. Which helps more at batch 1, which at batch 128?",
            "Change to prefill, batch 1. Which kernels have crossed the ridge? What do fusion and "
            "flash attention gain now, and what did they gain in decode?",
            "Take the v5e, then the Jetson Orin NX. What does not fit, and what would instead?",
            "On each chip: the most tokens per second within 20 ms per token.",
        ],
        "reflect": _design_reflection(today).data,
        "equations": [
            "time of a kernel = max(matrix FLOPs / peak, vector FLOPs / vector peak, "
            "bytes / bandwidth)",
            "time of a step = sum over all kernels of runs · time",
            "decode:  time per token = step,  tokens per second = batch / step",
            "prefill: time to the first token = step,  tokens per second = batch · context / step",
            "bytes of a fused kernel = tensors that enter + tensors that leave",
            "KV cache = 2 · layers · KV heads · head size · bytes per element · context · batch "
            f"({LLAMA_3_8B.cache_per_token('bf16') // 1024} KiB a token in bf16)",
            "memory needed = weights + KV cache + the most activations alive at once",
        ],
    }
    rows = [
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
    alt = (
        f"Kernels of a decode step of {LLAMA_3_8B.name}, batch {_TODAY['batch']}, under the roof "
        f"of the H100: all of them are far left of the ridge at {ridge}, from the norms at 1 "
        f"FLOP/byte to the products at {between[products]}."
    )
    return _lab("design", data, predict, rows, lambda ax: _design_picture(today, ax), alt)


def _groups(one: serving.Step) -> dict[str, list[serving.Kernel]]:
    """Return the kernels of a step as the question names them."""
    found: dict[str, list[serving.Kernel]] = {_PRODUCTS: [], _ATTENTION: [], _REST: []}
    for kernel in one.kernels:
        matrix = kernel.work.matrix_flops > 0
        found[_ATTENTION if _attends(kernel) else _PRODUCTS if matrix else _REST].append(kernel)
    return found


def _attends(kernel: serving.Kernel) -> bool:
    return bool({"Q·Kᵀ", "softmax", "P·V", "flash attention"} & set(kernel.ops))


def _design_reflection(today: serving.Step) -> Element:
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


def _design_picture(one: serving.Step, ax: Any) -> None:
    from roofline_helpers import plot

    roof = one.setting.chip.roofline("bf16")
    shown_ones = ("RMSNorm 1", "softmax", "Q·Kᵀ", "QKV projection")
    jobs = {k.name: k.work for k in one.kernels if k.name in shown_ones}
    plot.roofline(roof, jobs, ax=ax)


def _lab(
    kind: str,
    data: Mapping[str, Any],
    predict: Element,
    rows: Sequence[Mapping[str, Any]],
    picture: Any,
    alt: str,
) -> Element:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(5.2, 3.6))
    picture(ax)
    drawn = _picture(figure, alt)
    story = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in data["story"])
    equations = escape("\n".join(data["equations"]))
    listed = table_html(table(rows))
    fallback = f"{story}\n{predict.fallback}\n{drawn}\n{listed}\n<pre>{equations}</pre>"
    plain = "\n".join([*data["story"], predict.plain])
    return Element(kind, data, fallback, plain, bundle="lab")


def _picture(figure: Any, alt: str) -> str:
    """Return a Matplotlib figure as an image of few colours, and close it.

    It is seen only where no script runs, so it weighs little: some 15 kB.
    """
    import matplotlib.pyplot as plt
    from PIL import Image

    drawn, small = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=160)
    plt.close(figure)
    picture: Any = Image.open(drawn).convert("RGB")
    picture.quantize(48).save(small, format="png", optimize=True)
    width, height = (round(side * 100 / 160) for side in picture.size)
    data = b64encode(small.getvalue()).decode()
    return (
        f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}" '
        f'width="{width}" height="{height}">'
    )
