/* The roofline, a matrix product, and one step of serving a language model.

   The same model as `roofline_helpers` has in Python (roofline.py, work.py, serving.py), in pure
   functions on plain data; tests/package/test_parity.py holds both together. Nothing here knows the page.
   SI units: FLOP/s, byte/s, seconds, bytes. A bad argument throws a RangeError.

   `tables`, a constant that stands before this file (Python's `serving.script()` is both), has what
   Python knows already, so that nothing is typed twice:
     tables.bits        {dtype: bits per element}
     tables.costs       {operation: {element: FLOPs, row: FLOPs}}
     tables.chips       [{key, name, vendor, kind, half, matrix: {dtype: FLOP/s},
                          vector: {dtype: FLOP/s}, bandwidth, capacity, inside: bytes on the chip,
                          floor: seconds or null, reached: {matrix, vector, bandwidth or null}}]
     tables.narrow      [dtype]: types of weights and cache beside the chip's 16-bit one
     tables.stored      first letters of the tensors that stay in memory from step to step
     tables.handed      [tensor]: what a layer leaves to the next one
     tables.model       {name, layers, d_model, heads, kv_heads, head_dim, d_ff, vocabulary, …}
     tables.strategies  {fusion: [{ops: [name], count: "once"|"layers"|"between", keep: [tensor]}]};
                         without a count "layers"

   model.chip(key)                      a chip of the table; wherever a chip is asked for, its key does
   model.roof(chip, dtype, unit, reached)  {name, peak, bandwidth, vector, floor, ridge}; unit "matrix"|"vector"|
                                        undefined; reached: measured ceilings where there are any
   model.attainable(roof, intensity)    FLOP/s; model.bound(roof, intensity) "memory"|"compute"
   model.time(roof, work)               {seconds, limit: "matrix"|"vector"|"hbm"|"floor", times: {…}}
   model.mfu(roof, achieved), model.efficiency(roof, achieved, intensity)
   model.matmul(m, n, k, dtype, {b, out, names})   work
   model.elementwise(n, reads, writes, flops, dtype)  reads, writes: {tensor: dtype}
   model.rowwise(op, rows, columns, dtype, {x, y, parameters})  op: "rmsnorm", "layernorm", "softmax"
   model.fuse(works, keep), model.total(works)     work
   model.resident(works, capacity, onward, travels)  [work]: what fits between them stays on the chip
     work = {name, reads: {tensor: bytes}, writes: {tensor: bytes}, matrix, vector (FLOPs),
             dtype, flops, bytes, intensity}
   model.firstComputeBound(roof, dtype)  the first N of a square N×N×N product at or above the ridge

   model.types(chip)                    [dtype] that its weights and its cache can have
   model.formats(chip)                  [{weights, activations}] that it can multiply

   setting = {chip, phase: "decode"|"prefill", batch, context, weights, activations, cache,
              fusion: "none"|"pointwise"|"epilogue", attention: "naive"|"flash",
              reached, floor, resident: booleans, reserve: share of the memory}
     all but chip may be left out; weights, activations and cache are the chip's 16-bit type then
   model.step(setting) = {
     setting,                            with every default filled in
     kernels: [{name, ops: [name], count, dtype, matrix, vector, flops, bytes, reads, writes,
                intensity, seconds (of one), total (count × seconds), limit, bound, attainable}],
     seconds, tokens, tokensPerSecond, timePerToken, flops, bytes, intensity, mfu, peak,
     memory: {weights, cache, activations, total, reserve, capacity}, fits, room (bytes left; negative: missing) }
   model.memory(setting)                 only that part
   model.instead(setting) = {batch, context, narrower: [{weights, activations, cache}]}
     what would fit: the largest batch at this context, the largest context at this batch (0: none),
     and the narrower types with which this batch and context fit
   model.bestBatch(setting, latency) = {batch, step}   or null where not even batch 1 is fast enough or fits
*/

