"""How instruments and labs look in a real browser: barriers, texts that meet, no script, speed."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from browser import drawn, overflow
from labs import ANEW, ELEMENTS, Shown, markup
from playwright.sync_api import Locator, expect
from thinning import Seen, note, thin_out, violations_of_unseen


@pytest.fixture(scope="session")
def seen() -> Seen:
    """Return the kinds of elements that axe has looked at in a lab."""
    return {}


@pytest.mark.parametrize("kind", ELEMENTS)
def test_no_barrier_and_no_overflow(shown: Shown, seen: Seen, kind: str) -> None:
    host = shown(kind, width=390, theme="dark")
    page, looks = host.page, ((390, "dark"), (1280, "light"))

    def look(width: int, theme: str) -> None:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        expect(host).to_have_attribute("data-look", theme)
        drawn(page)

    for summary in host.locator("summary").all():
        summary.click()
    for each in looks:
        look(*each)
        assert overflow(page) <= 0
        note(page)
    thin_out(page, seen)
    for each in reversed(looks):
        look(*each)
        assert violations_of_unseen(page) == []


# Pairs of texts of a chart whose boxes, turned as they are, meet: no axis between them. And letters
# of fewer CSS pixels than 11
MEETING = """svg => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
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
  const meeting = boxes.flatMap(([words, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => !apart(a, b)).map(([other]) => `${words} | ${other}`));
  return [...(12.5 * scale < 11 ? ["small"] : []), ...meeting];
}"""
# The same of each setting, shown anew; a chart is drawn within two frames
ALL_MEETING = f"""async (host, settings) => {{
  const anew = {ANEW}, meeting = {MEETING};
  const frame = () => new Promise(requestAnimationFrame), found = [];
  const parent = host.parentNode, {{ kind }} = host.dataset;
  for (const [hash, markup] of settings) {{
    anew(parent.querySelector(`[data-kind=${{kind}}]`), [hash, markup]);
    await frame(), await frame();
    const chart = parent.querySelector(`[data-kind=${{kind}}]`).shadowRoot.querySelector("svg");
    found.push(chart.checkVisibility() ? meeting(chart) : ["no chart"]);
  }}
  return found;
}}"""


def meetings(host: Locator, kind: str, settings: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return what `MEETING` finds in the chart of each setting."""
    pages = [[f"#{kind}?{urlencode(setting)}", markup(kind)] for setting in settings]
    return dict(zip(map(str, settings), host.evaluate(ALL_MEETING, pages), strict=True))


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
    problems = []
    for width in (1280, 390):
        host.page.set_viewport_size({"width": width, "height": 900})
        drawn(host.page)  # the chart that is there follows its width
        met = {"as before": host.locator("svg").first.evaluate(MEETING)}
        met |= meetings(host, kind, [{}, *CROWDED[kind]])
        problems += [f"{name} at {width}: {one}" for name, all_ in met.items() for one in all_]
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
