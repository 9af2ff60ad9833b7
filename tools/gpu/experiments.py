"""The experiments by name, and the cases of which hardware counters are read.

Another experiment is one more function that adds cases to a `Suite`, and its line here. The name
is that of the groups that its cases are in: ``--only NAME`` measures those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from roofline_helpers.device.workloads import Case
from tools.gpu import attention, ceilings, chain, patterns, shapes
from tools.gpu.suite import Suite

EXPERIMENTS: Mapping[tuple[str, ...], Sequence[Callable[[Suite], None]]] = {
    ("chain",): [chain.forward],
    ("backward",): [chain.backward, attention.backward],
    ("memory", "levels"): [ceilings.memory],
    ("compute", "vector"): [ceilings.compute],
    ("skinny", "batched", "decode"): [shapes.products],
    ("elementwise",): [shapes.elementwise],
    ("reductions",): [shapes.reductions],
    ("normalisations",): [shapes.normalisations],
    ("gather",): [shapes.gather],
    ("attention",): [attention.forward],
    ("patterns",): [patterns.add_patterns],
    ("sizes",): [patterns.add_sizes],
}
"""What adds the cases of these groups, in the order in which they are measured."""

GROUPS = tuple(group for groups in EXPERIMENTS for group in groups)
"""Every group that ``--only`` can name."""


def suite(tiny: bool = False, only: Sequence[str] = ()) -> list[Case]:
    """Return all cases, or those of some groups."""
    made = Suite(tiny)
    for groups, parts in EXPERIMENTS.items():
        if not only or set(only) & set(groups):
            for part in parts:
                part(made)
    return [case for case in made.cases if not only or case.group in only]


COUNTED = (
    "matmul 64×64×64 bf16",
    "matmul 1024×1024×1024 bf16",
    "matmul 2048×2048×2048 bf16",
    "matmul 4096×4096×4096 bf16",
    "matmul 8192×8192×8192 bf16",
    "matmul 1×28672×8192 bf16",
    "softmax 8192×8192 bf16",
    "LayerNorm 65536×4096 bf16",
    "x + 1 on 2^28 bf16",
    "triad 4 GiB fp32",
    "copy 4 GiB fp32",
    "row sums 16384×16384 fp32",
    "gather 33554432 elements of 268435456 fp32",
    "naive attention 2×16×2048×128 bf16",
    "flash attention 2×16×2048×128 bf16",
    "causal flash attention 2×16×2048×128 bf16",
    "flash attention backward 2×16×2048×128 bf16",
    "naive attention backward 2×16×2048×128 bf16",
)
"""Cases whose counters are read too, as are those of the chain and its gradient: the ledger's."""


def counted(case: Case) -> bool:
    """Return whether the hardware's counters are read for this case."""
    return case.group == "chain" or case.name.startswith("chain ") or case.name in COUNTED
