// Topics that have messages, and the streams of this node's disk.

import { badge, bytes, count, empty, h, head, many, moment, pages, table } from "./draw.js";

const PER_PAGE = 100;
const STREAMS_SHOWN = 100;
const FIRST = "0";

async function topicsOf({ list }, after, filter) {
  const page = await list("ListTopics", { after, filter, count: PER_PAGE });
  const find = (event) => {
    event.preventDefault();
    location.hash = `#/topics//${encodeURIComponent(new FormData(event.target).get("filter") || "#")}`;
  };
  return [
    h("form", { class: "bar", submit: find }, h("label", {}, "Filter: + is one level, # is all that follow", h("input", { name: "filter", value: filter, size: "34" })), h("button", {}, "Show")),
    table(
      "Topics",
      [
        { title: "topic", isName: true, value: ([topic]) => h("a", { href: `#/messages/${encodeURIComponent(topic)}` }, topic) },
        { title: "messages", isNumber: true, value: ([, messages]) => count(messages) },
      ],
      page.topics,
    ),
    pages(
      after && `#/topics//${encodeURIComponent(filter)}`,
      page.topics.length === PER_PAGE && `#/topics/${encodeURIComponent(page.topics.at(-1)[0])}/${encodeURIComponent(filter)}`,
    ),
  ];
}

async function streamsOf({ list }, after) {
  const found = await list("DescribeStreams", { after, count: STREAMS_SHOWN });
  const { streams } = found;
  const last = streams.at(-1);
  return [
    empty(`${many(found.dropped_messages, "message")} dropped by retention, ${count(found.lost_messages)} lost to damage`),
    table(
      "Streams",
      [
        { title: "home", isName: true, value: (one) => one.node },
        { title: "shard", isNumber: true, value: (one) => one.shard },
        { title: "generation", isNumber: true, value: (one) => one.generation },
        { title: "messages", isNumber: true, value: (one) => count(one.end - one.first) },
        { title: "size", isNumber: true, value: (one) => bytes(one.size_bytes) },
        { title: "from (UTC)", value: (one) => moment(one.first_time_us) },
        { title: "to (UTC)", value: (one) => moment(one.last_time_us) },
        { title: "state", value: (one) => (one.is_sealed ? badge("sealed", "good") : badge("being written")) },
      ],
      streams,
    ),
    pages(after[0] >= 0 && `#/topics/streams/${FIRST}`, streams.length === STREAMS_SHOWN && `#/topics/streams/${last.shard}.${last.generation}`),
  ];
}

export const topics = {
  title: "Topics",
  of: "node",
  async draw(page, [after = "", filter = "#"]) {
    // A topic may be called so; then its page is asked for by what stands before it.
    const isStreams = after === "streams" && /^\d+(\.\d+)?$/.test(filter);
    const isHere = (wanted) => (isStreams === wanted ? "page" : null);
    return [
      head("Topics", "Durable and replayable, with many readers. A topic's messages lie in a stream of one shard; sealed streams have a digest that archives are proven against."),
      h(
        "nav",
        { class: "tabs", "aria-label": "Topics or streams" },
        h("a", { href: "#/topics", "aria-current": isHere(false) }, "Topics"),
        h("a", { href: `#/topics/streams/${FIRST}`, "aria-current": isHere(true) }, "Streams on this disk"),
      ),
      isStreams ? await streamsOf(page, filter === FIRST ? [-1, -1] : filter.split(".").map(Number)) : await topicsOf(page, after, filter),
    ];
  },
};
