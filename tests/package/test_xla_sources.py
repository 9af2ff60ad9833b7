"""Where kernels come from: lines of the reader's code, scopes, passes, roles and arguments."""

from pathlib import Path

import jax
import pytest

import roofline
from roofline import xla
from roofline.xla.metadata import Frames, Scope, SourceLine, frames, scope_of, source_of


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("add", Scope(primitive="add")),
        ("jit(step)/mlp/up/dot_general", Scope(("mlp", "up"), primitive="dot_general")),
        (
            "jit(step)/jit(main)/layer_3/mlp/jit(gelu)/tanh",
            Scope(("layer_3", "mlp"), ("gelu",), primitive="tanh"),
        ),
        ("jit(f)/jit(helper)/add", Scope(("helper",), primitive="add")),
        (
            "jit(f)/jit(_where)/jit(<lambda>)/mul",
            Scope((), ("_where", "<lambda>"), primitive="mul"),
        ),
        ("jit(f)/bqe,bke->bqk/dot", Scope(einsum="bqe,bke->bqk", primitive="dot")),
        ("jit(f)/vmap(jvp(a))/cond/branch_1_fun/b/sin", Scope(("a", "b"), primitive="sin")),
        (  # of two names the first
            "jit(step)/transpose(jvp(mlp/up))/mul;jit(g)/x",
            Scope(("mlp", "up"), step="backward", primitive="mul"),
        ),
        (
            "jit(s)/transpose(jvp())/while/body/closed_call/norm/mul",
            Scope(("norm",), step="backward", primitive="mul"),
        ),
        (
            "jit(s)/transpose(jvp())/while/body/checkpoint/rematted_computation/norm/mul",
            Scope(("norm",), step="recomputed", primitive="mul"),
        ),
    ],
)
def test_scopes(op_name, scope):
    assert scope_of(op_name) == scope


TABLES = """HloModule t

FileNames
1 "/home/me/model.py"
2 "/usr/lib/python3.11/site-packages/flax/linen.py"
3 "/tmp/ipykernel_77/123.py"

FunctionNames
1 "step.<locals>.<lambda>"
2 "Dense.__call__"
3 "<module>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=18 column=3}
2 {file_name_id=2 function_name_id=2 line=40}
3 {file_name_id=3 function_name_id=3 line=5}

StackFrames
1 {file_location_id=3}
2 {file_location_id=1 parent_frame_id=1}
3 {file_location_id=2 parent_frame_id=2}
4 {file_location_id=2 parent_frame_id=0}

ENTRY %m () -> f32[] {
"""
SHIFTED = TABLES.replace("frame_id=2", "frame_id=3").replace("frame_id=1}", "frame_id=2}")


@pytest.mark.parametrize("text", [TABLES, SHIFTED])  # JAX 0.10.2 prints the frame after a parent
def test_frames_are_the_reader_s_lines(text):
    tables = frames(text)
    linen = "/usr/lib/python3.11/site-packages/flax/linen.py"
    assert list(tables.stack(3)) == [
        (linen, 40, "Dense.__call__"),
        ("/home/me/model.py", 18, "step.<locals>.<lambda>"),
        ("/tmp/ipykernel_77/123.py", 5, "<module>"),
    ]
    assert [source_of(f"stack_frame_id={frame}", tables) for frame in range(6)] == [
        None,
        SourceLine("cell", 5),
        SourceLine("me/model.py", 18, "step"),
        SourceLine("me/model.py", 18, "step"),
        SourceLine("flax/linen.py", 40, "__call__"),  # nothing else is around it
        None,
    ]
    older = source_of('source_file="/a/b/c.py" source_line=7', tables)
    assert older == SourceLine("b/c.py", 7)


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


HERE = str(Path(roofline.__file__).parents[1])


@pytest.mark.parametrize("root", [HERE, "/usr/site-packages", "/another/checkout/roofline"])
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
