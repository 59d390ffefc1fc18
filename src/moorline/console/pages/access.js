// Who looks and what that one may do; rows of rights, quotas, and the audit.

import { badge, button, count, facts, h, head, meter, moment, pages, table } from "./draw.js";
import { fromBase64 } from "./link.js";

const PER_PAGE = 256;
const LETTERS = "Letters: s subscribe, l list, w write, p publish, d default, a administer, g grant.";
const KINDS = [
  "connections", "queues", "topics", "groups", "subscriptions", "stages", "sessions", "paths", "stored_bytes", "topic_bytes",
  "messages_per_s", "bytes_per_s", "heavy_calls_per_s",
];

function usage(quotas) {
  return table(
    "Quotas",
    [
      { title: "quota", value: (one) => one.quota.replaceAll("_", " ") },
      { title: "used", isNumber: true, value: (one) => (one.bound === null ? count(one.used) : meter(one.used, one.bound)) },
      { title: "bound", isNumber: true, value: (one) => (one.bound === null ? "none" : count(one.bound)) },
    ],
    quotas.usage,
  );
}

async function own({ link }) {
  const [me, quotas] = await Promise.all([link.call("WhoAmI"), link.call("DescribeQuotas")]);
  return [
    head(me.principal, "This is who you are here, and what you may do. Everything that this page asks, it asks as you."),
    facts([
      ["proof", me.proof],
      ["groups of users", me.groups.join(", ") || "none"],
      ["until (UTC)", me.expires_us ? moment(me.expires_us) : "the connection ends"],
    ]),
    h("h2", {}, "What you may do"),
    h("p", { class: "lead" }, LETTERS),
    table(
      "Rights",
      [
        { title: "path", isName: true, value: (one) => one.path },
        { title: "there", value: (one) => one.at || "–" },
        { title: "at all below", value: (one) => one.everywhere || "–" },
      ],
      me.rights,
    ),
    h("h2", {}, "What you have of your quotas"),
    usage(quotas),
  ];
}

/** What is bounded for whom, and what one of them has at this node. */
async function quotas(page, [subject = "", after_subject = "", after_kind = ""]) {
  const { link } = page;
  const [found, has] = await Promise.all([
    link.call("ListQuotas", { subject, after_subject, after_kind, count: PER_PAGE }),
    subject ? link.call("DescribeQuotas", { principal: subject }).catch((error) => error) : null,
  ]);
  const set = async (event) => {
    event.preventDefault();
    const { who, kind, amount } = Object.fromEntries(new FormData(event.target));
    const bound = amount === "" ? null : Number(amount);
    const what = bound === null ? `Take away the row of ${who} about ${kind}?\nThe next one counts: of a group of users, or the default.` : `Bound ${kind} of ${who} to ${count(bound)}?`;
    if (await page.ask(what)) page.change("SetQuota", { subject: who, kind, amount: bound }, "in force");
  };
  const remove = (one) => async () => {
    if (await page.ask(`Take away the row of ${one.subject} about ${one.kind}?\nThe next one counts: of a group of users, or the default.`)) {
      page.change("SetQuota", { subject: one.subject, kind: one.kind, amount: null }, "taken away");
    }
  };
  const last = found.quotas.at(-1);
  const show = (event) => {
    event.preventDefault();
    location.hash = `#/access/quotas/${encodeURIComponent(new FormData(event.target).get("who"))}`;
  };
  return [
    head(subject ? `Quotas of ${subject}` : "Quotas", "What each principal, or all of a group of users, may have at a node. Without a row the defaults of the settings count."),
    h("form", { class: "bar", submit: show }, h("label", {}, "User or group", h("input", { name: "who", value: subject })), h("button", {}, "Show what it has")),
    has instanceof Error && h("p", { class: "failed" }, `${has.code}: ${has.message}`),
    has && !(has instanceof Error) && [h("h2", {}, "At this node now"), usage(has)],
    h("h2", {}, "Rows"),
    table(
      "Rows of quotas",
      [
        { title: "who", isName: true, value: (one) => h("a", { href: `#/access/quotas/${encodeURIComponent(one.subject)}` }, one.subject) },
        { title: "quota", value: (one) => one.kind.replaceAll("_", " ") },
        { title: "bound", isNumber: true, value: (one) => count(one.amount) },
        { title: "", value: (one) => button("Take away", remove(one), { "aria-label": `Take away the row of ${one.subject} about ${one.kind}`, "data-key": `quota ${one.subject} ${one.kind}` }) },
      ],
      found.quotas,
      "no rows: the defaults of the settings count",
    ),
    pages(after_subject && "#/access/quotas", found.quotas.length === PER_PAGE && `#/access/quotas/${[subject, last.subject, last.kind].map(encodeURIComponent).join("/")}`),
    h("h2", {}, "Set one"),
    h(
      "form",
      { class: "bar", submit: set },
      h("label", {}, "User or group", h("input", { name: "who", required: true, value: subject })),
      h("label", {}, "Quota", h("select", { name: "kind" }, KINDS.map((one) => h("option", { value: one }, one.replaceAll("_", " "))))),
      h("label", {}, "Bound (empty takes the row away)", h("input", { name: "amount", type: "number", min: "0" })),
      h("button", {}, "Set"),
    ),
  ];
}

