"""Roofline analysis for people who write kernels: how fast could this go, and what limits it?

>>> import roofline_helpers as rh
>>> roof = rh.chip("v7x").roofline("bf16")
>>> job = rh.work.matmul(600, 600, 600, "bf16")
>>> round(roof.ridge), round(job.intensity), roof.bound(job.intensity)
(313, 200, 'memory')

- `chips`: peaks, memory and links of chips, each figure with its source.
- `roofline`: attainable rate, bound and least time under a peak and a bandwidth.
- `work`: FLOPs and bytes of operations: a matmul, a LayerNorm, attention, and their fusion.
- `models`: language models as shapes.
- `measured`: records of measured devices, tables of measured kernels, and those like yours.
- `verdicts`: a bound or a gain, tested against its assumptions.
- `plot`: rooflines with kernels on them.
- `pages`: the questions on the book's pages.

What reads compilers, devices and whole systems is in `roofline`, which is built on this.
"""

import lazy_loader

__version__ = "0.1.0"

# The names are in the stub, for type checkers too; a room loads when it is first used, so that the
# command's help and the pytest plugin start at once
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
