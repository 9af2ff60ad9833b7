"""Take out of a page what it repeats before axe looks: it takes minutes for thousands of elements.

Most of what axe judges, it judges of an element and of those around it. So one that is like two
that it has seen, with all that is in it, tells nothing new. What makes elements alike is in `NOTE`;
what no kind can tell, such as the order of headings, stays on the page.
"""

from __future__ import annotations

import json

from browser import violations
from playwright.sync_api import Page

Seen = dict[str, int]  # how many elements of a kind axe has looked at

# Note of each element, shadow roots included, what axe may judge by, as the page is shown now: what
# it is, which attributes it has (with the value where that is a word and not a text), whether it
# has a text, a label, what it refers to; its colours and its letters; whether it is seen, scrolls,
# or is small to hit; and the same of all around it. A page may be noted as it is shown in several
# widths and themes
NOTE = """() => {
  const VALUE = /^(role|type|tabindex|lang|dir|scope|autocomplete|contenteditable|aria-.*)$/;
  const PLACE = /^(for|aria-(labelledby|describedby|controls|owns|details|errormessage|flowto))$/;
  const TEXT = /^aria-(label|description|roledescription|valuetext|placeholder)$/;
  const TARGET = "a, button, input, select, summary, textarea, [tabindex]";
  const notes = (window.notes ??= new Map());
  const hash = (text) => {
    let a = 0xdeadbeef, b = 0x41c6ce57;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      a = Math.imul(a ^ code, 2654435761);
      b = Math.imul(b ^ code, 1597334677);
    }
    return (a >>> 0).toString(36) + (b >>> 0).toString(36);
  };
  const attribute = (one, { name, value }) => {
    if (PLACE.test(name)) {
      value = value.split(/\\s+/).every((id) => one.getRootNode().getElementById(id));
    } else if (TEXT.test(name) || !VALUE.test(name)) value = value.trim() !== "";
    return `${name}=${value}`;
  };
  const own = (one) => {
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    const scrolls = /auto|scroll/.test(style.overflow) &&
      (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight);
    const judged = ({ name }) => name !== "class" && name !== "data-unseen";
    const attributes = [...one.attributes].filter(judged);
    return [
      one.localName, ...[...one.classList].sort(),
      ...attributes.map((each) => attribute(one, each)).sort(),
      style.color, style.backgroundColor, style.fontSize, style.fontWeight, style.opacity,
      style.textDecorationLine, one.checkVisibility(), scrolls, !one.labels?.length,
      one.matches(TARGET) && Math.min(box.width, box.height) < 24,
    ].join();
  };
  const note = (one, around, last) => {
    const mine = own(one), chain = mine === last ? around : hash(around + mine);
    const kind = hash(`${around} ${mine} ${one.textContent.trim() !== ""}`);
    notes.set(one, hash((notes.get(one) ?? "") + kind));
    for (const child of one.children) note(child, chain, mine);
    for (const child of one.shadowRoot?.children ?? []) note(child, chain, mine);
  };
  note(document.body, "", "");
}"""
# What is of a kind seen `enough` times goes with all that is in it, if that is so too. An element
# that stays keeps its first child (a list its first entry, a table its first row), and what makes
# up a name, a picture or a field stays as it is. What stays and is of a kind that axe has not seen
# so often is marked: only there must axe work out colours, which takes most of its time
THIN = """([before, enough, removing]) => {
  const STAYS = "h1, h2, h3, h4, h5, h6, header, footer, main, nav, aside, [role=region]";
  const WHOLE = "a, button, caption, figure, h1, h2, h3, h4, h5, h6, label, legend, math, select," +
    " summary, svg, td, th";
  const { notes } = window, seen = JSON.parse(before), counted = {}, sure = new Set();
  const within = (one) => [...one.children, ...(one.shadowRoot?.children ?? [])];
  const all = (one) => [one, ...within(one).flatMap(all)];
  const alike = (one) =>
    !one.matches(STAYS) && seen[notes.get(one)] >= enough && within(one).every(known);
  const known = (one) => sure.has(one) || (alike(one) && !!sure.add(one));  // for good
  const goes = (one) => known(one) && !one.matches("link, script, style");
  const count = (one) => {
    const kind = notes.get(one), times = seen[kind] ?? 0;
    one.toggleAttribute("data-unseen", times < enough);
    counted[kind] = seen[kind] = times + 1;
  };
  const units = (one) => {
    const children = within(one).map((child) => [child]);
    if (one.localName !== "dl") return children;
    return children.reduce((list, [child]) => {
      if (child.localName === "dd" && list.length) list.at(-1).push(child);
      else list.push([child]);
      return list;
    }, []);
  };
  const thin = (one) => {
    count(one);
    if (one.matches(WHOLE)) all(one).slice(1).forEach(count);
    else units(one).forEach((unit, i) => {
      if (removing && i > 0 && unit.every(goes)) unit.forEach((each) => each.remove());
      else unit.forEach(thin);
    });
  };
  thin(document.body);
  delete window.notes;
  delete window.shown;
  return JSON.stringify(counted);
}"""

