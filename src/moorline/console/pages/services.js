// Services: what each side means, and whether both mean the same.

import { badge, bytes, button, count, facts, h, head, many, moment, pages, table } from "./draw.js";
import { fromBase64 } from "./link.js";
import { nameOf } from "./queues.js";

const PER_PAGE = 64;

const hex = (encoded) => [...fromBase64(encoded)].map((one) => one.toString(16).padStart(2, "0")).join("");
const short = (hash) => h("code", { title: hex(hash) }, hex(hash).slice(0, 16));

function states(one) {
  if (one.is_disabled) return badge("disabled", "warn");
  return one.is_subscribed ? badge("subscribed", "good") : badge("away");
}

async function list({ list }, skip) {
  const page = await list("ListServices", { skip, count: PER_PAGE });
  return [
    head("Services", "A service is subscribed to many queues at once. Its own side and the node each keep a digest of that set: comparing costs 48 bytes, and repairing costs in proportion to what differs."),
    table(
      "Services",
      [
        { title: "service", isName: true, value: (one) => h("a", { href: `#/services/one/${nameOf(one.id)}` }, one.name || nameOf(one.id)) },
        { title: "state", value: states },
        { title: "queues", isNumber: true, value: (one) => count(one.count) },
        { title: "digest", value: (one) => short(one.hash) },
        { title: "made (UTC)", value: (one) => moment(one.created_s * 1e6) },
      ],
      page.services,
      "none yet: a client with a certificate that opens a service makes one",
    ),
    pages(skip > 0 && "#/services", skip + page.services.length < page.total && `#/services/from/${skip + PER_PAGE}`),
  ];
}

function verdict(found, isKept) {
  if (!isKept) return h("p", { class: "verdict bad" }, "The digest that the node keeps is not that of its own associations: mend it.");
  if (!found.told_us) return h("p", { class: "verdict" }, "The service has not told its digest to this node since the node began: it compares when it connects.");
  const isEqual = found.told_count === found.answered_count && found.told_hash === found.answered_hash;
  if (isEqual) return h("p", { class: "verdict good" }, `Both sides meant the same ${many(found.told_count, "queue")} when they compared at ${moment(found.told_us)} UTC.${found.facts.count === found.told_count ? "" : ` Since then queues have come or gone: the node has ${count(found.facts.count)}.`}`);
  const differ = "when the service compared at";
  return h("p", { class: "verdict warn" }, `The two sides differed ${differ} ${moment(found.told_us)} UTC. The service repairs that by itself; “Compare and repair” asks it to prove it now.`);
}

// What came of the last agreement that was asked for here, by service: it stays until another one.
const agreed = new Map();

async function agree(page, service) {
  if (!(await page.ask(`Ask ${service} to compare its own list with its nodes now, and to repair what differs?`))) return;
  page.tell("asked; the service compares …", true);
  try {
    agreed.set(service, { at: moment(Date.now() * 1_000), ...(await page.link.call("AgreeService", { service })).agreement });
    page.tell("both sides agree", true);
  } catch (error) {
    page.tell(`${error.code ?? "ERROR"}: ${error.message}`);
  }
  page.drawAnew();
}

function outcome(found) {
  if (!found) return null;
  const changes = found.associated + found.dissociated;
  return [
    h("h2", {}, "What the repair took"),
    facts([
      ["at (UTC)", found.at],
      ["bytes sent", bytes(found.bytes_sent)],
      ["bytes received", bytes(found.bytes_received)],
      ["rounds", count(found.rounds)],
      ["queues that differed", count(changes)],
      ["associated", count(found.associated)],
      ["taken out", count(found.dissociated)],
      ["refused by the node", count(found.lost)],
      ["proven by both sides", h("span", {}, `${many(found.count, "queue")}, `, short(found.hash))],
      ["homes that were away", found.away.join(", ") || "none"],
    ]),
  ];
}

async function one(page, service) {
  const found = await page.live(`services/${service}`);
  const isKept = found.facts.count === found.recomputed_count && found.facts.hash === found.recomputed_hash;
  const mend = async () => {
    if (!(await page.ask(`Compute the kept digest of ${service} anew from its associations?`))) return;
    try {
      const made = await page.link.call("RecomputeService", { service });
      page.tell(`${made.wrong_buckets} of 256 buckets were wrong; ${made.wrong_hashes} hashes; ${count(made.count)} queues now`, true);
    } catch (error) {
      page.tell(`${error.code ?? "ERROR"}: ${error.message}`);
    }
    page.drawAnew();
  };
  const change = async () => {
    const wanted = !found.facts.is_disabled;
    if (await page.ask(`${wanted ? "Disable" : "Enable"} ${service}?${wanted ? "\nIts sessions end." : ""}`)) {
      page.change("SwitchService", { service, is_disabled: wanted }, "done");
    }
  };
  const told = found.told_us
    ? [
        [`the service's own list, as it said at ${moment(found.told_us)} UTC`, found.told_count, found.told_hash],
        ["the node's, at that moment", found.answered_count, found.answered_hash],
      ]
    : [];
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/services" }, "Services")),
    h("div", { class: "head" }, h("h1", {}, found.facts.name || service)),
    verdict(found, isKept),
    table(
      "The digests",
      [
        { title: "whose", isName: true, value: (row) => row[0] },
        { title: "queues", isNumber: true, value: (row) => count(row[1]) },
        { title: "digest", isName: true, value: (row) => h("code", {}, hex(row[2])) },
      ],
      [
        ...told,
        ["the node's, kept", found.facts.count, found.facts.hash],
        ["the node's, computed now from all associations", found.recomputed_count, found.recomputed_hash],
      ],
    ),
    h(
      "div",
      { class: "bar" },
      button("Compare and repair", () => agree(page, service), { class: "strong", disabled: !found.can_agree, title: found.can_agree ? null : "the service is not subscribed at this node, or its client is older" }),
      button("Mend the kept digest", mend),
      button(found.facts.is_disabled ? "Enable" : "Disable", change, { class: found.facts.is_disabled ? null : "danger" }),
    ),
    outcome(agreed.get(service)),
    h("h2", {}, "More"),
    facts([
      ["state", states(found.facts)],
      ["sessions at this node", count(found.sessions)],
      ["wrong buckets", count(found.wrong_buckets.length)],
      ["associations whose hash is wrong", count(found.wrong_hashes)],
      ["associations of queues that are not there", count(found.absent)],
      ["certificate", hex(found.facts.fingerprint) || "none"],
    ]),
  ];
}

export const services = {
  title: "Services",
  of: (rest) => (rest[0] === "one" ? "Associations of the whole cluster; sessions, and what the service said, of this node" : "Of the whole cluster; who is subscribed, of this node"),
  draw: (page, [what, name]) => (what === "one" ? one(page, name) : list(page, what === "from" ? Number(name) || 0 : 0)),
};
