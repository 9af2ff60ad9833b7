"""Decoders: parameters as their authors print them, caches, and FLOPs."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import roofline_helpers as rh
from roofline_helpers import RooflineError, models
from roofline_helpers.models import Decoder, Local, model

DATA = tomllib.loads((Path(models.__file__).parent / "data" / "models.toml").read_text("utf-8"))


@pytest.mark.parametrize("key", DATA)
def test_parameters_are_those_that_the_authors_print(key: str) -> None:
    printed = DATA[key]["parameters"]
    decoder = model(key)
    counted = [decoder.parameters, decoder.active_parameters]
    if key.startswith("gpt-oss"):  # active ones are printed without the embedding
        counted[1] -= decoder.vocabulary * decoder.d_model
    for ours, billions in zip(counted, printed, strict=False):
        assert ours / 1e9 == pytest.approx(billions, rel=0.025)
    assert (len(printed) == 2) == (decoder.experts is not None)
    assert decoder.source


def test_models_by_key_and_name() -> None:
    assert model("Mixtral 8x7B") is model("mixtral-8x7b") is model(model("mixtral_8x7b"))
    with pytest.raises(rh.UnknownName, match=r"Nearest: 'llama-3(.1)?-8b'"):  # not 3.2 1B
        rh.models.model("Llama 3.1 8B v2")
    with pytest.raises(rh.UnknownName, match="Nearest: 'llama-3-70b'"):
        model("llama-3-71b")
    mixture = model("mixtral-8x7b")
    assert len(repr(mixture)) < 120
    assert "12.9 G of them active" in repr(mixture)
    assert "head_dim    128" in mixture.describe()


def test_a_token_s_cache() -> None:
    assert model("llama-3-8b").cache_per_token() == 128 * 1024
    # 576 elements a layer in place of 2 · 128 · 128
    assert model("deepseek-v3").cache_per_token() == 61 * (512 + 64) * 2
    gemma = model("gemma-3-12b")
    assert gemma.local_layers == 40
    assert gemma.cache_bytes(32768) == 2 * gemma.cache_width * (8 * 32768 + 40 * 1024)
    assert gemma.cache_bytes(512) == 512 * gemma.cache_per_token()


def test_flops_by_hand() -> None:
    llama = model("llama-3-8b")
    assert llama.matrix_flops(10) == 2 * 10 * (llama.matrices + 128256 * 4096)
    whole = llama.attention_flops(1000, causal="whole")
    assert whole == 32 * 4 * 32 * 128 * 1000 * 1000
    assert llama.attention_flops(1000) == 32 * 4 * 32 * 128 * 1000 * 1001 // 2
    assert llama.training_flops(2000, 1000) == 3 * (
        llama.matrix_flops(2000) + 2 * llama.attention_flops(1000)
    )
    local = replace(llama, local=Local(window=100, every=2))
    seen = sum(min(i, 100) for i in range(1, 1001))
    far = 16 * 1000 * 1001 // 2
    assert local.attention_flops(1000) == 4 * 32 * 128 * (far + 16 * seen)
    assert local.attention_flops(50) == llama.attention_flops(50)
    latent = model("deepseek-v3")
    assert latent.score_width == 128 * (128 + 64 + 128)


def test_a_mixture_counts_what_a_token_meets() -> None:
    mixture = model("mixtral-8x7b")
    one = 3 * 4096 * 14336
    assert mixture.expert_parameters() == 8 * one + 4096 * 8
    assert mixture.expert_parameters(active=True) == 2 * one + 4096 * 8
    assert mixture.matrices - mixture.active_matrices == 32 * 6 * one
    every_other = model("llama-4-maverick")
    assert (every_other.expert_layers, every_other.layers) == (24, 48)
    assert model("deepseek-v3").expert_layers == 58


SMALL: dict[str, Any] = {
    "name": "small",
    "layers": 2,
    "d_model": 8,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 2,
    "d_ff": 16,
    "vocabulary": 10,
}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kv_heads": 3}, rh.BadValue),
        ({"layers": 0}, rh.BadValue),
        ({"name": 3}, rh.BadType),
    ],
)
def test_a_bad_decoder_is_refused(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Decoder(**{**SMALL, **change})


def test_a_configuration_on_disk_is_a_model(tmp_path: Path) -> None:
    llama = model("mixtral-8x7b")
    written = {
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(written))
    assert model(str(path)).parameters == llama.parameters
    written["sliding_window"] = 4096
    path.write_text(json.dumps(written | {"use_sliding_window": False}))
    assert model(path).local is None
    path.write_text(json.dumps(written | {"layer_types": ["sliding", "full_attention"] * 16}))
    assert model(path).local == models.Local(4096, 2)
    wrong = json.dumps(written | {"sliding_window": None, "hidden_size": "large"})
    for text in (json.dumps(written), "no JSON", "[]", wrong, None):
        path.write_text(text) if text else path.unlink()
        with pytest.raises(RooflineError, match=r"config|hidden_size"):
            model(path)
