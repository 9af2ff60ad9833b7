// The roofline chart of the instruments and the labs: here things are only drawn.
//
// chart.make()            {node, draw(what), drag(moved)}; see there
// chart.rate(v, digits)   FLOP/s as text
const chart = (() => {
  const { el, svg, si } = core;

  const FONT = "12.5px system-ui, sans-serif";
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
    svg.drag { cursor: ew-resize; touch-action: pan-y; user-select: none; } svg.drag .dot { transition: none; }`);

  // As on the axis: no PFLOP/s
  const rate = (v, digits = 3) => (v >= 1e12 ? `${core.significant(v / 1e12, Math.max(digits, Math.floor(Math.log10(v / 1e12)) + 1))} TFLOP/s` : si(v, "FLOP/s", digits));

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
  // reach  intensities that the axis always has, so that it stands still while a point is dragged
  // terms  of another roof than a memory's: what x is, what bounds the slope and the flat part, what
  //        these and the other ceiling (vector, here also above the roof) are called; a roof without
  //        a slope has bandwidth Infinity
  const MEMORY = { x: "arithmetic intensity (FLOP/byte)", narrow: "FLOP/byte", slope: "memory", flat: "compute",
    rise: (r) => `memory ${si(r.bandwidth, "B/s", 4)}`, top: "peak", other: "vector unit", above: false };
  function make() {
    const title = svg("title", { id: "t" }), back = svg("g"), dots = svg("g"), names = svg("g");
    const root = svg("svg", { role: "img", "aria-labelledby": "t" }, title, back, dots, names);
    const node = el("div", { class: "plot" }, root);
    const kept = new Map(), pen = document.createElement("canvas").getContext("2d");
    pen.font = FONT;
    let last = null, width = 0, under = null;

    function draw(given = last) {
      if (!given) return;
      last = given;
      title.textContent = given.say;
      const W = Math.max(width || 640, 260), narrow = W < 480;

      // Whole decades, so that the axes stand still while a point moves
      const { roofs, points } = given, terms = { ...MEMORY, ...given.terms };
      const xs = [...points.map((p) => p.x), ...(given.reach || [])];
      const ridges = roofs.map((r) => r.peak / r.bandwidth).filter((x) => x > 0);
      const decade = (v, up) => 10 ** (up ? Math.ceil : Math.floor)(Math.log10(v) + (up ? -1e-9 : 1e-9));
      const x0 = decade(Math.min(...xs, ...ridges.map((r) => r / 20)) * 0.7, false);
      const x1 = decade(Math.max(...xs, ...ridges.map((r) => r * 4)) * 1.3, true);
      const peak = Math.max(...roofs.map((r) => r.peak)), slow = Math.min(...roofs.map((r) => r.bandwidth));
      const y0 = decade(Math.min(slow * x0 * (given.reach ? 1 : 2), peak / 100, ...points.map((p) => p.y * 0.7)), false);
      const y1 = Math.max(peak, terms.above ? roofs[0].vector : 0, ...points.map((p) => p.y)) * 2.6;
      // A decade is as long on both axes, so that every slope is at 45°, while that isn't too high
      const H = Math.round(Math.min(72 + ((W - 56) * Math.log10(y1 / y0)) / Math.log10(x1 / x0), 560));
      const box = { left: 46, right: W - 10, top: 30, bottom: H - 42 };
      root.setAttribute("viewBox", `0 0 ${W} ${H}`);
      const X = (v) => box.left + ((box.right - box.left) * Math.log10(v / x0)) / Math.log10(x1 / x0);
      const Y = (v) => box.bottom - ((box.bottom - box.top) * Math.log10(v / y0)) / Math.log10(y1 / y0);

      // The intensity under a pointer, as far as the axes stay as they are
      under = ({ clientX }) => {
        const frame = root.getBoundingClientRect();
        const along = ((clientX - frame.left) * W / frame.width - box.left) / (box.right - box.left);
        return Math.min(Math.max(x0 * (x1 / x0) ** along, x0 / 0.7), x1 / 1.3);
      };

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
      text(box.right, H - 6, narrow ? terms.narrow : terms.x, { "text-anchor": "end" });
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
        const parts = [[terms.slope, x0, knee], [terms.flat, knee, x1]].filter(([, a, b]) => b > a * 1.001);
        for (const [bound, a, b] of parts) {
          const part = bound === "compute" ? bound : "memory"; // its colour
          const start = Math.max(a, y0 / r.bandwidth);
          out.push(svg("path", { d: `${path(r, a, b)}V${box.bottom}H${X(start)}z`, fill: `var(--${part})`, opacity: 0.1 }));
          line(path(r, a, b), { stroke: `var(--${part})`, "stroke-width": 2.6, "stroke-linecap": "round" });
          const room = X(b) - X(start), region = [`${bound}-bound`, bound].find((words) => size(words) + 8 <= room);
          if (!region) continue;
          const middle = (X(start) + X(b)) / 2;
          text(middle, box.bottom - 8, region, { "text-anchor": "middle", "font-style": "italic", class: `${part} halo` });
          claim(middle - size(region) / 2, box.bottom - 8, size(region));
        }
        if (knee > x0) line(`M${X(knee)},${Y(r.peak)}V${box.bottom}`, { stroke: "var(--muted)", "stroke-dasharray": "2 3" });
        const ceiling = `${terms.top} ${rate(r.peak, 4)}`, second = r.vector && (terms.above || r.vector < r.peak);
        // A name is above the ridge's marker, and of two ceilings that are close the lower one's is below it
        const near = second && Math.abs(Y(r.vector) - Y(r.peak)) < 18, up = box.right - size(ceiling) < X(knee) + 8 ? -11 : -7;
        const named = (v, up) => Y(v) + (near && v === Math.min(r.peak, r.vector) ? 16 : up);
        text(box.right - 3, named(r.peak, up), ceiling, { "text-anchor": "end", class: `${terms.flat === "compute" ? "compute" : "memory"} halo` });
        claim(box.right - 3 - size(ceiling), named(r.peak, up), size(ceiling));
        if (second) {
          const lower = `${narrow ? terms.other.split(" ")[0] : terms.other} ${rate(r.vector)}`;
          line(`M${X(Math.max(r.vector / r.bandwidth, x0))},${Y(r.vector)}H${box.right}`, { stroke: "var(--compute)", "stroke-width": 1.5, "stroke-dasharray": "6 4" });
          text(box.right - 3, named(r.vector, -6), lower, { "text-anchor": "end", class: "compute halo" });
          claim(box.right - 3 - size(lower), named(r.vector, -6), size(lower));
        }
        fence(r);
        if (r.bandwidth < Infinity) {
          const x = ridge(r, 0, "var(--ink)");
          label(X(x), Y(r.peak), `ridge ${short(x)}`, true);
        }
      } else {
        // Under the roofs, at the right, is free room for their names
        roofs.forEach((r, i) => {
          const color = `var(--s${(i + 2) % 7})`, y = box.bottom - 9 - 16 * (roofs.length - 1 - i);
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
      if (roofs.length === 1 && roofs[0].bandwidth < Infinity) {
        const [r] = roofs, knee = X(Math.min(Math.max(r.peak / r.bandwidth, x0), x1));
        const a = { x: X(Math.max(x0, y0 / r.bandwidth)), y: Y(Math.max(y0, r.bandwidth * x0)) }, b = { x: knee, y: Y(r.peak) };
        const level = terms.rise(r), long = size(level), length = Math.hypot(b.x - a.x, b.y - a.y);
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
          text(spot.x, spot.y, level, { "text-anchor": "middle", class: "memory halo" }, (spot.angle * 180) / Math.PI);
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
    const drag = (moved) => {
      root.classList.add("drag");
      const move = (event) => moved(Number(under(event).toPrecision(2)));
      // A finger may only want to scroll the page: it moves the point once it goes sideways, or taps
      let put = null;
      root.addEventListener("pointerdown", (event) => {
        root.setPointerCapture(event.pointerId);
        put = event.pointerType === "touch" && event;
        if (!put) move(event);
      });
      root.addEventListener("pointermove", (event) => {
        if (!(event.buttons & 1) || put && Math.abs(event.clientX - put.clientX) <= Math.abs(event.clientY - put.clientY)) return;
        put = null;
        move(event);
      });
      root.addEventListener("pointerup", (event) => put && move(event));
    };
    return { node, draw, drag };
  }

  return { make, rate };
})();
