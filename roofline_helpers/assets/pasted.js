/* "Your chip, your kernel": counts, shapes or the text of a compiled program under the roof of a chip.
   What is computed comes from model.js, hlo.js and verdicts.js; here are the fields and the words. */
(() => {
  const { el, si } = core, { rate } = chart, number = (v, digits = 3) => core.significant(v, digits);
  // Characters of a program that a link may carry
  const LONGEST = 1500;
  // Kernels of a program in the table, and in the picture beside the whole
  const SHOWN = 12, DRAWN = 4;

  core.style(`
    .controls { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.4rem, 1fr)); gap: .5rem .9rem; align-items: start; margin-top: .6rem; }
    .controls .wide { grid-column: span 2; } .controls input, .controls select { width: 100%; } .controls .line { flex-wrap: nowrap; } .controls .field:not([hidden]) { display: flex; }
    .paste { display: flex; flex-direction: column; gap: .25rem; margin-top: .6rem; } .paste textarea { min-height: 9rem; }
    .facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.4rem, 1fr)); gap: .5rem; margin: .6rem 0 0; }
    .facts > div { background: var(--field); border: 1px solid var(--soft); border-radius: 4px; padding: .4rem .6rem; }
    .facts dt { color: var(--muted); font-size: .85em; } .facts dd { margin: 0; font-weight: 600; }
    .facts dd + dd { font-weight: 400; color: var(--muted); font-size: .85em; }
    .facts .memory { color: var(--memory); } .facts .compute { color: var(--compute); }
    .num { font-variant-numeric: tabular-nums; } .num td { text-align: right; white-space: nowrap; } .num thead th:not(:first-child) { text-align: right; }
    .num tbody th { font-weight: 400; min-width: 5.5rem; overflow-wrap: anywhere; }
    .num caption { font-weight: 600; padding-bottom: .2rem; } .scroll, .notes { margin: .9rem 0 0; } .notes { padding-left: 1.4rem; }`);

  const OWN = "own", KINDS = [["counts", "FLOPs and bytes"], ["matmul", "a matmul's shape"], ["elementwise", "an elementwise kernel"],
    ["attention", "attention's shape"], ["program", "a compiled program (HLO)"]];
  const chipOf = ({ chip, peak, memory }) => (chip !== OWN ? model.chip(chip) : { key: OWN, name: "your chip", vector: {}, bandwidth: memory * 1e9,
    inside: 0, floor: null, reached: { matrix: {}, vector: {}, bandwidth: null }, matrix: Object.fromEntries(Object.keys(tables.bits).map((t) => [t, peak * 1e12])) });
  const types = (chip) => [...new Set([...Object.keys(chip.matrix), ...Object.keys(chip.vector)])].map((t) => [t, t in chip.matrix ? t : `${t} (vector unit)`]);
  const whole = (label) => ({ label, min: 1, max: 1e9, integer: true });
  const of = (...kinds) => ({ kind }) => kinds.includes(kind), own = ({ chip }) => chip === OWN;

  /* name → what core.field or core.choose takes, and `when` it is there */
  const FIELDS = {
    chip: { label: "Chip", options: [...tables.chips.map((c) => [c.key, c.name.replace(/^(NVIDIA|AMD) /, "")]), [OWN, "your own"]] },
    peak: { label: "Your TFLOP/s", min: 1e-6, max: 1e6, when: own }, memory: { label: "Your GB/s", min: 1e-3, max: 1e6, when: own },
    dtype: { label: "Data type", options: (now) => types(chipOf(now)) },
    kind: { label: "What you have", options: KINDS },
    flops: { label: "FLOPs", min: 1, max: 1e24, when: of("counts") }, bytes: { label: "Bytes to and from memory", min: 1, max: 1e18, when: of("counts") },
    m: { ...whole("M"), when: of("matmul") }, n: { ...whole("N"), when: of("matmul") }, k: { ...whole("K"), when: of("matmul") },
    elements: { label: "Elements of a tensor", min: 1, max: 1e15, integer: true, when: of("elementwise") },
    reads: { label: "Tensors read", min: 1, max: 100, integer: true, when: of("elementwise") },
    writes: { label: "Tensors written", min: 1, max: 100, integer: true, when: of("elementwise") },
    each: { label: "FLOPs an element", min: 0, max: 1e6, when: of("elementwise") },
    batch: { ...whole("Batch"), when: of("attention") }, heads: { ...whole("Heads"), when: of("attention") },
    kvHeads: { ...whole("KV heads"), when: of("attention") }, queries: { ...whole("Queries"), when: of("attention") },
    keys: { ...whole("Keys"), when: of("attention") }, dim: { ...whole("Size of a head"), when: of("attention") },
    causal: { label: "Mask", options: [["no", "none"], ["yes", "causal"]], when: of("attention") },
  };

  // Works of what was given, with a line on how they were counted; an Error says what is wrong
  function counted(now, read) {
    const { kind, dtype } = now;
    if (kind === "counts") return { works: [verdicts.counts(now.flops, now.bytes, dtype)], how: "counts as you gave them" };
    if (kind === "matmul") return { works: [model.matmul(now.m, now.n, now.k, dtype)], how: "each matrix crosses memory once" };
    if (kind === "elementwise") {
      const tensors = (letter, many) => Object.fromEntries(Array.from({ length: many }, (_, i) => [`${letter}${i}`, dtype]));
      return { works: [model.elementwise(now.elements, tensors("x", now.reads), tensors("y", now.writes), now.each, dtype)], how: "each tensor crosses memory once" };
    }
    if (kind === "attention") return { works: [verdicts.attention({ ...now, causal: now.causal === "yes" }, dtype)], how: "one kernel, the scores stay on the chip; Q, K, V and the output cross memory once" };
    if (!now.text.trim()) throw new Error("Paste the text of a compiled program into the field.");
    const program = read(now.text);
    if (!program.rows.length) throw new Error("This program has no kernels.");
    return { works: verdicts.compiled(program.rows, dtype), program, how: `${program.rows.length} kernel${program.rows.length > 1 ? "s" : ""} as compiled` };
  }

  const facts = (list) => el("dl", { class: "facts" }, list.map(([name, value, more, kind]) =>
    el("div", {}, el("dt", {}, name), el("dd", { class: kind }, value), more && el("dd", {}, more))));
  const grid = (caption, head, rows) => core.scrolls(el("div", { class: "scroll", role: "region", "aria-label": caption },
    el("table", { class: "num" }, el("caption", {}, caption), el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, rows.map(([first, ...rest]) => el("tr", {}, el("th", { scope: "row" }, first), rest.map((c) => el("td", {}, c))))))));
  // What is known of FLOPs: a call that declares none leaves a lower bound, or nothing
  const flopsOf = (job, n = 1) => (!job.unknown?.length ? si(job.flops * n, "FLOP") : job.flops ? `over ${si(job.flops * n, "FLOP")}` : "not known");
  const WORDS = { ceilings: "whether published or reached ceilings count", floor: "whether a launch's floor counts" };
  const word = (bound) => (bound ? `${bound}-bound` : "not known");

  // What measured matmuls of this size take, by the law fitted to them; nothing where none were measured
  function like(roof, now, laws) {
    const law = now.kind === "matmul" && laws[now.chip]?.[now.dtype];
    if (!law) return [];
    const [start, compute, memory, corner, step, shapes, error] = law, { m, n, k } = now, size = tables.bits[now.dtype] / 8;
    const parts = [2 * m * n * k / roof.peak / compute, ((m + n) * k * size + 2 * m * n) / roof.bandwidth / memory, step * k];
    const seconds = start + parts.map((t) => t ** corner).reduce((a, b) => a + b, 0) ** (1 / corner);
    return [["measured kernels", `about ${si(seconds, "s")}`, `fitted to ${shapes.toLocaleString("en")} matmuls of serving libraries; on others half were within ${number(100 * error, 2)}%`]];
  }

  // On what else it depends that no case above can say
  function doubts(chip, now, works, program) {
    const moved = works.map((w) => w.bytes).reduce((a, b) => a + b, 0);
    return [
      !program && "Counted by hand: a compiler may fuse it with its neighbours or move more. Paste its program to see.",
      !program && moved <= chip.inside && `All of it (${si(moved, "B")}) fits into the ${si(chip.inside, "B")} on the chip: if it is there already, memory doesn't bind.`,
      now.chip !== OWN && !Object.keys(chip.reached.matrix).length && !chip.reached.bandwidth && "Nobody measured this chip's ceilings here: only published ones were asked.",
      !chip.floor && "No floor of a launch is known for this chip: another chip's was assumed.",
      program && "Every kernel is held against the roof of the type that you chose.",
      program?.partitions > 1 && `The program runs on ${program.partitions} devices; this is one of them, without its waits for the network.`,
      ...(program?.notes ?? []),
    ].filter(Boolean);
  }

  function longest(roof, works) {
    const rows = works.map((job) => {
      const busy = job.flops || job.bytes, { seconds, limit } = busy ? model.time(roof, job) : { seconds: 0 };
      return { job, seconds: seconds * job.launches, bound: job.unknown.length ? "FLOPs not known" : busy ? ({ hbm: "memory" })[limit] ?? "compute" : "–" };
    });
    return rows.sort((a, b) => b.seconds - a.seconds);
  }

  function table(roof, works) {
    const rows = longest(roof, works), rest = rows.slice(SHOWN), spent = (list) => list.map((r) => r.seconds).reduce((a, b) => a + b, 0);
    const shown = rows.slice(0, SHOWN).map(({ job, seconds, bound }) => [job.name, number(job.launches, 7), flopsOf(job, job.launches),
      si(job.bytes * job.launches, "B"), si(seconds, "s"), bound]);
    if (rest.length) shown.push([`${rest.length} more`, "", "", "", si(spent(rest), "s"), ""]);
    return grid("Kernels, those that take longest first", ["kernel", "launches", "FLOPs", "memory", "least time", "bound"], shown);
  }

  core.define("your-kernel", (host, data, ui) => {
    const picture = chart.make(), below = el("div"), link = el("p", { class: "muted" });
    const now = { ...data.start, text: "" }, fields = {}, given = core.state.read(data.key);
    const options = (name) => (typeof FIELDS[name].options === "function" ? FIELDS[name].options(now) : FIELDS[name].options);
    const stands = (name, v) => options(name).some(([one]) => one === v);
    for (const name of Object.keys(FIELDS)) {
      const got = !(name in given) ? undefined : FIELDS[name].options ? (stands(name, given[name]) ? given[name] : undefined) : core.parse(given[name], FIELDS[name]).value;
      if (got !== undefined) now[name] = got;
      if (name === "dtype" && !stands(name, now.dtype)) now.dtype = options(name)[0][0];
    }
    if (typeof given.text === "string") now.text = given.text.slice(0, LONGEST);

    let last = { text: null };
    // Once a text, whatever else is changed
    const read = (text) => {
      if (last.text !== text) {
        last = { text };
        try { last.program = hlo.kernels(text); } catch (error) { last.error = error; }
      }
      if (last.error) throw last.error;
      return last.program;
    };
    const area = el("textarea", { id: "hlo", rows: 9, spellcheck: "false" }, now.text);
    const paste = el("div", { class: "paste" }, el("label", { for: "hlo" }, "The text of the compiled program"), area);

    function show() {
      const chip = chipOf(now), roof = { ...model.roof(chip, now.dtype), floor: null };
      const { works, program, how } = counted(now, read);
      const verdict = verdicts.of(works, chip, data.floors), times = verdict.cases.map((one) => one.seconds);
      const sum = (f) => works.map((w) => f(w) * (w.launches ?? 1)).reduce((a, b) => a + b, 0);
      const flops = sum((w) => w.flops), bytes = sum((w) => w.bytes), intensity = flops / bytes, least = Math.min(...times), most = Math.max(...times);
      const span = least === most ? si(least, "s") : `${si(least, "s")} to ${si(most, "s")}`;
      const depends = verdict.on.map((axis) => WORDS[axis]).join(" and ");
      const unknown = works.filter((w) => w.unknown?.length), partly = unknown.length > 0 && unknown.length < works.length;
      const said = verdict.word === "depends" ? `depends on ${depends}` : word(verdict.word === "nothing" ? null : verdict.word);
      const say = `${program ? program.name || "The program" : "The kernel"} on ${roof.name}: ${si(flops, "FLOP")}, ${si(bytes, "B")}, ${number(intensity)} FLOP/byte against a ridge of ${number(roof.ridge)}: ${said}, at least ${span}.`;
      const at = (job, label, more) => ({ key: label, x: job.intensity, y: model.attainable(roof, job.intensity), label, ...more });
      const drawn = (job) => job.flops > 0 && job.bytes > 0, short = (name) => (name.length > 22 ? `${name.slice(0, 21)}…` : name);
      const points = drawn({ flops, bytes }) ? [at({ intensity }, program ? "the whole program" : rate(model.attainable(roof, intensity)), { drop: true })] : [];
      if (program && works.length > 1) points.push(...longest(roof, works).slice(0, DRAWN).filter(({ job }) => drawn(job)).map(({ job }) => at(job, short(job.name), { hollow: true })));
      picture.node.hidden = !points.length;
      if (points.length) picture.draw({ roofs: [roof], points, say });
      below.replaceChildren(
        facts([["verdict", verdict.word === "depends" ? "it depends" : word(verdict.word === "nothing" ? null : verdict.word), [verdict.word === "depends" ? `on ${depends}` : verdict.word === "nothing" ? "" : `in all ${verdict.cases.length} cases`,
          partly && `of the ${works.length - unknown.length} kernels whose FLOPs are known`].filter(Boolean).join(", "), verdict.word],
          ["least time", span, how], ...like(roof, now, data.laws), ["arithmetic intensity", bytes && unknown.length < works.length ? `${unknown.length ? "over " : ""}${number(intensity)} FLOP/byte` : "–", `ridge ${number(roof.ridge)}`],
          ["counted", flopsOf({ flops, unknown }), `${si(bytes, "B")} of memory traffic`]]),
        program ? table(roof, works) : "",
        grid("The cases", ["ceilings", "floor of a launch", "bound", "least time"], verdict.cases.map((one) =>
          [one.ceilings, one.floor === "with" ? si(verdict.floor, "s") : "none", word(one.bound), si(one.seconds, "s")])),
        el("ul", { class: "notes" }, doubts(chip, now, works, program).map((text) => el("li", {}, text))));
      return say;
    }

    let timer = 0;
    function changed(from) {
      if (!stands("dtype", now.dtype)) now.dtype = options("dtype")[0][0];
      fields.dtype.input.replaceChildren(...options("dtype").map(([v, text]) => el("option", { value: v, selected: v === now.dtype }, text)));
      const there = Object.keys(FIELDS).filter((name) => FIELDS[name].when?.(now) ?? true);
      for (const name of Object.keys(FIELDS)) fields[name].node.hidden = !there.includes(name);
      paste.hidden = now.kind !== "program";
      const fits = now.text.length <= LONGEST;
      link.textContent = now.kind !== "program" || fits ? "" : "Too long for the page's address: a link carries the chip alone.";
      let said;
      try { said = show(); } catch (error) {
        said = error.message;
        picture.node.hidden = true;
        below.replaceChildren(el("p", { class: now.kind === "program" && !now.text.trim() ? "muted" : "bad" }, said));
      }
      if (!from) return;
      core.state.write(data.key, { ...Object.fromEntries(there.map((name) => [name, now[name]])), ...(now.kind === "program" && fits && now.text && { text: now.text }) });
      clearTimeout(timer);
      timer = setTimeout(() => ui.say(said), 700);
    }
    for (const [name, spec] of Object.entries(FIELDS)) {
      const value = typeof now[name] === "number" && now[name] >= 1e7 ? now[name].toExponential().replace("+", "") : String(now[name]);
      const all = { ...spec, value, onvalue: (v) => { now[name] = v; changed(name); } };
      fields[name] = spec.options ? core.choose({ ...all, options: options(name) }) : core.field(all);
    }
    fields.kind.node.classList.add("wide");
    let typing = 0;
    area.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => { now.text = area.value; changed("text"); }, 250);
    });
    ui.root.append(el("p", {}, el("strong", {}, data.title)), el("div", { class: "controls" }, Object.keys(FIELDS).map((name) => fields[name].node)),
      paste, link, picture.node, below);
    changed(null);
  });
})();
