// The page: who looks, which view is shown, and when it is drawn anew. Views ask the node; nothing is kept here.

import { access } from "./access.js";
import { h, replace, shown } from "./draw.js";
import { groups } from "./groups.js";
import { CallFailed, Link } from "./link.js";
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
const VIEWS = { "": overview, queues, services, topics, groups, messages, paths, records, pipeline, access };
const PARTS = { queues: "Messages", paths: "State", pipeline: "Work", access: "Who may what" };

const main = document.getElementById("main");
const state = document.getElementById("state");
const views = document.getElementById("views");
const told = document.getElementById("told");
const asked = document.getElementById("asked");

let drawing = 0;
let timer = 0;
let telling = 0;

const link = new Link(new URL("socket", location.href).href.replace(/^http/, "ws").replace(/[?#].*$/, ""), (how, text) => {
  state.textContent = { connecting: "connecting…", open: "", away: `away: ${shown(text)}` }[how] ?? "";
  state.className = how;
  if (how === "open") {
    state.textContent = link.welcome.node;
    document.title = `${link.welcome.node} · Moorline`;
    login.opened();
    drawFirst();
  } else if (how === "refused") {
    login.refused(text);
  }
});

const login = new Login(link, main, views);

/** What views have of the page. */
const page = {
  link,
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
    asked.returnValue = "no";
    asked.showModal();
    return new Promise((resolve) => {
      // The end of the question before may be heard only now: this one is open then.
      asked.onclose = () => asked.open || resolve(asked.returnValue === "yes");
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
    draw();
  },
  draw,
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

/** Draws the view; one drawing at a time, and the newest wins. */
async function draw() {
  clearTimeout(timer);
  if (!link.welcome) return;
  const mine = ++drawing;
  const { view, rest } = where();
  let made;
  try {
    made = await view.draw(page, rest);
  } catch (error) {
    if (!(error instanceof CallFailed)) console.error(error);
    made = [h("h1", {}, view.title), h("p", { class: "failed", role: "alert" }, `${error.code ?? "A mistake in this page"}: ${error.message}`)];
  }
  if (mine !== drawing) return;
  if (made) replace(main, made);
  if (view.everyMs) timer = setTimeout(() => (document.hidden ? null : draw()), view.everyMs);
}

addEventListener("hashchange", () => {
  if (/^#pass=/.test(location.hash)) login.begin();
  else if (link.welcome) {
    drawFirst();
    main.focus();
  }
});
document.addEventListener("visibilitychange", () => {
  // A view that is drawn once stays as it is: it may have what somebody looked for.
  if (!document.hidden && where().view.everyMs) draw();
});
login.begin();
