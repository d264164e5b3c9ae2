// Tables: sorted by a click on a column's head; rows beyond the first are shown on request.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th").forEach((head, column) => head.addEventListener("click", () => {
    const value = row => { const cell = row.cells[column]; return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v); };
    const sign = head.dataset.down ? 1 : -1;
    table.querySelectorAll("th").forEach(other => delete other.dataset.down);
    if (sign < 0) head.dataset.down = "1";
    [...body.rows].sort((a, b) => { const x = value(a), y = value(b); return sign * (x < y ? -1 : x > y ? 1 : 0); })
      .forEach(row => body.append(row));
  }));
  if (table.querySelector("tr.more")) {
    const button = document.createElement("button");
    button.textContent = "show all rows";
    button.addEventListener("click", () => { table.classList.add("all"); button.remove(); });
    table.after(button);
  }
}
document.body.dataset.ready = "true";
