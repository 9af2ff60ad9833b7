"""Serving under load: time per token, time to the first one, and throughput at a concurrency.

So many requests are in the system at once, each with as many tokens of prompt and of answer as the
others; when one is answered the next comes, as benchmarks of serving do it (a closed loop).

Decode
    A step takes as long as `step` says, for the sequences that decode at once, at their mean
    context. While a sequence gets its outputs − 1 further tokens, each of the others ends once and
    another's prompt takes its place. A worker that reads prompts itself pauses for them:
    time per token = step + others that decode · prompt / (outputs − 1).
Prompts
    They are read one after another, whole or in chunks, each before a step of the decoding
    sequences: a chunk reads the weights by itself, though servers may read them once for both.
    A prompt waits for those before it: mean-value analysis of a closed queue, with the other
    requests' decoding as its delay. Several workers that read prompts are one that is as many times
    faster, and a delay. A server looks for new requests after each step, or after `polled` of them.
Memory
    A sequence keeps its mean context, half of its answer. Requests that don't fit wait outside, by
    Little's law: requests = rate · time.

Not counted: the scheduler between steps, sampling, lengths that differ, preemption.

Sources: W. Kwon et al., arXiv:2309.06180 (vLLM: a pool of pages, and requests that wait for it);
A. Agrawal et al., arXiv:2403.02310 (chunks of prompts beside decode); Y. Zhong et al.,
arXiv:2401.09670 (separate workers); J. Little, "A proof for the queuing formula L = λW", 1961;
M. Reiser, S. Lavenberg, "Mean-value analysis of closed multichain queuing networks", 1980, in
P. Schweitzer's approximation, with the rest of a fixed service (half of it); A. Seidmann et al.,
"Computerized closed queueing network models of flexible manufacturing systems", 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from roofline import network
from roofline.network.topology import topology_of
from roofline.serving.forward import ServingStep, step
from roofline.serving.speculation import own_module, speculative
from roofline_helpers.common.checks import BadType, BadValue, RooflineError, shown, single, whole
from roofline_helpers.common.show import Facts, si
from roofline_helpers.models import Decoder

BUDGET = 8192
"""Tokens of prompts in a step: what vLLM's server takes as `max_num_batched_tokens` on a GPU with
70 GiB or more that is no A100 (`EngineArgs.get_batch_defaults`, November 2026)."""

RESERVE = 0.08
"""Share of the memory that vLLM leaves: `gpu_memory_utilization` is 0.92 (November 2026)."""

SERVER = 0.03
"""Seconds that a server adds to the first token: the request's way in, its tokens, kernels that the
host starts one by one. It comes from served requests: of the
measured time that is missing from a lone prompt of 1,024 tokens, the median of four models, each
with its own median (22, 28 and 29 ms; DeepSeek-V3 157 ms). Without any of the four it is 28 or
29 ms. `roofline.validation.served` judges it with all others."""

LATER = 1.3
"""How many times as late as predicted a mixture's first token comes: a dense model's comes in time.
What it waits for isn't known. Of served requests, too: of 1.2 to 1.6, which fit single models best,
the factor with the least median error, 22% instead of 30% of 717 points."""

_COUNTED = {"batch", "context", "phase", "new"}
"""Arguments of a step that follow from the load."""

_TURNS = 10
"""Rounds of the fixed point: the batch is then within a thousandth."""


class NoRoom(BadValue):
    """A worker that can't hold the weights, a request, and a chunk of a prompt.

    Examples
    --------
    >>> try:
    ...     load("llama-3-70b", "h100", concurrency=1, inputs=1024, outputs=1024)
    ... except NoRoom as error:
    ...     print(str(error)[:41])
    Llama 3 70B with a request of 1,536 token
    """


@dataclass(frozen=True)
class Worker:
    """Devices that hold a model once, and how they serve it.

    Parameters
    ----------
    decode : ServingStep
        A step of one sequence at its mean context, in the worker's layout and types.
    inputs, outputs : int
        Tokens of a prompt and of an answer.
    budget : int
        Most tokens of a prompt in a step.
    cached : float
        Share of the inputs that a prefix cache has.
    draft : ServingStep, optional
        A step of the draft model.
    draft_tokens, acceptance : int, float
        As `speculative` takes them.

    Examples
    --------
    >>> worker = Worker(step("llama-3-8b", "h100", context=1536), inputs=1024, outputs=1024)
    >>> worker.most, f"{worker.prompt * 1e3:.0f} ms"
    (342, '17 ms')
    """

    decode: ServingStep
    inputs: int
    outputs: int
    budget: int = BUDGET
    cached: float = 0.0
    draft: ServingStep | None = None
    draft_tokens: int = 0
    acceptance: float = 0.0
    _seconds: dict[int, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def fresh(self) -> int:
        """Tokens of a prompt that are read."""
        return max(1, round(self.inputs * (1 - self.cached)))

    @property
    def chunks(self) -> int:
        """Steps that read one prompt."""
        return -(-self.fresh // self.budget)

    @property
    def at_once(self) -> int:
        """Prompts that are read at once, each by the devices that have a copy of attention."""
        return self.decode.setting.size("data", "expert")

    @cached_property
    def prompt(self) -> float:
        """Seconds to read `at_once` prompts, without what decodes beside them.

        Chunks read the weights again each. Attention is that of the whole prompt, without that of
        the part that a prefix cache has.
        """
        part = self.reading
        if part.setting.context == self.inputs:
            return part.seconds
        attention = _attention(self._reading(self.inputs))
        attention *= 1 - (1 - self.fresh / self.inputs) ** 2  # of what isn't in the cache
        return self.chunks * (part.seconds - _attention(part)) + attention

    @cached_property
    def reading(self) -> ServingStep:
        """The step that reads a chunk of a prompt."""
        return self._reading(-(-self.fresh // self.chunks))

    def _reading(self, tokens: int) -> ServingStep:
        return self.decode.but(phase="prefill", batch=self.at_once, context=tokens)

    @property
    def room(self) -> float:
        """Bytes of a device beside the runtime and weights, a draft's among them."""
        drafts = self.draft.memory.weights if self.draft else 0.0
        return self.decode.memory.for_sequences - drafts

    @cached_property
    def most(self) -> int:
        """Sequences that fit at once, with their caches beside weights and a chunk of a prompt."""
        reading = self._reading(min(self.fresh, self.budget)).memory.activations
        memory, setting = self.decode.memory, self.decode.setting
        cache = memory.cache + (self.draft.memory.cache if self.draft else 0.0)
        each = max(0, math.floor((self.room - max(reading, memory.activations)) / cache))
        return each * setting.size("data", "expert", "batch")

    def seconds(self, batch: float) -> float:
        """Return the seconds between two tokens of each of so many sequences, without prompts."""
        n = max(1, round(batch))
        if n not in self._seconds:
            decode = self.decode.but(batch=n)
            self._seconds[n] = decode.seconds
            if self.draft is not None:
                length, rate = self.draft_tokens, self.acceptance
                drafts = self.draft.but(batch=n)
                verified = speculative(decode, drafts, draft_tokens=length, acceptance=rate)
                self._seconds[n] = verified.time_per_token
        return self._seconds[n]


