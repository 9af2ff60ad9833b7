"""The ceilings of one device, as figures: what they are, and how they are shown and replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from roofline_helpers._checks import BadType, BadValue, folded, name_of, single
from roofline_helpers.show import facts_html, si, significant

NETWORK = "network"
FLOOR = "floor"
UNITS = ("matrix", "vector")


@dataclass(frozen=True, repr=False)
class Ceilings:
    """The figures of a `Roofline`, which says what each is and what they allow together.

    Examples
    --------
    >>> from roofline_helpers.roofline import Roofline
    >>> roof = Roofline(peak=100e12, levels={"hbm": 1e12}, name="a chip")
    >>> roof.bandwidth, roof.ridge
    (1000000000000.0, 100.0)
    """

    peak: float
    levels: Mapping[str, float]  # a number is accepted too
    vector: float | None = None
    network: float | None = None
    floor: float | None = None
    name: str = "roofline"
    origin: Literal["published", "measured"] = "published"

    def __post_init__(self) -> None:
        bandwidths: Any = self.levels
        by_level = bandwidths if isinstance(bandwidths, Mapping) else {"hbm": bandwidths}
        levels = folded("levels", by_level)
        if not levels:
            raise BadValue("a roofline needs at least one memory level, got none")
        for taken in (*UNITS, NETWORK, FLOOR):
            if taken in levels:
                raise BadValue(f"{taken!r} is no memory level: it has an argument of its own")
        checked = {level: single(f"bandwidth of {level}", bw) for level, bw in levels.items()}
        object.__setattr__(self, "levels", MappingProxyType(checked))
        object.__setattr__(self, "peak", single("peak", self.peak))
        for optional in ("vector", "network", "floor"):
            if getattr(self, optional) is not None:
                value = single(optional, getattr(self, optional), zero=optional == "floor")
                object.__setattr__(self, optional, value or None)
        origin = name_of("origin", self.origin, ["published", "measured"])
        object.__setattr__(self, "origin", origin)

    def _facts(self) -> dict[str, str]:
        """Return what it shows of itself."""
        ceilings = {"peak": self.peak, "vector": self.vector}
        facts = {unit: si(value, "FLOP/s", "T", 4) for unit, value in ceilings.items() if value}
        links = {**self.levels, **({NETWORK: self.network} if self.network else {})}
        alone = list(self.levels) == ["hbm"]
        names = {"hbm": "memory"} if alone else {}
        facts |= {names.get(k, k): si(value, "B/s", "G", 5) for k, value in links.items()}
        facts |= {FLOOR: si(self.floor, "s")} if self.floor else {}
        ridges = {"ridge": self.peak, "vector ridge": self.vector}
        return facts | {
            name: f"{significant(peak / self.bandwidth, 4)} FLOP/byte"
            for name, peak in ridges.items()
            if peak
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<{self.name}: {facts}>"

    def _repr_html_(self) -> str:
        return facts_html(self.name, self._facts())

    @property
    def bandwidth(self) -> float:
        """Bandwidth of the outermost memory level, byte/s."""
        return next(iter(self.levels.values()))

    @property
    def ridge(self) -> float:
        """Intensity at which the memory and the compute ceiling meet – peak / bandwidth."""
        return self.peak / self.bandwidth

    def ridge_at(self, level: str, unit: str = "matrix") -> float:
        """Return the ridge of another memory level, or of the vector unit, FLOP/byte.

        Parameters
        ----------
        level : str
            A memory level of this roofline.
        unit : {"matrix", "vector"}
            Which compute ceiling. "matrix" is `peak`.

        Raises
        ------
        UnknownName
            No such level or unit, or this roofline has no vector ceiling.
        """
        peaks = {"matrix": self.peak}
        if self.vector is not None:
            peaks["vector"] = self.vector
        bandwidth = self.levels[name_of("memory level", level, self.levels)]
        return peaks[name_of("unit", unit, peaks)] / bandwidth

    def without_floor(self) -> Self:
        """Return this roofline without its floor: what rates alone allow, at any size."""
        return replace(self, floor=None)

    def measured(
        self,
        peak: float | None = None,
        levels: Mapping[str, float] | float | None = None,
        vector: float | None = None,
        network: float | None = None,
        floor: float | None = None,
    ) -> Self:
        """Return this roofline with measured ceilings in place of published ones.

        A ceiling that is not given, also a level that `levels` does not name, keeps its published
        value. A number for `levels` is the bandwidth of the outermost level.

        Raises
        ------
        BadType, BadValue
            No ceiling given, or not a positive finite number; one level under two spellings.
        UnknownName
            A level that is not here; the message gives the nearest.
        """
        if levels is not None:
            outermost = next(iter(self.levels))
            new = folded("levels", levels if isinstance(levels, Mapping) else {outermost: levels})
            named = {name_of("memory level", level, self.levels): bw for level, bw in new.items()}
            levels = {**self.levels, **named}
        ceilings = {"peak": peak, "levels": levels, "vector": vector, "network": network}
        ceilings[FLOOR] = floor
        changes: dict[str, Any] = {name: v for name, v in ceilings.items() if v is not None}
        if not changes:
            raise BadType(
                "at least one of peak, levels, vector, network, floor is needed, got none"
            )
        return replace(self, name=f"{self.name}, measured", origin="measured", **changes)
