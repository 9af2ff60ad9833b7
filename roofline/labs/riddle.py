"""The riddle of the decode step: its 40 orders as a game, from the committed record."""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from roofline import evidence as files
from roofline.labs.javascript import RIDDLE
from roofline_helpers.common import records
from roofline_helpers.common.show import table, table_html
from roofline_helpers.pages.element import Element, fragment

MOVES: Mapping[str, tuple[str, str, str]] = {
    "u": (
        "Unroll the loop over the layers",
        'lax.scan(body, x, (weights["layers"], cache))',
        'for w, (keys, values) in zip(weights["layers"], cache):',
    ),
    "h": ("Keep the cache by head, not by token", 'axes = "btgd"', 'axes = "bgtd"'),
    "d": ("Donate the cache", "jax.jit(step)", "jax.jit(step, donate_argnums=1)"),
    "n": (
        "Drop the casts to float32",
        "q, keys, values = (x.astype(jnp.float32) for x in (q, keys, values))",
        "",
    ),
    "c": (
        "Use cuDNN's attention",
        'scores = jnp.einsum("bghd,btgd->bght", q, keys) …',
        'out = jax.nn.dot_product_attention(q, keys, values, implementation="cudnn")',
    ),
    "j": (
        "Join the matmuls that read the same input",
        'q, k, v = y @ w["q"], y @ w["k"], y @ w["v"]',
        'q, k, v = jnp.split(y @ w["qkv"], …)',
    ),
    "k": (
        "Replace the layer by seven Pallas kernels",
        "x, keys, values = one(x, w, keys, values, position)",
        "stream, pair = one(stream, w, gain, pair, turn, position)",
    ),
    "o": ("Let the kernels overlap", "Kernels(chain=False)", "Kernels()"),
    "s": ("Narrow the partial sums", "Kernels()", "Kernels(deep=8, narrow=True, …)"),
}
"""Name of each change, the line that goes and the line that comes (`examples/llama_decode`)."""
LAST = "kos"
KERNELS = {"own kernels": "k", "overlapped": "ko", "narrow sums": LAST}
BARS = (
    "the least: weights and cache, once",
    "what the program moves beyond that",
    "the memory, slower than its data sheet",
    "kernels slower than their roof",
    "kernels that have no roof",
    "gaps, the host, and the rest",
)
CLASSES = {
    "cuDNN": "attention",
    "softmax": "attention",
    "transpose": "transposes",
    "copy": "copies",
    "broadcast": "filling new arrays",
    "sum": "sums and elementwise",
    "SiLU": "sums and elementwise",
    "loop_dynamic": "the loop's slices",
    "Pallas kernel attend": "attention",
    "Pallas kernel add": "sums and elementwise",
    "Pallas kernel": "matmuls with weights",
}
"""What a kernel does, by how its role begins, or its name where it has none."""


def record() -> dict[str, Any]:
    """Return the committed record: "rows" has the orders, our kernels' rungs, and PyTorch.

    Examples
    --------
    >>> len(record()["rows"])
    44
    """
    text = records.committed("roofline", "explained", "decode-orders.json").read_text(
        encoding="utf-8"
    )
    found: dict[str, Any] = json.loads(text)
    return found


def _states(row: Mapping[str, Any]) -> list[str]:
    """Return the states of the game that a row measures: cuDNN casts nothing in any case."""
    if "scan" not in row:
        return [KERNELS[row["rung"]]] if row["rung"] in KERNELS else []
    changes = {
        "u": not row["scan"],
        "h": row["by_head"],
        "d": row["donate"],
        "n": not row["float32"],
        "c": row["attention"] == "cudnn",
        "j": row["fused"],
    }
    state = "".join(move for move, chosen in changes.items() if chosen)
    return [state, state.replace("n", "")] if changes["c"] else [state]


def _bars(row: Mapping[str, Any], least: float, read: float) -> list[float]:
    """Return the milliseconds of each of `BARS`, which add up to the row's time.

    Our own kernels move only what must move, so together they have the roof of reading it.
    """
    parts = {"the compiled program": 1, "ceilings as reached": 2, "kernels without a roof": 4}
    rest = {"gaps between kernels", "the host", "nothing explains it"}
    bars = [least, 0.0, 0.0, 0.0, 0.0, 0.0]
    for name, seconds in row.get("waterfall", ()):
        if name not in rest:
            bars[parts.get(name, 3)] += seconds
    if "waterfall" in row:
        bars[1] -= least
    else:
        running = sum(kernel["seconds"] for kernel in row["rows"] if kernel["kind"] == "kernel")
        bars[2:4] = read - least, running - read
    bars[5] = row["seconds"] - sum(bars)
    return [round(1e3 * seconds, 3) for seconds in bars]


