"""Thirty questions, each asked at every door: the command, a file, and the two functions."""

import json
import tomllib

import pytest

from roofline import network, serving, validation
from roofline.cli import main

QUESTIONS = [
    # model, chip, chips of an engine, and what else the command takes
    ("meta-llama/Llama-3.1-8B-Instruct", "h100", 1, ""),
    ("llama-3.1-8b", "a100", 1, "--weights int8 --concurrency 16"),
    ("llama-3.1-8b", "rtx-4090", 1, "--weights int4 --concurrency 4 --outputs 256"),
    ("llama-3.3-70b", "h100", 4, "--weights fp8 --cache fp8 --concurrency 128"),
    ("llama-3.3-70b", "h200", 2, "--inputs 8192 --concurrency 8"),
    ("llama-3.3-70b", "v6e", 8, "--concurrency 32"),
    ("llama-3.1-70b-instruct-fp8", "h100", 2, "--concurrency 16"),
    ("Llama-3.1-70B-AWQ", "a100", 1, "--concurrency 2"),
    ("llama-3.1-405b", "b200", 8, "--weights nvfp4 --cache fp8 --concurrency 32"),
    ("deepseek-r1", "h200", 8, "--concurrency 32"),
    ("deepseek-r1", "h200", 8, "--data 8 --cache fp8 --concurrency 64"),
    ("deepseek-v3", "b200", 8, "--weights nvfp4 --projections bf16 --cache fp8"),
    ("deepseek-v3", "gb200", 4, "--weights nvfp4 --readers 1 --concurrency 64"),
    ("kimi-k2", "b200", 8, "--concurrency 16"),
    ("gpt-oss-20b", "h100", 1, "--concurrency 128 --rounds 10 --polled 30"),
    ("gpt-oss-20b", "rtx-4090", 1, "--concurrency 8"),
    ("gpt-oss-120b", "h100", 1, "--inputs 4096 --outputs 512"),
    ("gpt-oss-120b", "b200", 2, "--concurrency 256 --cache fp8"),
    ("gpt-oss-120b", "mi300x", 1, "--concurrency 16"),
    ("qwen3-8b", "l4", 1, "--weights fp8 --concurrency 8"),
    ("Qwen/Qwen3-8B-FP8", "h100", 1, "--concurrency 64"),
    ("qwen3-32b", "v5e", 8, "--weights int8 --concurrency 16"),
    ("qwen3-235b-a22b", "h200", 8, "--weights fp8 --concurrency 48"),
    ("Qwen3-30B-A3B-Instruct-2507-FP8", "h100", 1, "--cached 0.5 --concurrency 32"),
    ("mixtral-8x7b", "h100", 2, "--budget 2048 --inputs 6000 --concurrency 12"),
    ("gemma-3-27b-it", "h100", 1, "--concurrency 8"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "a100", 1, "--concurrency 200"),
    ("minimax-m2.5", "h200", 4, "--workers 2 --concurrency 64"),
    ("llama-3.3-70b", "h100", 8, "--draft llama-3.2-1b --draft-tokens 4 --acceptance 0.7"),
    ("llama-4-scout", "b200", 4, "--activations bf16 --weights fp8 --concurrency 24"),
]


def options(words):
    """Return what a command's options say, numbers as numbers."""
    pairs = zip(*[iter(words.split())] * 2, strict=True)
    given = tomllib.loads(
        "\n".join(
            f"{name[2:].replace('-', '_')} = {value if value[0].isdigit() else json.dumps(value)}"
            for name, value in pairs
        )
    )
    return {"concurrency": 64, "inputs": 1024, "outputs": 1024, **given}


@pytest.mark.parametrize(("model", "chip", "chips", "words"), QUESTIONS)
def test_one_question_has_one_answer_at_every_door(model, chip, chips, words, tmp_path, capsys):
    asked = options(words)
    command = ["serve", model, "--chip", chip, "--chips", str(chips), *words.split(), "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    answers = {name: told["loads"][-1][name] for name in ("time per token", "first token")}

    data, readers = asked.pop("data", 1), asked.pop("readers", 0)
    mesh = {"expert": data, "tensor": chips // data}
    asked["mesh"] = mesh if data > 1 else {"tensor": chips}
    place = network.topology(chip, chips, ceilings="reached")
    apart = {"readers": serving.Readers(readers)} if readers else {}
    load = serving.load(model, place, **asked, **apart)

    def inline(value):
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key} = {inline(n)}' for key, n in value.items())}}}"
        return json.dumps(value)

    step = {"chip": chip, "shape": chips, "model": model, **asked}
    step |= {"readers": {"count": readers}} if readers else {}
    lines = [f"{key} = {inline(value)}" for key, value in step.items()]
    path = tmp_path / "steps.toml"
    path.write_text("\n".join(["[[row]]", *lines]), "utf-8")
    predicted = validation.predict(path)

    assert answers["time per token"]["best"] == load.time_per_token
    for at, (name, own) in enumerate(serving.ranges(load).items()):
        if name in answers:
            row = predicted.iloc[at][["low s", "predicted s", "high s"]]
            for mine, told_end, end in zip(own, answers[name].values(), row, strict=True):
                assert told_end == mine == (None if mine is None else end)
    assert told["types"] == load.worker.decode.types == predicted.iloc[0]["types"]
    decoder = load.worker.decode.setting.model
    if data == 1 and place.chip.kind == "gpu" and decoder.kv_heads % chips == 0:
        del asked["mesh"]
        alone = serving.load(model, chip, chips=chips, **asked, **apart)
        assert alone.time_per_token == pytest.approx(load.time_per_token, rel=1e-9)
