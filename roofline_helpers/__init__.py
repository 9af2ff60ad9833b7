"""Roofline analysis for people who write kernels: how fast could this go, and what limits it?

>>> import roofline_helpers as rh
>>> roof = rh.chip("v7x").roofline("bf16")
>>> job = rh.work.matmul(600, 600, 600, "bf16")
>>> round(roof.ridge), round(job.intensity), roof.bound(job.intensity)
(313, 200, 'memory')

- `work`: FLOPs, bytes and intensity of a matmul, of elementwise operations, of a LayerNorm, of
  attention, and of kernels fused from them. A `Work` is such a count.
- `roofline`: the attainable rate, min(peak, bandwidth · intensity), the bound and the least time. A
  `Kernel` is a work on a roof, launched once or more.
- `chips`: hardware specifications, each figure with its source (`data/chips.toml`).
- `plot`: rooflines with kernels on them, fusion, memory levels, traffic.
- `verdicts`: a bound or a gain, tested against what it assumes.
- `measured`: records of devices, tables of measured kernels, and the times of those like yours.
- `models`: language models as shapes (`data/models.toml`).
- `pages`: questions and instruments on the book's pages (`data/questions`).

`common` has the argument checks, data types, units and tables of all of these, and where
records lie: look it up when you meet a name from it.

What reads compilers, devices and whole systems is the package `roofline`, built on this one.
"""

import lazy_loader

__version__ = "0.1.0"

# The names are in the stub, for type checkers too; a room loads when it is first used, so that the
# command's help and the pytest plugin start at once
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
