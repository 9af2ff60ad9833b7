"""Where kernels come from: lines of the reader's code, scopes, passes, roles and arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hlo_programs import fixture

from roofline_helpers import xla
from roofline_helpers.xla.metadata import SourceLine, frames, scope_of, source_of

TABLES = """HloModule jit_step

FileNames
1 "/home/ann/model.py"
2 "/opt/lib/python3.12/site-packages/flax/linen/linear.py"
3 "/opt/roofline_helpers/compiled/analysis.py"
4 "/opt/roofline_helpers/kernels/rows.py"

FunctionNames
1 "<module>"
2 "analyze"
3 "Model.mlp.<locals>.<lambda>"
4 "Dense.__call__"
5 "softmax"

FileLocations
1 {file_name_id=1 function_name_id=1 line=90 end_line=90 column=1 end_column=9}
2 {file_name_id=3 function_name_id=2 line=149 end_line=149 column=13 end_column=26}
3 {file_name_id=1 function_name_id=3 line=12 end_line=12 column=13 end_column=26}
4 {file_name_id=2 function_name_id=4 line=300 end_line=300 column=13 end_column=26}
5 {file_name_id=4 function_name_id=5 line=40 end_line=40 column=13 end_column=26}

StackFrames
1 {file_location_id=1 FIRST}
2 {file_location_id=2 parent_frame_id=ONE}
3 {file_location_id=3 parent_frame_id=TWO}
4 {file_location_id=4 parent_frame_id=THREE}
5 {file_location_id=5 parent_frame_id=THREE}
6 {file_location_id=4 parent_frame_id=TWO}

%unused
"""


def tables(shift: int) -> Any:
    """Return the tables above, with parents as one version of JAX prints them or another."""
    text = TABLES.replace("FIRST", f"parent_frame_id={shift}" if shift else "")
    for number, word in enumerate(("ONE", "TWO", "THREE"), 1):
        text = text.replace(word, str(number + shift))
    return frames(text)


@pytest.mark.parametrize("shift", [0, 1])
def test_the_readers_own_line_is_the_innermost_that_no_package_has(shift: int) -> None:
    sources = {
        frame: source_of(f'op_name="x" stack_frame_id={frame}', tables(shift))
        for frame in (1, 2, 3, 4, 5, 6)
    }
    theirs = SourceLine("ann/model.py", 12, "mlp")
    assert sources[3] == sources[4] == sources[5] == theirs
    assert sources[2] is None  # only a call of analyze
    assert sources[6] == SourceLine("flax/linen/linear.py", 300, "__call__")
    assert str(theirs) == "ann/model.py:12"
    assert sources[1] == SourceLine("ann/model.py", 90, "")


def test_the_form_of_jax_0_7() -> None:
    metadata = 'op_name="jit(f)/jit(main)/tanh" source_file="/home/ann/m.py" source_line=7'
    assert source_of(metadata, frames("")) == SourceLine("ann/m.py", 7)
    assert source_of('op_name="jit(f)/tanh"', frames("")) is None


@pytest.mark.parametrize(
    ("op_name", "scope", "step", "primitive"),
    [
        ("jit(step)/mlp/up/dot_general", "mlp.up", "forward", "dot_general"),
        ("jit(step)/jit(main)/mlp/jit(gelu)/mul", "mlp", "forward", "mul"),
        ("jit(step)/jvp(mlp)/up/dot_general", "mlp.up", "forward", "dot_general"),
        ("jit(step)/transpose(jvp(mlp))/up/dot_general", "mlp.up", "backward", "dot_general"),
        ("jit(s)/transpose(jvp())/while/body/closed_call/norm/mul", "norm", "backward", "mul"),
        (
            "jit(s)/transpose(jvp())/while/body/checkpoint/rematted_computation/norm/mul",
            "norm",
            "recomputed",
            "mul",
        ),
        ("jit(f)/attention/vmap(bh,hd->bd)/dot_general", "attention", "forward", "dot_general"),
        ("jit(f)/jit(block)/add", "block", "forward", "add"),
        ("jit(f)/cond/branch_1_fun/tanh", "", "forward", "tanh"),
        ("jit(f)/tanh;jit(f)/mul", "", "forward", "tanh"),
        ("ps['up']", "", "forward", "ps['up']"),
    ],
)
def test_scopes(op_name: str, scope: str, step: str, primitive: str) -> None:
    read = scope_of(op_name)
    assert (read.name, read.step, read.primitive) == (scope, step, primitive)


def test_roles_in_what_xla_printed() -> None:
    roles = {
        name: [row.role for row in xla.kernels(fixture(name)).rows]
        for name in ("attention.v6e.jax-0.10.2", "pallas.h100.jax-0.11.2", "softmax.cpu.jax-0.10.2")
    }
    assert roles == {
        "attention.v6e.jax-0.10.2": [
            "copy to VMEM of q",
            "copy to VMEM of v",
            "matmul bhqd,bhkd->bhqk with q, k",
            "Pallas kernel online-softmax on v",
        ],
        "pallas.h100.jax-0.11.2": ["Pallas kernel fused on x, y"],
        "softmax.cpu.jax-0.10.2": ["softmax on x"],
    }


# --- live -----------------------------------------------------------------------------------------


def _mlp(p: Any, x: Any) -> Any:
    import jax

    with jax.named_scope("mlp"):
        with jax.named_scope("up"):
            hidden = jax.nn.gelu(x @ p["up"])  # the line of the test
        with jax.named_scope("down"):
            return hidden @ p["down"]


def _step(p: Any, x: Any) -> Any:
    import jax

    return jax.grad(lambda p: (_mlp(p, x) ** 2).mean())(p)


LINE = next(
    number
    for number, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1)
    if line.endswith("# the line of the test")
)


@pytest.mark.parametrize("chip", [None, "v6e"])
def test_a_kernel_knows_its_line(chip: str | None) -> None:
    jax = pytest.importorskip("jax")
    if xla.can_compile(chip):
        pytest.skip(str(xla.can_compile(chip)))
    spec = jax.ShapeDtypeStruct((256, 512), "bfloat16")
    weights = {
        "up": jax.ShapeDtypeStruct((512, 1024), "bfloat16"),
        "down": jax.ShapeDtypeStruct((1024, 512), "bfloat16"),
    }
    report = xla.analyze(_step, weights, spec, chip=chip)
    products = [row for row in report.rows if row.flops.matrix]
    assert {row.scope for row in products} == {"mlp.up", "mlp.down"}
    (up,) = [row for row in products if row.scope == "mlp.up" and row.step == "forward"]
    assert up.source is not None
    assert Path(up.source.file).name == Path(__file__).name
    assert up.source.line == LINE
    if tuple(jax.__version_info__) >= (0, 8):
        assert up.source.function == "_mlp"
    assert up.role.startswith("matmul of mlp.up")
    assert {row.step for row in products} == {"forward", "backward"}
    assert f"{Path(__file__).name}:{LINE}" in str(report)
    assert xla.Report.from_json(report.to_json()) == report
