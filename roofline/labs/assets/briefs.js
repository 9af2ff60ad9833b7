/* What a design comes to, and whether it meets a brief, as `roofline.labs.briefs` has it;
   tests/package/test_parity_briefs.py holds both together.

   briefs.judge(data, brief, setting)   {per_token, first_token, dollars, days, room, cost, met}; SI
                                        units and $ per million tokens, with the margin
   data: {rent: {chip: $ an hour}, days: {choice: {value: days}}, sharing: days, margin: {counted: times}}
   briefs.missed(verdict, brief)        [names of the limits]
   briefs.told(verdict, brief)          score, or by how much each limit is missed */
const briefs = (() => {
  const { significant, si } = numbers;
  const money = (v) => `$${v < 1 ? significant(v, 3) : v.toFixed(2)}`, time = (v) => si(v, "s");
  const LIMITS = { per_token: ["time per token", time], first_token: ["time to the first token", time], dollars: ["dollars per hour", money], days: ["days of work", (v) => significant(v, 3)] };
  const over = (verdict, brief) => Object.entries(LIMITS).filter(([name]) => verdict[name] > brief[name]);
  const missed = (verdict, brief) => [...(verdict.room < 0 ? ["memory"] : []), ...over(verdict, brief).map(([, [name]]) => name)];
  const judge = (data, brief, setting) => {
    const decode = serving.step({ ...setting, phase: "decode" }), prefill = serving.step({ ...setting, phase: "prefill", batch: 1 }), slower = data.margin[brief.counted];
    const worked = Object.entries(data.days).map(([what, each]) => each[setting[what]] ?? 0);
    const days = model.sum(worked) + (setting.chips > 1 ? data.sharing : 0), dollars = data.rent[setting.chip] * setting.chips;
    const verdict = { per_token: slower * decode.seconds, first_token: slower * prefill.seconds, dollars, days, room: decode.room, cost: slower * (dollars / 3600 / decode.tokensPerSecond) * 1e6 };
    return { ...verdict, met: missed(verdict, brief).length === 0 };
  };
  const told = (verdict, brief) => (verdict.met ? `score ${significant((100 * brief.best_cost) / verdict.cost, 3)} of 100, ${money(verdict.cost)} per million tokens`
    : `score 0 of 100, missed: ${[...(verdict.room < 0 ? [`memory, by ${si(-verdict.room, "B")}`] : []),
      ...over(verdict, brief).map(([key, [name, text]]) => `${name}, ${text(verdict[key])} of ${text(brief[key])}`)].join("; ")}`);
  return { judge, missed, money, told };
})();
