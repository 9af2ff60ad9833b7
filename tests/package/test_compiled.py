"""`analyze` against counts by hand, on every TPU generation whose compiler is here."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled_suite import CHIPS, MODELS, SUITE, Hand, sharded

from roofline_helpers import compiled, hlo
from roofline_helpers._checks import BadType, BadValue, UnknownName

jax = pytest.importorskip("jax", reason="JAX is not installed: nothing can be compiled")
jnp = jax.numpy

MISSING = {chip: compiled.can_compile(chip) for chip in CHIPS}
MIB = 2**20


def needs(chip: str) -> None:
    if MISSING[chip] is not None:
        pytest.skip(f"NOT TESTED for {chip}: {MISSING[chip]}")


@cache
def report_of(name: str, chip: str) -> compiled.Report:
    """Compile a kernel of the suite, once a session."""
    needs(chip)
    fn, args, options = (MODELS[name][0] if name in MODELS else SUITE[name].make)()
    return compiled.analyze(fn, *args, chip=chip, strict=True, **options)


def by_hand(name: str, chip: str) -> Hand:
    case = SUITE[name]
    return case.by_version.get((chip, jax.__version__), case.hand)(chip)


def spec(*shape: int, dtype: Any = "bfloat16") -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


# --- counts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", SUITE)
def test_counts_agree_with_the_hand(name: str, chip: str) -> None:
    report, hand = report_of(name, chip), by_hand(name, chip)
    assert report.read_bytes == pytest.approx(hand.read, rel=0.01)
    assert report.written_bytes == pytest.approx(hand.written, rel=0.01)
    for found, wanted in (
        (report.matrix_flops, hand.matrix),
        (report.vector_flops, hand.vector),
        (report.transcendentals, hand.transcendentals),
    ):
        if wanted is not None:
            assert found == pytest.approx(wanted, rel=0.01)
    assert bool(report.unknown) == hand.unknown


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", MODELS)
def test_whole_models_are_accounted_for(name: str, chip: str) -> None:
    report = report_of(name, chip)
    assert report.matrix_flops == pytest.approx(MODELS[name][1](chip, jax.__version__), rel=0.01)
    # the sum over kernels is the total, level by level
    sums: Counter[str] = Counter()
    for kernel in report.kernels:
        sums.update(kernel.traffic)
        assert kernel.traffic == {
            level: kernel.read.get(level, 0) + kernel.written.get(level, 0)
            for level in kernel.traffic
        }
    assert report.traffic == sums
    assert report.hbm_bytes == sums["hbm"] == report.read_bytes + report.written_bytes
    # each argument is read and each result is written; nothing exceeds XLA's own total, which
    # counts every memory and the copies between them
    fn, args, _ = MODELS[name][0]()
    into = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(args))
    out = sum(
        leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(fn, *args))
    )
    assert report.read_bytes >= into
    assert report.written_bytes >= out
    assert sum(report.traffic.values()) <= 1.01 * report.xla_bytes


@pytest.mark.parametrize("chip", CHIPS)
def test_without_copies_and_loops_xla_counts_the_same_bytes(chip: str) -> None:
    report = report_of("elementwise", chip)
    assert sum(report.traffic.values()) == pytest.approx(report.xla_bytes, rel=0.001)


@pytest.mark.parametrize("chip", CHIPS)
def test_loops_multiply(chip: str) -> None:
    one, ten, hundred = (report_of(f"scan-{n}", chip) for n in (1, 10, 100))
    assert ten.flops == pytest.approx(10 * one.flops)
    assert hundred.flops == pytest.approx(10 * ten.flops)
    assert ten.read_bytes == pytest.approx(10 * one.read_bytes, rel=0.05)
    if chip != "v7x":  # there the weights of 100 layers are rewritten first: see the suite
        assert hundred.hbm_bytes == pytest.approx(10 * ten.hbm_bytes, rel=0.05)
    # XLA's own totals count a loop's body once
    assert hundred.xla_flops == pytest.approx(ten.xla_flops, rel=0.2)
    assert any("counts 100 times" in note for note in hundred.notes)


@pytest.mark.parametrize("chip", CHIPS)
def test_vmem_copies_are_no_hbm_traffic(chip: str) -> None:
    report = report_of("matmul-square", chip)
    assert report.hbm_bytes == 3 * 2 * 1024**2
    assert report.xla_bytes > 1.5 * report.hbm_bytes


def test_products_name_the_type_that_they_run_in() -> None:
    types = {
        name: {t for row in report_of(name, "v6e").rows for t in row.matrix_types}
        for name in ("matmul-square", "matmul-fp32", "matmul-fp8", "matmul-int8")
    }
    assert types["matmul-square"] == {"bf16"}
    assert types["matmul-fp32"] == {"f32"}
    assert types["matmul-fp8"] == {"f8e4m3fn"}
    assert types["matmul-int8"] == {"s8"}


def test_reader_and_structured_access_see_the_same_program() -> None:
    needs("v6e")
    if not hasattr(jax.stages.Compiled, "runtime_executable"):
        pytest.skip("this JAX shows no HLO modules")
    fn, args, _ = SUITE["layernorm"].make()
    device = compiled._devices(compiled.hardware.chip("v6e"), 1, None)[0]
    placed = jax.sharding.SingleDeviceSharding(device)
    moved = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=placed) for a in args]
    program = jax.jit(fn).lower(*moved).compile()
    (module,) = program.runtime_executable().hlo_modules()
    read = hlo.parse(program.as_text())
    if not hasattr(module, "computations"):
        pytest.skip("this JAX shows no computations")
    shown = {c.name: c for c in module.computations()}
    assert set(read.computations) == set(shown)
    if not hasattr(next(iter(shown.values())), "instructions"):
        pytest.skip("this JAX shows no instructions")
    for name, computation in read.computations.items():
        theirs = {i.name: i for i in shown[name].instructions()}
        assert set(computation.by_name) == set(theirs)
        for each in computation.instructions:
            opcode = theirs[each.name].opcode
            opcode = opcode() if callable(opcode) else opcode
            theirs_plain = str(opcode).rsplit(".", 1)[-1].removeprefix("k").lower()
            assert theirs_plain.replace("_", "") == each.opcode.replace("-", "")


# --- times --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
def test_three_times_of_a_product(chip: str) -> None:
    report = report_of("matmul-square", chip)
    product = max(report.kernels, key=lambda kernel: kernel.matrix_flops)
    device = compiled.hardware.chip(chip).per_device()
    assert product.times["matrix"] == pytest.approx(2 * 1024**3 / float(device.peak("bf16")))
    assert report.time_at_roof == pytest.approx(
        max(product.roof_seconds, report.hbm_bytes / float(device.memory["hbm"].bandwidth))
    )
    assert product.cycle_seconds >= 0.95 * product.times["matrix"]
    assert product.xla_seconds is None  # two kernels: XLA's time is the program's
    assert report.xla_seconds > 0
    clock, how = report.clock
    assert 0.9e9 < clock < 2.5e9
    assert how.partition(":")[0] in ("vendor", "secondary", "derived")


@pytest.mark.parametrize("chip", ["v6e", "v7x"])
def test_clocks_are_derived_from_what_the_compiler_says(chip: str) -> None:
    needs(chip)
    x = spec(2048, 2048)
    report = compiled.analyze(jnp.matmul, x, x, chip=chip)
    (product,) = [kernel for kernel in report.kernels if kernel.matrix_flops]
    each = product.matrix_flops / product.row.cycles
    assert 2 * 2 * 256**2 < each < 2 * 4 * 256**2  # more than two 256² units, less than four


def test_a_program_of_one_kernel_has_xla_seconds() -> None:
    report = report_of("elementwise", "v6e")
    (kernel,) = report.kernels
    assert kernel.xla_seconds == report.xla_seconds
    assert (kernel.limit, report.bound) == ("hbm", "memory")
    assert kernel.intensity == pytest.approx(0.75, rel=0.001)


def test_precision_costs_passes() -> None:
    needs("v6e")
    x = spec(256, 256, dtype="float32")
    chip = compiled.hardware.chip("v6e")

    def seconds(precision: str | None) -> float:
        report = compiled.analyze(
            lambda a, b: jnp.matmul(a, b, precision=precision), x, x, chip=chip
        )
        return max(kernel.times.get("matrix", 0) for kernel in report.kernels)

    assert seconds("highest") == pytest.approx(6 * seconds(None))


def test_a_large_product_fetches_operands_again() -> None:
    needs("v5e")
    x = spec(8192, 8192)
    report = compiled.analyze(jnp.matmul, x, x, chip="v5e")
    assert report.hbm_bytes == 3 * 2 * 8192**2
    assert 2 * report.hbm_bytes < report.tiled_bytes < 16 * report.hbm_bytes


# --- what can be analysed -----------------------------------------------------------------------


def test_every_kind_of_function_and_argument() -> None:
    needs("v6e")
    n = 256
    x = jnp.ones((n, n), jnp.bfloat16)
    wanted = compiled.analyze(lambda a: a * 2 + 1, spec(n, n), chip="v6e")
    assert (wanted.vector_flops, wanted.hbm_bytes) == (2 * n * n, 4 * n * n)

    def named(a: Any, *, mode: str) -> Any:
        return a * 2 + 1 if mode == "double" else a

    def positional(a: Any, mode: str) -> Any:
        return a * 2 + 1 if mode == "double" else a

    factor = jnp.asarray(2, jnp.bfloat16)
    variants = [
        (lambda a: a * 2 + 1, (x,), {}),
        (jax.jit(lambda a: a * 2 + 1), (x,), {}),
        (lambda a: a * factor + 1, (spec(n, n),), {}),
        (lambda tree: tree["a"][0] * 2 + 1, ({"a": [spec(n, n)]},), {}),
        (lambda a, b: a * b + 1, (spec(n, n), 2.0), {}),
        (positional, (spec(n, n), "double"), {"static_argnums": 1}),
        (jax.jit(positional, static_argnums=1), (spec(n, n), "double"), {}),
        (jax.jit(lambda a, k: a * int(k) + 1, static_argnums=1), (x, np.int64(2)), {}),
        (lambda a, *, k: a * int(k) + 1, (x,), {"k": np.int64(2), "static_argnames": "k"}),
        (lambda a, k: a * k.astype(a.dtype) + 1, (x, np.float32(2)), {}),
        (jax.jit(lambda a, k: a * k.astype(a.dtype) + 1), (x, np.float32(2)), {}),
        (named, (spec(n, n),), {"mode": "double", "static_argnames": "mode"}),
        (jax.jit(jax.vmap(lambda a: a * 2 + 1)), (spec(n, n),), {}),
    ]
    for fn, args, options in variants:
        report = compiled.analyze(fn, *args, chip="v6e", **options)
        assert (report.vector_flops, report.hbm_bytes) == (2 * n * n, 4 * n * n)
        assert report.bound == "memory"


def test_numpy_arrays_have_the_type_that_jax_gives_them() -> None:
    needs("v6e")
    report = compiled.analyze(lambda a: a * 2, np.ones((256, 256)), chip="v6e")
    assert report.arguments == ("f32[256,256]",)
    assert report.hbm_bytes == 2 * 4 * 256**2


def test_a_function_without_arrays_is_compiled_for_the_chip() -> None:
    needs("v6e")
    for fn in (lambda: jnp.ones((1024, 1024)) * 2, jax.jit(lambda: jnp.ones((1024, 1024)) * 2)):
        report = compiled.analyze(fn, chip="v6e")
        assert report.written_bytes == 4 * 1024**2


def test_donation_saves_the_copy() -> None:
    donated, copied = (report_of(n, "v6e") for n in ("cache-append", "cache-append-copied"))
    assert copied.hbm_bytes - donated.hbm_bytes == 2 * 2 * 32768 * 1024


def test_a_mesh_gives_one_device_and_its_collectives() -> None:
    report = report_of("sharded-matmul", "v6e")
    assert report.devices == 4
    (exchange,) = report.collectives
    assert (exchange.kind, exchange.axis, exchange.group_size) == ("all-reduce", "model", 2)
    assert exchange.bytes_in == 2 * 2048**2
    assert report.traffic["network"] == exchange.link_bytes == exchange.bytes_in
    assert report.bound in ("network", "compute")
    assert "along model" in str(report)


def test_a_mesh_of_real_devices_moves_to_the_chip() -> None:
    needs("v6e")
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices("cpu")[:1]), ("data",))
    x = jax.ShapeDtypeStruct(
        (512, 512), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data"))
    )
    report = compiled.analyze(lambda a: a * 2, x, chip="v6e")
    assert (report.devices, report.hbm_bytes) == (1, 2 * 4 * 512**2)


def test_a_mesh_of_devices_that_are_here_is_counted() -> None:
    program = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from roofline_helpers import compiled
mesh = jax.make_mesh((2, 2), ("data", "model"))
x = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, PartitionSpec("data", "model")))
report = compiled.analyze(lambda a: a.sum(1), x)
print(report.devices, [each.axis for each in report.collectives])
print(compiled.analyze(lambda a: a.sum(1), jnp.ones((8, 8))).devices)
"""
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=flags, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["4 ['model']", "1"]


