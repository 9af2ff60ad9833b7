/* A feed-forward layer cut over a mesh: the same as `roofline.training.layer` has in Python.
   tests/package/test_parity.py holds both together. SI units.

   cut = {peak (FLOP/s), bits (of an element), tensor (chips that split the width),
          gather (seconds a byte of a matrix that is gathered), sums (seconds a byte of activations,
          gathered and scattered), shared (whether both exchanges use the same links)}
   network.layer(cut, {tokens (a chip), model, inner}) = {flops, products, gathers, sums, seconds,
          bound: "compute"|"weights"|"sums", attainable (FLOP/s of a chip)} */
const network = (() => {
  "use strict";

  const layer = (
    { peak, bits, tensor, gather, sums: perByte, shared },
    { tokens, model, inner },
  ) => {
    const element = bits / 8;
    const flops = 4 * tokens * model * inner;
    const products = flops / peak;
    const gathers = 2 * gather * ((element * model * inner) / tensor);
    const sums = perByte * (element * tokens * tensor * model);
    const exchanges = shared ? gathers + sums : Math.max(gathers, sums);
    const seconds = Math.max(products, exchanges);
    const slower = gathers >= sums ? "weights" : "sums";
    const bound = products >= exchanges ? "compute" : slower;
    return { flops, products, gathers, sums, seconds, bound, attainable: flops / seconds };
  };

  return { layer };
})();
