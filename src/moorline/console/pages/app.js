// The page: who looks, which view is shown, and when it is drawn anew: when the node pushes something of it
// (live.js). Nothing is asked for again and again.

import { access } from "./access.js";
import { h, replace, shown } from "./draw.js";
import { groups } from "./groups.js";
import { CallFailed, Link } from "./link.js";
import { Live } from "./live.js";
import { Login } from "./login.js";
import { messages } from "./messages.js";
import { overview } from "./overview.js";
import { paths } from "./paths.js";
import { pipeline } from "./pipeline.js";
import { queues } from "./queues.js";
import { records } from "./records.js";
import { services } from "./services.js";
import { topics } from "./topics.js";

const TOLD_MS = 8_000;
const AGAIN_MS = 3_000;
const VIEWS = { "": overview, queues, services, topics, groups, messages, paths, records, pipeline, access };
const PARTS = { queues: "Messages", paths: "State", pipeline: "Work", access: "Who may what" };

const main = document.getElementById("main");
const state = document.getElementById("state");
const views = document.getElementById("views");
const told = document.getElementById("told");
const asked = document.getElementById("asked");

let drawing = 0;
let isDrawing = false;
let isBehind = false;
let timer = 0;
let telling = 0;

const link = new Link(new URL("socket", location.href).href.replace(/^http/, "ws").replace(/[?#].*$/, ""), (how, text) => {
  state.textContent = { connecting: "connecting…", open: "", away: `away: ${shown(text)}` }[how] ?? "";
  state.className = how;
  if (how === "open") {
    state.textContent = link.welcome.node;
    document.title = `${link.welcome.node} · Moorline`;
    login.opened();
    live.forgetAll();
    drawFirst();
  } else if (how === "refused") {
    login.refused(text);
  }
});

const live = new Live(link, drawSoon);
const login = new Login(link, main, views);

/** What views have of the page. */
const page = {
  link,
  /** The newest of what the node pushes of a view; the view is drawn anew with each that follows. */
  live: (path) => live.value(path),
  /** The same of a page of a list, which a call asks for. */
  list: (name, fields) => live.value(`list/${link.said(name, fields)}`),
  /** Draws what is so now: something was changed by this page. */
  drawAnew() {
    live.leaveAll();
    return draw();
  },
  /** Says how something ended, for some seconds. */
  tell(text, isGood = false) {
    told.textContent = shown(text);
    told.className = isGood ? "good" : "";
    told.hidden = false;
    clearTimeout(telling);
    telling = setTimeout(() => (told.hidden = true), TOLD_MS);
  },
  /** Whether the person wants that done; lines are lines. */
  ask(text) {
    document.getElementById("asked-text").textContent = String(text).split("\n").map(shown).join("\n");
    asked.showModal();
    return new Promise((resolve) => {
      // Not by its close, which is told with the next frame: a window that is not painted may have none for long.
      asked.onsubmit = (event) => resolve(event.submitter?.value === "yes");
      asked.oncancel = () => resolve(false);
    });
  },
  /** A call that changes something: its end is told, and the view is drawn anew. */
  async change(name, fields, done) {
    try {
      await link.call(name, fields);
      page.tell(done, true);
    } catch (error) {
      page.tell(`${error.code ?? "ERROR"}: ${error.message}`);
    }
    page.drawAnew();
  },
};

function where() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view: VIEWS[name] ?? overview, name: VIEWS[name] ? name : "", rest: rest.map(decodeURIComponent) };
}

function drawViews(current) {
  replace(
    views,
    Object.entries(VIEWS).map(([name, view]) => [
      PARTS[name] && h("span", {}, PARTS[name]),
      h("a", { href: `#/${name}`, "data-key": `view ${name}`, "aria-current": name === current ? "page" : null }, view.title),
    ]),
  );
}

function showCurrent() {
  // On a narrow screen the views stand in one line, which scrolls.
  const [one] = views.querySelectorAll("[aria-current]");
  if (one) views.scrollLeft = one.offsetLeft - views.offsetLeft - 12;
}

function drawFirst() {
  const { name } = where();
  drawViews(name);
  showCurrent();
  main.replaceChildren(h("p", { class: "empty" }, "…"));
  draw();
}

/** Something that is drawn has changed: it is drawn behind what is being drawn, and once for all that comes
    together. */
function drawSoon() {
  if (isBehind) return;
  isBehind = true;
  if (!isDrawing) setTimeout(() => isBehind && !isDrawing && draw());
}

/** Draws the view; one drawing at a time, and the newest wins. */
async function draw() {
  clearTimeout(timer);
  if (!link.welcome) return;
  const mine = ++drawing;
  const { view, rest } = where();
  let made;
  let isTriedAgain = false;
  isDrawing = true;
  isBehind = false;
  live.begin();
  try {
    made = await view.draw(page, rest);
  } catch (error) {
    // What is not allowed is not asked for again and again: each time is a refusal that is written down.
    isTriedAgain = live.isUsed && error.code !== "DENIED";
    if (!(error instanceof CallFailed)) console.error(error);
    made = [h("h1", {}, view.title), h("p", { class: "failed", role: "alert" }, `${error.code ?? "A mistake in this page"}: ${error.message}`)];
  }
  if (mine !== drawing) return;
  isDrawing = false;
  live.end();
  if (made) replace(main, [scope(view, rest), made]);
  const everyMs = view.everyMs || (isTriedAgain ? AGAIN_MS : 0);
  if (everyMs) timer = setTimeout(() => (document.hidden ? null : draw()), everyMs);
  if (isBehind) draw();
}

/** Of what a view is: of all nodes, or of the one that serves this page. */
function scope(view, rest) {
  const of = typeof view.of === "function" ? view.of(rest) : view.of;
  if (!of) return null;
  return h("p", { class: "scope" }, of === "node" ? `Of this node alone: ${link.welcome?.node ?? ""}` : of === "cluster" ? "Of the whole cluster" : of);
}

addEventListener("hashchange", () => {
  if (/^#pass=/.test(location.hash)) login.begin();
  else if (link.welcome) {
    drawFirst();
    main.focus();
  }
});
document.addEventListener("visibilitychange", () => {
  if (!link.welcome) return;
  // Nothing is pushed to a page that nobody sees. A view that is drawn once stays as it is: it may have what
  // somebody looked for.
  if (document.hidden) live.leaveAll();
  else if (live.isUsed || where().view.everyMs) draw();
});
login.begin();
