"""Work: the FLOPs and bytes of one kernel, counted by hand.

The rules, everywhere:

- One multiply, add, compare, exponential … on one element is one FLOP; a multiply-add is two. Tools
  that count it as one (ptflops, fvcore, thop: "MACs") print half as much for a matmul. A sum over n
  elements counts n. Exponentials and their like are also listed as `transcendentals`.
- Matmuls run on the matrix unit, everything else on the vector unit.
- Bytes cross the main memory's boundary ("hbm"): each tensor is read once and written once, unless
  `passes` says otherwise. Accumulators and intermediates inside a kernel cost nothing. Tensors
  between two kernels count even if they could stay on the chip; `resident` counts the opposite.
- Intensity is FLOPs over bytes: of a matmul in b bytes an element 2mnk / (b · (mk + kn + mn)), of
  an operation that reads r and writes w tensors with f FLOPs an element f / (b · (r + w)).
- Sizes may be NumPy arrays: counts are then float64 arrays of the broadcast shape; with integers
  they are exact. A size that isn't a whole number from 1 to 10¹⁸ raises BadType or BadValue, an
  unknown data type UnknownName.
- `x`, `y` and so on name an operation's tensors: `fuse` matches shared tensors by name.
"""

from roofline_helpers.work.attention import (
    attention_scores,
    flash_attention,
    latent_attention,
    naive_attention,
)
from roofline_helpers.work.fusion import fuse, fusion_chain, resident, total
from roofline_helpers.work.operations import (
    add,
    all_reduce,
    dropout,
    elementwise,
    gelu,
    grouped_matmul,
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
    "all_reduce",
]
