// Who looks and what that one may do; rows of rights, quotas, and the audit.

import { badge, button, count, facts, h, moment, table } from "./draw.js";
import { fromBase64 } from "./link.js";

async function own({ link }) {
  const [me, quotas] = await Promise.all([link.call("WhoAmI"), link.call("DescribeQuotas")]);
  return [
    h("h1", {}, me.principal),
    facts([
      ["proof", me.proof],
      ["groups of users", me.groups.join(", ") || "none"],
      ["until", me.expires_us ? moment(me.expires_us) : "the connection ends"],
    ]),
    h("h2", {}, "What you may do"),
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
    table(
      "Quotas",
      [
        { title: "quota", value: (one) => one.quota },
        { title: "used", isNumber: true, value: (one) => count(one.used) },
        { title: "bound", isNumber: true, value: (one) => (one.bound === null ? "none" : count(one.bound)) },
      ],
      quotas.usage,
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
    h("h1", {}, "Rows of rights"),
    table(
      "Rows of rights",
      [
        { title: "path", isName: true, value: (one) => one.path },
        { title: "subject", isName: true, value: (one) => one.subject },
        { title: "grants", value: (one) => one.grants || "–" },
        { title: "denies", value: (one) => (one.denies ? badge(one.denies, "bad") : "–") },
        { title: "made by", isName: true, value: (one) => one.made_by },
        { title: "", value: (one) => button(`Remove ${one.path} ${one.subject}`, remove(one)) },
      ],
      found.grants,
    ),
    found.grants.length === 256 &&
      h("p", { class: "bar" }, h("a", { href: `#/access/rows/${encodeURIComponent(last.path)}/${encodeURIComponent(last.subject)}` }, "Next page")),
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

async function audit({ link }, [file = "0", offset = "0"]) {
  const found = await link.call("ReadAudit", { file: Number(file), offset: Number(offset) });
  const lines = found.lines.map((line) => (parsed(new TextDecoder().decode(fromBase64(line)))));
  return [
    h("h1", {}, "Audit"),
    table(
      "Lines of the audit",
      [
        { title: "time", value: (one) => String(one.time ?? "") },
        { title: "who", isName: true, value: (one) => String(one.principal ?? "") },
        { title: "act", value: (one) => String(one.act ?? "") },
        { title: "verdict", value: (one) => badge(String(one.verdict ?? ""), one.verdict === "granted" ? "" : "bad") },
        { title: "path", isName: true, value: (one) => String(one.path ?? "") },
        { title: "all of it", isName: true, value: (one) => h("code", {}, JSON.stringify(one)) },
      ],
      lines,
    ),
    !found.is_end && h("p", { class: "bar" }, h("a", { href: `#/access/audit/${found.file}/${found.offset}` }, "Later lines")),
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
  everyMs: 0,
  async draw(page, [what, ...rest]) {
    const links = [["", "You"], ["rows", "Rows of rights"], ["audit", "Audit"]];
    const shown = what === "rows" ? rows(page, rest) : what === "audit" ? audit(page, rest) : own(page);
    return [
      h("p", { class: "bar" }, links.map(([name, title]) => h("a", { href: `#/access/${name}`, "aria-current": name === (what ?? "") ? "page" : null }, title))),
      await shown,
    ];
  },
};
