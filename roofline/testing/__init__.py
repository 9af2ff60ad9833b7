"""Performance tests without an accelerator: a pytest plugin that comes with this package.

::

    def test_block(roofline):
        roofline(block, params, x, chip="v6e")                        # against the baseline
        roofline(step, state, batch, chip="v5p", hbm_bytes="<= 1.2 GB", exposed="<= 5%", fits=True)

The function is compiled for the chip, which need not be here, and compared with limits, or with a
baseline next to the tests, which `pytest --roofline-update` writes and you commit. A baseline has a
line for each kernel, or for all that are alike, without names and line numbers: any edit would
change those.

`plugin` is what pytest loads; `budget`, loaded by the first test that asks for the fixture, is what
a test calls.
"""
