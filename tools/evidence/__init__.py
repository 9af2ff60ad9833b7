"""What the model's claims rest on, made anew: placements, cycles, constants.

Each module writes one file of `roofline_helpers/data`, most of them into the folder `evidence`,
which `roofline.evidence` reads:

    python -m tools.evidence.residency    where the TPU compilers put attention's scores
    python -m tools.evidence.cycles       the compiler's cycles against published times
    python -m tools.evidence.constants    what each constant of the network is worth
"""

from __future__ import annotations

from roofline import evidence as files
from roofline_helpers.common import records
from tools import books

FOLDER = books.ROOT / "roofline/data/evidence"


def keep(name: str, data: dict[str, object]) -> None:
    """Write one file of evidence."""
    path = records.save(FOLDER / f"{name}.json", {"schema": files.SCHEMA, **data})
    print(f"{path.relative_to(books.ROOT)} is written")
