// A training run's MFU: what roofline.validation.utilization computes and says, with the models, chips,
// published runs and sentences that Python wrote into `mfuTables`.
const mfu = (() => {
  const { significant, si } = numbers, { texts, runs } = mfuTables;
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const share = (part) => `${significant(100 * part)}%`;
  const tera = (rate) => `${significant(rate / 1e12, 4)} TFLOP/s`;
  const say = (name, values) => texts[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
  const triangle = (n) => (n * (n + 1)) / 2;

  // Pairs of query and key that attention multiplies: unmasked ones, or all
  const pairs = ({ window, top, chunked }, s, whole) => {
    const most = window || top;
    if (!most || most >= s) return whole ? s * s : triangle(s);
    if (chunked) return Math.floor(s / most) * triangle(most) + triangle(s % most);
    return triangle(most) + (s - most) * most;
  };
  const attention = ({ mixers }, s, whole) => 2 * sum(mixers.map((m) =>
    m.count * (m.scores * pairs(m, s, whole) + m.choosing * (whole ? s * s : triangle(s)))));

  // A model of the reader's own: billions of weights, and the width of attention in each layer
  const own = ({ weights, layers, width }) => ({ name: "Your model", active: weights * 1e9, matmuls: 2e9 * weights,
    products: { qkv: 0, output: 0, up: 0, down: 0 }, total: 0, experts: false,
    mixers: [{ count: layers, scores: 2 * width, choosing: 0 }] });

  const like = (chip, dtype, experts) => {
    const same = runs.filter((run) => run.experts === experts), there = same.filter((run) => run.chip === chip.key);
    const choices = [
      [`on this chip in ${dtype}`, there.filter((run) => run.dtype === dtype)],
      [mfuTables.mixed, there],
      [`on ${chip.kind.toUpperCase()}s in ${dtype}`, same.filter((run) => run.kind === chip.kind && run.dtype === dtype)],
      ["on any chip", same],
    ];
    const [where, found] = choices.find(([, list]) => list.length >= mfuTables.enough);
    return { kind: experts ? "mixtures" : "dense models", where, runs: found };
  };

  // setting: {model, chip, dtype, tokens (of all chips, a second), chips, seq, recompute}
  const of = (setting) => {
    const model = setting.model === "own" ? own(setting) : mfuTables.models[setting.model];
    const chip = { ...tables.chips.find(({ key }) => key === setting.chip), ...mfuTables.chips[setting.chip] };
    const { dtype, seq } = setting, peak = chip.matrix[dtype], rate = setting.tokens / setting.chips;
    const counts = { "6N": 6 * model.active, matmuls: 3 * model.matmuls };
    for (const [name, whole] of [["attention", false], ["whole", true]]) counts[name] = counts.matmuls + (3 * attention(model, seq, whole)) / seq;
    const flops = counts.attention;
    const products = { ...model.products, attention: (flops - counts.matmuls) / 3 };
    const recomputed = sum(mfuTables.recompute[setting.recompute].map((name) => products[name]));
    const achieved = rate * flops, mine = achieved / peak, hfu = (rate * (flops + recomputed)) / peak;
    const near = like(chip, dtype, model.experts), shares = near.runs.map((run) => run.mfu), n = shares.length;
    const below = shares.filter((one) => one < mine).length;

    const headline = say("MFU", { model: model.name, chip: chip.name, mfu: share(mine), more: recomputed ? `, HFU ${share(hfu)}` : "",
      rate: significant(rate, 4), token: si(flops, "FLOP"), achieved: tera(achieved), peak: tera(peak), dtype });
    const standing = say("standing", { count: n, kind: near.kind, where: near.where, low: share(shares[0]), high: share(shares[n - 1]),
      middle: share((shares[(n - 1) >> 1] + shares[n >> 1]) / 2),
      lower: below === 0 ? "none is" : below === n ? "all are" : below === 1 ? "1 is" : `${below} are` });

    const faults = [];
    let most = peak;
    if (hfu * peak > peak) faults.push(texts.impossible);
    else {
      most = chip.fastest[dtype] ?? peak;
      if (hfu * peak > most) faults.push(say("improbable", { dtype, most: tera(most), share: share(most / peak) }));
    }
    if (faults.length) {
      const powers = Array.from({ length: 14 }, (_, i) => 2 ** (i + 1));
      const fitting = powers.find((k) => mine / k <= Math.min(1, most / peak)), usual = powers.find((k) => mine / k <= shares[n - 1]);
      const several = [...new Set([fitting, usual])].filter(Boolean).sort((a, b) => a - b);
      faults.push(say("total", { shares: several.map((k) => `${k}: ${share(mine / k)}`).join(", of ") }));
      const narrow = chip.matrix.fp8;
      if (narrow > peak && achieved <= narrow) faults.push(say("narrow", { peak: tera(narrow), share: share(achieved / narrow) }));
      faults.push(texts.another, texts.padding);
    }

    const doubts = [], half = chip.matrix[chip.half], sparse = chip.sparse[dtype];
    if (mine < shares[0] / 3) doubts.push(texts.little);
    if (near.where === mfuTables.mixed) {
      const same = near.runs.filter((run) => run.dtype === dtype).map((run) => share(run.mfu));
      doubts.push(say("same", { dtype, shares: same.join(", ") || "none" }));
    }
    if (chip.devices > 1) doubts.push(say("devices", { count: chip.devices, rate: significant(rate / chip.devices, 4) }));
    if (sparse && hfu <= 1) doubts.push(say("sparse", { sparse: tera(sparse), share: share(achieved / sparse) }));
    if (dtype !== chip.half) doubts.push(say("wider", { half: chip.half, share: share(achieved / half) }));
    if (model.experts) doubts.push(say("active", { active: si(model.active, "").trim(), total: si(model.total, "").trim() }));
    return { counts, flops, recomputed, mfu: mine, hfu, achieved, peak, rate, headline, standing, faults, doubts, where: near.where, runs: near.runs };
  };

  return { of, share, tera };
})();

{
  const { el, svg, si } = core, { chips, settings, facts, grid, heading } = instruments;
  core.style(`
    .runs { display: block; width: calc(100% - 1.2rem); height: 68px; margin: 1rem .6rem 0; overflow: visible; }
    .runs circle { fill: var(--memory); opacity: .75; } .runs .base { stroke: var(--muted); stroke-width: 2; }
    .runs .yours { stroke: var(--compute); stroke-width: 3; } .runs text { fill: var(--ink); font-weight: bold; }
    .scale { display: flex; justify-content: space-between; margin: 0 .1rem; color: var(--muted); font-size: .85em; }`);
  const normal = (name) => name.toLowerCase().replace(/[\s_-]+/g, "");

  core.define("mfu", (host, data, ui) => {
    const below = el("div");
    const yours = (now) => now.model === "own";
    const form = settings(ui, data.key, data.start, {
      model: { label: "Model", wide: true, options: [...Object.entries(mfuTables.models).map(([key, m]) => [key, m.name]), ["own", "your own"]] },
      weights: { label: "Weights a token uses, billions", min: 1e-4, max: 1e5, start: 1, when: yours },
      layers: { label: "Layers", min: 1, max: 1e4, integer: true, start: 16, when: yours },
      width: { label: "Heads × their size", min: 1, max: 1e6, integer: true, start: 2048, when: yours },
      chip: { label: "Chip", wide: true, options: chips() },
      dtype: { label: "Data type of the matmuls", options: (now) => Object.keys(tables.chips.find((c) => c.key === now.chip).matrix)
        .filter((type) => mfuTables.types.includes(type)).map((type) => [type, type]) },
      tokens: { label: "Tokens a second, of all chips", min: 1e-3, max: 1e12 },
      chips: { label: "Chips", min: 1, max: 1e6, integer: true },
      seq: { label: "Tokens of a sequence", min: 1, max: 1e8, integer: true },
      recompute: { label: "Recomputation", options: [["none", "nothing"], ["attention", "attention"], ["full", "the layers"]],
        when: (now) => !yours(now) },
    }, (now) => {
      const run = mfu.of({ ...now, recompute: yours(now) ? "none" : now.recompute });
      const possible = run.hfu <= 1, at = Math.min(run.mfu, 1.02) * 100, said = run.faults.length ? run.faults : [run.standing];
      const dots = run.runs.map((one, i) => svg("circle", { cx: `${100 * one.mfu}%`, cy: 58 - 9 * (i % 5), r: 4.5 },
        svg("title", {}, `${one.model} on ${one.chips} × ${one.chip}: ${mfu.share(one.mfu)}`)));
      const strip = svg("svg", { class: "runs", role: "img", "aria-label": run.standing },
        svg("line", { class: "base", x1: 0, x2: "100%", y1: 67, y2: 67 }), dots,
        svg("line", { class: "yours", x1: `${at}%`, x2: `${at}%`, y1: 0, y2: 67 }),
        svg("text", { x: `${at}%`, dx: at > 55 ? -8 : 8, y: 12, "text-anchor": at > 55 ? "end" : "start" }, `yours ${mfu.share(run.mfu)}`));
      const names = { "6N": "6 N", matmuls: "matmuls", attention: "and attention, as masked", whole: "and attention, whole" };
      below.replaceChildren(
        el("p", {}, run.headline),
        ...said.map((text) => el("p", { class: run.faults.length ? "bad" : undefined }, text)),
        strip,
        el("div", { class: "scale", "aria-hidden": "true" }, [0, 25, 50, 75, 100].map((p) => el("span", {}, `${p}%`))),
        facts([["MFU", mfu.share(run.mfu), "of the dense peak", possible ? undefined : "bad"],
          run.recomputed && ["HFU", mfu.share(run.hfu), "with what is computed again", possible ? undefined : "bad"],
          ["a token", si(run.flops, "FLOP"), "counted"], ["of a chip", mfu.tera(run.achieved), `peak ${mfu.tera(run.peak)}`]]),
        grid("The same run, counted in other ways", ["counted", "a token", "of the peak"], Object.entries(run.counts).map(([name, flops]) =>
          [names[name], si(flops, "FLOP"), mfu.share((run.rate * flops) / run.peak)])),
        el("ul", {}, run.doubts.map((text) => el("li", {}, text))));
      return `${run.headline} ${said.join(" ")}`;
    });
    const told = el("span", { id: "told", role: "status" }, "");
    const device = el("input", { id: "device", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "NVIDIA H100 80GB HBM3", "aria-describedby": "told",
      oninput: () => {
        const found = mfuTables.names[normal(device.value)];
        told.textContent = !device.value ? "" : found ? "" : "Not a name that stands in the table as it is: choose the chip below, or ask the command.";
        if (found) form.move("chip", found);
      } });
    ui.root.append(heading(data.title),
      el("p", { class: "field" }, el("label", { for: "device" }, "What JAX, PyTorch or nvidia-smi calls the device"), device, told), form.node, below);
    form.draw();
  });
}