def test_whole_pods_compile() -> None:
    needs("v5p")
    report = compiled.analyze(lambda a: a * 2, spec(1024, 1024), chip="v5p", topology="4x4x4")
    assert report.hbm_bytes == 2 * 2 * 1024**2


def test_the_device_that_is_here() -> None:
    report = compiled.analyze(lambda a: a @ a, spec(256, 256, dtype="float32"))
    assert report.matrix_flops == 2 * 256**3
    if report.platform == "cpu":
        assert (report.chip, report.time_at_roof, report.bound) == (None, None, None)
        assert any("CPU" in note for note in report.notes)
        assert "compiled for cpu" in str(report)
        with pytest.raises(compiled.NoCompiler, match="not in the chip table"):
            report.roofline()
        with pytest.raises(compiled.NoCompiler, match="not in the chip table"):
            report.plot()


# --- errors -------------------------------------------------------------------------------------


def test_an_unknown_chip() -> None:
    with pytest.raises(UnknownName, match="'v7x'"):
        compiled.analyze(jnp.sin, spec(8), chip="v6x")


def test_a_chip_without_a_compiler_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(compiled.NoCompiler, match="only where there is one"):
        compiled.analyze(jnp.sin, spec(8), chip="h100")
    find = compiled.importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr(compiled.sys, "platform", "linux")
        patch.setattr(compiled.host, "machine", lambda: "x86_64")
        patch.setattr(
            compiled.importlib.util, "find_spec", lambda n: None if n == "libtpu" else find(n)
        )
        with pytest.raises(compiled.NoCompiler, match=r"pip install 'jax\[tpu\]'"):
            compiled.analyze(jnp.sin, spec(8), chip="v6e")
        with pytest.raises(compiled.NoCompiler, match="no record 'nothing-of-the-kind'"):
            compiled.analyze(jnp.sin, spec(8), chip="v6e", record="nothing-of-the-kind")
        for path in list(compiled._records().iterdir())[:1]:
            name, chip, _ = path.name.rsplit(".", 2)
            with pytest.raises(compiled.NoCompiler, match=f"Records for TPU .*{name}"):
                compiled.analyze(jnp.sin, spec(8), chip=chip)
    with monkeypatch.context() as patch:
        patch.setattr(compiled.sys, "platform", "darwin")
        patch.setattr(compiled.host, "machine", lambda: "arm64")
        with pytest.raises(
            compiled.NoCompiler, match="Linux on x86-64 only, this is darwin on arm"
        ):
            compiled.analyze(jnp.sin, spec(8), chip="v6e")


