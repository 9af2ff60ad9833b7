"""One step of serving a language model on one chip, several or a mesh; and many under load.

A step is a forward pass of a decoder: *decode* generates one token for each sequence of a batch,
*prefill* reads prompts. Every kernel of a device is a `Work` with its roofline's time, or by the
law of measured kernels; the step's time is their sum and that of the exchanges. `ROLES` are the
roles of a mesh's axes.

Kernels
    Norms, projections, rotary embedding, cache, attention, feed-forward and residuals of each kind
    of layer; embedding, last norm and LM head once. Queries, keys and values are one matmul, and so
    are gate and up. In prefill only the last token of each prompt goes through the LM head. Latent
    attention absorbs its matrices in decode; an indexer reads all keys and chooses some. A layer
    with a state reads and writes it once; prompts are scanned in chunks. A mixture has its router,
    the choice, the way of tokens to experts and back, and matmuls of those experts that any token
    uses; with `law` they are one measured kernel.
Devices
    "tensor", "context" and "batch" together split every matrix but routers and what leads down to
    latents. A server's ``tp_size`` is "tensor", ``attention_dp_size`` is "expert" (in a dense model
    "data"), ``moe_tp_size`` is `expert_widths`, and ``moe_ep_size`` follows: tensor · expert =
    moe_tp · moe_ep. Pipeline parallelism is refused.
Types
    Narrow weights are those of the layers' matmuls; embedding, norms, routers and LM head keep 16
    bits unless `vocabulary` says otherwise. Narrow weights alone save bytes, not FLOPs: a matmul
    runs at a narrow type's peak only if its activations are narrow too. Attention computes in 16
    bits. With `law`, experts in fp8 take the faster measured way to scale them.
Not counted
    Unpacking narrow weights and caches, scales, sampling, gaps between kernels, gathering embedding
    and logits, experts with more tokens than others. A chip is a whole one (a v7x: both of its JAX
    devices). A floor for each kernel is an estimate, no bound.

Sources: A. Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783; J. Ainslie et al.,
arXiv:2305.13245 (grouped-query attention); J. Su et al., arXiv:2104.09864 (rotary embedding).
"""

from roofline.serving.batches import best_batch
from roofline.serving.forward import ServingStep, step
from roofline.serving.loads import (
    Load,
    NoRoom,
    Readers,
    Worker,
    at_concurrency,
    curve,
    load,
    pareto,
)
from roofline.serving.service import answer, ranges, targets
from roofline.serving.setting import ROLES
from roofline.serving.speculation import speculative

__all__ = [
    "ROLES",
    "step",
    "best_batch",
    "ServingStep",
    "speculative",
    "load",
    "curve",
    "at_concurrency",
    "answer",
    "ranges",
    "targets",
    "pareto",
    "Load",
    "Worker",
    "Readers",
    "NoRoom",
]
