"""What is run on NVIDIA GPUs for records of this book: each script is complete in itself.

XLA's settings are made here, before any module of this folder imports JAX.
"""

import os

# Each kernel must show by itself, and another framework needs memory too
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_gpu_enable_command_buffer="]
).strip()
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
