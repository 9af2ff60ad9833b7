"""A slip in assets/model.js or serving.js shows in what the script computes."""

from __future__ import annotations

import json

from parity_suite import RUN, compared, expected, one_in_a_few
from playwright.sync_api import Browser

from roofline_helpers import serving

# What the file says, and what a slip would make of it
SLIPS = [
    ("ridge: peak / bandwidth }", "ridge: (peak / bandwidth) * (1 + 1e-11) }"),
    ("got.bandwidth ?? of.bandwidth", "of.bandwidth"),
    ("ours[dtype] ?? peaks[dtype]", "peaks[dtype]"),
    ("!(dtype in of.matrix) ?", "false ?"),
    ("got.vector.fp32 ?? of.vector", "of.vector"),
    ("if (on.floor) times", "if (false) times"),
    ("if (!s.floor) on", "if (s.floor) on"),
    ("if (!s.resident) return", "if (true) return"),
    ("n + each.size <= capacity", "n <= capacity"),
    ("a.size - b.size ||", "b.size - a.size ||"),
    ("each.uses < 2 ||", "each.uses < 1 ||"),
    ("tensors[name].first === at", "true"),
    ("tensors[name].uses += 1", "tensors[name].uses += 0"),
    (
        "stay = resident(jobs, s.chip.inside, onward, names",
        "stay = resident(jobs, s.chip.inside, [], names",
    ),
    ("s.reserve * s.chip.capacity", "0"),
    ("one.capacity - one.reserve - one.weights", "one.capacity - one.weights"),
    ("held.capacity - held.reserve - held.total", "held.capacity - held.total"),
    ('floor: "latency"', 'floor: "memory"'),
    ("intensity < on.ridge ?", "intensity <= 0 ?"),
    ('? "memory" : "compute");\n  const mfu', '? "compute" : "memory");\n  const mfu'),
    ("achieved / on.peak", "achieved / on.ridge"),
    ("achieved / attainable(on, intensity)", "achieved / on.peak"),
    ("job.vector / (on.vector ?? on.peak)", "job.vector / on.peak"),
    ("Math.max(...Object.values(times))", "sum(Object.values(times))"),
    ("matrix: 2 * m * n * k", "matrix: m * n * k"),
    ("nbytes(n * k, b)", "nbytes(n * k, dtype)"),
    ("nbytes(m * n, out)", "nbytes(m * n, dtype)"),
    ("tables.bits[b] > tables.bits[dtype]", "tables.bits[b] < tables.bits[dtype]"),
    ("+ rows * row,", ","),
    ("if (tensor in made) used.add(tensor);\n        else", ""),
    ("|| keep.includes(tensor)", ""),
    ("job.matrix > 0 ? 1000 : 0", "0"),
    ("- 2);\n    while (!isBound(n)) n += 1;", "- 2);"),
    ("tables.bits[dtype] === 8 && dtype", "dtype"),
    ("rows * (queries + keys) * cost", "rows * queries * cost"),
    ('"cos, sin": size(head_dim)', '"cos, sin": size(d)'),
    ("s.cache === half ? 0 :", "s.cache !== half ? 0 :"),
    ("nbytes(s.batch * s.context * keys, s.cache)", "nbytes(s.batch * s.context * keys, half)"),
    ("nbytes(s.batch * s.context * keys, s.cache)", "nbytes(s.batch * length * keys, s.cache)"),
    ("keys = kv_heads * head_dim", "keys = heads * head_dim"),
    ("2 * s.context - length + 1", "2 * s.context - length"),
    ("matrix: 4 * seen * head_dim", "matrix: 2 * seen * head_dim"),
    ("matmul(s.batch, vocabulary", "matmul(rows, vocabulary"),
    ("{ g: d_ff, u: d_ff }", "{ g: d_ff }"),
    ("between: layers - 1", "between: layers"),
    ("[name, Math.floor(size / s.chips)]", "[name, size]"),
    ("tables.models[oneOf(", 'tables.models["llama-3-8b" || oneOf('),
    ("(s.chips > 1 && tables.split[s.fusion]) ||", ""),
    ("Math.min(...lines.map(", "Math.max(...lines.map("),
    (
        "lines = s.chip.sums[s.chips][Number(s.reached)]",
        "lines = s.chip.sums[2][Number(s.reached)]",
    ),
    ("s.chip.sums[s.chips][Number(s.reached)]", "s.chip.sums[s.chips][0]"),
    ("[2 * s.model.layers, Math", "[s.model.layers, Math"),
    ("* s.model.d_model, s.chip.half)", "* s.model.d_model, s.cache)"),
    ("Math.max(least, (s.floor && s.chip.floor) || 0)", "least"),
    ("+ (sums ? sums.total : 0)", ""),
    ("find((chips) => fits({ ...setting, chips }))", "find(() => fits(setting))"),
    ("span.first <= i && i <= span.last", "span.first === i || i === span.last"),
    ("Math.max(span.n, n)", "n"),
    ("tables.stored.includes(tensor[0])", '"WγK".includes(tensor[0])'),
    ("nbytes(rest, s.chip.half)", "nbytes(rest, s.weights)"),
    ("2 * (heads + kv_heads)", "2 * (heads + heads)"),
    ("(2 * layers + 1) * d", "2 * layers * d"),
    ("job.flops / seconds)", "job.matrix / seconds)"),
    ("count * kernel.bytes", "kernel.bytes"),
    ("(seconds * s.batch) / tokens", "seconds / tokens"),
    ("flops / seconds / peak", "flops / seconds / s.chip.matrix[s.chip.half]"),
    ("held.total <= held.capacity - held.reserve", "held.weights <= held.capacity"),
    ("high - low > 1", "high - low > 2"),
    ("(one.cache + one.activations)", "one.cache"),
    ('"fp8" in s.chip.matrix', "true"),
    ("width(b) - width(a)", "width(a) - width(b)"),
    ("n <= most && step", "step"),
]


