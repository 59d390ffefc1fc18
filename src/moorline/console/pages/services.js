// Services: what each side means, and whether both mean the same.

import { badge, button, count, facts, h, moment, table } from "./draw.js";
import { fromBase64 } from "./link.js";
import { nameOf } from "./queues.js";

const PER_PAGE = 64;

const hex = (bytes) => [...fromBase64(bytes)].map((one) => one.toString(16).padStart(2, "0")).join("");
const short = (hash) => h("code", { title: hex(hash) }, hex(hash).slice(0, 16));

function states(one) {
  if (one.is_disabled) return badge("disabled", "warn");
  return one.is_subscribed ? badge("subscribed", "good") : badge("away");
}

async function list({ link }, skip) {
  const page = await link.call("ListServices", { skip, count: PER_PAGE });
  return [
    h("h1", {}, "Services"),
    h("p", { class: "empty" }, `${count(page.total)} that you may see`),
    table(
      "Services",
      [
        { title: "service", isName: true, value: (one) => h("a", { href: `#/services/one/${nameOf(one.id)}` }, one.name || nameOf(one.id)) },
        { title: "state", value: states },
        { title: "queues", isNumber: true, value: (one) => count(one.count) },
        { title: "digest", value: (one) => short(one.hash) },
        { title: "made", value: (one) => moment(one.created_s * 1e6) },
      ],
      page.services,
    ),
    h(
      "p",
      { class: "bar" },
      skip > 0 && h("a", { href: `#/services/from/${Math.max(0, skip - PER_PAGE)}` }, "Previous page"),
      skip + page.services.length < page.total && h("a", { href: `#/services/from/${skip + PER_PAGE}` }, "Next page"),
    ),
  ];
}

async function one(page, service) {
  const found = await page.link.call("DescribeService", { service });
  const isEqual = found.facts.count === found.recomputed_count && found.facts.hash === found.recomputed_hash;
  const recompute = async () => {
    if (!(await page.ask(`Compute the kept digest of ${service} anew from its associations?`))) return;
    try {
      const made = await page.link.call("RecomputeService", { service });
      page.tell(`${made.wrong_buckets} of 256 buckets were wrong; ${made.wrong_hashes} hashes; ${count(made.count)} queues now`, true);
    } catch (error) {
      page.tell(`${error.code ?? "ERROR"}: ${error.message}`);
    }
    page.draw();
  };
  const change = async () => {
    const wanted = !found.facts.is_disabled;
    if (await page.ask(`${wanted ? "Disable" : "Enable"} ${service}?${wanted ? " Its sessions end." : ""}`)) {
      page.change("SwitchService", { service, is_disabled: wanted }, "done");
    }
  };
  return [
    h("h1", {}, found.facts.name || service),
    h("p", {}, isEqual ? badge("the kept digest is that of the associations", "good") : badge("the kept digest is wrong: repair it", "bad")),
    table(
      "Both digests",
      [
        { title: "", value: (row) => row[0] },
        { title: "queues", isNumber: true, value: (row) => count(row[1]) },
        { title: "digest", isName: true, value: (row) => h("code", {}, hex(row[2])) },
      ],
      [
        ["kept, and compared with the client's", found.facts.count, found.facts.hash],
        ["computed now from the associations", found.recomputed_count, found.recomputed_hash],
      ],
    ),
    h("h2", {}, "More"),
    facts([
      ["state", states(found.facts)],
      ["sessions", count(found.sessions)],
      ["wrong buckets", count(found.wrong_buckets.length)],
      ["associations whose hash is wrong", count(found.wrong_hashes)],
      ["associations of queues that are not there", count(found.absent)],
      ["certificate", hex(found.facts.fingerprint) || "none"],
    ]),
    h("div", { class: "bar" }, button("Repair the kept digest", recompute), button(found.facts.is_disabled ? "Enable" : "Disable", change)),
  ];
}

export const services = {
  title: "Services",
  everyMs: 5_000,
  draw: (page, [what, name]) => (what === "one" ? one(page, name) : list(page, what === "from" ? Number(name) || 0 : 0)),
};
