"""One step of serving a language model on a chip, some chips or a mesh: kernels, seconds, memory.

A step is a forward pass of a decoder in the manner of Llama: *decode* makes one token for each
sequence of a batch, *prefill* reads prompts. Every kernel is a `Work`, its time the roofline's,
and the step takes the sum of them. What the chip has to hold for it is counted too.

On a topology (`network.topology`) the count is coarser, of whole groups of kernels and without
norms and residuals, and takes decoders of every kind: `serving/groups.py` describes it. `ROLES` are
what an axis of its mesh may be for. What follows is of single kernels.

What is counted
    Norms, projections, rotary embedding, cache, attention, SwiGLU and residuals of each layer; the
    embedding, the last norm and the vocabulary's matrix once a step. Queries, keys and values are
    one product, and so are gate and up, as serving stacks store those weights side by side. In
    prefill only the last token of each prompt goes through the vocabulary's matrix.
Types
    Activations are in the chip's 16-bit type. Narrow *weights* are those of the layers' products;
    embedding, norms and the vocabulary's matrix stay 16 bits wide, as quantised checkpoints keep
    them, unless `vocabulary` gives them another type. Narrow weights alone save bytes, not FLOPs:
    they are unpacked on the way to the matrix unit, which computes in 16 bits, so every chip can
    have them. A product runs at a narrow type's peak only where its *activations* are narrow too,
    and the chip must have that peak. Attention computes in 16 bits whatever the cache's type.
Not counted, so that times by rates alone are lower bounds
    Unpacking narrow weights and caches, their scales, sampling, gaps between kernels. A chip is a
    whole one (a v7x: both of its JAX devices). Several are counted by tensor parallelism: each has
    its part of heads and widths, and two all-reduces a layer take their own time; that the chips
    also gather embedding and logits is left out. Three things are counted or not, as asked: a
    floor for each kernel (what a launch costs: an estimate, no bound), ceilings that were reached
    in place of published ones, and activations that stay on the chip between kernels. With none of
    them to stay, the time is a bound for kernels that exchange everything through memory.

Sources: A. Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783; J. Ainslie et al.,
arXiv:2305.13245 (grouped-query attention); J. Su et al., arXiv:2104.09864 (rotary embedding).
"""

from roofline_helpers.serving.setting import ROLES
from roofline_helpers.serving.speculation import speculative
from roofline_helpers.serving.steps import ServingStep, best_batch, frontier, step

__all__ = ["ROLES", "step", "best_batch", "ServingStep", "frontier", "speculative"]
