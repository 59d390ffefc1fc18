// What is in the streams of this node: the messages of a filter, from a time on, newest streams last. The node
// looks; each answer is a bounded piece, and to stop is to ask no more.

import { body, download, FORMS } from "./bodies.js";
import { button, count, h, moment, shown } from "./draw.js";
import { fromBase64, toBase64 } from "./link.js";

const SHOWN_MAX = 500;

/** The streams that may have something from that time on, the oldest first, and where each is to be begun. */
async function streams(link, fromUs) {
  const found = await link.call("DescribeStreams");
  return found.streams
    .filter((one) => one.end > one.first && one.last_time_us >= fromUs)
    .sort((a, b) => a.first_time_us - b.first_time_us)
    .map((one) => ({ shard: one.shard, generation: one.generation, offset: one.first, end: one.end }));
}

/** Reads on until enough is found, all is read, or nobody wants more. Tells each step. */
async function look(link, wanted, isStopped, tell) {
  const found = [];
  let seen = 0;
  for (const one of await streams(link, wanted.fromUs)) {
    while (one.offset < one.end && found.length < wanted.count && !isStopped()) {
      const piece = await link.call("BrowseStream", {
        shard: one.shard,
        generation: one.generation,
        offset: one.offset,
        filters: [wanted.filter],
        contains: toBase64(wanted.contains),
        key: wanted.key === "" ? null : toBase64(wanted.key),
      });
      if (piece.upto <= one.offset) break;
      seen += piece.upto - one.offset;
      one.offset = piece.upto;
      const place = `${one.shard}/${one.generation}`;
      found.push(...piece.messages.filter((message) => message.time_us >= wanted.fromUs).map((message) => ({ ...message, place })));
      tell(found, seen);
    }
  }
  return [found.sort((a, b) => a.time_us - b.time_us).slice(0, wanted.count), seen];
}

function message(one, form) {
  const bytesOf = fromBase64(one.body);
  const key = one.key === null ? null : new TextDecoder().decode(fromBase64(one.key));
  const headers = one.headers.map(([name, value]) => `${name}: ${new TextDecoder().decode(fromBase64(value))}`);
  return h(
    "details",
    { class: "card" },
    h("summary", {}, `${moment(one.time_us)} · ${one.topic} · ${one.place} ${one.offset} · ${one.body_bytes} B`, key !== null && ` · key ${shown(key)}`),
    headers.length > 0 && h("p", {}, headers.map((text) => [h("code", {}, text), " "])),
    body(bytesOf, form),
    bytesOf.length < one.body_bytes && h("p", { class: "empty" }, `the first ${bytesOf.length} of ${one.body_bytes} bytes`),
    download(bytesOf, `message-${one.place.replace("/", "-")}-${one.offset}`),
  );
}

/** A form, and what it found. Drawn once: what is looked for stays until somebody looks again. */
export const messages = {
  title: "Messages",
  everyMs: 0,
  draw({ link, tell }, [filter = "#"]) {
    const state = h("p", { class: "empty", role: "status" });
    const found = h("div", {});
    let isStopped = true;
    const begin = async (event) => {
      event.preventDefault();
      const fields = new FormData(event.target);
      const from = fields.get("from");
      const wanted = {
        filter: fields.get("filter"),
        contains: fields.get("contains"),
        key: fields.get("key"),
        fromUs: from ? Date.parse(`${from}Z`) * 1_000 : 0,
        count: Math.min(SHOWN_MAX, Number(fields.get("count")) || 100),
      };
      isStopped = false;
      found.replaceChildren();
      try {
        const [all, seen] = await look(link, wanted, () => isStopped, (some, far) => {
          state.textContent = `${count(some.length)} found among ${count(far)}`;
        });
        found.append(...all.map((one) => message(one, fields.get("form"))));
        state.textContent = `${count(all.length)} shown, among ${count(seen)} that were looked at${isStopped ? "; stopped" : ""}`;
      } catch (error) {
        state.textContent = "";
        tell(`${error.code ?? "ERROR"}: ${error.message}`);
      }
      isStopped = true;
    };
    return [
      h("h1", {}, "Messages of topics"),
      h("p", { class: "empty" }, "What is in the streams of this node. Each look is written into the audit."),
      h(
        "form",
        { class: "bar", submit: begin },
        h("label", {}, "Topic or filter", h("input", { name: "filter", required: true, value: filter })),
        h("label", {}, "Body contains", h("input", { name: "contains", maxlength: "60" })),
        h("label", {}, "Key", h("input", { name: "key" })),
        h("label", {}, "From (UTC)", h("input", { name: "from", type: "datetime-local", step: "1" })),
        h("label", {}, "At most", h("input", { name: "count", type: "number", min: "1", max: String(SHOWN_MAX), value: "100" })),
        h("label", {}, "As", h("select", { name: "form" }, FORMS.map((one) => h("option", {}, one)))),
        h("button", { class: "strong" }, "Look"),
        button("Stop", () => (isStopped = true)),
      ),
      state,
      found,
    ];
  },
};
