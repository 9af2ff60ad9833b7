"""What `analyze` refuses, and in which words."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from compiled_reports import jax, needs, spec

from roofline_helpers import compiled, hlo
from roofline_helpers._checks import BadType, BadValue, UnknownName
from roofline_helpers.compiled import stand_ins, targets

jnp = jax.numpy


def test_an_unknown_chip() -> None:
    with pytest.raises(UnknownName, match="'v7x'"):
        compiled.analyze(jnp.sin, spec(8), chip="v6x")


def test_a_chip_without_a_compiler_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(compiled.NoCompiler, match="only where there is one"):
        compiled.analyze(jnp.sin, spec(8), chip="h100")
    find = targets.importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr(targets.sys, "platform", "linux")
        patch.setattr(targets.host, "machine", lambda: "x86_64")
        patch.setattr(
            targets.importlib.util, "find_spec", lambda n: None if n == "libtpu" else find(n)
        )
        with pytest.raises(compiled.NoCompiler, match=r"pip install 'jax\[tpu\]'"):
            compiled.analyze(jnp.sin, spec(8), chip="v6e")
        with pytest.raises(compiled.NoCompiler, match="no record 'nothing-of-the-kind'"):
            compiled.analyze(jnp.sin, spec(8), chip="v6e", record="nothing-of-the-kind")
        for path in list(stand_ins.folder().iterdir())[:1]:
            name, chip, _ = path.name.rsplit(".", 2)
            with pytest.raises(compiled.NoCompiler, match=f"Records for TPU .*{name}"):
                compiled.analyze(jnp.sin, spec(8), chip=chip)
    with monkeypatch.context() as patch:
        patch.setattr(targets.sys, "platform", "darwin")
        patch.setattr(targets.host, "machine", lambda: "arm64")
        with pytest.raises(
            compiled.NoCompiler, match="Linux on x86-64 only, this is darwin on arm"
        ):
            compiled.analyze(jnp.sin, spec(8), chip="v6e")


def test_no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    find = targets.importlib.util.find_spec
    monkeypatch.setattr(
        targets.importlib.util, "find_spec", lambda n: None if n == "jax" else find(n)
    )
    assert "JAX is not installed" in compiled.can_compile("v6e")


def test_functions_that_do_not_trace() -> None:
    x = spec(3, 4)
    for fn, args, message in (
        (lambda a, b: a @ b, (x, spec(5, 6)), r"bf16\[3,4\], bf16\[5,6\].*contracting"),
        (lambda a, b: a @ b, (x,), "missing 1 required positional argument"),
        (lambda a: 1 if a.sum() > 0 else 2, (x,), "TracerBoolConversionError"),
        (lambda a: a.no_such_thing, (x,), "no_such_thing"),
        (lambda a: a, ({1: x, "a": x},), r"take these arguments: .*sorting"),
    ):
        with pytest.raises(compiled.CannotTrace, match=message):
            compiled.analyze(fn, *args)


def test_programs_that_the_compiler_refuses() -> None:
    needs("v6e")
    with pytest.raises(compiled.CannotCompile, match=r"TPU v6e refused.*memory"):
        compiled.analyze(lambda a: a * 2, spec(2**34), chip="v6e")


def test_bad_options() -> None:
    with pytest.raises(BadType, match="must be callable"):
        compiled.analyze(3, chip="v6e")
    with pytest.raises(UnknownName, match="auto, compiler, record"):
        compiled.analyze(jnp.sin, spec(8), use="live")
    with pytest.raises(BadValue, match="a record's name"):
        compiled.analyze(jnp.sin, spec(8), record="../x")
    for option, value, error in (
        ("unknown_trips", -1, BadValue),
        ("unknown_trips", 0, BadValue),
        ("unknown_trips", 2.5, BadValue),
        ("unknown_trips", "2", BadType),
        ("name", 3, BadType),
        ("record", 3, BadType),
        ("topology", 3, BadType),
        ("strict", "yes", BadType),
    ):
        with pytest.raises(error, match=rf"^{option} must be .*, got {value!r} "):
            compiled.analyze(jnp.sin, spec(8), **{option: value})
    with pytest.raises(BadType, match="jitted already: give static_argnums"):
        compiled.analyze(jax.jit(jnp.sin), spec(8), static_argnums=1)


def test_options_that_the_function_takes_too() -> None:
    def scaled(x: Any, *, name: str = "once", chip: Any = None) -> Any:
        return x + x if name == "twice" else x * 3

    jitted = jax.jit(scaled, static_argnames="name")
    for fn in (scaled, jitted, functools.partial(scaled, chip=None)):
        with pytest.raises(BadType, match=r"name='twice' \(str\) is an option of analyze, and the"):
            compiled.analyze(fn, spec(8), name="twice")
    with pytest.raises(BadType, match=r"chip='v6e' .*functools\.partial\(fn, chip=\.\.\.\)"):
        compiled.analyze(scaled, spec(8), chip="v6e")
    bound = functools.partial(scaled, name="twice")
    for fn, args in (
        (bound, (spec(8),)),
        (jax.jit(bound), (spec(8),)),
        (lambda x, **name: x + x, (spec(8),)),
        (lambda x, name: x + name, (spec(8), spec(8))),
        (jnp.sin, (spec(8),)),
    ):
        assert compiled.analyze(fn, *args, name="mine").name == "mine"


def test_an_unknown_instruction_is_strict_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("v6e")
    monkeypatch.setattr(hlo.flops, "TRANSCENDENTAL", hlo.TRANSCENDENTAL - {"tanh"})
    with pytest.raises(hlo.UnknownInstruction, match="tanh"):
        compiled.analyze(jnp.tanh, spec(64, 128), chip="v6e", strict=True)
    report = compiled.analyze(jnp.tanh, spec(64, 128), chip="v6e")
    assert report.unknown
    assert report.hbm_bytes == 2 * 2 * 64 * 128
    assert "'tanh' is unknown" in " ".join(report.notes)
    assert "at least" in str(report)
