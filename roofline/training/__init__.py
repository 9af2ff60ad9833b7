"""One step of training a decoder on a mesh of chips: FLOPs, bytes, memory, exchanges, seconds.

What is counted
    Forward and backward matmuls of every weight (2 and 4 FLOPs per weight and token), attention by
    the causal mask, recomputation, and of mixtures of experts padding rows and one-hot dispatch
    where a recipe has them. A pass over activations for norms, residuals, rotary embedding and the
    gate; one over weights, gradients and moments. Each exchange of the mesh, on its links.
Three times
    `least_seconds` is a bound: compute, memory and each network overlap perfectly. `serial`:
    nothing overlaps. `seconds` is the prediction in between: compute hides an exchange that nothing
    waits for (weights gathered ahead, gradients reduced later), but not one that the next operation
    needs (tensor parallelism), and passes over memory follow the matmuls. A pass hides what is
    exchanged in it; sums over replicas have only the last microbatch's backward pass to hide in,
    and the weights that come back the first forward pass. A pipeline waits for its fullest stage.
Mixtures of experts
    Exchanges of experts hide behind another microbatch's compute, or wait: `overlap` says which,
    and a step shows both. A token is sent to fewer hosts if its model limits it to groups of
    experts. On GPUs experts multiply as fast as measured grouped matmuls do whose experts are all
    on one GPU. Nobody published such times for TPUs: there they reach the share of a dense matmul's
    rate that they reach on GPUs (`GROUPED` in `step.py`). `imbalance` is the busiest device's load
    over the mean.
Types
    The matrix unit computes mxfp8 as fast as fp8. But scales of blocks lie along a matmul's sum,
    another one forwards than backwards, so each input and gradient is written twice, which makes
    mxfp8 the slower of the two; "fp8" may have one scale a tensor or one for 128, whichever is
    measured faster.
Not counted
    The input pipeline, activations offloaded to the host, launches and the host's waiting for how
    many tokens each expert gets, and a compiler's splitting of exchanges. Steps of mixtures take
    about four tenths longer than predicted (`roofline.validation`), in bf16 on TPUs hardly, and
    with small microbatches on GPUs up to more than twice as long.
Words
    **MFU** is the model's FLOPs over seconds and published peak, with only the unmasked half of
    attention; `model_flops(causal="whole")` counts all of it, as pages before 2025 often do.

>>> from roofline import network
>>> cube = network.topology("v7x", "4x4x4")
>>> f"{step('llama-3-70b', cube, {'fsdp': 64}, batch=256, seq=8192).least_seconds:.1f} s at least"
'7.9 s at least'

Sources: J. Hoffmann et al., arXiv:2203.15556, appendix F (FLOPs); S. Rajbhandari et al.,
arXiv:1910.02054 (sharded data parallelism); V. Korthikanti et al., arXiv:2205.05198 (tensor
parallelism with sharded activations, recomputation); jax-ml/scaling-book, "How to parallelize a
Transformer for training".
"""

from roofline.training.layer import Layer, layer
from roofline.training.limits import largest_tensor, least_tokens, least_width, most_tensor
from roofline.training.step import TrainingStep, step

__all__ = [
    "step",
    "TrainingStep",
    "layer",
    "Layer",
    "least_tokens",
    "most_tensor",
    "largest_tensor",
    "least_width",
]
