"""The compiler is quiet, several compile at once, and nothing is imported early."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from compiled_reports import needs

pytestmark = pytest.mark.slow  # kernels are interpreted, processes started

QUIET = textwrap.dedent(
    """
    import os
    import jax  # which sets variables of its own
    before = dict(os.environ)
    from roofline_helpers import xla
    x = jax.ShapeDtypeStruct((256, 256), "float32")
    for chip in ("v6e", "v5p"):
        print(xla.analyze(jax.numpy.tanh, x, chip=chip).hbm_bytes)
    after = dict(os.environ)
    assert before == after, {k for k in {*before, *after} if before.get(k) != after.get(k)}
    """
)


@pytest.mark.weekly
def test_several_processes_at_once_and_no_noise() -> None:
    needs("v6e")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "ALLOW_"))}
    environment.pop("JAX_PLATFORMS", None)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", QUIET],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, **more},
        )
        for more in ({}, {}, {"JAX_PLATFORMS": "cpu"})
    ]
    for each in processes:
        out, noise = each.communicate(timeout=240)
        assert (each.returncode, out, noise) == (0, "524288\n524288\n", ""), noise


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from roofline_helpers import xla; "
        "print([m for m in ('jax', 'matplotlib', 'pandas', 'seaborn') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
