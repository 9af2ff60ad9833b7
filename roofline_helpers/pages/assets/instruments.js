// The instruments of the pages. What they compute comes from model.js and verdicts.js, how it is drawn
// from chart.js, their starting values from Python as data; the labs take their fields, cards and
// tables from here, too.
const instruments = (() => {
  const { el, si } = core, { rate } = chart;

  core.style(`
    .controls { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.4rem, 1fr)); gap: .5rem .9rem; align-items: start; margin-top: .6rem; }
    .sides:has(> :nth-child(2)) { grid-column: span 2; display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .5rem; } .controls .sides:has(> .slide) { grid-column: 1 / -1; }
    .sides:not(:has(> :not([hidden]))) { display: none; } .controls input, .controls select { width: 100%; }
    .controls .wide:not([hidden]) { display: block; grid-column: 1 / -1; } .controls input[type=range] { accent-color: var(--memory); }
    .controls .two { grid-column: span 2; }
    .controls .line { flex-wrap: nowrap; } .controls .field:not([hidden]) { display: flex; }
    .facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.2rem, 1fr)); gap: .5rem; margin: .6rem 0 0; }
    .facts > div { background: var(--field); border: 1px solid var(--soft); border-radius: 4px; padding: .4rem .6rem; }
    .facts dt { color: var(--muted); font-size: .85em; } .facts dd { margin: 0; font-weight: 600; }
    .facts dd + dd { font-weight: 400; color: var(--muted); font-size: .85em; }
    .facts .bad { color: var(--bad); } .facts .memory { color: var(--memory); } .facts .compute { color: var(--compute); }
    pre { font: .86em/1.6 ui-monospace, monospace; white-space: pre-wrap; margin: .6rem 0 0; overflow-wrap: anywhere; }
    .num td, .num thead th { text-align: right; } .num th { font-weight: 400; } .num thead th { font-weight: 600; }
    @container (min-width: 30rem) { .num td { white-space: nowrap; } } @container (max-width: 30rem) { .num :is(th, td) { padding-right: .4rem; } } .key { margin-right: .9em; display: inline-block; }
    .num thead th:first-child { text-align: left; } .num { font-variant-numeric: tabular-nums; }
    .controls .slide:not([hidden]) { display: flex; flex-direction: row; align-items: end; } .slide .field { flex: none; width: 7.5rem; } .slide > input { flex: 1; min-width: 0; min-height: 2.2rem; }`);

  // ---- fields, facts, tables ---------------------------------------------------------------------

  const number = (v, digits = 3) => core.significant(v, digits);
  const percent = (share) => (share > 9.995 ? `${number(share)} times` : `${number(100 * share, share < 0.0995 ? 2 : share < 0.995 ? 2 : 3)}%`);
  const chips = () => tables.chips.map((c) => [c.key, c.name.replace(/^(NVIDIA|AMD) /, "")]);
  // Chips of the reader's own, the second where several are compared: a peak and a bandwidth, from
  // two more fields each
  const OWN = { own: ["", "your chip"], own2: ["2", "your second chip"] };
  const ours = () => [...chips(), ["own", "your own"]];
  // One of several chips: each of your own in one of them only
  const oneOf = (slots, slot) => (now) => [...(slot === slots[0] ? [] : [["", "–"]]), ...chips(),
    ...[["own", "your own"], ["own2", "your second"]].filter(([key]) => slots.every((s) => s === slot || now[s] !== key))];
  const ownFields = (key, ...slots) => {
    const [n] = OWN[key], which = n ? "Second" : "Your", when = (now) => slots.some((s) => now[s] === key);
    return { [`peak${n}`]: { label: `${which} TFLOP/s (of this type)`, min: 1e-6, max: 1e6, start: n ? 500 : 1000, when },
      [`memory${n}`]: { label: `${which} GB/s`, min: 1e-3, max: 1e6, start: n ? 1500 : 3000, when } };
  };
  const chipOf = (now, key) => {
    if (!(key in OWN)) return key;
    const [n, name] = OWN[key], same = (v) => Object.fromEntries(Object.keys(tables.bits).map((t) => [t, v]));
    return { key, name, half: "bf16", matrix: same(now[`peak${n}`] * 1e12), vector: {}, bandwidth: now[`memory${n}`] * 1e9, floor: null,
      inside: 0, reached: { matrix: {}, vector: {}, bandwidth: null } };
  };
  const CHIP = { chip: { label: "Chip", options: ours(), wide: true }, ...ownFields("own", "chip") };
  // What a chip computes in: the matrix unit's types first
  const types = (chip) => {
    const c = model.chip(chip), all = [...new Set([...Object.keys(c.matrix), ...Object.keys(c.vector)])];
    return all.map((t) => [t, t in c.matrix ? t : `${t} (vector unit)`]);
  };
  const typed = (v) => (typeof v === "number" && v >= 1e7 ? v.toExponential().replace("+", "") : String(v));
  const stands = (options, v) => options.some(([one]) => one === v);

  /* Fields for a setting. specs: {name: {label, options | min, max, integer, unit, slider, start, when}},
     where options may be a function of the setting, a field is there while `when` of it is true, and a
     `wide` one has room for a chip's name, and a change of an `anew` one brings the start back.
     Values come from the page's address, else from what the
     reader had last (with `log`), else from `start`; only sound ones. update(setting) after each
     change returns what to say to those who cannot see it; log(setting, said) keeps it once it rests. */
  function settings(ui, key, start, specs, update, log) {
    const now = {}, fields = {}, names = Object.keys(specs);
    for (const name of names) now[name] = start[name] ?? specs[name].start;
    const there = () => names.filter((name) => specs[name].when?.(now) ?? true);
    const options = (name) => (typeof specs[name].options === "function" ? specs[name].options(now) : specs[name].options);
    const given = { ...(log && { ...core.ledger.get(key)?.value, ...core.carried() }), ...core.state.read(key) };
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
    let timer = 0, last = "";
    const put = (values) => { for (const [name, v] of Object.entries(values)) { now[name] = v; fields[name].set(typed(v)); } };
    const changed = (from) => {
      const anew = specs[from]?.anew; // nothing of the new task is the reader's yet
      if (anew) put({ ...start, [from]: now[from] });
      settle();
      for (const name of names) fields[name].node.hidden = !there().includes(name);
      last = update(now, fields);
      if (!from) return;
      const said = last;
      if (from === "chip") core.carry({ chip: now.chip });
      core.state.write(key, Object.fromEntries(there().map((name) => [name, now[name]])));
      clearTimeout(timer);
      timer = setTimeout(() => {
        ui.say(said);
        if (!anew) log?.(now, said);
      }, 700);
    };
    for (const name of names) {
      const spec = { ...specs[name], value: typed(now[name]), onvalue: (v) => { now[name] = v; changed(name); } };
      fields[name] = spec.options ? core.choose({ ...spec, options: options(name) }) : (spec.slider ? slide : core.field)(spec);
    }
    for (const name of names) if (specs[name].wide) fields[name].node.classList.add("two");
    const sides = names.filter((name) => "mnk".includes(name)); // of a matmul: in one row
    const row = (name) => (name !== sides[0] ? fields[name].node
      : el("div", { class: "sides" }, sides.map((side) => fields[side].node)));
    return {
      now, fields,
      node: el("div", { class: "controls" }, names.filter((name) => !sides.slice(1).includes(name)).map(row)),
      draw: () => changed(null),
      said: () => last,
      move(name, v) { put({ [name]: v }); changed(name); },
      set(values) {
        put(values);
        changed("set");
        if (!ui.root.getRootNode().activeElement) fields[Object.keys(values)[0]].input.focus(); // the pressed button is gone
      },
    };
  }

  // Cards: [name, value, a second line, class]
  const facts = (list) => el("dl", { class: "facts" }, list.filter(Boolean).map(([name, value, more, kind]) =>
    el("div", {}, el("dt", {}, name), el("dd", { class: kind }, value), more && el("dd", {}, more))));
  const grid = (caption, head, rows) => core.scrolls(el("div", { class: "scroll", role: "region", "aria-label": caption },
    el("table", { class: "num" }, el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first), rest.map((c) => el("td", {}, c))))))));
  const heading = (text) => el("p", {}, el("strong", {}, text));
  // What a launch of one kernel costs beyond its least time
  const alone = (roof, least) => (!roof.floor ? "no floor known for this chip" : roof.floor > least ? `launched alone, about ${si(roof.floor, "s")}, its floor` : "");
  const word = (bound) => `${bound}-bound`;

  // ---- the instruments ---------------------------------------------------------------------------

  // A kernel of any intensity under the roof of a chip
  core.define("point", (host, data, ui) => {
    const picture = chart.make(), below = el("div");
    const form = settings(ui, data.key, data.start, {
      ...CHIP,
      dtype: { label: "Data type", options: (now) => types(chipOf(now, now.chip)) },
      intensity: { label: "FLOP/byte", min: 0.01, max: 1e5 },
      flops: { label: "FLOPs in all", min: 1, max: 1e24 },
    }, (now) => {
      const roof = model.roof(chipOf(now, now.chip), now.dtype), { intensity } = now;
      const top = model.attainable(roof, intensity), bound = model.bound(roof, intensity);
      const say = `${number(intensity)} FLOP/byte on ${roof.name}: ${word(bound)}, at most ${rate(top)}, ${percent(top / roof.peak)} of the peak.`;
      picture.draw({ roofs: [roof], points: [{ key: "p", x: intensity, y: top, label: rate(top), drop: true }], say, reach: [roof.ridge / 200, roof.ridge * 20] });
      below.replaceChildren(
        facts([["attainable", rate(top), `${percent(top / roof.peak)} of the peak`],
          ["bound", word(bound), `ridge ${number(roof.ridge)} FLOP/byte`, bound],
          ["least time", si(now.flops / top, "s"), `${si(now.flops / intensity, "B")} to move`]]),
        el("pre", {}, `min(peak, bandwidth · I) = min(${rate(roof.peak)}, ${si(roof.bandwidth, "B/s", 4)} · ${number(intensity)} FLOP/byte)\n`
          + `= min(${rate(roof.peak)}, ${rate(roof.bandwidth * intensity)}) = ${rate(top)}`));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    picture.drag((intensity) => form.move("intensity", intensity));
    form.draw();
  });

  // Roofs of several chips, and on which of them a square matmul is compute-bound
  core.define("ridges", (host, data, ui) => {
    const picture = chart.make(), below = el("div");
    const slots = ["a", "b", "c", "d"];
    const form = settings(ui, data.key, data.start, {
      ...Object.fromEntries(slots.map((s, i) => [s, { label: `Chip ${i + 1}`, options: oneOf(slots, s), wide: true }])),
      ...ownFields("own", ...slots), ...ownFields("own2", ...slots),
      dtype: { label: "Data type", options: (now) => types(chipOf(now, now.a)).map(([t]) => [t, t]) },
      n: { label: "Matmul of size N", min: 1, max: 1e6, integer: true },
    }, (now) => {
      const keys = [...new Set(slots.map((s) => now[s]).filter(Boolean))].map((k) => model.chip(chipOf(now, k)));
      const able = keys.filter((k) => stands(types(k), now.dtype)), roofs = able.map((k) => model.roof(k, now.dtype));
      const job = model.matmul(now.n, now.n, now.n, now.dtype), label = `N = ${number(now.n, 7)}`;
      const bounds = roofs.map((r) => model.bound(r, job.intensity));
      const on = (bound) => able.filter((_, i) => bounds[i] === bound).map((k) => k.name).join(", ") || "none";
      const say = `A ${now.dtype} matmul of size ${number(now.n, 7)} does ${number(job.intensity)} FLOP/byte. Compute-bound on: ${on("compute")}. Memory-bound on: ${on("memory")}.`;
      picture.draw({ say, roofs: roofs.map((r, i) => ({ ...r, name: able[i].name })), points: roofs.map((r, i) =>
        ({ key: able[i].key, x: job.intensity, y: model.attainable(r, job.intensity), series: i + 2, drop: i === 0, label: i ? "" : label })) });
      below.replaceChildren(grid("The chips compared", ["chip", "peak, memory", "compute-bound from N", `bound at ${label}`],
        keys.map((c) => {
          const i = able.indexOf(c), r = roofs[i];
          return r ? [c.name, `${rate(r.peak)}, ${si(r.bandwidth, "B/s", 4)}`, number(model.firstComputeBound(r, now.dtype), 7), bounds[i]]
            : [c.name, `no ${now.dtype}, ${si(c.bandwidth, "B/s", 4)}`, "–", "–"];
        })));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    form.draw();
  });

  // A matmul of any shape. A lab has other `fields`, says by `shape(now)` what is multiplied, {m, n, k, out}, and
  // adds with `extra(now, {m, n, k, job, roof, top, bound})` what it knows: cards before and after the usual
  // ones, points on the chart, and what is said first and last
  const side = (label) => ({ label, min: 1, max: 1e6, integer: true });
  const MATMUL = { ...CHIP, dtype: { label: "Data type", options: (now) => types(chipOf(now, now.chip)) },
    m: side("M"), n: side("N"), k: side("K") };
  function matmul(ui, data, { fields = MATMUL, shape = (now) => ({ ...now, out: now.dtype }), extra = () => ({}), log } = {}) {
    const picture = chart.make(), below = el("div");
    const form = settings(ui, data.key, data.start, fields, (now) => {
      const { m, n, k, out } = shape(now), roof = model.roof(chipOf(now, now.chip), now.dtype), job = model.matmul(m, n, k, now.dtype, { out });
      const top = model.attainable(roof, job.intensity), bound = model.bound(roof, job.intensity);
      const least = model.time({ ...roof, floor: null }, job).seconds; // by rates: one of many in a launch
      const { before = [], after = [], points = [], first = "", last = "" } = extra(now, { m, n, k, job, roof, top, bound });
      const name = [m, n, k].map((v) => number(v, 7)).join(" × "), bytes = tables.bits[now.dtype] / 8;
      const point = { key: "p", x: job.intensity, y: top, label: m === n && n === k ? `N = ${number(n, 7)}` : name, drop: true, hollow: points.length > 0 };
      const say = `${first}${name} in ${now.dtype} on ${roof.name.replace(` ${now.dtype}`, "")}: ${number(job.intensity)} FLOP/byte, ridge ${number(roof.ridge)}: ${word(bound)}, at most ${rate(top)}, ${percent(top / roof.peak)} of the peak.${last}`;
      picture.draw({ roofs: [{ ...roof, vector: null }], say, points: [point, ...points] });
      below.replaceChildren(
        facts([...before,
          ["arithmetic intensity", `${number(job.intensity)} FLOP/byte`, `ridge ${number(roof.ridge)}`],
          ["attainable", rate(top), [`least time ${si(least, "s")}`, alone(roof, least)].filter(Boolean).join("; ")],
          ["share of the peak, at most", percent(top / roof.peak), `peak ${rate(roof.peak)}`],
          ["regime", word(bound), bound === "memory" ? "left of the ridge" : "at or right of it", bound],
          ...after]),
        el("pre", {}, `FLOPs = 2 · M · N · K = 2 · ${[m, n, k].join(" · ")} = ${si(job.flops, "FLOP")}\n`
          + `bytes = (M·K + K·N) · ${bytes} + M·N · ${tables.bits[out] / 8} = ${si(job.bytes, "B")}\n`
          + `I = ${si(job.flops, "FLOP")} / ${si(job.bytes, "B")} = ${number(job.intensity)} FLOP/byte\n`
          + `ridge = ${rate(roof.peak)} / ${si(roof.bandwidth, "B/s", 4)} = ${number(roof.ridge)} FLOP/byte\n`
          + `attainable = min(${rate(roof.peak)}, ${si(roof.bandwidth, "B/s", 4)} · ${number(job.intensity)} FLOP/byte)\n`
          + `= min(${rate(roof.peak)}, ${rate(roof.bandwidth * job.intensity)}) = ${rate(top)}`));
      return say;
    }, log);
    return { ...form, picture: picture.node, below };
  }
  core.define("matmul", (host, data, ui) => {
    const form = matmul(ui, data);
    const square = el("button", { type: "button", class: "quiet", onclick: () => { const { m } = form.now; form.set({ n: m, k: m }); } }, "Square: N and K as M");
    ui.root.append(heading(data.title), form.node, el("p", { class: "buttons" }, square), form.picture, form.below);
    form.draw();
  });

  // LayerNorm → GELU → dropout → add, cut into kernels in any way
  core.define("chain", (host, data, ui) => {
    const picture = chart.make(), below = el("div"), joints = ["ab", "bc", "cd"];
    const ops = ["layernorm", "gelu", "dropout", "add"], titles = ["LayerNorm", "GELU", "dropout", "add"];
    const chain = ({ rows, width, dtype }) => {
      const pass = (op, reads, y) => model.elementwise(rows * width, Object.fromEntries(reads.map((t) => [t, dtype])),
        { [y]: dtype }, tables.costs[op].element, dtype, op);
      return [model.rowwise("layernorm", rows, width, dtype, { x: "x", y: "a", parameters: ["γ", "β"] }),
        pass("gelu", ["a"], "b"), pass("dropout", ["b", "mask"], "c"), pass("add", ["c", "residual"], "y")];
    };
    const form = settings(ui, data.key, data.start, {
      ...CHIP,
      dtype: { label: "Data type", options: (now) => types(chipOf(now, now.chip)).filter(([t]) => ["fp32", "bf16", "fp16"].includes(t)).map(([t]) => [t, t]) },
      rows: { label: "Tokens", min: 1, max: 1e8, integer: true },
      width: { label: "Width", min: 1, max: 1e6, integer: true },
      ...Object.fromEntries(joints.map((j, i) => [j, { label: `${titles[i]} + ${titles[i + 1]}`, options: [["no", "apart"], ["yes", "fused"]] }])),
    }, (now) => {
      const roof = model.roof(chipOf(now, now.chip), now.dtype), apart = chain(now), groups = [[0]];
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
          ["four kernels ÷ yours", `${number(moved(apart) / moved(kernels))}× the bytes`, `${number(gain)}× the time`],
          ["intensity", `${number(after.intensity)} FLOP/byte`, `ridge ${number(roof.ridge)}`]]),
        grid("The kernels", ["kernel", "tensors", "least time", "reads → writes"], kernels.map((w, i) => [
          groups[i].map((op) => titles[op]).join(" + "), tensors(w.bytes), si(model.time(roof, w).seconds, "s"),
          `${Object.keys(w.reads).join(", ")} → ${Object.keys(w.writes)}`])));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    form.draw();
  });

  // A whole number: typed, dragged in parts of a doubling, or moved by a step with an arrow key
  function slide({ label, min, max, value, step = 1, parts = 4, onvalue }) {
    const give = (v) => { const sound = Math.min(max, Math.max(min, Math.round(v / step) * step)); set(sound); onvalue(sound); };
    const field = core.field({ label, min, max, integer: true, value, onvalue: (v) => { mark(v); onvalue(v); } });
    const input = el("input", { type: "range", "aria-label": `${label}, slider`, min: Math.log2(min), max: Math.log2(max), step: 1 / parts,
      oninput: () => give(2 ** Number(input.value)),
      onkeydown: (event) => {
        const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
        if (!way) return;
        event.preventDefault();
        give((field.value() ?? min) + way * step);
      } });
    const mark = (v) => { input.value = Math.log2(v); input.setAttribute("aria-valuetext", number(v, 7)); };
    const set = (v) => { field.set(String(v)); mark(Number(v)); };
    mark(Number(value));
    return { node: el("span", { class: "field wide slide" }, field.node, input), input, value: field.value, set };
  }

  return { number, percent, chips, types, chipOf, CHIP, settings, facts, grid, heading, word, matmul };
})();
