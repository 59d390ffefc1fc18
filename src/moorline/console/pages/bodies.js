// How the bytes of a message are shown: as JSON or MessagePack where they are that, as text, or as hex.

import { h, shown } from "./draw.js";
import { unpacked } from "./msgpack.js";

const SHOWN_BYTES = 16_384;
const SHOWN_CHARACTERS = 65_536;

export const FORMS = ["auto", "text", "JSON", "MessagePack", "hex"];

function text(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

function json(bytes) {
  try {
    // What is no text would be "null", which is JSON.
    const found = text(bytes);
    return found === null ? null : JSON.stringify(JSON.parse(found), null, 2);
  } catch {
    return null;
  }
}

function msgpack(bytes) {
  try {
    return JSON.stringify(unpacked(bytes), null, 2);
  } catch {
    return null;
  }
}

/** Bytes that are a list or a map of MessagePack, and no text: a guess that is rarely wrong. */
function likelyMsgpack(bytes) {
  const [first] = bytes;
  const isMany = (first >= 0x80 && first < 0xa0) || (first >= 0xdc && first <= 0xdf);
  return isMany ? msgpack(bytes) : null;
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const codes = row.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const signs = row.map((one) => (one >= 0x20 && one < 0x7f ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${codes.padEnd(47)}  ${signs}`);
  }
  return lines.join("\n");
}

/** The whole of it, or its beginning where it is long. */
export function body(bytes, form = "auto") {
  if (!bytes.length) return h("p", { class: "empty" }, "no bytes");
  const part = bytes.subarray(0, SHOWN_BYTES);
  const isCut = part.length < bytes.length;
  const ways = { text: () => text(part), JSON: () => json(bytes), MessagePack: () => msgpack(bytes), hex: () => hex(part), packed: () => likelyMsgpack(bytes) };
  const order = form === "auto" ? ["JSON", "text", "packed", "hex"] : [form, "hex"];
  const name = order.find((one) => ways[one]() !== null);
  const all = ways[name]();
  const found = all.slice(0, SHOWN_CHARACTERS);
  // Lines stay lines: what else cannot be seen is written out.
  const lines = found.split("\n").map(shown).join("\n");
  const title = { packed: "MessagePack" }[name] ?? name;
  return [
    h("pre", { tabindex: "0", "aria-label": `The body as ${title}` }, document.createTextNode(lines)),
    form !== "auto" && name !== form && h("p", { class: "empty" }, `it is no ${form}, so it is shown as ${title}`),
    (isCut || found.length < all.length) && h("p", { class: "empty" }, `the beginning of ${bytes.length} bytes`),
  ];
}

/** One message: a line, and behind it all of it. */
export function message(line, ...parts) {
  return h("details", { class: "card" }, h("summary", {}, line), parts);
}

/** A button that saves the bytes as they are; `read` gives them, perhaps later. */
export function download(read, name, tell = () => {}) {
  const save = async () => {
    try {
      const url = URL.createObjectURL(new Blob([await read()]));
      h("a", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1_000);
    } catch (error) {
      tell(`${error.code ?? "ERROR"}: ${error.message}`);
    }
  };
  return h("button", { type: "button", click: save }, "Download");
}
