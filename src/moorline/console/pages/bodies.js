// How the bytes of a message are shown: as JSON where they are that, as text, or as hex.

import { h, shown } from "./draw.js";

const SHOWN_BYTES = 16_384;

export const FORMS = ["auto", "text", "JSON", "hex"];

function text(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

function json(bytes) {
  try {
    return JSON.stringify(JSON.parse(text(bytes)), null, 2);
  } catch {
    return null;
  }
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
  const part = bytes.subarray(0, SHOWN_BYTES);
  const isCut = part.length < bytes.length;
  const ways = { text: () => text(part), JSON: () => json(bytes), hex: () => hex(part) };
  const order = form === "auto" ? ["JSON", "text", "hex"] : [form, "hex"];
  const found = order.map((name) => ways[name]()).find((one) => one !== null);
  // Lines stay lines: what else cannot be seen is written out.
  const lines = found.split("\n").map(shown).join("\n");
  return [h("pre", { tabindex: "0" }, document.createTextNode(lines)), isCut && h("p", { class: "empty" }, `the first ${SHOWN_BYTES} of ${bytes.length} bytes`)];
}

/** A link that saves the bytes as they are. */
export function download(bytes, name) {
  return h(
    "button",
    {
      type: "button",
      click: () => {
        const url = URL.createObjectURL(new Blob([bytes]));
        h("a", { href: url, download: name }).click();
        setTimeout(() => URL.revokeObjectURL(url), 1_000);
      },
    },
    "Download",
  );
}
