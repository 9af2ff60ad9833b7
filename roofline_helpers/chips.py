"""Chips: peaks, memory and links, each number with its source."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from typing import Any

from roofline_helpers.common.checks import BadType, UnknownName, flag, name_of, shown
from roofline_helpers.common.dtypes import computed_as
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.show import Facts, Fields, render, si
from roofline_helpers.roofline import UNITS, Roofline

__all__ = ["Chip", "Figure", "all_chips", "chip"]

# --- Figures: numbers with their source ----------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """The source of numbers: a page, or a file of measurements in this repository."""

    key: str
    title: str
    url: str
    read: datetime.date
    kind: str

    @property
    def public(self) -> bool:
        """Whether `url` is a page's address, and not a path in this repository."""
        return self.url.startswith("https://")


@dataclass(frozen=True, repr=False)
class Figure:
    """One number of a chip, with its source.

    Parameters
    ----------
    value, unit : float, str
        In SI base units; ``float(figure)`` is the value.
    source : Source
        The page that it was read on, or the file of this repository that measured it.
    basis : str
        "vendor" (its own text), "secondary" (somebody quoting it), "derived" (arithmetic, by the
        formula in `note`), "measured" or "unverified".
    sparse : float, optional
        The headline that assumes 2:4 sparsity.

    Examples
    --------
    >>> from roofline_helpers import chip
    >>> peak = chip("v6e").peak("bf16")
    >>> peak.value, peak.unit, peak.basis
    (918000000000000.0, 'FLOP/s', 'vendor')
    """

    value: float
    unit: str
    source: Source
    basis: str
    note: str = ""
    sparse: float | None = None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        unit = self.unit.replace("byte", "B")
        return si(self.value, unit, {"FLOP/s": "T", "B/s": "G"}.get(unit), 4)

    def __repr__(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return f"<{self}, {self.basis}: {self.source.title}, read {self.source.read}{note}>"

    def _repr_html_(self) -> str:
        before, _, after = repr(self)[1:-1].partition(self.source.title)
        link = '<a href="{{ url }}">{{ title }}</a>' if self.source.public else "{{ title }}"
        title = render(link, url=self.source.url, title=self.source.title)
        parts = {"before": before, "title": title, "after": after}
        return render("<p>{{ before }}{{ title }}{{ after }}</p>", **parts)

    def _derived(self, value: float, formula: str) -> Figure:
        note = f"{self.note}; {formula}" if self.note else formula
        return replace(self, value=value, basis="derived", note=note)


@dataclass(frozen=True)
class Link:
    """The links of one kind that a chip has: `count` of them, each carrying `rate` one way.

    `latency` is that of a hop, in seconds. ``float(link)`` is the rate of all of them together.
    """

    rate: Figure
    count: int = 1
    latency: Figure | None = None

    @property
    def total(self) -> Figure:
        """Bytes per second that the chip can send, one way, over all its links of this kind."""
        if self.count == 1:
            return self.rate
        return self.rate._derived(self.count * self.rate.value, f"{self.count} links x {self.rate}")

    def __float__(self) -> float:
        return self.total.value


@dataclass(frozen=True)
class ReachedRates:
    """Ceilings that software really reached: the fastest rates sustained.

    Parameters
    ----------
    matrix, vector : mapping of str to Figure
        FLOP/s by data type, of the best shape.
    streams : mapping of str to Figure
        Byte/s of the main memory, read plus written, by kind of stream: "read", "write", "copy",
        "add" (two in, one out) and so on.
    sizes : mapping of str to mapping of int to float
        FLOP/s of square matmuls, by data type and side.
    """

    matrix: Mapping[str, Figure] = field(default_factory=dict)
    vector: Mapping[str, Figure] = field(default_factory=dict)
    streams: Mapping[str, Figure] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def stream(self, name: str | None = None) -> Figure | None:
        """Return one stream, by default that of reading: the memory ceiling. None if none is known.

        Nearly all kernels read more than they write. A mix is slower on most memories, so compare a
        kernel that copies with ``stream("copy")``. Where reading wasn't measured, the default is
        the fastest stream.
        """
        if name is not None:
            return self.streams[name_of("stream that was measured", name, self.streams)]
        fastest = max(self.streams.values(), key=float, default=None)
        return self.streams.get("read", fastest)


@dataclass(frozen=True, repr=False)
class MemoryLevel(Fields):
    """One memory level: capacity in bytes, bandwidth in byte/s where it is published.

    `capacity` of the main memory is the bytes that software can allocate, `printed` the vendor's
    figure.
    """

    capacity: Figure
    printed: Figure | None = None
    bandwidth: Figure | None = None


@dataclass(frozen=True, repr=False)
class Chip(Facts):
    """A device: peaks, memory levels, links; published, and where known as reached.

    Every number is a `Figure`, or None if nobody published or measured it.

    Parameters
    ----------
    matrix, vector : mapping of str to Figure
        Dense peak of each data type on that unit, FLOP/s.
    memory : mapping of str to MemoryLevel
        "hbm", the main memory whatever its technology, first: `capacity` (bytes), `bandwidth`
        (byte/s).
    links : mapping of str to Link
        Interconnects; `total` is a kind's rate (byte/s, one way).
    devices : int
        Devices that JAX shows for one chip.
    architecture : str
        AMD's name of its instruction set, "gfx942".
    floor : Figure, optional
        What one more small kernel costs a program, s.
    dispatch : Figure, optional
        The shortest call of a compiled program from Python, s.
    reached : ReachedRates
        Measured ceilings.

    Examples
    --------
    >>> v6e = chip("v6e")
    >>> v6e.name, v6e.kind, f"{v6e.peak('bf16')}"
    ('TPU v6e', 'tpu', '918 TFLOP/s')
    """

    key: str
    name: str
    vendor: str
    kind: str
    year: int
    aliases: tuple[str, ...]
    device_kinds: tuple[str, ...]
    devices: int
    matrix: Mapping[str, Figure]
    vector: Mapping[str, Figure]
    memory: Mapping[str, MemoryLevel]
    links: Mapping[str, Link]
    clock: Figure | None = None
    power: Figure | None = None
    floor: Figure | None = None
    dispatch: Figure | None = None
    reached: ReachedRates = field(default_factory=ReachedRates)
    architecture: str = ""

    def _facts(self) -> dict[str, str]:
        return {path: str(figure) for path, figure in self.figures().items()}

    def __repr__(self) -> str:
        hbm = self.memory["hbm"]
        facts = [f"{self.peak(self.half)} in {self.half}", hbm.capacity, hbm.bandwidth]
        return f"<{self.name}: {', '.join(str(fact) for fact in facts if fact)}>"

    @property
    def half(self) -> str:
        """The matrix unit's 16-bit type, "bf16", or "fp16" on a chip that has no bf16."""
        return "bf16" if "bf16" in self.matrix else "fp16"

    @property
    def on_chip(self) -> tuple[str, float]:
        """The largest on-chip level, VMEM or the last cache – its name and its bytes.

        "hbm" and 0 bytes if none is known.
        """
        inner = {name: level.capacity.value for name, level in self.memory.items()}
        inner["hbm"] = 0.0
        name = max(inner, key=lambda level: inner[level])
        return name, inner[name]

    def peak(self, dtype: Any = "bf16", unit: str | None = None) -> Figure:
        """Return the dense peak for a data type, FLOP/s.

        Parameters
        ----------
        dtype : str or data type
            The type that the unit computes in.
        unit : {"matrix", "vector"}, optional
            Which unit. If not given: the matrix unit where it has the type, else the vector unit.

        Raises
        ------
        UnknownName
            No such type, or none on this chip: the message lists what it has.
        """
        wanted = computed_as(dtype)
        if unit is None:
            table: Mapping[str, Figure] = {**self.vector, **self.matrix}
            where = self.name
        else:
            unit = name_of("unit", unit, UNITS)
            where = f"the {unit} unit of {self.name}"
            table = self.matrix if unit == "matrix" else self.vector
        if dtype_of(dtype) == "nvfp4" and self.vendor != "NVIDIA":
            wanted = "nvfp4"  # no other vendor's units multiply it
        if wanted not in table:
            raise UnknownName(f"{where} has no {wanted} peak. Allowed: {', '.join(table) or '-'}")
        return table[wanted]

    def roofline(
        self,
        dtype: Any = "bf16",
        unit: str | None = None,
        levels: Sequence[str] = ("hbm",),
        network: str | None = None,
        *,
        reached: bool | str = False,
    ) -> Roofline:
        """Return the published roofline for a data type, or the one that was reached.

        Its vector ceiling is the vector unit's fp32 peak, or with unit="vector" that of the data
        type.

        Parameters
        ----------
        dtype, unit
            As in `peak`.
        levels : str or sequence of str
            Memory levels with a published bandwidth, in any order.
        network : str, optional
            A link of the chip, for instance "ici": adds a network ceiling.
        reached : bool or str
            Whether measured ceilings replace published ones where there are any; the roofline's
            name says which. The memory's is that of reading, or of the stream named, for instance
            "copy".

        Raises
        ------
        UnknownName
            No such type, unit, level, link or stream on this chip, or no published bandwidth.
        BadType, BadValue
            Something that is not a name; no level at all.
        """
        unit = None if unit is None else name_of("unit", unit, UNITS)
        peak = self.peak(dtype, unit)
        known = {name: m.bandwidth.value for name, m in self.memory.items() if m.bandwidth}
        kind = f"memory level with a published bandwidth on {self.name}"
        asked = [levels] if isinstance(levels, str) else levels
        if not isinstance(asked, Sequence):
            raise BadType(f"levels must be a name or a sequence of names, got {shown(levels)}")
        chosen = [name_of(kind, level, known) for level in asked]
        link = None
        if network is not None:
            link = float(self.links[name_of(f"link of {self.name}", network, self.links)])
        vector = peak if unit == "vector" else self.vector.get("fp32")
        label = f"{self.name} {dtype_of(dtype)}" + (" vector" if unit == "vector" else "")
        roof = Roofline(
            peak=peak.value,
            levels={level: rate for level, rate in known.items() if level in chosen},
            vector=_value(vector),
            network=link,
            floor=_value(self.floor),
            name=label,
        )
        stream = reached if isinstance(reached, str) else None
        wanted = stream is not None or flag("reached", reached)
        return self._reached(roof, computed_as(dtype), unit, stream) if wanted else roof

    def _reached(
        self, roof: Roofline, dtype: str, unit: str | None, stream: str | None
    ) -> Roofline:
        rates = self.reached
        on_vector = unit == "vector" or dtype not in self.matrix
        peak = (rates.vector if on_vector else rates.matrix).get(dtype)
        memory = rates.stream(stream) if "hbm" in roof.levels else None
        if not peak and not memory:
            return replace(roof, name=f"{roof.name} (as published: nothing was measured)")
        vector = peak if unit == "vector" else rates.vector.get("fp32")
        measured = roof.measured(
            peak=_value(peak),
            levels={"hbm": memory.value} if memory else None,
            vector=_value(vector),
        )
        rest = "" if peak and memory else f" ({'memory' if peak else 'peak'} as published)"
        return replace(measured, name=f"{roof.name}, reached{rest}")

    def per_device(self) -> Chip:
        """Return the chip's share of one JAX device: a v7x chip is two devices, most are one."""
        n = self.devices
        if n == 1:
            return self
        split = ("matrix", "vector", "memory", "links", "power", "reached")
        shares = {name: _share(getattr(self, name), n) for name in split}
        return replace(self, name=f"{self.name} (1 of {n} devices)", devices=1, **shares)

    def figures(self) -> dict[str, Figure]:
        """Return every figure of the chip by its path, for instance "memory.hbm.bandwidth"."""
        return dict(_paths({field.name: getattr(self, field.name) for field in fields(self)}))


def _paths(parts: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Figure]]:
    for name, part in parts.items():
        path = f"{start}{name}"
        if isinstance(part, Figure):
            yield path, part
        elif isinstance(part, Link):
            yield path, part.total
            yield from _paths({"latency": part.latency}, f"{path}.")
        elif isinstance(part, MemoryLevel | ReachedRates):
            inner = {field.name: getattr(part, field.name) for field in fields(part)}
            yield from _paths(inner, f"{path}.")
        elif isinstance(part, Mapping):
            yield from _paths(part, f"{path}.")