def test_no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    find = compiled.importlib.util.find_spec
    monkeypatch.setattr(
        compiled.importlib.util, "find_spec", lambda n: None if n == "jax" else find(n)
    )
    assert "JAX is not installed" in compiled.can_compile("v6e")


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (lambda a, b: a @ b, ((3, 4), (5, 6)), r"bf16\[3,4\], bf16\[5,6\].*contracting"),
        (lambda a, b: a @ b, ((3, 4),), "missing 1 required positional argument"),
        (lambda a: 1 if a.sum() > 0 else 2, ((3, 4),), "TracerBoolConversionError"),
        (lambda a: a.no_such_thing, ((3, 4),), "no_such_thing"),
    ],
)
def test_functions_that_do_not_trace(fn: Any, args: Any, message: str) -> None:
    with pytest.raises(compiled.CannotTrace, match=message):
        compiled.analyze(fn, *(spec(*shape) for shape in args))
    with pytest.raises(compiled.CannotTrace, match=r"take these arguments: .*sorting"):
        compiled.analyze(jnp.sin, {1: spec(8), "a": spec(8)})


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
    for option, given, error in (
        ("unknown_trips", -1, BadValue),
        ("unknown_trips", 0, BadValue),
        ("unknown_trips", 2.5, BadValue),
        ("unknown_trips", "2", BadType),
        ("name", 3, BadType),
        ("record", 3, BadType),
        ("topology", 3, BadType),
        ("strict", "yes", BadType),
    ):
        with pytest.raises(error, match=rf"^{option} must be .*, got {given!r} "):
            compiled.analyze(jnp.sin, spec(8), **{option: given})
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


