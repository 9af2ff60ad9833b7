// The roofline chart, the instruments and the two labs. What they compute comes from model.js,
// what they say in questions comes from Python as data; here it is only drawn.
(() => {
  const { el, svg, si } = core;

  const FONT = "12.5px system-ui, sans-serif"; // of the chart
  core.style(`
    :host { --memory: #0072b2; --compute: #b8480b; --s0: #0062af; --s1: #ff4918; --s2: #1f1f1f; --s3: #62a328;
      --s4: #b8568f; --s5: #4f9bd6; --s6: #088b5d; }
    :host([data-look=dark]) { --memory: #62b8f0; --compute: #f79a5f; --s0: #62b8f0; --s1: #ff7a55; --s2: #ececec;
      --s3: #8fce55; --s4: #e590c0; --s5: #a9d3f7; --s6: #3ec795; }
    .plot { margin: .6rem 0; }
    .plot svg { display: block; width: 100%; overflow: visible; font: ${FONT}; }
    svg text { fill: var(--ink); } svg .tick { fill: var(--muted); } svg .memory { fill: var(--memory); }
    svg .compute { fill: var(--compute); } svg .grid { stroke: var(--soft); } svg .axis { stroke: var(--muted); }
    svg .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
    svg .dot { transition: transform .25s ease-out; } svg .lead { stroke: var(--muted); fill: none; }
    .controls { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.4rem, 1fr)); gap: .5rem .9rem; align-items: start; margin-top: .6rem; }
    .controls input, .controls select { width: 100%; }
    .controls .line { flex-wrap: nowrap; } .controls .field { display: flex; }
    .facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.2rem, 1fr)); gap: .5rem; margin: .6rem 0 0; }
    .facts > div { background: var(--field); border: 1px solid var(--soft); border-radius: 4px; padding: .4rem .6rem; }
    .facts dt { color: var(--muted); font-size: .85em; } .facts dd { margin: 0; font-weight: 600; }
    .facts dd + dd { font-weight: 400; color: var(--muted); font-size: .85em; }
    .facts .memory { color: var(--memory); } .facts .compute { color: var(--compute); }
    pre { font: .86em/1.6 ui-monospace, monospace; white-space: pre-wrap; margin: .6rem 0 0; overflow-wrap: anywhere; }
    .num td, .num thead th { text-align: right; } .num th { font-weight: 400; } .num thead th { font-weight: 600; }
    .num td { white-space: nowrap; } .key { margin-right: .9em; white-space: nowrap; }
    .num thead th:first-child { text-align: left; } .num { font-variant-numeric: tabular-nums; }
    .bar { display: flex; position: relative; height: 1.5rem; margin-top: .6rem; border: 1px solid var(--line); border-radius: 4px; overflow: hidden; }
    .bar > span { border-right: 1px solid var(--ground); } .bar > i { position: absolute; height: 100%; border-left: 3px dashed var(--ink); }
    .stop { border: 2px solid var(--bad); border-radius: 4px; padding: .5rem .7rem; margin-top: .6rem; }
    .act h3 { margin: 1.2rem 0 .3rem; font-size: 1.05em; } .act ol, .act ul { margin: .3rem 0 0; padding-left: 1.4rem; }`);

  // As on the axis: no PFLOP/s
  const rate = (v, digits = 3) => (v >= 1e12 ? `${core.significant(v / 1e12, Math.max(digits, Math.floor(Math.log10(v / 1e12)) + 1))} TFLOP/s` : si(v, "FLOP/s", digits));

  // ---- the chart ---------------------------------------------------------------------------------

  const SHAPES = ["circle", "square", "up", "diamond", "down", "plus", "cross"];
  const DASHES = [null, "7 3", "2 3", "8 3 2 3"];

  // A marker's outline about the origin, r its "radius"
  function shape(kind, r) {
    const s = r * 0.9, t = r * 1.15, w = r * 0.36;
    return {
      circle: `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
      square: `M${-s},${-s}H${s}V${s}H${-s}z`,
      up: `M0,${-t}L${t},${s}H${-t}z`,
      down: `M0,${t}L${t},${-s}H${-t}z`,
      diamond: `M0,${-t}L${t},0L0,${t}L${-t},0z`,
      plus: `M${-w},${-t}H${w}V${-w}H${t}V${w}H${w}V${t}H${-w}V${w}H${-t}V${-w}H${-w}z`,
      cross: `M${-t},${-s}L${-s},${-t}L0,${-w}L${s},${-t}L${t},${-s}L${w},0L${t},${s}L${s},${t}L0,${w}L${-s},${t}L${-t},${s}L${-w},0z`,
    }[kind];
  }

  const short = (v) => {
    for (const [limit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
      if (v >= limit * 0.9999) return `${+(v / (letter === "k" ? 1e3 : limit)).toPrecision(3)}${letter}`;
    return String(+v.toPrecision(3));
  };

  // A log–log roofline that follows the width of what it stands in. draw({roofs, points, say}):
  // roofs  [{name, peak, bandwidth, vector?}]: one has its regions shaded, several have a colour each
  // points [{key, x, y, label, series?, hollow?, size?, drop?}] in FLOP/byte and FLOP/s
  // say    the conclusion, for those who cannot see it
  function chart() {
    const title = svg("title", { id: "t" }), back = svg("g"), dots = svg("g"), names = svg("g");
    const root = svg("svg", { role: "img", "aria-labelledby": "t" }, title, back, dots, names);
    const node = el("div", { class: "plot" }, root);
    const kept = new Map(), pen = document.createElement("canvas").getContext("2d");
    pen.font = FONT;
    let last = null, width = 0;

    function draw(given = last) {
      if (!given) return;
      last = given;
      title.textContent = given.say;
      const W = Math.max(width || 640, 260), narrow = W < 480;
      const H = Math.round(Math.min(Math.max(W * 0.62, 270), 420));
      const box = { left: 46, right: W - 10, top: 30, bottom: H - 42 };
      root.setAttribute("viewBox", `0 0 ${W} ${H}`);

      // Whole decades, so that the axes stand still while a point moves
      const { roofs, points } = given;
      const xs = points.map((p) => p.x), ridges = roofs.map((r) => r.peak / r.bandwidth);
      const decade = (v, up) => 10 ** (up ? Math.ceil : Math.floor)(Math.log10(v) + (up ? -1e-9 : 1e-9));
      const x0 = decade(Math.min(...xs, ...ridges.map((r) => r / 20)) * 0.7, false);
      const x1 = decade(Math.max(...xs, ...ridges.map((r) => r * 4)) * 1.3, true);
      const peak = Math.max(...roofs.map((r) => r.peak)), slow = Math.min(...roofs.map((r) => r.bandwidth));
      const y0 = decade(Math.min(slow * x0 * 2, peak / 100, ...points.map((p) => p.y * 0.7)), false);
      const y1 = Math.max(peak, ...points.map((p) => p.y)) * 2.6;
      const X = (v) => box.left + ((box.right - box.left) * Math.log10(v / x0)) / Math.log10(x1 / x0);
      const Y = (v) => box.bottom - ((box.bottom - box.top) * Math.log10(v / y0)) / Math.log10(y1 / y0);

      // What may not be covered: texts weigh most, then markers, then lines
      const taken = [];
      const cost = (b, least = 0) => taken.reduce((sum, t) => t.cost >= least &&
        b.x < t.x + t.w && t.x < b.x + b.w && b.y < t.y + t.h && t.y < b.y + b.h ? sum + t.cost : sum, 0);
      const size = (text) => pen.measureText(text).width + 3;
      const out = [], over = [];
      const text = (x, y, words, attrs = {}, angle = 0) => {
        const rotate = angle ? { transform: `rotate(${angle} ${x} ${y})` } : {};
        out.push(svg("text", { x, y, class: "halo", ...attrs, ...rotate }, words));
      };
      const claim = (x, y, w, cost = 50) => taken.push({ x, y: y - 12, w, h: 16, cost });
      const line = (d, attrs) => out.push(svg("path", { d, fill: "none", ...attrs }));

      // Axes: a tick each decade, or each second one where they would crowd
      const decades = (from, to) => {
        const all = [];
        for (let e = Math.ceil(Math.log10(from) - 1e-9); 10 ** e <= to * 1.0001; e++) all.push(10 ** e);
        return all;
      };
      const grid = [], ticksX = decades(x0, x1), ticksY = decades(y0, y1);
      const step = (box.right - box.left) / ticksX.length < 44 ? 2 : 1;
      const unit = peak >= 1e12 ? ["T", 1e12] : ["G", 1e9];
      for (const v of ticksX) grid.push(`M${X(v)},${box.top}V${box.bottom}`);
      for (const v of ticksY) grid.push(`M${box.left},${Y(v)}H${box.right}`);
      line(grid.join(""), { class: "grid" });
      ticksX.forEach((v, i) => i % step || text(Math.min(X(v), W - size(short(v)) / 2), box.bottom + 17, short(v), { class: "tick", "text-anchor": "middle" }));
      for (const v of ticksY) text(box.left - 7, Y(v) + 4, short(v / unit[1]), { class: "tick", "text-anchor": "end" });
      text(box.right, H - 6, narrow ? "FLOP/byte" : "arithmetic intensity (FLOP/byte)", { "text-anchor": "end" });
      text(2, 14, `attainable (${unit[0]}FLOP/s)`);

      const at = (r, x) => Math.min(r.peak, r.bandwidth * x);
      // From where the roof enters the picture to where it leaves it
      const path = (r, from = x0, to = x1) => {
        const ridge = r.peak / r.bandwidth, start = Math.max(from, y0 / r.bandwidth), list = [start, to];
        if (ridge > start && ridge < to) list.splice(1, 0, ridge);
        return list.map((x, i) => `${i ? "L" : "M"}${X(x)},${Y(at(r, x))}`).join("");
      };
      const fence = (r) => {
        for (let px = box.left; px < box.right; px += 9) {
          const y = Y(at(r, x0 * (x1 / x0) ** ((px - box.left) / (box.right - box.left))));
          taken.push({ x: px, y: y - 4, w: 9, h: 8, cost: 3 });
        }
      };
      const ridge = (r, i, color) => {
        const x = r.peak / r.bandwidth;
        over.push(svg("path", { d: shape(SHAPES[i % SHAPES.length], 5), transform: `translate(${X(x)} ${Y(r.peak)})`,
          fill: "var(--ground)", stroke: color, "stroke-width": 1.6 }));
        taken.push({ x: X(x) - 7, y: Y(r.peak) - 7, w: 14, h: 14, cost: 20 });
        return x;
      };

      for (const p of points) taken.push({ x: X(p.x) - 6, y: Y(p.y) - 6, w: 12, h: 12, cost: 20 });
      for (const p of points) if (p.drop) line(`M${X(p.x)},${box.bottom}V${Y(p.y)}`, { stroke: "var(--muted)", "stroke-dasharray": "2 3" });
      if (roofs.length === 1) {
        const [r] = roofs, knee = Math.min(Math.max(r.peak / r.bandwidth, x0), x1);
        const parts = [["memory", x0, knee], ["compute", knee, x1]].filter(([, a, b]) => b > a * 1.001);
        for (const [part, a, b] of parts) {
          const start = Math.max(a, y0 / r.bandwidth);
          out.push(svg("path", { d: `${path(r, a, b)}V${box.bottom}H${X(start)}z`, fill: `var(--${part})`, opacity: 0.1 }));
          line(path(r, a, b), { stroke: `var(--${part})`, "stroke-width": 2.6, "stroke-linecap": "round" });
          const words = `${part}-bound`, room = X(b) - X(start);
          if (room < size(words) + 8) continue;
          const middle = (X(start) + X(b)) / 2;
          text(middle, box.bottom - 8, words, { "text-anchor": "middle", "font-style": "italic", class: `${part} halo` });
          claim(middle - size(words) / 2, box.bottom - 8, size(words));
        }
        line(`M${X(knee)},${Y(r.peak)}V${box.bottom}`, { stroke: "var(--muted)", "stroke-dasharray": "2 3" });
        const ceiling = `peak ${rate(r.peak, 4)}`;
        text(box.right - 3, Y(r.peak) - 7, ceiling, { "text-anchor": "end", class: "compute halo" });
        claim(box.right - 3 - size(ceiling), Y(r.peak) - 7, size(ceiling));
        if (r.vector && r.vector < r.peak) {
          const words = `vector ${narrow ? "" : "unit "}${rate(r.vector)}`;
          line(`M${X(Math.max(r.vector / r.bandwidth, x0))},${Y(r.vector)}H${box.right}`, { stroke: "var(--compute)", "stroke-width": 1.5, "stroke-dasharray": "6 4" });
          text(box.right - 3, Y(r.vector) - 6, words, { "text-anchor": "end", class: "compute halo" });
          claim(box.right - 3 - size(words), Y(r.vector) - 6, size(words));
        }
        fence(r);
        const x = ridge(r, 0, "var(--ink)");
        label(X(x), Y(r.peak), `ridge ${short(x)}`, true);
      } else {
        // Under the roofs, at the right, is free room for their names
        roofs.forEach((r, i) => {
          const color = `var(--s${i % 7})`, y = box.bottom - 9 - 16 * (roofs.length - 1 - i);
          line(path(r), { stroke: color, "stroke-width": 2.2, "stroke-dasharray": DASHES[i % 4] });
          fence(r);
          const words = `${r.name}, ridge ${short(ridge(r, i, color))}`;
          out.push(svg("path", { d: shape(SHAPES[i % 7], 4), transform: `translate(${box.right - size(words) - 7} ${y - 4})`, fill: "var(--ground)", stroke: color, "stroke-width": 1.6 }));
          text(box.right - 2, y, words, { "text-anchor": "end" });
          claim(box.right - size(words) - 14, y, size(words) + 14);
        });
      }

      // A name goes where it covers least, beside its point; away from it only with a line
      function label(px, py, words, must) {
        const w = size(words), tries = [];
        for (const d of [9, 22, 38, 60]) for (const [h, v] of [[-1, -0.6], [1, 0.6], [0, -1], [0, 1], [-1, 0.6], [1, -0.6], [1, 0], [-1, 0]]) {
          const x = px + h * d + (h < 0 ? -w : h > 0 ? 0 : -w / 2), y = py + v * d + (v < 0 ? -2 : v > 0 ? 11 : 4);
          if (x < box.left + 1 || x + w > box.right || y - 12 < box.top - 14 || y > box.bottom - 3) continue;
          tries.push({ x, y, d, cost: cost({ x, y: y - 12, w, h: 16 }) + d / 6 });
        }
        const best = tries.sort((a, b) => a.cost - b.cost)[0];
        if (!best || (best.cost > 40 && !must)) return;
        if (best.d > 9) over.push(svg("path", { class: "lead", d: `M${px},${py}L${Math.min(Math.max(px, best.x), best.x + w)},${best.y - (best.y > py ? 11 : -2)}` }));
        over.push(svg("text", { x: best.x, y: best.y, class: "halo" }, words));
        claim(best.x, best.y, w);
      }

      const seen = new Set();
      points.forEach((p, i) => {
        const color = p.series === undefined ? "var(--ink)" : `var(--s${p.series % 7})`;
        let dot = kept.get(p.key);
        if (!dot) {
          dot = svg("path", { class: "dot" });
          kept.set(p.key, dot);
        }
        if (dots.children[i] !== dot) dots.insertBefore(dot, dots.children[i] || null);
        seen.add(p.key);
        dot.setAttribute("d", shape(SHAPES[(p.shape ?? p.series ?? 0) % 7], p.size || 5.5));
        dot.setAttribute("fill", p.hollow ? "var(--ground)" : color);
        dot.setAttribute("stroke", p.hollow ? color : "var(--ground)");
        dot.setAttribute("stroke-width", p.hollow ? 1.6 : 1);
        dot.style.transform = `translate(${X(p.x)}px,${Y(p.y)}px)`;
      });
      for (const [key, dot] of kept) if (!seen.has(key)) { dot.remove(); kept.delete(key); }
      // Points that lie on each other share a name: that of the largest
      const groups = [];
      for (const p of [...points].sort((a, b) => (b.size || 0) - (a.size || 0))) {
        if (!p.label) continue;
        const near = groups.find((g) => Math.hypot(X(g.p.x) - X(p.x), Y(g.p.y) - Y(p.y)) < (points.length > 4 ? 16 : 0));
        if (near) near.more += 1; else groups.push({ p, more: 0 });
      }
      for (const { p, more } of groups) label(X(p.x), Y(p.y), more ? `${p.label} ${narrow ? `+ ${more}` : `and ${more} more`}` : p.label, points.length < 4);
      // Where there is room after all others: the bandwidth, along the slope, above it or below
      if (roofs.length === 1) {
        const [r] = roofs, knee = X(Math.min(Math.max(r.peak / r.bandwidth, x0), x1));
        const a = { x: X(Math.max(x0, y0 / r.bandwidth)), y: Y(Math.max(y0, r.bandwidth * x0)) }, b = { x: knee, y: Y(r.peak) };
        const words = `memory ${si(r.bandwidth, "B/s")}`, long = size(words), length = Math.hypot(b.x - a.x, b.y - a.y);
        const angle = Math.atan2(b.y - a.y, b.x - a.x), cos = Math.cos(angle), sin = Math.sin(angle);
        const spots = [];
        for (const off of [9, -17]) for (const t of [0.4, 0.36, 0.45, 0.5, 0.55, 0.6, 0.65, 0.3, 0.2, 0.7, 0.8]) {
          if (long / 2 / length > Math.min(t, 1 - t)) continue;
          const x = a.x + t * (b.x - a.x) + off * sin, y = a.y + t * (b.y - a.y) - off * cos, boxes = [];
          if (x - (long / 2) * cos + 9 * sin < box.left - 6) continue;
          for (let s = -long / 2; s <= long / 2; s += long / 10)
            boxes.push({ x: x + s * cos + 4 * sin - 9, y: y + s * sin - 4 * cos - 9, w: 18, h: 18, cost: 50 });
          spots.push({ x, y, angle, boxes, cost: boxes.reduce((sum, one) => sum + cost(one, 20), 0) + (off < 0) }); // not its own line
        }
        for (const t of [0, 0.1, 0.2, 0.3, 0.4, 0.5]) { // or level, below it, inside the axes
          const x = a.x + t * (b.x - a.x) + 6 + long / 2, y = a.y + t * (b.y - a.y) + 16;
          const own = { x: x - long / 2, y: y - 12, w: long, h: 16, cost: 50 };
          if (y > box.bottom - 4 || own.x + long > box.right) continue;
          spots.push({ x, y, angle: 0, boxes: [own], cost: cost(own, 20) + 2 + t });
        }
        const spot = spots.sort((u, v) => u.cost - v.cost)[0];
        if (spot?.cost < 50) {
          text(spot.x, spot.y, words, { "text-anchor": "middle", class: "memory halo" }, (spot.angle * 180) / Math.PI);
          taken.push(...spot.boxes);
        }
      }
      line(`M${box.left},${box.top}V${box.bottom}H${box.right}`, { class: "axis" });
      back.replaceChildren(...out);
      names.replaceChildren(...over);
    }

    new ResizeObserver(([entry]) => {
      const now = Math.round(entry.contentRect.width);
      if (now && now !== width) { width = now; draw(); }
    }).observe(node);
    return { node, draw };
  }

  // ---- fields, facts, tables ---------------------------------------------------------------------

  const number = (v, digits = 3) => core.significant(v, digits);
  const percent = (share) => (share > 9.995 ? `${number(share)} times` : `${number(100 * share, share < 0.0995 ? 2 : share < 0.995 ? 2 : 3)} %`);
  const chips = () => tables.chips.map((c) => [c.key, c.name.replace(/^(NVIDIA|AMD) /, "")]);
  // What a chip computes in: the matrix unit's types first
  const types = (chip) => {
    const c = model.chip(chip), all = [...new Set([...Object.keys(c.matrix), ...Object.keys(c.vector)])];
    return all.map((t) => [t, t in c.matrix ? t : `${t} (vector unit)`]);
  };
  const typed = (v) => (typeof v === "number" && v >= 1e7 ? v.toExponential().replace("+", "") : String(v));
  const stands = (options, v) => options.some(([one]) => one === v);

  /* Fields for a setting. specs: {name: {label, options | min, max, integer, unit}}, where options
     may be a function of the setting. Values come from the page's address, else from what the
     reader had last (with `keep`), else from `start`; only sound ones. update(setting) after each
     change returns what to say to those who cannot see it. */
  function settings(ui, key, start, specs, update, keep) {
    const now = { ...start }, fields = {}, names = Object.keys(specs);
    const options = (name) => (typeof specs[name].options === "function" ? specs[name].options(now) : specs[name].options);
    const given = { ...(keep && core.ledger.get(key)?.value), ...core.state.read(key) };
    const take = (name, v) => {
      const got = specs[name].options ? (stands(options(name), v) ? v : undefined) : core.parse(v, specs[name]).value;
      if (got !== undefined) now[name] = got;
    };
    // A chip without the type that was chosen before takes its first
    const settle = () => {
      for (const name of names) {
        if (typeof specs[name].options !== "function") continue;
        const all = options(name);
        if (!stands(all, now[name])) now[name] = (all.find(([v]) => v === start[name]) || all[0])[0];
        fields[name]?.input.replaceChildren(...all.map(([v, text]) => el("option", { value: v, selected: v === now[name] }, text)));
      }
    };
    for (const name of names) if (name in given) take(name, given[name]);
    settle();
    let timer = 0;
    const changed = (from) => {
      settle();
      const said = update(now, fields);
      if (!from) return;
      core.state.write(key, now);
      clearTimeout(timer);
      timer = setTimeout(() => {
        ui.say(said);
        if (keep) core.ledger.set(key, { question: keep, value: { ...now }, given: said, right: null, answer: said });
      }, 700);
    };
    for (const name of names) {
      const spec = { ...specs[name], value: typed(now[name]), onvalue: (v) => { now[name] = v; changed(name); } };
      fields[name] = spec.options ? core.choose({ ...spec, options: options(name) }) : core.field(spec);
    }
    return {
      now,
      node: el("div", { class: "controls" }, names.map((name) => fields[name].node)),
      draw: () => changed(null),
      set(values) {
        for (const [name, v] of Object.entries(values)) { now[name] = v; fields[name].set(typed(v)); }
        fields[Object.keys(values)[0]].input.focus(); // the button that was pressed may be gone
        changed("set");
      },
    };
  }

  // Cards: [name, value, a second line, class]
  const facts = (list) => el("dl", { class: "facts" }, list.filter(Boolean).map(([name, value, more, kind]) =>
    el("div", {}, el("dt", {}, name), el("dd", { class: kind }, value), more && el("dd", {}, more))));
  const grid = (caption, head, rows) => core.scrolls(el("div", { class: "scroll", role: "region", "aria-label": caption },
    el("table", { class: "num" }, el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first), rest.map((c) => el("td", {}, c))))))));
  const fold = (name, ...inside) => el("details", {}, el("summary", {}, name), ...inside);
  const heading = (text) => el("p", {}, el("strong", {}, text));
  const word = (bound) => `${bound}-bound`;

  // ---- the instruments ---------------------------------------------------------------------------

  // A kernel of any intensity under the roof of a chip
  core.define("point", (host, data, ui) => {
    const picture = chart(), below = el("div");
    const form = settings(ui, data.key, data.start, {
      chip: { label: "Chip", options: chips() },
      dtype: { label: "Data type", options: (now) => types(now.chip) },
      intensity: { label: "FLOP/byte", min: 0.01, max: 1e5 },
      flops: { label: "FLOPs in all", min: 1, max: 1e24 },
    }, (now) => {
      const roof = model.roof(now.chip, now.dtype), { intensity } = now;
      const top = model.attainable(roof, intensity), bound = model.bound(roof, intensity);
      const say = `${number(intensity)} FLOP/byte on ${roof.name}: ${word(bound)}, at most ${rate(top)}, ${percent(top / roof.peak)} of the peak.`;
      picture.draw({ roofs: [roof], points: [{ key: "p", x: intensity, y: top, label: rate(top), drop: true }], say });
      below.replaceChildren(
        facts([["attainable", rate(top), `${percent(top / roof.peak)} of the peak`],
          ["bound", word(bound), `ridge ${number(roof.ridge)} FLOP/byte`, bound],
          ["least time", si(now.flops / top, "s"), `${si(now.flops / intensity, "B")} to move`]]),
        el("pre", {}, `min(peak, bandwidth · I) = min(${rate(roof.peak, 4)}, ${si(roof.bandwidth, "B/s")} · ${number(intensity)} FLOP/byte)\n`
          + `= min(${rate(roof.peak, 4)}, ${rate(roof.bandwidth * intensity, 4)}) = ${rate(top, 4)}`));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    form.draw();
  });

  // Roofs of several chips, and on which of them a square matmul is compute-bound
  core.define("ridges", (host, data, ui) => {
    const picture = chart(), below = el("div"), none = [["", "–"]];
    const slots = ["a", "b", "c", "d"];
    const form = settings(ui, data.key, data.start, {
      ...Object.fromEntries(slots.map((s, i) => [s, { label: `Chip ${i + 1}`, options: i ? [...none, ...chips()] : chips() }])),
      dtype: { label: "Data type", options: (now) => types(now.a).map(([t]) => [t, t]) },
      n: { label: "Matmul of size N", min: 1, max: 1e6, integer: true },
    }, (now) => {
      const keys = [...new Set(slots.map((s) => now[s]).filter(Boolean))];
      const able = keys.filter((k) => stands(types(k), now.dtype)), roofs = able.map((k) => model.roof(k, now.dtype));
      const job = model.matmul(now.n, now.n, now.n, now.dtype), label = `N = ${number(now.n, 7)}`;
      const bounds = roofs.map((r) => model.bound(r, job.intensity));
      const on = (bound) => able.filter((_, i) => bounds[i] === bound).map((k) => model.chip(k).name).join(", ") || "none";
      const say = `A ${now.dtype} matmul of size ${number(now.n, 7)} does ${number(job.intensity)} FLOP/byte. Compute-bound on: ${on("compute")}. Memory-bound on: ${on("memory")}.`;
      picture.draw({ say, roofs: roofs.map((r, i) => ({ ...r, name: model.chip(able[i]).name })), points: roofs.map((r, i) =>
        ({ key: able[i], x: job.intensity, y: model.attainable(r, job.intensity), series: i, drop: i === 0, label: i ? "" : label })) });
      below.replaceChildren(grid("The chips compared", ["chip", "peak", "memory", "ridge", "compute-bound from N", label],
        keys.map((k) => {
          const c = model.chip(k), i = able.indexOf(k), r = roofs[i];
          return r ? [c.name, rate(r.peak), si(r.bandwidth, "B/s"), number(r.ridge), number(model.firstComputeBound(r, now.dtype), 7), word(bounds[i])]
            : [c.name, `no ${now.dtype}`, si(c.bandwidth, "B/s"), "–", "–", "–"];
        })));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    form.draw();
  });

  // A matmul of any shape; with `achieved`, also what share of its roof a measured rate is
  function product(ui, data, keep) {
    const picture = chart(), below = el("div");
    const side = (label) => ({ label, min: 1, max: 1e6, integer: true });
    const form = settings(ui, data.key, data.start, {
      chip: { label: "Chip", options: chips() },
      dtype: { label: "Data type", options: (now) => types(now.chip) },
      m: side("M"), n: side("N"), k: side("K"),
      ...(data.start.achieved && { achieved: { label: "Achieved (TFLOP/s)", min: 0.001, max: 1e6 } }),
    }, (now) => {
      const { m, n, k } = now, roof = model.roof(now.chip, now.dtype), job = model.matmul(m, n, k, now.dtype);
      const top = model.attainable(roof, job.intensity), bound = model.bound(roof, job.intensity), achieved = now.achieved * 1e12;
      const name = [m, n, k].map((v) => number(v, 7)).join(" × "), bytes = tables.bits[now.dtype] / 8;
      const share = achieved && model.efficiency(roof, achieved, job.intensity);
      const point = { key: "p", x: job.intensity, y: top, label: m === n && n === k ? `N = ${number(n, 7)}` : name, drop: true, hollow: !!achieved };
      const say = `${name} in ${now.dtype} on ${roof.name}: ${number(job.intensity)} FLOP/byte, ridge ${number(roof.ridge)}: ${word(bound)}, at most ${rate(top)}, ${percent(top / roof.peak)} of the peak.`
        + (achieved ? ` Achieved: ${percent(share)} of that roof.` : "");
      picture.draw({ roofs: [{ ...roof, vector: null }], say, points: [point, ...(achieved
        ? [{ key: "a", x: job.intensity, y: achieved, series: 3, label: `${percent(share)} of the roof` }] : [])] });
      below.replaceChildren(
        facts([["arithmetic intensity", `${number(job.intensity)} FLOP/byte`, `ridge ${number(roof.ridge)}`],
          ["attainable", rate(top), `least time ${si(model.time(roof, job).seconds, "s")}`],
          ["share of the peak, at most", percent(top / roof.peak), `peak ${rate(roof.peak)}`],
          ["regime", word(bound), bound === "memory" ? "left of the ridge" : "at or right of it", bound],
          achieved && ["achieved of the peak (MFU)", percent(model.mfu(roof, achieved)), rate(achieved)],
          achieved && ["achieved of the roof", percent(share), share > 1 ? "above the roof: not possible here" : `${rate(top - achieved)} left to gain`]]),
        el("pre", {}, `FLOPs = 2 · M · N · K = 2 · ${[m, n, k].join(" · ")} = ${si(job.flops, "FLOP")}\n`
          + `bytes = (M·K + K·N + M·N) · ${bytes} = ${si(job.bytes, "B")}\n`
          + `I = ${si(job.flops, "FLOP")} / ${si(job.bytes, "B")} = ${number(job.intensity)} FLOP/byte\n`
          + `ridge = ${rate(roof.peak, 4)} / ${si(roof.bandwidth, "B/s")} = ${number(roof.ridge)} FLOP/byte\n`
          + `attainable = min(${rate(roof.peak, 4)}, ${si(roof.bandwidth, "B/s")} · ${number(job.intensity)} FLOP/byte)\n`
          + `= min(${rate(roof.peak, 4)}, ${rate(roof.bandwidth * job.intensity, 4)}) = ${rate(top, 4)}`));
      return say;
    }, keep);
    const square = el("button", { type: "button", class: "quiet", onclick: () => { const { m } = form.now; form.set({ n: m, k: m }); } }, "Square: N and K as M");
    return { draw: form.draw, node: [form.node, el("p", { class: "buttons" }, square), picture.node, below] };
  }
  core.define("matmul", (host, data, ui) => {
    const one = product(ui, data);
    ui.root.append(heading(data.title), ...one.node);
    one.draw();
  });

  // LayerNorm → GELU → dropout → add, cut into kernels in any way
  core.define("chain", (host, data, ui) => {
    const picture = chart(), below = el("div"), joints = ["ab", "bc", "cd"];
    const ops = ["layernorm", "gelu", "dropout", "add"], titles = ["LayerNorm", "GELU", "dropout", "add"];
    const chain = ({ rows, width, dtype }) => {
      const pass = (op, reads, y) => model.elementwise(rows * width, Object.fromEntries(reads.map((t) => [t, dtype])),
        { [y]: dtype }, tables.costs[op].element, dtype, op);
      return [model.rowwise("layernorm", rows, width, dtype, { x: "x", y: "a", parameters: ["γ", "β"] }),
        pass("gelu", ["a"], "b"), pass("dropout", ["b", "mask"], "c"), pass("add", ["c", "residual"], "y")];
    };
    const form = settings(ui, data.key, data.start, {
      chip: { label: "Chip", options: chips() },
      dtype: { label: "Data type", options: (now) => types(now.chip).filter(([t]) => ["fp32", "bf16", "fp16"].includes(t)).map(([t]) => [t, t]) },
      rows: { label: "Tokens", min: 1, max: 1e8, integer: true },
      width: { label: "Width", min: 1, max: 1e6, integer: true },
      ...Object.fromEntries(joints.map((j, i) => [j, { label: `${titles[i]} + ${titles[i + 1]}`, options: [["no", "apart"], ["yes", "fused"]] }])),
    }, (now) => {
      const roof = model.roof(now.chip, now.dtype), apart = chain(now), groups = [[0]];
      joints.forEach((j, i) => (now[j] === "yes" ? groups.at(-1).push(i + 1) : groups.push([i + 1])));
      const kernels = groups.map((g) => (g.length > 1 ? model.fuse(g.map((i) => apart[i])) : apart[g[0]]));
      const spent = (list) => list.map((w) => model.time(roof, w).seconds).reduce((a, b) => a + b);
      const moved = (list) => list.map((w) => w.bytes).reduce((a, b) => a + b);
      const before = model.total(apart), after = model.total(kernels), gain = spent(apart) / spent(kernels);
      const tensor = now.rows * now.width * tables.bits[now.dtype] / 8, tensors = (b) => number(b / tensor);
      const say = `${kernels.length} kernel${kernels.length > 1 ? "s" : ""}: ${si(moved(kernels), "B")} in ${si(spent(kernels), "s")}; four kernels move ${number(moved(apart) / moved(kernels))} times as much and take ${number(gain)} times as long.`;
      const at = (w) => ({ x: w.intensity, y: model.attainable(roof, w.intensity) });
      picture.draw({ roofs: [roof], say, points: [{ key: "4", ...at(before), label: "4 kernels", hollow: true },
        ...(kernels.length < 4 ? [{ key: "n", ...at(after), label: `${kernels.length} kernel${kernels.length > 1 ? "s" : ""}` }] : [])] });
      below.replaceChildren(
        facts([["bytes", si(moved(kernels), "B"), `${tensors(moved(kernels))} tensors of ${si(tensor, "B")}`],
          ["least time", si(spent(kernels), "s"), `${si(spent(apart), "s")} as four kernels`],
          ["four kernels move", `${number(moved(apart) / moved(kernels))}×`, "the bytes of yours"],
          ["intensity", `${number(after.intensity)} FLOP/byte`, `ridge ${number(roof.ridge)}`]]),
        grid("The kernels", ["kernel", "tensors", "least time", "reads", "writes"], kernels.map((w, i) => [
          groups[i].map((op) => titles[op]).join(" + "), tensors(w.bytes), si(model.time(roof, w).seconds, "s"),
          Object.keys(w.reads).join(", "), Object.keys(w.writes).join(", ")])));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    form.draw();
  });

  // ---- the labs ----------------------------------------------------------------------------------

  // Story; a question that must be answered; what it unlocks; reflection; equations; the ledger
  function lab(host, data, ui, open) {
    const locked = el("p", { class: "muted" }, data.locked), play = el("div", { hidden: true });
    const list = (name, items) => [el("h3", {}, name), el("ol", {}, items.map((text) => el("li", {}, text)))];
    const ledger = el(host.localName, { "data-kind": "ledger" }, el("script", { type: "text/turned" }, "{}"));
    let begun = false;
    const asked = core.question(data.predict, ui, (result) => {
      play.hidden = !result;
      locked.hidden = !!result;
      if (!result || begun) return;
      begun = true;
      const one = open();
      play.append(el("h3", {}, "Play"), ...one.node, ...list("Try", data.tasks),
        el("h3", {}, "Look back"), core.question(data.reflect, ui).node, el("h3", {}, "What you predicted, and what happened"), ledger);
      one.draw();
    });
    ui.root.append(el("div", { class: "act" }, data.story.map((text) => el("p", {}, text)), el("h3", {}, "Predict"), asked.node, locked, play,
      fold("The governing equations", el("pre", {}, data.equations.join("\n")))));
  }
  core.define("memory-wall", (host, data, ui) => lab(host, data, ui, () => product(ui, data, data.keep)));

  // One step of serving a language model: its kernels on the roofline, its memory, its tokens
  function design(ui, data) {
    const picture = chart(), below = el("div"), size = tables.model;
    const head = el("summary"), rows = el("div"), all = el("details", {}, head, rows);
    let asked = "", best = null; // the best batch does not depend on the batch: it is kept
    const kind = (k) => (k.matrix === 0 ? 2 : k.ops.some((op) => /·|attention/.test(op)) ? 1 : 0);
    const mark = (sign, color, text) => {
      const key = el("span", { "aria-hidden": "true" }, `${sign} `);
      key.style.color = color;
      return el("span", { class: "key" }, key, text);
    };
    const legend = el("p", { class: "muted" }, [["●", 0, "products with weights"], ["■", 1, "attention"], ["▲", 3, "norms, RoPE, SwiGLU, adds"]]
      .map(([sign, i, text]) => mark(sign, `var(--s${i})`, text)), "The larger the mark, the more of the step's time it takes.");
    const whole = (label, max) => ({ label, min: 1, max, integer: true });
    const pick = (now) => {
      const [weights, activations] = now.format.split("/");
      return { ...now, weights, activations };
    };
    const form = settings(ui, data.key, data.start, {
      chip: { label: "Chip", options: chips() },
      phase: { label: "Phase", options: [["decode", "decode"], ["prefill", "prefill"]] },
      batch: whole("Batch", 1e5),
      context: whole("Context", 2 ** 20),
      format: { label: "Weights", options: (now) => model.formats(now.chip).map(({ weights, activations }) =>
        [`${weights}/${activations}`, weights === activations ? (weights === model.chip(now.chip).half ? weights : `${weights} throughout`) : weights]) },
      cache: { label: "KV cache", options: (now) => model.types(now.chip).map((t) => [t, t]) },
      fusion: { label: "Fusion", options: [["none", "none"], ["pointwise", "pointwise"], ["epilogue", "into products"]] },
      attention: { label: "Attention", options: [["naive", "naive"], ["flash", "flash"]] },
      latency: { label: "Target (ms)", min: 0.01, max: 1e7 },
    }, (now) => {
      const setting = pick(now), one = model.step(setting), { memory: held, kernels } = one;
      const roof = model.roof(now.chip, setting.activations), decode = now.phase === "decode";
      const share = (k) => k.total / one.seconds;
      const waiting = kernels.filter((k) => k.bound === "memory").reduce((sum, k) => sum + share(k), 0);
      const gb = (v) => si(v, "B");
      const result = one.fits ? `${number(one.tokensPerSecond)} tokens/s, ${si(one.seconds, "s")} ${decode ? "per token" : "to the first token"}`
        : `out of memory, ${gb(-one.room)} too much`;
      const say = `${size.name} on ${one.setting.chip.name}, ${now.phase}, batch ${number(now.batch, 7)}, ${number(now.context, 7)} tokens, weights ${setting.weights}, cache ${now.cache}: ${result}; ${percent(waiting)} of the time in memory-bound kernels.`;
      picture.draw({ roofs: [roof], say, points: kernels.filter((k) => k.flops > 0).map((k) => ({ key: k.name, x: k.intensity, y: k.attainable,
        series: [0, 1, 3][kind(k)], shape: kind(k), size: 3.5 + 8 * Math.sqrt(share(k)), label: share(k) > 0.04 ? k.ops[0] : "" })) });

      const parts = [["weights", held.weights, "var(--s0)"], ["KV cache", held.cache, "var(--s1)"], ["activations", held.activations, "var(--s3)"]];
      const full = Math.max(held.total, held.capacity);
      const bar = el("div", { class: "bar", role: "img", "aria-label": `Memory: ${parts.map(([name, v]) => `${name} ${gb(v)}`).join(", ")}, of ${gb(held.capacity)}` },
        parts.map(([, v, color]) => {
          const piece = el("span");
          piece.style.width = `${(100 * v) / full}%`;
          piece.style.background = color;
          return piece;
        }), !one.fits && el("i"));
      if (!one.fits) bar.lastChild.style.left = `${(100 * held.capacity) / full}%`; // where the chip's memory ends
      const use = (text, values) => el("button", { type: "button", class: "quiet", onclick: () => form.set(values) }, text);
      const memoryWords = el("p", {}, `Memory: ${gb(held.total)} of ${gb(held.capacity)}. `, parts.map(([name, v, color]) => mark("■", color, `${name} ${gb(v)}`)));
      let stop = null;
      if (!one.fits) {
        const other = model.instead(setting);
        const ways = [other.batch && use(`Batch ${number(other.batch, 7)}`, { batch: other.batch }),
          other.context && use(`Context ${number(other.context, 7)}`, { context: other.context }),
          ...other.narrower.slice(0, 2).map((t) => use(`Weights ${t.weights}, cache ${t.cache}`, { format: `${t.weights}/${t.activations}`, cache: t.cache }))].filter(Boolean);
        stop = el("div", { class: "stop" }, el("strong", {}, `Out of memory: ${gb(held.total)} needed, ${gb(-one.room)} more than there is.`),
          ways.length ? el("p", { class: "buttons" }, el("span", {}, "What would fit instead:"), ways) : el("p", {}, "Nothing of this model fits on this chip, at any batch."));
      }
      const key = JSON.stringify({ ...setting, batch: 0 }), target = si(now.latency / 1e3, "s");
      if (key !== asked) [asked, best] = [key, model.bestBatch(setting, now.latency / 1e3)];
      below.replaceChildren(
        facts([["tokens per second", one.fits ? number(one.tokensPerSecond) : "–", one.fits ? `${number(one.tokens, 7)} tokens a step` : "does not fit"],
          [decode ? "time per token" : "time to the first token", one.fits ? si(one.seconds, "s") : "–", `target ${target}${one.fits ? (one.seconds * 1e3 <= now.latency ? ": met" : ": missed") : ""}`],
          ["memory-bound share of the time", percent(waiting), `${gb(one.bytes)} moved a step`, waiting > 0.5 ? "memory" : "compute"],
          ["share of the peak (MFU)", percent(one.mfu), `peak ${rate(one.peak)}`]]),
        bar, memoryWords, ...(stop ? [stop] : []),
        el("p", { class: "buttons" }, el("span", {}, best
          ? `Best batch within ${target}: ${number(best.batch, 7)}, ${number(best.step.tokensPerSecond)} tokens/s. `
          : `No batch fits and meets ${target}. `), best && best.batch !== now.batch && use("Use it", { batch: best.batch })));
      head.textContent = `All ${kernels.length} kernels of the step`;
      rows.replaceChildren(grid("The kernels of the step", ["kernel", "runs", "FLOP/byte", "bound", "of the time"],
        kernels.map((k) => [k.name, k.count, number(k.intensity), k.bound, percent(share(k))])));
      return say;
    }, data.keep);
    return { draw: form.draw, node: [form.node, picture.node, legend, below, all] };
  }
  core.define("design", (host, data, ui) => lab(host, data, ui, () => design(ui, data)));
})();
