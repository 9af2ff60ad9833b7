"""What is run on an NVIDIA GPU.

`measure_gpu` measures experiments by name and writes one record. An experiment is a function that
adds cases to a `suite.Suite`; `experiments` lists them.

XLA's settings are made here, before any module of this folder imports JAX.
"""

import os

# Each kernel must show by itself, and another framework needs memory too
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_gpu_enable_command_buffer="]
).strip()
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
