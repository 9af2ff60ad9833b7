/* What bounds kernels on a chip, and on what that depends: as `roofline_helpers.verdicts` says it,
   which tests/package/test_parity_verdicts.py holds it to. Pure functions over model.js.

   verdicts.counts(flops, bytes, dtype)             work, as model.js has it
   verdicts.attention({batch, heads, kvHeads, queries, keys, dim, causal}, dtype)   work of one kernel
   verdicts.compiled(rows, dtype)                   [work] of a program's kernels, as hlo.js reads them
   verdicts.of(works, chip, floors)                 {word, on: ["ceilings", "floor"], cases, floor}
     works: with `launches` (1 if not given) and `unknown` (what declares no FLOPs)
     floors: {tpu, other}: seconds that are assumed where nobody measured a chip's
     cases: [{ceilings: "published"|"reached", floor: "without"|"with", bound, seconds}] */
const verdicts = (() => {
  const counts = (flops, bytes, dtype) => ({ name: "kernel", reads: { x: bytes }, writes: {}, matrix: flops, vector: 0, dtype,
    flops, bytes, intensity: flops / bytes });

  function attention({ batch, heads, kvHeads, queries, keys, dim, causal }, dtype) {
    if (heads % kvHeads) throw new RangeError(`Heads (${heads}) must be a multiple of KV heads (${kvHeads}).`);
    if (causal && queries > keys) throw new RangeError("Causal attention needs at least as many keys as queries.");
    const nbytes = (n) => Math.ceil((n * tables.bits[dtype]) / 8), q = nbytes(batch * heads * queries * dim), kv = nbytes(batch * kvHeads * keys * dim);
    const pairs = batch * heads * queries * keys, seen = (flops) => (causal ? Math.floor((flops * (2 * keys - queries + 1)) / (2 * keys)) : flops);
    const matrix = seen(4 * pairs * dim), vector = seen(pairs * tables.costs["scale+softmax"].element);
    const bytes = 2 * q + 2 * kv, flops = matrix + vector;
    return { name: "attention", reads: { q, k: kv, v: kv }, writes: { o: q }, matrix, vector, dtype, flops, bytes, intensity: flops / bytes };
  }

  const compiled = (rows, dtype) => rows.map((row) => {
    const matrix = row.matrix + row.declared, flops = matrix + row.vector, bytes = (row.read.hbm ?? 0) + (row.written.hbm ?? 0);
    return { name: row.name, reads: { hbm: row.read.hbm ?? 0 }, writes: { hbm: row.written.hbm ?? 0 }, matrix, vector: row.vector, dtype,
      flops, bytes, intensity: flops / bytes, launches: row.launches, unknown: row.unknown };
  });

  const BOUNDS = { hbm: "memory", floor: "latency" };
  function once(roof, job) {
    if (!roof.floor && !job.flops && !job.bytes) return { seconds: 0, bound: null };
    const { seconds, limit } = model.time(roof, job);
    return { seconds, bound: job.unknown?.length ? null : BOUNDS[limit] ?? "compute" };
  }

  function of(works, given, floors) {
    const chip = model.chip(given), { matrix, vector, bandwidth } = chip.reached;
    const measured = Object.keys(matrix).length || Object.keys(vector).length || bandwidth;
    const floor = chip.floor ?? (chip.kind === "tpu" ? floors.tpu : floors.other), cases = [];
    for (const ceilings of measured ? ["published", "reached"] : ["published"]) {
      for (const least of ["without", "with"]) {
        const share = new Map();
        let seconds = 0;
        for (const job of works) {
          const roof = { ...model.roof(chip, job.dtype, undefined, ceilings === "reached"), floor: least === "with" ? floor : null };
          const one = once(roof, job), all = one.seconds * (job.launches ?? 1);
          seconds += all;
          if (one.bound) share.set(one.bound, (share.get(one.bound) ?? 0) + all);
        }
        const most = Math.max(...share.values()), [bound = null] = [...share].find(([, n]) => n === most) ?? [];
        cases.push({ ceilings, floor: least, bound, seconds });
      }
    }
    const differs = (axis, other) => cases.some((a) => cases.some((b) => a[axis] !== b[axis] && a[other] === b[other] && a.bound !== b.bound));
    const on = [["ceilings", "floor"], ["floor", "ceilings"]].filter((pair) => differs(...pair)).map(([axis]) => axis);
    const words = new Set(cases.map((one) => one.bound ?? "nothing"));
    return { word: words.size === 1 ? [...words][0] : "depends", on, cases, floor };
  }

  return { counts, attention, compiled, of };
})();
