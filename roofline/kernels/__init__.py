"""Fused kernels in Pallas: the LayerNorm chain and attention, with their gradients.

A kernel's body is plain `jax.numpy` on the blocks that a program holds. Machines differ in how the
arrays are cut (`rows.Rows` and `tiles.Tiles`), and in the compiler:

======== ============================ =======================================================
layout   compiled by                  a block
======== ============================ =======================================================
"tpu"    Mosaic, or interpreted       many rows, copied to VMEM while the last block is worked
                                      on; widths as they are
"gpu"    Pallas' Triton, or           few rows, in registers; every width is rounded up to a
         interpreted                  power of two, and the lanes that stick out are masked
======== ============================ =======================================================

The platform that a program is lowered for decides, so a laptop that compiles for a TPU gets the
TPU's kernel. On a CPU kernels are interpreted, in the TPU's layout: correct but slow. `layout` and
`interpret` override it. Arithmetic is fp32; each result is rounded once, when it is stored.

Source: P. Tillet et al., "Triton" (2019); T. Dao et al., arXiv:2205.14135; the Pallas manual.
"""

from __future__ import annotations

from roofline_helpers.common.checks import needed

needed("a Pallas kernel", "jax")

from roofline.kernels.flash import attention
from roofline.kernels.layernorm import layernorm_gelu, layernorm_gelu_dropout_residual

__all__ = ["layernorm_gelu", "layernorm_gelu_dropout_residual", "attention"]
