// Is a measured time good? What roofline_helpers.judge computes and says, with the laws and measured
// kernels that Python wrote into `judgingTables`. tests/package/test_parity_judging.py holds both together.
const judging = (() => {
  const { si } = numbers, T = judgingTables, ABSENT = T.letters.at(-2), LONG = T.letters.at(-1);

  const quantile = (sorted, at) => {
    const place = Math.min(Math.max(at, 0), sorted.length - 1), low = Math.floor(place);
    return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (place - low);
  };
  const linear = (sorted, q) => quantile(sorted, (sorted.length - 1) * q);
  const weibull = (sorted, q) => quantile(sorted, (sorted.length + 1) * q - 1);
  const ascending = (list) => list.sort((a, b) => a - b);

  // ---- kernels of serving libraries ----

  const COMPUTED = { nvfp4: "fp4" };
  const family = ({ kind, queries, keys, causal }) => (kind === "matmul" ? "matmul" : kind !== "attention" ? null
    : queries === 1 ? "decode_attention" : causal && queries === keys ? "prefill_attention" : null);
  const sides = (shape) => ({ ...shape, batch: shape.batch, heads: shape.heads, kv_heads: shape.kvHeads, head_dim: shape.dim, kv_len: shape.keys });
  const counted = (of, row, type) => (of === "matmul" ? model.matmul(row.m, row.n, row.k, type, { out: "bf16" })
    : verdicts.attention({ batch: row.batch, heads: row.heads, kvHeads: row.kv_heads, dim: row.head_dim, keys: row.kv_len,
      queries: of === "decode_attention" ? 1 : row.kv_len, causal: of === "prefill_attention" }, type));
  function byLaw([start, compute, memory, corner, step], job, roof, length) {
    const parts = [job.flops / roof.peak / compute, job.bytes / roof.bandwidth / memory, step * length];
    return start + model.sum(parts.map((t) => t ** corner)) ** (1 / corner);
  }
  // Each measured time in steps beside the law's, undefined where a shape wasn't measured
  function decode(text) {
    const found = [], base = T.letters.length, zero = Math.floor((base - 3) / 2), codes = Object.fromEntries([...T.letters].map((c, i) => [c, i]));
    for (let i = 0; i < text.length; i++) {
      if (text[i] === ABSENT) found.push(undefined);
      else if (text[i] !== LONG) found.push(codes[text[i]] - zero);
      else found.push(codes[text[++i]] * base + codes[text[++i]] - Math.floor(base ** 2 / 2));
    }
    return found;
  }
  const kept = new Map();
  function like(of, chip, type, wanted) {
    const { names, runs, chips } = T.libraries[of], own = chips[chip.key][type];
    if (!own.times) return [];
    const key = `${of} ${chip.key} ${type}`, steps = kept.get(key) ?? decode(own.times), factor = T.near[of];
    kept.set(key, steps);
    const near = (name, value) => value <= wanted[name] * factor && value >= wanted[name] / factor;
    const roof = model.roof(chip, COMPUTED[type] ?? type), last = names.at(-1), ratios = [];
    let at = 0, along = null;
    for (const run of runs) {
      along = run.at(-1) || along;
      if (names.every((name, i) => name === last || near(name, run[i]))) along.forEach((value, i) => {
        const off = steps[at + i];
        if (off === undefined || !near(last, value)) return;
        const row = Object.fromEntries(names.map((name, j) => [name, name === last ? value : run[j]]));
        const law = byLaw(own.law, counted(of, row, type), roof, of === "matmul" ? row.k : row.kv_len);
        ratios.push(1e-9 * 2 ** ((Math.floor(T.steps * Math.log2(law * 1e9) + 0.5) + off) / T.steps) / law);
      });
      at += along.length;
    }
    return ratios;
  }

  // ---- kernels as XLA makes them ----

  const TILE = 128, SMS = 132;
  function features(job, shape) {
    const tensors = [...Object.values(job.reads), ...Object.values(job.writes)], most = Math.max(...tensors), bits = tables.bits[job.dtype];
    const elements = Math.round((most * 8) / bits / (tensors.includes(most / 2) ? 2 : 1));
    const [kind, sizes] = { matmul: ["matmul", [shape.m, shape.k, shape.n]],
      attention: ["attention", [shape.batch * shape.heads, shape.keys, shape.dim]],
      rowwise: ["normalisation", [Math.floor(elements / shape.columns), shape.columns, 1]],
      elementwise: ["stream", [elements]] }[shape.kind] ?? [];
    if (!kind || (kind === "attention" && family(shape) !== "prefill_attention")) return null;
    return { kind, sizes, bits, each: Math.max(job.vector / elements, 1) };
  }
  function parts({ kind, sizes, bits, each }, job, chip) {
    const [outer, along, inner] = [...sizes, 1, 1, 1], roof = model.roof(chip, job.dtype), elements = outer * inner * along;
    const moved = job.bytes / roof.bandwidth, multiplied = job.matrix / roof.peak, odd = (along * bits) % 128 || (inner * bits) % 128;
    const tiles = Math.max(job.matrix / (2 * elements), 1) * Math.ceil(outer / TILE) * Math.ceil(inner / TILE);
    const width = elements % 4 === 0 ? 4 : elements % 2 === 0 ? 2 : 1;
    return { bytes: moved, FLOPs: multiplied, "FLOPs unaligned": odd ? multiplied : 0, "FLOPs of a byte": bits <= 8 ? multiplied : 0,
      "FLOPs of 128": (multiplied * TILE) / inner, waves: (Math.ceil(tiles / SMS) * SMS * 2 * TILE ** 2 * along) / roof.peak,
      blocks: elements / width / TILE / 1.65e9, instructions: each * elements * 1e-14, chain: each * 1e-9, along: along * 1e-9,
      rows: (kind === "attention" ? outer * along : outer) * 1e-9 };
  }
  function ofClass(job, shape, chip) {
    const measured = T.measured.includes(chip.key) && (!job.matrix || T.multiplied.includes(job.dtype));
    const of = measured && features(job, shape);
    if (!of) return null;
    const law = T.classes[of.kind], found = parts(of, job, chip), names = Object.keys(law.weights);
    const shares = names.map((name) => law.weights[name] * found[name]);
    const seconds = (list) => {
      const largest = Math.max(...list, 1e-30);
      return law.start + largest * model.sum(list.map((s) => (s / largest) ** law.corner)) ** (1 / law.corner);
    };
    const whole = law.start + Math.max(...shares), mine = seconds(shares), cases = new Set(), residuals = [];
    for (const kernel of law.kernels) {
      const theirs = kernel.slice(0, -2), [took, id] = kernel.slice(-2), all = seconds(theirs);
      const near = theirs.every((s, i) => Math.max(s / all, shares[i] / whole) <= T.matters
        || Math.abs(Math.log(s / shares[i])) <= T.like);
      if (!near) continue;
      cases.add(id);
      residuals.push(Math.log(took / all));
    }
    ascending(residuals);
    const n = cases.size, enough = n >= T.few, [low, high] = enough ? [law.low, law.high] : law.wide;
    const times = residuals.map((r) => mine * Math.exp(r));
    if (!enough) return { seconds: mine, low: mine * low, high: mine * high, source: `its class, ${of.kind}`, times };
    const worth = n / (n + T.few), middle = linear(residuals, 0.5), center = mine * Math.exp(worth * middle);
    const [from, to] = [[0.1, low], [0.9, high]].map(([q, factor]) =>
      center * Math.exp((1 - worth) * Math.log(factor) + worth * (weibull(residuals, q) - middle)));
    return { seconds: center, low: from, high: to, source: `measured, ${n} like it`, times };
  }

  // ---- the procedure ----

  // What is normal, from the first that answers; `times` are those of kernels like it
  function expected(job, shape, chip, least) {
    const of = family(shape), type = T.named[job.dtype], library = of && T.libraries[of].chips[chip.key]?.[type];
    const law = library && byLaw(library.law, job, model.roof(chip, job.dtype), of === "matmul" ? shape.k : shape.keys);
    if (law) {
      const times = ascending(like(of, chip, type, sides(shape)).map((ratio) => ratio * law));
      if (times.length >= T.fewest) {
        const [low, middle, high] = [0.1, 0.5, 0.9].map((q) => linear(times, q));
        return { seconds: middle, low: Math.min(low, middle / 1.1), high: Math.max(high, 1.1 * middle), source: `measured, ${times.length} like it`, times };
      }
    }
    const found = ofClass(job, shape, chip);
    if (found) return found;
    if (!law) return { seconds: null, low: least, high: Infinity, source: "not measured", times: [] };
    return { seconds: law, low: law / (1 + library.off), high: law * (1 + library.off), source: "the law of libraries' kernels", times: [] };
  }

  /* judging.of(job, shape, chip, seconds): {verdict, step, seconds, expected, low, high, source, least, bound, next, times, said}
     job: work of model.js; shape: {kind, and its sizes}; chip: of the table, or the reader's own */
  function of(job, shape, chip, seconds) {
    const { devices, cache } = T.chips[chip.key] ?? { devices: 1, cache: 0 };
    const whole = model.time({ ...model.roof(chip, job.dtype), floor: null }, job), least = whole.seconds * devices;
    const bound = whole.limit === "hbm" ? "memory" : "compute", found = expected(job, shape, chip, least);
    if (job.bytes > cache) found.low = Math.max(found.low, least);
    const answer = { seconds, expected: found.seconds, low: found.low, high: found.high, source: found.source, least, bound, times: found.times, step: 6,
      next: "compare the bytes and FLOPs of its program with the count, remove what is more; then time another implementation" };
    if (seconds < 0.98 * least && seconds < found.low) {
      Object.assign(answer, { verdict: "impossible", step: 3, next: "count again: a FLOP, a byte or a second is wrong, or a cache held the operands" });
    } else if (found.seconds === null) answer.verdict = "not measured";
    else if (seconds <= found.high) {
      Object.assign(answer, { verdict: seconds >= found.low ? "normal" : "faster than its kind", step: 7, next: T.next[seconds < 1e-5 ? "latency" : bound] });
    } else if (seconds > T.spread * found.seconds) answer.verdict = "far off";
    else Object.assign(answer, { verdict: "slow for its kind", next: `time another implementation in the same program; ${answer.next.split(";")[0]}` });
    const took = si(seconds, "s"), like = /^measured, (\d+) like it$/.exec(found.source);
    const law = found.source.replace("its class", "the law of its class").split(",")[0];
    const who = like ? `${like[1]} measured kernels like it` : `by ${law}, such kernels`;
    const said = answer.verdict === "impossible" ? `${took} is impossible: at published peaks it takes at least ${si(least, "s")}`
      : found.seconds === null ? `${took} can't be judged: no kernel like it was measured; ${si(least, "s")} is the least`
      : `${took} is ${answer.verdict}: ${who} take ${si(found.seconds, "s")} (${si(found.low, "s")} to ${si(found.high, "s")})`;
    return { ...answer, said };
  }

  return { of };
})();

