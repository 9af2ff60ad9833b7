// The search page. window.searchIndex is [[address, page, section, text], ...], made by the build.
(() => {
  const asked = new URLSearchParams(location.search).get("q")?.trim() ?? "";
  const status = document.getElementById("found");
  const results = document.getElementById("results");
  document.querySelector("form.search input").value = asked;
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length || !window.searchIndex) return;

  const found = [];
  for (const [address, page, section, text] of window.searchIndex) {
    const body = text.toLowerCase();
    const title = `${page} ${section}`.toLowerCase();
    let score = 0;
    const all = words.every((word) => {
      const hits = body.split(word).length - 1;
      const named = title.includes(word);
      score += (named ? 20 : 0) + Math.min(hits, 8) + (hits ? 2 : 0);
      return hits || named;
    });
    if (!all) continue;
    if (body.includes(asked.toLowerCase())) score += 25;
    // The package's reference has every word: the chapters explain them
    found.push([address.startsWith("book/api") ? score / 4 : score, address, page, section, text]);
  }
  found.sort((a, b) => b[0] - a[0]);

  const excerpt = (text) => {
    const lower = text.toLowerCase();
    const at = words.map((word) => lower.indexOf(word)).filter((place) => place >= 0);
    const start = Math.max(0, Math.min(...(at.length ? at : [0])) - 60);
    const line = document.createElement("p");
    const piece = (start ? "… " : "") + text.slice(start, start + 220) + (text.length > start + 220 ? " …" : "");
    const pattern = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
    piece.split(pattern).forEach((part, i) => {
      if (i % 2) line.append(Object.assign(document.createElement("mark"), { textContent: part }));
      else line.append(part);
    });
    return line;
  };
  for (const [, address, page, section, text] of found.slice(0, 30)) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = address;
    link.textContent = section && section !== page ? `${page}: ${section}` : page;
    item.append(link, excerpt(text));
    results.append(item);
  }
  const more = found.length > 30 ? ", the best 30 of them here" : "";
  status.textContent = `${found.length} ${found.length === 1 ? "section has" : "sections have"} “${asked}”${more}.`;
  document.title = `${asked} · Search`;
})();
