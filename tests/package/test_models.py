"""Decoders: parameters as their authors print them, caches, and FLOPs."""

import csv
import json
import math
import operator
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import roofline
import roofline_helpers as rh
from roofline import configurations
from roofline.configurations import model
from roofline.recurrent import mamba_1, mamba_2
from roofline.serving import service
from roofline_helpers import RooflineError
from roofline_helpers.models import LLAMA_3_8B, Decoder, Local
from roofline_helpers.models.layers import GROUP, Experts, Latent, attention, latent_attention

CATALOGUE = Path(rh.__file__).parent / "data" / "models.toml"
DATA = tomllib.loads(CATALOGUE.read_text("utf-8"))


@pytest.mark.parametrize("key", DATA)
def test_parameters_are_those_that_the_authors_print(key):
    printed = DATA[key]["parameters"]
    decoder = model(key)
    counted = [decoder.parameters, decoder.active_parameters]
    if key.startswith("gpt-oss"):  # active ones are printed without the embedding
        counted[1] -= decoder.vocabulary * decoder.d_model
    if key == "minimax-m2.5":  # and here without the LM head
        counted[1] -= decoder.vocabulary_parameters
    for ours, billions in zip(counted, printed, strict=False):
        assert ours / 1e9 == pytest.approx(billions, rel=0.025)
    assert (len(printed) == 2) == (decoder.experts is not None)
    assert decoder.source


def test_models_by_key_and_name():
    assert model("Mixtral 8x7B") is model("mixtral-8x7b") is model(model("mixtral_8x7b"))
    with pytest.raises(rh.UnknownName, match=r"Nearest: Llama.3(.1)?.8B, "):  # not 3.2 1B
        model("Llama 3.1 8B v2")
    with pytest.raises(rh.UnknownName, match="Nearest: Llama 3 70B, "):
        model("llama-3-71b")
    with pytest.raises(rh.UnknownName, match=r"Nearest: Qwen3-[^,]*, Qwen3-.*config.json"):
        model("qwen3")  # of which size?
    mixture = model("mixtral-8x7b")
    assert len(repr(mixture)) < 120
    assert "12.9 G of them active" in repr(mixture)


def test_a_token_s_cache():
    assert model("llama-3-8b").cache_per_token() == 128 * 1024
    # 576 elements a layer in place of 2 · 128 · 128
    assert model("deepseek-v3").cache_per_token() == 61 * (512 + 64) * 2
    gemma = model("gemma-3-12b")
    assert gemma.cache_bytes(32768) == 2 * gemma.cache_width * (8 * 32768 + 40 * 1024)
    assert gemma.cache_bytes(512) == 512 * gemma.cache_per_token()


def test_flops_by_hand():
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


def test_a_mixture_counts_what_a_token_meets():
    mixture = model("mixtral-8x7b")
    expert = 3 * 4096 * 14336
    assert mixture.expert_parameters() == 8 * expert + 4096 * 8
    assert mixture.expert_parameters(active=True) == 2 * expert + 4096 * 8
    assert mixture.matrices - mixture.active_matrices == 32 * 6 * expert
    every_other = model("llama-4-maverick")
    assert (every_other.expert_layers, every_other.layers) == (24, 48)
    deepseek = model("deepseek-v3")
    assert (deepseek.expert_layers, deepseek.dense_parameters) == (58, 3 * 7168 * 18432)
    assert mixture.attention_parameters == 2 * 4096 * (4096 + 1024)
    assert mixture.dense_parameters == 0
    assert mixture.vocabulary_parameters == 2 * 32000 * 4096


SMALL = {
    "name": "small",
    "layers": 2,
    "d_model": 8,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 2,
    "d_ff": 16,
    "vocabulary": 10,
}


