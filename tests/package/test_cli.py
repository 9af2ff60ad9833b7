"""The command line: what it prints, for people and for programs, and how it exits."""

import importlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from compiled_reports import needs
from kept_records import kept_report

import roofline
import roofline_helpers as rh
from roofline import diagnosis, serving, terminal, xla
from roofline.cli import load_call, main
from roofline.xla import compiler
from roofline_helpers.common.checks import BadValue, RooflineError

REPORT = kept_report("ledger-matmul", "v6e")


def saved(path, report):
    path.write_text(report.to_json(), "utf-8")
    return str(path)


def test_figures_of_chips_for_programs(capsys):
    assert main(["chip", "v6e", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    peak = data["v6e"]["figures"]["matrix.bf16"]
    assert peak["value"] == float(rh.chip("v6e").peak("bf16"))
    assert peak["source"]["url"].startswith("https://")


CALLS = """
def work(x, y, step=2):
    return x + y * step
def main():
    return work, 3
def pair():
    return work, (3, 4)
def named():
    return work, (3, 4), {"step": 5}
def listed():
    return work, [3, 4]
def wrong():
    return 3, work
def fails():
    return [][1]
"""


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("", ((3,), {})),
        (":pair", ((3, 4), {})),
        (":named", ((3, 4), {"step": 5})),
        (":listed", (([3, 4],), {})),
        (":wrong", "must return what to call and its arguments, f, (x, y) or f, (x, y), {'k': 3}"),
        (":fails", ":fails failed: IndexError: list index out of range"),
        (":other", "unknown function of calls.py 'other'"),
    ],
)
def test_a_function_of_a_script_says_what_to_call(tmp_path, function, arguments):
    script = tmp_path / "calls.py"
    script.write_text(CALLS, "utf-8")
    if isinstance(arguments, str):
        with pytest.raises(RooflineError, match=re.escape(arguments)):
            load_call(f"{script}{function}")
        return
    fn, *rest = load_call(f"{script}{function}")
    assert (fn.__name__, tuple(rest)) == ("work", arguments)
    assert str(tmp_path) not in sys.path
    script.write_text(CALLS.replace("main", "first"), "utf-8")
    with pytest.raises(BadValue, match=r"name one, calls\.py:work or calls\.py:first or"):
        load_call(str(script))


def test_two_reports_are_compared(tmp_path, capsys):
    before = saved(tmp_path / "before.json", REPORT)
    assert main(["compare", before, before]) == 0
    assert "nothing changed" in capsys.readouterr().out
    rows = tuple(replace(row, launches=2 * row.launches) for row in REPORT.rows)
    after = saved(tmp_path / "after.json", replace(REPORT, rows=rows))
    assert main(["compare", before, after]) == 1
    assert "grew" in capsys.readouterr().out


SERVED = ("llama-3-70b", "h200")
SIZES = {"chips": 8, "inputs": 1024, "outputs": 1024, "weights": "fp8"}
SERVE = ("serve", "llama-3-70b", "--chip", "h200", "--chips", "8", "--weights", "fp8")


def test_a_target_takes_the_engine_that_needs_the_fewest_chips(capsys):
    wanted = ("--for", "20 requests/s, time per token 40 ms")
    said = {}
    for asked in ((), *(("--chips", count) for count in ("2", "4", "8"))):
        assert main(["serve", "llama-3-70b", "--chip", "h100", *wanted, *asked]) == 0
        said[asked[1:]] = capsys.readouterr().out.splitlines()
    fewest = {size: int(lines[0].split("about ")[1].split()[0]) for size, lines in said.items()}
    table = [int(line.split()[0]) for line in said[()] if line[:1].isdigit()]
    alone = fewest.pop(())  # one H100 has no room for it
    assert [alone, *table] == [min(fewest.values()), *sorted(fewest.values())]


