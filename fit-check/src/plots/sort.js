// A click on a heading sorts by it: numbers from the most, names from A; again turns it round.
for (const table of document.querySelectorAll("table.layers")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const number = "value" in table.tBodies[0].rows[0].cells[column].dataset;
    const turned = head.ariaSort === (number ? "descending" : "ascending");
    const down = number !== turned;
    const rows = [...table.tBodies[0].rows].sort((a, b) =>
      (number ? key(a) - key(b) : key(a).localeCompare(key(b), "en", { numeric: true })) * (down ? -1 : 1));
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.tBodies[0].append(...rows);
  }));
}