DENSE = LLAMA_3_8B.alike[0]
MIXED = replace(DENSE, feeds=(Experts(8, 2, 16),))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"kv_heads": 3}, rh.BadValue, r"heads \(4\) must be a multiple of kv_heads \(3\)"),
        ({"head_dim": 3}, rh.BadValue, "head_dim must be even, got 3"),
        ({"layers": 0}, rh.BadValue, "layers"),
        ({"name": 3}, rh.BadType, "name"),
        ({"blocks": (DENSE,)}, rh.BadValue, "1 blocks for 2 layers"),
        ({"blocks": (DENSE, MIXED)}, rh.BadValue, "experts must be those of the blocks, got None"),
        ({"blocks": (DENSE, DENSE), "experts": Experts(8, 2, 16)}, rh.BadValue, "experts must be"),
    ],
)
def test_a_bad_decoder_is_refused(change, error, said):
    with pytest.raises(error, match=said):
        Decoder(**{**SMALL, **change})
    with pytest.raises(rh.BadValue, match=r"groups \(3\) must divide count \(8\)"):
        Experts(8, 2, 16, groups=3)


PUBLISHED = json.loads((Path(roofline.__file__).parent / "data" / "models.json").read_text("utf-8"))
FILES = {
    name: {**PUBLISHED.get(kept.pop("repository", ""), {}).get("config", {}), **kept}
    for name, kept in json.loads(
        (Path(__file__).parents[1] / "data" / "configurations.json").read_text("utf-8")
    ).items()
}
"""The keys of published config.json files that shape them.

"published" says in billions what "source" prints of all and of active parameters, the latter
without so many matrices of the vocabulary, and the bytes of a token's cache in bf16 and of a
sequence's state, counted by hand: sums of products. "counted" are instead the elements of the model
that transformers 5.24 makes of its own defaults.
"""


def read(folder, config, name="some"):
    path = folder / name / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    return model(path.parent)


@pytest.mark.parametrize("name", [name for name in FILES if "published" in FILES[name]])
def test_a_published_configuration_is_read(name, tmp_path):
    given = dict(FILES[name])
    said, decoder = given.pop("published"), read(tmp_path, given, name)
    assert decoder.name == name
    used = decoder.active_parameters - said["without"] * decoder.vocabulary * decoder.d_model
    for ours, billions in zip((decoder.parameters, used), said["printed"], strict=True):
        digit = 0.5 if isinstance(billions, int) else 0.05  # half of the last one printed
        assert abs(ours / 1e9 - billions) < max(0.02 * billions, digit)
    assert decoder.cache_per_token() == sum(math.prod(factors) for factors in said["cache"])
    assert decoder.state_bytes == sum(math.prod(factors) for factors in said["state"])


def test_only_what_is_refused_has_no_parameters_beside_it(tmp_path):
    for name, given in FILES.items():
        if not {"counted", "published", "repository"} & given.keys():
            with pytest.raises(rh.BadValue):
                read(tmp_path, given, name)


@pytest.mark.parametrize("name", [name for name in FILES if "counted" in FILES[name]])
def test_a_family_has_the_parameters_that_transformers_counts(name, tmp_path):
    decoder = read(tmp_path, FILES[name])
    assert decoder.parameters == pytest.approx(FILES[name]["counted"], rel=5e-4)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if "config" in PUBLISHED[name]])
def test_a_published_name_has_the_parameters_that_its_authors_print(name):
    printed, decoder = PUBLISHED[name]["printed"], model(name)
    counted = (decoder.parameters, decoder.active_parameters)
    assert decoder.source == PUBLISHED[name]["source"] != ""
    assert counted[0] / 1e9 == pytest.approx(printed[0], rel=0.02)
    if len(printed) > 1:  # of the active ones authors count embeddings or not
        embeddings = 2 * decoder.vocabulary * decoder.d_model / 1e9
        assert abs(counted[1] / 1e9 - printed[1]) < embeddings + 0.5


def test_each_model_has_the_accepted_numbers(tmp_path):
    """What its layers sum up to, so that no width, kind of layer or type changes unseen."""
    path = Path(__file__).parents[1] / "data" / "models.csv"
    accepted = {row[0]: row for row in csv.reader(path.read_text("utf-8").splitlines())}
    decoders = {name: model(name) for name in DATA}
    decoders |= {name: model(name) for name in PUBLISHED if "new" not in PUBLISHED[name]}
    for name, given in FILES.items():
        if {"counted", "published", "repository"} & given.keys():
            decoders[f"a file: {name}"] = read(tmp_path, given, name)
    found = {name: [name, *map(str, numbers(decoder))] for name, decoder in decoders.items()}
    found["model"] = accepted["model"]  # the heading
    changed = [",".join(row) for name, row in found.items() if accepted.get(name) != row]
    assert not changed, "\n".join([f"if that is meant, write into {path}:", *changed])
    assert found.keys() == accepted.keys()


