"""What a service of one's own would do, each number with the range that measured ones give it."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

from roofline import network
from roofline.configurations import model as model_of
from roofline.serving.forward import ServingStep, step
from roofline.serving.loads import Load, NoRoom, Readers, at_concurrency
from roofline.serving.setting import TYPES, origin
from roofline.serving.tensor_parallel import COUNTS
from roofline.terminal import Grid
from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadValue, UnknownName, whole
from roofline_helpers.common.show import si, significant
from roofline_helpers.models import Decoder

WIDTH = 100
"""Columns of an answer."""

DENSE, MIXTURE = "dense", "mixture of experts"

SPREAD = {
    (DENSE, False, "time per token"): (0.78, 1.23),
    (DENSE, False, "first token"): (0.90, 2.10),
    (DENSE, False, "tokens/s per chip"): (0.74, 1.20),
    (MIXTURE, False, "time per token"): (0.87, 1.42),
    (MIXTURE, False, "first token"): (0.79, 2.45),
    (MIXTURE, False, "tokens/s per chip"): (0.68, 1.14),
    (MIXTURE, True, "time per token"): (0.73, 1.26),
    (MIXTURE, True, "first token"): (1.06, 13.9),
    (MIXTURE, True, "tokens/s per chip"): (0.68, 1.24),
}
"""Published over predicted: between which two eight of ten served points of a kind lie, by kind of
model, whether workers are apart, and quantity; so chosen that eight of ten of a model, chip and
engine lie there that were left out. `tests/package/test_served.py` checks them."""

MEASURED = ("b200", "b300", "gb200", "h100", "h200")
"""Chips of these points."""

WIDEST = 4.0
"""A range whose ends are further apart predicts nothing."""

COMPARED = 0.12
"""Share of a step's time on kernels measured on other chips: no compared point has more, so that
their ranges hold what such laws miss."""

TIMES = {"time per token": "time_per_token", "first token": "first_token"}

_SECONDS = {"ms": 1e-3, "s": 1.0}
_TARGET = re.compile(
    r"(?P<rate>\d+\.?\d*) requests?/s|(?:(?:p50|mean|median) )?"
    r"(?P<time>time per token|first token) (?P<limit>\d+\.?\d*) (?P<unit>ms|s)"
)


class Range(NamedTuple):
    """A prediction, and where eight of ten measured ones of its kind would lie.

    `low` and `high` are None where that isn't known: then `best` is a bound. All are None where
    nothing is predicted.

    Examples
    --------
    >>> Range(1.0, 2.0, 3.0).best
    2.0
    """

    low: float | None
    best: float | None
    high: float | None


def kind_of(load: Load) -> tuple[str, bool]:
    """Return the kind of `SPREAD` that a load is of: of which model, and whether prompts are apart.

    Of dense models with workers apart too few were measured: theirs is that of mixtures.
    """
    apart = load.readers is not None
    mixture = load.worker.decode.setting.model.experts is not None or apart
    return MIXTURE if mixture else DENSE, apart


def unlike(model: Decoder) -> str:
    """Return what a model has that no compared one has: a state, or an indexer."""
    if model.state_bytes:
        return "layers that keep a state"
    return "an indexer" if model.mixers(lambda mixer: mixer.top > 0) else ""


def widened(step: ServingStep) -> float:
    """Return the factor of a range's ends for what the laws of other chips' kernels miss."""
    return 1 + (step.missed if step.rests["another chip"] > COMPARED else 0.0)


def ranges(load: Load) -> dict[str, Range]:
    """Return each quantity that `validation.compare` has, with its range.

    Measured points tell the error of the laws of kernels; where kernels were measured on other
    chips only, what such laws miss is added. Where most of the time rests on no measured kernels
    there is no range, and a range wider than `WIDEST` isn't given, nor its middle.

    Examples
    --------
    >>> from roofline.serving import load
    >>> served = load("llama-3-8b", "h100", concurrency=8, inputs=1024, outputs=1024)
    >>> low, best, high = ranges(served)["time per token"]
    >>> low < best == served.time_per_token < high
    True
    """
    decode, prompt = load.worker.decode, (load.readers or load.worker).reading
    steps = {"time per token": [decode], "first token": [prompt]}
    found = {}
    for name, attribute in {**TIMES, "tokens/s per chip": "per_chip"}.items():
        best, (low, high) = getattr(load, attribute), SPREAD[*kind_of(load), name]
        rests = steps.get(name, [decode, prompt])
        missed = max(map(widened, rests))
        low, high = low / missed, high * missed
        model = decode.setting.model
        if unlike(model) or not all(part.has_laws for part in rests):
            found[name] = Range(None, best, None)
        elif high / low > WIDEST:
            found[name] = Range(None, None, None)
        else:
            found[name] = Range(best * low, best, best * high)
    return found


def service(
    model: Any,
    chip: Any,
    *,
    chips: int = 1,
    data: int = 1,
    readers: int = 0,
    rate: float | None = None,
    **asked: Any,
) -> Callable[[int], Load]:
    """Return the loads of an engine of so many chips, as a function of the concurrency.

    Parameters
    ----------
    model, chip
        As `step` takes them.
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
        As `at_concurrency` takes them.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `at_concurrency`.

    Examples
    --------
    >>> service("llama-3-8b", "h100", inputs=1024, outputs=256)(8).concurrency
    8
    """
    device = chip_of(chip)
    count, decoder = whole("chips", chips), model_of(model)
    tensor, rest = divmod(count, whole("data", data))
    if rest or decoder.heads % tensor:
        even = [n for n in range(1, count + 1) if count % n + decoder.heads % (count // n) == 0]
        raise BadValue(
            f"{count} chips in parts of data {data} can't share {decoder.heads} heads evenly. "
            f"Allowed data: {', '.join(map(str, even))}"
        )
    if readers:
        asked["readers"] = Readers(whole("readers", readers), rate=rate)
    place = network.topology(device, count, ceilings="reached")
    mesh = {"expert" if decoder.experts else "data": data, "tensor": tensor}
    return at_concurrency(decoder, place, mesh, **asked)


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

    With a target, `needed` are the chips that it needs, `loads` the operating points of the engines
    that need the fewest, and `engines` how many of each.

    Examples
    --------
    >>> Answer("No.").loads
    ()
    """

    text: str
    loads: Sequence[Load] = ()
    needed: Range | None = None
    engines: Sequence[int] = ()

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
        for row, load, count in zip(rows, self.loads, self.engines, strict=False):
            row[:3] = [f"{count * load.chips:,}", f"{count:,} of {load.chips}", row[0]]
        if self.engines:
            heads[:3] = ["chips", "engines", "requests each"]
        return [text, "", Grid(heads, rows), "", _basis(self.loads[0])]

    def data(self) -> dict[str, Any]:
        """Return the same for programs, in seconds."""
        loads = []
        for load, count in zip_longest(self.loads, self.engines):
            quantities = {name: own._asdict() for name, own in ranges(load).items()}
            names = ("concurrency", "batch", "waiting", "chips")
            counts = {name: getattr(load, name) for name in names}
            loads.append({**counts, "engines": count, **quantities})
        ends = self.needed._asdict() if self.needed else {}
        step = self.loads[0].worker.decode if self.loads else None
        return {
            **{"serves": bool(loads), "answer": self.text, "types": step and step.types},
            **{"rests": step and step.rests, "loads": loads},
            "chips": {end: n if n and n < math.inf else None for end, n in ends.items()} or None,
        }


