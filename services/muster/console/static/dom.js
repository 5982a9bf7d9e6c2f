// Builds elements. Strings become text nodes, never markup, so names in the cluster cannot become part of the page.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
}

// A cell may be text, an element, or an array of both. Text and links are compared, so that unchanged cells, and the
// keyboard's focus in them, stay.
export class Table {
  constructor(columns, label) {
    this.columns = columns;
    this.rows = new Map();
    this.body = h("tbody");
    const heads = columns.map((column) => h("th", { scope: "col", class: column.class ?? "" }, column.title));
    this.element = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, heads)), this.body);
  }

  // `items`: {key, cells, class}, in order; a cell is a string or {text, href, since}.
  update(items) {
    const keys = new Set(items.map((item) => item.key));
    for (const [key, row] of this.rows) {
      if (!keys.has(key)) {
        row.element.remove();
        this.rows.delete(key);
      }
    }
    let before = this.body.firstChild;
    for (const item of items) {
      let row = this.rows.get(item.key);
      if (row === undefined) {
        row = { element: h("tr"), cells: [] };
        row.element.append(...this.columns.map((column) => h("td", { "data-label": column.title, class: column.class ?? "" })));
        this.rows.set(item.key, row);
      }
      if (row.element.className !== (item.class ?? "")) row.element.className = item.class ?? "";
      item.cells.forEach((cell, at) => {
        const signature = JSON.stringify(cell);
        if (row.cells[at] !== signature) {
          row.cells[at] = signature;
          fill(row.element.children[at], content(cell));
        }
      });
      if (row.element === before) before = before.nextSibling;
      else this.body.insertBefore(row.element, before);
    }
  }
}

export function content(cell) {
  if (cell === null || cell === undefined) return "";
  if (typeof cell !== "object") return String(cell);
  if (cell.since !== undefined) return cell.since ? age(cell.since) : "";
  if (cell.href !== undefined) return h("a", { href: cell.href }, cell.text);
  return h("span", { class: cell.class ?? "" }, cell.text);
}

// Time since then, in words; app.js keeps it current.
export function age(seconds) {
  const element = h("time", { "data-since": seconds });
  element.textContent = ago(seconds);
  return element;
}

export function ago(seconds) {
  return duration(Math.max(0, Date.now() / 1000 - seconds));
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}