const model = (() => {
  "use strict";

  const need = (condition, message) => {
    if (!condition) throw new RangeError(message);
  };
  const oneOf = (what, given, allowed) => {
    need(allowed.includes(given), `unknown ${what} ${given}. Allowed: ${allowed.join(", ")}`);
    return given;
  };
  const whole = (what, n) => {
    need(Number.isInteger(n) && n >= 1 && n <= 1e18, `${what} must be a whole number from 1 to 1e18`);
    return n;
  };
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const nbytes = (elements, dtype) => Math.ceil((elements * tables.bits[dtype]) / 8);
  const cost = (op) => tables.costs[op].element;

  /* ---- the roofline ---- */

  const chip = (given) => {
    if (typeof given !== "string") return given;
    oneOf("chip", given, tables.chips.map((each) => each.key));
    return tables.chips.find((each) => each.key === given);
  };

  const roof = (given, dtype, unit, reached = false) => {
    const of = chip(given);
    const peaks = unit ? of[oneOf("unit", unit, ["matrix", "vector"])] : { ...of.vector, ...of.matrix };
    oneOf(`type on ${of.name}`, dtype, Object.keys(peaks));
    const got = reached ? of.reached : { matrix: {}, vector: {}, bandwidth: null };
    const ours = unit === "vector" || !(dtype in of.matrix) ? got.vector : got.matrix;
    const peak = ours[dtype] ?? peaks[dtype];
    const bandwidth = got.bandwidth ?? of.bandwidth;
    const vector = unit === "vector" ? peak : got.vector.fp32 ?? of.vector.fp32 ?? null;
    const name = `${of.name} ${dtype}${unit === "vector" ? " vector" : ""}`;
    return { name, peak, bandwidth, vector, floor: of.floor, ridge: peak / bandwidth };
  };

  const attainable = (on, intensity) =>
    intensity < on.ridge ? Math.min(on.peak, on.bandwidth * intensity) : on.peak;
  const bound = (on, intensity) => (attainable(on, intensity) < on.peak ? "memory" : "compute");
  const mfu = (on, achieved) => achieved / on.peak;
  const efficiency = (on, achieved, intensity) => achieved / attainable(on, intensity);

  // A kernel takes as long as its slowest part; the first of equals is its limit
  const time = (on, job) => {
    const times = {};
    if (job.matrix > 0) times.matrix = job.matrix / on.peak;
    if (job.vector > 0) times.vector = job.vector / (on.vector ?? on.peak);
    if (job.bytes > 0) times.hbm = job.bytes / on.bandwidth;
    if (on.floor) times.floor = on.floor;
    const seconds = Math.max(...Object.values(times));
    return { seconds, limit: Object.keys(times).find((part) => times[part] === seconds), times };
  };

  /* ---- work ---- */

  const work = (name, reads, writes, { matrix = 0, vector = 0, dtype }) => {
    const bytes = sum(Object.values(reads)) + sum(Object.values(writes));
    const flops = matrix + vector;
    return { name, reads, writes, matrix, vector, dtype, flops, bytes, intensity: flops / bytes };
  };

  const matmul = (m, n, k, dtype, { b = dtype, out = dtype, names = ["a", "b", "c"] } = {}) => {
    for (const [what, size] of Object.entries({ m, n, k })) whole(what, size);
    for (const each of [dtype, b, out]) oneOf("data type", each, Object.keys(tables.bits));
    const [left, right, product] = names;
    return work(
      "matmul",
      { [left]: nbytes(m * k, dtype), [right]: nbytes(n * k, b) },
      { [product]: nbytes(m * n, out) },
      { matrix: 2 * m * n * k, dtype: tables.bits[b] > tables.bits[dtype] ? b : dtype },
    );
  };

  const sized = (n, tensors) =>
    Object.fromEntries(Object.entries(tensors).map(([name, dtype]) => [name, nbytes(n, dtype)]));

  const elementwise = (n, reads, writes, flops, dtype, name = "elementwise") =>
    work(name, sized(n, reads), sized(n, writes), { vector: n * flops, dtype });

  const rowwise = (op, rows, columns, dtype, { x = "x", y = "y", parameters = [] } = {}) => {
    const { element, row } = tables.costs[op];
    const reads = { [x]: nbytes(rows * columns, dtype) };
    for (const each of parameters) reads[each] = nbytes(columns, dtype);
    const writes = { [y]: nbytes(rows * columns, dtype) };
    return work(op, reads, writes, { vector: rows * columns * element + rows * row, dtype });
  };

  // Bytes of what enters (read, and not made inside) and leaves (made, and not read inside, or kept)
  const fuse = (jobs, keep = []) => {
    const reads = {};
    const made = {};
    const used = new Set();
    for (const job of jobs) {
      for (const [tensor, n] of Object.entries(job.reads)) {
        if (tensor in made) used.add(tensor);
        else reads[tensor] = n;
      }
      Object.assign(made, job.writes);
    }
    const leaves = ([tensor]) => !used.has(tensor) || keep.includes(tensor);
    const writes = Object.fromEntries(Object.entries(made).filter(leaves));
    const rank = (job) => (job.matrix > 0 ? 1000 : 0) + tables.bits[job.dtype];
    return work(jobs.map((job) => job.name).join("+"), reads, writes, {
      matrix: sum(jobs.map((job) => job.matrix)),
      vector: sum(jobs.map((job) => job.vector)),
      dtype: jobs.reduce((a, b) => (rank(b) > rank(a) ? b : a)).dtype,
    });
  };

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

  const total = (jobs) => {
    const bytes = (group) => sum(jobs.flatMap((job) => Object.values(job[group])));
    const { matrix, vector, dtype } = fuse(jobs);
    const reads = { "all that is read": bytes("reads") };
    return work("total", reads, { "all that is written": bytes("writes") }, { matrix, vector, dtype });
  };

  const firstComputeBound = (on, dtype) => {
    const isBound = (n) => bound(on, matmul(n, n, n, dtype).intensity) === "compute";
    let n = Math.max(1, Math.floor((on.ridge * 3 * tables.bits[dtype]) / 16) - 2);
    while (!isBound(n)) n += 1;
    return n;
  };

  /* ---- serving ---- */

  const types = (given) => [chip(given).half, ...tables.narrow];

  // Narrow weights alone go with every chip, narrow activations need its peak
  const formats = (given) => {
    const { half, matrix } = chip(given);
    const both = tables.narrow.filter((dtype) => tables.bits[dtype] === 8 && dtype in matrix);
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
    const narrow = activations !== on.half;
    need(
      formats(on).some((each) => each.weights === weights && each.activations === activations),
      `${on.name} cannot multiply ${activations} activations with ${weights} weights`,
    );
    oneOf("type of cache", cache, types(on));
    oneOf("phase", phase, ["decode", "prefill"]);
    oneOf("fusion", fusion, Object.keys(tables.strategies));
    oneOf("attention", attention, ["naive", "flash"]);
    whole("batch", batch);
    whole("context", context);
    need(reserve >= 0 && reserve < 1, "reserve must be a share of the memory, from 0 to below 1");
    const asked = { phase, batch, context, weights, activations, cache, fusion, attention };
    return { chip: on, ...asked, reached, floor, resident: stays, reserve, narrow };
  };

  // Every operation as a kernel of its own; capital letters: tensors that stay in memory
  const operations = (s) => {
    const { layers, d_model: d, heads, kv_heads, head_dim, d_ff, vocabulary } = tables.model;
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
    const quantise = (op, x, width) => {
      if (!s.narrow) return;
      const writes = { [`${x}, narrow`]: s.activations };
      ops[op] = elementwise(rows * width, { [x]: half }, writes, cost("quantise"), half);
    };
    const project = (op, x, weight, k, outs) => {
      const names = [s.narrow ? `${x}, narrow` : x, `W ${weight}`, "out"];
      const n = sum(Object.values(outs));
      const { reads, matrix, dtype } = matmul(rows, n, k, s.activations, { b: s.weights, names });
      const writes = Object.fromEntries(Object.entries(outs).map(([y, width]) => [y, size(width)]));
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
    project("gate+up projection", "n2", "gate+up", d, { g: d_ff, u: d_ff });
    ops["SwiGLU"] = elementwise(rows * d_ff, { g: half, u: half }, { h: half }, cost("swiglu"), half);
    quantise("quantise h", "h", d_ff);
    project("down projection", "h", "down", d_ff, { f: d });
    add("residual 2", "x'", "f", "x''");
    norm("next RMSNorm 1", "x''", "next n1", 1);
    quantise("next quantise 1", "next n1", d);
    norm("final RMSNorm", "x''", "n", "");
    const names = ["n", "W head", "logits"]; // of n, the last row of each sequence
    ops["LM head"] = matmul(s.batch, vocabulary, d, half, { names });

    // The strategy's kernels: one whose first operation is missing is not there at all
    const counts = { once: 1, layers, between: layers - 1 };
    return tables.strategies[s.fusion]
      .filter((kernel) => kernel.ops[0] in ops)
      .map(({ ops: all, count = "layers", keep }) => {
        const present = all.filter((op) => op in ops);
        const job = fuse(present.map((op) => ops[op]), keep);
        return { ...job, name: present.join(" + "), ops: present, count: counts[count] };
      })
      .filter((kernel) => kernel.count > 0);
  };

  // The most bytes of activations that are alive during one kernel
  const alive = (jobs) => {
    const spans = {};
    jobs.forEach((job, i) => {
      for (const [tensor, n] of [...Object.entries(job.reads), ...Object.entries(job.writes)]) {
        if (tables.stored.includes(tensor[0])) continue;
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
    const onward = tables.handed.filter((name) => jobs.some((job) => name in job.writes));
    const stay = resident(jobs, s.chip.inside, onward, names.filter((name) => tables.stored.includes(name[0])));
    return jobs.map(({ ops, count, name }, i) => ({ ...stay[i], ops, count, name }));
  };

  const stored = (s, jobs) => {
    const { layers, d_model: d, heads, kv_heads, head_dim, d_ff, vocabulary } = tables.model;
    const matrices = layers * d * (2 * (heads + kv_heads) * head_dim + 3 * d_ff);
    const rest = (2 * layers + 1) * d + 2 * vocabulary * d;
    const weights = nbytes(matrices, s.weights) + nbytes(rest, s.chip.half);
    const cache = s.batch * s.context * nbytes(2 * layers * kv_heads * head_dim, s.cache);
    const activations = alive(jobs);
    const needed = weights + cache + activations;
    const reserve = s.reserve * s.chip.capacity;
    return { weights, cache, activations, total: needed, reserve, capacity: s.chip.capacity };
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
    const seconds = sum(kernels.map((kernel) => kernel.total));
    const flops = sum(kernels.map((kernel) => kernel.count * kernel.flops));
    const bytes = sum(kernels.map((kernel) => kernel.count * kernel.bytes));
    const peak = roof(s.chip, s.activations, "matrix").peak;
    const held = stored(s, jobs);
    const room = held.capacity - held.reserve - held.total;
    return {
      setting: s,
      kernels,
      seconds,
      tokens,
      tokensPerSecond: tokens / seconds,
      timePerToken: (seconds * s.batch) / tokens,
      flops,
      bytes,
      intensity: flops / bytes,
      mfu: flops / seconds / peak,
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

  return {
    chip, roof, attainable, bound, time, mfu, efficiency,
    matmul, elementwise, rowwise, fuse, resident, total, firstComputeBound,
    types, formats, step, memory, instead, bestBatch,
  };
})();