async function rows(page, after) {
  const [after_path = "", after_subject = ""] = after;
  const found = await page.link.call("ListGrants", { after_path, after_subject });
  const add = async (event) => {
    event.preventDefault();
    const { path, subject, letters, kind } = Object.fromEntries(new FormData(event.target));
    if (await page.ask(`${kind === "denies" ? "Deny" : "Grant"} ${letters} at ${path} to ${subject}?`)) {
      page.change("AddGrant", { path, subject, [kind]: letters }, "in force");
    }
  };
  const remove = (one) => async () => {
    if (await page.ask(`Remove the row of ${one.subject} at ${one.path}? What runs by it ends.`)) {
      page.change("RemoveGrant", { path: one.path, subject: one.subject }, "removed");
    }
  };
  const last = found.grants.at(-1);
  return [
    head("Rows of rights", `One tree of paths for queues, topics, groups, records and values. ${LETTERS} A denial beats a grant at the same path.`),
    table(
      "Rows of rights",
      [
        { title: "path", isName: true, value: (one) => one.path },
        { title: "subject", isName: true, value: (one) => one.subject },
        { title: "grants", value: (one) => one.grants || "–" },
        { title: "denies", value: (one) => (one.denies ? badge(one.denies, "bad") : "–") },
        { title: "made by", isName: true, value: (one) => one.made_by },
        { title: "", value: (one) => button("Remove", remove(one), { "aria-label": `Remove the row of ${one.subject} at ${one.path}`, "data-key": `row ${one.path} ${one.subject}` }) },
      ],
      found.grants,
    ),
    pages(after_path && "#/access/rows", found.grants.length === PER_PAGE && `#/access/rows/${encodeURIComponent(last.path)}/${encodeURIComponent(last.subject)}`),
    h("h2", {}, "Add one"),
    h(
      "form",
      { class: "bar", submit: add },
      h("label", {}, "Path", h("input", { name: "path", required: true, pattern: "/.*", value: "/topics/" })),
      h("label", {}, "User or group", h("input", { name: "subject", required: true })),
      h("label", {}, "Letters", h("input", { name: "letters", required: true, size: "8", value: "sl" })),
      h("label", {}, "Kind", h("select", { name: "kind" }, h("option", { value: "grants" }, "grant"), h("option", { value: "denies" }, "deny"))),
      h("button", {}, "Add"),
    ),
  ];
}

const AUDIT_FIELDS = ["since", "principal", "verdict", "path"];

async function audit({ link }, [file = "0", offset = "0", ...given]) {
  const wanted = Object.fromEntries(AUDIT_FIELDS.map((name, at) => [name, given[at] ?? ""]));
  const found = await link.call("ReadAudit", { file: Number(file), offset: Number(offset), ...wanted });
  const lines = found.lines.map((line) => parsed(new TextDecoder().decode(fromBase64(line))));
  const narrow = (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    location.hash = `#/access/audit/0/0/${AUDIT_FIELDS.map((name) => encodeURIComponent(fields.get(name))).join("/")}`;
  };
  const behind = AUDIT_FIELDS.map((name) => encodeURIComponent(wanted[name])).join("/");
  return [
    head("Audit", "Who did what, and what was refused, the oldest first. Looks into messages are written down before they are answered."),
    h(
      "form",
      { class: "bar", submit: narrow },
      h("label", {}, "Since (as 2026-11-19T12)", h("input", { name: "since", value: wanted.since, size: "20" })),
      h("label", {}, "Who", h("input", { name: "principal", value: wanted.principal })),
      h("label", {}, "Verdict", h("input", { name: "verdict", value: wanted.verdict, size: "12" })),
      h("label", {}, "Path", h("input", { name: "path", value: wanted.path })),
      h("button", {}, "Show"),
    ),
    table(
      "Lines of the audit",
      [
        { title: "time (UTC)", value: (one) => String(one.time ?? "").replace("T", " ").slice(0, 19) },
        { title: "who", isName: true, value: (one) => String(one.principal ?? "") },
        { title: "act", value: (one) => String(one.act ?? "") },
        { title: "verdict", value: (one) => badge(String(one.verdict ?? ""), one.verdict === "granted" ? "" : "bad") },
        { title: "path", isName: true, value: (one) => String(one.path ?? "") },
        { title: "all of it", value: (one) => h("details", {}, h("summary", {}, "show"), h("pre", { tabindex: "0" }, Object.entries(one).map(([name, value]) => h("div", {}, `${name}: ${JSON.stringify(value)}`)))) },
      ],
      lines,
      "nothing of that",
    ),
    pages((file !== "0" || offset !== "0") && `#/access/audit/0/0/${behind}`, !found.is_end && `#/access/audit/${found.file}/${found.offset}/${behind}`),
  ];
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return { all: line };
  }
}

export const access = {
  title: "Access",
  of: ([what]) => ({ rows: "cluster", audit: "node" })[what] ?? "Rights of the whole cluster; what is used of quotas, at this node",
  async draw(page, [what, ...rest]) {
    const links = [["", "You"], ["rows", "Rows of rights"], ["quotas", "Quotas"], ["audit", "Audit"]];
    const shown = { rows, quotas, audit }[what]?.(page, rest) ?? own(page);
    return [
      h("nav", { class: "tabs", "aria-label": "Access" }, links.map(([name, title]) => h("a", { href: `#/access/${name}`, "aria-current": name === (what ?? "") ? "page" : null }, title))),
      await shown,
    ];
  },
};
