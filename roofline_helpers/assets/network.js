/* A feed-forward layer cut over a mesh: the same as `roofline_helpers.training.layer` has in Python.
   tests/package/test_parity.py holds both together. SI units.

   cut = {peak (FLOP/s), bits (of an element), tensor (chips that split the width),
          gather (seconds a byte of a matrix that is gathered), sums (seconds a byte of activations,
          gathered and scattered)}
   network.layer(cut, {tokens (a chip), model, inner}) = {flops, products, gathers, sums, seconds,
          bound: "compute"|"weights"|"sums", attainable (FLOP/s of a chip)} */
const network = (() => {
  "use strict";

  const layer = ({ peak, bits, tensor, gather, sums: perByte }, { tokens, model, inner }) => {
    const element = bits / 8;
    const flops = 4 * tokens * model * inner;
    const products = flops / peak;
    const gathers = 2 * gather * ((element * model * inner) / tensor);
    const sums = perByte * (element * tokens * tensor * model);
    const seconds = Math.max(products, gathers, sums);
    const times = { compute: products, weights: gathers, sums };
    const bound = Object.keys(times).find((name) => times[name] === seconds);
    return { flops, products, gathers, sums, seconds, bound, attainable: flops / seconds };
  };

  return { layer };
})();
