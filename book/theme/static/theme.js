// Before the first paint: "Predict first" (site.js), and the colours that the reader chose here, or none,
// then the system decides.
// `data-theme` is always "light" or "dark" once this has run; figures and labs look at it.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let mode = "auto";
  try {
    mode = localStorage.getItem("mode") || "auto";
    root.classList.toggle("predict-first", localStorage.getItem("predict-first") === "on");
  } catch { /* storage is refused: the system decides */ }
  const apply = () => {
    root.dataset.mode = mode;
    root.dataset.theme = mode === "light" || mode === "dark" ? mode : dark.matches ? "dark" : "light";
    // A figure's dark version is asked for by a media query: a choice against the system replaces it
    for (const source of document.querySelectorAll("picture > source[data-dark]")) {
      source.media = mode === "dark" ? "all" : mode === "light" ? "not all" : "(prefers-color-scheme: dark)";
    }
  };
  root.classList.add("js");
  if (location.protocol !== "file:") { // from a folder a browser refuses to, and complains
    const font = Object.assign(document.createElement("link"), { rel: "preload", as: "font", type: "font/woff2", crossOrigin: "" });
    font.href = new URL("book-serif-normal.woff2", document.currentScript.src);
    document.head.append(font);
  }
  root.addEventListener("roofline:mode", (event) => {
    mode = event.detail;
    try {
      localStorage.setItem("mode", mode);
    } catch { /* it holds for this page */ }
    apply();
  });
  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", apply);
})();
