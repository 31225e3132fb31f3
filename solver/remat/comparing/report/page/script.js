"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const order = (a, b) => {
      const x = value(a), y = value(b), p = parseFloat(x), q = parseFloat(y);
      if (x === "" || y === "") return (x === "") - (y === "");          // what is missing stays at the end
      const less = Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y, "en", {numeric: true}) : p - q;
      return down ? -less : less;
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(order));
  }));
}
for (const box of document.querySelectorAll("input[type=search]")) {
  const rows = [...document.getElementById(box.dataset.table).tBodies[0].rows];
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  });
}
