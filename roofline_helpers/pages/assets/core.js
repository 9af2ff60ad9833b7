/* What every interactive piece of the book is made of: element, theme, fields, questions, ledger.

   Python (`ask.BUNDLES`) puts numbers.js, style.js and this file, then those of the labs where they
   are needed, into one function and calls `core.start(tags)` at its end. No framework, no request,
   no innerHTML.

   core.define(kind, (host, data, ui) => {…})   how <… data-kind="kind"> is built. `host` is the
       element, `data` its JSON. Append to ui.root. A function that throws leaves the page as it
       was without JavaScript.
       ui.root            the card, in the shadow root          ui.say(text)   polite live region
       ui.onTheme(f)      calls f("light"|"dark") now and after each change
   core.el(tag, attributes, ...children)    attributes: onclick: function, hidden: true, class: …
   core.svg(tag, attributes, ...children)
   core.si, core.significant, core.parse    those of numbers.js
   core.field({label, value, min, max, integer, unit, onvalue})    {node, input, value(), set(v)}
       onvalue(v) is called with sound numbers only; a word beside the field says what is wrong
   core.choose({label, options: [[value, text]], value, onvalue})  {node, input, value(), set(v)}
   core.question(data, ui, onanswer)        its node; data as ask.py makes it
       onanswer({given, right, restored}) after an answer, right or wrong; onanswer(null) when forgotten
   core.ledger.get(key) set(key, entry) all() reset() export() onchange(f)
       entry: {question, given (text), right (true, false or null), answer (text), value}; the ledger
       keeps with it what was given first, and whether that was right
   core.state.read(key), write(key, object)   a setting in the page's address, on the site only
   core.carry(object), carried()            what the labs leave to each other, in this browser
   core.save(text, type, name)              as a file, where the page may
   core.theme()                             "light" or "dark"
   core.style(css)                          one more style sheet for every element's shadow root */