@pytest.mark.parametrize("concrete", [True, False])
def test_a_shard_map_whose_mesh_does_not_fit_is_told_what_to_do(concrete: bool) -> None:
    needs("v6e")
    if not hasattr(jax, "shard_map"):
        pytest.skip("NOT TESTED: this JAX has no jax.shard_map")
    spread = jax.sharding.PartitionSpec("data")
    mesh = compiled_suite_mesh(2)
    if concrete:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    fn = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=spread, out_specs=spread)
    error = compiled.CannotTrace if concrete else compiled.CannotCompile
    with pytest.raises(error, match=r"Give jax.shard_map an AbstractMesh, and arguments"):
        compiled.analyze(fn, spec(8), chip="v6e")


def test_bad_layouts_and_meshes() -> None:
    needs("v6e")
    with pytest.raises(compiled.NoCompiler, match="no topology v6e:3x5"):
        compiled.analyze(jnp.sin, spec(8), chip="v6e", topology="3x5")
    with pytest.raises(BadValue, match="no layout of TPU v6e with 100000 devices"):
        compiled._devices(compiled.hardware.chip("v6e"), 100000, None)
    other = jax.sharding.NamedSharding(compiled_suite_mesh(4), jax.sharding.PartitionSpec("data"))
    mixed = jax.ShapeDtypeStruct((8, 8), jnp.bfloat16, sharding=other)
    with pytest.raises(BadValue, match="different meshes"):
        compiled.analyze(lambda a, b: a + b, sharded((8, 8)), mixed, chip="v6e")


