"""Instruments and labs in a real browser: numbers as in Python, keyboard, fields, address."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any
from urllib.parse import urlencode

import pytest
from browser import Serve, Visit, drawn, overflow, violations
from playwright.sync_api import Locator, Page, expect

import roofline_helpers as rh
from roofline_helpers import lab, serving
from roofline_helpers.lab.shared import first_compute_bound
from roofline_helpers.serving import LLAMA_3_8B
from roofline_helpers.show import significant

ELEMENTS = {
    "point": lab.point,
    "ridges": lab.ridges,
    "matmul": lab.matmul,
    "chain": lab.chain,
    "sharding": lab.sharding,
    "memory-wall": lab.memory_wall,
    "design": lab.design_challenge,
}
LABS = ("memory-wall", "design")
PAGE = (
    "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Labs</title>"
    "<meta name='viewport' content='width=device-width'><meta name='roofline-site' content='1'>"
    "<style>body {{margin: 0 12px}} @media (prefers-color-scheme: dark)"
    " {{body {{background: #121212; color: #eee}}}}</style></head>"
    "<body><main><h1>Labs</h1><h2>One</h2>{}</main></body></html>"
)
SCALE = "svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
FOCUSED = "document.activeElement.shadowRoot?.activeElement?.outerHTML ?? ''"
Shown = Callable[..., Locator]


@functools.cache
def html(kind: str) -> str:
    """A page with one element."""
    return PAGE.format(ELEMENTS[kind]().html())


@pytest.fixture(scope="session")
def served_labs(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page for each element, served: a file's reload can miss what was stored just before."""
    folder = tmp_path_factory.mktemp("labs")
    for kind in ELEMENTS:
        (folder / f"{kind}.html").write_text(html(kind), "utf-8")
    return serve(folder)


@pytest.fixture
def shown(visit: Visit, served_labs: str) -> Shown:
    """Open a page with one element, its setting in the address."""

    def show(kind: str, setting: dict[str, Any] | None = None, **options: Any) -> Locator:
        address = f"{served_labs}{kind}.html"
        if setting:
            address += f"#{kind}?{urlencode(setting)}"
        page = visit(address, **options)
        host = page.locator(f"[data-kind={kind}]")
        if kind in LABS and options.get("java_script_enabled", True):
            unlock(host)
        return host

    return show


def again(host: Locator, kind: str, setting: dict[str, Any]) -> None:
    """Open the page once more with another setting; a lab that was answered stays open."""
    host.page.evaluate("hash => { location.hash = hash }", f"{kind}?{urlencode(setting)}")
    host.page.reload()
    expect(host.locator("svg").first).to_be_visible()


def unlock(host: Locator) -> None:
    host.locator("input[type=radio], input[type=checkbox]").first.check()
    host.get_by_role("button", name="Check my answer").first.click()


def cards(host: Locator) -> dict[str, str]:
    """The values of all cards by their names."""
    pair = "(one) => [one.querySelector('dt').innerText, one.querySelector('dd').innerText]"
    return dict(host.locator(".facts > div").evaluate_all(f"(all) => all.map({pair})"))


def card(host: Locator, name: str) -> str:
    """The value of a card."""
    return cards(host)[name]


def said(host: Locator) -> str:
    """What the chart says to those who cannot see it."""
    return host.locator("svg title").first.text_content() or ""


def rate(flops: float) -> str:
    whole = len(str(int(flops / 1e12)))
    return rh.si(flops, "FLOP/s", "T" if flops >= 1e12 else None, max(3, whole))


# --- numbers as in Python ------------------------------------------------------------------------


def wall_settings() -> list[dict[str, Any]]:
    """Return a setting of each chip; from one to the next one side of the product changes."""
    chosen, sides, settings = random.Random(5), {"m": 512, "n": 512, "k": 512}, []
    for chip, side in zip(rh.all_chips(), itertools.cycle("mnk"), strict=False):
        sides = {**sides, side: round(10 ** chosen.uniform(0, 5))}
        dtype = chosen.choice([*chip.matrix, *chip.vector])
        settings.append({"chip": chip.key, "dtype": dtype, "changed": side, **sides})
    return settings


