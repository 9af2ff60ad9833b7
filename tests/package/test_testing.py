"""The pytest plugin: limits, baselines, what a failure says, and that it costs nothing unused."""

import hashlib
import math
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from kept_records import kept_report

from roofline import xla
from roofline.testing import budget
from roofline.testing.budget import Budget, Limit
from roofline.xla import records
from roofline.xla.compiler import MemoryStats
from roofline_helpers.common.checks import BadValue
from roofline_helpers.common.show import si

REPORT = kept_report("chain-xla", "v6e")
PLUGIN = "roofline.testing.plugin"


def doubled(report):
    rows = tuple(replace(row, launches=2 * row.launches) for row in report.rows)
    return replace(report, rows=rows)


@pytest.fixture
def compiled(monkeypatch):
    """Let the fixture take these reports for what is compiled, one after another."""
    reports = []

    def analyze(*_, **__):
        report = reports.pop(0)
        if isinstance(report, Exception):
            raise report
        assert isinstance(report, xla.Report)
        return report

    monkeypatch.setattr(budget, "analyze", analyze)
    monkeypatch.setattr(budget, "can_compile", lambda _: None)
    return reports


def budget_in(path, **options):
    return Budget(path / "test_a.py", "test_a", "pytest --roofline-update 'test_a'", **options)


def step(x, y=None):
    return x, y


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "text", "value"),
    [
        ("hbm_bytes", "<= 1.2 GB", 1.2e9),
        ("memory", "< 2 GiB", 2.0**31),
        ("seconds", "<= 0.45 ms", 450e-6),
        ("exposed", "<= 5%", 0.05),
        ("kernels", "== 7", 7),
        ("hbm_bytes", 3e6, 3e6),
        *(("memory", f">= 3 {p}B", 3 * n) for p, n in {"": 1, "k": 1e3, "K": 1e3}.items()),
        *(("memory", f"< 3 {p}B", 3 * 10**n) for p, n in {"M": 6, "T": 12, "P": 15}.items()),
        *(("memory", f"< 3 {p}iB", 3 * 2**n) for p, n in {"K": 10, "M": 20, "T": 40}.items()),
        *(("flops", f"<= 3 {p}FLOP", 3 * 10**n) for p, n in {"k": 3, "G": 9, "P": 15}.items()),
        *(("seconds", f"<= 3 {u}", 3e-6) for u in ("µs", "μs", "us")),
        *(("seconds", f"> 3{u}", 3 * n) for u, n in {"s": 1, "ns": 1e-9}.items()),
        ("exposed", "<= 0.05", 0.05),
        *(("kernels", f"<= {n}", 2500) for n in ("2_500", "2,500", "2.5e3", "2.5k")),
        ("kernels", "< 0.25 M", 250e3),
    ],
)
def test_a_limit_is_read(metric, text, value):
    assert Limit.parse(metric, text).value == pytest.approx(value, rel=1e-12)


def test_each_sign_holds_on_its_own_side():
    n = len(REPORT.kernels)
    limits = [f"{sign} {m}" for sign in ("<", "<=", "==", ">=", ">") for m in (n - 1, n, n + 1)]
    held = [limit for limit in limits if Limit.parse("kernels", limit).broken(REPORT) is None]
    assert held == [f"< {n + 1}", f"<= {n}", f"<= {n + 1}", f"== {n}", f">= {n - 1}"] + [
        *(f">= {n}", f"> {n - 1}")
    ]
    assert Limit.parse("kernels", n - 1).broken(REPORT) == f"kernels <= {n - 1}: it is {n}"
    written = [Limit.parse(*given).text for given in (("hbm_bytes", 3e6), ("exposed", 0.125))]
    assert written == ["<= 3 MB", "<= 12.5%"]


def test_a_program_fits_into_as_much_as_its_device_has():
    room = int(REPORT.chip.memory["hbm"].capacity.value)
    held = replace(REPORT, memory=MemoryStats(arguments=room))
    assert budget.memory_over(held) is None
    more = replace(REPORT, memory=MemoryStats(arguments=room + 10**9))
    assert budget.memory_over(more) == f"fits: it needs {si(room + 1e9, 'B')} of {si(room, 'B')}"
    assert "not known" in budget.memory_over(replace(REPORT, memory=None))
    assert (
        Limit.parse("memory", room)
        .broken(replace(REPORT, memory=None))
        .endswith("not known of this program")
    )


