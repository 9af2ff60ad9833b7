// The instruments and the two labs. What they compute comes from model.js, how it is drawn from
// chart.js, what they say in questions from Python as data.
(() => {
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
    .bar { display: flex; position: relative; height: 1.5rem; margin-top: .6rem; border: 1px solid var(--line); border-radius: 4px; overflow: hidden; }
    .bar > span { border-right: 1px solid var(--ground); } .bar > i { position: absolute; height: 100%; border-left: 3px dashed var(--ink); }
    .stop { border: 2px solid var(--bad); border-radius: 4px; padding: .5rem .7rem; margin-top: .6rem; }
    .result { position: sticky; bottom: 0; z-index: 1; padding: .4rem 0; background: var(--ground); border-top: 1px solid var(--soft); font-weight: 600; } .result::first-letter { text-transform: uppercase; }
    .controls .slide:not([hidden]) { display: flex; flex-direction: row; align-items: end; } .slide .field { flex: none; width: 7.5rem; } .slide > input { flex: 1; min-width: 0; min-height: 2.2rem; }
    .act h3 { margin: 1.2rem 0 .3rem; font-size: 1.05em; } .act ol, .act ul { margin: .3rem 0 0; padding-left: 1.4rem; }`);

  // ---- fields, facts, tables ---------------------------------------------------------------------

  const number = (v, digits = 3) => core.significant(v, digits);
  const percent = (share) => (share > 9.995 ? `${number(share)} times` : `${number(100 * share, share < 0.0995 ? 2 : share < 0.995 ? 2 : 3)}%`);
  const { money } = briefs;
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
  const fold = (name, ...inside) => el("details", {}, el("summary", {}, name), ...inside);
  const heading = (text) => el("p", {}, el("strong", {}, text));
  // A share of something, and what a launch of one kernel costs beyond its least time
  const part = (share, what) => `${percent(share)} ${share > 9.995 ? "" : "of "}${what}`;
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

  // The reader's best of each task; what follows a look at the best known one isn't theirs
  const tries = (key, names) => {
    const place = (task) => `${key}-${task}`, had = (task) => core.ledger.get(place(task));
    const put = (task, value, text) => core.ledger.set(place(task), { question: names[task], value, given: text, right: null, answer: text });
    return {
      record(task, cost, text) {
        const last = had(task)?.value;
        if (!last || (!last.shown && cost <= last.cost)) put(task, { cost }, text);
      },
      reveal(task) { put(task, { ...had(task)?.value, shown: true }, had(task)?.answer ?? `${names[task]}: no design of your own.`); },
      list: () => Object.keys(names).map(had).filter(Boolean).map(({ answer, value }) => `${answer}${value.shown ? " Then the best known design was shown." : ""}\n`),
    };
  };
  const keep = (data, task) => (now, said) => core.ledger.set(data.key, { question: [data.keep, task(now)].filter(Boolean).join(", "), value: { ...now }, given: said, right: null, answer: said });
  // Beside the fields while they change: what comes out and what limits it. The chart says it to others
  const result = () => el("p", { class: "result", "aria-hidden": "true" });

  // A matmul of any shape; with `measured`, of any chip, type and shape that was timed, and a goal
  function product(ui, data) {
    const picture = chart.make(), below = el("div"), told = el("div"), line = result(), { measured, goal } = data;
    const side = (label) => ({ label, min: 1, max: 1e6, integer: true });
    const aims = ({ task }) => task === "goal", free = (now) => !aims(now), best = goal && tries(data.key, { goal: goal.name });
    const grown = (label, [least, ...more], step) => ({ label, min: least, max: more.at(-1), slider: true, step, parts: 1, when: step > 1 ? free : undefined }); // dragged over the measured ones
    let cost = 0;
    const form = settings(ui, data.key, data.start, {
      ...(measured ? { task: { label: "Task", options: [["free", "Free play"], ["goal", goal.name]], wide: true, anew: true },
        chip: { label: "Chip", options: (now) => chips().filter(([key]) => free(now) || key in measured.times), wide: true } } : CHIP),
      dtype: { label: "Data type", options: (now) => types(chipOf(now, now.chip)).filter(([t]) => !aims(now) || t in measured.times[now.chip]) },
      ...(measured ? { m: grown("M (tokens)", measured.rows, 1), n: grown("N", measured.sides, 128), k: grown("K", measured.sides, 128) }
        : { m: side("M"), n: side("N"), k: side("K") }),
    }, (now) => {
      const { m, n, k } = aims(now) ? { ...now, ...goal.shape } : now, roof = model.roof(chipOf(now, now.chip), now.dtype);
      const out = measured && tables.bits[now.dtype] < 16 ? "bf16" : now.dtype, job = model.matmul(m, n, k, now.dtype, { out });
      const top = model.attainable(roof, job.intensity), bound = model.bound(roof, job.intensity);
      const took = 1e-6 * (measured?.times[now.chip]?.[now.dtype]?.[`${n}x${k}`]?.[measured.rows.indexOf(m)] ?? 0), achieved = took && job.flops / took;
      const name = [m, n, k].map((v) => number(v, 7)).join(" × "), bytes = tables.bits[now.dtype] / 8;
      const share = achieved && model.efficiency(roof, achieved, job.intensity);
      const least = model.time({ ...roof, floor: null }, job).seconds; // by rates: one of many in a launch
      const point = { key: "p", x: job.intensity, y: top, label: m === n && n === k ? `N = ${number(n, 7)}` : name, drop: true, hollow: !!achieved };
      const aim = aims(now) && { met: took > 0 && took <= goal.seconds, cost: (goal.rent[now.chip] / 3600) * (took / m) * 1e9 };
      cost = aim.met ? aim.cost : 1e9;
      const scored = aim && (aim.met ? `score ${number((100 * goal.best_cost) / aim.cost)} of 100, ${money(aim.cost)} per billion tokens`
        : `score 0 of 100, ${took ? `${si(took, "s")} of ${si(goal.seconds, "s")}` : `no measured time at M = ${number(m, 7)}: take a power of two`}`);
      const say = `${aim ? `${goal.name}: ${scored}. ` : ""}${name} in ${now.dtype} on ${roof.name.replace(` ${now.dtype}`, "")}: ${number(job.intensity)} FLOP/byte, ridge ${number(roof.ridge)}: ${word(bound)}, at most ${rate(top)}, ${percent(top / roof.peak)} of the peak.`
        + (achieved ? ` Measured: ${si(took, "s")}, ${part(share, "that roof")}.` : "");
      picture.draw({ roofs: [{ ...roof, vector: null }], say, points: [point, ...(achieved
        ? [{ key: "a", x: job.intensity, y: achieved, series: 3, label: `measured: ${part(share, "the roof")}` }] : [])] });
      line.textContent = `${aim ? scored : `at most ${rate(top)}${took ? `, measured ${rate(achieved)}` : ""}`}; ${word(bound)}`;
      told.replaceChildren(...(aim ? [goal.story, goal.priced].map((text) => el("p", {}, text)) : []));
      below.replaceChildren(
        facts([aim && ["score", scored.split(",")[0].slice(6), aim.met ? `best of the measured kernels: ${money(goal.best_cost)}` : scored.split(", ")[1], aim.met ? "" : "bad"],
          aim && ["per billion tokens", took ? money(aim.cost) : "–", `${money(goal.rent[now.chip])} an hour`],
          ["arithmetic intensity", `${number(job.intensity)} FLOP/byte`, `ridge ${number(roof.ridge)}`],
          ["attainable", rate(top), [`least time ${si(least, "s")}`, alone(roof, least)].filter(Boolean).join("; ")],
          ["share of the peak, at most", percent(top / roof.peak), `peak ${rate(roof.peak)}`],
          ["regime", word(bound), bound === "memory" ? "left of the ridge" : "at or right of it", bound],
          measured && ["measured time", took ? si(took, "s") : "–", took ? "the fastest of the libraries timed" : `none for this chip, type and shape: M, N and K of measured kernels are powers of two${measured.times[now.chip]?.[now.dtype] ? "" : ", on H100, H200 and B200"}`],
          achieved && ["measured of the peak (MFU)", percent(model.mfu(roof, achieved)), rate(achieved)],
          achieved && ["measured of the roof", percent(share), share > 1 ? "operands came from the cache on the chip" : `${number(1 / share)} times as fast at best`]]),
        el("pre", {}, `FLOPs = 2 · M · N · K = 2 · ${[m, n, k].join(" · ")} = ${si(job.flops, "FLOP")}\n`
          + `bytes = (M·K + K·N) · ${bytes} + M·N · ${tables.bits[out] / 8} = ${si(job.bytes, "B")}\n`
          + `I = ${si(job.flops, "FLOP")} / ${si(job.bytes, "B")} = ${number(job.intensity)} FLOP/byte\n`
          + `ridge = ${rate(roof.peak)} / ${si(roof.bandwidth, "B/s", 4)} = ${number(roof.ridge)} FLOP/byte\n`
          + `attainable = min(${rate(roof.peak)}, ${si(roof.bandwidth, "B/s", 4)} · ${number(job.intensity)} FLOP/byte)\n`
          + `= min(${rate(roof.peak)}, ${rate(roof.bandwidth * job.intensity)}) = ${rate(top)}`));
      return say;
    }, measured && ((now, said) => {
      keep(data, (at) => aims(at) && goal.name)(now, said);
      if (aims(now)) best.record("goal", cost, said);
    }));
    const square = el("button", { type: "button", class: "quiet", onclick: () => { const { m } = form.now; form.set({ n: m, k: m }); } }, "Square: N and K as M");
    return { ...form, report: () => [...(best?.list() ?? []), `Last setting: ${form.said()}`],
      node: [told, form.node, measured ? line : el("p", { class: "buttons" }, square), picture.node, below] };
  }
  core.define("matmul", (host, data, ui) => {
    const one = product(ui, data);
    ui.root.append(heading(data.title), ...one.node);
    one.draw();
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

  // A layer cut over a mesh: the network's roof, over tokens a chip
  core.define("sharding", (host, data, ui) => {
    const picture = chart.make(), below = el("div"), place = (now) => data.places[now.chip];
    const among = (n) => (n > 1 ? `${n} chips` : "one chip");
    const BOUND = { compute: "compute-bound", weights: "network-bound: weights", sums: "network-bound: sums" };
    const terms = { x: "tokens a chip", narrow: "tokens a chip", slope: "network", rise: () => "weights gathered", other: "peak" };
    const form = settings(ui, data.key, data.start, {
      chip: { label: "Chips", options: Object.entries(data.places).map(([key, { title }]) => [key, title]) },
      tensor: { label: "FSDP × tensor", options: (now) => place(now).cuts.map((cut) => [String(cut.tensor), `${cut.fsdp} × ${cut.tensor}`]) },
      tokens: { label: "Tokens a chip", min: 1, max: 65536, slider: true },
      inner: { label: "Width F", min: 1024, max: 131072, slider: true },
    }, (now) => {
      const { title, peak, bits, chips, cuts } = place(now), { tokens, inner } = now;
      const cut = { peak, bits, ...cuts.find((each) => String(each.tensor) === now.tensor) };
      const one = network.layer(cut, { tokens, model: data.model, inner });
      const ridge = tokens * one.gathers / one.products, sums = one.sums > one.products;
      const roof = { name: title, peak: sums ? one.flops / one.sums : peak, vector: sums ? peak : null,
        bandwidth: one.gathers ? peak / ridge : Infinity };
      const say = `${title}, ${cut.fsdp} FSDP × ${cut.tensor} tensor, ${number(tokens, 7)} tokens a chip, width ${number(inner, 7)}: ${BOUND[one.bound]}, at most ${percent(one.attainable / peak)} of the peak.`;
      picture.draw({ roofs: [roof], say, terms: sums ? { ...terms, flat: "network", top: "sums", above: true } : terms, points: [{ key: "p", x: tokens, y: one.attainable, label: `${percent(one.attainable / peak)} of the peak`, drop: true }] });
      below.replaceChildren(
        facts([["bound", BOUND[one.bound], `${percent(one.attainable / peak)} of the peak at most`, one.bound === "compute" ? "compute" : "memory"],
          ["matmuls", si(one.products, "s"), `4 · ${[tokens, data.model, inner].join(" · ")} FLOPs`],
          ["weights gathered", one.gathers ? si(one.gathers, "s") : "none", `over ${among(cut.fsdp)}`],
          ["sums", one.sums ? si(one.sums, "s") : "none", `over ${among(cut.tensor)}`],
          ["batch in all", `${number(tokens * chips, 3)} tokens`, one.gathers ? `weights hide from ${number(ridge)} a chip` : "no weights to gather"]]));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    form.draw();
  });

  // A reader's own kernel, by its counts or its shape: what bounds it, and on what that depends
  core.define("your-kernel", (host, data, ui) => {
    const picture = chart.make(), below = el("div");
    const size = (label, max = 1e9) => ({ label, min: 1, max, integer: true });
    const of = (kind, fields) => Object.fromEntries(Object.entries(fields)
      .map(([name, spec]) => [name, { ...spec, when: (now) => now.kind === kind }]));
    const count = {
      counts: ({ flops, bytes, dtype }) => [verdicts.counts(flops, bytes, dtype), "counts as you gave them"],
      matmul: ({ m, n, k, dtype }) => [model.matmul(m, n, k, dtype), "each matrix crosses memory once"],
      elementwise: ({ elements, reads, writes, each, dtype }) => {
        const tensors = (letter, many) => Object.fromEntries(Array.from({ length: many }, (_, i) => [`${letter}${i}`, dtype]));
        return [model.elementwise(elements, tensors("x", reads), tensors("y", writes), each, dtype), "each tensor crosses memory once"];
      },
      attention: (now) => [verdicts.attention({ ...now, causal: now.causal === "yes" }, now.dtype),
        "one kernel, the scores stay on the chip; Q, K, V and the output cross memory once"],
    };
    // What measured matmuls of this size take, by the law fitted to them; nothing where none were measured
    const measured = (roof, { kind, chip, dtype, m, n, k }) => {
      const law = kind === "matmul" && data.laws[chip]?.[dtype];
      if (!law) return null;
      const [start, compute, memory, corner, step, shapes, error] = law, bytes = tables.bits[dtype] / 8;
      const parts = [2 * m * n * k / roof.peak / compute, ((m + n) * k * bytes + 2 * m * n) / roof.bandwidth / memory, step * k];
      const seconds = start + model.sum(parts.map((t) => t ** corner)) ** (1 / corner);
      return ["measured kernels", `about ${si(seconds, "s")}`, `fitted to ${shapes.toLocaleString("en")} measured matmuls; of others half were within ${number(100 * error, 2)}%`];
    };
    const depends = { ceilings: "whether published or reached ceilings count", floor: "whether a launch's floor counts" };
    // On what else it depends that no case can say
    const doubts = (chip, job) => [
      "Counted by hand: a compiler may fuse it with its neighbours or move more.",
      job.bytes <= chip.inside && `All of it (${si(job.bytes, "B")}) fits into the ${si(chip.inside, "B")} on the chip: if it is there already, memory doesn't bind.`,
      !(chip.key in OWN) && !Object.keys(chip.reached.matrix).length && !chip.reached.bandwidth && "Nobody measured this chip's ceilings here: only published ones were asked.",
      !chip.floor && "No floor of a launch is known for this chip: another chip's was assumed.",
    ].filter(Boolean);
    const form = settings(ui, data.key, data.start, {
      ...CHIP,
      dtype: { label: "Data type", options: (now) => types(chipOf(now, now.chip)) },
      kind: { label: "What you have", wide: true, options: [["counts", "FLOPs and bytes"], ["matmul", "a matmul's shape"],
        ["elementwise", "an elementwise kernel"], ["attention", "attention's shape"]] },
      ...of("counts", { flops: { label: "FLOPs", min: 1, max: 1e24 }, bytes: { label: "Bytes to and from memory", min: 1, max: 1e18 } }),
      ...of("matmul", { m: size("M"), n: size("N"), k: size("K") }),
      ...of("elementwise", { elements: size("Elements of a tensor", 1e15), reads: size("Tensors read", 100), writes: size("Tensors written", 100),
        each: { label: "FLOPs an element", min: 0, max: 1e6 } }),
      ...of("attention", { batch: size("Batch"), heads: size("Heads"), kvHeads: size("KV heads"), queries: size("Queries"), keys: size("Keys"),
        dim: size("Size of a head"), causal: { label: "Mask", options: [["no", "none"], ["yes", "causal"]] } }),
    }, (now) => {
      const chip = model.chip(chipOf(now, now.chip)), roof = { ...model.roof(chip, now.dtype), floor: null };
      let job, how;
      try {
        [job, how] = count[now.kind](now);
      } catch (error) {
        picture.node.hidden = true;
        below.replaceChildren(el("p", { class: "bad" }, error.message));
        return error.message;
      }
      const verdict = verdicts.of(job, chip, data.floors), times = verdict.cases.map((one) => one.seconds);
      const [least, most] = [Math.min(...times), Math.max(...times)].map((t) => si(t, "s"));
      const span = least === most ? least : `${least} to ${most}`, on = verdict.on.map((axis) => depends[axis]).join(" and ");
      const say = `The kernel on ${roof.name}: ${si(job.flops, "FLOP")}, ${si(job.bytes, "B")}, ${number(job.intensity)} FLOP/byte against a ridge of ${number(roof.ridge)}: ${on ? `depends on ${on}` : word(verdict.word)}, at least ${least}${least === most ? "" : `; ${most} in the slowest of the cases`}.`;
      const top = model.attainable(roof, job.intensity);
      picture.node.hidden = !job.flops;
      if (job.flops) picture.draw({ roofs: [roof], say, points: [{ key: "p", x: job.intensity, y: top, label: rate(top), drop: true }] });
      below.replaceChildren(
        facts([["verdict", on ? "it depends" : word(verdict.word), on ? `on ${on}` : `in all ${verdict.cases.length} cases`, verdict.word],
          ["least time", span, how], measured(roof, now), ["arithmetic intensity", `${number(job.intensity)} FLOP/byte`, `ridge ${number(roof.ridge)}`],
          ["counted", si(job.flops, "FLOP"), `${si(job.bytes, "B")} of memory traffic`]]),
        grid("The cases", ["ceilings", "floor of a launch", "bound", "least time"], verdict.cases.map((one) =>
          [one.ceilings, one.floor === "with" ? si(verdict.floor, "s") : "none", word(one.bound), si(one.seconds, "s")])),
        el("ul", {}, doubts(chip, job).map((text) => el("li", {}, text))));
      return say;
    });
    ui.root.append(heading(data.title), form.node, picture.node, below);
    form.draw();
  });

  // ---- the labs ----------------------------------------------------------------------------------

  // Story; a question; what waits for its answer, or for "Show all"; reflection; equations; the ledger
  function lab(host, data, ui, open) {
    const waits = Object.keys(core.state.read(data.key)).length ? " A setting waits behind this question." : "";
    const play = el("div", { hidden: true });
    const ledger = el(host.localName, { "data-kind": "ledger", "data-json": "{}" });
    const report = el("pre", { hidden: true });
    // What was answered first, and the last setting with what it came to
    const hand = () => {
      const asked = [data.predict, ...data.tasks, data.reflect].map(({ key, question }) => {
        const entry = core.ledger.get(key);
        const said = entry ? `First answer: ${entry.first} (${entry.firstRight ? "right" : "wrong"}). Correct: ${entry.answer}.` : "Not answered.";
        return `${question}\n${said}\n`;
      });
      report.textContent = [`${data.title}, ${new Date().toLocaleDateString("en-CA")}\n`, ...asked, ...one.report()].join("\n");
      report.hidden = false;
      core.save(report.textContent, "text/plain", `roofline-${data.key}.txt`);
      ui.say("The report is shown below, printed with the page, and saved as a file where the page may save one.");
    };
    let one = null;
    const show = (all) => {
      play.hidden = !all;
      locked.hidden = all;
      if (!all || one) return;
      one = open();
      play.append(el("h3", {}, "Play"), ...one.node, el("h3", {}, "Try"), el("ol", { class: "sheet" }, data.tasks.map((each, i) => el("li", {}, core.question({ ...each, lead: `${i + 1}.` }, ui)))),
        el("h3", {}, "Look back"), core.question(data.reflect, ui),
        ...(data.goal ? [el("h3", {}, "The goal"), el("p", {}, data.goal.story), el("p", { class: "buttons" }, el("button", { type: "button", class: "quiet", onclick: () => {
          one.move("task", "goal");
          one.fields.task.input.focus();
        } }, "Take the goal"))] : []), el("h3", {}, "What you predicted, and what happened"), ledger,
        el("p", { class: "buttons" }, el("button", { type: "button", onclick: hand }, "Report to print or hand in")), report);
      one.draw();
    };
    const locked = el("div", { class: "buttons" }, el("span", { class: "muted" }, data.locked + waits),
      el("button", { type: "button", class: "quiet", onclick: () => show(true) }, "Show all"));
    const asked = core.question(data.predict, ui, (result) => show(!!result));
    ui.root.append(el("div", { class: "act" }, data.story.map((text) => el("p", {}, text)), el("h3", {}, "Predict"), asked, locked, play,
      fold("The governing equations", el("pre", {}, data.equations.join("\n")))));
  }
  core.define("memory-wall", (host, data, ui) => lab(host, data, ui, () => product(ui, data)));

  // What a chip's memory has to hold, with the numbers filled in
  function memorySum({ setting, memory: held }, gb) {
    const { layers, d_model: d, kv_heads: kv, head_dim: dim, vocabulary } = setting.model, { chips: n, chip } = setting;
    const rest = ((2 * layers + 1) * d + 2 * Math.floor(vocabulary / n) * d) * tables.bits[chip.half] / 8, bytes = (t) => tables.bits[t] / 8;
    const narrow = held.weights - rest, many = (v) => si(v / bytes(setting.weights), "");
    return `weights = ${many(narrow)} · ${bytes(setting.weights)} B in the layers + ${gb(rest)} of embedding, LM head and norms = ${gb(held.weights)}\n`
      + `KV cache = 2 · ${layers} layers · ${kv / n} KV heads · ${dim} · ${bytes(setting.cache)} B · ${setting.context} tokens · ${setting.batch} sequences = ${gb(held.cache)}\n`
      + `activations, at most at once = ${gb(held.activations)}\nruntime = ${number(100 * setting.reserve)}% of ${gb(held.capacity)} = ${gb(held.reserve)}\n`
      + `sum${n > 1 ? " on each chip" : ""} = ${gb(held.total + held.reserve)} of ${gb(held.capacity)}`;
  }

  // One step of serving a language model: its kernels on the roofline, its memory, its tokens
  function design(ui, data) {
    const picture = chart.make(), below = el("div"), line = result(), stops = el("div");
    const head = el("summary"), rows = el("div"), all = el("details", {}, head, rows);
    const told = el("div");
    let asked = "", best = null, sum = "", verdict = null; // the best batch does not depend on the batch: it is kept
    const kind = (k) => (k.matrix === 0 ? 2 : k.ops.some((op) => /·|attention/.test(op)) ? 1 : 0);
    const mark = (sign, color, text) => {
      const key = el("span", { "aria-hidden": "true" }, `${sign} `);
      key.style.color = color;
      return el("span", { class: "key" }, key, text);
    };
    // A bar of parts [name, value, color], and below it what they are
    const bar = (title, parts, full, text) => [
      el("div", { class: "bar", role: "img", "aria-label": `${title} ${parts.map(([name, v]) => `${name} ${text(v)}`).join(", ")}` },
        parts.map(([, v, color]) => {
          const piece = el("span");
          piece.style.width = `${(100 * v) / full}%`;
          piece.style.background = color;
          return piece;
        })),
      el("p", {}, `${title} `, parts.map(([name, v, color]) => mark("■", color, `${name} ${text(v)}`)))];
    const legend = el("p", { class: "muted" }, [["●", 0, "matmuls with weights"], ["■", 1, "attention"], ["▲", 3, "norms, softmax, RoPE, SwiGLU, adds"]]
      .map(([sign, i, text]) => mark(sign, `var(--s${i})`, text)), " The larger the mark, the more of the step's time it takes.");
    const pairs = (values) => values.map((v) => [v, v]);
    const fusions = { none: "none", pointwise: "pointwise", epilogue: "into matmuls" };
    const many = (label, max) => ({ label, min: 1, max, slider: true, parts: 16 });
    const free = ({ brief }) => brief === "free", of = (now) => data.briefs[now.brief];
    const mine = tries(data.key, Object.fromEntries(Object.entries(data.briefs).map(([key, { name }]) => [key, name])));
    const pick = ({ format, ...now }) => {
      const [weights, activations] = format.split("/"), { model: served, context, counted } = of(now) ?? now;
      return { chip: now.chip, chips: Number(now.chips), batch: now.batch, cache: now.cache, fusion: now.fusion, attention: now.attention,
        weights, activations, model: served, context, phase: free(now) ? now.phase : "decode", ...data.counted[counted] };
    };
    const named = (chip) => ([weights, activations]) => [`${weights}/${activations}`, weights === model.chip(chip).half ? weights
      : weights === activations ? `${weights}, activations too` : `${weights}, weights only`];
    const form = settings(ui, data.key, data.start, {
      brief: { label: "Brief", wide: true, anew: true, when: () => Object.keys(data.briefs).length > 0, options: [["free", "Free play: today's server"], ...Object.entries(data.briefs).map(([k, { name }]) => [k, name])] },
      model: { label: "Model", wide: true, when: free, options: Object.entries(tables.models).map(([k, { name }]) => [k, name]) },
      phase: { label: "Phase", when: free, options: pairs(["decode", "prefill"]) },
      counted: { label: "Rates", wide: true, when: free, options: [["reached", "measured, with a launch's floor"], ["published", "published, no floor"]] },
      chip: { label: "Chip", wide: true, options: (now) => chips().filter(([key]) => (of(now)?.chips ?? data.chips ?? [key]).includes(key)) },
      chips: { label: "Chips that share it", options: (now) => pairs(serving.counts(now.chip).map(String)) },
      format: { label: "Weights", wide: true, options: (now) => (of(now)?.formats ?? serving.formats(now.chip).map(({ weights, activations }) => [weights, activations])).map(named(now.chip)) },
      cache: { label: "KV cache", options: (now) => pairs(of(now)?.caches ?? serving.types(now.chip)) },
      fusion: { label: "Fusion", options: (now) => Object.entries(fusions).filter(([key]) => free(now) || key in data.days.fusion) },
      attention: { label: "Attention", options: pairs(["naive", "flash"]) },
      batch: many("Batch", 1024),
      context: { ...many("Context", 2 ** 17), when: free },
    }, (now) => {
      const setting = pick(now), one = serving.step(setting), { memory: held, kernels, sums } = one, brief = of(now);
      const { chips: n, chip } = setting, where = `${n > 1 ? `${n} × ` : ""}${one.setting.chip.name}`;
      const roof = model.roof(chip, setting.activations, undefined, setting.reached), decode = setting.phase === "decode";
      const first = serving.step({ ...setting, phase: "prefill", batch: 1 }).seconds, { context, batch } = setting;
      const share = (k) => k.total / one.seconds;
      const part = (bound) => kernels.filter((k) => k.bound === bound).reduce((sum, k) => sum + share(k), 0);
      const waiting = part("memory"), launches = kernels.reduce((sum, k) => sum + k.count, 0);
      const gb = (v) => si(v, "B");
      const result = one.fits ? `${number(one.tokensPerSecond)} tokens/s, ${si(one.seconds, "s")} ${decode ? "per token" : "to the first token"}`
        : `out of memory, ${gb(-one.room)} too much`;
      const network = sums ? `, ${percent(sums.total / one.seconds)} in all-reduces` : "";
      verdict = brief ? briefs.judge(data, brief, setting) : null;
      const scored = verdict ? briefs.told(verdict, brief) : "";
      // The resource that takes the most of the step's time
      const [limit, most] = [["memory bandwidth", waiting], ["arithmetic", part("compute")], ["launches", part("latency")], ["all-reduces", sums ? sums.total / one.seconds : 0]]
        .reduce((a, b) => (b[1] > a[1] ? b : a));
      const say = `${scored && `${brief.name}: ${scored}. `}${one.setting.model.name} on ${where}, ${setting.phase}, batch ${number(batch, 7)}, ${number(context, 7)} tokens, weights ${setting.weights}, activations ${setting.activations}, cache ${now.cache}, fusion ${fusions[now.fusion]}, ${now.attention} attention: ${result}; ${percent(waiting)} of the time in memory-bound kernels${network}.`;
      picture.draw({ roofs: [roof], say, points: kernels.filter((k) => k.flops > 0 && k.bytes > 0).map((k) => ({ key: k.name, x: k.intensity, y: k.attainable,
        series: [0, 1, 3][kind(k)], shape: kind(k), size: 3.5 + 8 * Math.sqrt(share(k)), label: share(k) > 0.04 ? k.ops[0] : "" })) });

      const parts = [["weights", held.weights, "var(--s0)"], ["KV cache", held.cache, "var(--s1)"], ["activations", held.activations, "var(--s3)"], ["runtime", held.reserve, "var(--soft)"]];
      sum = memorySum(one, gb);
      const full = Math.max(held.total + held.reserve, held.capacity), each = n > 1 ? " of each chip" : "";
      const room = bar(`Memory${each}: ${gb(held.total + held.reserve)} of ${gb(held.capacity)}.`, parts, full, gb);
      if (!one.fits) {
        const end = el("i"); // where the chip's memory ends
        end.style.left = `${(100 * held.capacity) / full}%`;
        room[0].append(end);
      }
      const spent = ["matmuls with weights", "attention", "other kernels"].map((name, i) =>
        [name, kernels.filter((k) => kind(k) === i).reduce((all, k) => all + k.total, 0), `var(--s${[0, 1, 3][i]})`]);
      if (sums) spent.push(["all-reduces", sums.total, "var(--s4)"]);
      const took = bar(`Step: ${si(one.seconds, "s")}.`, spent, one.seconds, (v) => si(v, "s"));
      const use = (text, values) => el("button", { type: "button", class: "quiet", onclick: () => form.set(values) }, text);
      stops.replaceChildren();
      let change = "";
      if (!one.fits) {
        const other = serving.instead(setting);
        const ways = [other.chips && !(brief && data.rent[chip] * other.chips > brief.dollars) && use(`${other.chips} chips`, { chips: String(other.chips) }), other.batch && use(`Batch ${number(other.batch, 7)}`, { batch: other.batch }),
          free(now) && other.context && use(`Context ${number(other.context, 7)}`, { context: other.context }),
          ...other.narrower.filter((t) => !brief || (brief.formats.some((f) => String(f) === `${t.weights},${t.activations}`) && brief.caches.includes(t.cache)))
            .slice(0, 2).map((t) => use(`Weights ${t.weights}, cache ${t.cache}`, { format: `${t.weights}/${t.activations}`, cache: t.cache }))].filter(Boolean);
        change = ways.length ? `${ways[0].textContent} would fit` : "take another chip";
        stops.append(el("div", { class: "stop" }, el("strong", {}, `Out of memory: ${gb(held.total + held.reserve)} needed${each}, ${gb(-one.room)} more than there is.`),
          ways.length ? el("p", { class: "buttons" }, el("span", {}, "What would fit instead:"), ways) : el("p", {}, "No smaller choice fits on this chip: take another one.")));
      }
      // The same step on a clock, where it was measured: everything in 16 bits
      const clock = data.measured.chip === chip && n === 1 && data.measured.model === setting.model && decode && data.measured.context === context
        && [setting.weights, setting.cache].every((t) => t === model.chip(chip).half)
        && data.measured.steps.find((each) => each.batch === batch);
      const timed = clock && el("p", {}, `Measured here: ${Object.entries(clock.ms).map(([name, ms]) => `${number(ms)} ms (${name})`).join(", ")}.`);
      // What was not measured of this chip, where it was asked for
      const { reached: got, floor } = one.setting.chip, { activations: type } = setting;
      const wired = sums && one.setting.chip.sums[n], noLinks = sums && String(wired[0]) === String(wired[1]);
      const missing = [setting.reached && !(type in got.matrix) && "peak", setting.reached && !got.bandwidth && "bandwidth", setting.reached && noLinks && "links"].filter(Boolean);
      const lacks = [missing.length && `no measured ${missing.join(" or ")} for this chip: published`, setting.floor && !floor && "no floor known"].filter(Boolean).join("; ");
      const target = 0.02;
      const key = JSON.stringify({ ...setting, batch: 0 });
      if (decode && !brief && key !== asked) [asked, best] = [key, serving.bestBatch(setting, target)];
      line.textContent = [scored || result, one.fits ? `limit: ${limit}, ${percent(most)} of the step` : change].join("; ");
      const within = (name, value, limit, text, what) => [name, text(value), `${what} ${text(limit)}: ${value <= limit ? "met" : "missed"}`, value <= limit ? "" : "bad"];
      const time = (v) => si(v, "s");
      told.replaceChildren(...(brief ? [el("p", {}, brief.story, ` Each token may take ${time(brief.per_token)}, the first one ${time(brief.first_token)}. A real server is slower than a count, so the page judges ${number(data.margin[brief.counted])} times the counted times; no fused decode step in this book took longer. You may spend ${money(brief.dollars)} an hour on chips and ${brief.days} days of work. The score compares your dollars per million tokens with the best known design.`),
        el("p", { class: "muted" }, `Illustrative prices, not offers. Chips, per hour: ${brief.chips.map((c) => `${model.chip(c).name.replace("NVIDIA ", "")} ${money(data.rent[c])}`).join(", ")}. Days of work: ${data.priced}. Accuracy isn't scored: narrow types have to be tested on the task.`)] : []));
      below.replaceChildren(
        facts([verdict && ["score", verdict.met ? `${number(100 * brief.best_cost / verdict.cost)} of 100` : "0 of 100", verdict.met ? `best known: ${money(brief.best_cost)} per million tokens` : `missed: ${briefs.missed(verdict, brief).join(", ")}`, verdict.met ? "" : "bad"],
          verdict && ["per million tokens", one.fits ? money(verdict.cost) : "–", "output tokens, every sequence busy, with the margin"],
          verdict && within("chips, per hour", verdict.dollars, brief.dollars, money, "budget"),
          verdict && within("work", verdict.days, brief.days, (v) => `${number(v)} days`, "budget"),
          ["tokens per second", one.fits ? number(one.tokensPerSecond) : "–", one.fits ? `${number(one.tokens, 7)} tokens per step${n > 1 ? `; ${number(one.tokensPerSecond / n)} tokens/s per chip` : ""}` : "does not fit"],
          verdict ? within("time per token, with the margin", verdict.per_token, brief.per_token, time, "target") : decode && ["time per token", one.fits ? time(one.seconds) : "–", `batch ${number(batch, 7)}`],
          verdict ? within("time to the first token, with the margin", verdict.first_token, brief.first_token, time, "target") : ["time to the first token", time(decode ? first : one.seconds), decode ? `one prompt of ${number(context, 7)} tokens` : `batch ${number(batch, 7)}`],
          one.fits ? ["memory left", gb(one.room), `room for ${number(serving.largestBatch(setting) - batch, 7)} more sequences`] : ["memory missing", gb(-one.room), change, "bad"],
          sums && ["all-reduces", `${si(sums.total, "s")}, ${percent(sums.total / one.seconds)}`, `of the step: ${number(sums.count)} of ${gb(sums.bytes)}, ${si(sums.seconds, "s")} each`, "memory"],
          lacks && ["ceilings and floor", missing.length > 1 ? "published" : missing.length ? "partly reached" : setting.reached ? "reached" : "published", lacks],
          ["memory-bound share of the time", percent(waiting), `${gb(one.bytes)} moved per step${n > 1 ? " by each chip" : ""}`, waiting > 0.5 ? "memory" : part("compute") > 0.5 ? "compute" : ""],
          ["share of kernels at the floor", percent(part("latency")), `${number(launches, 7)} launches per step${n > 1 ? " on each chip" : ""}`],
          ["share of the peak (MFU)", percent(one.mfu), `of the published peak, ${rate(one.peak)}`]]),
        ...(timed ? [timed] : []), ...took, ...room,
        el("pre", {}, sum),
        brief ? el("p", { class: "buttons" }, el("button", { type: "button", class: "quiet", onclick: () => { mine.reveal(now.brief); form.set(brief.fields); } }, "Show the best known design")) : decode && el("p", { class: "buttons" }, el("span", {}, best
          ? `Most tokens/s within ${si(target, "s")}: batch ${number(best.batch, 7)}, ${number(best.step.tokensPerSecond)} tokens/s. `
          : `No batch fits and takes at most ${si(target, "s")}. `), best && best.batch !== batch && use("Use it", { batch: best.batch })) || "");
      head.textContent = `All ${kernels.length} kernels of the step${n > 1 ? ", on each chip, and its all-reduces" : ""}`;
      rows.replaceChildren(grid("The kernels of the step", ["kernel", "runs", "FLOP/byte", "bound", "of the time"],
        [...kernels.map((k) => [k.name, k.count, k.bytes ? number(k.intensity) : "–", k.bound, percent(share(k))]),
          ...(sums ? [["all-reduce", sums.count, "–", "network", percent(share(sums))]] : [])]));
      return say;
    }, (now, said) => {
      keep(data, (at) => of(at)?.name)(now, said);
      if (verdict) mine.record(now.brief, verdict.met ? verdict.cost : 1e9, said);
    });
    const back = el("p", { class: "buttons" }, el("button", { type: "button", class: "quiet", onclick: () => form.set(data.start) }, data.back));
    return { ...form, report: () => [...mine.list(), `Last setting: ${form.said()}`, "", sum], node: [told, form.node, back, line, stops, picture.node, legend, below, all] };
  }
  // One story in a data centre, one at the edge, each with its own numbers and answers
  core.define("design", (host, data, ui) => {
    const places = { [data.key]: data, [data.edge.key]: { ...data, ...data.edge } }, body = el("div");
    const open = (key) => { body.replaceChildren(); lab(host, places[key], { ...ui, root: body }, () => design({ ...ui, root: body }, places[key])); };
    const first = Object.keys(core.state.read(data.edge.key)).length ? data.edge.key : data.key;
    ui.root.append(core.choose({ label: "Where it runs", options: Object.values(places).map(({ key, place }) => [key, place]), value: first, onvalue: open }).node, body);
    open(first);
  });
})();
