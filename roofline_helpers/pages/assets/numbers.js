/* Numbers as Python writes them (show.si, show.significant), and as readers type them.

   numbers.significant(value, digits), numbers.si(value, unit, digits)
   numbers.parse(text, {min, max, integer, unit})   {value} or {error} */
const numbers = (() => {
  const PREFIXES = [["n", 1e-9], ["µ", 1e-6], ["m", 1e-3], ["", 1], ["k", 1e3], ["M", 1e6],
    ["G", 1e9], ["T", 1e12], ["P", 1e15], ["E", 1e18]];

  // Python's round(): the nearest number of so many digits; of two equally near ones the even one
  const rounded = (x, digits) => {
    if (x === 0 || !Number.isFinite(x)) return x;
    const [mantissa, exponent] = Math.abs(x).toExponential(100).split("e");
    const all = mantissa.replace(".", "");
    const tie = /^50*$/.test(all.slice(digits)) && "02468".includes(all[digits - 1]);
    const kept = tie ? `${all.slice(0, digits)}e${exponent - digits + 1}` : Math.abs(x).toPrecision(digits);
    return Math.sign(x) * Number(kept);
  };
  const significant = (value, digits = 3) => {
    const x = rounded(value, digits);
    if (Number.isNaN(x)) return "nan";
    if (!Number.isFinite(x)) return x < 0 ? "-inf" : "inf";
    if (x === 0) return "0";
    const exponent = Number(Math.abs(x).toExponential().split("e")[1]);
    const places = Math.max(digits - 1 - exponent, 0);
    const text = Math.abs(x) < 1e21 ? Math.abs(x).toFixed(places) : BigInt(Math.abs(x)).toString();
    const [whole, part = ""] = text.split(".");
    const decimals = part.replace(/0+$/, "");
    return (x < 0 ? "-" : "") + whole.replace(/\B(?=(\d{3})+$)/g, ",") + (decimals && `.${decimals}`);
  };
  const si = (value, unit, digits = 3) => {
    const x = rounded(value, digits);
    let chosen = x === 0 || !Number.isFinite(x) ? PREFIXES[3] : PREFIXES[0];
    if (chosen === PREFIXES[0]) {
      const most = unit === "s" ? 1 : Infinity; // nobody says kiloseconds
      for (const one of PREFIXES) if (one[1] <= Math.min(Math.abs(x), most)) chosen = one;
    }
    return `${significant(x / chosen[1], digits)} ${chosen[0]}${unit}`;
  };

  const SUFFIXES = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
  const parse = (text, { min = 0, max = 1e30, integer = false, unit = "" } = {}) => {
    let rest = String(text).trim();
    if (unit && rest.endsWith(unit)) rest = rest.slice(0, -unit.length).trim();
    rest = rest.replace(/[−–]/g, "-") // thousands may stand apart, decimals not behind a comma
      .replace(/^[+-]?[1-9]\d{0,2}(?:[,_\s]\d{3})+(?![\d,])/, (whole) => whole.replace(/[,_\s]/g, ""));
    if (!rest) return { error: "Type a number." };
    const found = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([kKMGTP]?)$/.exec(rest);
    if (!found) return { error: /\d,\d/.test(rest) ? "A decimal comma? Type a point: 0.5." : "Not a number: type it like 1200, 1.2e3 or 1.2k." };
    const value = Number(found[1]) * (SUFFIXES[found[2]] || 1);
    const shown = (x) => (x !== 0 && (x >= 1e7 || x < 1e-3) ? x.toExponential().replace("+", "") : significant(x, 9));
    if (value < min) return { error: min ? `At least ${shown(min)}.` : "Not below zero." };
    if (!(value <= max)) return { error: `At most ${shown(max)}.` };
    if (integer && !Number.isInteger(value)) return { error: "A whole number, please." };
    return { value };
  };

  return { significant, si, parse };
})();
