"""The ladder: a training step over four GPUs from its first version, one change a rung.

from examples.train_step import model, rungs

shape, rung = rungs.SHAPE, rungs.RUNGS[-1]
mesh = model.mesh(rung.way)
step = model.compiled(shape, rung.way, mesh, rungs.TOKENS)
state, tokens = model.state(shape, rung.way, mesh), model.batch(shape, *rungs.TOKENS, mesh)
state, loss = step(state, tokens)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from examples.llama_decode.model import Llama
from examples.train_step.model import Way

SHAPE = Llama(layers=8)
"""Eight layers of Llama-3-8B, with its vocabulary: 2.8 billion weights."""

TOKENS = (16, 2048)
"""Sequences of the step, and tokens of each."""


@dataclass(frozen=True)
class Rung:
    """One way to write the step, and what it changes about `after`, the rung before by default."""

    name: str
    change: str
    way: Way
    after: str = ""


DOUBLE = {"xla_gpu_enable_while_loop_double_buffering": True}

FIRST = Way()
CUDNN = replace(FIRST, attention="cudnn")
UNROLLED = replace(CUDNN, scan=False)
GATHERED = replace(UNROLLED, gathered=True)
CHUNKED = replace(GATHERED, chunks=4)
MATMULS = replace(CHUNKED, keep="matmuls")
ALL = replace(CHUNKED, keep="all")

RUNGS = (
    Rung("as first written", "FSDP by shardings, a scan, all computed twice", FIRST),
    Rung("cuDNN", "attention is one kernel, backward too", CUDNN),
    Rung("unrolled", "a Python loop over the layers", UNROLLED),
    Rung("gathered", "each device gathers weights and scatters gradients itself", GATHERED),
    Rung("chunked loss", "the loss holds a quarter of the logits at a time", CHUNKED),
    Rung("matmuls kept", "the backward pass finds the matmuls' results", MATMULS),
    Rung("all kept", "the backward pass finds all, gathered weights too", ALL),
    Rung("fp8", "the layers' matmuls compute in fp8, their weights travel in it",
         replace(ALL, fp8=True)),
)  # fmt: skip
"""The ladder."""

ASIDE = (
    Rung("scan, double buffering", "two turns of the loop overlap", replace(CUDNN, flags=DOUBLE),
         "cuDNN"),
    Rung("scan, gathered", "each device gathers for itself, in a scan",
         replace(CUDNN, gathered=True), "cuDNN"),
    Rung("tensor and FSDP", "widths in two, batch and weights in two",
         replace(UNROLLED, tensor=2), "unrolled"),
    Rung("tensor", "widths in four", replace(UNROLLED, tensor=4), "unrolled"),
    Rung("all kept, whole loss", "all logits at once, nothing computed twice",
         replace(ALL, chunks=0), "all kept"),
    Rung("straggler", "the first device has 100 matmuls of 4096³ more", replace(ALL, straggler=100),
         "all kept"),
)  # fmt: skip
"""What was tried beside it: each changes the rung that it names."""
