// The search page: MiniSearch over window.searchIndex, [[address, page, section, text, first sentence,
// asked], ...]. The build writes it, with Sphinx's stemmer and stop words; `asked` has what readers call a
// section, phrases of book/synonyms.toml.
(() => {
  const field = document.querySelector("form.search input");
  const list = document.getElementById("results");
  const line = document.getElementById("found");
  if (!window.searchIndex) return;

  const stemmer = new Stemmer();
  const stops = new Set(window.searchStops);
  const stem = (word) => !stops.has(word.toLowerCase()) && stemmer.stemWord(word.toLowerCase());
  const stems = (text) => text.split(/[^\p{L}\p{N}]+/u).filter(Boolean).map(stem).filter(Boolean);
  // Where somebody looks first: what explains a word, the figures of a chip, then the chapters. The
  // package's reference has every word
  const weights = [["book/glossary", 2.5], ["book/chips", 1.5], ["book/install", 2], ["book/api", 0.3], ["book/bibliography", 0.3], ["notebooks/", 1.4]];
  const weight = (address) => weights.find(([start]) => address.startsWith(start))?.[1] ?? 1;
  const engine = new MiniSearch({
    idField: "0",
    fields: ["1", "2", "3", "5"],
    storeFields: ["0", "1", "2", "3", "4", "5"],
    extractField: (row, name) => (name === "5" ? row[5].join("\n") : row[name]),
    processTerm: stem,
  });
  engine.addAll(window.searchIndex);

  // A section whose heading, or a name that readers give it, is what was asked comes before those in
  // whose text the words stand, and one with all of the words before those with some
  const find = (asked) => {
    const words = new Set(stems(asked));
    const share = (text) => {
      const own = new Set(stems(text));
      const both = [...own].filter((word) => words.has(word)).length;
      return own.size && both / Math.max(own.size, words.size);
    };
    const rank = (one) => {
      const named = Math.max(...[one[2], ...one[5]].map(share));
      const told = new Set(one.queryTerms).size / words.size;
      return one.score * told * (1 + 6 * named ** 2);
    };
    return engine
      .search(asked, {
        boost: { 1: 2, 2: 4, 5: 6 },
        boostDocument: weight,
        fuzzy: (term) => term.length > 4 && 0.2, // color finds colour
        prefix: (term) => term.length > 4,
      })
      .map((one) => [rank(one), one])
      .sort(([a], [b]) => b - a)
      .map(([, one]) => one);
  };

  // A section begins with its first sentence; then come the words that were found, where they stand
  const excerpt = (first, text, terms) => {
    const said = document.createElement("p");
    const split = (part) => part.split(/([\p{L}\p{N}]+)/u);
    const isHit = (word, i) => i % 2 && terms.includes(stem(word));
    const show = (words) => {
      for (const [i, word] of words.entries()) {
        said.append(isHit(word, i) ? Object.assign(document.createElement("mark"), { textContent: word }) : word);
      }
    };
    show(split(first));
    const rest = split(text.replace(first, " … "));
    const hit = rest.findIndex(isHit);
    if (hit > 0) {
      const start = Math.max(0, hit - 21); // odd ones are words
      said.append(" … ");
      show(rest.slice(start, start + 60));
    }
    said.append(" …");
    return said;
  };

  const show = () => {
    const asked = field.value.trim();
    const found = asked ? find(asked) : [];
    const items = found.slice(0, 30).map(({ 0: address, 1: page, 2: section, 3: text, 4: first, terms }) => {
      const item = document.createElement("li");
      const link = Object.assign(document.createElement("a"), { href: address });
      link.textContent = section && section !== page ? `${page}: ${section}` : page;
      item.append(link, excerpt(first, text, terms));
      return item;
    });
    list.replaceChildren(...items);
    const more = found.length > 30 ? ", the best 30 of them here" : "";
    line.textContent = asked
      ? `${found.length} ${found.length === 1 ? "section has" : "sections have"} words of “${asked}”${more}.`
      : "Type what you look for into the field above.";
    document.title = asked ? `${asked} · Search` : "Search";
  };
  field.value = new URLSearchParams(location.search).get("q") ?? "";
  field.addEventListener("input", show);
  show();
})();
