"""The table of measured kernels, from what `measurements.zoo` timed on an H100 and an H200.

    python -m measurements.kernels

Reads `measurements/zoo-h100.jsonl.gz` and `zoo-h200.jsonl.gz`, and writes `kernels.csv` to
`roofline_helpers/data/benchmarks`: a row for each instruction of a compiled program that ran,
with its counts as `roofline.xla` reads them from the program. Instructions of one program that are
alike are one row, with the medians of their times. What the profiler lists without an instruction
are copies of the harness, and left out; so are instructions that it names as no program does.
"""

import csv
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from roofline.xla.expected import features_of
from roofline.xla.kernel import kernel_of
from roofline.xla.ledger import Row, kernels
from roofline.xla.roofs import DeviceRoofs
from roofline_helpers.chips import chip
from roofline_helpers.measured.tables import FOLDER

CHIPS = ("h100", "h200")
COLUMNS = (
    "chip case family parameters name kernel kind sizes bits bytes flops dtype vector_flops "
    "operations runs launches alike cold_s warm_s"
).split()


def cases(key: str) -> Iterator[dict[str, Any]]:
    """Yield the cases that were measured on a chip."""
    with gzip.open(Path(__file__).with_name(f"zoo-{key}.jsonl.gz"), "rt") as file:
        next(file)  # the device, the versions, the command
        yield from map(json.loads, file)


def timed(case: dict[str, Any]) -> Iterator[tuple[Row, list[list[Any]]]]:
    """Yield each instruction of a case that ran, with the kernels that it launched."""
    by_instruction = defaultdict(list)
    for kernel in case["kernels"]:
        by_instruction[kernel[0]].append(kernel)
    for row in kernels(case["hlo"], "gpu").rows:
        if row.name in by_instruction:
            yield row, by_instruction[row.name]


def rows_of(key: str, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the table's rows of a case: a run of each instruction, those alike together."""
    groups: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for row, launched in timed(case):
        of = features_of(kernel_of(row, DeviceRoofs(chip(key).per_device())))
        longest = max(launched, key=lambda kernel: kernel[4])[1]
        counted = {
            "kernel": longest.split("<")[0].removeprefix("void ")[:48].rstrip("_.0123456789"),
            "kind": of.kind,
            "sizes": "×".join(map(str, of.sizes)),
            "bits": of.bits,
            "bytes": of.bytes,
            "flops": f"{of.flops:.6g}",
            "dtype": of.dtype if of.flops else "",
            "vector_flops": f"{of.vector_flops:.6g}",
            "operations": of.operations,
            "runs": row.launches,
            "launches": f"{sum(kernel[3] for kernel in launched) / row.launches:g}",
        }
        took = [sum(kernel[at] for kernel in launched) / row.launches for at in (4, 5)]
        groups[json.dumps(counted)].append((row.name, took[0], took[1]))
    parameters = {name: value for name, value in case["parameters"].items() if name != "dtypes"}
    dtypes = {"dtypes": "+".join(case["parameters"]["dtypes"])}
    for counted_text, alike in groups.items():
        cold, warm = median(took for _, took, _ in alike), median(took for *_, took in alike)
        yield {
            "chip": key,
            "case": case["number"],
            "family": case["family"],
            "parameters": " ".join(f"{k}={v}" for k, v in (parameters | dtypes).items()),
            "name": alike[0][0],
            **json.loads(counted_text),
            "alike": len(alike),
            "cold_s": f"{cold:.4g}",
            "warm_s": "" if math.isnan(warm) else f"{warm:.4g}",
        }


def main() -> None:
    """Write the table."""
    with (FOLDER / "kernels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for key in CHIPS:
            for case in cases(key):
                writer.writerows(rows_of(key, case))


if __name__ == "__main__":
    main()