def test_cards_of_the_memory_wall_are_those_of_python(shown: Shown) -> None:
    host = shown("memory-wall")
    host.get_by_label("Achieved (TFLOP/s)").fill("7")
    for setting in wall_settings():
        host.get_by_label("Chip").select_option(setting["chip"])
        host.get_by_label("Data type").select_option(setting["dtype"])
        side = setting["changed"]
        host.get_by_label(side.upper(), exact=True).fill(str(setting[side]))
        roof = rh.chip(setting["chip"]).roofline(setting["dtype"])
        job = rh.work.matmul(setting["m"], setting["n"], setting["k"], setting["dtype"])
        top = roof.attainable(job.intensity)
        shown_there = cards(host)
        assert shown_there["arithmetic intensity"] == f"{significant(job.intensity)} FLOP/byte"
        assert shown_there["attainable"] == rate(top)
        assert shown_there["regime"] == f"{roof.bound(job.intensity)}-bound"
        share = float(shown_there["share of the peak, at most"].removesuffix(" %")) / 100
        assert share == pytest.approx(top / roof.peak, rel=0.06)
        efficiency = shown_there["achieved of the roof"]
        if roof.efficiency(7e12, job.intensity) < 0.99:
            assert float(efficiency.removesuffix(" %")) == pytest.approx(
                100 * roof.efficiency(7e12, job.intensity), rel=0.06
            )


def design_settings() -> list[dict[str, Any]]:
    chosen = random.Random(11)
    found = []
    for chip in ("h100", "v5e", "v6e", "orin-nx", "b200", "t4", "mi300x", "h200"):
        half = rh.chip(chip).half
        weights = chosen.choice([half, "int8", "int4"])
        found.append(
            {
                "chip": chip,
                "model": chosen.choice(serving.MODELS),
                "chips": str(chosen.choice(serving.chip_counts(LLAMA_3_8B, chip))),
                "phase": chosen.choice(["decode", "prefill"]),
                "batch": chosen.choice([1, 3, 16]),
                "context": chosen.choice([512, 2048, 4000]),
                "format": f"{weights}/{half}",
                "cache": chosen.choice([half, "fp8"]),
                "fusion": chosen.choice(list(serving.STRATEGIES)),
                "attention": chosen.choice(["naive", "flash"]),
                "latency": chosen.choice([20, 300]),
                "ceilings": chosen.choice(["published", "reached"]),
                "floor": chosen.choice(["with", "without"]),
                "between": chosen.choice(["travels", "stays"]),
                "kept": chosen.choice([0, 10]),
            }
        )
    return found


def design_texts(setting: dict[str, Any]) -> tuple[dict[str, str], list[str], list[str], int]:
    """Cards, texts that are said, texts that are not, and rows of the design lab, by Python."""
    weights, activations = setting["format"].split("/")
    asked = {name: setting[name] for name in ("phase", "context", "cache", "fusion", "attention")}
    asked |= {"weights": weights, "activations": activations}
    asked |= {"reached": setting["ceilings"] == "reached", "floor": setting["floor"] == "with"}
    asked |= {"resident": setting["between"] == "stays", "reserve": setting["kept"] / 100}
    asked |= {"chips": int(setting["chips"])}
    one = serving.step(setting["model"], setting["chip"], batch=setting["batch"], **asked)
    needed = one.memory.total + one.memory.reserve
    several = one.setting.chips > 1
    each = " of each chip" if several else ""
    said = [
        f"Memory{each}: {rh.si(needed, 'B')} of {rh.si(one.memory.capacity, 'B')}.",
        f"KV cache {rh.si(one.memory.cache, 'B')}",
    ]
    when = "time per token" if setting["phase"] == "decode" else "time to the first token"
    if one.fits:
        cards = {"tokens per second": significant(one.tokens_per_second)}
        cards[when] = rh.si(one.seconds, "s")
        unsaid = ["Out of memory"]
        if several:
            said.append(f"{significant(one.tokens_per_second / one.setting.chips)} tokens/s a chip")
            said.append(f"all-reduces {rh.si(one.comms, 's')}")
    else:
        cards, unsaid = {"tokens per second": "–", when: "–"}, []
        said.append(f"Out of memory: {rh.si(needed, 'B')} needed")
        said += [f"Batch {one.largest_batch():,}"] if one.largest_batch() else []
        said += [f"{one.fewest_chips()} chips"] if one.fewest_chips() else []
    if setting["phase"] == "prefill":  # the target is one of a token
        return (
            cards,
            said,
            [*unsaid, "Best batch within", "No batch fits and meets"],
            len(one.kernels) + several,
        )
    latency = setting["latency"] / 1e3
    best = serving.best_batch(setting["model"], setting["chip"], latency=latency, **asked)
    said.append(
        f"{best.setting.batch:,}, {significant(best.tokens_per_second)} tokens/s."
        if best
        else "No batch fits and meets"
    )
    return cards, said, unsaid, len(one.kernels) + several


