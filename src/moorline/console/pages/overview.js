// The cluster at a glance: all nodes and how they are, and what they do, together or one by one.

import { badge, bytes, chart, count, h, head, many, rate, span, table } from "./draw.js";
import { figuresOf, together, total } from "./figures.js";
import { CallFailed } from "./link.js";

const NODES_WATCHED_MAX = 32;
const ANSWER_MS = 1_500; // so long the others wait for a node that hangs
const RATES = ["Sent to queues", "Delivered from queues", "Published to topics", "Delivered from topics"];
const TIMES = ["Queue commits, 99 % within", "Stream commits, 99 % within"];

/** A node with what it says of itself; why not, where it cannot be asked. */
async function seen(page, node) {
  try {
    const late = new Promise((_, reject) => setTimeout(() => reject(new CallFailed("LATE", "no answer yet")), ANSWER_MS));
    const [about, figures] = await Promise.race([Promise.all([page.live(`nodes/${node.home}`), figuresOf(page, node.home)]), late]);
    return { node, about, figures };
  } catch (error) {
    return { node, why: `${error.code ?? "ERROR"}: ${error.message}` };
  }
}

function health({ node, about, why }) {
  if (!node.is_alive) return badge(node.silent_ms === null ? "never served" : `silent for ${span(node.silent_ms)}`, "bad");
  if (why) return badge("not asked", "warn");
  if (about?.warnings.length) return badge(many(about.warnings.length, "problem"), "warn");
  return badge("alive", "good");
}

/** The page of another node; who looks there proves itself there. */
function pageOf(one, here) {
  const name = one.name === one.home ? one.name : `${one.name} (home ${one.home})`;
  const isWeb = /^https?:\/\/[\w.:[\]-]+$/.test(one.http);
  if (one.home === here) return [name, " ", badge("serves this page")];
  if (!isWeb || !one.is_alive) return name;
  return h("a", { href: `${one.http}/console/`, rel: "noreferrer" }, name);
}

function verdicts(all) {
  const troubles = all.flatMap(({ node, about, why }) => {
    if (why) return [[node.name, `cannot be asked how it is (${why})`]];
    return (about?.warnings ?? []).map((text) => [node.name, text]);
  });
  const away = all.filter(({ node }) => !node.is_alive).map(({ node }) => node.name);
  if (away.length) troubles.unshift([away.join(", "), away.length === 1 ? "is away" : "are away"]);
  if (!troubles.length) return h("p", { class: "verdict good" }, all.length === 1 ? "This node is well." : `All ${all.length} nodes are well.`);
  return troubles.map(([name, text]) => h("p", { class: "verdict warn" }, h("strong", {}, name), ` ${text}`));
}

function cards(all, asked) {
  const figures = asked.map((one) => one.figures);
  const alive = all.filter(({ node }) => node.is_alive).length;
  const found = [
    ["nodes alive", `${alive} of ${all.length}`],
    ["queues", count(total(figures, "queues")), "queues"],
    ["connections", count(total(figures, "connections"))],
    ["groups led", count(total(figures, "groups_led")), "groups"],
    ["behind, in groups", count(total(figures, "group_lag")), "groups"],
    // Every resolver has all of them.
    ["paths", count(Math.max(0, ...figures.map((one) => one.now.paths))), "paths"],
    ["tables followed", count(total(figures, "tables")), "records"],
    ["memory", bytes(total(figures, "memory_bytes"))],
  ];
  return h(
    "div",
    { class: "cards" },
    found.map(([name, text, view]) => h(view ? "a" : "div", { class: "card", href: view ? `#/${view}` : null }, h("strong", {}, text), h("span", {}, name))),
  );
}