def numbers(decoder):
    """Yield what distinguishes a decoder, in the order of the accepted table's columns."""
    yield from (decoder.layers, decoder.d_model, decoder.heads, decoder.kv_heads, decoder.head_dim)
    yield from (decoder.d_ff, decoder.ahead, len(decoder.kinds), decoder.sums)
    yield from (decoder.parameters, decoder.active_parameters, decoder.expert_layers)
    yield from (decoder.cache_bytes(5000), decoder.state_bytes)
    yield from (decoder.attention_flops(5000, causal=how) for how in ("halved", "whole"))
    for field in ("output", "heads", "kv_heads", "made", "absorbed", "flops"):
        yield int(decoder.mixers(operator.attrgetter(field)))
    yield int(decoder.mixers(lambda mixer: mixer.seen(5000)))
    yield int(decoder.feeds(operator.attrgetter("hidden")))
    yield f"{decoder.experts.chosen_by(3):.6f}" if decoder.experts else ""
    experts = decoder.experts
    yield f"{experts.top_groups} of {experts.groups}" if experts else ""
    stored = decoder.stored
    yield " ".join(f"{k}:{v}" for k, v in stored.types.items()) if stored else ""
    yield stored.group if stored else ""


@pytest.mark.parametrize(
    ("typed", "written", "types"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B", {"weights": "bf16"}),
        ("llama-3.3-70b", "Llama-3.3-70B-Instruct", {"mixers": "bf16"}),
        ("llama3.1:8b", "Llama-3.1-8B", {}),
        ("DeepSeek-R1-0528", "DeepSeek-R1", {"experts": "fp8 in blocks"}),
        ("deepseek-v3-671b", "DeepSeek-V3", {"activations": "fp8 in blocks"}),
        ("qwen3-8b", "Qwen3-8B", {"weights": "bf16"}),
        ("Qwen/Qwen3-8B-FP8", "Qwen3-8B-fp8", {"weights": "fp8 in blocks"}),
        (
            "RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic",
            "Llama-3.1-8B-fp8-dynamic",
            {"mixers": "fp8"},
        ),
        ("Qwen2.5-14B-Instruct-GPTQ-Int4", "Qwen2.5-14B-gptq-int4", {"weights": "int4"}),
        ("nvidia/DeepSeek-R1-NVFP4", "DeepSeek-R1-nvfp4", {"experts": "nvfp4", "mixers": "bf16"}),
        ("GPT-OSS 20b", "gpt-oss-20b", {"experts": "mxfp4", "mixers": "bf16"}),
        ("qwen3-30b-a3b-instruct-2507", "Qwen3-30B-A3B", {"experts": "bf16"}),
        ("gpt-oss-120b-bf16", "gpt-oss-120b-bf16", {"experts": "bf16"}),
        ("gpt-oss-120b-mxfp4", "gpt-oss-120b", {"experts": "mxfp4", "mixers": "bf16"}),
        ("DeepSeek-R1-FP8", "DeepSeek-R1", {"experts": "fp8 in blocks"}),
        ("moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2-Instruct", {"experts": "fp8 in blocks"}),
        ("moonshotai/Kimi-K2-Thinking", "Kimi-K2-Thinking", {"experts": "int4", "mixers": "bf16"}),
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "Llama-3.3-70B-Instruct-bnb-4bit", {}),
        (
            "Qwen3-Coder-30B-A3B-Instruct-FP8",
            "Qwen3-Coder-30B-A3B-fp8",
            {"mixers": "fp8 in blocks"},
        ),
    ],
)
def test_what_people_type_finds_its_model_in_the_types_it_ships_in(typed, written, types):
    decoder = model(typed)
    assert decoder.name == written
    assert decoder.stored
    assert types.items() <= decoder.stored.types.items()
    assert len(decoder.stored.says) > 10


