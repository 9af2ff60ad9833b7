"""Instruments and labs in use, in a real browser: locks, keyboard, fields, address, ledger."""

from __future__ import annotations

import re
from html import escape

import pytest
from browser import Visit
from labs import FOCUSED, LABS, Shown, card, html, rate, said, unlock
from playwright.sync_api import Page, expect

import roofline_helpers as rh

# --- what is offered, and what is said -----------------------------------------------------------


def test_out_of_memory_offers_what_fits(shown: Shown) -> None:
    host = shown("design", {"chip": "v5e", "batch": 64, "kept": 0})
    stop = host.locator(".stop")
    expect(stop).to_contain_text("Out of memory")
    expect(stop).to_contain_text("What would fit instead")
    stop.get_by_role("button", name="Batch").focus()
    host.page.keyboard.press("Enter")
    expect(host.locator(".stop")).to_have_count(0)
    assert card(host, "tokens per second") != "–"
    expect(host.get_by_label("Batch", exact=True)).to_be_focused()  # not lost with the button


def test_what_was_not_measured_of_a_chip_is_said(shown: Shown) -> None:
    host = shown("design", {"chip": "orin-nx"})
    lacks = host.locator(".facts > div").filter(has_text="ceilings and floor")
    expect(lacks).to_contain_text("no measured peak or bandwidth for this chip: published")
    expect(lacks).to_contain_text("no floor known")
    host.get_by_label("Chip", exact=True).select_option("v6e")
    expect(lacks).to_contain_text("reached")
    expect(lacks).to_contain_text("no floor known")
    host.get_by_label("Chip", exact=True).select_option("h200")
    expect(lacks).to_have_count(0)
    expect(shown("chain", {"chip": "l4"})).to_contain_text("no floor known for this chip")
    wall = shown("memory-wall", {"chip": "orin-nx"})
    expect(wall).to_contain_text("20.7 times that roof")
    expect(wall).to_contain_text("reached on another chip")


def test_a_setting_in_the_address_waits_for_the_answer(visit: Visit, served_labs: str) -> None:
    host = visit(f"{served_labs}design.html#design?batch=4").locator("[data-kind=design]")
    expect(host).to_contain_text("A setting waits behind this question")
    unlock(host)
    expect(host.get_by_label("Batch", exact=True)).to_have_value("4")


def test_two_chips_of_one_s_own_are_each_chosen_once(shown: Shown) -> None:
    host = shown("ridges", {"a": "own", "b": "own", "c": "v6e"})
    mine = host.locator("tbody tr", has_text="your chip")
    expect(host.locator("option[value=own]")).to_have_count(1)
    expect(mine).to_have_count(1)
    host.get_by_label("Chip 1").select_option("h100")
    host.get_by_label("Chip 3").select_option("own")
    expect(mine).to_have_count(1)
    expect(host.get_by_label("Second GB/s")).to_be_hidden()
    host.get_by_label("Chip 2").select_option("own2")
    host.get_by_label("Second GB/s").fill("250")
    host.get_by_label("Second TFLOP/s").fill("50")
    row = host.locator("tbody tr", has_text="your second chip").locator("td")
    expect(row).to_have_text(["50 TFLOP/s", "250 GB/s", "200", "600", "compute-bound"])
    expect(mine.locator("td").first).to_have_text("1,000 TFLOP/s")
    host.page.reload()
    expect(row.nth(1)).to_have_text("250 GB/s")


def test_more_chips_are_offered_where_one_is_too_small(shown: Shown) -> None:
    host = shown("design", {"model": "llama-3-70b"})
    stop = host.locator(".stop")
    stop.get_by_role("button", name="2 chips").click()
    expect(stop).to_have_count(0)
    expect(host.get_by_label("Chips that share it")).to_be_focused()
    assert "Llama 3 70B on 2 × NVIDIA H100 SXM" in said(host)
    assert re.search(r"[\d.]+ % in all-reduces", said(host))
    host.get_by_text("All 17 kernels").click()
    assert "network" in host.locator("details tbody tr").last.inner_text()


# --- locks, keyboard, fields ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", LABS)
def test_a_lab_opens_with_any_answer_by_keyboard_alone(
    kind: str, visit: Visit, served_labs: str
) -> None:
    page = visit(f"{served_labs}{kind}.html")
    host = page.locator(f"[data-kind={kind}]")
    expect(host.locator("svg")).to_have_count(0)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # the first answer, which is wrong or not all
    for _ in range(8):
        page.keyboard.press("Tab")
        if "Check my answer" in page.evaluate(FOCUSED):
            break
    page.keyboard.press("Enter")
    expect(host.locator("svg").first).to_be_visible()
    before = said(host)
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED).startswith("<select"):
            break
    page.keyboard.press("ArrowDown")
    expect(host.locator("svg title").first).not_to_have_text(before)
    expect(host.locator(".say").first).to_have_text(said(host))  # announced


