"""How instruments and labs look in a real browser: barriers, texts that meet, no script, speed."""

import re

import pytest
from browser import drawn, overflow, violations
from labs import ELEMENTS, LABS
from playwright.sync_api import expect


@pytest.mark.parametrize("kind", ELEMENTS)
def test_no_barrier_and_no_overflow(shown, kind):
    host = shown(kind, width=390, theme="dark")
    page = host.page
    looks = (
        (390, "dark"),
        (1280, "light"),
    )

    def look(width, theme):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        expect(host).to_have_attribute("data-look", theme)
        drawn(page)

    for summary in host.locator("summary").all():
        summary.click()
    for appearance in looks:
        look(*appearance)
        assert overflow(page) <= 0
        assert violations(page) == []


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


@pytest.mark.parametrize("kind", ELEMENTS)
def test_texts_in_the_chart_do_not_meet(shown, kind):
    host = shown(kind)
    for width in (1280, 390):
        host.page.set_viewport_size({"width": width, "height": 900})
        drawn(host.page)  # the chart follows its width
        assert host.locator("svg").first.evaluate(MEETING) == [], width


@pytest.mark.parametrize("kind", ELEMENTS)
def test_without_scripts_a_table_is_seen_or_a_question(shown, kind):
    host = shown(kind, java_script_enabled=False)
    assert host.locator("details" if kind in LABS else "table").is_visible()
    assert len(re.sub(r"\s+", " ", host.inner_text())) > 200
