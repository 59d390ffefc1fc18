// Groups: one as a grid of its members and streams, with what moves between them.

import { badge, button, count, empty, facts, fieldOf, h, head, many, moment, pages, rate, span, table, timeOf } from "./draw.js";

const PER_PAGE = 100;
const COLUMNS = 32;
const AGAIN_MS = 2_000;
const MOVES_KEPT = 100;
const RATE_MS = 1_000;
const MOVED_MS = 3_000;

async function list({ list }, after) {
  const page = await list("ListGroups", { after, count: PER_PAGE });
  const lead = "Members of a group share the streams of a filter: each message goes to one of them, and none is missed when a member dies.";
  return [
    head("Groups", lead),
    table(
      "Groups",
      [
        { title: "group", isName: true, value: (one) => h("a", { href: `#/groups/one/${encodeURIComponent(one.name)}` }, one.name) },
        { title: "led by", isName: true, value: (one) => one.leader || badge("nobody now") },
        { title: "epoch", isNumber: true, value: (one) => one.epoch },
        { title: "made (UTC)", value: (one) => moment(one.created_us) },
      ],
      page.groups,
      "none yet: whoever subscribes to $shared/NAME/FILTER founds one",
    ),
    pages(after && "#/groups", page.groups.length === PER_PAGE && `#/groups/after/${encodeURIComponent(page.groups.at(-1).name)}`),
  ];
}

// --- what moved, as this page saw it ------------------------------------------------------------------

const seen = { group: "", holders: new Map(), moves: [], done: 0, ms: 0, rate: null };

const streamOf = (one) => `${one.node}/${one.shard}`;

function notice(group, members, cursors) {
  const now = performance.now();
  const done = cursors.reduce((sum, one) => sum + one.end - one.lag, 0);
  if (seen.group !== group) {
    Object.assign(seen, { group, holders: new Map(), moves: [], done, ms: now, rate: null, members: null });
  } else if (done < seen.done || now - seen.ms >= RATE_MS) {
    // A seek goes back: then nobody knows a rate.
    seen.rate = done >= seen.done ? ((done - seen.done) * 1_000) / (now - seen.ms) : null;
    Object.assign(seen, { done, ms: now });
  }
  const names = new Set(members.map((one) => one.member));
  if (seen.members) {
    for (const one of names) if (!seen.members.has(one)) told(`${one} has joined`);
    for (const one of seen.members) if (!names.has(one)) told(`${one} has left`);
  }
  seen.members = names;
  for (const one of cursors) {
    const before = seen.holders.get(streamOf(one));
    const state = `${one.status} ${one.member}`;
    if (before && before.state !== state) told(moveOf(one, before));
    const movedMs = before && before.member === one.member ? before.movedMs : before ? now : 0;
    seen.holders.set(streamOf(one), { state, member: one.member, status: one.status, movedMs });
  }
}

function told(text) {
  seen.moves.unshift({ at: moment(Date.now() * 1_000).slice(11), text });
  if (seen.moves.length > MOVES_KEPT) seen.moves.pop();
}

function moveOf(one, before) {
  const stream = `stream ${streamOf(one)}`;
  if (one.status === "granting") return `${stream} is being granted to ${one.member}`;
  if (one.status === "revoking") return `${stream} is asked back from ${one.member}`;
  if (!one.member) return `${stream} is free${before.member ? `, and was ${before.member}'s` : ""}`;
  if (before.member && before.member !== one.member) return `${stream} went from ${before.member} to ${one.member}`;
  return `${stream} is ${one.member}'s`;
}

// --- the grid ------------------------------------------------------------------------------------------

