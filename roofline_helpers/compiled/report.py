"""The numbers of a compiled program: per kernel, and for the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline_helpers import hardware, hlo
from roofline_helpers.compiled import display, record
from roofline_helpers.compiled.changes import Changes, changes
from roofline_helpers.compiled.groups import Group, grouped
from roofline_helpers.compiled.kernel import main_dtype
from roofline_helpers.compiled.targets import NoCompiler
from roofline_helpers.compiled.totals import Totals
from roofline_helpers.roofline import Roofline

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Report(Totals):
    """What XLA made of a function for one device.

    Everything is per device and per run of the program. `mesh` are the axes of the mesh that it is
    spread over, `topology` the layout of the chips, `memory` what it needs of a device,
    `requested_flops` what the function's products ask of all devices together. `xla` holds
    what `cost_analysis` said, unchanged. `origin` is "compiled" or "record"; it is not printed, so
    that a page shows the same values either way. `seconds` is how long compiling and analysing
    took, `calls` are its Pallas kernels as traced, which a record doesn't keep.

    Examples
    --------
    >>> from roofline_helpers.compiled import records
    >>> report = records()["ledger-matmul", "v6e"]
    >>> report.target, report.flops, report.bound
    ('v6e', 17179869184.0, 'compute')
    """

    def groups(self, by: str = "scope") -> tuple[Group, ...]:
        """Return its kernels by what they have in common, those that take longest first.

        Parameters
        ----------
        by : {"scope", "line", "role"}
            Named scopes (else functions) and passes, lines of code, or what kernels do.

        Raises
        ------
        UnknownName
            Another way to group.
        """
        return grouped(self.kernels, by)

    def diff(self, other: Report) -> Changes:
        """Return what changed from this program to another: kernels, exchanges, tensors, time.

        Examples
        --------
        >>> print(before.diff(after))  # doctest: +SKIP
        2 changes: 1.2 ms by the roof became 1.9 ms (+58.3%)
          mlp.up (model.py:18): grew: 1 kernels → 2; HBM 134 MB → 403 MB; …
        """
        return changes(self, other)

    @property
    def program(self) -> str:
        """The compiled program as HLO text, without the compiler's notes (`hlo.brief`).

        Records keep short programs only: of a long one it is empty there.
        """
        return hlo.brief(self.text)

    # -- shown, drawn, kept ----------------------------------------------------------------------

    def roofline(self, dtype: Any = None) -> Roofline:
        """Return the roofline of the device, for its main data type unless one is given.

        Raises
        ------
        NoCompiler
            The device is not in the chip table.
        """
        if self.chip is None:
            raise NoCompiler(f"{self.target} is not in the chip table: it has no roofline here")
        return self.chip.roofline(self._main_dtype(self.chip) if dtype is None else dtype)

    def _main_dtype(self, chip: hardware.Chip) -> str:
        """Return the type of the largest products, as far as the chip has a peak for it."""
        busiest = max(self.kernels, key=lambda kernel: kernel.matrix_flops, default=None)
        types = busiest.row.matrix_types if busiest is not None else ()
        dtype = main_dtype(types) or "bf16"
        known = {**chip.vector, **chip.matrix}
        default_passes = dtype == "fp32" and chip.kind == "tpu"
        if dtype not in known or (default_passes and "highest" not in types[0]):
            return "bf16" if "bf16" in known else next(iter(chip.matrix))
        return dtype

    def table(self, by: str | None = None) -> pandas.DataFrame:
        """Return one row a kernel, in the order in which they run; units in the column names.

        Parameters
        ----------
        by : {"scope", "line", "role"}, optional
            One row a group instead, as `groups` makes them.
        """
        return display.table(self) if by is None else display.group_table(self.groups(by))

    def plot(self, ax: Axes | None = None, labels: int = 5) -> Axes:
        """Draw every kernel on the chip's roofline, sized by its share of the time.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        labels : int
            How many kernels get a name: those that take longest.

        Raises
        ------
        NoCompiler
            The device is not in the chip table.
        BadValue
            No kernel has both FLOPs and HBM bytes.
        """
        return display.plot(self, ax, labels)

    def __str__(self) -> str:
        return display.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return display.html(self)

    def to_json(self, *, brief: bool = False) -> str:
        """Return the report as the text of a record. `Report.from_json` reads it.

        Parameters
        ----------
        brief : bool
            Only what `diff` needs, one line a kernel: a baseline that people can read.
        """
        return record.dumps(self, brief=brief)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that a record holds; its `origin` is "record".

        Raises
        ------
        BadRecord
            Not a record, or one of another version: the message says what is wrong.
        """
        return cls(**record.loads(text))
