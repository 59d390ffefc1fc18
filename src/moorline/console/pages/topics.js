// Topics that have messages, and the streams of this node's disk.

import { badge, bytes, count, h, moment, table } from "./draw.js";

const PER_PAGE = 200;
const STREAMS_SHOWN = 500;

export const topics = {
  title: "Topics",
  everyMs: 0,
  async draw({ link }, [after = "", filter = "#"]) {
    const [page, found] = await Promise.all([
      link.call("ListTopics", { after, filter, count: PER_PAGE }),
      link.call("DescribeStreams"),
    ]);
    const find = (event) => {
      event.preventDefault();
      location.hash = `#/topics//${encodeURIComponent(new FormData(event.target).get("filter") || "#")}`;
    };
    const streams = found.streams.slice(0, STREAMS_SHOWN);
    return [
      h("h1", {}, "Topics"),
      h("form", { class: "bar", submit: find }, h("label", {}, "Filter", h("input", { name: "filter", value: filter })), h("button", {}, "Show")),
      table("Topics", [
          { title: "topic", isName: true, value: ([topic]) => h("a", { href: `#/messages/${encodeURIComponent(topic)}` }, topic) },
          { title: "messages", isNumber: true, value: ([, messages]) => count(messages) },
        ], page.topics),
      page.topics.length === PER_PAGE &&
        h("p", { class: "bar" }, h("a", { href: `#/topics/${encodeURIComponent(page.topics.at(-1)[0])}/${encodeURIComponent(filter)}` }, "Next page")),
      h("h2", {}, "Streams"),
      h("p", { class: "empty" }, `${count(found.dropped_messages)} messages dropped by retention; ${count(found.lost_messages)} lost to damage`),
      table(
        "Streams",
        [
          { title: "home", isName: true, value: (one) => one.node },
          { title: "shard", isNumber: true, value: (one) => one.shard },
          { title: "generation", isNumber: true, value: (one) => one.generation },
          { title: "messages", isNumber: true, value: (one) => count(one.end - one.first) },
          { title: "size", isNumber: true, value: (one) => bytes(one.size_bytes) },
          { title: "from", value: (one) => moment(one.first_time_us) },
          { title: "to", value: (one) => moment(one.last_time_us) },
          { title: "state", value: (one) => (one.is_sealed ? badge("sealed", "good") : badge("written")) },
        ],
        streams,
      ),
      found.streams.length > streams.length && h("p", { class: "empty" }, `the first ${streams.length} of ${found.streams.length}`),
    ];
  },
};