def _value(figure: Figure | None) -> float | None:
    return figure.value if figure else None


def _share(part: Any, n: int) -> Any:
    """Return what one of n devices has of a rate or a capacity, or of all that a part holds."""
    if isinstance(part, Mapping):
        return {name: _share(member, n) for name, member in part.items()}
    if isinstance(part, Figure):
        share = part._derived(part.value / n, f"the chip's figure / {n}")
        return replace(share, sparse=_share(part.sparse, n))
    if isinstance(part, Link):
        return replace(part, rate=_share(part.rate, n))
    if isinstance(part, MemoryLevel | ReachedRates):
        shares = (_share(getattr(part, field.name), n) for field in fields(part))
        return type(part)(*shares)
    return part and part / n


def chip(given: Any) -> Chip:
    """Return a chip by name, alias, or device, as JAX, PyTorch or nvidia-smi call it.

    Parameters
    ----------
    given : str, Chip or jax.Device
        "v7x", "ironwood", "NVIDIA H100 80GB HBM3", or anything with a `device_kind`. Case, spaces,
        "-" and "_" don't matter, nor do the maker, the module and the memory's kind.

    Raises
    ------
    UnknownName
        No such chip, a part of one, or one of several; the message gives the nearest.
    BadType
        Neither a name nor an object with a `device_kind`.

    Examples
    --------
    >>> chip("ironwood").name, chip("AMD Instinct MI300X VF").name
    ('TPU v7x', 'AMD Instinct MI300X')
    """
    if isinstance(given, Chip):
        return given
    catalogue = _catalogue()
    asked = getattr(given, "device_kind", given)
    try:
        return catalogue[name_of("chip", asked, catalogue, _spellings())]
    except UnknownName as error:
        words, sizes = _words(asked)
        fitting: list[Chip] = []
        for said in (words, frozenset(word for word in words if "hbm" not in word)):
            fitting = fitting or [chip for chip in catalogue.values() if _fits(chip, said, sizes)]
        if len(fitting) == 1:
            return fitting[0]
        if words == {"cpu"}:
            why = "a CPU isn't in the chip table: its ceilings are measured where it is"
        elif "mig" in words:
            why = f"{shown(asked)} is a part of a GPU, and the chip table has only whole ones"
        elif fitting:
            why = f"{shown(asked)} may be {' or '.join(chip.key for chip in fitting)}: name one"
        else:
            why = str(error)
        raise UnknownName(why) from None


