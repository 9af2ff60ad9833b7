"""Work: the FLOPs and bytes of one kernel, counted by hand.

The rules, everywhere:

- One multiply, add, compare, exponential … on one element is one FLOP; a multiply-add is two.
  A sum over n elements counts n. Exponentials and their like are also listed as
  `transcendentals`, since hardware does them on another unit. Tools that count a multiply-add as
  one (ptflops, fvcore, thop: "MACs") print half as much for a matmul.
- Matmuls run on the matrix unit, everything else on the vector unit.
- Bytes are those that cross the main memory's boundary ("hbm"): each tensor that a kernel reads
  is read once, and each that it writes is written once, unless `passes` says otherwise. Values
  inside a kernel (accumulators, intermediates) cost nothing. Tensors between two kernels are
  counted even if they could stay on the chip: `resident` counts the opposite case.
- Sizes (`n`, `rows`, `columns`, `elements`, `chips`) may be NumPy arrays: the counts are then
  float64 arrays of the broadcast shape. With plain integers the counts are exact.
- `x`, `y` and so on name an operation's tensors: `fuse` matches shared tensors by name.
- In every operation a size that isn't a whole number from 1 to 10¹⁸ raises BadType or BadValue,
  an unknown data type UnknownName.
"""

from roofline_helpers.work.attention import (
    attention_scores,
    flash_attention,
    latent_attention,
    naive_attention,
)
from roofline_helpers.work.block import fusion_chain, grouped_matmul, transformer_block
from roofline_helpers.work.fusion import fuse, resident, total
from roofline_helpers.work.operations import (
    add,
    all_reduce,
    dropout,
    elementwise,
    gelu,
    layernorm,
    matmul,
    reduction,
    relu,
    rmsnorm,
    softmax,
    swiglu,
)
from roofline_helpers.work.work import Work

__all__ = [
    "Work",
    "fuse",
    "resident",
    "total",
    "matmul",
    "grouped_matmul",
    "latent_attention",
    "elementwise",
    "relu",
    "gelu",
    "swiglu",
    "add",
    "dropout",
    "reduction",
    "layernorm",
    "rmsnorm",
    "softmax",
    "attention_scores",
    "naive_attention",
    "flash_attention",
    "fusion_chain",
    "transformer_block",
    "all_reduce",
]
