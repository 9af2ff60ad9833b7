"""Whole programs of XLA, counted by the reader and by hand."""

import re

from compiled_suite import SUITE, Hand
from hlo_texts import FIXTURES

from roofline import xla


def counted(ledger):
    """Return the totals of a program."""
    rows = ledger.rows
    return {
        "matrix": sum((r.flops.matrix + r.flops.declared) * r.launches for r in rows),
        "vector": sum(r.flops.vector * r.launches for r in rows),
        "transcendentals": sum(r.flops.transcendentals * r.launches for r in rows),
        "read": sum(r.read.get("hbm", 0) * r.launches for r in rows),
        "written": sum(r.written.get("hbm", 0) * r.launches for r in rows),
    }


def expected(name, chip, version):
    """Return the count by hand; where a version of the compiler does otherwise, as it does.

    A text alone doesn't hold what JAX traced of a Pallas kernel: there what is declared counts.
    """
    moved = {"read": 8 * 1024**2, "written": 4 * 1024**2}
    if name == "pallas":
        return Hand(0, None, **moved, unknown=True)
    if name == "pallas-declared":
        return Hand(2 * 1024**2, 0, **moved)
    return SUITE[name].by_version.get((chip, version), SUITE[name].hand)(chip)


def wrongly_counted(path):
    """Return what differs from the count by hand, with both counts."""
    name, chip, version = re.fullmatch(r"(.+)\.(\w+)\.jax-(.+)", path.stem).groups()
    hand = expected(name, chip, version)
    platform = {"h100": "gpu", "cpu": "cpu"}.get(chip, "tpu")
    ledger = xla.kernels(path.read_text("utf-8"), platform)
    return hand.differs(counted(ledger), [row.name for row in ledger.rows if row.flops.unknown])


def test_programs_of_xla_are_counted_as_by_hand():
    assert len(FIXTURES) > 40
    wrong = {path.stem: wrongly_counted(path) for path in FIXTURES}
    assert {name: counts for name, counts in wrong.items() if counts} == {}