@pytest.mark.parametrize(
    ("name", "new"), [("deepseek-v4-flash", "hyper-conn"), ("kimi-k3-fp8", "delta attention")]
)
def test_a_model_that_is_not_read_is_refused_by_what_is_new_in_it(name, new):
    with pytest.raises(rh.BadValue, match=f"isn't read: new in it are .*{new}"):
        model(name)


def test_no_two_models_have_one_name():
    listed = [n for r, e in PUBLISHED.items() for n in (r, *e.get("also", ()))]
    keys = ["".join(configurations._words(name, tuned=True)) for name in listed]
    assert len(set(keys)) == len(keys)
    for name, key in zip(listed, keys, strict=True):
        entry = configurations._names()[key].entry
        assert name in (entry, *PUBLISHED[entry].get("also", ()))


def test_indexers_are_shared_by_layers_and_choose_single_keys_or_blocks(tmp_path):
    own = lambda decoder: [block.mixer.choosing > 0 for block in decoder.blocks]  # noqa: E731
    glm, counted = model("GLM-5.2"), model("GLM-5")
    assert (sum(own(glm)), sum(own(counted))) == (21, 78)
    assert glm.cache_per_token() == 2 * (78 * 576 + 21 * 128)  # a shared choice has no keys
    index = 32 * 128 * 2048 + 6144 * (128 + 32)
    assert counted.parameters - glm.parameters == 57 * index
    file = dict(PUBLISHED["zai-org/GLM-5.2"]["config"])
    del file["index_topk_freq"]
    kinds = ["full" if n < 3 or (n - 2) % 4 == 0 else "shared" for n in range(78)]
    for listed in ({"indexer_types": kinds}, {"index_topk_pattern": "FFF" + "SSSF" * 18 + "SSS"}):
        assert read(tmp_path, {**file, **listed}).blocks == glm.blocks
    blocks = model("MiniMax-M3")
    assert own(blocks) == [False] * 3 + [True] * 57
    assert blocks.cache_per_token() == 2 * (60 * 2 * 4 * 128 + 57 * 128)
    sparse = blocks.blocks[-1].mixer
    assert sparse
    assert [sparse.seen(n) for n in (100, 100_000)] == [100, 16 * 128]
    for name in ("GLM-5.2", "MiniMax-M3"):
        step = roofline.serving.step(name, "b200", chips=4, weights="fp8", context=32_768)
        index_keys = {
            job.work.reads["K index"] for job in step.kernels if "K index" in job.work.reads
        }
        assert index_keys == {32_768 * 128 * 2}
    step = model("stepfun-ai/Step-3.7-Flash")
    heads = {block.mixer.heads: block.mixer.window for block in step.blocks if block.mixer}
    assert heads == {64: 0, 96: 512}


def test_layers_of_one_model_differ_as_its_file_says(tmp_path):
    scout = read(tmp_path, FILES["Llama-4-Scout-17B-16E-Instruct"])
    assert scout.blocks == model("llama-4-scout").alike
    near = scout.blocks[0].mixer
    assert near
    assert [near.seen(n) for n in (8192, 8193, 20000)] == [8192, 1, 3616]
    assert near.pairs(10000) == sum(i % 8192 + 1 for i in range(10000))
    mimo = read(tmp_path, FILES["MiMo-V2-Flash"])
    assert (mimo.expert_layers, mimo.sums) == (47, 96)
    assert mimo.cache_bytes(4096) == 2 * 320 * (9 * 4 * 4096 + 39 * 8 * 128)
    gemma = read(tmp_path, FILES["gemma-4-26B-A4B"])
    assert gemma.cache_bytes(131072) == 5 * 4096 * 131072 + 25 * 8192 * 1024
    assert read(tmp_path, FILES["DeepSeek-V3"]).kinds == model("deepseek-v3").kinds
    hybrid = read(tmp_path, FILES["Nemotron-H-56B-Base-8K"])
    kinds = {block.mixer.kind for block in hybrid.kinds if block.mixer}
    assert (hybrid.sums, kinds) == (118, {"attention", "Mamba-2"})
    assert hybrid.cache_width == 10 * 2 * 8 * 128 / 118  # ten layers of attention have a cache
    same = read(tmp_path, FILES["Mixtral-8x7B-v0.1"])
    for published in (same, model("mixtral-8x7b")):
        assert replace(published, name="", source="", stored=None) == replace(
            same, name="", source=""
        )


