"""Where TPU compilers put attention's scores, length by length.

    python -m measurements.residency

Attention in plain JAX is compiled for one device of each TPU; the bytes that cross HBM are kept.
Needs the TPU compiler, so Linux on x86-64.
"""

from typing import Any

from roofline import evidence
from roofline.xla import analyze
from roofline.xla.targets import TOPOLOGIES, compiler_version, jax_version

LENGTHS = (128, 256, 384, 512, 768, 1024, 2048)
SHAPE = {"batch": 4, "heads": 32, "head_dim": 64}


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return attention as anybody writes it, [batch, heads, length, head_dim] each."""
    import jax

    scores = jax.numpy.einsum("bhqd,bhkd->bhqk", q, k) / SHAPE["head_dim"] ** 0.5
    return jax.numpy.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def hbm_bytes(chip: str, length: int) -> int:
    """Return the bytes that cross HBM in the compiled program."""
    import jax

    shape = (SHAPE["batch"], SHAPE["heads"], length, SHAPE["head_dim"])
    x = jax.ShapeDtypeStruct(shape, "bfloat16")
    return analyze(attention, x, x, x, chip=chip).hbm_bytes


def main() -> None:
    """Compile everything and keep it."""
    moved = {chip: {str(n): hbm_bytes(chip, n) for n in LENGTHS} for chip in TOPOLOGIES}
    by = {"jax": ".".join(map(str, jax_version())), "compiler": compiler_version("tpu")}
    evidence.save("residency", {"shape": SHAPE, "software": by, "hbm_bytes": moved})


if __name__ == "__main__":
    main()
