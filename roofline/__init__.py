"""Why is this program slow on these devices, and what comes next? The instrument.

>>> import roofline
>>> roofline.serving.step("llama-3-8b", "h100", batch=64, context=2048).fits
True

`analyze` reads what XLA emits for a chip, also for one that you don't own; `explain` runs a
function here and says where its time goes; `model` reads a ``config.json``; `scoreboard` holds
predictions against what others measured. Rooms: `serving`, `training` and `network` predict whole
systems, `measure` is the clock, `diagnosis` the explanation, `xla` the compiled program, `kernels`
has Pallas kernels, `validation` the measurements of others, `labs` what runs on the book's pages.
All of it is built on `roofline_helpers`.
"""

import lazy_loader

from roofline.libtpu import keep_quiet

# The names are in the stub, for type checkers too; a room loads when it is first used, so that the
# command's help and the pytest plugin start at once
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

keep_quiet()  # before anybody starts JAX