def namesakes(given: Any) -> tuple[Chip, ...]:
    """Return the other chips that a name fits: an "H100" is a module, or one of two cards.

    None for a chip, and for a device's whole name.

    Examples
    --------
    >>> [other.name for other in namesakes("h100")], namesakes("NVIDIA H100 PCIe")
    (['NVIDIA H100 PCIe', 'NVIDIA H100 NVL'], ())
    """
    chosen, asked = chip(given), getattr(given, "device_kind", given)
    if isinstance(asked, Chip) or asked in chosen.device_kinds or "sxm" in asked.casefold():
        return ()
    words, sizes = _words(asked)
    others = [other for other in all_chips() if other is not chosen]
    if words == {chosen.architecture}:  # "gfx950", as AMD's tools print it
        return tuple(other for other in others if other.architecture == chosen.architecture)
    return tuple(other for other in others if _fits(other, words, sizes, part=True))


_SIZE = re.compile(r"(\d+)g(?:i?b)?")
_PACKAGE = re.compile(
    "nvidia|amd|google|intel|tesla|geforce|instinct|gpu|accelerator|tensor|core|generation|edition"
    r"|hgx|oam|mcm|mba|ac|lc|vf|sxm\d*|(?:pod)?slice"
)
"""Words of a device's name that don't tell two chips apart."""


