// Groups: one as a grid of its members and streams, with what moves between them.

import { badge, button, count, facts, h, moment, span, table } from "./draw.js";

const PER_PAGE = 100;

async function list({ link }, after) {
  const page = await link.call("ListGroups", { after, count: PER_PAGE });
  return [
    h("h1", {}, "Groups"),
    table(
      "Groups",
      [
        { title: "group", isName: true, value: (one) => h("a", { href: `#/groups/one/${encodeURIComponent(one.name)}` }, one.name) },
        { title: "leader", isName: true, value: (one) => one.leader || badge("none") },
        { title: "epoch", isNumber: true, value: (one) => one.epoch },
        { title: "made", value: (one) => moment(one.created_us) },
      ],
      page.groups,
    ),
    page.groups.length === PER_PAGE &&
      h("p", { class: "bar" }, h("a", { href: `#/groups/after/${encodeURIComponent(page.groups.at(-1).name)}` }, "Next page")),
  ];
}

function cell(cursor, isHolder) {
  if (!isHolder) return h("td", { class: "cell" });
  const state = cursor.status || "granted";
  return h("td", { class: "cell" }, h("span", { class: state, title: `${state}; lag ${cursor.lag}` }, count(cursor.lag)));
}

/** Members stand on the left, streams on top; what a stream lags is where its holder is. */
function grid(members, cursors) {
  const names = (one) => `${one.node}/${one.shard}`;
  const free = cursors.some((one) => !one.member);
  const rows = [...members.map((one) => one.borrower), ...(free ? [""] : [])];
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Members and streams" },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, "Members and streams; a figure is the lag of a stream at the member that holds it"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "member"), cursors.map((one) => h("th", { scope: "col", class: "number" }, names(one))))),
      h(
        "tbody",
        {},
        rows.map((row) => {
          const member = members.find((one) => one.borrower === row);
          return h(
            "tr",
            {},
            h("th", { scope: "row" }, member ? member.member : badge("nobody")),
            cursors.map((one) => cell(one, member ? one.member === member.member : !one.member)),
          );
        }),
      ),
    ),
  );
}

async function one(page, group) {
  const found = await page.link.call("DescribeGroup", { group });
  const lag = found.cursors.reduce((sum, one) => sum + Math.max(0, one.lag), 0);
  const seek = async (event) => {
    event.preventDefault();
    const start = new FormData(event.target).get("start").trim();
    if (await page.ask(`Move ${group} to ${start}? ${count(lag)} messages are unread now; what lies between comes again, or is passed over.`)) {
      page.change("SeekGroup", { group, start }, "moved");
    }
  };
  const remove = async () => {
    if (await page.ask(`Delete ${group} and its place in ${found.cursors.length} streams? That cannot be undone.`)) {
      page.change("DeleteGroup", { group }, "deleted");
    }
  };
  return [
    h("h1", {}, group),
    facts([
      ["leader", found.group.leader || "none"],
      ["epoch", found.group.epoch],
      ["members", count(found.members.length)],
      ["lag", count(lag)],
      ["deliveries before a message is a dead letter", found.group.deliveries_max],
    ]),
    h("h2", {}, "Who reads what"),
    grid(found.members, found.cursors),
    found.is_more && h("p", { class: "empty" }, "there are more streams than are shown"),
    h("h2", {}, "Members"),
    table(
      "Members",
      [
        { title: "member", isName: true, value: (one) => one.member },
        { title: "streams", isNumber: true, value: (one) => one.streams },
        { title: "heard", value: (one) => `${span(one.silent_ms)} ago` },
        { title: "", value: (one) => button(`Send ${one.member} away`, () => page.change("KickMember", { group, member: one.member }, "sent away")) },
      ],
      found.members,
      "nobody: the group keeps its place",
    ),
    h("h2", {}, "Change"),
    h(
      "form",
      { class: "bar", submit: seek },
      h("label", {}, "Move to (beginning, now, or a time)", h("input", { name: "start", required: true, value: "beginning" })),
      h("button", {}, "Move"),
    ),
    h("div", { class: "bar" }, button("Delete the group", remove)),
  ];
}

export const groups = {
  title: "Groups",
  everyMs: 1_000,
  draw: (page, [what, name = ""]) => (what === "one" ? one(page, name) : list(page, what === "after" ? name : "")),
};