def test_a_target_gets_its_operating_point(capsys):
    wanted = ("--for", "9 requests/s, time per token 20 ms")
    assert main([*SERVE, *wanted]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    at = serving.service.service(*SERVED, **SIZES)
    loads = {n: at(n) for n in range(1, 300)}
    most = max((n for n in loads if loads[n].time_per_token <= 0.02), key=lambda n: loads[n].rate)
    engines = math.ceil(9 / loads[most].rate)
    assert f"about {8 * engines} chips (" in lines[0]
    (row,) = [line.split() for line in lines if line[:1].isdigit() and " of 8 " in line]
    assert row[:5] == [str(8 * engines), str(engines), "of", "8", str(most)]
    assert f"up to {most} requests of" in printed.replace("\n", " ")
    assert max(map(len, lines)) <= 100
    assert main([*SERVE, *wanted, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["loads"][0]["engines"], data["loads"][0]["concurrency"]) == (engines, most)


def test_a_service_is_answered_in_two_sentences_and_a_table(capsys):
    assert main([*SERVE, "--concurrency", "48"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 100
    table = [line.split() for line in lines if line[:1].isdigit()]
    assert [int(row[0]) for row in table] == [1, 2, 4, 8, 16, 32, 48]
    assert main([*SERVE, "--concurrency", "48", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    load = serving.service.service(*SERVED, **SIZES)(48)
    assert (load.worker.decode.setting.activations, load.worker.decode.setting.cache) == (
        "fp8",
        "bf16",
    )
    widened = serving.service.service(*SERVED, **{**SIZES, "weights": "int4"})(1)
    assert widened.worker.decode.setting.activations == "bf16"
    token = data["loads"][-1]["time per token"]
    assert token["best"] == load.time_per_token
    assert token["low"] < token["best"] < token["high"]
    assert f"{load.time_per_token * 1e3:.1f} ms" in printed.replace("\n", " ")
    assert data["rests"] == load.worker.decode.rests
    assert sum(data["rests"].values()) == pytest.approx(1)


def test_a_service_that_does_not_fit_says_what_would(capsys):
    assert main(["serve", "llama-3-70b", "--chip", "h100"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("No. Llama 3 70B")
    assert "78.2 GB" in printed  # of 85, without the eight hundredths of the runtime
    assert printed.endswith("2 chips have room. With weights in fp8 it fits.")
    # 0.67 TB in fp8; no narrower type helps; and a chip without links
    for words, end in (
        (["deepseek-v3", "--chip", "h100"], "In these 16 chips have room."),
        (["llama-3-70b", "--chip", "l4"], "after the weights."),
        (["olmo-2-1124-13b", "--chip", "t4"], "With weights in int4 it fits."),
        (["gpt-oss-120b", "--chip", "rtx-4090"], "after the weights."),  # in four bits as shipped
    ):
        assert main(["serve", *words]) == 1
        printed = " ".join(capsys.readouterr().out.split())
        assert printed.endswith(end)
        assert printed.startswith("Not in fp16, which is assumed. " if "t4" in words else "No. ")
    assert main(["serve", "llama-3-8b", "--chip", "l4", "--for", "1 requests/s"]) == 0
    assert "engines of 1" in capsys.readouterr().out.replace("\n", " ")
    assert main([*SERVE, "--concurrency", "5000", "--cache", "fp8"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Not all at once.")
    assert "wait for it" in printed.replace("\n", " ")


def test_a_bound_is_no_yes(capsys):
    words = ("serve", "llama-3-8b", "--chip", "mi300x", "--concurrency", "1")
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("They fit; how fast isn't known. 1 request of")
    assert "2.87 ms at best" in printed  # 15.2 GB of weights and a cache at 5.3 TB/s
    assert "Of a decode step's time 100% rests on no measured kernel." in printed
    assert main([*words, "--for", "9 requests/s", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["answer"].startswith("For 9 requests/s: at least 1 chip, one engine of 1.")
    assert data["chips"] == {"low": None, "best": 1, "high": None}
    assert data["loads"][0]["time per token"]["low"] is None
    assert main([*SERVE, "--json", "--for", "9 requests/s, time per token 1 ms"]) == 0
    data = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert data["chips"] == {"low": None, "best": None, "high": None}
    # of a v7x matmuls in bf16 were measured, and no service was compared
    for types in ((), ("--weights", "fp8", "--cache", "fp8")):
        assert main(["serve", "qwen3-32b", "--chip", "v7x", *types]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert printed.startswith("They fit; how fast isn't known.")
        assert "Low and high aren't known" in printed


def test_what_is_not_predicted_is_said(capsys):
    assert main([*SERVE, "--readers", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "not predicted" in printed
    assert "more than 4 times wide" in printed
    for words in (("--readers", "1"), ("--readers", "1", "--chips", "4")):
        assert main([*SERVE, *words, "--for", "9 requests/s, first token 1 s"]) == 2
        assert "isn't predicted" in capsys.readouterr().err


def test_parts_of_a_dense_model_are_copies(capsys):
    tokens = []
    for chips, data in (("4", "1"), ("8", "2")):
        words = ("--chips", chips, "--data", data, "--concurrency", "1", "--json")
        assert main([*SERVE, *words]) == 0
        tokens.append(json.loads(capsys.readouterr().out)["loads"][0]["time per token"]["best"])
    assert tokens[1] == pytest.approx(tokens[0], rel=1e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--for", "20 tokens"), "requests/s"),
        (("--for", "9 requests/s, p99 time per token 1 s"), "p99"),
        (("--data", "3"), "evenly. Allowed data: 1, 2, 4, 8"),
        (("--chips", "1", "--data", "8"), "Allowed data: 1\n"),
        (("--chips", "72"), "Allowed data: 9, 18, 36, 72"),
        (("--for", ""), "requests/s"),
        (("--for", "20.0.0 requests/s"), "requests/s"),
        (("--cache", "fp7"), "fp7"),
        (("--outputs", "1"), "outputs"),
        (("--concurrency", "0"), "concurrency"),
    ],
)
def test_a_service_that_can_not_be(words, said, capsys):
    assert main([*SERVE, *words]) == 2
    assert said in capsys.readouterr().err


NOISY = """
import atexit, os
print("imported")
os.write(1, b"from C")
os.system("echo from a child")
atexit.register(print, "at exit")
import jax, jax.numpy as jnp
def case():
    return jax.jit(lambda x: print("traced") or jnp.sin(x)), (jax.ShapeDtypeStruct((64, 32), "f4"),)
"""


def ran(*words, closed="", **variables):
    """Run the command in a process of its own, as a shell does; `closed` is a redirection."""
    line = shlex.join([sys.executable, "-m", "roofline", *words])
    return subprocess.run(
        ["bash", "-c", f"{line} {closed}; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
    )


def test_json_is_the_record_whatever_a_script_prints(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY, "utf-8")
    done = ran("analyze", f"{tmp_path}/noisy.py:case", "--json")
    assert done.returncode == 0
    assert xla.Report.from_json(done.stdout.decode()).arguments == ("f32[64,32]",)
    for said in (b"imported", b"from C", b"from a child", b"traced", b"at exit"):
        assert said in done.stderr


def test_a_reader_that_has_enough_may_close_the_pipe(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY, "utf-8")
    for words in (
        ("chip", "v6e"),
        ("chip", "v6e", "--json"),
        ("analyze", f"{tmp_path}/noisy.py:case"),
    ):
        done = ran(*words, closed="| head -c 0")
        assert (done.returncode, b"Error" in done.stderr) == (0, False), done.stderr


def test_a_closed_output_and_an_ascii_terminal():
    done = ran("chip", "v6e", closed=">&-")
    assert (done.returncode, done.stderr) == (
        1,
        b"chip: the output is closed: nothing can be printed\n",
    )
    plain = ran("serve", "llama-3-8b", "--chip", "mi300x", "--for", "9 s", PYTHONIOENCODING="ascii")
    assert (plain.returncode, plain.stderr.count(b"Traceback")) == (2, 0)
    printed = [ran("chip", "h100", PYTHONIOENCODING=name).stdout for name in ("ascii", "utf-8")]
    assert printed[0] == printed[1].replace("µ".encode(), b"u").replace("–".encode(), b"-")
    assert b" us" in printed[0]


def test_a_long_compilation_says_so_and_may_end(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "PATIENCE", 0.05)
    with terminal.slow("compiling f"):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("compiling f: 0 s so far")
    code = "import sys, time; from roofline import terminal; terminal.LIMIT.set(0.1)\n"
    code += "with terminal.slow('compiling f'):\n    time.sleep(20)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"compiling f: ended after 0.1 s, the limit\n")


def test_a_script_is_analyzed(tmp_path, capsys):
    jax = pytest.importorskip("jax", reason="JAX is not installed: nothing can be compiled")
    script = tmp_path / "model.py"
    script.write_text(
        "import jax, jax.numpy as jnp\n"
        "def case():\n"
        "    return jnp.matmul, (jax.ShapeDtypeStruct((64, 32), 'float32'),) * 1 + "
        "(jax.ShapeDtypeStruct((32, 16), 'float32'),)\n",
        "utf-8",
    )
    out = tmp_path / "report.json"
    assert main(["analyze", f"{script}:case", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("matmul, compiled for cpu\n")
    assert "f32[64,32], f32[32,16]" in text
    assert f"JAX {jax.__version__}" in text
    assert main(["analyze", f"{script}:case", "--json"]) == 0
    report = xla.Report.from_json(capsys.readouterr().out)
    assert report.matrix_flops == 2 * 64 * 32 * 16
    for words, message in (
        ([f"{script}:cose"], "Nearest: 'case'"),
        ([f"{script}:case", "--chip", "v6f"], "Nearest: 'v6e'"),
        (["nothing.py:case"], "no such file"),
    ):
        assert main(["analyze", *words]) == 2
        assert message in capsys.readouterr().err


SCRIPT = """
import functools, jax, jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

def turning():
    @functools.partial(jax.jit, static_argnames="again")
    def turn(x, n, *, again):
        for _ in range(again):
            x = jax.lax.fori_loop(0, n, lambda _, c: jnp.tanh(c @ c), x)
        return x
    return turn, (jax.ShapeDtypeStruct((512, 512), "float32"), 3), {"again": 2}

def spread():
    over = NamedSharding(AbstractMesh((8,), ("data",)), PartitionSpec("data"))
    x = jax.ShapeDtypeStruct((4096, 512), "bfloat16", sharding=over)
    return lambda x: x @ x.T[:, :512], (x,)
"""


@pytest.mark.parametrize(
    ("name", "chip", "options"),
    [
        ("turning", "v6e", {"turns": {"s.py:9": 5}}),
        ("spread", "v6e", {"topology": "4x4"}),
    ],
)
def test_the_commands_say_what_the_functions_say(tmp_path, capsys, name, chip, options):
    needs("v6e")
    script = tmp_path / "s.py"
    script.write_text(SCRIPT, "utf-8")
    fn, args, kwargs = load_call(f"{script}:{name}")
    words = [f"{script}:{name}", "--chip", chip, "--json"]
    words += [f"--turns={loop}={n}" for loop, n in options.get("turns", {}).items()]
    words += ["--topology", options["topology"]] if "topology" in options else []
    report = roofline.analyze(fn, *args, chip=chip, **options, **kwargs)
    assert main(["analyze", *words]) == 0
    printed = capsys.readouterr().out
    same = xla.Report.from_json(printed)
    assert (same.rows, same.notes, same.devices) == (report.rows, report.notes, report.devices)
    assert any(row.launches == 5 for row in report.rows) == ("turns" in options)
    assert same.topology == options.get("topology", {"v6e": "2x2", "v6e-8": "2x4"}[chip])
    assert same.findings == report.findings
    assert main(["explain", *words]) == 0
    assert capsys.readouterr().out == printed
    for command in ("analyze", "explain"):
        assert main([command, f"{script}:{name}", "--chip", chip, "--turns=7"]) == 2
        assert "--turns must be LOOP=N" in capsys.readouterr().err
        assert main([command, f"{script}:{name}", "--chip", "v6e-7"]) == 2
        assert "no slice 'v6e-7' is known. Nearest: v6e-4, v6e-8" in capsys.readouterr().err


def test_doctor_says_what_to_install(monkeypatch, capsys):
    assert main(["doctor", "--json"]) in (0, 1)
    abilities = {ability["name"]: ability for ability in json.loads(capsys.readouterr().out)}
    assert abilities["count by hand"]["can"] is True
    for key in xla.TOPOLOGIES if abilities["run JAX"]["can"] else ():
        missing = xla.can_compile(key)
        assert abilities[f"compile for {key}"]["can"] is (missing is None)
        assert (f"compile Pallas for {key}" in abilities) is (missing is None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["doctor"]) == 1
    assert "pip install jax" in capsys.readouterr().out


def test_doctor_tries_what_it_claims(monkeypatch, capsys):
    def refuse(lowered):
        if lowered.calls:
            raise RuntimeError("INTERNAL: Unsupported version: expected <= 7 but got 8")
        return made(lowered)

    made = compiler.compile_ahead
    monkeypatch.setattr(compiler, "compile_ahead", refuse)
    main(["doctor", "--json"])
    abilities = {ability["name"]: ability for ability in json.loads(capsys.readouterr().out)}
    for key in xla.TOPOLOGIES:
        if xla.can_compile(key) is None:
            assert abilities[f"compile for {key}"]["can"]
            assert not abilities[f"compile Pallas for {key}"]["can"]
            assert "expected <= 7 but got 8" in abilities[f"compile Pallas for {key}"]["text"]
    assert abilities["explain"]["can"]
    monkeypatch.setattr(diagnosis, "explain", lambda *_, **__: importlib.import_module("xprofiler"))
    main(["doctor", "--json"])
    [explains] = [a for a in json.loads(capsys.readouterr().out) if a["name"] == "explain"]
    assert not explains["can"]
    assert "xprofiler" in explains["text"]
