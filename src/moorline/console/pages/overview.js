// All nodes, how this one is, and its figures over time.

import { badge, bytes, chart, count, h, head, many, rate, span, table } from "./draw.js";

const EVERY_MS = 2_000;
const POINTS = 150; // five minutes
const LATELY = 8; // looks over which a share of the commits is taken
const RATES = [
  ["Sent to queues", "moorline_messages_stored_total"],
  ["Delivered from queues", "moorline_messages_delivered_total"],
  ["Published to topics", "moorline_topic_messages_published_total"],
  ["Delivered from topics", "moorline_topic_messages_delivered_total"],
];
const TIMES = [
  ["Queue commits, 99 % within", "moorline_queue_commit_seconds"],
  ["Stream commits, 99 % within", "moorline_stream_commit_seconds"],
];

const history = [];

/** The samples of the node's figures, by name with labels. */
async function figures() {
  const answer = await fetch("../metrics");
  const found = new Map();
  for (const line of (await answer.text()).split("\n")) {
    const cut = line.lastIndexOf(" ");
    if (line && line[0] !== "#") found.set(line.slice(0, cut), Number(line.slice(cut + 1)));
  }
  return found;
}

/** How much a figure grew by the second between each two looks. */
function growth(name) {
  const made = [];
  for (let at = 1; at < history.length; at++) {
    const [before, after] = [history[at - 1], history[at]];
    const grown = (after.found.get(name) ?? 0) - (before.found.get(name) ?? 0);
    made.push(Math.max(0, (grown * 1_000) / (after.ms - before.ms)));
  }
  return made;
}

/** Of the times of a histogram between two looks: within how many milliseconds 99 of 100 were. */
function slowest(name, before, after) {
  const start = `${name}_bucket{le="`;
  const grown = [];
  for (const [sample, value] of after.found) {
    if (sample.startsWith(start)) {
      grown.push([Number(sample.slice(start.length, -2).replace("+Inf", "Infinity")), value - (before.found.get(sample) ?? 0)]);
    }
  }
  grown.sort(([a], [b]) => a - b);
  const all = grown.at(-1)?.[1] ?? 0;
  if (all <= 0) return 0;
  const [most] = grown.find(([, upto]) => upto >= 0.99 * all);
  return Number.isFinite(most) ? most * 1_000 : 2_000;
}

function slowests(name) {
  return history.slice(1).map((after, at) => slowest(name, history[Math.max(0, at + 1 - LATELY)], after));
}

function health(one) {
  if (one.is_alive) return badge("alive", "good");
  return badge(one.silent_ms === null ? "never served" : `silent for ${span(one.silent_ms)}`, "bad");
}

/** The page of another node; who looks there proves itself there. */
function pageOf(one, here) {
  const name = one.name === one.home ? one.name : `${one.name} (home ${one.home})`;
  const isWeb = /^https?:\/\/[\w.:[\]-]+$/.test(one.http);
  if (one.home === here || !isWeb || !one.is_alive) return name;
  return h("a", { href: `${one.http}/console/`, rel: "noreferrer" }, name);
}

export const overview = {
  title: "Overview",
  everyMs: EVERY_MS,
  async draw({ link }) {
    const [about, nodes, found] = await Promise.all([link.call("Describe"), link.call("ListNodes"), figures()]);
    history.push({ ms: performance.now(), found });
    if (history.length > POINTS) history.shift();
    const value = (name) => found.get(`moorline_${name}`) ?? 0;
    const cards = [
      ["queues", count(value("queues")), "queues"],
      ["connections", count(value("connections") + value("websockets"))],
      ["groups led", count(value("groups_led")), "groups"],
      ["behind, in groups", count(value("group_lag")), "groups"],
      ["paths", count(value("resolver_paths")), "paths"],
      ["tables followed", count(value("records_tables")), "records"],
      ["memory", bytes(found.get("process_resident_memory_bytes") ?? 0)],
      ["up for", span(about.uptime_ms)],
    ];
    const ago = history.length > 2 ? span(performance.now() - history[0].ms) : "";
    const away = nodes.nodes.filter((one) => !one.is_alive).length;
    return [
      head(about.node, `A node of Moorline ${about.software.split("/").at(-1)}, with the roles ${about.roles.join(", ")}.`),
      about.warnings.length
        ? about.warnings.map((text) => h("p", { class: "verdict warn" }, text))
        : h("p", { class: "verdict good" }, away ? `This node is well; ${many(away, "other node is away", "other nodes are away")}.` : "This node is well."),
      h(
        "div",
        { class: "cards" },
        cards.map(([name, text, view]) => h(view ? "a" : "div", { class: "card", href: view ? `#/${view}` : null }, h("strong", {}, text), h("span", {}, name))),
      ),
      h("h2", {}, "Since this page was opened"),
      h(
        "div",
        { class: "charts" },
        RATES.map(([title, name]) => {
          const points = growth(name);
          return chart(title, points, rate(points.at(-1) ?? 0), ago);
        }),
        TIMES.map(([title, name]) => {
          const points = slowests(name);
          return chart(title, points, `${points.at(-1) ?? 0} ms`, ago);
        }),
      ),
      h("h2", {}, "Nodes"),
      table(
        "Nodes of the cluster",
        [
          { title: "node", isName: true, value: (one) => pageOf(one, about.home) },
          { title: "health", value: health },
          { title: "roles", value: (one) => one.roles.join(", ") },
          { title: "leads groups", isNumber: true, value: (one) => count(one.groups_led) },
          { title: "version", value: (one) => one.version },
          { title: "clock ahead", isNumber: true, value: (one) => (one.clock_ahead_ms === null ? "–" : `${one.clock_ahead_ms} ms`) },
          { title: "addresses", isName: true, value: (one) => one.addresses.join(" ") },
        ],
        nodes.nodes,
      ),
      nodes.is_last ? null : h("p", { class: "empty" }, `the first ${nodes.nodes.length} nodes`),
    ];
  },
};