def answer(
    model: Any,
    chip: Any,
    concurrency: list[int],
    target: tuple[float, dict[str, float]] | None = None,
    chips: int | None = None,
    **asked: Any,
) -> Answer:
    """Return what a service does at each concurrency, or the chips that a target needs.

    Parameters
    ----------
    model, chip
        As `service` takes them.
    concurrency : list of int
        Requests at once. With a target they follow from it.
    target : tuple, optional
        As `targets` returns it.
    chips : int, optional
        Of an engine: by default one, or for a target each of `COUNTS`.
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
    decoder, device = model_of(model), chip_of(chip)
    try:
        if target is not None:
            return _for_target(decoder, device, target, chips, asked)
        loads = [*map(service(decoder, device, chips=chips or 1, **asked), concurrency)]
    except NoRoom as error:
        return Answer(_no_room(error, decoder, device, chips or 1, asked))
    last = loads[-1]
    return Answer(f"{_verdict(last)} {_says(last)}", loads)


def _verdict(load: Load) -> str:
    """Return the first words: a bound is no "Yes"."""
    if load.waiting:
        return "Not all at once."
    return "Yes." if ranges(load)["time per token"].low else "They fit; how fast isn't known."


def _says(load: Load) -> str:
    """Return what a load does, in two sentences."""
    token, first, rate = ranges(load).values()
    setting, worker = load.worker.decode.setting, load.worker
    most = "" if rate.low else " at most"
    queue = f", so {load.waiting:,.0f} wait for it" if load.waiting else ""
    requests = "1 request" if load.concurrency == 1 else f"{load.concurrency:,} requests"
    get = "gets" if load.concurrency == 1 else "get"
    such = worker.most * load.workers
    return (
        f"{requests} of {worker.inputs:,} + {worker.outputs:,} tokens to {setting.model.name} on "
        f"{load.chips} {setting.chip.name} {get} a token every {_span(token)} and the first "
        f"{'after ' if first.best else ''}{_span(first)}: {significant(load.per_chip)} tokens/s a "
        f"chip{most}. Beside weights and the runtime {si(worker.room, 'B')} a chip are left for "
        f"caches, of {such:,} such request{'s' * (such != 1)}{queue}."
    )


def _for_target(
    model: Decoder,
    chip: Chip,
    target: tuple[float, dict[str, float]],
    chips: int | None,
    asked: dict[str, Any],
) -> Answer:
    """Return the engines that a target needs, the fewest chips first; raise NoRoom without any."""
    points, refused = [], None
    for count in COUNTS if chips is None else (chips,):
        try:
            at = service(model, chip, chips=count, **asked)
            points.append(_operating(at, *target))
        except NoRoom as error:
            refused = error
        except (BadValue, UnknownName):  # no links, or no even shares
            if chips is not None:
                raise
    if not points:
        raise refused or NoRoom(f"no engine of {chip.name} can hold {model.name}")
    points.sort(key=lambda point: (point[1].best or math.inf, -point[0].chips))
    load, needed = points[0]
    limits = "".join(f", {name} {si(limit, 's')}" for name, limit in target[1].items())
    said = f"For {target[0]:g} request{'s' * (target[0] != 1)}/s{limits}: "
    if needed.best == math.inf:
        alone = f"Alone {_says(load)}"
        return Answer(f"{said}no number of such engines is fast enough. {alone}", [load], needed)
    enough = [(load, own.best) for load, own in points if own.best and own.best < math.inf]
    found = [(load, round(chips / load.chips)) for load, chips in enough]
    loads, engines = zip(*found[:3], strict=True)
    many = f"{needed.best:,.0f} chip{'s' * (needed.best != 1)}"
    size = "one engine" if engines[0] == 1 else f"{engines[0]:,} engines"
    ends = ""
    if needed.low and needed.high:
        high = f"{needed.high:,.0f}" if needed.high < math.inf else "no number"
        ends = f" ({needed.low:,.0f} to {high} by the model's error)"
    about = "about" if ends else "at least"
    text = f"{said}{about} {many}{ends}, {size} of {load.chips}. In each, up to {_says(load)}"
    return Answer(text, loads, needed, engines)


def _operating(
    at: Callable[[int], Load], rate: float, limits: dict[str, float]
) -> tuple[Load, Range]:
    """Return the load of an engine with the most requests/s within the limits, and all its chips.

    Times and requests/s grow with the concurrency: for each end of the range the largest within the
    limits is looked for by halves. Infinite chips where one request is too slow.
    """
    at = cache(at)
    alone = at(1)
    for name in limits:
        if ranges(alone)[name].best is None:
            raise BadValue(f"{name} isn't predicted of such a service: leave it out of --for")

    def within(n: int, end: str) -> bool:
        own = ranges(at(n))
        return all((getattr(own[name], end) or 0.0) <= limit for name, limit in limits.items())

    def chips(n: int, end: str) -> float:
        load = at(n)
        own = ranges(load)["time per token"]
        reached = load.rate * load.time_per_token / (getattr(own, end) or load.time_per_token)
        return float(load.chips * math.ceil(rate / reached * (1 - 1e-9)))

    found, most = {}, alone.worker.most * alone.workers
    ends = Range._fields if ranges(alone)["time per token"].low else ("best",)
    for end in ends:
        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if within(middle, end) else (low, middle)
        found[end] = low
    needed = {end: chips(n, end) if n else math.inf for end, n in found.items()}
    best = at(max(1, found["best"]))
    return best, Range(needed.get("low"), needed["best"], needed.get("high"))


def _no_room(error: NoRoom, model: Decoder, chip: Chip, count: int, asked: dict[str, Any]) -> str:
    """Return why there is no room, in which types, and with what there would be."""
    fewest = next((n for n in (*COUNTS, 16, 32, 64) if _fits(model, chip, n, asked)), None)
    types: dict[str, Any] = {name: asked.get(name) for name in TYPES}
    here = step(model, chip, **types)
    held = "experts" if here.setting.model.experts else "weights"  # nearly all of it
    word = "No"
    if origin(here.setting, held) == "assumed":
        word = f"Not in {getattr(here.setting, held)}, which is assumed"
    said = f"{word}. {error}. Types: {here.types}."
    if fewest:
        said += f" In these {fewest} chip{'s have' if fewest > 1 else ' has'} room."
    narrow = "fp8" if "fp8" in chip.matrix else "int8"
    for kind in (narrow, "int4"):
        if _fits(model, chip, count, {**asked, "weights": kind, "activations": None}):
            return f"{said} With weights in {kind} it fits."
    return said


def _fits(model: Decoder, chip: Chip, count: int, asked: dict[str, Any]) -> bool:
    with suppress(BadValue, UnknownName):
        return bool(service(model, chip, chips=count, **asked))
    return False


def _spoken(own: Range, shown: Callable[[float], str]) -> str:
    if own.best is None:
        return "not predicted"
    low, best, high = ("" if n is None else shown(n) for n in own)
    return f"{best} ({low} to {high})" if low else best


def _milli(seconds: float) -> str:
    return significant(1e3 * seconds)


def _span(own: Range) -> str:
    text = _spoken(own, lambda n: si(n, "s"))
    if own.best is None:
        return "at a time that isn't predicted"
    return text if own.low else f"{text} at best"


def _basis(load: Load) -> str:
    """Return what numbers and ranges rest on."""
    return "\n".join(textwrap.fill(line, WIDTH) for line in _lines(load))


def _lines(load: Load) -> Iterator[str]:
    step, (kind, apart) = load.worker.decode, kind_of(load)
    law = "laws of measured kernels" if step.has_laws else "the roof at reached ceilings"
    yield (
        f"Best: means, by {law}, each request with as many tokens as the others. {step.types}; "
        f"{step.setting.reserve:.0%} of the memory is the runtime's."
    )
    measured = {
        "this chip": "kernels measured on this chip in their types",
        "another chip": "kernels measured on other chips",
        "none": "no measured kernel",
    }
    shares = [f"{n:.0%} on {measured[where]}" for where, n in step.rests.items() if n >= 0.005]
    rests = ", ".join(shares).replace("%", "% rests", 1)
    yield f"Of a decode step's time {rests}."
    own = ranges(load)
    where = "with workers apart " if apart else ""
    here = "this chip and others" if step.setting.chip.key in MEASURED else "other chips only"
    if any(each.low for each in own.values()):
        wider = ", and wider for what kernels of other chips tell of this one"
        wider = wider if widened(step) > 1 else ""
        yield (
            f"Low to high: there lie eight of ten measured points of models of this kind ({kind}) "
            f"{where}on {here}{wider}."
        )
    if own["time per token"].low is None:
        why = "for most of its time no kernels were measured"
        if has := unlike(step.setting.model):
            why = f"no service of a model with {has} was compared with its prediction"
        elif step.rests["none"] < 0.5:
            why = "no service on such a chip was compared with its prediction"
        yield (
            f"Low and high aren't known: {why}. The roof leaves out what it costs to start a "
            "kernel, so times are longer, those of few requests most."
        )
    if own["first token"].best is None:
        yield (
            f"Not predicted: the range of first tokens of this kind {where}would be more than "
            f"{WIDEST:.0f} times wide; what they wait for isn't known."
        )
    if step.has_laws and any(_by_nccl(transfer.collective) for transfer in step.exchanges):
        yield (
            "No serving library's own all-reduce was measured over so many "
            f"{step.setting.chip.name}: sums take NCCL's time, so fewer chips may look faster."
        )
    if load.worker.draft is not None:
        yield "Speculation is in none of these points: its range is that of a step."


def _by_nccl(collective: network.Collective) -> bool:
    """Return whether a sum over NVLink goes by NCCL's kernels since no others were measured."""
    (axis, *more) = collective.axes
    small = not more and axis.network == "nvlink" and axis.size not in axis.custom
    return small and collective.kind == "all-reduce"
