// What is in the streams of this node: messages of a filter, from a time, an offset or a key on, the oldest
// first. The node looks; each answer is a bounded piece, and to stop is to ask no more.

import { body, download, FORMS, message as shownMessage } from "./bodies.js";
import { bytes, button, count, fieldOf, h, head, many, moment, shown, timeOf } from "./draw.js";
import { bytesToBase64, fromBase64, toBase64 } from "./link.js";

const SHOWN_MAX = 500;
const SHARDS_TOGETHER = 4;
const SENT_TOGETHER = 20;
const TOMBSTONE = 16;
const MINUTE_US = 60e6;
const SINCE = [
  ["all", "the beginning"],
  ["5", "5 minutes ago"],
  ["60", "an hour ago"],
  ["1440", "a day ago"],
  ["time", "a time …"],
  ["offset", "an offset …"],
];

const textOf = (base64) => new TextDecoder().decode(fromBase64(base64));

/** The streams of each shard, with where to begin in each. */
async function shards(link, wanted) {
  const { filters, fromUs, offset, shard } = wanted;
  const found = await link.call("DescribeStreams");
  const byShard = new Map();
  for (const one of found.streams) {
    if (one.end === one.first || (shard !== null && one.shard !== shard)) continue;
    if (!byShard.has(one.shard)) byShard.set(one.shard, []);
    byShard.get(one.shard).push({ shard: one.shard, generation: one.generation, offset: one.first, end: one.end });
  }
  if (fromUs) {
    const { offsets } = await link.call("FindOffsets", { time_us: fromUs, filters });
    for (const [number, first] of offsets) begin(byShard.get(number), first);
  }
  if (offset !== null) for (const streams of byShard.values()) begin(streams, offset);
  for (const streams of byShard.values()) streams.sort((a, b) => a.offset - b.offset);
  return [...byShard.values()];
}

function begin(streams, first) {
  for (const one of streams ?? []) one.offset = Math.max(one.offset, first);
}

/** Reads on until enough is found, all is read, or nobody wants more. Tells each step. */
async function look(link, wanted, isStopped, tell) {
  const found = [];
  let seen = 0;
  let isCut = false;
  const waiting = await shards(link, wanted);
  const one = async () => {
    for (let streams = waiting.shift(); streams; streams = waiting.shift()) {
      let inShard = 0;
      for (const stream of streams) {
        while (stream.offset < stream.end && inShard < wanted.count && !isStopped()) {
          const piece = await link.call("BrowseStream", {
            shard: stream.shard,
            generation: stream.generation,
            offset: stream.offset,
            filters: wanted.filters,
            contains: toBase64(wanted.contains),
            key: wanted.key === "" ? null : toBase64(wanted.key),
            from_us: wanted.fromUs,
          });
          if (piece.upto <= stream.offset) break;
          seen += piece.upto - stream.offset;
          stream.offset = piece.upto;
          inShard += piece.messages.length;
          found.push(...piece.messages.map((message) => ({ ...message, shard: stream.shard, generation: stream.generation })));
          tell(found.length, seen);
        }
        isCut ||= stream.offset < stream.end;
      }
    }
  };
  await Promise.all(Array.from({ length: SHARDS_TOGETHER }, one));
  found.sort((a, b) => a.time_us - b.time_us || a.shard - b.shard || a.offset - b.offset);
  return { messages: found.slice(0, wanted.count), seen, isCut: isCut || found.length > wanted.count };
}

/** All bytes of a body, of which a long one was shown in part. */
async function whole(link, one) {
  const part = fromBase64(one.body);
  if (part.length === one.body_bytes) return part;
  const answer = await link.call("BrowseStream", {
    shard: one.shard, generation: one.generation, offset: one.offset, filters: [one.topic], count: 1, is_whole: true,
  });
  const found = answer.messages.find((message) => message.offset === one.offset);
  if (!found) throw new Error("the message is gone");
  return fromBase64(found.body);
}

