"""Write the HLO fixtures: python tests/package/data/hlo/make.py, in an environment with jax[tpu].

Those of the H100 need one, and JAX 0.11.2 for CUDA.

Each file is what XLA printed for one kernel of tests/package/compiled_suite.py, named
KERNEL.CHIP.jax-VERSION.hlo, less what the reader does not read: tables of source files, names of
source files, and the bytecode of Pallas kernels. To add one, make an empty file of its name.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[3])]


def stripped(text):
    """Remove what would tell where it was made, and what takes much room."""
    text = re.sub(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(\d+ .*\n)*", "\n", text)
    text = re.sub(r'source_file="[^"]*"', 'source_file=""', text)
    text = re.sub(r'"body":"[^"]*"', '"body":""', text)
    text = re.sub(r'ir = "(\\.|[^"\\])*"', 'ir = ""', text)
    text = re.sub(r',?"debug":"(\\.|[^"\\])*"', "", text)
    return re.sub(r"\n{3,}", "\n\n", text)


def main():
    import jax
    from compiled_suite import SUITE

    from roofline import xla

    for path in sorted(HERE.glob(f"*.jax-{jax.__version__}.hlo")):
        name, chip, *_ = path.name.split(".")
        fn, args, options = SUITE[name].call
        report = xla.analyze(fn, *args, chip=None if chip == "cpu" else chip, **options)
        path.write_text(stripped(report.text), "utf-8")
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
