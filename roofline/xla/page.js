// A table sorts by the column whose head is pressed: numbers from large to small at first.
for (const table of document.querySelectorAll(".explained table.rows")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const number = head.classList.contains("number");
      const down = head.getAttribute("aria-sort") !== "descending" && number
        || head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        const text = cell.dataset.value ?? cell.textContent;
        return number ? (text === "" ? -Infinity : Number(text)) : text;
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [left, right] = [key(a), key(b)];
        const order = number ? left - right : left.localeCompare(right);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
