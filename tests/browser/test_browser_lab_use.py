"""Instruments and labs in use, in a real browser: locks, keyboard, fields, address, ledger."""

import pytest
from labs import FOCUSED, LABS, card, said
from playwright.sync_api import expect

# --- what is offered, and what is said -----------------------------------------------------------


def test_out_of_memory_offers_what_fits(shown):
    host = shown("design", {"chip": "v5e", "batch": 64, "format": "int8/bf16"})
    stop = host.locator(".stop")
    expect(stop).to_contain_text("Out of memory")
    expect(stop).to_contain_text("What would fit instead")
    stop.get_by_role("button", name="Batch").focus()
    host.page.keyboard.press("Enter")
    expect(host.locator(".stop")).to_have_count(0)
    assert card(host, "tokens per second") != "–"
    expect(host.get_by_role("slider", name="Batch")).to_be_focused()  # not lost with the button


# --- locks, keyboard, fields ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", LABS)
def test_a_lab_opens_with_any_answer_by_keyboard_alone(kind, visit, served_labs):
    page = visit(f"{served_labs}{kind}.html")
    host = page.locator(f"[data-kind={kind}]")
    expect(host.locator("svg")).to_have_count(0)
    for _ in range(1 + (kind == "design")):  # past where it runs
        page.keyboard.press("Tab")
    page.keyboard.press("Space")  # the first answer, which is wrong or not all
    for _ in range(8):
        page.keyboard.press("Tab")
        if "Check" in page.evaluate(FOCUSED):
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


def test_a_bad_field_says_so_and_the_plot_stays(shown):
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


# --- the address, the ledger ---------------------------------------------------------------------


def test_the_setting_stands_in_the_address(shown):
    host = shown(
        "matmul",
        {
            "chip": "v6e",
            "m": 100,
            "n": "x",
            "k": "-1",
            "dtype": "nonsense",
        },
    )
    assert "100 × 512 × 512 in bf16 on TPU v6e" in said(host)  # what is not sound is left out
    host.get_by_label("N", exact=True).fill("4096")
    address = host.page.evaluate("location.hash")
    assert address.startswith("#matmul?")
    assert "n=4096" in address
    host.page.reload()
    expect(host.locator("svg title")).to_contain_text("100 × 4,096 × 512")