{
  const { el, svg, si } = core, { number, types, chipOf, CHIP, settings, facts, grid, heading, word } = instruments, { rate } = chart;
  core.style(`
    .like { margin: .9rem 0 .4rem; } .like svg { display: block; width: 100%; font: 12.5px system-ui, sans-serif; }
    .like .bar { fill: var(--memory); opacity: .6; } .like .eight { fill: var(--memory); opacity: .14; }
    .like line { stroke: var(--ink); stroke-width: 1.6; } .like .middle { stroke: var(--memory); stroke-dasharray: 5 3; stroke-width: 2; }
    .like .yours { stroke: var(--compute); stroke-width: 3; } .like text.yours { fill: var(--compute); stroke: var(--ground); stroke-width: 4px; font-weight: bold; }
    .like text.middle { fill: var(--memory); stroke: var(--ground); stroke-width: 4px; stroke-dasharray: none; } .like .axis { stroke: var(--muted); }
    .said { font-weight: 600; }`);

  // The measured kernels like it, each at its time scaled to this size, with four marks above them
  function histogram(node, answer) {
    const { times, least, expected, low, high, seconds } = answer, W = Math.max(node.clientWidth || 640, 260), H = 226;
    const marks = [["yours", seconds, "yours"], expected && ["median", expected, "middle"], ["least", least, "least"]].filter(Boolean);
    const all = [...times, ...marks.map(([, t]) => t), ...(expected ? [low, high] : [])], from = Math.min(...all), to = Math.max(...all);
    const log = to / from > 4, scale = log ? Math.log : (t) => t, room = (scale(to) - scale(from)) * 0.05 || 1;
    const [x0, x1] = [scale(from) - room, scale(to) + room], X = (t) => 6 + ((W - 12) * (scale(t) - x0)) / (x1 - x0);
    const top = 62, base = H - 46, width = 9, bins = new Map(), out = [];
    for (const t of times) { const bin = Math.floor((X(t) - 6) / width); bins.set(bin, (bins.get(bin) ?? 0) + 1); }
    const most = Math.max(...bins.values(), 1);
    if (expected) out.push(svg("rect", { class: "eight", x: X(low), width: Math.max(X(high) - X(low), 1), y: top, height: base - top }));
    for (const [bin, n] of bins) {
      const height = ((base - top - 6) * n) / most;
      out.push(svg("rect", { class: "bar", x: 6 + bin * width + 0.5, width: width - 1, y: base - height, height }));
    }
    const said = (x, y, text, kind) => {
      const right = x > W / 2;
      out.push(svg("text", { class: `${kind} halo`, x: x + (right ? -5 : 5), y, "text-anchor": right ? "end" : "start" }, text));
    };
    // The outermost has the highest name, towards the middle: no line further inside crosses it
    const outer = marks.sort((a, b) => Math.abs(X(b[1]) - W / 2) - Math.abs(X(a[1]) - W / 2));
    outer.forEach(([, t, kind], i) => out.push(svg("line", { class: kind, x1: X(t), x2: X(t), y1: 4 + 18 * i, y2: base })));
    outer.forEach(([name, t, kind], i) => said(X(t), 14 + 18 * i, `${name} ${si(t, "s")}`, kind));
    if (expected) out.push(svg("text", { class: "middle halo", x: W / 2, y: H - 4, "text-anchor": "middle" }, `shaded: eight in ten, ${si(low, "s")} to ${si(high, "s")}`));
    out.push(svg("line", { class: "axis", x1: 0, x2: W, y1: base, y2: base }));
    const decades = [], wide = (to - from) / (W / 110), unit = 10 ** Math.floor(Math.log10(wide)), step = [1, 2, 5, 10].map((s) => s * unit).find((s) => s >= wide);
    if (log) for (let e = Math.floor(Math.log10(from)); 10 ** e <= to; e++) decades.push(...[1, 2, 5].map((s) => s * 10 ** e));
    else for (let i = Math.ceil(from / step); i * step <= to; i++) decades.push(i * step);
    let end = -Infinity;
    for (const t of decades) {
      if (t < from || t > to || X(t) - end < 62 || X(t) < 26 || X(t) > W - 26) continue;
      end = X(t);
      out.push(svg("line", { class: "axis", x1: end, x2: end, y1: base, y2: base + 5 }), svg("text", { class: "tick", x: end, y: base + 19, "text-anchor": "middle" }, si(t, "s")));
    }
    const caption = `${times.length || "No"} measured kernels like it${expected ? `: eight in ten take ${si(low, "s")} to ${si(high, "s")}` : ""}. Yours takes ${si(seconds, "s")}, the least time is ${si(least, "s")}.`;
    node.replaceChildren(svg("svg", { role: "img", "aria-label": caption, viewBox: `0 0 ${W} ${H}` }, out));
  }
  // A reader's own kernel, by its counts or its shape, and the time that it took
  core.define("your-kernel", (host, data, ui) => {
    const first = el("div", { role: "group" }), like = el("div", { class: "like" }), picture = chart.make(), below = el("div");
    let drawn = null;
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
      rowwise: ({ op, rows, columns, dtype }) => [model.rowwise(op, rows, columns, dtype,
        { parameters: { layernorm: ["γ", "β"], rmsnorm: ["γ"], softmax: [] }[op] }), "each tensor crosses memory once"],
      attention: (now) => [verdicts.attention({ ...now, causal: now.causal === "yes" }, now.dtype),
        "one kernel, the scores stay on the chip; Q, K, V and the output cross memory once"],
    };
    const depends = { ceilings: "whether published or reached ceilings count", floor: "whether a launch's floor counts" };
    // On what else it depends that no case can say
    const doubts = (chip, job) => [
      "Counted by hand: a compiler may fuse it with its neighbours or move more.",
      job.bytes <= chip.inside && `All of it (${si(job.bytes, "B")}) fits into the ${si(chip.inside, "B")} on the chip: if it is there already, memory doesn't bind.`,
      !chip.key.startsWith("own") && !Object.keys(chip.reached.matrix).length && !chip.reached.bandwidth && "Nobody measured this chip's ceilings here: only published ones were asked.",
      !chip.floor && "No floor of a launch is known for this chip: another chip's was assumed.",
    ].filter(Boolean);
    const form = settings(ui, data.key, data.start, {
      ...CHIP,
      dtype: { label: "Data type", options: (now) => types(chipOf(now, now.chip)) },
      kind: { label: "What you have", wide: true, options: [["counts", "FLOPs and bytes"], ["matmul", "a matmul's shape"],
        ["elementwise", "an elementwise kernel"], ["rowwise", "softmax or a norm"], ["attention", "attention's shape"]] },
      ...of("counts", { flops: { label: "FLOPs", min: 1, max: 1e24 }, bytes: { label: "Bytes to and from memory", min: 1, max: 1e18 } }),
      ...of("matmul", { m: size("M"), n: size("N"), k: size("K") }),
      ...of("elementwise", { elements: size("Elements of a tensor", 1e15), reads: size("Tensors read", 100), writes: size("Tensors written", 100),
        each: { label: "FLOPs an element", min: 0, max: 1e6 } }),
      ...of("rowwise", { op: { label: "Operation", options: [["softmax", "softmax"], ["layernorm", "LayerNorm"], ["rmsnorm", "RMSNorm"]] },
        rows: size("Rows"), columns: size("Columns") }),
      ...of("attention", { batch: size("Batch"), heads: size("Heads"), kvHeads: size("KV heads"), queries: size("Queries"), keys: size("Keys"),
        dim: size("Size of a head"), causal: { label: "Mask", options: [["no", "none"], ["yes", "causal"]] } }),
      took: { label: "Measured time, µs", min: 1e-3, max: 1e12 },
    }, (now) => {
      const chip = model.chip(chipOf(now, now.chip)), roof = { ...model.roof(chip, now.dtype), floor: null };
      let job, how;
      try {
        [job, how] = count[now.kind](now);
      } catch (error) {
        picture.node.hidden = like.hidden = true;
        first.replaceChildren();
        drawn = null;
        below.replaceChildren(el("p", { class: "bad" }, error.message));
        return error.message;
      }
      const answer = judging.of(job, { ...now, causal: now.causal === "yes" }, chip, now.took * 1e-6), { devices } = judgingTables.chips[chip.key] ?? { devices: 1 };
      const bad = ["impossible", "far off", "slow for its kind"].includes(answer.verdict);
      first.replaceChildren(el("p", { class: "said" }, `${answer.said}.`),
        facts([["your time", answer.verdict, si(answer.seconds, "s"), bad ? "bad" : undefined],
          ["normal", answer.expected === null ? "not measured" : si(answer.expected, "s"),
            answer.expected === null ? "for kernels like this one" : `eight in ten take ${si(answer.low, "s")} to ${si(answer.high, "s")}`],
          ["source", answer.source, "of what is normal"],
          ["bound", si(answer.least, "s"), `by ${answer.bound}; with operands from memory, none is shorter`, answer.bound]]),
        el("p", {}, el("strong", {}, `Next is step ${answer.step}: `), `${answer.next}.`),
        ...(devices > 1 ? [el("p", {}, `JAX has ${devices} devices of a ${chip.name} chip: the time and its bound are those of one of them, the roof below is the chip's.`)] : []));
      like.hidden = false;
      drawn = answer;
      histogram(like, answer);
      const verdict = verdicts.of(job, chip, judgingTables.floors), times = verdict.cases.map((one) => one.seconds);
      const [least, most] = [Math.min(...times), Math.max(...times)].map((t) => si(t, "s"));
      const span = least === most ? least : `${least} to ${most}`, on = verdict.on.map((axis) => depends[axis]).join(" and ");
      const say = `${answer.said}. Next is step ${answer.step}: ${answer.next}. The kernel on ${roof.name}: ${si(job.flops, "FLOP")}, ${si(job.bytes, "B")}, ${number(job.intensity)} FLOP/byte against a ridge of ${number(roof.ridge)}: ${on ? `depends on ${on}` : word(verdict.word)}, at least ${least}${least === most ? "" : `; ${most} in the slowest of the cases`}.`;
      const top = model.attainable(roof, job.intensity);
      picture.node.hidden = !job.flops;
      if (job.flops) picture.draw({ roofs: [roof], say, points: [{ key: "p", x: job.intensity, y: top, label: rate(top), drop: true }] });
      below.replaceChildren(
        facts([["limit", on ? "it depends" : word(verdict.word), on ? `on ${on}` : `in all ${verdict.cases.length} cases`, verdict.word],
          ["least time", span, how], ["arithmetic intensity", `${number(job.intensity)} FLOP/byte`, `ridge ${number(roof.ridge)}`],
          ["counted", si(job.flops, "FLOP"), `${si(job.bytes, "B")} of memory traffic`]]),
        grid("The cases", ["ceilings", "floor of a launch", "bound", "least time"], verdict.cases.map((one) =>
          [one.ceilings, one.floor === "with" ? si(verdict.floor, "s") : "none", word(one.bound), si(one.seconds, "s")])),
        el("ul", {}, doubts(chip, job).map((text) => el("li", {}, text))));
      return say;
    });
    ui.root.append(heading(data.title), form.node, first, like, heading("What limits it"), picture.node, below);
    form.draw();
    new ResizeObserver(() => drawn && histogram(like, drawn)).observe(like);
  });
}
