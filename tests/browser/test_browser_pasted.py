"""Your chip, your kernel, in a real browser: what is given, what is said of it, and the link."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import pytest
from browser import Serve, Visit, overflow, violations
from hlo_programs import fixture, program
from labs import PAGE
from playwright.sync_api import Locator, expect

import roofline_helpers as rh
from roofline_helpers import hlo
from roofline_helpers.show import si

KEY = "your-kernel"
SMALL = program("  %x = f32[1024,1024]{1,0} parameter(0)\n  ROOT %y = f32[1024,1024]{1,0} tanh(%x)")


@pytest.fixture(scope="session")
def home(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with the instrument alone."""
    folder = tmp_path_factory.mktemp("pasted")
    (folder / "index.html").write_text(PAGE.format(rh.lab.your_kernel().html()), "utf-8")
    return serve(folder)


@pytest.fixture
def host(visit: Visit, home: str) -> Locator:
    """The instrument on a phone's width, where it is tightest."""
    return visit(f"{home}index.html", width=390).locator(f"[data-kind={KEY}]")


def card(host: Locator, name: str) -> str:
    return host.locator("dl div").filter(has_text=name).locator("dd").first.inner_text()


def link(host: Locator) -> dict[str, str]:
    """The setting in the page's address."""
    _, _, setting = host.page.evaluate("location.hash").partition("?")
    return {name: values[0] for name, values in parse_qs(setting).items()}


def choose(host: Locator, **wanted: str) -> None:
    for label, value in wanted.items():
        host.get_by_label(label.replace("_", " "), exact=True).select_option(value)


def paste(host: Locator, text: str) -> None:
    choose(host, What_you_have="program")
    host.get_by_label("The text of the compiled program").fill(text)


def test_a_shape_has_the_verdict_that_python_gives(host: Locator) -> None:
    expect(host.locator("svg")).to_be_visible()
    verdict = rh.verdict(rh.work.matmul(512, 8192, 8192), "h100")
    assert card(host, "verdict") == f"{verdict.word}-bound"
    low, high = (si(each, "s") for each in verdict.seconds)
    assert card(host, "least time") == f"{low} to {high}"
    law = rh.benchmarks.laws("matmul", "h100", "bf16")
    assert card(host, "measured kernels") == (
        f"about {si(law.seconds(rh.work.matmul(512, 8192, 8192)), 's')}"
    )
    host.get_by_label("M", exact=True).fill("300")
    verdict = rh.verdict(rh.work.matmul(300, 8192, 8192), "h100")
    assert verdict.on == ("ceilings",)
    expect(host.locator("dl")).to_contain_text("it depends")
    assert "published or reached ceilings" in host.locator("dl").inner_text()
    assert link(host)["m"] == "300"


def test_a_program_is_read_and_its_link_carries_it_if_it_is_short(
    host: Locator, visit: Visit
) -> None:
    choose(host, Chip="v6e")
    paste(host, SMALL)
    expect(host.locator("dl")).to_contain_text("1 kernel as compiled")
    assert link(host)["text"] == SMALL
    other = visit(host.page.url, width=390).locator(f"[data-kind={KEY}]")
    expect(other.locator("dl")).to_contain_text("8.39 MB")
    long = fixture("attention.v6e.jax-0.10.2")
    paste(host, long)
    ledger = hlo.kernels(long)
    moved = sum(row.traffic.get("hbm", 0) * row.launches for row in ledger.rows)
    expect(host.locator("dl")).to_contain_text(si(moved, "B"))
    expect(host.locator("dl")).to_contain_text("kernels whose FLOPs are known")
    assert "text" not in link(host)
    expect(host).to_contain_text("Too long for the page's address")
    assert host.get_by_role("region", name="Kernels").locator("tbody tr").count() == len(
        ledger.rows
    )


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
def test_it_is_sound_with_a_program(width: int, theme: Any, home: str, visit: Visit) -> None:
    page = visit(f"{home}index.html", width=width, theme=theme)
    paste(page.locator(f"[data-kind={KEY}]"), fixture("attention.v6e.jax-0.10.2"))
    expect(page.locator(f"[data-kind={KEY}] dl")).to_contain_text("as compiled")
    assert overflow(page) <= 0
    assert violations(page) == []


def test_without_a_script_there_is_a_table(home: str, visit: Visit) -> None:
    page = visit(f"{home}index.html", java_script_enabled=False)
    expect(page.locator("main")).to_contain_text("512 × 8192 × 8192 matmul on NVIDIA H100 SXM")
    assert page.locator("main table tbody tr").count() == 5
