"""Training steps whole: every number of a few very different ones, as accepted.

After a change that is meant: python tests/package/test_training_whole.py > tests/data/steps.txt
"""

from dataclasses import asdict
from pathlib import Path

import pytest

from roofline import network, training
from roofline_helpers.models import Decoder
from roofline_helpers.models.layers import Experts

ACCEPTED = Path(__file__).parents[1] / "data/steps.txt"
NUMBERS = (
    *("recomputed_flops", "routing_flops", "flops", "bubble", "fullest", "compute", "elementwise"),
    *("update", "hidden", "exposed", "seconds", "least_seconds", "serial", "mfu", "overlapped"),
)
TIED = Decoder("tied", 7, 384, 12, 4, 64, 1000, 5003, gated=False, tied=True)
SHARED = Experts(16, 3, 640, shared=1, every=2, dense=1, groups=8, top_groups=4)
MIXED = Decoder("mixed", 10, 1152, 12, 6, 96, 2816, 7001, experts=SHARED)
MIXTURE = Decoder("mixture", 4, 2048, 16, 2, 128, 768, 9001, experts=Experts(32, 5, 896))
STEPS = {
    "every role, weights sharded over positions too": (
        *(TIED, ("v5p", "4x4x8", {}), {"batch": 96, "seq": 640, "recompute": ["qkv"]}),
        {"data": 2, "pipeline": 2, "fsdp": 4, "context": 4, "tensor": 2},
        {"microbatches": 3, "interleave": 2, "weights": "bf16", "moments": "bf16"},
    ),
    "narrow stages whose weights stay whole over positions, reached": (
        *(TIED, ("v6e", "2x4", {"slices": 4, "ceilings": "reached"}), {"batch": 12, "seq": 4096}),
        {"data": 4, "pipeline": 4, "context": 2},
        {"microbatches": 3, "sharded": ["fsdp"], "recompute": "none", "dtype": "int8"},
    ),
    "seats of experts over two slices": (
        *(
            MIXED,
            ("v7x", "4x4x4", {"slices": 2, "ceilings": "reached"}),
            {"batch": 512, "seq": 768},
        ),
        {"fsdp": 8, "expert": 16},
        {"microbatches": 2, "capacity": 1.25, "imbalance": 1.5, "recompute": "full"},
    ),
    "tiles of experts in one slice": (
        *(MIXED, ("v5e", "8x16", {"ceilings": "reached"}), {"batch": 256, "seq": 512}),
        {"data": 4, "pipeline": 2, "expert": 8, "tensor": 2},
        {"microbatches": 4, "tile": 96, "imbalance": 1.25, "recompute": ["up", "down"]},
    ),
    "experts over hosts, by laws": (
        *(MIXTURE, ("b200", 32, {"ceilings": "reached"}), {"batch": 384, "seq": 1536}),
        {"data": 2, "expert": 16},
        {
            "microbatches": 6,
            "dtype": "fp8",
            "law": True,
            "imbalance": 1.25,
            "recompute": "attention",
        },
    ),
    "blocks of fp8 in a domain, by laws": (
        *(MIXTURE, ("gb200", 32, {"ceilings": "reached"}), {"batch": 64, "seq": 3072}),
        {"pipeline": 2, "fsdp": 2, "expert": 4, "tensor": 2},
        {"microbatches": 8, "dtype": "mxfp8", "law": True, "overlap": True, "recompute": "full"},
    ),
}


def whole(name):
    """All numbers of a step, its memory, waterfall, busy links and exchanges, as text."""
    model, (chip, shape, options), batch, mesh, setting = STEPS[name]
    place = network.topology(chip, shape, **options)
    step = training.step(model, place, mesh, **batch, **setting)
    parts = {
        **{name: getattr(step, name) for name in NUMBERS},
        **{f"memory {name}": value for name, value in asdict(step.memory).items()},
        **{f"part {name}": value for name, value in step.waterfall().items()},
        **{f"links {name}": value for name, value in sorted(step.networks.items())},
    }
    lines = [name, repr(step), *(f"{name}: {digits(value)}" for name, value in parts.items())]
    for row, sent in zip(step.table().to_dict("records"), step.exchanges, strict=True):
        least = [f"{must.link_bytes:.7g} B" for must in sent.least]
        lines.append(", ".join(map(digits, [*row.values(), sent.forward, *least])))
    return "\n".join(lines)


def digits(value):
    if isinstance(value, tuple):
        return " ".join(map(digits, value))
    return f"{value:.7g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_the_one_that_was_accepted(name):
    accepted = ACCEPTED.read_text("utf-8").split("\n\n")
    assert whole(name) == accepted[list(STEPS).index(name)].strip()


if __name__ == "__main__":
    print("\n\n".join(map(whole, STEPS)))