function plots(asked) {
  const { sum, worst, stepMs, length } = together(asked.map((one) => one.figures));
  const ago = length > 1 ? `${span((length - 1) * stepMs)} ago` : "";
  return h(
    "div",
    { class: "charts" },
    RATES.map((title, at) => {
      const points = sum(at);
      return chart(title, points, rate(points.at(-1) ?? 0), ago);
    }),
    TIMES.map((title, at) => {
      const points = worst(RATES.length + at);
      return chart(title, points, `${points.at(-1) ?? 0} ms`, ago);
    }),
  );
}

/** Which nodes the figures are of: a choice where there are several. */
function choice(all, chosen) {
  if (all.length < 2) return null;
  const link = (home, text) => h("a", { href: home ? `#//${encodeURIComponent(home)}` : "#/", "aria-current": home === chosen ? "page" : null }, text);
  return h("nav", { class: "tabs", "aria-label": "Figures of which nodes" }, link("", "All nodes"), all.map(({ node }) => link(node.home, node.name)));
}

/** The node tells it in steps of ten seconds. */
const upFor = (ms) => (ms ? span(ms) : "some seconds");

function nodesTable(all, here) {
  const now = (one, at) => (one.figures ? rate(one.figures.series[at].at(-1) ?? 0) : "–");
  return table(
    "Nodes of the cluster",
    [
      { title: "node", isName: true, value: (one) => h("div", {}, pageOf(one.node, here), h("div", { class: "small" }, `${one.node.version.split("/").at(-1)}: ${one.node.roles.join(", ")}`), h("div", { class: "small" }, one.node.addresses.join(" "))) },
      { title: "health", value: health },
      { title: "sent to queues", isNumber: true, value: (one) => now(one, 0) },
      { title: "published", isNumber: true, value: (one) => now(one, 2) },
      { title: "connections", isNumber: true, value: (one) => (one.about ? count(one.figures.now.connections) : "–") },
      { title: "leads groups", isNumber: true, value: ({ node }) => count(node.groups_led) },
      { title: "up for", isNumber: true, value: (one) => (one.about ? upFor(one.about.uptime_ms) : "–") },
      { title: "clock ahead", isNumber: true, value: ({ node }) => (node.clock_ahead_ms === null ? "–" : `${node.clock_ahead_ms} ms`) },
    ],
    all,
  );
}

export const overview = {
  title: "Overview",
  async draw(page, [chosen = ""]) {
    const here = page.link.welcome.home;
    const listed = await page.live("nodes");
    const some = listed.nodes.filter((one) => one.is_alive).slice(0, NODES_WATCHED_MAX);
    const asked = await Promise.all(some.map((one) => seen(page, one)));
    const byHome = new Map(asked.map((one) => [one.node.home, one]));
    const all = listed.nodes.map((node) => byHome.get(node.home) ?? { node });
    const heard = asked.filter((one) => one.figures && (!chosen || one.node.home === chosen));
    const one = all.find(({ node }) => node.home === chosen);
    const isOne = all.length === 1;
    const left = all.filter(({ node, figures }) => node.is_alive && !figures).length;
    const whose = one ? `of ${one.node.name} alone` : isOne ? "" : `of ${many(heard.length, "node")} together`;
    return [
      head(
        isOne ? all[0].node.name : `A cluster of ${all.length} nodes`,
        isOne ? `A node of Moorline ${all[0].node.version.split("/").at(-1)}, with the roles ${all[0].node.roles.join(", ")}.` : `This page is served by ${page.link.welcome.node}.`,
      ),
      verdicts(all),
      choice(all, chosen),
      whose && h("p", { class: "scope" }, `Figures ${whose}`, left && !one ? `; ${many(left, "node")} not counted` : ""),
      heard.length ? [cards(all, heard), h("h2", {}, "The last minutes"), plots(heard)] : h("p", { class: "empty" }, "no figures: it cannot be asked now"),
      h("h2", {}, "Nodes"),
      nodesTable(all, here),
      listed.is_last ? null : h("p", { class: "empty" }, `the first ${listed.nodes.length} nodes`),
    ];
  },
};
