"""One step of training a decoder on a mesh of chips: FLOPs, bytes, memory, exchanges, seconds.

What is counted
    Forward and backward products of every weight (2 and 4 FLOPs a weight and token), attention by
    the causal mask, and what is recomputed; of mixtures of experts, rows that no token fills and
    products with masks, where a recipe says so (`training.mixture`). A pass over activations for
    norms, residuals, rotary embedding and the gate; one over weights, gradients and moments for the
    optimiser. Each exchange that the mesh asks for, on the links it runs over.
Two ends, and between them
    `TrainingStep.least_seconds`: published or reached ceilings, as the topology has them, with
    everything that can run side by side doing so: compute, memory and each network are busy at
    once, and the slowest decides. Nothing is faster. `serial`: nothing overlaps. `seconds`: an
    exchange that nothing waits for is hidden behind compute (weights gathered ahead, gradients
    reduced behind), one that the next operation needs is not (tensor and expert parallelism), and
    passes over memory follow the matmuls. The truth lies between the ends.
What is left out
    The input pipeline, activations that are moved to the host, padding, the launch of kernels, and
    how far a compiler splits an exchange to hide it. Of mixtures of experts, what sorting tokens,
    small products and imbalance cost: steps that sort take about twice what is expected here
    (`roofline_helpers.validation`).
Words
    **MFU** is the model's FLOPs over seconds and published peak, attention counted as the mask
    leaves it. Of `model_flops`, `causal` may count it whole, as pages before 2025 often do.

>>> from roofline_helpers import network
>>> one = step("llama-3-70b", network.topology("v7x", "4x4x4"), {"fsdp": 64}, batch=256, seq=8192)
>>> f"{one.least_seconds:.1f} s at least"
'7.9 s at least'

Sources: J. Hoffmann et al., arXiv:2203.15556, appendix F (FLOPs); S. Rajbhandari et al.,
arXiv:1910.02054 (sharded data parallelism); V. Korthikanti et al., arXiv:2205.05198 (tensor
parallelism with sharded activations, recomputation); jax-ml/scaling-book, "How to parallelize a
Transformer for training".
"""

from roofline_helpers.training.layer import Layer, layer
from roofline_helpers.training.limits import (
    largest_tensor,
    least_tokens,
    least_width,
    most_tensor,
)
from roofline_helpers.training.step import TrainingStep, step

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
