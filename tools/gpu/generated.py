"""What torch.compile makes of the chain: its Triton source, one file with a head.

    python -m tools.gpu.generated --out chain.torch-compile.txt

The same text comes to the terminal with TORCH_LOGS=output_code.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
from pathlib import Path
from typing import Any

from tools.gpu.chain import torch_eager
from tools.gpu.pytorch import torch_or_none


def main() -> int:
    """Compile the chain for 65536×4096 bf16 and write what was generated."""
    parser = argparse.ArgumentParser(description="Write torch.compile's code for the chain.")
    parser.add_argument("--out", default="chain.torch-compile.txt", metavar="FILE")
    out = Path(parser.parse_args().out)
    torch = torch_or_none()
    if torch is None:
        raise SystemExit("PyTorch with a GPU is needed")
    shapes = [(65536, 4096), (4096,), (4096,), (65536, 4096), (65536, 4096)]
    tensors = [torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shapes]
    inductor: Any = importlib.import_module("torch._inductor.utils")
    _, sources = inductor.run_and_get_code(torch.compile(torch_eager(torch)), *tensors)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    head = f"# torch.compile, PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {now}\n"
    out.write_text(head + "\n".join(sources), "utf-8")
    print(head)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
