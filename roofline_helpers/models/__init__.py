"""Whole decoders by their widths: weights, cache, and the FLOPs of a token.

>>> llama = model("llama-3-70b")
>>> round(llama.parameters / 1e9, 1), llama.cache_per_token("int8") // 1024
(70.6, 160)
"""

from roofline_helpers.models.catalogue import LLAMA_3_8B, all_models, model
from roofline_helpers.models.decoder import Decoder, Experts, Latent, Local

__all__ = ["model", "all_models", "LLAMA_3_8B", "Decoder", "Experts", "Latent", "Local"]
