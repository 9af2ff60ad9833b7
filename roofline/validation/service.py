"""What a service of one's own would do, each number with the range that measured ones give it."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from roofline import network, serving
from roofline.configurations import model as model_of
from roofline.serving import Load
from roofline.serving.loads import NoRoom
from roofline.serving.setting import TYPES, origin
from roofline.serving.tensor_parallel import COUNTS
from roofline.terminal import Grid
from roofline.validation.loads import DENSE, MIXTURE, SPREAD, points
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadValue, UnknownName, whole
from roofline_helpers.common.show import si, significant

WIDTH = 100
"""Columns of an answer."""

GROWTH = 1.1
"""From one concurrency to the next, where the largest that meets a target is looked for."""

TIMES = {"time per token": "time_per_token", "first token": "first_token"}

_SECONDS = {"ms": 1e-3, "s": 1.0}
_TARGET = re.compile(
    r"(?P<rate>\d+\.?\d*) requests/s|(?:(?:p50|mean|median) )?"
    r"(?P<time>time per token|first token) (?P<limit>\d+\.?\d*) (?P<unit>ms|s)"
)


class Range(NamedTuple):
    """A prediction, and where eight of ten measured ones of its kind would lie; None if unknown.

    Examples
    --------
    >>> Range(1.0, 2.0, 3.0).best
    2.0
    """

    low: float | None
    best: float
    high: float | None


def kind_of(load: Load) -> tuple[str, bool]:
    """Return the kind of `SPREAD` that a load is of: of which model, and whether prompts are apart.

    Of dense models with workers apart too few were measured: theirs is that of mixtures.
    """
    apart = load.readers is not None
    mixture = load.worker.decode.setting.model.experts is not None or apart
    return MIXTURE if mixture else DENSE, apart


def ranges(load: Load) -> dict[str, Range]:
    """Return each quantity that `compare` has, with its range.

    Measured points tell the error of the laws of kernels. Without laws there is no range.

    Examples
    --------
    >>> load = serving.load("llama-3-8b", "h100", concurrency=8, inputs=1024, outputs=1024)
    >>> low, best, high = ranges(load)["time per token"]
    >>> low < best == load.time_per_token < high
    True
    """
    found = {}
    for name, attribute in {**TIMES, "tokens/s per chip": "per_chip"}.items():
        best, (low, high) = getattr(load, attribute), SPREAD[*kind_of(load), name]
        measured = load.worker.decode.has_laws
        found[name] = Range(best * low, best, best * high) if measured else Range(None, best, None)
    return found


def service(
    model: Any,
    chip: Any,
    *,
    concurrency: list[int],
    chips: int = 1,
    data: int = 1,
    readers: int = 0,
    rate: float | None = None,
    **asked: Any,
) -> list[Load]:
    """Return the loads of an engine of so many chips at each concurrency.

    Parameters
    ----------
    model, chip
        As `serving.step` takes them.
    concurrency : list of int
        Requests at once.
    chips : int
        Of an engine: tensor-parallel, but for `data`.
    data : int
        Parts of the chips that attention is copied on, each with its own requests; experts are
        spread over all. Of a dense model each part is a copy.
    readers : int
        Further engines that read the prompts instead, as large.
    rate : float, optional
        Byte/s of a chip between those, where the network's isn't known.
    **asked
        As `serving.curve` takes them.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `serving.curve`.

    Examples
    --------
    >>> service("llama-3-8b", "h100", concurrency=[8], inputs=1024, outputs=256)[0].concurrency
    8
    """
    device = chip_of(chip)
    place: tuple[Any, Any] = (device, None)
    count, decoder = whole("chips", chips), model_of(model)
    tensor, rest = divmod(count, whole("data", data))
    if rest or decoder.heads % tensor:
        even = [n for n in range(1, count + 1) if count % n + decoder.heads % (count // n) == 0]
        raise BadValue(
            f"{count} chips in parts of data {data} can't share {decoder.heads} heads evenly. "
            f"Allowed data: {', '.join(map(str, even))}"
        )
    if count > 1:
        mesh = {"expert" if decoder.experts else "data": data, "tensor": tensor}
        place = (network.topology(device, count, ceilings="reached"), mesh)
    if readers:
        asked["readers"] = serving.Readers(whole("readers", readers), rate=rate)
    return serving.curve(model, *place, concurrency=concurrency, **asked)


def targets(text: str) -> tuple[float, dict[str, float]]:
    """Return the requests per second and the seconds at most that a target asks for.

    Raises
    ------
    BadValue
        Something else than "200 requests/s, p50 time per token 20 ms, first token 1 s".

    Examples
    --------
    >>> targets("200 requests/s, p50 time per token 20 ms")
    (200.0, {'time per token': 0.02})
    """
    rate, limits = 0.0, {}
    for part in text.split(","):
        found = _TARGET.fullmatch(" ".join(part.split()))
        if found is None:
            raise BadValue(
                f"--for {part.strip()!r}: give N requests/s, and time per token N ms or first "
                "token N ms, each a mean (p50): a tail (p99) isn't predicted"
            )
        if found["rate"]:
            rate = float(found["rate"])
        else:
            limits[found["time"]] = float(found["limit"]) * _SECONDS[found["unit"]]
    if not rate:
        raise BadValue(f"--for {text!r} says no requests/s")
    return rate, limits


class Answer(NamedTuple):
    """What `roofline serve` says: the loads, or why there are none.

    `needed` are the chips that a target needs.

    Examples
    --------
    >>> Answer("No.").loads
    ()
    """

    text: str
    loads: Sequence[Load] = ()
    needed: Range | None = None

    def parts(self) -> list[str | Grid]:
        """Return what is printed: the answer, then the table and what it rests on."""
        text = textwrap.fill(self.text, WIDTH)
        if not self.loads:
            return [text]
        heads = ["requests", "decode", "wait", "ms per token", "ms to the first", "tokens/s a chip"]
        rows = []
        for load in self.loads:
            counts = [load.concurrency, load.batch * load.workers, load.waiting]
            cells = [f"{n:,.0f}" for n in counts]
            for name, own in ranges(load).items():
                cells.append(_spoken(own, _milli if name in TIMES else significant))
            rows.append(cells)
        return [text, "", Grid(heads, rows), "", _basis(self.loads[0])]

    def data(self) -> dict[str, Any]:
        """Return the same for programs, in seconds."""
        loads = []
        for load in self.loads:
            quantities = {name: own._asdict() for name, own in ranges(load).items()}
            counts = {name: getattr(load, name) for name in ("concurrency", "batch", "waiting")}
            loads.append({**counts, **quantities})
        ends = self.needed._asdict() if self.needed else {}
        needed = {end: n if n and n < math.inf else None for end, n in ends.items()} or None
        types = self.loads[0].worker.decode.types if loads else None
        return {
            **{"serves": bool(loads), "answer": self.text},
            **{"types": types, "loads": loads, "chips": needed},
        }


def answer(
    model: Any,
    chip: Any,
    concurrency: list[int],
    target: tuple[float, dict[str, float]] | None = None,
    chips: int | None = None,
    **asked: Any,
) -> Answer:
    """Return what a service does at each concurrency, and the chips that a target needs.

    Parameters
    ----------
    model, chip, concurrency
        As `service` takes them.
    target : tuple, optional
        As `targets` returns it.
    chips : int, optional
        Of an engine: by default one, or for a target those of `COUNTS` that need the fewest in all.
    **asked
        Further arguments of `service`.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `service`; what doesn't fit is an answer.

    Examples
    --------
    >>> answer("llama-3-8b", "h100", [8], inputs=1024, outputs=256).text[:4]
    'Yes.'
    """
    count, needed = 1 if chips is None else chips, None
    if target is not None:
        counts = COUNTS if chips is None else (chips,)
        sized = {n: _needed(model, chip, target, chips=n, **asked) for n in counts}
        count = min(counts, key=lambda n: (sized[n].best, -n))  # of equals, the fastest
        needed = sized[count]
    try:
        loads = service(model, chip, concurrency=concurrency, chips=count, **asked)
    except NoRoom as error:
        return Answer(_no_room(error, model, chip, count, asked))
    last = loads[-1]
    token, first, rate = ranges(last).values()
    setting, worker = last.worker.decode.setting, last.worker
    most = "" if rate.low else " at most"
    queue = f", so {last.waiting:,.0f} wait for it" if last.waiting else ""
    text = (
        f"{'Yes' if not last.waiting else 'Not all at once'}. {last.concurrency:,} requests of "
        f"{worker.inputs:,} + {worker.outputs:,} tokens to {setting.model.name} on {last.chips} "
        f"{setting.chip.name} get a token every {_span(token)} and the first after {_span(first)}: "
        f"{significant(rate.best)} tokens/s a chip{most}. Beside weights and the runtime "
        f"{si(worker.room, 'B')} a chip are left for caches, of "
        f"{worker.most * last.workers:,} such requests{queue}."
    )
    if target is None or needed is None:
        return Answer(text, loads)
    limits = "".join(f", {name} {si(limit, 's')}" for name, limit in target[1].items())
    said = f"For {target[0]:g} requests/s{limits}: "
    if math.isinf(needed.best):
        return Answer(f"{said}no number of such engines is fast enough. {text}", loads, needed)
    about, ends = "at least", ""
    if needed.low and needed.high:
        high = f"{needed.high:,.0f}" if needed.high < math.inf else "no number"
        about, ends = "about", f", {needed.low:,.0f} to {high} by the model's error"
    return Answer(
        f"{said}{about} {needed.best:,.0f} chips in engines of {last.chips}{ends}. {text}",
        loads,
        needed,
    )


def _needed(model: Any, chip: Any, target: tuple[float, dict[str, float]], **asked: Any) -> Range:
    """Return the chips that a target needs in engines of one size; infinite without room."""
    try:
        (single,) = service(model, chip, concurrency=[1], **asked)
    except (BadValue, UnknownName):  # no links, no even shares, or no room
        return Range(math.inf, math.inf, math.inf)
    sizes = {round(GROWTH**n) for n in range(round(math.log(single.worker.most, GROWTH)) + 1)}
    return chips_for(*target, service(model, chip, concurrency=sorted(sizes), **asked))


def _no_room(error: NoRoom, model: Any, chip: Any, count: int, asked: dict[str, Any]) -> str:
    """Return why there is no room, in which types, and with what there would be."""
    fewest = next((n for n in (*COUNTS, 16, 32, 64) if _fits(model, chip, n, asked)), None)
    types: dict[str, Any] = {name: asked.get(name) for name in TYPES}
    step = serving.step(model, chip, **types)
    assumed = "assumed" in {origin(step.setting, name) for name in ("weights", "experts")}
    word = f"Not in {step.setting.weights}, which is assumed" if assumed else "No"
    said = f"{word}. {error}. Types: {step.types}."
    if fewest:
        said += f" In these {fewest} chips have room."
    narrow = "fp8" if "fp8" in chip_of(chip).matrix else "int8"
    for kind in (narrow, "int4"):
        if _fits(model, chip, count, {**asked, "weights": kind, "activations": None}):
            return f"{said} With weights in {kind} it fits."
    return said


def _fits(model: Any, chip: Any, count: int, asked: dict[str, Any]) -> bool:
    with suppress(BadValue, UnknownName):
        return bool(service(model, chip, concurrency=[1], chips=count, **asked))
    return False


def _spoken(own: Range, shown: Callable[[float], str]) -> str:
    low, best, high = ("" if n is None else shown(n) for n in own)
    return f"{best} ({low} to {high})" if low else best


def _milli(seconds: float) -> str:
    return significant(1e3 * seconds)


def _span(own: Range) -> str:
    text = _spoken(own, lambda n: si(n, "s"))
    return text if own.low else f"{text} at best"


def _basis(load: Load) -> str:
    """Return what numbers and ranges rest on."""
    step, (kind, apart) = load.worker.decode, kind_of(load)
    law = "laws of measured kernels" if step.has_laws else "the roof at reached ceilings"
    where = "with workers apart " if apart else ""
    here = step.setting.chip.key in set(points().chip)
    lines = [
        f"Best: means, by {law}, each request with as many tokens as the others. {step.types}; "
        f"{step.setting.reserve:.0%} of the memory is the runtime's.",
        f"Low to high: there lie eight of ten measured points of models of this kind ({kind}) "
        f"{where}on {'this chip and others' if here else 'other chips, none on this one'}.",
    ]
    first = ranges(load)["first token"]
    if first.low is None:
        lines[1] = (
            "Low and high aren't known: no kernels were measured on this chip. The roof leaves out "
            "what it costs to start a kernel, so times are longer, those of few requests most."
        )
    elif first.low > first.best:
        lines.append(
            "Their first tokens came later than the best in nine of ten points: what else they "
            "waited for isn't predicted."
        )
    if step.has_laws and any(_by_nccl(transfer.collective) for transfer in step.exchanges):
        lines.append(
            "No serving library's own all-reduce was measured over so many "
            f"{step.setting.chip.name}: sums take NCCL's time, so fewer chips may look faster."
        )
    if load.worker.draft is not None:
        lines.append("Speculation is in none of these points: its range is that of a step.")
    return "\n".join(textwrap.fill(line, WIDTH) for line in lines)


def _by_nccl(collective: network.Collective) -> bool:
    """Return whether a sum over NVLink goes by NCCL's kernels since no others were measured."""
    (axis, *more) = collective.axes
    small = not more and axis.network == "nvlink" and axis.size not in axis.custom
    return small and collective.kind == "all-reduce"


def chips_for(rate: float, limits: dict[str, float], loads: list[Load]) -> Range:
    """Return the chips that so many requests per second need, each within the limits.

    For each end of the model's range as many engines as needed, each at the concurrency with the
    most requests per second within the limits; infinite where none is.

    Examples
    --------
    >>> loads = service("llama-3-8b", "h100", concurrency=[1, 8], inputs=1024, outputs=256)
    >>> chips_for(loads[1].rate * 4, {}, loads).best
    4.0
    """

    def needed(end: str) -> float:
        rates = [0.0]
        for load in loads:
            own = {name: getattr(each, end) for name, each in ranges(load).items()}
            if all(own[name] <= limit for name, limit in limits.items()):
                rates.append(load.rate * load.time_per_token / own["time per token"])
        engines = math.ceil(rate / max(rates) * (1 - 1e-9)) if max(rates) else math.inf
        return float(engines * loads[0].chips)

    if not loads[0].worker.decode.has_laws:
        return Range(None, needed("best"), None)
    return Range(*map(needed, Range._fields))