def compiled_suite_mesh(n: int) -> Any:
    from compiled_suite import mesh

    return mesh(n)


def test_an_unknown_instruction_is_strict_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("v6e")
    monkeypatch.setattr(hlo, "TRANSCENDENTAL", hlo.TRANSCENDENTAL - {"tanh"})
    with pytest.raises(hlo.UnknownInstruction, match="tanh"):
        compiled.analyze(jnp.tanh, spec(64, 128), chip="v6e", strict=True)
    report = compiled.analyze(jnp.tanh, spec(64, 128), chip="v6e")
    assert report.unknown
    assert report.hbm_bytes == 2 * 2 * 64 * 128
    assert "'tanh' is unknown" in " ".join(report.notes)
    assert "at least" in str(report)


# --- text, tables, pictures, records ------------------------------------------------------------


def test_text_and_table() -> None:
    report = report_of("layernorm", "v6e")
    text = str(report)
    assert text.startswith(
        "_layernorm(bf16[4096,4096], bf16[4096], bf16[4096]) compiled for TPU v6e"
    )
    for part in ("HBM", "bound by memory", "compiler's cycles", "clock", "cost_analysis"):
        assert part in text
    frame = report.table()
    assert len(frame) == len(report.kernels)
    assert frame["read MB"].sum() == pytest.approx(report.read_bytes / 1e6)
    page = report._repr_html_()
    assert page.count("<table") == 2
    assert "&lt;" not in page.replace("&lt;lambda", "")
    assert "None" not in text + page


