"""A file of one's own steps: what is read, what is predicted, what is refused."""

import json

import pytest

import roofline
import roofline_helpers as rh
from roofline import validation
from roofline.cli import main

OURS = """[[row]]
id = "ours"
chip = "h100"
shape = 8
model = "llama-3-8b"
batch = 128
seq = 8192
mesh = {fsdp = 8}
dtype = "fp8"
recompute = "none"
microbatches = 16
tokens = 14451
"""
DECODE = """[[row]]
id = "decode"
chip = "v6e"
shape = "2x4"
model = "llama-3-70b"
batch = 64
context = 1500
"""


def file(folder, text):
    path = folder / "steps.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_row_is_predicted_as_the_board_s_row(tmp_path):
    gpus = DECODE.replace('"2x4"', "8").replace("v6e", "h200").replace('"decode"', '"h200"')
    predicted = validation.predict(file(tmp_path, OURS + DECODE + gpus))
    row = roofline.scoreboard(law=True).loc["h100-8-llama-3-8b-fp8"]
    ours = predicted.loc["ours"]
    assert ours["bound s"] == pytest.approx(row["bound s"])
    assert ours["predicted s"] == pytest.approx(row["predicted s"], rel=0.01)
    assert ours["measured s"] == pytest.approx(row["published s"])
    assert ours["error"] == pytest.approx(ours["predicted s"] / ours["measured s"] - 1)
    assert ours["low s"] < row["predicted s"] < ours["high s"]
    decode = predicted.loc["decode"]
    known = validation.published_step("v6e-8-llama-3.3-70b-decode-64")
    assert decode["predicted s"] == known.reached.seconds
    assert decode[["measured s", "error"]].isna().all()
    assert decode[["low s", "high s"]].isna().all()  # no kernels of a v6e were measured
    h200 = predicted.loc["h200"]
    assert h200["high s"] / h200["predicted s"] == pytest.approx(1.23)  # of dense tokens