# What each changed script finds otherwise than the right one, and no more than it takes to see a
# slip; null where it stops. The cheap points come first
CHANGED = """([right, slips, points]) => {
  const runner = (script) => new Function("points", `${script}\nreturn (RUN)(points)`);
  const run = runner(right), same = points.map((point) => run([point]));
  return JSON.stringify(slips.map(([said, slip]) => {
    try {
      const run = runner(right.replace(said, () => slip)), found = [];
      for (let i = 0; i < points.length && found.length < 2; i += 1) {
        const one = run([points[i]]);
        if (one !== same[i]) found.push([i, JSON.parse(one)[0]]);
      }
      return found;
    } catch { return null; }
  }));
}""".replace("RUN", RUN)


def test_a_slip_in_the_javascript_is_noticed(chromium: Browser) -> None:
    # a type that only the vector unit has, under measured ceilings
    asked = [["product", "h100", "fp32", None, (64, 64, 64), 17.3, {}, True]]
    asked += one_in_a_few({"product": 41, "step": 71, "types": 1, "best": 4, "instead": 4})
    several = {"model": "llama-3-70b", "chip": "h100", "chips": 4, "fusion": "epilogue"}
    asked += [["step", several], ["step", {**several, "reached": True, "cache": "fp8"}]]
    script = serving.script()
    for right, _ in SLIPS:
        assert script.count(right) == 1, f"{right!r} is no longer in the scripts once"
    page = chromium.new_page()
    answers = json.loads(page.evaluate(CHANGED, [script, SLIPS, asked]))
    page.close()
    missed, stopped = [], []
    for slip, changed in zip(SLIPS, answers, strict=True):
        if changed is None:  # it stops: noticed too
            stopped.append(slip)
        elif not any(
            compared([expected(asked[i])], [one], [asked[i]]).faults for i, one in changed
        ):
            missed.append(slip)
    assert missed == []
    assert len(stopped) <= 5, "most slips should show in the numbers"