def test_unknown_flops_are_unknown() -> None:
    report = report_of("pallas", "v6e")
    (kernel,) = report.kernels
    assert (kernel.flops, kernel.intensity) == (None, None)
    assert report.unknown == (kernel.name,)
    assert "unknown" in str(report)
    assert "at least" in str(report)


def test_the_picture() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    import matplotlib

    matplotlib.use("Agg")
    for name in ("layernorm", "matmul-square", "mlp-step"):
        report = report_of(name, "v6e")
        axes = report.plot()
        (dots,) = [c for c in axes.collections if c.get_gid() == "kernels"]
        drawn = [k for k in report.kernels if k.flops and k.hbm_bytes]
        assert len(dots.get_offsets()) == len(drawn)
        (low, high), roof = axes.get_xlim(), report.roofline()
        for x, y in dots.get_offsets():
            assert low < x < high
            assert y <= roof.attainable(x) * 1.001
        plt.close(axes.figure)


def test_nothing_to_draw() -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(BadValue, match="no kernel"):
        report_of("pallas", "v6e").plot()


@pytest.mark.parametrize("name", ["layernorm", "sharded-matmul", "scan-100", "attention", "pallas"])
def test_a_record_says_the_same(name: str) -> None:
    report = report_of(name, "v6e")
    again = compiled.Report.from_json(report.to_json())
    assert again == report
    assert (str(again), again._repr_html_()) == (str(report), report._repr_html_())
    assert (report.origin, again.origin) == ("compiled", "record")
    assert again.to_json() == report.to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: "no json", "JSON"),
        (lambda data: json.dumps([1]), "schema"),
        (lambda data: json.dumps({**data, "schema": "other/7"}), "'other/7'"),
        (lambda data: json.dumps({k: v for k, v in data.items() if k != "rows"}), "lacks 'rows'"),
        (lambda data: json.dumps({**data, "notes": "one"}), "'notes'.*must be"),
        (lambda data: json.dumps({**data, "rows": [{"name": "a"}]}), "row of the record"),
        (
            lambda data: json.dumps({**data, "rows": [{**data["rows"][0], "colour": 1}]}),
            "row of the record",
        ),
    ],
)
def test_records_that_can_not_be_read(change: Any, message: str) -> None:
    data = json.loads(report_of("elementwise", "v6e").to_json())
    with pytest.raises(compiled.BadRecord, match=message):
        compiled.Report.from_json(change(data))


def test_a_record_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with compiled.recording(tmp_path):
        compiled.analyze(jnp.tanh, spec(8), record="tanh")
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with compiled.recording(tmp_path), pytest.raises(OSError, match="No space left"):
        compiled.analyze(jnp.sin, spec(8), record="tanh")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [before]
    monkeypatch.setattr(compiled, "_compile", lambda *_: pytest.fail("it compiled"))
    monkeypatch.setenv(compiled.RECORD_TO, str(tmp_path / "nowhere"))
    with pytest.raises(BadValue, match="ROOFLINE_RECORD_TO must name a folder that is there"):
        compiled.analyze(jnp.tanh, spec(8), record="tanh")