def test_two_names_never_share_a_baseline():
    names = {"test_a": "test_a", "A::test_a[1,b=c]": "A.test_a[1,b=c]", "x" * 100: "x" * 100}
    for name in ("x" * 101, "a b", "a/b", "a_b"):
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        names[name] = f"{re.sub('[ /]', '_', name)[:100]}-{digest}" if name != "a_b" else "a_b"
    paths = {name: budget.baseline_path(Path("t/test_m.py"), name) for name in names}
    assert {k: path.as_posix() for k, path in paths.items()} == {
        k: f"t/.roofline/test_m/{name}.json" for k, name in names.items()
    }
    assert budget.baseline_path(Path("test_m.py"), "test_a", "wide").name == "test_a.wide.json"


@pytest.mark.parametrize("wrong", ["1.2 GB", "<= 1.2", "<= 3 ms"])
def test_a_wrong_limit_says_how_one_is_written(wrong):
    with pytest.raises(BadValue, match=f"hbm_bytes.*got.*{wrong}"):
        Limit.parse("hbm_bytes", wrong)


# --- limits and baselines of a test ---------------------------------------------------------------


def test_limits_need_no_baseline(tmp_path, compiled):
    compiled += [REPORT, REPORT]
    roofline = budget_in(tmp_path)
    assert roofline(step, 1, chip="v6e", hbm_bytes=REPORT.hbm_bytes, kernels=">= 1") is REPORT
    with pytest.raises(pytest.fail.Exception, match="hbm_bytes") as failed:
        roofline(step, 1, chip="v6e", hbm_bytes="<= 1 B", flops="<= 1 FLOP")
    lines = str(failed.value).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["hbm_bytes", "flops"]
    with pytest.raises(pytest.fail.Exception, match=r"'hbm'.*'hbm_bytes'"):
        roofline(step, 1, chip="v6e", hbm="<= 1 B")
    assert list(tmp_path.iterdir()) == []


def test_a_limit_holds_only_at_both_ends_of_what_is_known(tmp_path, compiled):
    row = max(REPORT.rows, key=lambda row: row.bytes)
    rest = REPORT.hbm_bytes - row.bytes * row.launches
    most = rest + 2 * row.bytes * row.launches
    ranged, endless = (
        replace(REPORT, rows=tuple(replace(r, **more) if r is row else r for r in REPORT.rows))
        for more in ({"most_bytes": 2 * row.bytes}, {"at_least": "data decide its trip counts"})
    )
    for report, limit, words in (
        (ranged, f"<= {most} B", None),
        (ranged, f"<= {most - 1} B", r"to .*; whether that is within the limit isn't known"),
        (ranged, f"<= {REPORT.hbm_bytes - 1} B", r"to \S+ \S+$"),
        (endless, "<= 1 PB", "at least .* data decide its trip counts; whether"),
        (endless, f">= {REPORT.hbm_bytes} B", None),
    ):
        compiled.append(report)
        with pytest.raises(pytest.fail.Exception, match=words) if words else nullcontext():
            budget_in(tmp_path)(step, 1, chip="v6e", hbm_bytes=limit)
    compiled.append(endless)
    with pytest.raises(pytest.fail.Exception, match=r"(?s)flops.*at least.*seconds.*at least"):
        budget_in(tmp_path)(step, 1, chip="v6e", flops="<= 1 PFLOP", seconds="<= 9 s")


def test_the_time_to_expect_is_that_of_the_cheapest_and_of_the_dearest_branches():
    for high, at_least, ends in ((7.0, "", (3, 5)), (math.inf, "", None), (7.0, "data", None)):
        times = [SimpleNamespace(known=s, high=high) for s in (5, 3)]
        branches = [SimpleNamespace(expected=time) for time in (times[0], None, times[1])]
        report = SimpleNamespace(ends=branches, at_least=at_least)
        assert budget._expected(report) == (ends or (3, math.inf))


def test_a_limit_on_seconds_is_held_against_the_time_to_expect():
    """By its roof this chain takes 983 µs, by the compiler's cycles 2.5 times that."""
    chain = records()["chain-xla", "v5e"]
    assert chain.time_at_roof < 1e-3 < 2e-3 < chain.expected.seconds < 3e-3
    assert "it is 2.46 ms" in (Limit.parse("seconds", "<= 1 ms").broken(chain) or "")
    assert Limit.parse("seconds", "<= 3 ms").broken(chain) is None