LLAMA = FILES["Meta-Llama-3.1-8B"]


def without(name, key):
    """Return a configuration without a key, for which a default of transformers then counts."""
    assert key in FILES[name]
    return {other: value for other, value in FILES[name].items() if other != key}


def test_a_list_of_layers_that_are_all_alike_says_nothing(tmp_path):
    listed = {**LLAMA, "sliding_window": None, "layer_types": ["full_attention"] * 32}
    assert read(tmp_path, listed) == read(tmp_path, LLAMA)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            FILES["DeepSeek-V4-Flash"],
            "DeepseekV4ForCausalLM.*deepseek_v4.*else has compress_ratios, hc_mult",
        ),
        (FILES["Step-3.7-Flash"], "Step3p7FlashForCausalLM"),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "BertForMaskedLM"),
        ({**LLAMA, "architectures": ["LlamaForCausalLMEagle3"]}, "LlamaForCausalLMEagle3"),
        ({**LLAMA, "num_local_experts": 8}, "num_local_experts = 8"),
        ({**LLAMA, "cross_layer_sharing": [1]}, "cross_layer_sharing"),
        ({**LLAMA, "hidden_size": "large"}, "hidden_size"),
        ({**LLAMA, "num_hidden_layers": None}, "no 'num_hidden_layers"),
        ({**FILES["gpt-oss-20b"], "layer_types": ["sliding_attention"]}, "1 entries.*24"),
        ({**FILES["gpt-oss-20b"], "layer_types": ["retention"] * 24}, "'retention'"),
        ({**FILES["Qwen3.5-27B"]["text_config"], "linear_num_key_heads": None}, "linear_num_key"),
        ({**FILES["jamba"], "attn_layer_period": None}, "layer_types"),
        ({}, "architecture None"),
        (without("DeepSeek-V3", "kv_lora_rank"), "no 'kv_lora_rank'"),
        (without("Mixtral-8x7B-v0.1", "num_local_experts"), "no 'num_local_experts"),
        ({**LLAMA, "model_type": "mistral", "architectures": None}, "no 'sliding_window"),
        ({**FILES["Nemotron-H-56B-Base-8K"], "hybrid_override_pattern": "ME" * 59}, "n_routed"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 32}, "layer_types"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused_by_name(config, said, tmp_path):
    with pytest.raises(rh.BadValue, match=said):
        read(tmp_path, config)


def test_a_file_that_is_no_configuration_is_refused(tmp_path):
    path = tmp_path / "config.json"
    for content in ("no JSON", "[]", None):
        path.write_text(content) if content else path.unlink()
        with pytest.raises(RooflineError, match="config"):
            model(str(path))
    with pytest.raises(rh.BadValue, match="No such file"):
        model(f"{tmp_path}/nowhere")


QUANTIZED = FILES["DeepSeek-V3.2"]
KEPT = ["lm_head", "re:.*self_attn.*", "re:.*mlp.(down|gate|up)_proj"]


@pytest.mark.parametrize(
    ("given", "types"),
    [
        (QUANTIZED["quantization_config"], [*["fp8 in blocks"] * 3, None, "fp8 in blocks"]),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
            | {"ignore": ["lm_head", "model.layers.*.self_attn*"]},
            ["nvfp4", "nvfp4", "bf16", "fp8", "nvfp4"],
        ),
        (
            {"quant_method": "compressed-tensors", "ignore": KEPT}
            | {"config_groups": {"g": {"targets": ["Linear"], "input_activations": None}}}
            | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
            ["bf16", "int4", "bf16", "fp8", None],
        ),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, ["int4"] * 3 + [None] * 2),
    ],
)
def test_types_are_those_of_the_file(given, types, tmp_path):
    for group in given.get("config_groups", {}).values():
        group["weights"] = {"num_bits": 4, "type": "int", "group_size": 32}
    stored = read(tmp_path, {**QUANTIZED, "quantization_config": given}).stored
    assert stored
    names = ("weights", "experts", "mixers", "cache", "activations")
    assert [getattr(stored, name) for name in names] == types
    assert stored.group == (32 if "config_groups" in given else 128)