def test_a_record_takes_the_compilers_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("v6e")
    x = spec(256, 256)
    with compiled.recording(tmp_path):
        live = compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh")
    assert [path.name for path in tmp_path.iterdir()] == ["tanh.v6e.json"]
    monkeypatch.setattr(compiled, "_records", lambda: tmp_path)
    assert list(compiled.records()) == [("tanh", "v6e")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh").origin == "compiled"
        asked = compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh", use="record")
    assert (asked, asked.origin) == (live, "record")
    monkeypatch.setattr(compiled, "can_compile", lambda chip: "no compiler here")
    with pytest.warns(compiled.RecordUsed, match="record 'tanh' for TPU v6e.*no compiler here"):
        shown = compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh")
    assert (str(shown), shown.origin) == (str(live), "record")
    with pytest.raises(compiled.NoCompiler, match=r"no compiler here$"):
        compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh", use="compiler")


def test_committed_records_are_what_the_compiler_says_now() -> None:
    """Rebuilding is the chapters' business: here, that each can be read and shown."""
    for (name, chip), report in compiled.records().items():
        assert (report.origin, report.target) == ("record", chip), name
        assert str(report)


# --- quiet --------------------------------------------------------------------------------------

QUIET = textwrap.dedent(
    """
    import os
    import jax  # which sets variables of its own
    before = dict(os.environ)
    from roofline_helpers import compiled
    x = jax.ShapeDtypeStruct((256, 256), "float32")
    for chip in ("v6e", "v5p"):
        print(compiled.analyze(jax.numpy.tanh, x, chip=chip).hbm_bytes)
    after = dict(os.environ)
    assert before == after, {k for k in {*before, *after} if before.get(k) != after.get(k)}
    """
)


@pytest.mark.parametrize("platforms", ["cpu", None])
def test_two_processes_at_once_and_no_noise(platforms: str | None) -> None:
    needs("v6e")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "ALLOW_"))}
    environment.pop("JAX_PLATFORMS", None)
    if platforms:
        environment["JAX_PLATFORMS"] = platforms
    both = [
        subprocess.Popen(
            [sys.executable, "-c", QUIET],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    for each in both:
        out, noise = each.communicate(timeout=240)
        assert (each.returncode, out, noise) == (0, "524288\n524288\n", ""), noise


def test_python_warnings_of_the_function_are_heard() -> None:
    def warns(x: Any) -> Any:
        warnings.warn("mind the gap", stacklevel=1)
        return x * 2

    with pytest.warns(UserWarning, match="mind the gap"):
        compiled.analyze(warns, spec(8, 128, dtype="float32"))


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from roofline_helpers import compiled, hlo; "
        "print([m for m in ('jax', 'matplotlib', 'pandas', 'seaborn') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# --- the peer -----------------------------------------------------------------------------------


def test_what_jax_experimental_roofline_counts() -> None:
    """The peer counts from the traced function: no compiler, so perfect fusion, and loops once."""
    pytest.importorskip("absl", reason="jax.experimental.roofline needs absl-py")
    try:
        from jax.experimental import roofline
    except ImportError:
        pytest.skip("this JAX has no jax.experimental.roofline")

    def peer(name: str) -> Any:
        fn, args, _ = SUITE[name].make()
        return roofline.roofline(fn)(*args)[1]

    square = peer("matmul-square")
    assert square.flops == 2 * 1024**3
    one, ten = peer("scan-1"), peer("scan-10")
    assert ten.flops < 2 * one.flops  # a loop's body counts once
    with pytest.raises((NotImplementedError, TypeError)):
        peer("pallas")