def test_cards_of_the_design_are_those_of_python(shown: Shown) -> None:
    host = shown("design")
    problems = []
    for setting in design_settings():
        again(host, "design", setting)
        wanted, said, unsaid, rows = design_texts(setting)
        text, shown_there = host.locator(".act").inner_text(), cards(host)
        found = [name for name, value in wanted.items() if shown_there.get(name) != value]
        found += [one for one in said if one not in text] + [one for one in unsaid if one in text]
        count = host.locator("details table tbody tr").count()
        found += [f"{count} rows of {rows}"] if count != rows else []
        problems += [f"{setting['chip']}: {one}" for one in found]
    assert not problems, "\n".join(problems)


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


def test_a_chip_of_one_s_own_runs_the_chain_and_serves(shown: Shown) -> None:
    host = shown("chain", {"chip": "own", "peak": 500, "memory": 2000, "bc": "yes"})
    apart = rh.work.fusion_chain(65536, 4096, "bf16")
    two = [apart[0], rh.fuse(*apart[1:3]), apart[3]]
    assert card(host, "least time") == rh.si(rh.total(*two).bytes / 2e12, "s")
    own = {"chip": "own", "peak": 500, "memory": 2000, "room": 100, "attention": "flash"}
    host = shown("design", {**own, "batch": 4, "fusion": "epilogue"})
    h100 = rh.chip("h100")

    def figures(given: Any, value: float) -> Any:
        return {name: replace(each, value=value) for name, each in given.items()}

    memory = h100.memory["hbm"]
    hbm = replace(
        memory,
        bandwidth=replace(memory.bandwidth, value=2e12),
        capacity=replace(memory.capacity, value=100e9),
    )
    mine = replace(
        h100, matrix=figures(h100.matrix, 5e14), vector={}, memory={**h100.memory, "hbm": hbm}
    )
    one = serving.step(LLAMA_3_8B, mine, batch=4, fusion="epilogue", floor=False)
    assert card(host, "time per token") == rh.si(one.seconds, "s")
    expect(host).to_contain_text(f"of {rh.si(100e9, 'B')}.")
    expect(host.get_by_label("Your links (GB/s)")).to_be_hidden()
    host.get_by_label("Chips that share it").select_option("4")
    host.get_by_label("Your links (GB/s)").fill("100")
    host.get_by_label("A sum waits (µs)").fill("30")
    each = 30e-6 + 2 * 3 / 4 * 4 * 4096 * 2 / 100e9
    shared = one.but(chips=4)
    assert card(host, "time per token") == rh.si(shared.seconds - shared.comms + 64 * each, "s")
    assert "link=100" in host.page.evaluate("location.hash")
    host.get_by_label("Chip", exact=True).select_option("t4")
    expect(host.get_by_label("Chips that share it").locator("option")).to_have_count(1)


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


def test_the_chain_counts_as_python_does(shown: Shown) -> None:
    host = shown("chain")
    apart = rh.work.fusion_chain(65536, 4096, "bf16")
    assert card(host, "bytes") == rh.si(rh.total(*apart).bytes, "B")
    for label in ("LayerNorm + GELU", "GELU + dropout", "dropout + add"):
        host.get_by_label(label).select_option("yes")
    fused = rh.fuse(*apart)
    assert card(host, "bytes") == rh.si(fused.bytes, "B")
    assert card(host, "least time") == rh.si(rh.chip("v7x").roofline().time(fused), "s")
    assert card(host, "four kernels ÷ yours") == "2.5× the bytes"
    host.get_by_label("GELU + dropout").select_option("no")
    two = rh.total(rh.fuse(*apart[:2]), rh.fuse(*apart[2:]))
    assert card(host, "bytes") == rh.si(two.bytes, "B")


def test_the_ridges_are_those_of_python(shown: Shown) -> None:
    host = shown("ridges")
    host.get_by_label("Data type").select_option("fp8")
    host.get_by_label("Matmul of size N").fill("900")
    text = host.locator("table").inner_text()
    assert "no fp8" not in text
    host.get_by_label("Chip 2").select_option("a100-80gb")
    assert "no fp8" in host.locator("table").inner_text()
    roof = rh.chip("v7x").roofline("fp8")
    job = rh.work.matmul(900, 900, 900, "fp8")
    row = host.locator("tbody tr").filter(has_text="TPU v7x").inner_text()
    assert significant(roof.ridge) in row
    assert f"{first_compute_bound(roof, 'fp8'):,}" in row
    assert f"{roof.bound(job)}-bound" in row


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


# --- looks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ELEMENTS)
def test_no_barrier_and_no_overflow(shown: Shown, kind: str) -> None:
    host = shown(kind, width=390, theme="dark")
    for summary in host.locator("summary").all():
        summary.click()
    assert overflow(host.page) <= 0
    assert violations(host.page) == []
    host.page.set_viewport_size({"width": 1280, "height": 900})
    host.page.emulate_media(color_scheme="light")
    expect(host).to_have_attribute("data-look", "light")
    assert overflow(host.page) <= 0
    assert violations(host.page) == []


