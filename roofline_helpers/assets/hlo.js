/* What a compiled program (HLO) costs, as `roofline_helpers.hlo` counts it: for each kernel FLOPs by
   unit, bytes by memory level, launches. tests/package/test_parity_hlo.py holds both together.

   hlo.kernels(text)  {name, platform: "tpu"|"gpu", partitions, rows, notes}; throws an Error that says
                      what it can't read
     rows: [{name, opcode, launches, matrix, vector, transcendentals, declared (FLOPs of one launch),
             unknown: [what declares no FLOPs], read, written: {level: bytes}}]

   Not read here: types of products, cycles, tiles, the lines of code that kernels come from, and fusions that carry an
   exchange between devices along (an error). Pallas kernels count as they declare.

   hlo_text.js reads the text. `opcodes`, a constant before both files, has Python's sets of opcodes, the
   bits of types and the memory spaces. */
const hlo = (() => {
  const sets = Object.fromEntries(Object.entries(opcodes.sets).map(([name, all]) => [name, new Set(all.split(" "))]));
  const { siteOf, parts, fusedIn, config, numbers, leaves, elements, isScalar, bytesOf, sum, prod, fail } = hloText;
  // Python's round
  const even = (x) => {
    const low = Math.floor(x), rest = x - low;
    return rest === 0.5 ? low + (low % 2) : Math.round(x);
  };

  // ---- products --------------------------------------------------------------------------------------

  // Pairs (output, tap) that meet an element of the input: o·stride + k·dilation − low, spread by `base`
  function taps({ size: window, stride, low, base, dilation }, size, out) {
    const gcd = (a, b) => (b ? gcd(b, a % b) : a), mod = (a, b) => ((a % b) + b) % b;
    const step = gcd(stride, base), period = base / step, last = (size - 1) * base;
    let inverse = 0;
    while (period > 1 && mod((stride / step) * inverse, period) !== 1) inverse++;
    let total = 0;
    for (let k = 0; k < window; k++) {
      const offset = k * dilation - low;
      if (mod(offset, step)) continue;
      let first = period > 1 ? mod((-offset / step) * inverse, period) : 0;
      const least = Math.max(0, -Math.floor(offset / stride)), most = Math.min(out - 1, Math.floor((last - offset) / stride));
      if (least > first) first += Math.ceil((least - first) / period) * period;
      if (most >= first) total += Math.floor((most - first) / period) + 1;
    }
    return total;
  }
  function windows(each, dims) {
    const stated = Object.fromEntries((each.attributes.window || "").replace(/[{}]/g, " ").trim().split(/\s+/)
      .filter((part) => part.includes("=")).map((part) => part.split("=")));
    const column = (key, usual) => (key in stated ? stated[key].split("x").map(Number) : Array(dims).fill(usual));
    const pads = "pad" in stated ? stated.pad.split("x").map((pad) => Number(pad.split("_")[0])) : Array(dims).fill(0);
    const [size, stride, base, dilation] = [column("size", 1), column("stride", 1), column("lhs_dilate", 1), column("rhs_dilate", 1)];
    return pads.map((low, i) => ({ size: size[i], stride: stride[i], low, base: base[i], dilation: dilation[i] }));
  }
  function matrixFlops(each, lhs, rhs) {
    if (each.opcode === "dot") return 2 * elements(each.shape) * prod(numbers(each, "lhs_contracting_dims").map((d) => lhs.dims[d]));
    const [operands, out] = each.attributes.dim_labels.split("->"), [left, right] = operands.split("_");
    const spatial = [...out].filter((label) => /\d/.test(label)).sort(), moving = windows(each, spatial.length);
    let macs = Math.floor(lhs.dims[left.indexOf("b")] / Number(each.attributes.batch_group_count || 1));
    macs *= rhs.dims[right.indexOf("i")] * rhs.dims[right.indexOf("o")];
    spatial.forEach((label, i) => { macs *= taps(moving[i], lhs.dims[left.indexOf(label)], each.shape.dims[out.indexOf(label)]); });
    return 2 * macs;
  }
  // The product that a call of cuBLAS or cuDNN states: [instruction, lhs, rhs]
  function libraryProduct({ each, operands }) {
    const result = each.shape.parts ? each.shape.parts[0] : each.shape, [first, second] = operands;
    if (each.target.startsWith("__cublas$") && second) {
      const stated = config(each), inner = (stated.gemm_backend_config ?? stated).dot_dimension_numbers?.lhs_contracting_dimensions;
      return inner ? [{ opcode: "dot", shape: result, attributes: { lhs_contracting_dims: inner.join(",") } }, first, second] : null;
    }
    if (!("dim_labels" in each.attributes) || !second) return null;
    const roles = { __cudnn$convForward: [first, second, result], __cudnn$convBackwardInput: [result, second, first],
      __cudnn$convBackwardFilter: [first, result, second] };
    const name = Object.keys(roles).find((one) => each.target.startsWith(one));
    return name ? [{ opcode: "convolution", shape: roles[name][2], attributes: each.attributes }, ...roles[name].slice(0, 2)] : null;
  }

  // ---- FLOPs: {matrix, vector, transcendentals, declared, unknown} -------------------------------------

  const UNITS = ["matrix", "vector", "transcendentals", "declared"];
  const count = (given = {}) => ({ matrix: 0, vector: 0, transcendentals: 0, declared: 0, unknown: [], ...given });
  const add = (all) => all.reduce((a, b) => ({ ...Object.fromEntries(UNITS.map((u) => [u, a[u] + b[u]])), unknown: [...a.unknown, ...b.unknown] }), count());
  const times = (flops, n) => ({ ...Object.fromEntries(UNITS.map((u) => [u, flops[u] * n])), unknown: flops.unknown });

  function flopsOf(site, share = 1) {
    const { program, each, operands } = site, op = each.base, n = leaves(each.shape).length ? elements(leaves(each.shape)[0]) : 0;
    if (op === "fusion") {
      const inner = fusedIn(site), needed = needs(program, inner, share);
      return add(inner.instructions.map((part) => flopsOf(siteOf(program, inner, part), needed.get(part.name))));
    }
    if (sets.free.has(op) || sets.moving.has(op)) return count();
    if (sets.arithmetic.has(op)) return times(count({ vector: n }), share);
    if (sets.transcendental.has(op)) return times(count({ vector: n, transcendentals: n }), share);
    if (sets.products.has(op)) return times(count({ matrix: matrixFlops(each, operands[0], operands[1]) }), share);
    if (sets.applying.has(op)) return times(applied(site), share);
    if (op === "custom-call") return ofCall(site);
    const first = operands[0] ?? each.shape, side = leaves(first)[0]?.dims.at(-1) ?? 1;
    if (op === "fft") return count({ vector: 5 * elements(each.shape) * Math.log2(Math.max(prod(numbers(each, "fft_length")) || 1, 1)) });
    if (op === "cholesky") return count({ vector: (elements(first) * side) / 3 });
    if (op === "triangular-solve") return count({ vector: elements(each.shape) * side });
    // An opcode that isn't known here
    return null;
  }
  function applied({ program, each, operands }) {
    const operand = operands[0], op = each.opcode;
    const per = add(program.called(each, "to_apply", "scatter").flatMap((inner) =>
      inner.instructions.map((part) => flopsOf(siteOf(program, inner, part)))));
    if (op === "reduce") return times(per, elements(operand));
    if (op === "map") return times(per, elements(each.shape));
    if (op === "scatter") return times(per, elements(operands[operands.length - Math.floor(operands.length / 2)]));
    const meets = (out) => windows(each, out.dims.length).map((window, i) => taps(window, operand.dims[i], out.dims[i]));
    // Where every window holds the whole dimension, its elements count once
    if (op === "reduce-window") {
      const out = leaves(each.shape)[0];
      return times(per, prod(meets(out).map((met, i) => (met === operand.dims[i] * out.dims[i] ? operand.dims[i] : met))));
    }
    if (op === "select-and-scatter") return add([count({ vector: prod(meets(operands[1])) }), times(per, elements(operands[1]))]);
    // Sort
    const axis = numbers(each, "dimensions")[0] ?? 0;
    return times(per, elements(operand) * Math.ceil(Math.log2(Math.max(operand.dims[axis], 2))));
  }
  // As in hlo/flops.py: the textbooks' counts for so many m × n matrices
  const cube = (many, m, n) => (many * n ** 3) / 3;
  const ALGEBRA = {
    Cholesky: cube, CompactWyHelper: cube, InvertDiagBlocksLowerTriangular: cube, InvertDiagBlocksUpperTriangular: cube,
    LuDecompositionBlock: (many, m, n) => many * (m * n ** 2 - n ** 3 / 3), QrDecompositionBlock: (many, m, n) => many * (2 * m * n ** 2 - (2 * n ** 3) / 3),
  };
  // As Python compares tuples: more than one dimension first
  const larger = (a, b) => {
    if ((a.length > 1) !== (b.length > 1)) return a.length > 1;
    const at = a.findIndex((n, i) => n !== b[i]);
    return at < 0 ? false : at >= b.length || a[at] > b[at];
  };
  const declared = (each) => (each.base === "custom-call" && config(each).custom_call_config?.cost_estimate) || null;
  function ofCall(site) {
    const { each, operands } = site, { target } = each, cost = declared(each);
    if (sets.free_calls.has(target) || target.startsWith("X64")) return count();
    if (target in ALGEBRA) {
      const dims = operands.map((shape) => shape.dims).reduce((a, b) => (larger(b, a) ? b : a));
      const [many, m, n] = dims.length > 1 ? [prod(dims.slice(0, -2)), ...dims.slice(-2)] : [1, 1, ...dims];
      return count({ vector: ALGEBRA[target](many, Math.max(m, n), Math.min(m, n)) });
    }
    if (cost) return count({ declared: Number(cost.flops ?? 0), vector: Number(cost.transcendentals ?? 0), transcendentals: Number(cost.transcendentals ?? 0) });
    const product = libraryProduct(site);
    return product ? count({ matrix: matrixFlops(...product) }) : count({ unknown: [target === "tpu_custom_call" ? each.name : target] });
  }

  // ---- which share of each value inside a fusion is needed ----------------------------------------------

  // A transpose or copy that changes the order in memory
  const reorders = (each, where) => {
    if (each.opcode !== "transpose" && each.opcode !== "copy") return false;
    const before = where.get(each.operands[0]).shape, after = each.shape;
    if (!before.order?.length || !after.order?.length) return false;
    const given = numbers(each, "dimensions"), axes = given.length ? given : after.dims.map((_, d) => d);
    const written = after.order.filter((d) => after.dims[d] > 1).map((d) => axes[d]);
    return String(written) !== String(before.order.filter((d) => before.dims[d] > 1));
  };
  // Back through what keeps the order, a fusion of nothing else included
  const through = (name, program, where) => {
    let each = where.get(name);
    while (each.operands.length) {
      if (each.opcode === "fusion") {
        const called = program.called(each, "calls")[0];
        if (through(called.root.name, program, called).name !== called.parameters[0].name) break;
      } else if (!sets.views.has(each.opcode) || reorders(each, where)) break;
      each = where.get(each.operands[0]);
    }
    return each;
  };
  const updated = (each, where) => elements(where.get(each.operands[each.opcode === "dynamic-update-slice" ? 1
    : each.operands.length - Math.floor(each.operands.length / 2)]).shape);
  const combines = (program, each) => {
    if (each.opcode !== "scatter") return false;
    const inner = program.called(each, "to_apply", "scatter")[0];
    return inner.parameters.slice(0, Math.floor(inner.parameters.length / 2)).some((p) => inner.users.has(p.name));
  };
  // Results of a fusion that update a parameter in place: name → {update, buffer, share}
  function inPlace(program, inner) {
    const updates = new Map();
    for (const result of inner.results) {
      const each = through(result, program, inner);
      if (each.opcode === "fusion") {
        const called = program.called(each, "calls")[0], [inside] = inPlace(program, called).values();
        if (!inside) continue;
        const buffer = through(each.operands[called.parameters.findIndex((p) => p.name === inside.buffer)], program, inner);
        if (buffer.opcode === "parameter" && called.root.opcode !== "tuple") updates.set(result, { update: "", buffer: buffer.name, share: inside.share });
      } else if (sets.updates.has(each.opcode)) {
        const buffer = through(each.operands[0], program, inner);
        if (buffer.opcode === "parameter" && elements(buffer.shape) === elements(each.shape)) {
          const share = updated(each, inner) / Math.max(elements(leaves(each.shape)[0]), 1);
          updates.set(result, { update: each.name, buffer: buffer.name, share: Math.min(share, 1) });
        }
      }
    }
    return updates;
  }
  const ofParameters = (program, inner, share = 1) => {
    const needed = needs(program, inner, share);
    return inner.parameters.map((p) => needed.get(p.name));
  };
  // From the result backwards: a slice needs what it cuts out, an update in place nothing of its buffer
  function needs(program, inner, share = 1) {
    const whole = new Map(), cut = new Map(), needed = new Map();
    const updating = new Set([...inPlace(program, inner).values()].map((one) => one.update));
    whole.set(inner.root.name, share);
    for (const each of [...inner.instructions].reverse()) {
      const mine = Math.min(1, (whole.get(each.name) ?? 0) + sum([...(cut.get(each.name)?.values() ?? [])]));
      needed.set(each.name, mine);
      if (mine === 0) continue;
      const asked = each.opcode === "fusion" ? ofParameters(program, program.called(each, "calls")[0], mine)
        : each.operands.map(() => (each.opcode === "broadcast" ? 1 : mine));
      each.operands.forEach((operand, position) => {
        const n = Math.max(elements(leaves(inner.get(operand).shape)[0]), 1);
        let key, piece;
        if (position === 0 && sets.slices.has(each.opcode)) {
          key = JSON.stringify([each.opcode, each.attributes.slice, each.operands.slice(1)]);
          piece = mine * Math.min(1, elements(each.shape) / n);
        } else if (position === 0 && updating.has(each.name)) {
          key = each.name;
          piece = combines(program, each) ? mine * Math.min(1, updated(each, inner) / n) : 0;
        } else {
          whole.set(operand, Math.max(whole.get(operand) ?? 0, asked[position]));
          return;
        }
        const pieces = cut.get(operand) ?? new Map();
        cut.set(operand, pieces.set(key, Math.max(pieces.get(key) ?? 0, piece)));
      });
    }
    return needed;
  }

  // ---- bytes -----------------------------------------------------------------------------------------

  function results(each) {
    const { parts: all } = each.shape;
    if (each.opcode === "send") return { parts: [] };
    if (/^__cu(blas|dnn)\$/.test(each.target) && all?.length > 1) return { parts: all.slice(0, -1) };
    if (!each.opcode.endsWith("-start") || !all?.length || each.opcode === "all-reduce-start") return each.shape;
    return each.opcode === "copy-start" ? all[0] : all[1] ?? all[0];
  }
  function traffic(site, spaces) {
    const { program, where, each, operands } = site, inner = fusedIn(site), out = leaves(results(each));
    let reads = operands.map(() => (["X64SplitLow", "X64SplitHigh"].includes(each.target) ? 0.5 : 1)), writes = out.map(() => 1);
    if (inner) {
      const updates = inPlace(program, inner);
      reads = ofParameters(program, inner);
      if (inner.results.length === writes.length) writes = inner.results.map((name) => updates.get(name)?.share ?? 1);
    } else if (sets.slices.has(each.base)) {
      reads[0] = Math.min(1, elements(out[0]) / Math.max(elements(operands[0]), 1));
    } else if (sets.updates.has(each.base)) {
      const share = Math.min(1, updated(each, where) / Math.max(elements(operands[0]), 1));
      reads[0] = combines(program, each) ? share : 0;
      writes = out.map(() => share);
    }
    const read = {}, written = {}, seen = {};
    const put = (book, leaf, share) => {
      const amount = isScalar(leaf) ? 0 : even(bytesOf(leaf) * share), level = spaces[leaf.space] ?? `S(${leaf.space})`;
      if (amount) book[level] = (book[level] ?? 0) + amount;
    };
    // The same buffer twice counts once
    each.operands.forEach((name, i) => {
      const more = Math.max(reads[i] - (seen[name] ?? 0), 0);
      seen[name] = Math.max(reads[i], seen[name] ?? 0);
      for (const leaf of leaves(operands[i])) put(read, leaf, more);
    });
    out.forEach((leaf, i) => put(written, leaf, writes[i]));
    return { read, written };
  }

  // ---- how often loops turn: a scalar's origin is {element of the loop's tuple or null, offset} ---------

  const entered = (program, where, each, passed) => {
    const inner = program.called(each, "calls", "to_apply")[0], values = each.operands.map((name) => origin(program, where, name, passed));
    return [inner, new Map(inner.parameters.map((p, i) => [p.name, values[i]]))];
  };
  function origin(program, where, name, passed) {
    if (passed?.has(name)) return passed.get(name);
    const each = where.get(name), follow = (operand) => origin(program, where, operand, passed);
    if (each.opcode === "constant" && isScalar(each.shape)) {
      const number = /^\{?\s*(-?\d+)\s*\}?$/.exec(each.literal);
      return number ? { element: null, offset: Number(number[1]) } : null;
    }
    if (each.opcode === "get-tuple-element") {
      const index = numbers(each, "index")[0], source = where.get(each.operands[0]);
      if (source.opcode === "tuple") return follow(source.operands[index]);
      return source.opcode === "parameter" ? { element: index, offset: 0 } : null;
    }
    if (["copy", "bitcast", "reshape", "convert", "copy-start", "copy-done"].includes(each.opcode)) return follow(each.operands[0]);
    if (each.opcode === "add" || each.opcode === "subtract") {
      const [a, b] = each.operands.map(follow);
      if (!a || !b) return null;
      if (each.opcode === "subtract") return b.element === null ? { element: a.element, offset: a.offset - b.offset } : null;
      return a.element !== null && b.element !== null ? null : { element: a.element ?? b.element, offset: a.offset + b.offset };
    }
    if (each.opcode === "fusion" || each.opcode === "call") {
      const [inner, inside] = entered(program, where, each, passed);
      return origin(program, inner, inner.root.name, inside);
    }
    return null;
  }
  const valueOf = (from, constants) => (!from ? null : from.element === null ? from.offset
    : constants.has(from.element) ? constants.get(from.element) + from.offset : null);
  function turns(first, bound, step, direction) {
    if (step > 0 && ["LT", "LE", "NE"].includes(direction)) {
      const distance = bound + (direction === "LE") - first;
      return direction === "NE" && distance % step ? null : Math.max(0, Math.ceil(distance / step));
    }
    if (step < 0 && ["GT", "GE", "NE"].includes(direction)) return turns(-first, -bound, -step, { GT: "LT", GE: "LE", NE: "NE" }[direction]);
    return null;
  }
  function loopOf(program, where, each, known) {
    const body = program.called(each, "body")[0], condition = program.called(each, "condition")[0];
    const start = where.get(each.operands[0]), tuples = start.opcode === "tuple" && body.root.opcode === "tuple", constants = new Map();
    const before = (element) => valueOf(origin(program, where, start.operands[element]), known);
    const after = (element) => origin(program, body, body.root.operands[element]);
    if (tuples) {
      (start.shape.parts ?? []).forEach((part, element) => {
        const kept = isScalar(part) && after(element), value = kept?.element === element && kept.offset === 0 ? before(element) : null;
        if (value !== null) constants.set(element, value);
      });
    }
    const trips = () => {
      const stated = config(each).known_trip_count?.n;
      if (/^\d+$/.test(String(stated ?? ""))) return Number(stated);
      let inner = condition, test = condition.root, passed;
      while (["fusion", "call", "copy", "bitcast", "convert"].includes(test.opcode)) {
        if (test.opcode === "fusion" || test.opcode === "call") {
          [inner, passed] = entered(program, inner, test, passed);
          test = inner.root;
        } else test = inner.get(test.operands[0]);
      }
      if (test.opcode !== "compare" || !tuples) return null;
      let [left, right] = test.operands.map((operand) => origin(program, inner, operand, passed)), { direction = "" } = test.attributes;
      if (!left || !right) return null;
      // The bound comes first: turn it round
      if (left.element === null || constants.has(left.element)) {
        [left, right] = [right, left];
        direction = direction.replace(/[LG]/g, (c) => (c === "L" ? "G" : "L"));
      }
      const bound = valueOf(right, constants);
      if (left.element === null || bound === null) return null;
      const first = before(left.element), next = after(left.element);
      return first === null || !next || next.element !== left.element ? null : turns(first + left.offset, bound, next.offset, direction);
    };
    return { body, condition, constants, trips: trips() };
  }

  // ---- the walk over what a program runs -----------------------------------------------------------------

  const computes = (op) => !sets.real.has(op) && (/^reduce(-window)?$/.test(op) || ["arithmetic", "transcendental", "products"].some((all) => sets[all].has(op)));
  function kernels(text) {
    const program = hloText.parse(text), platform = /\[[\d,]*\]\{[\d,]*:T\(/.test(text) ? "tpu" : "gpu", spaces = opcodes.spaces[platform];
    const notes = new Set(), undeclared = new Map();
    const total = (rows, f) => sum(rows.map((row) => f(row) * row.launches));
    const price = (row) => sum(Object.values(row.read)) + sum(Object.values(row.written)) + (row.matrix + row.vector) / 200;
    const isRefill = (each, where) => /^(copy|slice)-start$/.test(each.opcode) && where === program.entry && !each.root
      && (where.users.get(each.name) ?? []).every((done) => done.opcode.endsWith("-done") && !done.root && !where.users.has(done.name));
    const rowOf = (site, launches) => {
      const { each } = site, inside = parts(site);
      if (fusedIn(site) && inside.some((part) => sets.collectives.has(part.each.base) || part.each.target.startsWith("AsyncCollective")))
        fail(`${each.name} is a fusion around an exchange between devices, which this page doesn't read: compiled.analyze does.`);
      let flops = flopsOf(site);
      if (!flops) {
        flops = count({ unknown: [each.opcode] });
        notes.add(`${each.name}: opcode ${each.opcode} is not known here; its FLOPs are not counted`);
      } else for (const what of new Set(flops.unknown)) undeclared.set(what, (undeclared.get(what) ?? 0) + 1);
      if (sets.collectives.has(each.base)) notes.add("exchanges between devices: bytes in memory count, time on the network doesn't");
      if (inside.some((part) => part.operands.flatMap(leaves).some((leaf) => /^c(64|128)$/.test(leaf.dtype)) && computes(part.each.opcode)))
        notes.add("complex numbers: an operation on one counts as one FLOP");
      return { name: each.name, opcode: each.base, launches, ...flops, ...traffic(site, spaces) };
    };
    const enter = (where, launches, known) => where.instructions.flatMap((each) => {
      if (sets.free.has(each.opcode) || /-(done|update)$/.test(each.opcode)) return [];
      if (each.opcode === "while") {
        const { body, condition, constants, trips } = loopOf(program, where, each, known);
        if (trips === null) notes.add(`loop ${each.name}: its turns can't be told; its body counts once`);
        else if (trips !== 1) notes.add(`loop ${each.name}: its body counts ${trips} times`);
        return [...enter(condition, launches * ((trips ?? 1) + 1), constants), ...enter(body, launches * (trips ?? 1), constants)];
      }
      if (each.opcode === "conditional") {
        const choices = program.called(each, "branch_computations", "true_computation", "false_computation").map((branch) => {
          const rows = enter(branch, launches, new Map());
          return { rows, branch, keys: [total(rows, price), total(rows, (row) => row.matrix + row.vector)] };
        });
        const best = choices.reduce((a, b) => (b.keys[0] > a.keys[0] || (b.keys[0] === a.keys[0] && b.keys[1] > a.keys[1]) ? b : a));
        notes.add(`conditional ${each.name}: the dearest of ${choices.length} branches counts (${best.branch.name})`);
        return best.rows;
      }
      if (each.base === "call" || each.base === "async") return program.called(each, "calls", "to_apply").flatMap((one) => enter(one, launches, new Map()));
      if (each.base === "custom-call" && sets.free_calls.has(each.target)) return [];
      if (isRefill(each, where)) return [];
      const site = siteOf(program, where, each);
      return [each.shape, ...site.operands].every(isScalar) && !each.opcode.includes("custom-call") ? [] : [rowOf(site, launches)];
    });
    const rows = enter(program.entry, 1, new Map());
    for (const [what, many] of undeclared) notes.add(`${what}: ${many > 1 ? `${many} calls declare` : "it declares"} no FLOPs, so they are unknown`);
    return { name: program.name, platform, partitions: program.partitions, rows, notes: [...notes] };
  }

  return { kernels };
})();