@pytest.mark.parametrize(
    "key", ["modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"]
)
def test_layers_that_stay_as_they_are_have_four_names(key, tmp_path):
    fp8 = {"quant_method": "fp8", key: ["re:.*self_attn.*"]}
    stored = read(tmp_path, {**FILES["Mixtral-8x7B-v0.1"], "quantization_config": fp8}).stored
    assert stored
    assert (stored.experts, stored.mixers) == ("fp8", "bf16")


@pytest.mark.parametrize("given", ["some/config.json", Path("some/config.json"), Path("some")])
def test_who_reads_a_configuration_on_disk_is_told(given):
    with pytest.raises(rh.BadValue, match=r"on disk is read by roofline\.model, got some"):
        rh.models.model(given)


def test_types_may_stand_beside_the_file(tmp_path):
    given = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    plain = FILES["Mixtral-8x7B-v0.1"]
    assert read(tmp_path, plain).stored is None
    (tmp_path / "some" / "hf_quant_config.json").write_text(json.dumps({"quantization": given}))
    stored = read(tmp_path, plain).stored
    assert stored
    types = {"experts": "nvfp4", "mixers": "nvfp4", "cache": "fp8", "activations": "nvfp4"}
    assert stored.types == types


@pytest.mark.parametrize("name", FILES)
def test_kernels_have_the_weights_products_and_cache_of_the_layers(name, tmp_path):
    try:
        decoder = replace(read(tmp_path, FILES[name]), stored=None)
    except rh.BadValue:
        pytest.skip("an architecture that isn't read")
    batch, context = 64, 10_000
    step = roofline.serving.step(decoder, "h200", batch=batch, context=context)
    assert step.memory.weights == pytest.approx(2 * decoder.parameters, rel=1e-3)
    products, cached, moved = 0.0, 0.0, 0.0
    for kernel in step.kernels:
        for tensor, nbytes in (*kernel.work.reads.items(), *kernel.work.writes.items()):
            if tensor[0] in "KV" and "new" not in tensor:
                cached += kernel.launches * nbytes
            if tensor[0] == "S":
                moved += kernel.launches * nbytes
        if any(tensor[0] == "W" for tensor in kernel.work.reads):
            products += kernel.launches * kernel.work.matrix_flops
    head = decoder.vocabulary * decoder.d_model
    assert products == pytest.approx(2 * batch * (decoder.active_matrices + head), rel=2e-3)

    def seen(mixer):
        chosen_from = mixer.choosing_width * context
        return (mixer.cache_width - mixer.choosing_width) * mixer.seen(context) + chosen_from

    assert cached == 2 * batch * decoder.mixers(seen)
    assert moved == 2 * batch * decoder.state_bytes


def test_what_is_served_has_the_types_of_its_file(tmp_path):
    host = roofline.network.topology("h200", 8)
    mesh = {"tensor": 8}
    oss = roofline.serving.step(read(tmp_path, FILES["gpt-oss-20b"]), host, mesh, batch=8)
    experts = 24 * 32 * 3 * 2880**2 * 4.25 / 8
    routers = 24 * 32 * 2880 * 2  # each device has all of them, and the norms
    rest = (oss.setting.model.mixing + 2 * 201088 * 2880) * 2
    alone = routers + 49 * 2880 * 2
    assert oss.memory.weights == pytest.approx((experts + rest) / 8 + alone, rel=1e-6)
    assert "experts mxfp4, projections bf16" in oss.types
    assert "quantization of config.json" in oss.types
    other = oss.but(weights="bf16", experts="bf16", projections="bf16")

    def read_by(step):
        named = {k.name: k.work.reads for k in step.kernels}
        return {k: sum(n for t, n in sizes.items() if t[0] == "W") for k, sizes in named.items()}

    wide, narrow = read_by(other), read_by(other.but(experts="fp4"))
    for name in ("experts' gate+up", "experts' down"):
        assert narrow[name] == pytest.approx(wide[name] / 4)
        assert read_by(oss)[name] == pytest.approx(wide[name] * 4.25 / 16)
    assert read_by(oss)["QKV projection"] == wide["QKV projection"]
    given = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    dense = [f"model.layers.*.mlp.{name}_proj" for name in ("gate", "up", "down")]
    given |= {"ignore": ["lm_head", "model.layers.*.self_attn*", *dense]}
    mixed = read(tmp_path, {**QUANTIZED, "quantization_config": given})
    b200 = roofline.network.topology("b200", 8)
    step = roofline.serving.step(mixed, b200, mesh, batch=8)
    computed = {kernel.name: kernel.work.dtype for kernel in step.kernels}
    assert computed["experts' gate+up"] == "nvfp4"
    assert computed["query projection"] == computed["gate+up projection"] == "bf16"
    glm = read(tmp_path, FILES["GLM-4.7-FP8"], "GLM-4.7-FP8")
    with pytest.raises(rh.BadValue, match=r"FP8.*type of weights"):
        roofline.serving.step(glm, host, mesh, batch=8)
    memory = roofline.serving.step(glm, host, mesh, batch=8, weights="fp8", vocabulary="fp8").memory
    routers = 7 * 89 * 160 * 5120 * 2  # those of seven more devices
    assert memory.weights * 8 - routers == pytest.approx(352.8e9, rel=2e-3)


