"""`explain` on this machine: rows, roofs, donation, errors, what it shows and keeps."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import roofline
import roofline_helpers as rh
from roofline.measure import CannotRun
from roofline_helpers.common.checks import BadType, BadValue

ROOF = rh.Roofline(peak=2e11, levels=2e10, vector=2e10, name="a round figure")
QUICK = {"seconds": 0.1, "ceilings": ROOF, "progress": False}


def layer(x, up, down):
    with jax.named_scope("mlp"):
        return x + jax.nn.gelu(x @ up) @ down


def test_flops_bytes_and_lines_are_the_compiled_programs():
    x = jnp.ones((256, 256))
    up = jnp.ones((256, 1024))
    down = jnp.ones((1024, 256))
    work = [rh.work.matmul(256, 1024, 256, "fp32"), rh.work.matmul(256, 256, 1024, "fp32")]
    why = roofline.explain(layer, x, up, down, work=work, **QUICK)
    kernels = [row for row in why.rows if row.kind == "kernel"]
    assert sum(row.matrix_flops for row in kernels) == 2 * 2 * 256 * 256 * 1024
    assert all(row.launches == 1 for row in kernels if row.kernel.matrix_types)
    lines = {row.source.rpartition(":")[0] for row in kernels if row.source}
    assert all(line.endswith("test_diagnosis.py") for line in lines)
    assert "mlp" in {row.kernel.scope for row in kernels}
    assert why.hand == pytest.approx(2 * 2 * 256 * 256 * 1024 / 2e11, rel=1e-9)


def test_one_page_without_network(decode_step, tmp_path):
    page = decode_step.save(tmp_path / "why.html").read_text("utf-8")
    assert page.count('<svg class="roofline"') == 1
    assert not re.search(r'src=|href="(?!#)|@import|url\((?!#)|https?://(?!www\.w3\.org)', page)
    undated = replace(decode_step, date="").save(tmp_path / "undated.html").read_text("utf-8")
    assert '<p class="made">python' in undated
    with pytest.raises(BadValue, match=r"\.html, \.md or \.json"):
        decode_step.save(tmp_path / "why.txt")


def test_names_are_escaped(decode_step):
    hostile = replace(decode_step, name="<script>alert(1)</script>", notes=("<b>",))
    assert "<script>alert" not in hostile._repr_html_()
    assert "<b>" not in hostile._repr_html_()


def test_a_record_is_the_same_again(decode_step, tmp_path):
    file = decode_step.save(tmp_path / "why.json")
    assert roofline.diagnosis.load_explanation(file) == decode_step


# --- bad calls ------------------------------------------------------------------------------------


def test_ordered_effects_run_also_with_donated_arguments():
    seen = []

    def printed(x):
        jax.debug.callback(seen.append, x.sum(), ordered=True)
        return x * 2

    x = jnp.ones((64, 64))
    for donated, grows in (({}, 1), ({"donate_argnums": 0}, 2)):  # the result takes its place
        seen.clear()
        assert roofline.explain(printed, x, **donated, **QUICK).wall > 0
        assert list(map(float, seen[:2])) == [64 * 64, 64 * 64 * grows]
    executable = jax.jit(printed).lower(x).compile()
    assert roofline.explain(executable, x, **QUICK).wall > 0
    assert roofline.analyze(executable).host_bytes == roofline.analyze(printed, x).host_bytes > 0


def test_what_fails_where_it_runs():
    def fails(x):
        def broken(y):
            raise RuntimeError("no such file: data.bin")

        return jax.pure_callback(broken, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(CannotRun, match=r"\bfails\b"):
        roofline.explain(fails, jnp.ones(4), **QUICK)
    with pytest.raises(CannotRun, match="deliberately"):
        roofline.explain(_raises, jnp.ones(4), jit=False, **QUICK)
    with pytest.raises(CannotRun, match=r"called with bfloat16\[3\]"):  # JAX's second line
        roofline.explain(
            jax.jit(jnp.sin).lower(jnp.ones(3)).compile(), jnp.ones(3, "bfloat16"), **QUICK
        )
    gone = jnp.ones(3)
    gone.delete()
    for donated in ({}, {"donate_argnums": 0}):
        with pytest.raises(BadValue, match=r"argument 0 \(f32\[3\]\)"):
            roofline.explain(jnp.sin, gone, **donated, **QUICK)
    with pytest.raises(BadType):
        roofline.explain(jnp.sin, jax.ShapeDtypeStruct((3,), "float32"), **QUICK)


def _raises(x):
    raise ValueError("deliberately")


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"seconds": 0}, BadValue, "seconds"),
        ({"queue": 1.5}, BadValue, "queue"),
        ({"work": 3}, BadType, "work"),
        ({"ceilings": "h100"}, BadType, "a Roofline or a Record, got 'h100'"),
        ({"donate_argnums": 0, "jit": False}, BadType, "donate_argnums"),
        ({"chip": "v6e"}, BadType, "ceilings=.*leave chip= out"),
    ],
)
def test_options_outside_what_is_allowed(options, error, reason):
    with pytest.raises(error, match=reason):
        roofline.explain(jnp.sin, jnp.ones(3), **{**QUICK, **options})
