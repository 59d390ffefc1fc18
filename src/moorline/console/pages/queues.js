// Queues of this node: a page of them, and one with what waits in it.

import { body, download } from "./bodies.js";
import { badge, button, bytes, count, facts, h, moment, table } from "./draw.js";
import { fromBase64 } from "./link.js";

const PER_PAGE = 50;

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
  if (one.is_subscribed) found.push(badge("read", "good"));
  return found.length ? found : badge("idle");
}

async function list({ link }, after) {
  const page = await link.call("ListQueues", { after: after ? idOf(after) : "", count: PER_PAGE });
  const rows = await Promise.all(page.queues.map(([queue]) => link.call("DescribeQueue", { queue }).catch(() => null)));
  const last = page.queues.at(-1)?.[0];
  const find = (event) => {
    event.preventDefault();
    location.hash = `#/queues/one/${encodeURIComponent(new FormData(event.target).get("id").trim())}`;
  };
  return [
    h("h1", {}, "Queues"),
    h(
      "form",
      { class: "bar", submit: find },
      h("label", {}, "Id", h("input", { name: "id", required: true, pattern: "[\\w\\-]{32}", size: "34", title: "32 characters" })),
      h("button", {}, "Show"),
    ),
    h("p", { class: "empty" }, `${count(page.total)} at this node that you may see`),
    table(
      "Queues",
      [
        { title: "queue", isName: true, value: (one) => h("a", { href: `#/queues/one/${nameOf(one.queue)}`, class: "hash" }, nameOf(one.queue)) },
        { title: "waiting", isNumber: true, value: (one) => count(one.waiting) },
        { title: "state", value: states },
        { title: "owner", isName: true, value: (one) => one.owner || "nobody" },
        { title: "made", value: (one) => moment(one.created_s * 1e6) },
      ],
      rows.filter(Boolean),
    ),
    h(
      "p",
      { class: "bar" },
      after && h("a", { href: "#/queues" }, "First page"),
      page.queues.length === PER_PAGE && h("a", { href: `#/queues/after/${nameOf(last)}` }, "Next page"),
    ),
  ];
}

async function one(page, name) {
  const { link } = page;
  const queue = idOf(name);
  const found = await link.call("DescribeQueue", { queue });
  // Who may not read it still sees how it is.
  const peeked = await link.call("PeekQueue", { queue }).catch((error) => error);
  const act = (call, fields, question, done) => async () => {
    if (await page.ask(question)) page.change(call, { queue, ...fields }, done);
  };
  return [
    h("h1", { class: "hash" }, name),
    facts([
      ["state", states(found)],
      ["waiting", count(found.waiting)],
      ["stored since it was made", count(found.stored)],
      ["owner", found.owner || "nobody"],
      ["made", moment(found.created_s * 1e6)],
      ["messages that cannot be read", count(found.unreadable)],
    ]),
    h(
      "div",
      { class: "bar" },
      button(found.is_blocked ? "Unblock" : "Block", act("BlockQueue", { blocked: !found.is_blocked }, `${found.is_blocked ? "Unblock" : "Block"} ${name}? Blocked, it takes no message and is in no service.`, "done")),
      button(found.is_closed ? "Open" : "Close", act("CloseQueue", { closed: !found.is_closed }, `${found.is_closed ? "Let all who know its id send to" : "Let only those with a right send to"} ${name}?`, "done")),
      button("Delete", act("DeleteQueue", {}, `Delete ${name} and ${count(found.waiting)} messages? That cannot be undone.`, "deleted")),
    ),
    h("h2", {}, "What waits, oldest first"),
    peeked instanceof Error ? h("p", { class: "empty" }, `${peeked.code}: ${peeked.message}`) : messages(peeked.messages),
  ];
}

function messages(waiting) {
  if (!waiting.length) return h("p", { class: "empty" }, "nothing");
  return waiting.slice(0, PER_PAGE).map((message) => {
    const bytesOf = fromBase64(message.body);
    return h(
      "details",
      { class: "card" },
      h("summary", {}, `${message.message} · ${moment(message.time_ms * 1e3)} · ${message.is_quota_marker ? "quota marker" : bytes(bytesOf.length)}`),
      body(bytesOf),
      download(bytesOf, `message-${message.message}`),
    );
  });
}

export const queues = {
  title: "Queues",
  everyMs: 0,
  draw(page, [what, name]) {
    this.everyMs = what === "one" ? 0 : 3_000;
    return what === "one" ? one(page, name) : list(page, what === "after" ? name : "");
  },
};
