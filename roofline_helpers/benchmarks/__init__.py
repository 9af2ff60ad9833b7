"""Measured GPU kernels that others published: tables, a law fitted to them, and `typical`."""

from roofline_helpers.benchmarks.law import Errors, Law, NoData, laws, laws_of
from roofline_helpers.benchmarks.tables import families, sources, table
from roofline_helpers.benchmarks.typical import Typical, typical

__all__ = [
    "Errors",
    "Law",
    "NoData",
    "Typical",
    "families",
    "laws",
    "laws_of",
    "sources",
    "table",
    "typical",
]