def test_states_are_read_and_written_and_a_sequence_is_scanned_in_chunks(tmp_path):
    host, mesh = roofline.network.topology("h200", 8), {"tensor": 8}
    hybrid = read(tmp_path, FILES["Qwen3-Next-80B-A3B-Thinking"])
    step = roofline.serving.step(hybrid, host, mesh, batch=64, context=8192)
    copied = 24576 * 8192 * 64 / 8 * 4  # two key heads on eight devices
    assert step.memory.cache == pytest.approx(copied + 64 * hybrid.state_bytes / 8)
    assert roofline.serving.step(hybrid, "h200", weights="fp8").fits
    # 36 layers with 32 heads of 128 keys and values, in chunks of 64 tokens
    chunk = 3 * 64 * 64 * 128  # keys by keys and queries, the inverse by keys
    chunk += 2 * 64 * 64 * 128  # the inverse by values, pairs by values
    chunk += 3 * 64 * 128 * 128  # the state corrects, answers and is updated
    chunk += 64 * 64 * 21  # the inverse of a triangle
    scanned = 36 * 32 * 8192 // 64 * chunk
    seen = 12 * 16 * 2 * 256 * (8192 * 8193 // 2)
    assert hybrid.attention_flops(8192) == 2 * (scanned + seen)
    prompt = roofline.serving.step(hybrid, host, mesh, phase="prefill", context=8192)
    (kernel,) = [k for k in prompt.kernels if k.name == "state update"]
    assert kernel.launches * kernel.work.matrix_flops == 2 * scanned / 8
    states = 32 * 128 * 128 // 8  # of a device, in 16 bits between chunks
    assert kernel.work.reads["chunks' states"] == 128 * states * 2
    trained = roofline.training.step(hybrid, host, {"fsdp": 8}, batch=8, seq=4096)
    assert trained.model_flops() > 3 * hybrid.matrix_flops(8 * 4096)


def test_a_pattern_of_letters_and_a_rank_that_is_left_out(tmp_path):
    exaone = {k: v for k, v in FILES["exaone_moe"].items() if k != "layer_types"}
    listed = read(tmp_path, {**exaone, "sliding_window_pattern": "LLG"})
    windows = [block.mixer.window > 0 for block in listed.blocks]
    assert windows == [n % 3 != 2 for n in range(listed.layers)]
    wide = {**FILES["jamba"], "hidden_size": 4104, "mamba_dt_rank": "auto"}
    state, kernel = wide["mamba_d_state"], wide["mamba_d_conv"]
    first = read(tmp_path, wide).blocks[0].mixer
    assert first == mamba_1(4104, 8208, state, 257, kernel)  # a sixteenth, rounded up


def test_chunks_of_mamba_2_are_counted_by_their_products():
    layer = mamba_2(1024, heads=16, head_dim=64, groups=2, state=128, kernel=4, chunk=256)
    chunk = 2 * 256 * 256 * 128 + 16 * 256 * 256 * 64  # pairs of a group, and of a head
    chunk += 2 * 16 * 256 * 64 * 128  # states in and out
    assert layer.products(1024) == 4 * chunk
    assert layer.products(1024, whole=True) == 4 * chunk


def test_a_token_sees_its_own_chunk_up_to_itself():
    chunks = attention(64, heads=4, kv_heads=1, head_dim=16, window=4, chunked=True)
    assert [chunks.seen(context) for context in range(1, 10)] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert chunks.pairs(9) == 10 + 10 + 1
    slides = attention(64, heads=4, kv_heads=1, head_dim=16, window=4)
    assert [slides.seen(context) for context in range(1, 7)] == [1, 2, 3, 4, 4, 4]


def test_services_of_what_was_never_compared_have_no_range():
    sizes = {"concurrency": 8, "inputs": 1024, "outputs": 256}
    for name, chips in (("qwen3-next-80b-a3b-thinking", 2), ("deepseek-v3.2", 8)):
        load = roofline.serving.load(name, "h200", chips=chips, **sizes)
        assert all(own.low is None for own in roofline.serving.ranges(load).values())
        (said,) = [line for line in service._lines(load) if "Low and high" in line]
        assert "no service of a model with" in said


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (["model.layers.*.mlp*"], "bf16"),
        (["re:.*self_attn.q_b_proj", "re:.*self_attn.kv_b_proj", "re:.*o_proj"], "types differ"),
        (["re:.*mlp.experts.*.down_proj"], "types differ"),
        (["re:.*kv_a_proj_with_mqa"], "nvfp4"),
    ],
)
def test_exclusions_are_matched_by_every_matrix(kept, said, tmp_path):
    given = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": kept}
    stored = read(tmp_path, {**QUANTIZED, "quantization_config": given}).stored
    assert stored
    if said == "types differ":
        assert said in stored.says
        assert not stored.types
    else:
        assert (stored.experts if "mlp" in kept[0] else stored.mixers) == said


