// Elements, tables and figures. Text from the network only ever becomes a text node: there is no markup made
// of strings anywhere in this page.

const SVG = "http://www.w3.org/2000/svg";
// Controls and marks of direction, which could make a name look like another one.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** An element: attributes (functions listen), then children: elements, texts, or lists of them. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    // As a property, so that an element that is drawn anew can take it over.
    if (typeof value === "function") (made.heard ??= {})[name] = made[`on${name}`] = value;
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

/** What `parent` has becomes those children, with as few changes as need be: what somebody writes, has
    opened, marked or scrolled stays as it is. */
export function replace(parent, ...children) {
  const wanted = document.createElement("div");
  put(wanted, children);
  become(parent, wanted);
}

function become(old, wanted) {
  const before = [...old.childNodes];
  const after = [...wanted.childNodes];
  after.forEach((child, at) => {
    const there = before[at];
    if (!there) old.append(child);
    else if (!isAlike(there, child)) there.replaceWith(child);
    else if (there.nodeType === Node.TEXT_NODE) {
      if (there.data !== child.data) there.data = child.data;
    } else if (!there.dataset.kept || there.dataset.kept !== child.dataset.kept) {
      // A form that somebody fills in, for one, is kept as it is.
      takeOver(there, child);
      become(there, child);
    }
  });
  before.slice(after.length).forEach((child) => child.remove());
}

function isAlike(one, other) {
  if (one.nodeType !== other.nodeType || one.nodeName !== other.nodeName) return false;
  if (one.nodeType !== Node.ELEMENT_NODE) return true;
  return one.dataset.key === other.dataset.key;
}

function takeOver(there, child) {
  for (const { name } of [...there.attributes]) {
    // Whether it is open is up to whoever reads it.
    if (!child.hasAttribute(name) && name !== "open") there.removeAttribute(name);
  }
  for (const { name, value } of child.attributes) {
    if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  }
  for (const name of Object.keys(there.heard ?? {})) there[`on${name}`] = null;
  there.heard = child.heard;
  for (const [name, act] of Object.entries(child.heard ?? {})) there[`on${name}`] = act;
}

/** A text as it may be shown. */
export function shown(value) {
  return String(value).replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** What a view is about, for somebody who sees it the first time. */
export function head(title, lead, ...more) {
  return h("div", { class: "head" }, h("h1", {}, title), lead && h("p", { class: "lead" }, lead), more);
}

/** A table; a column is {title, value(row), isNumber, isName}, and what `value` gives is a text or elements. */
export function table(caption, columns, rows, empty = "none") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const classes = (column) => [column.isNumber && "number", column.isName && "name"].filter(Boolean).join(" ") || null;
  const title = (column) => column.title || h("span", { class: "unseen" }, "actions");
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: classes(one) }, title(one))))),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, columns.map((one) => h("td", { class: classes(one), "data-title": one.title || null }, one.value(row))))),
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

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

/** Links to the pages before and behind; those that are not there are null. */
export function pages(first, next, more = null) {
  if (!first && !next && !more) return null;
  return h(
    "nav",
    { class: "bar pages", "aria-label": "Pages" },
    first && h("a", { class: "button", href: first }, "First page"),
    next && h("a", { class: "button", href: next }, "Next page"),
    more,
  );
}

/** How full something is: a bar, with its figures as text beside it. */
export function meter(value, most) {
  const part = most > 0 ? Math.min(1, value / most) : 0;
  const kind = part >= 1 ? "bad" : part >= 0.8 ? "warn" : "";
  const bar = svg(
    "svg",
    { class: `meter ${kind}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "ground", width: 100, height: 6 }),
    svg("rect", { class: "full", width: (100 * part).toFixed(1), height: 6 }),
  );
  return h("span", { class: "filled" }, h("span", {}, `${count(value)} of ${count(most)}`), bar);
}

/** Lines over time: points are numbers, the newest is the last, and `span` says how far back they go. */
export function chart(title, points, label, ago = "") {
  const [width, height] = [300, 88];
  const most = niceMost(Math.max(...points, 0));
  const step = width / Math.max(1, points.length - 1);
  const at = points.map((point, n) => `${(n * step).toFixed(1)},${(height - 2 - (point / most) * (height - 8)).toFixed(1)}`);
  const middle = height - 2 - (height - 8) / 2;
  const made = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${label} now` },
    [6, middle, height - 2].map((y) => svg("line", { class: "rule", x1: 0, x2: width, y1: y, y2: y })),
    at.length > 1 && svg("polygon", { points: `0,${height - 2} ${at.join(" ")} ${width},${height - 2}` }),
    at.length > 1 && svg("polyline", { points: at.join(" ") }),
  );
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", {}, title), h("strong", {}, label)),
    made,
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, ago), h("span", {}, `top ${fine.format(most)}`), h("span", {}, "now")),
  );
}

/** The next of 1, 2, 5, 10, …: an axis that does not jump with every point. */
function niceMost(value) {
  if (value <= 1) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((one) => one * ten).find((one) => one >= value);
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export function count(value) {
  return whole.format(value);
}

/** How many of something, in words: `many(1, "queue")` is "1 queue". */
export function many(value, one, more = `${one}s`) {
  return `${whole.format(value)} ${value === 1 ? one : more}`;
}

export function rate(value) {
  return `${value >= 100 ? whole.format(value) : fine.format(value)}/s`;
}

export function bytes(value) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${(value >= 100 * size ? whole : fine).format(value / size)} ${unit}`;
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

/** Microseconds of a field of a form that says a time in UTC; 0 for an empty one. */
export function timeOf(text) {
  return text ? Date.parse(`${text}Z`) * 1_000 : 0;
}

/** That time, as such a field takes it. */
export function fieldOf(us) {
  return new Date(us / 1_000).toISOString().slice(0, 19);
}
