// The search page: MiniSearch over window.searchIndex, [[address, page, section, text], ...]. The build
// writes it, with Sphinx's stemmer and stop words.
(() => {
  const asked = new URLSearchParams(location.search).get("q")?.trim() ?? "";
  document.querySelector("form.search input").value = asked;
  if (!asked || !window.searchIndex) return;

  const stemmer = new Stemmer();
  const stops = new Set(window.searchStops);
  const stem = (word) => !stops.has(word.toLowerCase()) && stemmer.stemWord(word.toLowerCase());
  // Where somebody looks first: what explains a word, the figures of a chip, then the chapters. The
  // package's reference has every word
  const weights = [["book/glossary", 2.5], ["book/chips", 1.5], ["book/install", 2], ["book/api", 0.3], ["book/bibliography", 0.3], ["notebooks/", 1.4]];
  const weight = (address) => weights.find(([start]) => address.startsWith(start))?.[1] ?? 1;
  const engine = new MiniSearch({ idField: "0", fields: ["1", "2", "3"], storeFields: ["0", "1", "2", "3"], processTerm: stem });
  engine.addAll(window.searchIndex);
  const found = engine.search(asked, {
    boost: { 1: 2, 2: 4 },
    boostDocument: weight,
    fuzzy: (term) => term.length > 4 && 0.2, // color finds colour
    prefix: (term) => term.length > 4,
  });

  const excerpt = (text, terms) => {
    const line = document.createElement("p");
    const words = text.split(/([\p{L}\p{N}]+)/u);
    const hit = words.map((word, i) => i % 2 && terms.includes(stem(word)));
    const start = Math.max(0, hit.indexOf(true) - 20);
    if (start) line.append("… ");
    for (let i = start; i < start + 80 && i < words.length; i++) {
      line.append(hit[i] ? Object.assign(document.createElement("mark"), { textContent: words[i] }) : words[i]);
    }
    if (start + 80 < words.length) line.append(" …");
    return line;
  };
  for (const { 0: address, 1: page, 2: section, 3: text, terms } of found.slice(0, 30)) {
    const item = document.createElement("li");
    const link = Object.assign(document.createElement("a"), { href: address });
    link.textContent = section && section !== page ? `${page}: ${section}` : page;
    item.append(link, excerpt(text, terms));
    document.getElementById("results").append(item);
  }
  const more = found.length > 30 ? ", the best 30 of them here" : "";
  document.getElementById("found").textContent = `${found.length} ${found.length === 1 ? "section has" : "sections have"} words of “${asked}”${more}.`;
  document.title = `${asked} · Search`;
})();
