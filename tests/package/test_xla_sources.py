"""Where kernels come from: lines of the reader's code, scopes, passes, roles and arguments."""

from pathlib import Path

import jax
import pytest

import roofline
from roofline import xla
from roofline.xla.metadata import Frames, scope_of, source_of


@pytest.mark.parametrize(
    ("op_name", "scope", "step", "primitive"),
    [
        ("jit(step)/mlp/up/dot_general", "mlp.up", "forward", "dot_general"),
        ("jit(step)/transpose(jvp(mlp))/up/dot_general", "mlp.up", "backward", "dot_general"),
        ("jit(s)/transpose(jvp())/while/body/closed_call/norm/mul", "norm", "backward", "mul"),
        (
            "jit(s)/transpose(jvp())/while/body/checkpoint/rematted_computation/norm/mul",
            "norm",
            "recomputed",
            "mul",
        ),
    ],
)
def test_scopes(op_name, scope, step, primitive):
    read = scope_of(op_name)
    assert (read.name, read.step, read.primitive) == (scope, step, primitive)


def counting_file(*stack):
    """Return the file that counts of a stack, innermost first."""
    outermost_first = dict(enumerate(reversed(stack), 1))
    tables = Frames(
        files=outermost_first,
        functions={},
        locations={number: {"file_name_id": number, "line": 1} for number in outermost_first},
        calls={
            number: {"file_location_id": number, "parent_frame_id": number - 1}
            for number in outermost_first
        },
    )
    source = source_of(f"stack_frame_id={len(stack)}", tables)
    return None if source is None else source.file


@pytest.mark.parametrize("root", [str(Path(roofline.__file__).parents[1]), "/usr/site-packages"])
def test_lines_of_these_packages_and_of_whoever_calls_analyze_are_not_the_reader_s(root):
    kernel, lowering = f"{root}/roofline/kernels/flash.py", f"{root}/roofline/xla/lower.py"
    assert counting_file(kernel, "/home/me/roofline/model.py", lowering) == "roofline/model.py"
    assert counting_file(kernel, lowering, "/home/me/roofline/script.py") is None


# --- live -----------------------------------------------------------------------------------------


def _mlp(p, x):
    with jax.named_scope("mlp"):
        with jax.named_scope("up"):
            hidden = jax.nn.gelu(x @ p["up"])  # the line of the test
        with jax.named_scope("down"):
            return hidden @ p["down"]


def _step(p, x):
    return jax.grad(lambda p: (_mlp(p, x) ** 2).mean())(p)


LINE = next(
    number
    for number, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1)
    if line.endswith("# the line of the test")
)


def test_a_kernel_knows_its_line():
    spec = jax.ShapeDtypeStruct((256, 512), "bfloat16")
    weights = {
        "up": jax.ShapeDtypeStruct((512, 1024), "bfloat16"),
        "down": jax.ShapeDtypeStruct((1024, 512), "bfloat16"),
    }
    report = xla.analyze(_step, weights, spec)
    products = [row for row in report.rows if row.flops.matrix]
    assert {row.scope for row in products} == {"mlp.up", "mlp.down"}
    (up,) = [row for row in products if row.scope == "mlp.up" and row.step == "forward"]
    assert Path(up.source.file).name == Path(__file__).name
    assert up.source.line == LINE
    assert up.source.function == "_mlp"
    assert up.role.startswith("matmul of mlp.up")
    assert {row.step for row in products} == {"forward", "backward"}
    assert f"{Path(__file__).name}:{LINE}" in report.describe()
    assert xla.Report.from_json(report.to_json()) == report
