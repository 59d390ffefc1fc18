// Queues of this node: a page of them, and one with what waits in it.

import { body, download, FORMS, message } from "./bodies.js";
import { badge, button, bytes, count, facts, h, head, meter, moment, pages, table, timeOf } from "./draw.js";
import { fromBase64, toBase64 } from "./link.js";

const PER_PAGE = 50;
const SHOWN_MAX = 200;
const ONLY = [
  ["", "All queues"],
  ["waiting", "With messages"],
  ["full", "Over quota"],
  ["shut", "Blocked or closed"],
  ["damaged", "Set aside"],
];

/** As people and paths see an id. */
export const nameOf = (id) => id.replaceAll("+", "-").replaceAll("/", "_");
const idOf = (name) => name.replaceAll("-", "+").replaceAll("_", "/");

function states(one) {
  const found = [];
  if (one.is_damaged) found.push(badge("damaged, set aside", "bad"));
  if (one.is_blocked) found.push(badge("blocked", "warn"));
  if (one.is_closed) found.push(badge("closed", "warn"));
  if (one.is_over_quota) found.push(badge("over quota", "warn"));
  if (one.is_suspended) found.push(badge("suspended"));
  if (one.is_subscribed) found.push(badge("has a reader", "good"));
  return found.length ? found : badge("no reader");
}

async function list({ list }, only, after) {
  const page = await list("ListQueues", { after: after ? idOf(after) : "", count: PER_PAGE, only, has_facts: true });
  const rows = page.queues.map(([queue], at) => ({ queue, ...page.facts[at] }));
  const find = (event) => {
    event.preventDefault();
    location.hash = `#/queues/one/${encodeURIComponent(new FormData(event.target).get("id").trim())}`;
  };
  const isMore = rows.length === PER_PAGE || (only && nameOf(page.upto) !== after);
  return [
    head("Queues", `One recipient each, in order, acknowledged. ${count(page.total)} are at this node; ${count(page.messages_max)} messages may wait in one.`),
    h(
      "nav",
      { class: "tabs", "aria-label": "Which queues" },
      ONLY.map(([name, title]) => h("a", { href: `#/queues/${name || "all"}`, "aria-current": name === only ? "page" : null }, title)),
    ),
    table(
      "Queues",
      [
        { title: "queue", isName: true, value: (one) => h("a", { href: `#/queues/one/${nameOf(one.queue)}`, class: "hash" }, nameOf(one.queue)) },
        { title: "depth", isNumber: true, value: (one) => meter(one.waiting, page.messages_max) },
        { title: "size", isNumber: true, value: (one) => bytes(one.bytes) },
        { title: "state", value: states },
        { title: "owner", isName: true, value: (one) => one.owner || "nobody" },
        { title: "made (UTC)", value: (one) => moment(one.created_s * 1e6) },
      ],
      rows,
      isMore ? "none in this part: go on with the next page" : "none",
    ),
    pages(after && `#/queues/${only || "all"}`, isMore && `#/queues/${only || "all"}/${nameOf(page.upto)}`),
    h(
      "form",
      { class: "bar", submit: find },
      h("label", {}, "A queue by its id", h("input", { name: "id", required: true, pattern: "[\\w\\-]{32}", size: "34", title: "32 characters" })),
      h("button", {}, "Show"),
    ),
  ];
}

async function one(page, name) {
  const queue = idOf(name);
  const found = await page.list("DescribeQueue", { queue });
  const act = (call, fields, question, done) => async () => {
    if (await page.ask(question)) page.change(call, { queue, ...fields }, done);
  };
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/queues" }, "Queues")),
    h("div", { class: "head" }, h("h1", { class: "hash" }, name)),
    facts([
      ["state", states(found)],
      ["depth", meter(found.waiting, found.messages_max)],
      ["size", bytes(found.bytes)],
      ["of these in its own files", count(found.stored)],
      ["owner", found.owner || "nobody"],
      ["made (UTC)", moment(found.created_s * 1e6)],
      ["messages that cannot be read", count(found.unreadable)],
    ]),
    h(
      "div",
      { class: "bar" },
      button(found.is_blocked ? "Unblock" : "Block", act("BlockQueue", { blocked: !found.is_blocked }, `${found.is_blocked ? "Unblock" : "Block"} ${name}?\nBlocked, it takes no message and is in no service.`, "done")),
      button(found.is_closed ? "Open" : "Close", act("CloseQueue", { closed: !found.is_closed }, `${found.is_closed ? "Let all who know its id send to" : "Let only those with a right send to"} ${name}?`, "done")),
      button("Check its files", () => check(page, queue, false)),
      found.is_damaged && button("Repair", () => check(page, queue, true)),
      button("Delete", act("DeleteQueue", {}, `Delete ${name} and ${count(found.waiting)} messages?\nThat cannot be undone.`, "deleted"), { class: "danger" }),
    ),
    h("h2", {}, "What waits, oldest first"),
    contents(page, queue),
  ];
}