def test_a_baseline_is_written_and_held(tmp_path, compiled):
    compiled += [REPORT] * 3 + [doubled(REPORT)] * 2
    with pytest.raises(pytest.fail.Exception, match="pytest --roofline-update"):
        budget_in(tmp_path)(step, 1, chip="v6e")
    notes = []
    budget_in(tmp_path, update=True, properties=notes)(step, 1, chip="v6e")
    (path,) = tmp_path.rglob("*.json")
    assert path.relative_to(tmp_path).as_posix() == ".roofline/test_a/test_a.json"
    budget_in(tmp_path)(step, 1, chip="v6e")
    with pytest.raises(pytest.fail.Exception, match=r"test_a\.json") as failed:
        budget_in(tmp_path)(step, 1, chip="v6e")
    assert "grew" in str(failed.value)
    assert str(failed.value).endswith("if that is meant: pytest --roofline-update 'test_a'")
    text = path.read_bytes()
    budget_in(tmp_path, update=True, properties=notes)(step, 1, chip="v6e")
    assert path.read_bytes() != text
    compiled.append(doubled(REPORT))
    text = path.read_bytes()
    budget_in(tmp_path, update=True, properties=notes)(step, 1, chip="v6e")
    assert path.read_bytes() == text
    assert [fate for _, fate in notes] == ["written", "written", "as it was"]


def test_another_compiler_is_told_apart(tmp_path, compiled):
    newer = replace(REPORT, jax_version="9.9.9")
    compiled += [REPORT, newer, doubled(newer), doubled(newer)]
    budget_in(tmp_path, update=True)(step, 1, chip="v6e")
    budget_in(tmp_path)(step, 1, chip="v6e")  # the program is the same
    with pytest.raises(pytest.fail.Exception, match=r"JAX 9\.9\.9"):
        budget_in(tmp_path)(step, 1, chip="v6e")
    with pytest.raises(pytest.xfail.Exception, match=r"JAX 9\.9\.9"):
        budget_in(tmp_path, strict=False)(step, 1, chip="v6e")


# --- what pytest loads ----------------------------------------------------------------------------


def test_pytest_writes_baselines_and_says_so(tmp_path, compiled, monkeypatch, capsys):
    compiled += [REPORT, REPORT, doubled(REPORT)]
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others are slow to load
    monkeypatch.setenv("PYTEST_PLUGINS", PLUGIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (tmp_path / "test_of_mine.py").write_text(
        "def test_one(roofline):\n    roofline(abs, 1, chip='v6e')\n", "utf-8"
    )
    words = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:unraisableexception", str(tmp_path)]
    assert pytest.main(words) == 1
    assert "no baseline" in capsys.readouterr().out
    assert pytest.main([*words, "--roofline-update"]) == 0
    assert "roofline baselines: 1 written" in capsys.readouterr().out
    assert pytest.main(words) == 1
    failed = capsys.readouterr().out
    assert "pytest --roofline-update 'test_of_mine.py::test_one'" in failed
    assert "budget.py" not in failed  # words, not this package's own lines


def test_a_program_that_fits_is_held_against_its_baseline_too(tmp_path, compiled):
    compiled += [REPORT, doubled(REPORT)]
    budget_in(tmp_path, update=True)(step, 1, chip="v6e", fits=True)
    with pytest.raises(pytest.fail.Exception, match=r"test_a\.json"):
        budget_in(tmp_path)(step, 1, chip="v6e", fits=True)


def test_two_calls_need_names(tmp_path, compiled):
    compiled += [REPORT] * 4
    roofline = budget_in(tmp_path, update=True)
    roofline(step, 1, chip="v6e")
    roofline(step, 1, chip="v6e", name="wide")
    with pytest.raises(BadValue, match="name="):
        roofline(step, 1, chip="v6e")


def test_what_is_exposed_is_a_share_of_the_roof_s_time():
    report = kept_report("whole-llama-512x8", "v5p")
    share = sum(each.exposed for each in report.exchanges) / report.time_at_roof
    assert 0.5 < share < 0.7
    for factor in (0.99, 1.01):
        limit = Limit.parse("exposed", f"<= {100 * factor * share}%")
        assert (limit.broken(report) is None) == (factor > 1)
