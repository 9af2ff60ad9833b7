/* One step of serving a language model, on one chip or on several with a fast network.

   The same as `roofline.serving` has in Python; tests/package/test_parity.py holds both
   together. Units and errors as in model.js.

   `servingTables`, a constant that stands before this file (labs/javascript.py writes it):
     servingTables.narrow      [dtype]: types of weights and cache beside the chip's 16-bit one
     servingTables.group       weights of int4 that share a scale
     servingTables.costs       {operation: FLOPs an element} beside those of model.js
     servingTables.stored      first letters of the tensors that stay in memory from step to step
     servingTables.handed      [tensor]: what a layer leaves to the next one
     servingTables.elsewhere   [operation]: those between layers, which run where a strategy has them
     servingTables.models      {key: {name, layers, d_model, heads, kv_heads, head_dim, d_ff, vocabulary, experts: {count, active, d_ff} or null, …}}
     servingTables.strategies  {fusion: [{ops: [name], count: "once"|"layers"|"between", keep: [tensor]}]};
                         without a count "layers"
     servingTables.split       those that are others on several chips
     servingTables.sums        {chip: {number of chips: [published, reached]}, each a list of [seconds, seconds a
                         byte]: an all-reduce takes the least of these lines

   serving.types(chip)                    [dtype] that its weights and its cache can have
   serving.formats(chip)                  [{weights, activations}] that it can multiply
   serving.counts(chip)                   [number] of chips that can share a model

   setting = {chip, chips: how many of them, model: key, phase: "decode"|"prefill", batch, context, weights, activations, cache,
              fusion: "none"|"pointwise"|"epilogue", attention: "naive"|"flash",
              reached, floor, resident: booleans, reserve: share of the memory}
     all but chip may be left out; one chip, Llama 3 8B; weights, activations and cache are the chip's 16-bit type then
   serving.step(setting) = {          kernels, flops, bytes and memory of each chip
     setting,                            with every default filled in
     kernels: [{name, ops: [name], count, dtype, matrix, vector, flops, bytes, reads, writes,
                intensity, seconds (of one), total (count × seconds), limit, bound, attainable}],
     sums: {count, bytes, seconds (of one), total}, what several chips exchange; null for one,
     seconds, tokens, tokensPerSecond, timePerToken, flops, bytes, intensity, mfu, peak,
     memory: {weights, cache, activations, total, reserve, capacity}, fits, room (bytes left; negative: missing) }
   serving.memory(setting)                 only that part
   serving.instead(setting) = {chips, batch, context, narrower: [{weights, activations, cache}]}
     what would fit: the fewest chips, the largest batch at this context, the largest context at this batch (0: none),
     and the narrower types with which this batch and context fit
   serving.largestBatch(setting)           the most sequences that fit
   serving.bestBatch(setting, latency) = {batch, step}   or null where not even batch 1 is fast enough or fits
*/