async function check(page, queue, is_repair) {
  try {
    const found = await page.link.call("CheckQueue", { queue, is_repair });
    page.tell(`${count(found.messages)} messages can be delivered, ${count(found.lost)} are lost; ${found.problems_total ? `${found.problems_total} problems: ${found.problems.map((one) => one.text).join("; ")}` : "nothing is wrong"}`, found.is_clean);
  } catch (error) {
    page.tell(`${error.code ?? "ERROR"}: ${error.message}`);
  }
  looked.queue = ""; // what waits may be other by now
  page.drawAnew();
}

const looked = { queue: "", key: "", number: 0 };

/** What waits is looked into once, and stays as it is while the queue is drawn anew, until somebody looks again. */
function contents(page, queue) {
  if (looked.queue === queue && document.querySelector(`[data-kept="${looked.key}"]`)) return h("div", { "data-kept": looked.key, "data-key": looked.key });
  Object.assign(looked, { queue, key: `contents ${++looked.number}` });
  return h("div", { "data-kept": looked.key, "data-key": looked.key }, look(page, queue));
}

/** A look into it, and on: the node passes a bounded piece with each answer, and to stop is to ask no more. */
function look({ link }, queue) {
  const state = h("p", { class: "empty", role: "status" });
  const found = h("div", {});
  const running = {};
  const stop = button("Stop", () => (running.look = null), { disabled: true });
  const begin = async (fields) => {
    const mine = (running.look = {});
    stop.disabled = false;
    const wanted = { contains: toBase64(fields.get("contains")), from_ms: Math.floor(timeOf(fields.get("from")) / 1_000) };
    found.replaceChildren();
    let [after, shown] = [0, 0];
    try {
      for (;;) {
        const answer = await link.call("PeekQueue", { queue, after, ...wanted });
        if (running.look !== mine) break;
        for (const message of answer.messages.slice(0, SHOWN_MAX - shown)) found.append(waiting(message, fields.get("form")));
        shown = Math.min(SHOWN_MAX, shown + answer.messages.length);
        state.textContent = shown ? `${count(shown)} shown` : "nothing found yet";
        if (answer.is_all || shown >= SHOWN_MAX || answer.upto === after) break;
        after = answer.upto;
      }
      if (running.look !== null && running.look !== mine) return; // another look has begun
      const more = running.look === null ? "; stopped" : shown >= SHOWN_MAX ? "; there may be more" : "";
      state.textContent = shown || more ? `${count(shown)} shown${more}` : "nothing";
    } catch (error) {
      // Who may not read it still sees how it is.
      state.textContent = `${error.code ?? "ERROR"}: ${error.message}`;
    }
    stop.disabled = true;
  };
  const form = h(
    "form",
    { class: "bar", submit: (event) => { event.preventDefault(); begin(new FormData(event.target)); } },
    h("label", {}, "Body contains", h("input", { name: "contains", maxlength: "60" })),
    h("label", {}, "From (UTC)", h("input", { name: "from", type: "datetime-local", step: "1" })),
    h("label", {}, "As", h("select", { name: "form" }, FORMS.map((one) => h("option", {}, one)))),
    h("button", { class: "strong" }, "Look"),
    stop,
  );
  begin(new FormData(form));
  return [form, state, found];
}

function waiting(one, form) {
  const bytesOf = fromBase64(one.body);
  return message(
    `${one.message} · ${moment(one.time_ms * 1e3)} UTC · ${one.is_quota_marker ? "quota marker" : bytes(bytesOf.length)}`,
    body(bytesOf, form),
    download(() => bytesOf, `message-${one.message}`),
  );
}

export const queues = {
  title: "Queues",
  of: "node",
  draw(page, [what = "all", name = ""]) {
    if (what === "one") return one(page, name);
    return list(page, what === "all" ? "" : what, name);
  },
};
