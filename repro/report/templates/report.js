"use strict";
// Tables can be sorted by a column and filtered by words, and all sections opened at once. Without this script all rows
// stand in the order in which they were measured.
(function () {
  function value(row, at) {
    const cell = row.cells[at];
    const number = cell.getAttribute("data-sort");
    return number === null ? cell.textContent.trim() : parseFloat(number);
  }

  function compare(a, b) {
    const numbers = (typeof a === "number") + (typeof b === "number");
    if (numbers === 2) return a - b;
    if (numbers === 1) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, "en", { numeric: true });
  }

  function sort(table, heads, at) {
    const ascending = heads[at].getAttribute("aria-sort") !== "ascending";
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    rows.sort(function (one, other) {
      const found = compare(value(one, at), value(other, at));
      return ascending ? found : -found;
    });
    rows.forEach(function (row) { body.appendChild(row); });
    heads.forEach(function (head) { head.removeAttribute("aria-sort"); });
    heads[at].setAttribute("aria-sort", ascending ? "ascending" : "descending");
  }

  function sortable(table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, at) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.firstChild.textContent;
      button.addEventListener("click", function () { sort(table, heads, at); });
      head.replaceChild(button, head.firstChild);
    });
  }

  function narrow(table, words, told) {
    const rows = Array.from(table.tBodies[0].rows);
    let shown = 0;
    rows.forEach(function (row) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(function (word) { return text.includes(word); });
      shown += row.hidden ? 0 : 1;
    });
    told.textContent = shown + " of " + rows.length + " rows";
  }

  function filterable(table) {
    const bar = document.createElement("div");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const told = document.createElement("output");
    bar.className = "tools";
    input.type = "search";
    input.id = table.id + "-filter";
    label.htmlFor = input.id;
    label.textContent = "Rows with";
    input.setAttribute("aria-describedby", table.caption.id);
    told.setAttribute("for", input.id);
    input.addEventListener("input", function () {
      narrow(table, input.value.toLowerCase().split(/\s+/).filter(Boolean), told);
    });
    bar.append(label, input, told);
    table.closest(".table").prepend(bar);
  }

  document.querySelectorAll("table").forEach(function (table) {
    if (table.tBodies[0].rows.length > 1) sortable(table);
    if (table.tBodies[0].rows.length > 6 && table.id !== "summary-table") filterable(table);
  });

  const sections = Array.from(document.querySelectorAll("details.section"));
  const all = document.createElement("button");
  all.type = "button";
  all.textContent = "Open all sections";
  all.addEventListener("click", function () {
    const open = !sections.every(function (section) { return section.open; });
    sections.forEach(function (section) { section.open = open; });
    all.textContent = open ? "Close all sections" : "Open all sections";
  });
  if (sections.length) sections[0].before(all);

  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  }

  addEventListener("hashchange", reveal);
  reveal();
})();
