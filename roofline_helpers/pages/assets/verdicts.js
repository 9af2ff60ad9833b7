/* What bounds a kernel on a chip, and on what that depends: as `roofline_helpers.verdicts` says it,
   which tests/package/test_parity_verdicts.py holds it to. Pure functions over model.js.

   verdicts.counts(flops, bytes, dtype)             work, as model.js has it
   verdicts.attention({batch, heads, kvHeads, queries, keys, dim, causal}, dtype)   work of one kernel
   verdicts.of(job, chip, floors)                   {word, on: ["ceilings", "floor"], cases, floor}
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

  const BOUNDS = { hbm: "memory", floor: "latency" };
  function of(job, given, floors) {
    const chip = model.chip(given), { matrix, vector, bandwidth } = chip.reached;
    const measured = Object.keys(matrix).length || Object.keys(vector).length || bandwidth;
    const floor = chip.floor ?? (chip.kind === "tpu" ? floors.tpu : floors.other), cases = [];
    for (const ceilings of measured ? ["published", "reached"] : ["published"]) {
      for (const least of ["without", "with"]) {
        const roof = { ...model.roof(chip, job.dtype, undefined, ceilings === "reached"), floor: least === "with" ? floor : null };
        const { seconds, limit } = model.time(roof, job);
        cases.push({ ceilings, floor: least, bound: BOUNDS[limit] ?? "compute", seconds });
      }
    }
    const differs = (axis, other) => cases.some((a) => cases.some((b) => a[axis] !== b[axis] && a[other] === b[other] && a.bound !== b.bound));
    const on = [["ceilings", "floor"], ["floor", "ceilings"]].filter((pair) => differs(...pair)).map(([axis]) => axis);
    const words = new Set(cases.map((one) => one.bound));
    return { word: words.size === 1 ? [...words][0] : "depends", on, cases, floor };
  }

  return { counts, attention, of };
})();