def _attention(reading: ServingStep) -> float:
    kernels = [kernel for kernel in reading.kernels if kernel.work.kind.startswith("prefill")]
    return sum(kernel.total for kernel in kernels)


@dataclass(frozen=True, repr=False)
class Load(Facts):
    """What a service does at a concurrency: times in seconds, each of one request.

    `worker` decodes, `workers` of them; `readers` read prompts apart, or the worker reads them
    itself. `batch` are the sequences that decode at once in a worker, `step_seconds` those of its
    step; `waiting` are requests that don't fit into the memory; `transfer` is the time of a cache
    between workers, and `rate` are requests per second.

    Examples
    --------
    >>> served = load("llama-3-8b", "h100", concurrency=64, inputs=1024, outputs=1024)
    >>> f"{served.time_per_token * 1e3:.1f} ms, {served.per_chip:.0f} tokens/s"
    '12.8 ms, 4978 tokens/s'
    """

    concurrency: int
    worker: Worker
    workers: int
    batch: float
    step_seconds: float
    time_per_token: float
    first_token: float
    rate: float
    waiting: float = 0.0
    transfer: float = 0.0
    readers: Worker | None = None
    reader_count: int = 0

    def _title(self) -> str:
        decode, worker = self.worker.decode.setting, self.worker
        sizes = f"{self.concurrency} × {worker.inputs:,} + {worker.outputs:,}"
        return f"{decode.model.name}, {sizes} on {self.chips} {decode.chip.name}"

    def _facts(self) -> dict[str, str]:
        facts = {
            "time per token": f"{si(self.time_per_token, 's')} per token",
            "first token": f"{si(self.first_token, 's')} to the first",
            "throughput": f"{si(self.tokens_per_second, 'tokens/s')}",
        }
        if self.waiting:
            facts["queue"] = f"{self.waiting:.0f} wait for memory"
        return facts

    @property
    def chips(self) -> int:
        """Chips of all workers."""
        apart = self.reader_count * self.readers.decode.setting.chips if self.readers else 0
        return self.workers * self.worker.decode.setting.chips + apart

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens of all requests."""
        return self.rate * self.worker.outputs

    @property
    def per_chip(self) -> float:
        """Generated tokens per second and chip."""
        return self.tokens_per_second / self.chips

    @property
    def per_user(self) -> float:
        """Tokens per second of one user, after the first."""
        return 1 / self.time_per_token


@dataclass(frozen=True)
class Readers:
    """Workers that read prompts, and send the cache to those that decode.

    Parameters
    ----------
    count : int
        How many there are.
    hardware, mesh
        As `step` takes them; by default those of a worker that decodes.
    chips : int
        Chips of each, where `hardware` is a chip.
    rate : float, optional
        Byte/s that a chip sends to another worker. By default the network's between hosts, or
        within one if all workers are in it.

    Examples
    --------
    >>> Readers(2, "h100", chips=4).count
    2
    """

    count: int
    hardware: Any = None
    mesh: Any = None
    chips: int = 1
    rate: float | None = None


def load(
    model: Decoder | str,
    hardware: Any,
    mesh: Any = None,
    *,
    concurrency: int,
    **service: Any,
) -> Load:
    """Return what a service does with so many requests at once.

    Parameters
    ----------
    model, hardware, mesh
        As `step` takes them: of one worker that decodes.
    concurrency : int
        Requests in the system at once, of all workers.
    **service
        The further arguments of `at_concurrency`.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `curve`.

    Examples
    --------
    >>> served = load("llama-3-70b", "h200", chips=8, concurrency=64, inputs=1024, outputs=1024)
    >>> f"{served.time_per_token * 1e3:.1f} ms, the first after {served.first_token * 1e3:.0f} ms"
    '13.5 ms, the first after 95 ms'
    """
    return curve(model, hardware, mesh, concurrency=[concurrency], **service)[0]


def curve(
    model: Decoder | str,
    hardware: Any,
    mesh: Any = None,
    *,
    concurrency: Iterable[int],
    **service: Any,
) -> list[Load]:
    """Return what a service does at each of several concurrencies.

    Parameters
    ----------
    model, hardware, mesh, **service
        As `at_concurrency` takes them.
    concurrency : iterable of int
        Requests in the system at once, of all workers.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `at_concurrency`.

    Examples
    --------
    >>> loads = curve("llama-3-8b", "h100", concurrency=[1, 8, 64], inputs=1024, outputs=256)
    >>> [round(served.per_chip) for served in loads]
    [150, 1037, 4013]
    """
    asked = [whole("concurrency", n) for n in concurrency]
    return [*map(at_concurrency(model, hardware, mesh, **service), asked)]


def at_concurrency(
    model: Decoder | str,
    hardware: Any,
    mesh: Any = None,
    *,
    inputs: int,
    outputs: int,
    workers: int = 1,
    readers: Readers | None = None,
    budget: int = BUDGET,
    polled: int = 1,
    cached: float = 0.0,
    rounds: int | None = None,
    draft: Decoder | str | None = None,
    draft_tokens: int = 0,
    acceptance: float = 0.0,
    reserve: float = RESERVE,
    server: float = SERVER,
    **setting: Any,
) -> Callable[[int], Load]:
    """Return a function that gives what a service does with so many requests at once.

    Parameters
    ----------
    model, hardware, mesh
        As `step` takes them: of one worker that decodes.
    inputs, outputs : int
        Tokens of each prompt, and of each answer: at least 2.
    workers : int
        Workers that decode, and without `readers` read prompts too.
    readers : Readers, optional
        Workers that read the prompts instead, each a whole prompt at a time.
    budget : int
        Most tokens of a prompt in a step; longer ones are read in chunks.
    polled : int
        Steps between two looks for new requests: SGLang's ``--scheduler-recv-interval``. A request
        waits for half of them.
    cached : float
        Share of the inputs that a prefix cache has, from 0 to below 1.
    rounds : int, optional
        Requests of each user, one after another, if all users begin at once: a benchmark's first
        requests queue for each other, and count as one in `rounds`. By default the service has been
        running, and requests come as others end.
    draft, draft_tokens, acceptance
        Speculative decoding, as `speculative` takes it: its draft model, on the same hardware, or
        "own", the model's module for multi-token prediction.
    reserve : float
        The runtime's share of the memory.
    server : float
        Seconds that a server adds to the first token.
    **setting
        Further arguments of `step`. By default `law` is True, and on a chip `reached` too.

    Raises
    ------
    NoRoom
        A worker that can't hold the weights and one request.
    BadType, BadValue, UnknownName
        As `step`; workers between which no rate is known.

    Examples
    --------
    >>> served = at_concurrency("llama-3-8b", "h100", inputs=1024, outputs=256)
    >>> served(8).per_chip > 5 * served(1).per_chip
    True
    """
    if whole("outputs", outputs) < 2:
        raise BadValue(f"outputs must be at least 2, a token and a next one, got {outputs}")
    if counted := _COUNTED & setting.keys():
        raise BadType(
            f"{', '.join(sorted(counted))} of a step follow from the load: leave them out"
        )
    if draft is None and (draft_tokens or acceptance):
        raise BadValue("draft_tokens and acceptance are those of a draft: give its model")
    share = single("cached", cached, zero=True)
    if share >= 1:
        raise BadValue(f"cached must be a share of the inputs below 1, got {shown(cached)}")
    if topology_of(hardware) is None:
        setting = {"reached": True, **setting}
    setting = {"law": True, "reserve": reserve, **setting}
    sizes = (whole("inputs", inputs), outputs, whole("budget", budget), share)

    def worker(hardware: Any, mesh: Any, **more: Any) -> Worker:
        own = {"batch": 1, "context": inputs + outputs // 2, **setting, **more}
        first = step(model, hardware, mesh, **own)
        drafter = own_module(first.setting.model) if draft == "own" else draft
        drafts = None if drafter is None else step(drafter, hardware, mesh, **own)
        return _fitting(Worker(first, *sizes, drafts, draft_tokens, acceptance))

    decode = worker(hardware, mesh)
    count, looks = whole("workers", workers), whole("polled", polled)
    added = single("server", server, zero=True)
    bursts = 0.0 if rounds is None else 1 / whole("rounds", rounds)
    apart, reading, sent = None, 1, 0.0
    if readers is not None:
        apart, reading = decode, whole("count", readers.count)
        if readers.hardware is not None:
            apart = worker(readers.hardware, readers.mesh, chips=readers.chips)
        sent = transfer(decode, apart, count, reading, readers.rate)
    return lambda n: _loaded(n, decode, count, apart, reading, (sent, added), bursts, looks)


def _fitting(worker: Worker) -> Worker:
    """Return a worker that has room for a request; raise NoRoom if it has none."""
    if worker.most:
        return worker
    first = worker.decode.setting
    memory, requests = worker.decode.memory, f"a request of {first.context:,} tokens"
    where = f"each of {first.chips}" if first.chips > 1 else "one"
    raise NoRoom(
        f"{first.model.name} with {requests} needs "
        f"{si(memory.weights + memory.cache, 'B')} on {where} {first.chip.name}, "
        "and beside it a chunk of a prompt; an engine has "
        f"{si(memory.capacity - memory.reserve, 'B')}: give more chips, or narrower types"
    )


def pareto(loads: Iterable[Load]) -> list[Load]:
    """Return those that no other beats in both tokens per second, a user's and a chip's.

    From the fastest for a user to the most per chip.

    Examples
    --------
    >>> loads = curve("llama-3-8b", "h100", concurrency=[1, 8, 64], inputs=1024, outputs=256)
    >>> len(pareto(loads))
    3
    """
    front: list[Load] = []
    for served in sorted(loads, key=lambda served: (-served.per_user, -served.per_chip)):
        if not front or served.per_chip > front[-1].per_chip:
            front.append(served)
    return front


def transfer(
    decode: Worker, readers: Worker, workers: int, count: int, rate: float | None = None
) -> float:
    """Return the seconds to send one prompt's cache from a reader to a worker that decodes.

    Each chip of the smaller worker sends or receives its share; of latent attention one copy goes.

    Raises
    ------
    BadValue
        No rate is given, and none is known between hosts of that chip.

    Examples
    --------
    >>> worker = Worker(step("llama-3-8b", "h100", context=1536), inputs=1024, outputs=1024)
    >>> f"{transfer(worker, worker, 1, 1, rate=50e9) * 1e3:.1f} ms"
    '2.7 ms'
    """
    to, by = decode.decode.setting, readers.decode.setting
    nbytes = to.model.cache_bytes(decode.inputs, to.cache) + to.model.state_bytes
    sent = nbytes / min(to.chips, by.chips)
    if rate is not None:
        return sent / single("rate", rate)
    total = workers * to.chips + count * by.chips
    try:
        host = network.topology(to.chip, ceilings="reached")
        if to.chip.kind == "tpu" or total > host.chips:
            host = network.topology(to.chip, 1, slices=2, ceilings="reached")
    except RooflineError as error:
        raise BadValue(f"rate of a cache between workers: {error}. Give it, in byte/s") from None
    return float(network.collective("permute", sent, host.axes[-1]).seconds)


def _loaded(
    requests: int,
    decode: Worker,
    workers: int,
    readers: Worker | None,
    count: int,
    fixed: tuple[float, float],
    bursts: float,
    polled: int,
) -> Load:
    """Return the load of workers that read prompts themselves, or of others beside `readers`.

    `fixed` are the seconds of a cache's way between them, and those that the server adds.
    """
    more, reader = decode.outputs - 1, readers or decode
    later = LATER if decode.decode.setting.model.experts else 1.0
    # workers that do both are alike: one with its share of the requests
    alike = 1 if readers else min(workers, requests)
    decoders = workers if readers else 1
    here, most = requests / alike, decode.most * decoders
    prompt = reader.prompt / reader.at_once / count
    batch = within = min(here, most)
    for _ in range(_TURNS):
        seconds = decode.seconds(batch / decoders)
        rest, pauses = sum(fixed) + reader.prompt - prompt, 0.0
        if not readers:  # beside the others' decoding, of whose steps half have to end first
            rest += min(1.0, within - 1) * (decode.chunks + polled / 2) * seconds
            pauses = batch * (1 - 1 / within) * prompt / more
        decoding = more * (seconds + pauses)
        reading = _response(prompt, decoding + rest, within) + rest
        cycle = reading + decoding
        within = min(here, most * cycle / decoding if readers else most)
        # Halfway to the new estimate, since a larger batch lengthens the step, which shrinks the
        # share of the time in which sequences decode: a whole way swings back and forth for ever.
        batch = math.sqrt(batch * within * decoding / cycle)
    rate, waiting = within / cycle, here - within
    first, added = _first(reading, prompt, within, bursts), fixed[1]
    return Load(
        concurrency=requests,
        worker=decode,
        workers=workers,
        batch=rate * alike * decoding / workers,
        step_seconds=seconds,
        # who begins with all others waits for half of their prompts, and is paused by half
        time_per_token=seconds + pauses * (1 - bursts / 2),
        first_token=added + later * (first - added) + waiting / rate,
        rate=rate * alike,
        waiting=waiting * alike,
        transfer=fixed[0],
        readers=readers,
        reader_count=count if readers else 0,
    )


def _first(reading: float, prompt: float, requests: float, bursts: float) -> float:
    """Return the mean time to the first token, where a share `bursts` of requests come at once."""
    return reading * (1 - bursts) + bursts * max(reading, prompt * (requests + 1) / 2)


def _response(service: float, delay: float, requests: float) -> float:
    """Return the seconds at a queue, its service included, of so many requests that come back.

    A request that arrives finds (requests − 1) / requests of the mean queue, and of the one that is
    served on average half.
    """
    others = max(0.0, requests - 1)
    over = service * requests - delay
    return (over + math.sqrt(over**2 + 4 * service * delay - 2 * service**2 * others)) / 2
