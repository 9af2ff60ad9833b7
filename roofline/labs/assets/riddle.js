/* The riddle of the decode step. data, as riddle.py makes it: moves {letter: [name, line that goes, line
   that comes]}, bars (names), orders {state: {ms, bars, kernels, finding, next, locked}}, torch, best. */
{
  const { el } = core;
  core.style(`
    :host { --floor: #00578a; --lost: #ff4918; --theirs: #6e7781; }
    :host([data-look=dark]) { --floor: #62b8f0; --lost: #ff7a55; --theirs: #8b949e; }
    .fit { container-type: inline-size; } .riddle { display: grid; gap: 1rem 1.5rem; }
    .riddle > * { min-width: 0; } .show { display: contents; } .show > :not(.clock) { margin: 0; }
    .clock { position: sticky; top: var(--top, 0px); z-index: 1; margin: 0; padding: .3rem 0 .5rem; font-variant-numeric: tabular-nums;
      background: linear-gradient(var(--lost), var(--lost)) bottom left / 100% 5px no-repeat var(--ground); }
    .clock b { font-size: 1.6em; }
    .falls { list-style: none; margin: 0; padding: 0; font-size: .92em; font-variant-numeric: tabular-nums; }
    .falls li { display: grid; grid-template-columns: 1fr auto; gap: 0 .6rem; margin-top: .45rem; }
    .falls div { grid-column: 1 / -1; height: .9rem; background: var(--field); border: 1px solid var(--soft); }
    .falls i { display: block; height: 100%; background: var(--lost); transition: margin .4s, width .4s; }
    .falls .floor i { background: var(--floor); } .falls .all { font-weight: 600; } .falls .all i { background: var(--ink); }
    .falls .theirs i { background: var(--theirs); }
    .moves { display: grid; gap: .5rem; align-content: start; }
    .moves button { display: block; width: 100%; text-align: left; font-weight: 400; background: var(--field); color: var(--ink); border-color: var(--line); padding: .45rem .6rem; }
    .moves button[aria-pressed=true] { border-color: var(--accent); box-shadow: inset 4px 0 var(--accent); }
    .moves button[aria-disabled] { border-style: dashed; background: transparent; cursor: not-allowed; }
    .moves b, .moves small, .moves code { display: block; } .moves small { font-size: .85em; color: var(--muted); }
    .moves code { font: .8em/1.5 ui-monospace, monospace; } .moves .goes { color: var(--bad); } .moves .comes { color: var(--good); }
    .end { border: 2px solid var(--accent); border-radius: 4px; padding: .6rem .8rem; margin-top: 1rem; }
    .end ol { margin: .3rem 0 0; padding-left: 1.4rem; } .score { font-size: 1.3em; font-weight: 600; }
    @container (min-width: 40rem) { .riddle { grid-template-columns: 1fr 1fr; } .moves .story { display: none; } .clock { position: static; }
      .show { display: grid; gap: .8rem; position: sticky; top: calc(var(--top, 0px) + .5rem); align-self: start; } }`);
  const LONG = 70, SHORT = 20; // ends of the scale, in ms
  const ms = (v) => `${v.toFixed(v < 9.995 ? 2 : 1)} ms`;
  const change = (v) => `${v > 0 ? "+" : "−"}${Math.abs(v).toFixed(1)} ms`;

  core.define("riddle", (host, data, ui) => {
    const { orders, moves, best } = data, letters = Object.keys(moves), last = letters.slice(-3).join("");
    let state = "", made = [];
    const bars = [...data.bars, "the clock", "PyTorch's clock"].map((name, i, all) => {
      const bar = el("i"), value = el("span");
      const kind = { 0: "floor", [all.length - 2]: "all", [all.length - 1]: "theirs" }[i];
      return { bar, value, node: el("li", { class: kind }, el("span", {}, name), value, el("div", { "aria-hidden": "true" }, bar)) };
    });
    const clock = el("p", { class: "clock" }), scale = el("p", { class: "muted" }), told = el("div"), end = el("div");
    const cards = letters.map((move, i) => {
      const [name, goes, comes] = moves[move], note = el("small", { id: `note-${move}` });
      const node = el("button", { type: "button", "aria-labelledby": `name-${move}`, "aria-describedby": `lines-${move} note-${move}`, onclick: () => act(move) },
        el("b", { id: `name-${move}` }, name), el("span", { id: `lines-${move}` },
          el("code", { class: "goes" }, `− ${goes}`), comes && el("code", { class: "comes" }, `+ ${comes}`)), note);
      return { move, node, note };
    });

    // What a move did, in the words of the record
    const story = (before, after, name, reason) => {
      const gain = before.ms - after.ms, had = before.kernels, has = after.kernels;
      const kinds = Object.keys(had).length && Object.keys(has).length ? [...new Set([...Object.keys(had), ...Object.keys(has)])] : [];
      const moved = kinds.map((kind) => [kind, (has[kind] || 0) - (had[kind] || 0)]).filter(([, d]) => Math.abs(d) >= 0.3)
        .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 3).map(([kind, d]) => `${kind} ${change(d)}`);
      const what = Math.abs(gain) < Math.min(0.3, before.ms / 50) ? "changes next to nothing" : gain > 0 ? `gains ${ms(gain)}` : `costs ${ms(-gain)}`;
      return [`${name} ${what}: ${ms(before.ms)} → ${ms(after.ms)}.`, reason,
        moved.length ? `Its kernels: ${moved.join(", ")}.` : kinds.length ? "No kind of kernel changed by 0.3 ms." : ""].filter(Boolean);
    };

    const draw = (lines) => {
      const now = orders[state], full = now.ms > SHORT ? LONG : SHORT, parts = now.bars.length;
      let from = 0;
      [...now.bars, now.ms, data.torch].forEach((v, i) => {
        const { bar, value } = bars[i], start = i < parts ? from : 0;
        if (i < parts) from += v;
        bar.style.marginLeft = `${(100 * Math.min(start, start + v)) / full}%`;
        bar.style.width = `${(100 * Math.abs(v)) / full}%`;
        value.textContent = v ? ms(v) : "not split";
      });
      clock.style.backgroundSize = `${(100 * now.ms) / LONG}% 5px`;
      clock.replaceChildren(el("b", {}, ms(now.ms)), ` a step, ${made.length} move${made.length === 1 ? "" : "s"}`);
      scale.textContent = `The bars end at ${full} ms${full === SHORT ? ": the scale has changed" : ""}.`;
      for (const { move, node, note } of cards) {
        const why = now.locked[move];
        node.setAttribute("aria-pressed", state.includes(move));
        if (why) node.setAttribute("aria-disabled", "true"); else node.removeAttribute("aria-disabled");
        note.replaceChildren(made.at(-1)?.move === move ? el("span", { class: "story" }, `${lines.join(" ")} `) : "",
          why || (state.includes(move) ? "Chosen. To take it back is a move too." : ""));
      }
      told.replaceChildren(...lines.map((line) => el("p", {}, line)), el("p", {}, el("b", {}, "explain finds: "), `${now.finding}.`));
      end.replaceChildren(...(state === last ? finish() : []));
      end.className = state === last ? "end" : "";
    };

    const act = (move) => {
      const before = orders[state], [to, reason] = before.next[move] || [];
      if (to === undefined) { ui.say(before.locked[move]); return; }
      made.push({ move, back: state.includes(move), from: before.ms, to: orders[to].ms });
      state = to;
      const { back } = made.at(-1), lines = story(before, orders[to], back ? `Taking back “${moves[move][0]}”` : `“${moves[move][0]}”`, reason);
      draw(lines);
      if (state === last) end.scrollIntoView({ block: "nearest" });
      ui.say([...lines, state === last ? end.firstChild.textContent : ""].join(" "));
    };

    // What somebody sends on: the step's time after each move, theirs above the best order's
    const picture = (score) => {
      const canvas = el("canvas", { width: 1200, height: 630 }), pen = canvas.getContext("2d");
      let at = "";
      const ideal = [orders[""].ms, ...[...best.moves].map((move) => orders[(at = orders[at].next[move][0])].ms)];
      const mine = [orders[""].ms, ...made.map((one) => one.to)], steps = Math.max(mine.length, ideal.length) - 1;
      const x = (step) => 110 + (980 * step) / steps, y = (time) => 550 - (350 * time) / LONG;
      const write = (text, left, top, size, colour = "#1f1f1f", bold = "") => {
        pen.font = `${bold} ${size}px system-ui, sans-serif`;
        pen.strokeStyle = "#ffffff"; // so that no line runs through a label
        pen.lineWidth = 8;
        pen.lineJoin = "round";
        pen.strokeText(text, left, top);
        pen.fillStyle = colour;
        pen.fillText(text, left, top);
      };
      pen.fillStyle = "#ffffff";
      pen.fillRect(0, 0, 1200, 630);
      write(`A decode step of Llama-3-8B: ${ms(mine[0])} → ${ms(mine.at(-1))}`, 60, 70, 36, "#1f1f1f", "bold");
      write(`Score ${score} of 100. I changed this first: ${moves[made[0].move][0]}`, 60, 112, 25);
      const line = (times, colour, mark) => {
        pen.strokeStyle = pen.fillStyle = colour;
        pen.lineWidth = 4;
        pen.beginPath();
        times.forEach((time, step) => pen.lineTo(x(step), y(time)));
        pen.stroke();
        times.forEach((time, step) => {
          pen.beginPath();
          if (mark === "square") pen.rect(x(step) - 8, y(time) - 8, 16, 16); else pen.arc(x(step), y(time), 9, 0, 7);
          pen.fill();
        });
      };
      const level = (time, name) => {
        pen.strokeStyle = "#6e7781";
        pen.lineWidth = 2;
        pen.setLineDash([8, 8]);
        pen.beginPath();
        pen.moveTo(x(0), y(time));
        pen.lineTo(x(steps), y(time));
        pen.stroke();
        pen.setLineDash([]);
        write(name, x(0) + 16, y(time) - 9, 22, "#535e6c");
      };
      level(data.torch, `PyTorch, ${ms(data.torch)}`);
      line(ideal, "#00578a", "square");
      line(mine, "#c2410c", "circle");
      mine.forEach((time, step) => write(ms(time), x(step) - 30, y(time) - 20, 22));
      write("● my moves", 760, 180, 26, "#c2410c");
      write("■ the best order", 760, 216, 26, "#00578a");
      write("moves, one after the other; ms a step on one H200, as measured", 110, 600, 22, "#535e6c");
      return canvas;
    };

    const finish = () => {
      const sum = made.reduce((all, one) => all + one.from, 0), score = Math.round((100 * best.sum) / sum), { bars: [floor], ms: now } = orders[last];
      const order = made.map(({ move, back, to }) => el("li", {}, `${back ? "Back: " : ""}${moves[move][0]}, ${ms(to)}`));
      const text = `A decode step of Llama-3-8B on one H200, ${ms(orders[""].ms)} → ${ms(now)}. I took ${made.length} moves (the best order: ${best.moves.length}) `
        + `and score ${score} of 100. I changed this first: ${moves[made[0].move][0]}. Which line would you? ${location.protocol.startsWith("http") ? location.href.split("#")[0] : ""}`.trim();
      const area = el("textarea", { rows: 4, readonly: true, "aria-label": "Text to share" });
      area.value = text;
      const copy = () => {
        area.select();
        const done = (words) => () => { ui.say(words); button.textContent = words; };
        const asked = navigator.clipboard?.writeText(text) ?? Promise.reject();
        asked.then(done("Copied"), done("Press Ctrl+C or ⌘C to copy"));
      };
      const button = el("button", { type: "button", onclick: copy }, "Copy");
      const save = () => picture(score).toBlob((image) => el("a", { href: URL.createObjectURL(image), download: "decode-riddle.png" }).click());
      const keep = el("button", { type: "button", class: "quiet", onclick: save }, "Save a picture");
      return [el("p", { class: "score" }, `Your score: ${score} of 100`),
        el("p", {}, `Suppose every move takes a day, and the step runs as it is until the evening. Added up over your ${made.length} days, a step took ${ms(sum)}; in the best order it takes ${ms(best.sum)}.`),
        el("p", {}, "You:"), el("ol", {}, order),
        el("p", {}, "The best order:"), el("ol", {}, [...best.moves].map((move) => el("li", {}, moves[move][0]))),
        el("p", {}, `PyTorch's step takes ${ms(data.torch)} on the same GPU, compiled and in one CUDA graph; how it was tuned stands below. The least is ${ms(floor)}, so you are ${Math.round((100 * now) / floor - 100)}% above it.`),
        area, el("p", { class: "buttons" }, button, " ", keep)];
    };

    const again = el("button", { type: "button", class: "quiet", onclick: () => { state = ""; made = []; draw([]); ui.say("From the beginning."); } }, "Begin again");
    ui.root.append(el("div", { class: "fit" }, el("div", { class: "riddle" },
      el("div", { class: "show" }, clock, el("ol", { class: "falls" }, bars.map((one) => one.node)), scale, told),
      el("div", { class: "moves" }, cards.map((one) => one.node)))), el("p", { class: "buttons" }, again), end);
    draw([]);
  });
}
