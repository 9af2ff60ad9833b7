"""The experiment on Hopper's copy engine: lowered here, interpreted where JAX can, run on a GPU."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from roofline_helpers import device
from roofline_helpers.common.checks import BadValue
from roofline_helpers.common.records import BadRecord

jax = pytest.importorskip("jax", reason="JAX is not installed: no kernel can run")

pytestmark = pytest.mark.slow  # kernels are interpreted, processes started
gpu = pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)
if "out_type" not in inspect.signature(gpu.kernel).parameters:
    pytest.skip("this JAX's Mosaic GPU is older than the experiment", allow_module_level=True)

from roofline_helpers import kernels  # noqa: E402
from tools.gpu import hopper_chain  # noqa: E402


def test_it_is_lowered_to_one_program_a_row() -> None:
    export = jax.export
    checks = [export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]
    shapes = jax.eval_shape(lambda: hopper_chain.arrays(8, 2048))
    made = export.export(jax.jit(hopper_chain.chain), platforms=["cuda"], disabled_checks=checks)(
        *shapes
    )
    assert made.mlir_module().count("custom_call @mosaic_gpu_v2") == 1
    with pytest.raises(BadValue, match="multiple of 1024 columns, got 1000"):
        jax.eval_shape(lambda: hopper_chain.chain(*hopper_chain.arrays(8, 1000)))


def test_it_does_what_our_kernel_does() -> None:
    if not hasattr(gpu, "InterpretGPUParams"):
        pytest.skip("this JAX does not interpret Mosaic GPU's kernels")
    made = hopper_chain.arrays(3, 2048)
    got = hopper_chain.chain(*made, interpret=gpu.InterpretGPUParams())
    wanted = kernels.layernorm_gelu_dropout_residual(*made, rate=hopper_chain.RATE)
    got, wanted = (np.asarray(each, np.float32) for each in (got, wanted))
    assert np.all(np.abs(got - wanted) <= 2.0**-7 * np.abs(wanted) + 1e-6)
    assert np.abs(got).max() > 1


def test_the_committed_trial_can_be_read() -> None:
    trial = device.trial("h200-tma")
    assert set(trial["seconds"]) == {"Pallas", "Pallas, Mosaic GPU", "Triton by hand"}
    assert tuple(trial["shape"]) == hopper_chain.SHAPE
    with pytest.raises(BadRecord, match="nothing"):
        device.trial("nothing")