const serving = (() => {
  "use strict";

  const { need, oneOf, whole, sum, nbytes, work, chip, roof, time } = model;
  const { matmul, elementwise, rowwise, fuse } = model;

  // Tensors that several kernels need stay on the chip from the first to the last, as far as there is
  // room: the smallest get it first. `onward` are read by what runs next, `travels` never stay
  const resident = (jobs, capacity, onward = [], travels = []) => {
    const tensors = {};
    jobs.forEach((job, at) => {
      for (const [group, made] of [["reads", false], ["writes", true]]) {
        for (const [name, size] of Object.entries(job[group])) {
          const each = (tensors[name] ??= { name, size, first: at, made, uses: 0 });
          each.size = Math.max(each.size, size);
          each.last = at;
          each.uses += 1;
        }
      }
    });
    for (const name of onward) {
      tensors[name].last = jobs.length - 1;
      tensors[name].uses += 1;
    }
    const used = jobs.map(() => 0);
    const chosen = new Set();
    for (const each of Object.values(tensors).sort((a, b) => a.size - b.size || a.first - b.first)) {
      const free = used.slice(each.first, each.last + 1).every((n) => n + each.size <= capacity);
      if (each.uses < 2 || !free || travels.includes(each.name)) continue;
      chosen.add(each.name);
      for (let at = each.first; at <= each.last; at += 1) used[at] += each.size;
    }
    const enters = (name, at) => !chosen.has(name) || (!tensors[name].made && tensors[name].first === at);
    return jobs.map((job, at) => {
      const only = (group, test) => Object.fromEntries(Object.entries(job[group]).filter(([name]) => test(name)));
      const reads = only("reads", (name) => enters(name, at));
      return work(job.name, reads, only("writes", (name) => !chosen.has(name)), job);
    });
  };

  const cost = (op) => servingTables.costs[op] ?? model.cost(op);

  const counts = (given) => [1, ...Object.keys(servingTables.sums[chip(given).key]).map(Number)];

  // One chip's part of a model: heads and widths are split, what passes on is whole
  const share = (s) => {
    const { heads, kv_heads, vocabulary, experts, ...whole } = s.model;
    const d_ff = experts ? experts.d_ff : s.model.d_ff;
    const part = ([name, size]) => [name, Math.floor(size / s.chips)];
    return { ...whole, experts, ...Object.fromEntries(Object.entries({ heads, kv_heads, d_ff, vocabulary }).map(part)) };
  };

  const types = (given) => [chip(given).half, ...servingTables.narrow];

  // Narrow weights alone go with every chip, narrow activations need its peak
  const formats = (given) => {
    const { half, matrix } = chip(given);
    const both = servingTables.narrow.filter((dtype) => tables.bits[dtype] === 8 && dtype in matrix);
    return [
      ...types(given).map((weights) => ({ weights, activations: half })),
      ...both.map((dtype) => ({ weights: dtype, activations: dtype })),
    ];
  };

  const defaults = (given) => {
    const on = chip(given.chip);
    const { phase = "decode", batch = 1, context = 2048, fusion = "pointwise" } = given;
    const { weights = on.half, activations = on.half, cache = on.half, attention = "flash" } = given;
    const { reached = false, floor = true, resident: stays = false, reserve = 0 } = given;
    const { chips = 1, model: served = "llama-3-8b" } = given;
    const narrow = activations !== on.half;
    need(
      formats(on).some((each) => each.weights === weights && each.activations === activations),
      `${on.name} cannot multiply ${activations} activations with ${weights} weights`,
    );
    oneOf("type of cache", cache, types(on));
    oneOf("phase", phase, ["decode", "prefill"]);
    oneOf("fusion", fusion, Object.keys(servingTables.strategies));
    oneOf("attention", attention, ["naive", "flash"]);
    whole("batch", batch);
    whole("context", context);
    need(reserve >= 0 && reserve < 1, "reserve must be a share of the memory, from 0 to below 1");
    oneOf(`number of ${on.name}`, chips, counts(on));
    const of = servingTables.models[oneOf("model", served, Object.keys(servingTables.models))];
    const asked = { chips, model: of, phase, batch, context, weights, activations, cache, fusion, attention };
    return { chip: on, ...asked, reached, floor, resident: stays, reserve, narrow };
  };

  // Of the scales of a matrix of weights: one for a column of int8, and for a group of its rows in int4
  const scales = ({ weights }, rows, columns) =>
    2 * columns * ({ int8: 1, int4: Math.ceil(rows / servingTables.group) }[weights] ?? 0);

  // Every operation as a kernel of its own; capital letters: tensors that stay in memory
  const operations = (s) => {
    const { layers, d_model: d, heads, kv_heads, head_dim, d_ff, vocabulary, experts } = share(s);
    const half = s.chip.half;
    const length = s.phase === "decode" ? 1 : s.context;
    const rows = s.batch * length;
    const queries = heads * head_dim;
    const keys = kv_heads * head_dim;
    const size = (width) => nbytes(rows * width, half);
    const ops = {};
    const norm = (op, x, y, tag) => {
      ops[op] = rowwise("rmsnorm", rows, d, half, { x, y, parameters: [`γ${tag}`] });
    };
    const quantise = (op, x, width, m = rows) => {
      if (!s.narrow) return;
      const writes = { [`${x}, narrow`]: s.activations };
      ops[op] = elementwise(m * width, { [x]: half }, writes, cost("quantise"), half);
    };
    const project = (op, x, weight, k, outs, m = rows) => {
      const names = [s.narrow ? `${x}, narrow` : x, `W ${weight}`, "out"];
      const n = sum(Object.values(outs));
      const { reads, matrix, dtype } = matmul(m, n, k, s.activations, { b: s.weights, names });
      const scaled = scales(s, k, n);
      if (scaled) reads[`W ${weight}, scales`] = scaled;
      if (weight.startsWith("experts' ")) { // those that the tokens choose at random
        const { count, active } = experts;
        const used = count * (1 - (1 - active / count) ** rows);
        for (const name of Object.keys(reads).filter((name) => name.startsWith("W "))) {
          reads[name] = Math.round(reads[name] * used);
        }
      }
      const writes = Object.fromEntries(Object.entries(outs).map(([y, width]) => [y, nbytes(m * width, half)]));
      ops[op] = work(op, reads, writes, { matrix, dtype });
    };
    const add = (op, x, other, y) => {
      ops[op] = elementwise(rows * d, { [x]: half, [other]: half }, { [y]: half }, cost("add"), half);
    };

    const taken = { ids: nbytes(rows, "int32"), "W embedding, rows": size(d) };
    ops["embedding"] = work("embedding", taken, { x: size(d) }, { dtype: half });
    norm("RMSNorm 1", "x", "n1", 1);
    quantise("quantise 1", "n1", d);
    project("QKV projection", "n1", "qkv", d, { q: queries, k: keys, v: keys });
    ops["RoPE"] = work(
      "RoPE",
      { q: size(queries), k: size(keys), "cos, sin": size(head_dim) },
      { "q, turned": size(queries), "k, turned": size(keys) },
      { vector: rows * (queries + keys) * cost("RoPE"), dtype: half },
    );
    const stored = nbytes(rows * keys, s.cache);
    ops["KV append"] = work(
      "KV append",
      { "k, turned": size(keys), v: size(keys) },
      { "K cache, new": stored, "V cache, new": stored },
      { vector: s.cache === half ? 0 : 2 * rows * keys * cost("quantise"), dtype: half },
    );

    const cached = nbytes(s.batch * s.context * keys, s.cache);
    const all = s.batch * heads * length * s.context;
    if (s.attention === "naive") {
      const scores = nbytes(all, half);
      const product = { matrix: 2 * all * head_dim, dtype: half };
      const soft = { vector: all * cost("scale+softmax"), dtype: half };
      ops["Q·Kᵀ"] = work("Q·Kᵀ", { "q, turned": size(queries), "K cache": cached }, { scores }, product);
      ops["softmax"] = work("softmax", { scores }, { p: scores }, soft);
      ops["P·V"] = work("P·V", { p: scores, "V cache": cached }, { o: size(queries) }, product);
    } else {
      // The last query sees every key, each one before it one fewer
      const seen = (s.batch * heads * length * (2 * s.context - length + 1)) / 2;
      ops["flash attention"] = work(
        "flash attention",
        { "q, turned": size(queries), "K cache": cached, "V cache": cached },
        { o: size(queries) },
        { matrix: 4 * seen * head_dim, vector: seen * cost("scale+softmax"), dtype: half },
      );
    }

    quantise("quantise o", "o", queries);
    project("output projection", "o", "o", queries, { a: d });
    add("residual 1", "x", "a", "x'");
    norm("RMSNorm 2", "x'", "n2", 2);
    quantise("quantise 2", "n2", d);
    const forward = (x, y, kind, m) => {
      const after = kind === "experts' " ? "" : " projection";
      const [g, u, h] = ["g", "u", "h"].map((name) => `${kind}${name}`);
      project(`${kind}gate+up${after}`, x, `${kind}gate+up`, d, { [g]: d_ff, [u]: d_ff }, m);
      ops[`${kind}SwiGLU`] = elementwise(m * d_ff, { [g]: half, [u]: half }, { [h]: half }, cost("swiglu"), half);
      quantise(`${kind}quantise h`, h, d_ff, m);
      project(`${kind}down${after}`, h, `${kind}down`, d_ff, { [y]: d }, m);
    };
    if (experts) {
      const { count, active } = experts;
      const narrow = s.narrow ? ", narrow" : "";
      const pairs = rows * active;
      const chosen = nbytes(2 * pairs, "fp32");
      const routed = { b: half, out: half, names: [`n2${narrow}`, "W router", "r"] };
      ops["router"] = matmul(rows, count, d, s.activations, routed);
      const vector = rows * count * cost("top-k");
      ops["top-k"] = work("top-k", { r: nbytes(rows * count, half) }, { chosen }, { vector, dtype: half });
      const taken = { [`n2${narrow}`]: nbytes(rows * d, s.activations), chosen };
      const put = { [`n2, permuted${narrow}`]: nbytes(pairs * d, s.activations) };
      ops["permute"] = work("permute", taken, put, { vector: pairs, dtype: half });
      forward("n2, permuted", "fp", "experts' ", pairs);
      const back = { fp: nbytes(pairs * d, half), chosen };
      ops["unpermute"] = work("unpermute", back, { f: size(d) }, { vector: 2 * pairs * d, dtype: half });
    } else {
      forward("n2", "f", "", rows);
    }
    add("residual 2", "x'", "f", "x''");
    norm("next RMSNorm 1", "x''", "next n1", 1);
    quantise("next quantise 1", "next n1", d);
    norm("final RMSNorm", "x''", "n", "");
    const names = ["n", "W head", "logits"]; // of n, the last row of each sequence
    ops["LM head"] = matmul(s.batch, vocabulary, d, half, { names });

    // The strategy's kernels: one whose first operation is missing is not there at all, and an
    // operation of a layer that none has runs alone
    const runs = { once: 1, layers, between: layers - 1 };
    const kernels = ((s.chips > 1 && servingTables.split[s.fusion]) || servingTables.strategies[s.fusion])
      .filter((kernel) => kernel.ops[0] in ops)
      .map(({ ops: all, count = "layers", keep }) => {
        const present = all.filter((op) => op in ops);
        const job = fuse(present.map((op) => ops[op]), keep);
        return { ...job, name: present.join(" + "), ops: present, count: runs[count] };
      })
      .filter((kernel) => kernel.count > 0);
    const covered = new Set([...kernels.flatMap((kernel) => kernel.ops), ...servingTables.elsewhere]);
    const order = Object.keys(ops);
    const alone = order.filter((op) => !covered.has(op));
    kernels.push(...alone.map((op) => ({ ...fuse([ops[op]]), name: op, ops: [op], count: layers })));
    return kernels.sort((a, b) => order.indexOf(a.ops[0]) - order.indexOf(b.ops[0]));
  };

  // The most bytes of activations that are alive during one kernel
  const alive = (jobs) => {
    const spans = {};
    jobs.forEach((job, i) => {
      for (const [tensor, n] of [...Object.entries(job.reads), ...Object.entries(job.writes)]) {
        if (servingTables.stored.includes(tensor[0])) continue;
        const span = (spans[tensor] ??= { n: 0, first: i });
        span.n = Math.max(span.n, n);
        span.last = i;
      }
    });
    const at = (i) => Object.values(spans).filter((span) => span.first <= i && i <= span.last);
    return Math.max(...jobs.map((_, i) => sum(at(i).map((span) => span.n))));
  };

  // Weights and cache never stay on the chip; what a layer hands to the next does
  const staying = (s, jobs) => {
    if (!s.resident) return jobs;
    const names = jobs.flatMap((job) => [...Object.keys(job.reads), ...Object.keys(job.writes)]);
    const onward = servingTables.handed.filter((name) => jobs.some((job) => name in job.writes));
    const stay = resident(jobs, s.chip.inside, onward, names.filter((name) => servingTables.stored.includes(name[0])));
    return jobs.map(({ ops, count, name }, i) => ({ ...stay[i], ops, count, name }));
  };

  const stored = (s, jobs) => {
    const { layers, d_model: d, heads, kv_heads, head_dim, d_ff, vocabulary, experts } = share(s);
    const forward = experts ? 3 * d_ff * experts.count : 3 * d_ff;
    const matrices = layers * d * (2 * (heads + kv_heads) * head_dim + forward);
    const rest = (2 * layers + 1) * d + 2 * vocabulary * d + (experts ? layers * d * experts.count : 0);
    const mixed = scales(s, d, (heads + 2 * kv_heads) * head_dim) + scales(s, heads * head_dim, d);
    const fed = scales(s, d, 2 * d_ff) + scales(s, d_ff, d);
    const scaled = layers * (mixed + fed * (experts ? experts.count : 1));
    const weights = nbytes(matrices, s.weights) + scaled + nbytes(rest, s.chip.half);
    const cache = s.batch * s.context * nbytes(2 * layers * kv_heads * head_dim, s.cache);
    const activations = alive(jobs);
    const needed = weights + cache + activations;
    const reserve = s.reserve * s.chip.capacity;
    return { weights, cache, activations, total: needed, reserve, capacity: s.chip.capacity };
  };

  // After attention and after the feed-forward the chips' parts are summed; each sum is launched too
  const exchange = (s) => {
    if (s.chips === 1) return null;
    const bytes = nbytes(s.batch * (s.phase === "decode" ? 1 : s.context) * s.model.d_model, s.chip.half);
    const lines = servingTables.sums[s.chip.key][s.chips][Number(s.reached)];
    const least = Math.min(...lines.map(([start, each]) => start + each * bytes));
    const [count, seconds] = [2 * s.model.layers, Math.max(least, (s.floor && s.chip.floor) || 0)];
    return { count, bytes, seconds, total: count * seconds };
  };

  const memory = (setting) => {
    const s = defaults(setting);
    return stored(s, operations(s));
  };

  const step = (setting) => {
    const { narrow, ...s } = defaults(setting);
    const jobs = operations({ ...s, narrow });
    const kernels = staying(s, jobs).map((job) => {
      const on = roof(s.chip, job.dtype, undefined, s.reached);
      if (!s.floor) on.floor = null;
      const { seconds, limit } = time(on, job);
      return {
        ...job,
        seconds,
        limit,
        total: job.count * seconds,
        bound: { hbm: "memory", floor: "latency" }[limit] ?? "compute",
        attainable: Math.min(on.peak, job.flops / seconds),
      };
    });
    const tokens = s.batch * (s.phase === "decode" ? 1 : s.context);
    const sums = exchange(s);
    const seconds = sum(kernels.map((kernel) => kernel.total)) + (sums ? sums.total : 0);
    const flops = sum(kernels.map((kernel) => kernel.count * kernel.flops));
    const bytes = sum(kernels.map((kernel) => kernel.count * kernel.bytes));
    const peak = roof(s.chip, s.activations, "matrix").peak;
    const held = stored(s, jobs);
    const room = held.capacity - held.reserve - held.total;
    return {
      setting: s,
      kernels,
      sums,
      seconds,
      tokens,
      tokensPerSecond: tokens / seconds,
      timePerToken: (seconds * s.batch) / tokens,
      flops,
      bytes,
      intensity: flops / bytes,
      mfu: sum(kernels.map((kernel) => kernel.count * kernel.matrix)) / seconds / peak,
      peak,
      memory: held,
      room,
      fits: room >= 0,
    };
  };

  const fits = (setting) => {
    const held = memory(setting);
    return held.total <= held.capacity - held.reserve;
  };

  // The largest whole number allowed, 0 if 1 is not; all below it must be allowed too
  const largest = (allowed) => {
    let [low, high] = [0, 1];
    while (allowed(high)) [low, high] = [high, 2 * high];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (allowed(middle)) low = middle;
      else high = middle;
    }
    return low;
  };

  // Cache and activations are those of one sequence, times batch
  const largestBatch = (setting) => {
    const one = memory({ ...setting, batch: 1 });
    const room = Math.floor(one.capacity - one.reserve - one.weights);
    return Math.max(0, Math.floor(room / (one.cache + one.activations)));
  };

  const largestContext = (setting) => largest((context) => fits({ ...setting, context }));

  // Of the 8-bit types fp8 where the matrix unit has it, else int8; the least change first
  const narrower = (setting) => {
    const s = defaults(setting);
    const bits = tables.bits;
    const wanted = ["fp8" in s.chip.matrix ? "fp8" : "int8", "int4"];
    const atMost = (own) => [own, ...wanted.filter((other) => bits[other] < bits[own])];
    const width = (each) => bits[each.weights] + bits[each.cache];
    return atMost(s.weights)
      .map((weights) => ({ weights, activations: weights === s.weights ? s.activations : s.chip.half }))
      .flatMap((format) => atMost(s.cache).map((cache) => ({ ...format, cache })))
      .slice(1)
      .sort((a, b) => width(b) - width(a))
      .filter((each) => fits({ ...setting, ...each }));
  };

  const instead = (setting) => ({
    chips: counts(setting.chip).find((chips) => fits({ ...setting, chips })) ?? 0,
    batch: largestBatch(setting),
    context: largestContext(setting),
    narrower: narrower(setting),
  });

  const bestBatch = (setting, latency) => {
    need(latency > 0 && latency < Infinity, "latency must be a positive number of seconds");
    const most = largestBatch(setting);
    const batch = largest((n) => n <= most && step({ ...setting, batch: n }).seconds <= latency);
    return batch ? { batch, step: step({ ...setting, batch }) } : null;
  };

  return { types, formats, counts, step, memory, instead, largestBatch, bestBatch };
})();
