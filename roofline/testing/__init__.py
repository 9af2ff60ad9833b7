"""Performance tests without an accelerator: a pytest plugin that comes with this package.

::

    def test_block(roofline):
        roofline(block, params, x, chip="v6e")                        # against the baseline
        roofline(step, state, batch, chip="v5p", hbm_bytes="<= 1.2 GB", exposed="<= 5%", fits=True)

The function is compiled for the chip, which need not be here, and compared with limits, or with a
baseline that is committed next to the tests. `pytest --roofline-update` writes baselines.

A baseline holds what is compared: a line for each kernel, or for all kernels that are alike,
without names and line numbers, which any edit changes.

One file a topic: `plugin` (what pytest loads: it imports nothing else until a test asks for the
fixture), `budget` (what the test calls, with its limits and its baselines' files).
"""