// --- dead letters -------------------------------------------------------------------------------------

const isDead = (one) => one.topic.startsWith("$dead/");

function headerOf(one, wanted) {
  const found = one.headers.find(([name]) => name === wanted);
  return found ? textOf(found[1]) : "";
}

/** A letter goes to the topic that it came from, as it was there; the same letter is stored once, however often
    it is sent. */
async function sendBack(link, one) {
  const topic = headerOf(one, "dead-topic");
  if (!topic) throw new Error("it does not say which topic it came from");
  const headers = one.headers.filter(([name]) => !name.startsWith("dead-"));
  const sent = bytesToBase64(await whole(link, one));
  const record = [topic, sent, one.key, headers.length ? headers : null, 0, one.flags & TOMBSTONE];
  const producer = `sent-back/${headerOf(one, "dead-group")}/${one.shard}/${one.generation}/${one.offset}`.slice(-64);
  return link.call("Publish", { records: [record], producer, sequence: 1 });
}

async function sendAllBack({ link, ask, tell }, letters, isCut) {
  const topics = new Map();
  for (const one of letters) {
    const topic = headerOf(one, "dead-topic");
    topics.set(topic, (topics.get(topic) ?? 0) + 1);
  }
  const named = [...topics].slice(0, 8).map(([topic, number]) => `${topic}: ${count(number)}`);
  if (topics.size > named.length) named.push(`and ${topics.size - named.length} topics more`);
  const range = `from ${moment(letters[0].time_us)} to ${moment(letters.at(-1).time_us)} UTC`;
  const question = `Send ${isCut ? "the first " : ""}${many(letters.length, "dead letter")} back, ${range}?\n\n${named.join("\n")}\n\nAll who read these topics get them again.`;
  if (!(await ask(question))) return;
  let [stored, again, failed] = [0, 0, ""];
  for (let first = 0; first < letters.length; first += SENT_TOGETHER) {
    const some = letters.slice(first, first + SENT_TOGETHER);
    for (const one of await Promise.allSettled(some.map((letter) => sendBack(link, letter)))) {
      if (one.status === "rejected") failed ||= `${one.reason.code ?? "ERROR"}: ${one.reason.message}`;
      else if (one.value.duplicates) again++;
      else stored++;
    }
  }
  const parts = [`${count(stored)} of ${count(letters.length)} sent back`];
  if (again) parts.push(`${count(again)} had been sent back before`);
  if (failed) parts.push(`the first that was not: ${failed}`);
  tell(parts.join("; "), !failed);
}

// --- what is shown --------------------------------------------------------------------------------------

function drawn(page, one, form) {
  const { link, tell } = page;
  const key = one.key === null ? null : textOf(one.key);
  const place = `${one.shard}/${one.generation}`;
  return shownMessage(
    [`${moment(one.time_us)} UTC · `, h("strong", {}, one.topic), ` · ${place} at ${count(one.offset)} · ${bytes(one.body_bytes)}`, key !== null && ` · key ${shown(key)}`],
    h("dl", { class: "headers", "aria-label": "Headers", hidden: !one.headers.length }, one.headers.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, textOf(value))))),
    body(fromBase64(one.body), form),
    h(
      "div",
      { class: "bar" },
      download(() => whole(link, one), `message-${one.shard}-${one.generation}-${one.offset}`, tell),
      isDead(one) && h("button", { type: "button", click: () => sendAllBack(page, [one], false) }, "Send back"),
    ),
  );
}

let looks = 0;