def test_a_bad_field_says_so_and_the_plot_stays(shown: Shown) -> None:
    host = shown("matmul")
    field = host.get_by_label("M", exact=True)
    for bad in ("", "x", "1e99", "-3", "0", "2.5"):
        field.fill("2048")
        before = said(host)
        field.fill(bad)
        expect(field).to_have_attribute("aria-invalid", "true")
        assert said(host) == before
        field.fill("64")
        expect(field).not_to_have_attribute("aria-invalid", "true")
        assert "64 × 512 × 512" in said(host)


def test_a_type_that_the_next_chip_lacks_is_replaced(shown: Shown) -> None:
    host = shown("matmul", {"dtype": "fp8"})
    assert "fp8" in said(host)
    host.get_by_label("Chip").select_option("t4")
    assert "fp16 on NVIDIA T4" in said(host)


# --- the address, the ledger ---------------------------------------------------------------------


def test_the_setting_stands_in_the_address(shown: Shown) -> None:
    host = shown("matmul", {"chip": "v6e", "m": 100, "n": "x", "k": "-1", "dtype": "nonsense"})
    assert "100 × 512 × 512 in bf16 on TPU v6e" in said(host)  # what is not sound is left out
    host.get_by_label("N", exact=True).fill("4096")
    address = host.page.evaluate("location.hash")
    assert address.startswith("#matmul?")
    assert "n=4096" in address
    host.page.reload()
    expect(host.locator("svg title")).to_contain_text("100 × 4,096 × 512")


def test_a_chip_of_one_s_own_is_drawn_and_kept(shown: Shown) -> None:
    own = {"chip": "own", "peak": 500, "memory": 2500}
    host = shown("point", {**own, "intensity": 100})
    assert "on your chip bf16: memory-bound, at most 250 TFLOP/s, 50 % of the peak" in said(host)
    host.get_by_label("Your GB/s").fill("6000")
    assert "compute-bound, at most 500 TFLOP/s" in said(host)
    assert "memory=6000" in host.page.evaluate("location.hash")
    host.page.reload()
    expect(host.locator("svg title")).to_contain_text("compute-bound, at most 500 TFLOP/s")
    host.get_by_label("Chip", exact=True).select_option("h100")
    expect(host.get_by_label("Your GB/s")).to_be_hidden()
    assert "memory=" not in host.page.evaluate("location.hash")

    host = shown("matmul", {**own, "m": 1024, "n": 1024, "k": 1024})
    job = rh.work.matmul(1024, 1024, 1024)
    assert card(host, "attainable") == rate(min(500e12, 2.5e12 * job.intensity))
    host = shown("ridges", {**own, "a": "h100", "b": "own", "n": 600})
    row = host.locator("tbody tr", has_text="your chip")
    expect(row.locator("td")).to_have_text(
        ["500 TFLOP/s", "2.5 TB/s", "200", "600", "compute-bound"]
    )


def test_the_labs_share_a_ledger_with_the_last_setting(shown: Shown) -> None:
    host = shown("memory-wall")
    ledger = host.locator("[data-kind=ledger]")
    expect(ledger).to_contain_text("What holds this kernel")
    host.get_by_label("M", exact=True).fill("64")
    expect(ledger).to_contain_text("Lab 1: your setting")
    expect(ledger).to_contain_text("0 of 1 right")  # a setting is neither
    page: Page = host.page
    page.evaluate("history.replaceState(null, '', location.pathname)")
    page.reload()
    expect(host.locator("svg title").first).to_contain_text("64 × 512 × 512")
    ledger.get_by_role("button", name="Forget all answers").click()
    ledger.get_by_role("button", name="Really forget all answers?").click()
    expect(host.locator("svg").first).to_be_hidden()


def test_a_narrow_page_shows_the_whole_ledger(shown: Shown) -> None:
    host = shown("memory-wall", width=390)
    place = host.locator("[data-kind=ledger] .scroll")
    expect(place).to_contain_text("What holds this kernel")
    assert place.evaluate("place => place.scrollWidth - place.clientWidth") <= 0
    answer = place.locator("td[data-name='It is']").bounding_box()
    assert answer is not None
    assert answer["width"] > 200
    assert answer["x"] + answer["width"] <= 390


def test_a_lab_works_in_a_sandbox_as_colab_has_it(visit: Visit) -> None:
    page = visit("", allowed=("sandboxed", "localStorage"))
    page.set_content(
        '<iframe title="output" sandbox="allow-scripts" width="900" height="800" '
        f'srcdoc="{escape(html("design"))}"></iframe>'
    )
    host = page.frame_locator("iframe").locator("[data-kind=design]")
    expect(host.locator("svg")).to_have_count(0)
    unlock(host)
    expect(host.locator("svg").first).to_be_visible()
    before = said(host)
    host.get_by_label("Batch", exact=True).fill("32")
    assert said(host) != before
