/* The roofline, and the work of kernels.

   The same model as `roofline_helpers` has in Python (roofline, work), in pure functions on plain
   data; tests/package/test_parity.py holds both together. Nothing here knows the page.
   SI units: FLOP/s, byte/s, seconds, bytes. A bad argument throws a RangeError.

   `tables`, a constant that stands before this file, has what Python knows already, so that nothing is
   typed twice (pages/instruments.py writes it):
     tables.bits        {dtype: bits per element}
     tables.costs       {operation: {element: FLOPs, row: FLOPs}}
     tables.chips       [{key, name, kind, half, matrix: {dtype: FLOP/s},
                          vector: {dtype: FLOP/s}, bandwidth, capacity, inside: bytes on the chip,
                          floor: seconds or null, reached: {matrix, vector, bandwidth or null}}]

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
     work = {name, reads: {tensor: bytes}, writes: {tensor: bytes}, matrix, vector (FLOPs),
             dtype, flops, bytes, intensity}
   model.firstComputeBound(roof, dtype)  the first N of a square N×N×N product at or above the ridge
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

  return {
    need, oneOf, whole, sum, nbytes, cost, work,
    chip, roof, attainable, bound, time, mfu, efficiency,
    matmul, elementwise, rowwise, fuse, total, firstComputeBound,
  };
})();