/** A form, and what it found. Drawn once: what was found stays until somebody looks again. */
export const messages = {
  title: "Message browser",
  of: "node",
  draw(page, [filter = "#"]) {
    const { link, tell } = page;
    const state = h("p", { class: "empty", role: "status" });
    const found = h("div", {});
    const actions = h("div", { class: "bar" });
    let running = null;
    const stop = button("Stop", () => (running = null), { disabled: true });
    const go = h("button", { class: "strong" }, "Look");
    const begin = async (event) => {
      event.preventDefault();
      const fields = new FormData(event.target);
      const since = fields.get("since");
      const minutes = Number(since);
      const wanted = {
        filters: [fields.get("filter")],
        contains: fields.get("contains"),
        key: fields.get("key"),
        fromUs: since === "time" ? timeOf(fields.get("from")) : minutes > 0 ? Date.now() * 1_000 - minutes * MINUTE_US : 0,
        offset: since === "offset" ? Number(fields.get("offset")) || 0 : null,
        shard: since === "offset" && fields.get("shard") !== "" ? Number(fields.get("shard")) : null,
        count: Math.min(SHOWN_MAX, Number(fields.get("count")) || 100),
      };
      const mine = (running = {});
      const isStopped = () => running !== mine;
      stop.disabled = false;
      found.replaceChildren();
      actions.replaceChildren();
      try {
        const { messages: all, seen, isCut } = await look(link, wanted, isStopped, (some, far) => {
          if (!isStopped()) state.textContent = `${count(some)} found among ${count(far)}`;
        });
        if (running !== null && isStopped()) return; // another look has begun
        found.append(...all.map((one) => drawn(page, one, fields.get("form"))));
        const more = isStopped() ? "; stopped" : isCut ? "; there may be more" : "";
        state.textContent = `${count(all.length)} shown, among ${count(seen)} that were looked at${more}`;
        const letters = all.filter(isDead);
        if (letters.length) {
          actions.append(h("button", { type: "button", click: () => sendAllBack(page, letters, isCut) }, `Send ${many(letters.length, "letter")} back …`));
        }
      } catch (error) {
        state.textContent = "";
        tell(`${error.code ?? "ERROR"}: ${error.message}`);
      }
      running = null;
      stop.disabled = true;
    };
    const choose = (event) => {
      const form = event.target.form;
      for (const one of form.querySelectorAll("[data-since]")) one.hidden = one.dataset.since !== event.target.value;
    };
    const isLetters = filter.startsWith("$dead/");
    return h(
      "div",
      { "data-key": `look ${++looks}` },
      head("Message browser", "What is in the streams of this node. The node looks, and stops when you do; each look is written into the audit. What waits in a queue is shown with the queue."),
      h(
        "nav",
        { class: "tabs", "aria-label": "Which messages" },
        h("a", { href: "#/messages", "aria-current": isLetters ? null : "page" }, "Topics"),
        h("a", { href: `#/messages/${encodeURIComponent("$dead/#")}`, "aria-current": isLetters ? "page" : null }, "Dead letters"),
        h("a", { href: "#/queues/waiting" }, "Queues"),
      ),
      h(
        "form",
        { class: "bar", submit: begin },
        h("label", {}, "Topic or filter", h("input", { name: "filter", required: true, value: filter })),
        h("label", {}, "From", h("select", { name: "since", change: choose }, SINCE.map(([value, title]) => h("option", { value }, title)))),
        h("label", { "data-since": "time", hidden: true }, "Time (UTC)", h("input", { name: "from", type: "datetime-local", step: "1", value: fieldOf(Date.now() * 1_000) })),
        h("label", { "data-since": "offset", hidden: true }, "Offset", h("input", { name: "offset", type: "number", min: "0", value: "0" })),
        h("label", { "data-since": "offset", hidden: true }, "Shard (empty for all)", h("input", { name: "shard", type: "number", min: "0" })),
        h("label", {}, "Key", h("input", { name: "key", size: "12" })),
        h("label", {}, "Body contains", h("input", { name: "contains", maxlength: "60", size: "16" })),
        h("label", {}, "At most", h("input", { name: "count", type: "number", min: "1", max: String(SHOWN_MAX), value: "100" })),
        h("label", {}, "As", h("select", { name: "form" }, FORMS.map((one) => h("option", {}, one)))),
        h("span", { class: "both" }, go, stop),
      ),
      state,
      actions,
      found,
    );
  },
};
