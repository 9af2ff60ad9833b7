/* The text of a compiled program (HLO) as data, as `roofline_helpers.hlo` reads it (text.py, shapes.py,
   module.py): what hlo.js counts.

   hloText.parse(text)   {name, entry, called(each, attribute…), partitions}; throws an Error that says
                         what it can't read
     computation: {name, instructions, get(name), users, root, parameters, results}
     instruction: {name, opcode, base, shape, operands: [name], attributes, root, literal, target}
     shape: {dtype, dims, order, space, packed}, or {parts} of a tuple
   hloText.siteOf(program, where, each)   an instruction where it is, with its operands' shapes
   hloText.parts(site)                  what a kernel consists of: what it fuses, or itself alone */
const hloText = (() => {
  const sum = (all) => all.reduce((a, b) => a + b, 0), prod = (all) => all.reduce((a, b) => a * b, 1);
  const fail = (what) => { throw new Error(what); };

  // ---- text ----------------------------------------------------------------------------------------

  const TOKEN = /"(?:\\.|[^"\\])*"|[(\[{]|[)\]}]|,|[^"()\[\]{},]+/g;
  const INSTRUCTION = /^\s+(ROOT )?%?([\w.-]+) = /;
  const depthOf = (token) => ("([{".includes(token) ? 1 : ")]}".includes(token) ? -1 : 0);
  const isOpen = (line) => sum((line.match(TOKEN) || []).map(depthOf)) > 0;

  // XLA breaks an instruction's line inside the metadata of a Pallas kernel
  function* lines(text) {
    let pending = "";
    for (const line of text.split(/\r?\n/)) {
      if (pending && INSTRUCTION.test(line)) { yield pending; pending = ""; }
      pending += line;
      if (INSTRUCTION.test(pending) && isOpen(pending)) continue;
      yield pending;
      pending = "";
    }
    if (pending) yield pending;
  }
  // At the commas outside of quotes and brackets
  const split = (text) => {
    const parts = [];
    let depth = 0, piece = "";
    for (const token of text.match(TOKEN) || []) {
      if (token === "," && depth === 0) { parts.push(piece.trim()); piece = ""; continue; }
      depth += depthOf(token);
      piece += token;
    }
    return piece.trim() ? [...parts, piece.trim()] : parts;
  };
  const closing = (text, at) => {
    let depth = 0;
    TOKEN.lastIndex = at;
    for (let token = TOKEN.exec(text); token; token = TOKEN.exec(text)) {
      depth += depthOf(token[0]);
      if (depth === 0) { TOKEN.lastIndex = 0; return token.index; }
    }
    return fail(`no closing bracket in ${text.slice(at, at + 60)}`);
  };

  // ---- shapes: {dtype, dims, order, space, packed} or {parts} --------------------------------------

  const ARRAY = /([a-z]\w*)\[([^\]]*)\](?:\{([^{}]*)\})?/y;
  const numbersIn = (text) => (text.match(/-?\d+/g) || []).map(Number);
  function readShape(text, at) {
    if (text[at] === "(") {
      const parts = [];
      at++;
      while (text[at] !== ")") {
        if (text[at] === "," || text[at] === " ") { at++; continue; }
        if (at >= text.length) fail(`a tuple never closes: ${text.slice(0, 60)}`);
        const [part, end] = readShape(text, at);
        parts.push(part);
        at = end;
      }
      return [{ parts }, at + 1];
    }
    ARRAY.lastIndex = at;
    const found = ARRAY.exec(text) || fail(`no shape in ${text.slice(at, at + 60)}`);
    const [order, rest = ""] = (found[3] || "").split(/:(.*)/s);
    return [{
      dtype: found[1], dims: numbersIn(found[2]), order: numbersIn(order).reverse(),
      space: Number(/S\((\d+)\)/.exec(rest)?.[1] ?? 0), packed: Number(/E\((\d+)\)/.exec(rest)?.[1] ?? 0),
    }, ARRAY.lastIndex];
  }
  const leaves = (shape) => (shape.parts ? shape.parts.flatMap(leaves) : [shape]);
  const elements = (shape) => sum(leaves(shape).map((leaf) => prod(leaf.dims)));
  const isScalar = (shape) => leaves(shape).every((leaf) => prod(leaf.dims) <= 1);
  const bits = ({ dtype, packed }) => {
    const digits = /^[sufc](\d+)/.exec(dtype);
    return packed || (opcodes.bits[dtype] ?? (digits ? Math.max(Number(digits[1]), 8) : 0));
  };
  const bytesOf = (leaf) => Math.ceil((prod(leaf.dims) * bits(leaf)) / 8);

  // ---- the program ---------------------------------------------------------------------------------

  function readInstruction(line) {
    const start = INSTRUCTION.exec(line);
    if (!start) return null;
    const [shape, at] = readShape(line, start[0].length);
    const opened = line.indexOf("(", at), closed = closing(line, opened);
    const opcode = line.slice(at, opened).trim(), inside = line.slice(opened + 1, closed);
    const attributes = {};
    for (const part of split(line.slice(closed + 1))) {
      const cut = part.indexOf("=");
      attributes[(cut < 0 ? part : part.slice(0, cut)).trim()] = cut < 0 ? "" : part.slice(cut + 1);
    }
    const literal = ["parameter", "constant", "iota"].includes(opcode);
    return {
      name: start[2], opcode, base: opcode.replace(/-start$/, ""), shape, attributes, root: !!start[1],
      operands: literal ? [] : split(inside).map((p) => p.split(/\s+/).at(-1).replace(/^%+/, "")),
      literal: literal ? inside : "",
      target: (attributes.custom_call_target || "").replace(/^"+|"+$/g, ""),
    };
  }
  const config = (each) => {
    try {
      let notes = JSON.parse(each.attributes.backend_config || "");
      if (typeof notes === "string") notes = JSON.parse(notes);
      return notes && typeof notes === "object" && !Array.isArray(notes) ? notes : {};
    } catch { return {}; }
  };
  const numbers = (each, attribute) => numbersIn(each.attributes[attribute] || "");

  function computation(name, instructions) {
    const byName = new Map(instructions.map((each) => [each.name, each])), users = new Map();
    for (const each of instructions) {
      for (const operand of each.operands) users.set(operand, [...(users.get(operand) || []), each]);
    }
    const root = instructions.find((each) => each.root) || instructions.at(-1);
    const parameters = instructions.filter((each) => each.opcode === "parameter");
    parameters.sort((a, b) => Number(a.literal || 0) - Number(b.literal || 0));
    const get = (wanted) => byName.get(wanted) || fail(`${name} uses ${wanted}, which isn't in the text`);
    return { name, instructions, get, users, root, parameters,
      results: root?.opcode === "tuple" ? root.operands : [root?.name] };
  }
  function parse(text) {
    if (!text.trimStart().startsWith("HloModule")) fail("The text of a compiled program starts with “HloModule”.");
    const computations = new Map();
    let entry = null, name = "", isEntry = false, instructions = [];
    for (const line of lines(text.replace(/\/\*.*?\*\//g, ""))) {
      if (name && line.startsWith("}")) {
        const made = computation(name, instructions);
        computations.set(name, made);
        if (isEntry) entry = made;
        [name, instructions] = ["", []];
      } else if (name) {
        const each = readInstruction(line);
        if (each) instructions.push(each);
      } else {
        const header = /^(ENTRY )?%?([\w.-]+) \(.*\{\s*$/.exec(line);
        if (header) [isEntry, name] = [!!header[1], header[2]];
      }
    }
    if (!entry?.instructions.length) fail("There is no whole ENTRY computation in this text: is its end missing?");
    const called = (each, ...names) => names.flatMap((one) => [...(each.attributes[one] || "").matchAll(/%([\w.-]+)/g)])
      .map(([, one]) => computations.get(one) || fail(`${each.name} calls ${one}, which isn't in the text`));
    return { name: /^\s*HloModule ([^\s,]+)/.exec(text)?.[1] ?? "", entry, called,
      partitions: Number(/num_partitions=(\d+)/.exec(text.slice(0, 20000))?.[1] ?? 1) };
  }
  const siteOf = (program, where, each) => ({ program, where, each, operands: each.operands.map((name) => where.get(name).shape) });
  const fusedIn = ({ program, each }) => (each.base === "fusion" ? program.called(each, "calls")[0] : null);
  const parts = (site) => {
    const inner = fusedIn(site);
    return inner ? inner.instructions.flatMap((each) => parts(siteOf(site.program, inner, each))) : [site];
  };

  return { parse, siteOf, parts, fusedIn, config, numbers, leaves, elements, isScalar, bytesOf, sum, prod, fail };
})();
