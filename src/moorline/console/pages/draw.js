// Elements, tables and figures. Text from the network only ever becomes a text node: there is no markup made
// of strings anywhere in this page.

const SVG = "http://www.w3.org/2000/svg";
// Controls and marks of direction, which could make a name look like another one.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** An element: attributes (functions listen), then children: elements, texts, or lists of them. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  put(made, children);
  return made;
}

export function put(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : shown(child));
  }
}

export function replace(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.key : "";
  parent.replaceChildren();
  put(parent, children);
  if (focused) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

/** A text as it may be shown. */
export function shown(value) {
  return String(value).replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A table; a column is {title, value(row), isNumber, isName}, and what `value` gives is a text or elements. */
export function table(caption, columns, rows, empty = "none") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const classes = (column) => [column.isNumber && "number", column.isName && "name"].filter(Boolean).join(" ") || null;
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: classes(one) }, one.title)))),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, columns.map((one) => h("td", { class: classes(one) }, one.value(row))))),
      ),
    ),
  );
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, text);
}

export function button(text, act, attributes = {}) {
  return h("button", { type: "button", "data-key": text, click: act, ...attributes }, text);
}

/** A line over time: points are numbers, the newest is the last. */
export function chart(title, points, label) {
  const [width, height] = [300, 72];
  const most = Math.max(1, ...points);
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", `0 0 ${width} ${height}`);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", `${title}: ${label}`);
  const line = document.createElementNS(SVG, "polyline");
  const step = width / Math.max(1, points.length - 1);
  line.setAttribute(
    "points",
    points.map((point, at) => `${(at * step).toFixed(1)},${(height - 2 - (point / most) * (height - 6)).toFixed(1)}`).join(" "),
  );
  made.append(line);
  return h("figure", { class: "chart" }, h("figcaption", {}, h("span", {}, title), h("strong", {}, label)), made);
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export function count(value) {
  return whole.format(value);
}

export function rate(value) {
  return `${value >= 100 ? whole.format(value) : fine.format(value)}/s`;
}

export function bytes(value) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${fine.format(value / size)} ${unit}`;
  }
  return `${value} B`;
}

export function span(ms) {
  for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000]]) {
    if (ms >= 2 * size) return `${Math.floor(ms / size)} ${unit}`;
  }
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${fine.format(ms / 1_000)} s`;
}

export function moment(us) {
  return us ? new Date(us / 1_000).toISOString().replace("T", " ").slice(0, 19) : "–";
}