def _kernels(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds of an order's kernels by what they do."""
    found: dict[str, float] = defaultdict(float)
    overlapping = row["rung"] in ("overlapped", "narrow sums")  # a kernel that waits counts, too
    for kernel in () if overlapping else row["rows"]:
        said = kernel["role"] or kernel["name"]
        if said.startswith("matmul"):
            found["attention" if "->" in said else "matmuls with weights"] += kernel["seconds"]
        elif known := next((CLASSES[word] for word in CLASSES if said.startswith(word)), None):
            found[known] += kernel["seconds"]
    return {name: round(1e3 * seconds, 2) for name, seconds in found.items()}


def _finding(row: Mapping[str, Any]) -> str:
    """Return the largest finding that names a kernel, or the largest."""
    found = row.get("findings", ())
    unnamed = ("many-kernels", "short-kernels")
    for finding in sorted(found, key=lambda finding: finding["cause"] in unnamed):
        return f"{finding['title']}, {1e3 * finding['seconds']:.1f} ms ({finding['evidence']})"
    return "nothing that moves in vain: our kernels read the weights and the cache once"


def _locked(state: str, move: str) -> str:
    """Return why a move can't be made in a state, or nothing."""
    if move in state and "k" in state:
        return "Chosen. Begin again to try another order."
    if "k" in state and move not in "os":
        return "Our kernels replace this."
    if move in "ch" and {"c", "h"} <= {move, *state}:
        return "cuDNN wants the cache by token, [B, T, G, 128]. Take the other one back first."
    if move == "n" and "c" in state:
        return "cuDNN takes bfloat16 as it is, so there is nothing to cast."
    if move == "k" and not {"u", "d"} <= set(state):
        return "Our kernels write the cache in place, layer by layer: unroll and donate first."
    if move == "o" and "k" not in state:
        return "Only our own kernels can do that."
    if move == "s" and "o" not in state:
        return "Measured only for our own kernels, once they overlap."
    return ""


def _reason(state: str, move: str, gain: float) -> str:
    """Return why a move that was just made gained nothing, or cost time, in milliseconds."""
    if move == "d" and gain < -1:
        return (
            "The loop still fills a stack of its own with the new cache, "
            "and now the result is copied into the buffers that you handed over."
        )
    if gain > 0.3:
        return ""
    if move == "d":
        return (
            "Attention wants another order than the cache has, so the cache is copied in any "
            "case, handed over or not."
        )
    if move == "n":
        return "The compiler made no float32 copy: the matmul casts what it reads as it goes."
    return "The bytes stay the same, and fewer, larger matmuls save little." if move == "j" else ""


def orders() -> dict[str, dict[str, Any]]:
    """Return every state of the game: its time, bars, kernels, finding, and where moves lead.

    A state is the letters of the chosen `MOVES`. In "next" a move has the state that it leads to
    and, if it gains nothing there, why; in "locked" it has why it can't be made.

    Examples
    --------
    >>> orders()[""]["ms"]
    69.769
    """
    roof = files.decode()["roof"]["64"]
    found: dict[str, dict[str, Any]] = {}
    for row in record()["rows"]:
        for state in _states(row):
            found[state] = {
                "ms": round(1e3 * row["seconds"], 3),
                "bars": _bars(row, roof["published"], roof["read"]),
                "kernels": _kernels(row),
                "finding": _finding(row),
            }
    for state, facts in found.items():
        facts["next"], facts["locked"] = {}, {}
        for move in MOVES:
            if said := _locked(state, move):
                facts["locked"][move] = said
                continue
            chosen = {move} if move == "k" else set(state) ^ {move}
            to = "".join(letter for letter in MOVES if letter in chosen)
            reason = _reason(state, move, facts["ms"] - found[to]["ms"]) if move in chosen else ""
            facts["next"][move] = [to, reason]
    return found


def best(states: Mapping[str, Any]) -> tuple[float, str]:
    """Return the least sum of the times that moves start from, up to the last rung, and the moves.

    Examples
    --------
    >>> best(orders())[1][-3:]
    'kos'
    """
    heap, done = [(0.0, "", "")], set[str]()
    while heap:
        cost, moves, state = heapq.heappop(heap)
        if state == LAST:
            return cost, moves
        if state not in done:
            done.add(state)
            for move, (to, _) in states[state]["next"].items():
                heapq.heappush(heap, (cost + states[state]["ms"], moves + move, to))
    raise AssertionError("no moves lead to the last rung")


def riddle() -> Element:
    """Return the game: choose a change, see what it gained as measured, and what explains it.

    Examples
    --------
    >>> riddle().kind
    'riddle'
    """
    states, rows = orders(), record()["rows"]
    times = {row["rung"]: 1e3 * row["seconds"] for row in rows}
    least, moves = best(states)
    data = {
        "moves": MOVES,
        "bars": BARS,
        "orders": states,
        "torch": round(times["PyTorch"], 3),
        "best": {"sum": round(least, 2), "moves": moves},
    }
    listed = [{"the step is written": name, "ms": f"{ms:.2f}"} for name, ms in times.items()]
    listed.sort(key=lambda row: -float(row["ms"]))
    title = "Which line do you change first?"
    plain = "All orders, as measured. A scan or unrolled is the loop over the layers, float32 has "
    plain += "the casts, by head is the cache's order, joined are q, k, v and gate, up"
    fallback = fragment("instrument", title, plain, Markup(table_html(table(listed))))
    return Element("riddle", data, str(fallback), plain, bundle=RIDDLE)
