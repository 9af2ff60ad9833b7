// What a page does beyond reading. Everything works without it, except choosing colours, rows of a long
// table, and copying.
(() => {
  const root = document.documentElement;

  // Colours: as the system, light, dark, and round again
  const button = document.querySelector("button.theme");
  const modes = { auto: "as the system", light: "light", dark: "dark" };
  const say = () => button.setAttribute("aria-label", `Colours: ${modes[root.dataset.mode] ?? modes.auto}`);
  button.addEventListener("click", () => {
    const names = Object.keys(modes);
    const next = names[(names.indexOf(root.dataset.mode) + 1) % names.length];
    root.dispatchEvent(new CustomEvent("roofline:mode", { detail: next }));
    say();
  });
  say();

  // Predict first: what follows a question is covered until it is answered
  const predict = document.querySelector("button.predict");
  if (predict) {
    // The first question offers it in words, too
    const offer = document.createElement("p");
    const word = document.createElement("button");
    offer.className = "offer";
    word.type = "button";
    offer.append("", word, "");
    document.querySelector("article [data-kind=question]")?.before(offer);
    const tell = () => {
      const on = root.classList.contains("predict-first");
      predict.setAttribute("aria-pressed", String(on));
      word.textContent = on ? "Show everything" : "Predict first";
      const words = on
        ? ["What follows a question is covered until you answer it. ", "."]
        : ["Answer before you see the result? ", " covers what follows each question until you have answered it."];
      [offer.firstChild.data, offer.lastChild.data] = words;
    };
    for (const button of [predict, word]) {
      button.addEventListener("click", () => {
        const on = root.classList.toggle("predict-first");
        try {
          localStorage.setItem("predict-first", on ? "on" : "off");
        } catch { /* it holds for this page */ }
        tell();
      });
    }
    tell();
    const covered = [];
    let question = null;
    for (const one of document.querySelectorAll("article :is([data-kind=question], .then, .tag_after-answer)")) {
      if (one.matches("[data-kind]")) question = one;
      else if (question) {
        const host = question;
        const show = document.createElement("button");
        show.type = "button";
        show.textContent = "show it";
        show.addEventListener("click", () => host.setAttribute("data-answered", ""));
        const line = document.createElement("p");
        line.className = "cover";
        line.append("Answer the question above, or ", show, ".");
        one.prepend(line);
        covered.push([host, one]);
      }
    }
    const cover = () => {
      for (const [host, one] of covered) one.classList.toggle("covered", !host.hasAttribute("data-answered"));
    };
    new MutationObserver(cover).observe(document.querySelector("article"), { subtree: true, attributeFilter: ["data-answered"] });
    cover();
  }

  // "/" goes to the search field
  const field = document.querySelector("form.search input");
  addEventListener("keydown", (event) => {
    const typing = event.composedPath()[0].closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
    }
  });

  // A chosen section closes its list on a narrow page
  for (const list of document.querySelectorAll("nav[popover]")) {
    list.addEventListener("click", (event) => {
      if (event.target.closest("a") && list.matches(":popover-open")) list.hidePopover();
    });
  }

  // The list of chapters shows the page that is read
  const chapters = document.getElementById("contents");
  const here = chapters.querySelector("[aria-current]");
  const center = () => here && (chapters.scrollTop = here.offsetTop - chapters.clientHeight / 2);
  chapters.addEventListener("toggle", center);
  center();

  // Chapters that were read to their end: kept in this browser alone, until the reader clears them
  const all = [...chapters.querySelectorAll("a[data-chapter]")];
  let read = new Set();
  try {
    read = new Set(JSON.parse(localStorage.getItem("read") ?? "[]"));
  } catch { /* nothing is kept */ }
  const progress = document.createElement("p");
  const forget = Object.assign(document.createElement("button"), { type: "button", textContent: "Forget it" });
  progress.className = "progress";
  progress.append("", forget);
  chapters.prepend(progress);
  const keep = () => {
    for (const link of all) link.classList.toggle("read", read.has(link.dataset.chapter));
    progress.hidden = !read.size;
    progress.firstChild.data = `You have read ${read.size} of ${all.length} chapters. `;
    try {
      if (read.size) localStorage.setItem("read", JSON.stringify([...read]));
      else localStorage.removeItem("read");
    } catch { /* it holds for this page */ }
  };
  forget.addEventListener("click", () => {
    read.clear();
    keep();
  });
  const end = document.querySelector("nav.onwards");
  if (here?.dataset.chapter && end) {
    new IntersectionObserver((entries) => {
      if (!entries.some((one) => one.isIntersecting)) return;
      read.add(here.dataset.chapter);
      keep();
    }).observe(end);
  }
  keep();

  // The section being read
  const links = new Map();
  for (const link of document.querySelectorAll("nav.sections a")) {
    const section = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (section) links.set(section, link);
  }
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const one of entries) seen[one.isIntersecting ? "add" : "delete"](one.target);
    let first = true;
    for (const [section, link] of links) {
      if (seen.has(section) && first) {
        link.setAttribute("aria-current", "true");
        first = false;
      } else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-80px 0px -60% 0px" });
  for (const section of links.keys()) observer.observe(section);

  // Copy buttons on code that a reader may want to run
  if (navigator.clipboard) {
    for (const block of document.querySelectorAll("article .cell_input .highlight, article .highlight-python .highlight, article .highlight-bibtex .highlight")) {
      if (block.querySelector("button")) continue;
      const copy = document.createElement("button");
      copy.type = "button";
      copy.className = "copy";
      copy.textContent = "Copy";
      copy.addEventListener("click", async () => {
        await navigator.clipboard.writeText(block.querySelector("pre").textContent);
        copy.textContent = "Copied";
        setTimeout(() => (copy.textContent = "Copy"), 2000);
      });
      block.append(copy);
    }
  }

  // A picture that the page shrinks opens large
  const pictures = document.querySelectorAll("article picture img:not([data-kind] *)");
  const large = document.createElement("dialog");
  large.className = "viewer";
  large.setAttribute("aria-label", "The picture, large");
  large.innerHTML = '<button type="button">Close</button><div tabindex="0" role="group" aria-label="Picture, scrolls"></div>';
  large.firstChild.addEventListener("click", () => large.close());
  document.body.append(large);
  const enlarge = [...pictures].map((image) => {
    const open = document.createElement("button");
    open.type = "button";
    open.className = "enlarge";
    open.textContent = "Enlarge";
    open.addEventListener("click", () => {
      large.lastChild.replaceChildren(image.closest("picture").cloneNode(true));
      large.showModal();
    });
    image.addEventListener("click", () => open.hidden || open.click());
    image.closest("picture").after(open);
    return open;
  });

  // What scrolls inside itself can be reached and scrolled by keyboard
  const scrollers = document.querySelectorAll("article .scroll, article pre, article .math-block, article .text_html");
  const mark = () => {
    const wide = [...scrollers].map((one) => one.scrollWidth > one.clientWidth + 1);
    pictures.forEach((one, i) => (enlarge[i].hidden = one.clientWidth >= Number(one.getAttribute("width"))));
    scrollers.forEach((one, i) => {
      if (wide[i] === one.hasAttribute("tabindex")) return;
      if (wide[i]) {
        one.tabIndex = 0;
        one.setAttribute("role", "group");
        one.setAttribute("aria-label", one.querySelector("table") ? "Table, scrolls sideways" : one.querySelector("math") ? "Formula, scrolls sideways" : "Code, scrolls sideways");
      } else for (const name of ["tabindex", "role", "aria-label"]) one.removeAttribute(name);
    });
  };
  let waiting = 0;
  const later = () => {
    waiting ||= requestAnimationFrame(() => { waiting = 0; mark(); });
  };
  addEventListener("resize", later);
  document.addEventListener("toggle", later, true);
  mark();

  // A long table: only the rows of a kind, in the order of a column of numbers
  for (const table of document.querySelectorAll("article .choosable table")) {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    const rows = [...table.tBodies[0].rows];
    const text = (row, column) => row.cells[column].textContent.trim();
    const size = (row, column) => Math.abs(Number.parseFloat(text(row, column).replace("\u2212", "-")));
    const bar = document.createElement("form");
    const shown = document.createElement("output");
    bar.className = "choices";
    const choice = (name, options) => {
      const label = document.createElement("label");
      const select = document.createElement("select");
      select.autocomplete = "off";
      for (const [value, words] of options) select.add(new Option(words, value));
      label.append(name, select);
      bar.append(label);
      return select;
    };
    const wanted = new Map();
    const numbers = [];
    names.forEach((name, column) => {
      const values = [...new Set(rows.map((row) => text(row, column)))];
      const counts = table.tHead.rows[0].cells[column].classList.contains("text-right");
      if (counts) numbers.push([column, name.replace(/,? (%|s)$/, "")]);
      else if (values.length > 1 && values.length <= rows.length / 3) {
        wanted.set(column, choice(name, [["", "all"], ...values.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).map((value) => [value, value])]));
      }
    });
    const order = choice("largest first", [["", "as listed"], ...numbers]);
    const show = () => {
      for (const row of rows) {
        row.hidden = [...wanted].some(([column, select]) => select.value && select.value !== text(row, column));
      }
      const by = Number(order.value);
      const sorted = order.value ? rows.toSorted((a, b) => size(b, by) - size(a, by)) : rows;
      table.tBodies[0].append(...sorted);
      shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
    };
    bar.addEventListener("change", show);
    bar.addEventListener("submit", (event) => event.preventDefault());
    bar.append(shown);
    table.closest(".scroll").before(bar);
    show();
  }

  // On paper nothing is folded
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("article details")) {
      one.removeAttribute("name"); // of several with one name only one can be open
      one.open = true;
    }
  });
})();
