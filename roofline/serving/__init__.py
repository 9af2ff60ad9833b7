"""One step of serving a language model on one chip, several or a mesh: kernels, time, memory.

A step is a forward pass of a Llama-like decoder: *decode* generates one token for each sequence of
a batch, *prefill* reads prompts. Every kernel is a `Work` with the roofline's time, and the step's
time is their sum. The memory that it needs is counted too.

On a topology (`network.topology`) the count is coarser, of whole groups of kernels without norms
and residuals, and works for every kind of decoder: `serving/groups.py` describes it. `ROLES` are
the roles of mesh axes. The rest of this page is about single kernels.

What is counted
    Norms, projections, rotary embedding, cache, attention, SwiGLU and residuals of each layer; the
    embedding, the last norm and the LM head once per step. Queries, keys and values are one matmul,
    and so are gate and up, since serving stacks store those weights side by side. In prefill only
    the last token of each prompt goes through the LM head.
Types
    Activations are in the chip's 16-bit type. Narrow *weights* are those of the layers' matmuls;
    embedding, norms and LM head stay 16 bits wide, as in quantised checkpoints, unless `vocabulary`
    gives them another type. Narrow weights alone save bytes, not FLOPs: they are unpacked on the
    way to the matrix unit, which computes in 16 bits, so every chip supports them. A matmul runs at
    a narrow type's peak only if its *activations* are narrow too, and the chip must have that peak.
    Attention computes in 16 bits for any type of the cache.
Not counted, so that times by rates alone are lower bounds
    Unpacking narrow weights and caches, their scales, sampling, gaps between kernels. A chip is a
    whole one (a v7x: both of its JAX devices). Several share the model by tensor parallelism: each
    has its part of heads and widths, and two all-reduces per layer take their own time; gathering
    embedding and logits is left out. Three options change the count: a floor for each kernel (the
    cost of a launch: an estimate, no bound), reached ceilings in place of published ones, and
    activations that stay on the chip between kernels. If none stay, the time is a bound for kernels
    that exchange everything through memory.

Sources: A. Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783; J. Ainslie et al.,
arXiv:2305.13245 (grouped-query attention); J. Su et al., arXiv:2104.09864 (rotary embedding).
"""

from roofline.serving.batches import best_batch, frontier
from roofline.serving.setting import ROLES
from roofline.serving.speculation import speculative
from roofline.serving.steps import ServingStep, step

__all__ = ["ROLES", "step", "best_batch", "ServingStep", "frontier", "speculative"]