function cell(cursor, isHolder) {
  if (!isHolder) return h("td", { class: "cell" });
  const state = cursor.status || (cursor.member ? "granted" : "free");
  const { movedMs = 0 } = seen.holders.get(streamOf(cursor)) ?? {};
  const marks = [state, cursor.lag > 0 && "behind", movedMs && performance.now() - movedMs < MOVED_MS && "moved"];
  const title = `${streamOf(cursor)}: ${state}${cursor.member ? `, ${cursor.member}` : ""}; at ${count(cursor.offset)} of ${count(cursor.end)}, ${count(cursor.lag)} behind`;
  const word = { granting: "granting ", revoking: "revoking ", free: "free ", away: "away " }[state] ?? "";
  return h("td", { class: "cell" }, h("span", { class: marks.filter(Boolean).join(" "), title }, `${word}${count(Math.max(0, cursor.lag))}`));
}

/** Members stand on the left, streams on top; what a stream is behind is where its holder is. */
function grid(members, cursors) {
  const free = cursors.some((one) => !one.member);
  const rows = [...members, ...(free ? [null] : [])];
  const nodes = [];
  for (const one of cursors) {
    if (nodes.at(-1)?.name === one.node) nodes.at(-1).span++;
    else nodes.push({ name: one.node, span: 1 });
  }
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Members and streams" },
    h(
      "table",
      { class: "grid" },
      h("caption", { class: "unseen" }, "Members and streams; a figure is how many messages a stream is behind, at the member that holds it"),
      h(
        "thead",
        {},
        h("tr", {}, h("td"), nodes.map((one) => h("th", { scope: "colgroup", colspan: one.span }, one.name))),
        h("tr", {}, h("td"), cursors.map((one) => h("th", { scope: "col" }, h("span", { class: "unseen" }, `${one.node} stream `), one.shard))),
      ),
      h(
        "tbody",
        {},
        rows.map((member) =>
          h(
            "tr",
            {},
            h("th", { scope: "row", title: member?.member ?? null }, member ? member.member : "nobody"),
            cursors.map((one) => cell(one, member ? one.member === member.member || one.member === member.borrower : !one.member)),
          ),
        ),
      ),
    ),
  );
}

function legend() {
  const marks = [["granted", "granted: this member reads it"], ["granting", "granting: on its way to the member"], ["revoking", "revoking: asked back, what is in hand is finished"], ["free", "free: nobody reads it"]];
  return h("ul", { class: "legend" }, marks.map(([name, text]) => h("li", {}, h("i", { class: name, "aria-hidden": "true" }), text)));
}

// --- moving it -------------------------------------------------------------------------------------------

/** What a move would do is counted by the node first, and nothing is moved before somebody has seen it. */
async function seek(page, group, start, words) {
  let plan;
  try {
    plan = await page.link.call("PlanSeek", { group, start });
  } catch (error) {
    page.tell(`${error.code ?? "ERROR"}: ${error.message}`);
    return;
  }
  const steps = plan.steps.filter((one) => one.offset !== one.target);
  const ranges = steps.slice(0, 6).map((one) => `${streamOf(one)}: from ${count(one.offset)} to ${count(one.target)}`);
  if (steps.length > ranges.length) ranges.push(`and ${steps.length - ranges.length} streams more`);
  const parts = [
    `Move ${group} to ${words}?`,
    `${many(plan.again, "message")} would come again, ${many(plan.passed, "unread one")} would be passed over (of all topics in these streams).`,
    ranges.join("\n") || "No stream moves.",
    plan.away.length && `Not counted, for they do not answer: ${plan.away.join(", ")}`,
  ];
  if (await page.ask(parts.filter(Boolean).join("\n\n"))) page.change("SeekGroup", { group, start }, "moved");
}