# Pairs of texts of a chart whose boxes, turned as they are, meet: no axis between them
MEETING = """svg => {
  const boxes = [...svg.querySelectorAll('text')].map(text => {
    const b = text.getBBox(), m = text.getCTM(), y = b.y + 0.2 * b.height, h = 0.6 * b.height;
    const corners = [[b.x, y], [b.x + b.width, y], [b.x + b.width, y + h], [b.x, y + h]];
    return [text.textContent, corners.map(([x, y]) => [m.a*x + m.c*y + m.e, m.b*x + m.d*y + m.f])];
  });
  const apart = (a, b) => [[a, b], [b, a]].some(([one]) => one.some(([x, y], i) => {
    const [x2, y2] = one[(i + 1) % 4];
    const along = box => box.map(([u, v]) => u * (y2 - y) + v * (x - x2));
    const p = along(a), q = along(b);
    return Math.max(...p) <= Math.min(...q) || Math.max(...q) <= Math.min(...p);
  }));
  return boxes.flatMap(([words, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => !apart(a, b)).map(([other]) => `${words} | ${other}`));
}"""
CROWDED: dict[str, list[dict[str, Any]]] = {
    "point": [{"chip": c, "intensity": i} for c in ("v5e", "l4", "orin-nx") for i in (0.05, 1, 20)],
    "ridges": [{"a": "h100", "b": "h200", "c": "b200", "d": "mi300x", "n": n} for n in (64, 900)],
    "matmul": [{"chip": c, "m": n, "n": n, "k": n} for c in ("v4", "mi300x") for n in (1, 512)],
    "chain": [{"chip": c, "ab": "yes", "bc": "yes", "cd": "yes"} for c in ("h100", "l4")],
    "sharding": [
        {"chip": chip, "tensor": ways, "tokens": tokens}
        for chip, ways in (("v5e", 8), ("v7x", 16), ("h200", 8), ("h200", 1))
        for tokens in (1, 512, 65536)
    ],
    "memory-wall": [{"chip": "v5e", "m": 1}, {"chip": "v4", "achieved": 20}, {"chip": "orin-nx"}],
    "design": [
        {"chip": chip, "phase": phase, "batch": batch}
        for chip in ("h100", "v6e", "v7x", "l4")
        for phase, batch in (("decode", 1), ("decode", 8), ("prefill", 1))
    ],
}


@pytest.mark.parametrize("kind", ELEMENTS)
def test_texts_in_the_chart_do_not_meet(shown: Shown, kind: str) -> None:
    host = shown(kind)
    chart, page = host.locator("svg").first, host.page
    problems = []

    def small() -> bool:
        return bool(12.5 * chart.evaluate(SCALE) < 11)  # CSS pixels of a letter's height

    for setting in ({}, *CROWDED[kind]):
        again(host, kind, setting)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            drawn(page)  # the chart follows its width
            problems += [f"{setting} at {width}: small"] if small() else []
            problems += [f"{setting} at {width}: {one}" for one in chart.evaluate(MEETING)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("kind", ELEMENTS)
def test_without_scripts_a_table_is_seen(shown: Shown, kind: str) -> None:
    host = shown(kind, java_script_enabled=False)
    assert host.locator("table").is_visible()
    assert len(re.sub(r"\s+", " ", host.inner_text())) > 200


def test_a_change_is_drawn_as_fast_as_a_browser_can(shown: Shown) -> None:
    """A change takes no longer than a few times what the browser needs to copy and lay out a lab.

    That is about as long. Both are slowed by whatever else runs here: the fastest of many count.
    """
    times = """host => {
      const { shadowRoot } = host, card = shadowRoot.querySelector(".card");
      const input = shadowRoot.querySelector(".controls input"), all = { change: [], copy: [] };
      const timed = (name, act) => {
        const start = performance.now();
        act().querySelector("svg").getBoundingClientRect();
        all[name].push(performance.now() - start);
      };
      for (let i = 1; i <= 40; i++) {
        timed("change", () => {
          input.value = String(3 * i);
          input.dispatchEvent(new Event("input", { bubbles: true }));
          return card;
        });
        const copy = card.cloneNode(true);
        timed("copy", () => { card.after(copy); return copy; });
        copy.remove();
      }
      return [all.change, all.copy].map((list) => Math.min(...list));
    }"""
    change, copy = shown("design").evaluate(times)
    assert change < 4 * copy, (change, copy)