def test_a_hybrid_without_attention_is_read(tmp_path):
    text = dict(FILES["Qwen3.5-27B"]["text_config"])
    layers = ["linear_attention"] * text["num_hidden_layers"]
    alone = read(tmp_path, {**text, "layer_types": layers})
    assert alone.cache_per_token() == 0
    step = roofline.serving.step(alone, "h200", batch=4, context=4096)
    assert step.memory.cache == 4 * alone.state_bytes
    assert step.seconds > 0


@pytest.mark.parametrize(
    ("mixer", "sizes"),
    [
        (attention(100, 6, 2, 8), {"q": 4800, "k": 1600, "v": 1600, "o": 4800}),
        (
            latent_attention(100, 3, Latent(20, 10, 4, 6, 5)),
            {"q_a": 2000, "kv_a": 1400, "q_b": 20 * 3 * 10, "kv_b": 10 * 3 * 11, "o": 1500},
        ),
        (  # four fifths of 3 · 10 + 14 columns, whatever they are
            latent_attention(100, 3, Latent(0, 10, 4, 6, 5)),
            {"q_a": 3520, "kv_a": 880, "kv_b": 330, "o": 1500},
        ),
    ],
)
def test_matrices_of_a_mixer_by_hand(mixer, sizes):
    assert configurations._sizes(mixer) == pytest.approx(sizes)


def test_types_and_groups_of_a_scheme():
    asked = [("int", 4, 16), ("int", 8, 32), ("float", 8, None), ("float", 8, 16), ("float", 8, 32)]
    asked += [("float", 4, None), ("float", 4, 16), ("float", 4, 32)]
    kinds = [{"type": kind, "num_bits": n, "group_size": group} for kind, n, group in asked]
    said = "int4 int8 fp8 fp8 mxfp8 fp4 nvfp4 mxfp4".split()
    assert [*map(configurations._type, kinds)] == said
    columns, groups = {"weights": {"group_size": -1}}, {"weights": {"group_size": 32}}
    assert configurations._group({"config_groups": {"a": columns, "b": groups}}) == 32
    assert configurations._group({"config_groups": {"a": columns}}) == GROUP
    assert configurations._group({"q_group_size": 64}) == 64
