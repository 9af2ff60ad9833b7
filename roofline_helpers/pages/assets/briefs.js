/* What a design comes to, and whether it meets a brief, as `roofline_helpers.pages.briefs` has it;
   tests/package/test_parity_briefs.py holds both together.

   briefs.judge(data, brief, setting)   {per_token, first_token, dollars, days, fits, cost, met}; SI
                                        units and $ per million tokens, with the margin
   data: {rent: {chip: $ an hour}, days: {choice: {value: days}}, sharing: days, margin: {counted: times}}
   briefs.missed(verdict, brief)        [words] */
const briefs = (() => {
  const LIMITS = { per_token: "time per token", first_token: "time to the first token", dollars: "dollars per hour", days: "days of work" };
  const missed = (verdict, brief) => [...Object.keys(LIMITS).filter((name) => verdict[name] > brief[name]).map((name) => LIMITS[name]), ...(verdict.fits ? [] : ["memory"])];
  const judge = (data, brief, setting) => {
    const decode = serving.step({ ...setting, phase: "decode" }), prefill = serving.step({ ...setting, phase: "prefill", batch: 1 }), slower = data.margin[brief.counted];
    const worked = Object.entries(data.days).map(([what, each]) => each[setting[what]] ?? 0);
    const days = model.sum(worked) + (setting.chips > 1 ? data.sharing : 0), dollars = data.rent[setting.chip] * setting.chips;
    const verdict = { per_token: slower * decode.seconds, first_token: slower * prefill.seconds, dollars, days, fits: decode.fits, cost: slower * (dollars / 3600 / decode.tokensPerSecond) * 1e6 };
    return { ...verdict, met: missed(verdict, brief).length === 0 };
  };
  const told = (verdict, brief, money) => (verdict.met ? `${brief.name}: met, ${money(verdict.cost)} per million decoded tokens, score ${numbers.significant((100 * brief.best_cost) / verdict.cost, 3)} of 100`
    : `${brief.name}: missed: ${missed(verdict, brief).join(", ")}`);
  return { judge, missed, told };
})();
