// Arrow keys turn slides; text that is taller than its slide gets smaller, and so does a picture's caption.
const slides = [...document.querySelectorAll(".slide")];
const fit = () => { for (const one of slides) {
  const tall = () => one.scrollHeight > one.clientHeight || (one.querySelector("img")?.clientHeight ?? 1e4) < one.clientHeight / 3;
  for (let size = 100; size > 35; size -= 5) {
    one.style.fontSize = `${0.0144 * size}rem`;
    if (!tall()) break;
  }
} };
const by = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
addEventListener("keydown", (event) => {
  const here = slides.findIndex((one) => one.getBoundingClientRect().bottom > innerHeight / 2);
  const next = { Home: 0, End: slides.length - 1 }[event.key] ?? (by[event.key] ? here + by[event.key] : NaN);
  if (Number.isNaN(next) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  slides[Math.max(0, Math.min(next, slides.length - 1))].scrollIntoView({ behavior: "instant" });
});
addEventListener("load", fit);
addEventListener("resize", fit);
