"""One step of serving a language model on one chip, several or a mesh; and many under load.

A step is a forward pass of a decoder: *decode* generates one token for each sequence of a batch,
*prefill* reads prompts. On a chip, or several of one host, every kernel is a `Work` with its
roofline's time, and the step's time is their sum. On a topology (`roofline.network.topology`) whole
groups of kernels are counted, of every kind of decoder; `ROLES` are the roles of mesh axes.

Kernels
    Norms, projections, rotary embedding, cache, attention, SwiGLU and residuals of each layer;
    embedding, last norm and LM head once. Queries, keys and values are one matmul, and so are gate
    and up. In prefill only the last token of each prompt goes through the LM head.
Types
    Narrow weights are those of the layers' matmuls; embedding, norms and LM head keep 16 bits
    unless `vocabulary` says otherwise. Narrow weights alone save bytes, not FLOPs: a matmul runs at
    a narrow type's peak only if its activations are narrow too. Attention computes in 16 bits.
Not counted
    Unpacking narrow weights and caches, scales, sampling, gaps between kernels, gathering embedding
    and logits. A chip is a whole one (a v7x: both of its JAX devices). A floor for each kernel is
    an estimate, no bound; without floors and with published ceilings the time is a lower bound for
    kernels that exchange everything through memory.

Sources: A. Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783; J. Ainslie et al.,
arXiv:2305.13245 (grouped-query attention); J. Su et al., arXiv:2104.09864 (rotary embedding).
"""

from roofline.serving.batches import best_batch, frontier
from roofline.serving.loads import Load, Readers, curve, load, pareto
from roofline.serving.setting import ROLES
from roofline.serving.speculation import speculative
from roofline.serving.steps import ServingStep, step

__all__ = [
    "ROLES",
    "step",
    "best_batch",
    "ServingStep",
    "frontier",
    "speculative",
    "load",
    "curve",
    "pareto",
    "Load",
    "Readers",
]
