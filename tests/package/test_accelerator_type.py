"""TPU_ACCELERATOR_TYPE as Colab and TPU VMs set it; `make colab` tries it in Colab's versions."""

import json
import os
import subprocess
import sys

import pytest

from roofline import xla
from roofline.xla import compiler
from roofline.xla.lower import Arguments, lower
from roofline.xla.targets import target_of
from tools.programs import _ahead as compile_ahead  # the compiler, also where programs are kept

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(xla.can_compile("v6e")), reason=f"NOT TESTED: {xla.can_compile('v6e')}"
    ),
]

# JAX starts before the package can change the environment, as in a reader's notebook
CODE = """
import json, jax, roofline
jax.devices()
square = jax.ShapeDtypeStruct((2048, 2048), "bfloat16")
report = roofline.analyze(jax.numpy.matmul, square, square, chip="v6e")
print(json.dumps([report.hbm_bytes, dict(report.xla)]))
"""


def compiled(kind, **around):
    """Return the traffic and the costs of a matmul, compiled in a process of its own."""
    environment = {**os.environ, "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost"}
    environment |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", **around}
    environment.pop("TPU_ACCELERATOR_TYPE", None)
    if around.get("JAX_PLATFORMS") is None:
        environment.pop("JAX_PLATFORMS", None)  # JAX looks for a TPU, with this type
    if kind is not None:
        environment["TPU_ACCELERATOR_TYPE"] = kind
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_no_accelerator_type_ends_the_process():
    without = compiled(None, JAX_PLATFORMS="cpu")
    assert without[0] == 3 * 2048 * 2048 * 2
    assert without[1]["flops"] == 2 * 2048**3
    for kind in ("v5litepod-1", "v6e-1", "v4-8"):
        assert compiled(kind) == without, kind


def test_costs_that_could_end_the_process_are_asked_in_another(monkeypatch):
    import jax

    square = jax.ShapeDtypeStruct((512, 512), "bfloat16")
    lowered = lower(jax.numpy.matmul, Arguments((square, square)), {}, target_of("v5e"))
    expected = compile_ahead(lowered).costs
    around = []
    ask = subprocess.run

    def watched(command, **options):
        around.append(options["env"])
        return ask(command, **options)

    monkeypatch.setattr(subprocess, "run", watched)
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v6e-1")
    monkeypatch.setattr(compiler, "SOUND", (99, 0))
    assert compile_ahead(lowered).costs == expected
    assert set(expected) >= {"flops", "bytes accessed"}
    [environment] = around
    assert environment.keys() >= {"TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"}
    assert "TPU_ACCELERATOR_TYPE" not in environment
    assert environment["JAX_PLATFORMS"] == "cpu"
