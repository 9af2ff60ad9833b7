// The sharded layer, and the two labs. What they compute comes from model.js, serving.js, network.js
// and briefs.js, what they say in questions from Python as data.
(() => {
  const { el, si } = core, { rate } = chart, { money } = briefs;
  const { number, percent, chips, types, settings, facts, grid, heading, word, matmul } = instruments;

  core.style(`
    .bar { display: flex; position: relative; height: 1.5rem; margin-top: .6rem; border: 1px solid var(--line); border-radius: 4px; overflow: hidden; }
    .bar > span { border-right: 1px solid var(--ground); } .bar > i { position: absolute; height: 100%; border-left: 3px dashed var(--ink); }
    .stop { border: 2px solid var(--bad); border-radius: 4px; padding: .5rem .7rem; margin-top: .6rem; }
    .result { position: sticky; bottom: 0; z-index: 1; padding: .4rem 0; background: var(--ground); border-top: 1px solid var(--soft); font-weight: 600; } .result::first-letter { text-transform: uppercase; }
    .act h3 { margin: 1.2rem 0 .3rem; font-size: 1.05em; } .act ol, .act ul { margin: .3rem 0 0; padding-left: 1.4rem; }`);

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

  // ---- the labs ----------------------------------------------------------------------------------

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
      el("details", {}, el("summary", {}, "The governing equations"), el("pre", {}, data.equations.join("\n")))));
  }

  // Lab 1's matmul: of any chip, type and shape that was timed, beside the measured kernel; and a goal
  function wall(ui, data) {
    const told = el("div"), line = result(), { measured, goal } = data, best = tries(data.key, { goal: goal.name });
    const aims = ({ task }) => task === "goal", free = (now) => !aims(now);
    const dragged = (label, [least, ...more], step) => ({ label, min: least, max: more.at(-1), slider: true, step, parts: 1, when: step > 1 ? free : undefined }); // over the measured ones
    const fields = {
      task: { label: "Task", options: [["free", "Free play"], ["goal", goal.name]], wide: true, anew: true },
      chip: { label: "Chip", options: (now) => chips().filter(([key]) => free(now) || key in measured.times), wide: true },
      dtype: { label: "Data type", options: (now) => types(now.chip).filter(([t]) => !aims(now) || t in measured.times[now.chip]) },
      m: dragged("M (tokens)", measured.rows, 1), n: dragged("N", measured.sides, 128), k: dragged("K", measured.sides, 128),
    };
    const shape = (now) => ({ ...now, ...(aims(now) && goal.shape), out: tables.bits[now.dtype] < 16 ? "bf16" : now.dtype });
    const part = (share, whole) => `${percent(share)} ${share > 9.995 ? "" : "of "}${whole}`;
    let cost = 0;
    const extra = (now, { m, n, k, job, roof, top, bound }) => {
      const took = 1e-6 * (measured.times[now.chip]?.[now.dtype]?.[`${n}x${k}`]?.[measured.rows.indexOf(m)] ?? 0), achieved = took && job.flops / took;
      const share = achieved && model.efficiency(roof, achieved, job.intensity);
      const aim = aims(now) && { met: took > 0 && took <= goal.seconds, cost: (goal.rent[now.chip] / 3600) * (took / m) * 1e9 };
      cost = aim.met ? aim.cost : 1e9;
      const scored = aim && (aim.met ? `score ${number((100 * goal.best_cost) / aim.cost)} of 100, ${money(aim.cost)} per billion tokens`
        : `score 0 of 100, ${took ? `${si(took, "s")} of ${si(goal.seconds, "s")}` : `no measured time at M = ${number(m, 7)}: take a power of two`}`);
      line.textContent = `${aim ? scored : `at most ${rate(top)}${took ? `, measured ${rate(achieved)}` : ""}`}; ${word(bound)}`;
      told.replaceChildren(...(aim ? [goal.story, goal.priced].map((text) => el("p", {}, text)) : []));
      return {
        first: aim ? `${goal.name}: ${scored}. ` : "",
        last: achieved ? ` Measured: ${si(took, "s")}, ${part(share, "that roof")}.` : "",
        points: achieved ? [{ key: "a", x: job.intensity, y: achieved, series: 3, label: `measured: ${part(share, "the roof")}` }] : [],
        before: aim ? [["score", scored.split(",")[0].slice(6), aim.met ? `best of the measured kernels: ${money(goal.best_cost)}` : scored.split(", ")[1], aim.met ? "" : "bad"],
          ["per billion tokens", took ? money(aim.cost) : "–", `${money(goal.rent[now.chip])} an hour`]] : [],
        after: [["measured time", took ? si(took, "s") : "–", took ? "the fastest of the libraries timed" : `none for this chip, type and shape: M, N and K of measured kernels are powers of two${measured.times[now.chip]?.[now.dtype] ? "" : ", on H100, H200 and B200"}`],
          ...(achieved ? [["measured of the peak (MFU)", percent(model.mfu(roof, achieved)), rate(achieved)],
            ["measured of the roof", percent(share), share > 1 ? "operands came from the cache on the chip" : `${number(1 / share)} times as fast at best`]] : [])],
      };
    };
    const form = matmul(ui, data, { fields, shape, extra, log(now, said) {
      keep(data, (at) => aims(at) && goal.name)(now, said);
      if (aims(now)) best.record("goal", cost, said);
    } });
    return { ...form, report: () => [...best.list(), `Last setting: ${form.said()}`], node: [told, form.node, line, form.picture, form.below] };
  }
  core.define("memory-wall", (host, data, ui) => lab(host, data, ui, () => wall(ui, data)));

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
      model: { label: "Model", wide: true, when: free, options: Object.entries(servingTables.models).map(([k, { name }]) => [k, name]) },
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
      const wired = sums && servingTables.sums[chip][n], noLinks = sums && String(wired[0]) === String(wired[1]);
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