async function one(page, group, from) {
  const found = await page.live(`groups/${group}`);
  const { members, cursors } = found;
  notice(group, members, cursors);
  const lag = cursors.reduce((sum, one) => sum + Math.max(0, one.lag), 0);
  const lost = cursors.reduce((sum, one) => sum + one.lost, 0);
  const failing = cursors.reduce((sum, one) => sum + one.failing, 0);
  const first = Math.min(Number(from) || 0, Math.max(0, cursors.length - 1));
  const some = cursors.slice(first, first + COLUMNS);
  const path = `#/groups/one/${encodeURIComponent(group)}`;
  const move = (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const to = fields.get("to");
    const at = timeOf(fields.get("time"));
    if (to === "time" && !at) return page.tell("give a time");
    seek(page, group, to === "time" ? `time:${at}` : to, to === "time" ? `${moment(at)} UTC` : { now: "the end", beginning: "the beginning" }[to]);
  };
  const choose = (event) => (event.target.form.querySelector("[data-time]").hidden = event.target.value !== "time");
  const remove = async () => {
    if (await page.ask(`Delete ${group} and its place in ${count(cursors.length)} streams?\nThat cannot be undone.`)) {
      page.change("DeleteGroup", { group }, "deleted");
    }
  };
  const kick = (member) => async () => {
    if (await page.ask(`Send ${member} away from ${group}?\nIts streams go to the others.`)) page.change("KickMember", { group, member }, "sent away");
  };
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/groups" }, "Groups")),
    h("div", { class: "head" }, h("h1", {}, group)),
    facts([
      ["led by", found.group.leader || "nobody now"],
      ["epoch", found.group.epoch],
      ["members", count(members.length)],
      ["streams", count(cursors.length)],
      ["behind", many(lag, "message")],
      ["done, per second", seen.rate === null ? "–" : rate(seen.rate)],
      ["failed before, and tried again", count(failing)],
      ["were gone before they were read", count(lost)],
      ["tries before a message is a dead letter", found.group.deliveries_max || "no bound"],
    ]),
    h("h2", {}, "Who reads what"),
    cursors.length ? grid(members, some) : empty("no stream yet"),
    legend(),
    cursors.length > COLUMNS &&
      pages(
        first > 0 && path,
        first + COLUMNS < cursors.length && `${path}/${first + COLUMNS}`,
        h("span", { class: "empty" }, `streams ${first + 1} to ${first + some.length} of ${cursors.length}`),
      ),
    found.is_more && empty("there are more streams or members than are shown"),
    h("h2", {}, "What has moved since you look (UTC)"),
    seen.moves.length
      ? h("ul", { class: "log", tabindex: "0", role: "log", "aria-label": "What has moved" }, seen.moves.map((one) => h("li", {}, h("time", {}, one.at), one.text)))
      : empty("nothing yet: a member that joins or dies moves streams"),
    h("h2", {}, "Members"),
    table(
      "Members",
      [
        { title: "member", isName: true, value: (one) => one.member },
        { title: "streams", isNumber: true, value: (one) => one.streams },
        { title: "heard", value: (one) => (one.silent_ms ? `${span(one.silent_ms)} ago` : "just now") },
        { title: "", value: (one) => button("Send away", kick(one.member), { "aria-label": `Send ${one.member} away`, "data-key": `away ${one.member}` }) },
      ],
      members,
      "nobody: the group keeps its place",
    ),
    h("h2", {}, "Move it"),
    h(
      "form",
      { class: "bar", submit: move, "data-kept": group },
      h("label", {}, "To", h("select", { name: "to", change: choose }, [["beginning", "the beginning"], ["time", "a time …"], ["now", "the end"]].map(([value, title]) => h("option", { value }, title)))),
      h("label", { "data-time": "", hidden: true }, "Time (UTC)", h("input", { name: "time", type: "datetime-local", step: "1", value: fieldOf(Date.now() * 1_000) })),
      h("button", {}, "Count and move …"),
    ),
    h("div", { class: "bar" }, button("Delete the group", remove, { class: "danger" })),
  ];
}

export const groups = {
  title: "Groups",
  of: "cluster",
  draw(page, [what, name = "", from = ""]) {
    // It is pushed, and drawn anew for its rate, which is 0 where nothing is.
    this.everyMs = what === "one" ? AGAIN_MS : 0;
    return what === "one" ? one(page, name, from) : list(page, what === "after" ? name : "");
  },
};
