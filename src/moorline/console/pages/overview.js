// All nodes, how this one is, and its figures over time.

import { badge, bytes, chart, count, h, rate, span, table } from "./draw.js";

const POINTS = 150; // five minutes
const RATES = [
  ["Sent to queues", "moorline_messages_stored_total"],
  ["Delivered from queues", "moorline_messages_delivered_total"],
  ["Published to topics", "moorline_topic_messages_published_total"],
  ["Delivered from topics", "moorline_topic_messages_delivered_total"],
];
const TIMES = [
  ["Commit of queues, mean", "moorline_queue_commit_seconds"],
  ["Commit of streams, mean", "moorline_stream_commit_seconds"],
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

function means(name) {
  const sums = growth(`${name}_sum`);
  const counts = growth(`${name}_count`);
  return sums.map((sum, at) => (counts[at] ? (sum / counts[at]) * 1_000 : 0));
}

function node(one) {
  if (one.is_alive) return badge("alive", "good");
  return badge(one.silent_ms === null ? "never served" : `silent for ${span(one.silent_ms)}`, "bad");
}

export const overview = {
  title: "Overview",
  everyMs: 2_000,
  async draw({ link }) {
    const [about, nodes, found] = await Promise.all([link.call("Describe"), link.call("ListNodes"), figures()]);
    history.push({ ms: performance.now(), found });
    if (history.length > POINTS) history.shift();
    const value = (name) => found.get(`moorline_${name}`) ?? 0;
    const cards = [
      ["queues", count(value("queues"))],
      ["connections", count(value("connections") + value("websockets"))],
      ["groups led here", count(value("groups_led"))],
      ["lag of groups", count(value("group_lag"))],
      ["paths at the resolver", count(value("resolver_paths"))],
      ["record tables", count(value("records_tables"))],
      ["memory", bytes(found.get("process_resident_memory_bytes") ?? 0)],
      ["up for", span(about.uptime_ms)],
    ];
    return [
      h("h1", {}, about.node),
      about.warnings.map((text) => h("p", { class: "badge warn" }, text)),
      h("div", { class: "cards" }, cards.map(([name, text]) => h("div", { class: "card" }, h("strong", {}, text), h("span", {}, name)))),
      h("h2", {}, "The last minutes"),
      h(
        "div",
        { class: "charts" },
        RATES.map(([title, name]) => {
          const points = growth(name);
          return chart(title, points, rate(points.at(-1) ?? 0));
        }),
        TIMES.map(([title, name]) => {
          const points = means(name);
          return chart(title, points, `${(points.at(-1) ?? 0).toFixed(2)} ms`);
        }),
      ),
      h("h2", {}, "Nodes"),
      table(
        "Nodes of the cluster",
        [
          { title: "node", isName: true, value: (one) => (one.name === one.home ? one.name : `${one.name} (home ${one.home})`) },
          { title: "state", value: node },
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