def test_the_command_prints_and_gives_json(tmp_path, capsys):
    path = str(file(tmp_path, OURS + DECODE))
    assert main(["predict", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["step", "ours", "decode"]
    assert lines[2].split()[-1] == "–"
    assert main(["predict", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["decode"]["error"] is None
    assert data["ours"]["low s"] < data["ours"]["high s"]
    assert main(["predict", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err


LOAD = """[[row]]
id = "served"
chip = "h200"
shape = 8
model = "llama-3-70b"
concurrency = 64
inputs = 1024
outputs = 1024
weights = "fp8"
activations = "fp8"
seconds = 0.012
first = 0.2
"""


def test_a_service_is_predicted_with_the_range_of_its_kind(tmp_path):
    apart = LOAD.replace("shape = 8", "shape = 4").replace('"served"', '"apart"')
    apart += "readers = {count = 2, shape = 8, rate = 5e10}\nworkers = 3\n"
    lacking = LOAD.replace("inputs", "# inputs").replace('"served"', '"lacking"')
    predicted = validation.predict(file(tmp_path, LOAD + apart + lacking))
    place = roofline.network.topology("h200", 8, ceilings="reached")
    load = roofline.serving.load(
        *("llama-3-70b", place, {"tensor": 8}),
        **{"concurrency": 64, "inputs": 1024, "outputs": 1024},
        **{"weights": "fp8", "activations": "fp8"},
    )
    token, first = predicted.loc["served"], predicted.loc["served, first token"]
    assert token["predicted s"] == load.time_per_token
    assert token["error"] == pytest.approx(load.time_per_token / 0.012 - 1)
    assert first["predicted s"] == load.first_token
    assert token["tokens/s a chip"] == load.per_chip
    assert token["low s"] < token["predicted s"] < token["high s"]
    assert 70e9 / 8 / 4.8e12 < token["bound s"] < token["low s"]
    both = predicted.loc["apart"]
    assert 0 < both["tokens/s a chip"] < 64 / both["predicted s"] / 28
    assert predicted.loc["apart, first token", ["predicted s", "low s", "high s"]].isna().all()
    assert "inputs missing" in predicted.loc["lacking", "refused"]


@pytest.mark.parametrize("text", ["row = 3", "row = [1, 2]", '[row]\nchip = "h100"'])
def test_a_file_whose_rows_are_no_blocks(tmp_path, text):
    with pytest.raises(rh.BadValue, match=r"isn't a block \[\[row\]\]"):
        validation.predict(file(tmp_path, text))


WIDTHS = "layers=32, d_model=4096, heads=32, kv_heads=8, head_dim=128, d_ff=14336, vocabulary=32000"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OURS.replace("model", "models"), "Nearest: 'model'"),
        (OURS.replace("fsdp", "fdsp"), "Nearest: 'fsdp'"),
        (OURS.replace("seq", "#").replace("mesh", "#"), "seq, mesh missing"),
        (OURS + "imbalance = 0.5", "imbalance is the largest load over the mean"),
        (DECODE + 'phase = "training"', "phase 'training'"),
        (DECODE + 'cache = "fp7"', "fp7"),
        (OURS + f"widths = {{{WIDTHS}, experts = {{count=8, actives=2, d_ff=1}}}}", "'active'"),
        (OURS + f"widths = {{{WIDTHS}, experts = 8}}", "experts"),
        (OURS + "widths = {layers=32}", "d_model, heads"),
        (LOAD.replace("0.012", "-1"), "what was measured"),
        (LOAD + "acceptance = 0.8", "give its model"),
    ],
    ids=(
        *("field", "axis", "missing", "load", "phase", "type", "expert", "experts", "widths"),
        *("measured", "draft"),
    ),
)
def test_a_row_that_is_wrong_is_named_and_the_others_are_predicted(tmp_path, text, said, capsys):
    path = file(
        tmp_path,
        OURS
        + text.replace('"ours"', '"bad"').replace('"decode"', '"bad"').replace('"served"', '"bad"'),
    )
    predicted = validation.predict(path)
    assert predicted.loc["ours", "predicted s"] > predicted.loc["ours", "bound s"] > 0
    assert said in predicted.loc["bad", "refused"]
    assert "row 2" in predicted.loc["bad", "refused"]
    assert main(["predict", str(path)]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("text", "said"), [("row = [", "not TOML"), ("", "No such file")])
def test_a_file_that_is_wrong_is_named(tmp_path, text, said):
    with pytest.raises(rh.RooflineError, match=said):
        validation.predict(file(tmp_path, text) if text else tmp_path / "none.toml")


def test_a_step_that_does_not_fit_says_so(tmp_path):
    alone = DECODE.replace('"2x4"', '"1x1"')
    for text, fits in ((DECODE, True), (alone, False)):
        (types,) = validation.predict(file(tmp_path, text))["types"]
        assert ("doesn't fit: " in types) != fits
    assert types.endswith(" of 33.6 GB")


def test_decode_takes_the_laws_of_kernels_and_the_types_that_are_said(tmp_path):
    types = {"weights": "fp8", "activations": "fp8", "cache": "fp8"}
    said = "".join(f'{name} = "{kind}"\n' for name, kind in types.items())
    h100 = DECODE.replace("v6e", "h100").replace('"2x4"', "8")
    predicted = validation.predict(
        file(tmp_path, h100 + said + DECODE.replace('"decode"', '"tpu"'))
    )
    by_kernel = roofline.serving.step(
        "llama-3-70b", "h100", batch=64, context=1500, chips=8, law=True, **types
    )
    by_law = by_kernel.but(reached=True)
    assert predicted.loc["decode", "predicted s"] == pytest.approx(by_law.seconds)
    assert by_law.seconds > 1.2 * by_kernel.but(reached=True, law=False).least_seconds
    assert list(predicted["by"]) == ["laws", "roof"]
    assert "weights fp8" in predicted.loc["decode", "types"]
    prefill = h100 + 'phase = "prefill"\n'
    first = validation.predict(file(tmp_path, prefill)).loc["decode", "predicted s"]
    assert first > 20 * predicted.loc["decode", "predicted s"]