def _words(name: str) -> tuple[frozenset[str], frozenset[int]]:
    """Return what a name says of a chip: its words, and gigabytes of memory."""
    text = re.sub(r"^gpu \d+:|\(.*\)", " ", name.casefold())  # as nvidia-smi -L lists it
    text = re.sub(r"(?<=\d)(sxm|pcie|nvl)", r" \1", text)
    found = set(filter(None, re.split(r"[^a-z0-9]+", text)))
    sizes = {word: int(size[1]) for word in found if (size := _SIZE.fullmatch(word))}
    named = {word for word in found if word not in sizes and not _PACKAGE.fullmatch(word)}
    return frozenset(named), frozenset(sizes.values())


def _fits(chip: Chip, words: frozenset[str], sizes: frozenset[int], part: bool = False) -> bool:
    """Return whether words are a chip's, or with `part` some of them, and its memory as large."""
    hbm = chip.memory["hbm"]
    totals = [float(figure) for figure in (hbm.printed, hbm.capacity) if figure]
    known = {round(total / unit) for total in totals for unit in (1e9, 2**30)}
    spelled = (_words(name)[0] for name in (chip.name, *chip.aliases, *chip.device_kinds))
    return sizes <= known and any(words == own or (part and words < own) for own in spelled)


def all_chips() -> tuple[Chip, ...]:
    """Return every chip of the catalogue: TPUs by generation, then GPUs, then others.

    Examples
    --------
    >>> [chip.key for chip in all_chips()][:4]
    ['v2', 'v3', 'v4', 'v5e']
    """
    return tuple(_catalogue().values())


