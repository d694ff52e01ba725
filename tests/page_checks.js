// What a page must hold to, checked in the page itself: returns the list of what is wrong.
(function () {
  const wrong = [];
  const all = function (selector) { return Array.from(document.querySelectorAll(selector)); };
  const told = function (element) { return element.outerHTML.slice(0, 120); };

  if (document.documentElement.lang !== "en") wrong.push("no language");
  if (!document.title.trim()) wrong.push("no title");
  if (all("h1").length !== 1) wrong.push("not one h1");
  let level = 1;
  all("h1,h2,h3,h4").forEach(function (heading) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) wrong.push("a heading skips a level: " + told(heading));
    level = next;
  });
  ["header", "main", "footer"].forEach(function (name) {
    if (all(name).length !== 1) wrong.push("not one " + name);
  });
  const ids = all("[id]").map(function (element) { return element.id; });
  if (new Set(ids).size !== ids.length) wrong.push("an id stands twice");
  all("[aria-labelledby],[aria-describedby]").forEach(function (element) {
    const of = element.getAttribute("aria-labelledby") || element.getAttribute("aria-describedby");
    if (!document.getElementById(of)) wrong.push("labelled by what is not there: " + told(element));
  });
  all("a[href^='#']").forEach(function (link) {
    if (!document.getElementById(link.getAttribute("href").slice(1))) wrong.push("a dead link: " + told(link));
  });
  all("table").forEach(function (table) {
    if (!table.caption || !table.caption.textContent.trim()) wrong.push("no caption: " + told(table));
    Array.from(table.tHead.rows[0].cells).forEach(function (cell) {
      if (cell.tagName !== "TH" || cell.scope !== "col") wrong.push("no column scope: " + told(cell));
    });
    Array.from(table.tBodies[0].rows).forEach(function (row) {
      if (row.cells[0].tagName !== "TH" || row.cells[0].scope !== "row") wrong.push("no row scope: " + told(row));
      if (row.cells.length !== table.tHead.rows[0].cells.length) wrong.push("a ragged row: " + told(row));
    });
  });
  all("svg:not([aria-hidden])").forEach(function (image) {
    if (image.getAttribute("role") !== "img" || (image.getAttribute("aria-label") || "").length < 20) {
      wrong.push("no alt text: " + told(image));
    }
  });
  all("input").forEach(function (input) {
    if (!input.labels || !input.labels.length) wrong.push("no label: " + told(input));
  });
  all(".scroll").forEach(function (box) {
    if (box.tabIndex !== 0) wrong.push("cannot be scrolled by keys: " + told(box));
  });
  all("button,input,summary").forEach(function (control) {
    const box = control.getBoundingClientRect();
    if (box.height > 0 && box.height < 24 && control.tagName !== "SUMMARY") wrong.push("a small target: " + told(control));
  });
  all(":not(svg):is(.good,.bad,.open)").forEach(function (word) {
    const said = word.parentElement.tagName === "LI" ? word.parentElement : word;  // of a list the sign alone has colour
    if (!/^[✓✗○]\s\S/.test(said.textContent)) wrong.push("told by colour alone: " + told(word));
  });
  const width = document.documentElement;
  if (width.scrollWidth > width.clientWidth + 1) wrong.push("the page scrolls sideways: " + width.scrollWidth);

  function channel(value) {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : Math.pow((share + 0.055) / 1.055, 2.4);
  }
  function parsed(colour) { return colour.match(/[\d.]+/g).map(Number); }
  function luminance(rgb) { return 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]); }
  function behind(element) {
    for (let at = element; at; at = at.parentElement) {
      const rgb = parsed(getComputedStyle(at).backgroundColor);
      if (rgb.length < 4 || rgb[3] > 0) return rgb;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  }
  const seen = new Set();
  all("body *").forEach(function (element) {
    const own = Array.from(element.childNodes).some(function (n) { return n.nodeType === 3 && n.data.trim(); });
    if (!own || ["SCRIPT", "STYLE"].includes(element.tagName.toUpperCase())) return;
    const style = getComputedStyle(element);
    const colours = [luminance(parsed(element.closest("svg") ? style.fill : style.color)), luminance(behind(element))];
    const ratio = (Math.max(...colours) + 0.05) / (Math.min(...colours) + 0.05);
    const what = element.tagName + "." + element.className + " " + ratio.toFixed(2);
    if (ratio < 4.5 && !seen.has(what)) { seen.add(what); wrong.push("little contrast: " + what + " " + told(element)); }
  });
  return wrong;
})()
