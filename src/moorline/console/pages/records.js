// Tables of Postgres whose rows are streamed to clients, and who is subscribed.

import { badge, count, facts, h, head, many, pages, table } from "./draw.js";

function states(one) {
  if (one.away) return badge("its database is away", "bad");
  if (!one.place) return badge("dropped", "warn");
  return one.subscribers ? badge("followed", "good") : badge("idle");
}

async function list({ list }, after) {
  const page = await list("ListRecordTables", { after });
  return [
    head("Records", "Rows of registered Postgres tables, streamed to those who may see them. A client that reconnects gets what has changed, and not more."),
    table(
      "Tables",
      [
        { title: "table", isName: true, value: (one) => h("a", { href: `#/records/one/${encodeURIComponent(one.name)}` }, one.name) },
        { title: "subscribers here", isNumber: true, value: (one) => count(one.subscribers) },
        { title: "scans", isNumber: true, value: (one) => count(one.scans) },
        { title: "state", value: states },
        { title: "key", value: (one) => one.key },
        { title: "whose a row is", value: (one) => one.owner || "–" },
        { title: "changes by", value: (one) => one.capture || "–" },
      ],
      page.tables,
      "none yet: moor records add TABLE registers one",
    ),
    pages(after && "#/records", !page.is_last && page.tables.length > 0 && `#/records/after/${encodeURIComponent(page.tables.at(-1).name)}`),
  ];
}

async function one({ list }, name, after) {
  const page = await list("ListRecordTables", { table: name, after_subscriber: after });
  const [found] = page.tables;
  if (!found) return [head(name, "No table is registered under this name.")];
  const path = `#/records/one/${encodeURIComponent(name)}`;
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/records" }, "Records")),
    head(name, found.away ? null : `${many(found.subscribers, "subscriber")} at this node.`),
    found.away && h("p", { class: "verdict bad" }, found.away),
    facts([
      ["table", found.place || "dropped"],
      ["key", found.key],
      ["whose a row is", found.owner || "–"],
      ["changes by", found.capture || "–"],
      ["scans that run", count(found.scans)],
    ]),
    h("h2", {}, "Who is subscribed"),
    table(
      "Subscribers",
      [
        { title: "principal", isName: true, value: (row) => row.principal },
        { title: "stands", value: (row) => badge(row.standing, { live: "good", behind: "warn" }[row.standing] ?? "") },
        { title: "steps behind", isNumber: true, value: (row) => count(row.behind) },
        { title: "rows", isName: true, value: (row) => (row.filter ? h("code", {}, row.filter) : "all that it may see") },
        { title: "columns", isNumber: true, value: (row) => (row.columns ? count(row.columns) : "all") },
        { title: "speaks", value: (row) => row.form },
      ],
      page.subscribers,
      "nobody at this node",
    ),
    pages(after > 0 && path, !page.is_last && `${path}/${page.subscribers.at(-1)?.number}`),
  ];
}

export const records = {
  title: "Records",
  of: "Tables of the whole cluster; who is subscribed, of this node",
  draw: (page, [what, name = "", after = "0"]) => (what === "one" ? one(page, name, Number(after) || 0) : list(page, what === "after" ? name : "")),
};