def assumed_floor(kind: str) -> float:
    """Return the floor, in seconds, that is assumed for a chip without a measured one.

    For a TPU it is the shortest published matmul on one, for all others the longest known floor.

    Raises
    ------
    BadType, UnknownName
        No such kind.

    Examples
    --------
    >>> f"{assumed_floor('tpu') * 1e6:.2f} µs"
    '1.62 µs'
    """
    kind = name_of("kind of chip", kind, sorted({chip.kind for chip in all_chips()}))
    if kind == "tpu":
        return min(
            2 * side**3 / rate
            for chip in all_chips()
            if chip.kind == kind
            for side, rate in chip.per_device().reached.sizes.get("bf16", {}).items()
        )
    return max(chip.floor.value for chip in all_chips() if chip.floor)


def floor_of(given: Chip) -> float:
    """Return the floor of a chip's launches, in seconds: measured, else assumed.

    Examples
    --------
    >>> floor_of(chip("h100")) == chip("h100").floor.value
    True
    """
    return given.floor.value if given.floor else assumed_floor(given.kind)


@cache
def _catalogue() -> dict[str, Chip]:
    text = resources.files("roofline_helpers").joinpath("data", "chips.toml").read_text("utf-8")
    data = tomllib.loads(text)
    sources = {name: Source(key=name, **entry) for name, entry in data["sources"].items()}
    return {name: _chip(name, entry, sources) for name, entry in data["chips"].items()}


@cache
def _spellings() -> dict[str, str]:
    return {
        spelling: chip.key
        for chip in _catalogue().values()
        for spelling in (chip.name, *chip.aliases, *chip.device_kinds)
    }


UNIT_OF = {
    **dict.fromkeys(("matrix", "vector"), "FLOP/s"),
    **dict.fromkeys(("capacity", "printed"), "byte"),
    **dict.fromkeys(("bandwidth", "streams", "rate"), "byte/s"),
    **dict.fromkeys(("latency", "floor", "dispatch"), "s"),
    "clock": "Hz",
    "power": "W",
}
"""The unit of the figures under each key of the chip table."""


def _chip(name: str, entry: Mapping[str, Any], sources: Mapping[str, Source]) -> Chip:
    def with_figures(data: Any, unit: str = "") -> Any:
        if not isinstance(data, dict):
            return data
        if "value" in data:
            own = {"value": float(data["value"]), "source": sources[data["source"]]}
            return Figure(unit=unit, **(data | own))
        return {key: with_figures(part, UNIT_OF.get(key, unit)) for key, part in data.items()}

    data = with_figures(entry)
    reached = data.get("reached", {})
    if "sizes" in reached:
        reached["sizes"] = {
            dtype: {int(side): rate for side, rate in by_side.items()}
            for dtype, by_side in reached["sizes"].items()
        }
    made = {
        "aliases": tuple(data["aliases"]),
        "device_kinds": tuple(data["device_kinds"]),
        "vector": data.get("vector", {}),
        "memory": {level: MemoryLevel(**part) for level, part in data["memory"].items()},
        "links": {kind: Link(**part) for kind, part in data.get("links", {}).items()},
        "reached": ReachedRates(**reached),
    }
    return Chip(key=name, **(data | made))