# Whether a page shows more of unseen kinds than it did when this was last asked
MORE = """() => {
  const within = (one) => [...one.children, ...(one.shadowRoot?.children ?? [])];
  const all = (one) => [one, ...within(one).flatMap(all)];
  const { shown } = window, now = all(document.body).filter((one) => one.checkVisibility());
  window.shown = new Set(now);
  return !shown || now.some((one) => one.matches("[data-unseen]") && !shown.has(one));
}"""
# Axe's rules that depend on how a page is shown, those of the page's order among them
BY_LOOK = (
    *("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"),
    *("aria-hidden-focus", "bypass", "heading-order", "landmark-one-main", "landmark-unique"),
    *("nested-interactive", "page-has-heading-one", "region", "skip-link"),
)


def note(page: Page) -> None:
    """Note of which kind each element of a page is, as it is shown now."""
    page.evaluate(NOTE)


def _mark(page: Page, seen: Seen, enough: int, removing: bool) -> None:
    """Mark what is of an unseen kind, count it in `seen`, and take out the rest if `removing`."""
    seen |= json.loads(page.evaluate(THIN, [json.dumps(seen), enough, removing]))


def thin_out(page: Page, seen: Seen, enough: int = 2) -> None:
    """Take out of a page that was noted what is of a kind that axe has seen.

    Parameters
    ----------
    page : Page
        A page after `note`.
    seen : dict
        How many elements of each kind axe has seen; those that stay on this page are added.
    enough : int
        How many of a kind it looks at.
    """
    _mark(page, seen, enough, removing=True)


def violations_of_whole(page: Page, seen: Seen, within: str | None = None) -> list[str]:
    """Return what axe finds on a page that is used further: in colours, of what is not in `seen`.

    Parameters
    ----------
    page : Page
        The page. All of it stays.
    seen : dict
        How many elements of each kind axe has seen; those of this page are added.
    within : str, optional
        A CSS selector: only there.
    """
    note(page)
    _mark(page, seen, 2, removing=False)
    return violations(page, within, coloured="[data-unseen]")


def violations_of_unseen(page: Page) -> list[str]:
    """Return what axe finds on a page after `thin_out`: in colours, of what is of an unseen kind.

    Where a page is looked at again in another width or theme, and shows nothing of an unseen kind
    that it did not show before, only by the rules that depend on how it is shown.
    """
    rules = () if page.evaluate(MORE) else BY_LOOK
    return violations(page, rules=rules, coloured="[data-unseen]")


def violations_of_thinned(page: Page) -> list[str]:
    """Return what axe finds on a page by itself, after taking out what the page repeats."""
    note(page)
    thin_out(page, {})
    return violations_of_unseen(page)