const core = (() => {
  const { significant, si, parse } = numbers;
  const kinds = {};
  const sheets = [];
  let serial = 0;

  // --- making nodes ----------------------------------------------------------------------------

  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value != null) node.setAttribute(name, value);
    }
    node.append(...children.flat().filter((child) => child != null && child !== false));
    return node;
  };
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const scrolls = (node) => { // reached by keyboard, and shaded, where there is more beside
    new ResizeObserver(() => {
      if (node.scrollWidth > node.clientWidth) node.tabIndex = 0; else node.removeAttribute("tabindex");
    }).observe(node);
    return node;
  };
  const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // --- theme -----------------------------------------------------------------------------------

  const theme = () => {
    const root = document.documentElement, body = document.body || root;
    if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false" ? "dark" : "light";
    const said = root.dataset.theme || root.getAttribute("theme") || body.dataset.vscodeThemeKind || body.className;
    if (/\b(vscode-)?dark\b|vscode-high-contrast(?!-light)/.test(said)) return "dark";
    if (/\b(vscode-)?light\b/.test(said)) return "light";
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  };
  const themed = new Set();
  const retheme = () => { for (const f of themed) f(theme()); };
  const watchTheme = () => {
    const observer = new MutationObserver(retheme);
    const options = { attributes: true };
    observer.observe(document.documentElement, options);
    if (document.body) observer.observe(document.body, options);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", retheme);
  };

  // --- the ledger: what the reader has answered, in this browser only --------------------------

  const SPACE = "roofline:v1:";
  const memory = new Map(); // where storage is refused, as in a sandboxed frame
  const stored = (act) => { try { return act(localStorage); } catch { return undefined; } };
  const changed = (detail) => dispatchEvent(new CustomEvent("roofline-ledger", { detail }));
  const ledger = {
    get(key) {
      const text = stored((s) => s.getItem(SPACE + key)) ?? memory.get(key);
      try {
        const entry = JSON.parse(text);
        return typeof entry === "object" ? entry : null;
      } catch { return null; }
    },
    set(key, entry) {
      const had = ledger.get(key), same = had?.question === entry.question; // a new question: a new first answer
      const { first = entry.given, firstRight = entry.right, when = new Date().toISOString() } = same ? had : {};
      const text = JSON.stringify({ ...entry, first, firstRight, when });
      memory.set(key, text);
      stored((s) => s.setItem(SPACE + key, text));
      changed({ key });
    },
    all() {
      const names = stored((s) => Object.keys(s).filter((name) => name.startsWith(SPACE))) || [];
      const keys = new Set([...names.map((name) => name.slice(SPACE.length)), ...memory.keys()]);
      const entries = [...keys].map((key) => [key, ledger.get(key)]).filter(([, entry]) => entry);
      return Object.fromEntries(entries.sort((a, b) => (String(a[1].when) < String(b[1].when) ? -1 : 1)));
    },
    reset() {
      for (const key of Object.keys(ledger.all())) stored((s) => s.removeItem(SPACE + key));
      stored((s) => s.removeItem(CARRIED));
      memory.clear();
      changed({ reset: true });
    },
    export() { return JSON.stringify({ book: "Roofline Analysis", version: 1, answers: ledger.all() }, null, 1); },
    onchange(f) { addEventListener("roofline-ledger", (event) => f(event.detail)); },
  };

  const download = (text, type, name) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    el("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };
  // What one lab leaves to the next: the chip
  const CARRIED = "roofline:carried";
  const carry = (setting) => stored((s) => s.setItem(CARRIED, JSON.stringify(setting)));
  const carried = () => {
    try { return JSON.parse(stored((s) => s.getItem(CARRIED))) ?? {}; } catch { return {}; }
  };

  // --- a setting in the page's address ---------------------------------------------------------

  const state = {
    read(key) {
      const start = `#${key}?`;
      return location.hash.startsWith(start)
        ? Object.fromEntries(new URLSearchParams(location.hash.slice(start.length))) : {};
    },
    write(key, setting) {
      if (!document.querySelector("meta[name=roofline-site]")) return;
      try { history.replaceState(history.state, "", `#${key}?${new URLSearchParams(setting)}`); } catch { /* no address to write */ }
    },
  };

  // --- fields ----------------------------------------------------------------------------------

  const field = ({ label, value = "", min, max, integer, unit = "", onvalue = () => {} }) => {
    const id = `f${++serial}`;
    const word = el("span", { id: `${id}e`, class: "bad" });
    const input = el("input", { id, type: "text", inputmode: integer ? "numeric" : "decimal", autocomplete: "off",
      spellcheck: "false", size: 9, value, "aria-describedby": `${id}e` });
    const read = () => parse(input.value, { min, max, integer, unit });
    const complain = (error) => {
      word.textContent = error || "";
      if (error) input.setAttribute("aria-invalid", "true"); else input.removeAttribute("aria-invalid");
    };
    input.addEventListener("input", () => {
      const got = read();
      complain(got.error);
      if (!got.error) onvalue(got.value);
    });
    const node = el("span", { class: "field" }, el("label", { for: id }, label),
      el("span", { class: "line" }, input, unit && el("span", { class: "unit" }, unit)), word);
    return {
      node, input, complain, read,
      value: () => read().value,
      set(v) { input.value = typeof v === "number" ? String(v) : v; complain(""); },
    };
  };

  const choose = ({ label, options, value, onvalue = () => {} }) => {
    const id = `f${++serial}`;
    const pairs = options.map((one) => (Array.isArray(one) ? one : [one, one]));
    const input = el("select", { id, onchange: () => onvalue(input.value) },
      pairs.map(([v, text]) => el("option", { value: v, selected: String(v) === String(value) }, String(text))));
    const node = el("span", { class: "field" }, el("label", { for: id }, label), input);
    return { node, input, value: () => input.value, set(v) { input.value = v; } };
  };

  // --- questions -------------------------------------------------------------------------------

  const bold = (text) => el("strong", {}, text);
  // One line of feedback. Its mark has a name for those who don't see it, unless the text says so
  const MARKS = { "✓": "Right:", "✗": "Wrong:", "?": "Hint:" };
  const line = (mark, name, text) => {
    const said = /^(Right|Not all)\b/.test(text) ? null : MARKS[mark];
    return el("p", { class: `line ${name}` },
      el("span", { class: "mark", role: said && "img", "aria-label": said, "aria-hidden": !said && "true" }, mark),
      el("span", {}, text));
  };
  const spoken = (node) => [...node.querySelectorAll(".line")]
    .map((one) => `${one.firstChild.getAttribute("aria-label") || ""} ${one.lastChild.textContent}`.trim()).join(" ");
  const within = (value, data) => (data.decades
    ? value > 0 && Math.abs(Math.log10(value / data.solution)) <= data.decades + 1e-12
    : Math.abs(value - data.solution) <= data.slack * (1 + 1e-12));

  // What a wrong number probably got wrong, by the list from Python's judge.py
  const slip = (value, { solution, decades, unit }) => {
    const ratio = value / solution;
    const measures = { ratio, product: value * solution, percent: unit === "%" ? ratio : NaN };
    const known = solution && !decades
      && judge.slips.find(([measure, low, high]) => low <= measures[measure] && measures[measure] <= high);
    return known ? known[3] : value > solution ? judge.large : judge.small;
  };

  // Each kind of question: its inputs, what stands in them, and what is said about it
  const choiceParts = (data, id) => {
    const boxes = data.options.map((option, i) =>
      el("input", { type: data.multi ? "checkbox" : "radio", name: id, id: `${id}-${i}`, value: i }));
    const rows = boxes.map((box, i) => el("label", { class: "option", for: box.id }, box, el("span", {}, data.options[i].text)));
    const chosen = () => boxes.flatMap((box, i) => (box.checked ? [i] : []));
    const names = (list) => list.map((i) => data.options[i].text).join("; ");
    const right = data.options.flatMap((option, i) => (option.right ? [i] : []));
    return {
      inputs: boxes,
      body: el("fieldset", {}, el("legend", {}, data.lead && bold(`${data.lead} `), data.question), rows),
      read: () => (chosen().length ? { value: chosen() } : { error: "Choose an answer first." }),
      write: (list) => {
        if (!Array.isArray(list) || !list.every((i) => boxes[i])) return false;
        boxes.forEach((box, i) => { box.checked = list.includes(i); });
        return true;
      },
      clear: () => boxes.forEach((box) => { box.checked = false; }),
      complain: () => {},
      given: names,
      answer: names(right),
      reasons: [...data.options].sort((a, b) => b.right - a.right).map((one) =>
        el("p", {}, one.right ? bold(`${one.text}. `) : `Not “${one.text}”: `, one.feedback)),
      judge: (list) => {
        const correct = list.length === right.length && list.every((i) => right.includes(i));
        const notes = list.map((i) => line(data.options[i].right ? "✓" : "✗", data.options[i].right ? "good" : "bad",
          data.multi ? [bold(data.options[i].text), ": ", data.options[i].feedback] : data.options[i].feedback));
        const missed = right.filter((i) => !list.includes(i));
        if (missed.length && list.length && notes.every((_, n) => data.options[list[n]].right))
          notes.push(line("✗", "bad", `Not all: ${missed.length} more belong${missed.length > 1 ? "" : "s"} here.`));
        return { correct, notes };
      },
    };
  };

  const numberParts = (data) => {
    const text = [data.lead && bold(`${data.lead} `), data.question];
    const one = field({ label: "", unit: data.unit, min: data.min, max: data.max, integer: data.integer });
    one.node.querySelector("label").append(...text.filter(Boolean));
    return {
      inputs: [one.input],
      body: one.node,
      read: one.read,
      write: (value) => { one.set(value); return !one.read().error; },
      clear: () => one.set(""),
      complain: one.complain,
      given: (value) => `${significant(value, 6)}${data.unit && ` ${data.unit}`}`.replace(" %", "%"),
      answer: data.answer,
      reasons: el("p", {}, bold(data.answer), data.why && `: ${data.why}`),
      judge: (value) => {
        const correct = within(value, data);
        const known = correct ? null : data.feedback.find(([low, high]) => value >= low && value <= high);
        const said = correct ? `Right: ${data.answer}.` : known ? known[2] : slip(value, data);
        return { correct, notes: [line(correct ? "✓" : "✗", correct ? "good" : "bad", said)] };
      },
    };
  };

  /* A question with its button, its feedback and its folded answer. Whatever the reader's answer, it is
     judged and kept in the ledger, and can be given again. */
  const question = (data, ui, onanswer = () => {}) => {
    const parts = data.type === "choice" ? choiceParts(data, `q${++serial}`) : numberParts(data);
    const feedback = el("div", { class: "feedback" });
    const word = el("p", { class: "bad", hidden: true });
    const fold = el("details", {}, el("summary", {}, "Show the answer"), parts.reasons);
    addEventListener("beforeprint", () => { fold.open = true; });
    const settle = (value, restored) => {
      const { correct, notes } = parts.judge(value);
      feedback.replaceChildren(...notes);
      if (data.hint && !correct) feedback.append(line("?", "plain", data.hint));
      if (!restored) ui.say(spoken(feedback));
      onanswer({ given: value, right: correct, restored });
      return correct;
    };
    const complain = (error) => {
      if (data.type !== "number") { word.textContent = error || ""; word.hidden = !error; }
      parts.complain(error);
      if (error) ui.say(error);
    };
    const act = () => {
      const { value, error } = parts.read();
      complain(error);
      if (error) {
        parts.inputs[0].focus();
        return;
      }
      ledger.set(data.key, { question: data.question, value, given: parts.given(value), right: settle(value, false), answer: parts.answer });
    };
    // No form: a frame with a sandbox, such as an output in Colab, sends none
    for (const input of parts.inputs) input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // or it presses the button that has the focus then
      act();
    });
    const node = el("div", { class: "question" }, parts.body, word,
      el("div", { class: "buttons" }, el("button", { type: "button", onclick: act }, "Check"), fold), feedback);

    const kept = data.value != null ? { value: data.value } : ledger.get(data.key);
    if (kept && parts.write(kept.value)) settle(kept.value, true);
    ledger.onchange((detail) => {
      if (!detail.reset) return;
      parts.clear();
      complain("");
      feedback.replaceChildren();
      onanswer(null);
    });
    return node;
  };

  // --- the element -----------------------------------------------------------------------------

  const style = (css) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    sheets.push(sheet);
  };
  style(STYLE);

  class Piece extends HTMLElement {
    connectedCallback() {
      if (this.shadowRoot) {
        if (this.look) { themed.add(this.look); this.look(theme()); }
        return;
      }
      const data = JSON.parse(this.dataset.json);
      const card = el("div", { class: "card" });
      const status = el("div", { class: "say", role: "status" });
      const listeners = [];
      const ui = {
        root: card,
        say: (text) => { status.textContent = text; },
        onTheme: (f) => { listeners.push(f); f(theme()); },
      };
      kinds[this.dataset.kind](this, data, ui);
      this.replaceChildren(); // what stands here without JavaScript
      const root = this.attachShadow({ mode: "open" });
      root.adoptedStyleSheets = sheets;
      root.append(card, status);
      this.look = (now) => { this.dataset.look = now; for (const f of listeners) f(now); };
      themed.add(this.look);
      this.look(theme());
      // The page around has shortcuts of its own; those with Ctrl or ⌘ stay
      this.addEventListener("keydown", (event) => {
        if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
      });
    }

    disconnectedCallback() { themed.delete(this.look); }
  }

  const start = (tags) => {
    // In a notebook each executed output brings the script along: the first one counts
    const missing = tags.filter((tag) => !customElements.get(tag));
    if (missing.length) watchTheme();
    for (const tag of missing) customElements.define(tag, class extends Piece {});
  };

  // --- the kinds that every chapter has --------------------------------------------------------

  // A page may cover what follows a question until it is answered
  kinds.question = (host, data, ui) => {
    ui.root.append(question(data, ui, (result) => { host.toggleAttribute("data-answered", !!result); }));
  };

  kinds.sheet = (host, data, ui) => {
    ui.root.append(el("ol", { class: "sheet" }, data.exercises.map((one, i) => el("li", {}, question({ ...one, lead: `${i + 1}.` }, ui)))));
  };

  kinds.ledger = (host, data, ui) => {
    const place = scrolls(el("div", { class: "scroll", role: "region", "aria-label": "Your answers" }));
    const text = el("textarea", { rows: 6, readonly: true, hidden: true, "aria-label": "Your answers as JSON" });
    const draw = () => {
      const rows = Object.values(ledger.all());
      // A setting is neither right nor wrong; the first answer counts
      const judged = rows.filter((row) => row.right != null);
      const later = judged.filter((row) => row.right && !row.firstRight).length;
      const score = `${judged.filter((row) => row.firstRight).length} of ${judged.length} right at once`;
      const verdict = (row) => (row.right == null ? "" : row.firstRight ? "✓ right" : row.right ? "✗, then ✓" : "✗ not yet");
      const names = ["Question", "You said first", "It is"];
      // Where there is no room for columns, each cell says whose it is
      const cell = (name, text, kind) => el("td", { "data-name": name, class: kind }, String(text));
      place.replaceChildren(rows.length
        ? el("table", { class: "answers" },
          el("caption", {}, judged.length > 0 && score + (later ? `, ${later} later` : "")),
          el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)), el("td"))),
          el("tbody", {}, rows.map((row) => el("tr", {}, [row.question, row.first, row.answer].map((text, i) => cell(names[i], text)),
            cell("", verdict(row), row.firstRight ? "good" : "bad")))))
        : el("p", {}, "Nothing answered yet. Answers stay in this browser and go nowhere else."));
      text.hidden = true;
    };
    const save = () => {
      text.value = ledger.export();
      text.hidden = false;
      download(text.value, "application/json", "roofline-answers.json");
      ui.say("Your answers as JSON: saved as a file where the page may, and shown below the table.");
    };
    const forget = el("button", { type: "button", class: "quiet", onclick: () => {
      if (forget.dataset.sure) { ledger.reset(); ui.say("All answers are forgotten."); }
      forget.dataset.sure = forget.dataset.sure ? "" : "yes";
      forget.textContent = forget.dataset.sure ? "Really forget all answers?" : "Forget all answers";
    } }, "Forget all answers");
    ui.root.append(place, el("p", { class: "buttons" }, el("button", { type: "button", onclick: save }, "Export"), forget), text);
    ledger.onchange(draw);
    draw();
  };

  return {
    define: (kind, build) => { kinds[kind] = build; },
    start, el, svg, scrolls, si, significant, parse, field, choose, question, ledger, carry, carried, save: download, state, theme, style,
  };
})();
