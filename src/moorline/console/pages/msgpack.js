// MessagePack as people read it: JSON where JSON can say it, and words where it cannot.
// https://github.com/msgpack/msgpack/blob/master/spec.md

const DEPTH_MAX = 64;
const text = new TextDecoder("utf-8", { fatal: true });
const hex = (bytes) => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  take(length) {
    if (this.at + length > this.bytes.length) throw new RangeError("it ends too soon");
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** A number of the view, as `getUint16` and its like read it. */
  number(kind, length) {
    this.take(length);
    const value = this.view[`get${kind}`](this.at - length);
    if (typeof value !== "bigint") return value;
    return Number.isSafeInteger(Number(value)) ? Number(value) : `${value}`;
  }

  list(length, depth) {
    // Each is a byte at least: a length that lies is not believed.
    if (length > this.bytes.length - this.at) throw new RangeError("it ends too soon");
    return Array.from({ length }, () => this.value(depth + 1));
  }

  map(length, depth) {
    if (2 * length > this.bytes.length - this.at) throw new RangeError("it ends too soon");
    const made = Object.create(null);
    for (let n = 0; n < length; n++) {
      const key = this.value(depth + 1);
      made[typeof key === "string" ? key : JSON.stringify(key)] = this.value(depth + 1);
    }
    return made;
  }

  string(length) {
    return text.decode(this.take(length));
  }

  extension(length) {
    const kind = this.number("Int8", 1);
    return `extension ${kind}: ${hex(this.take(length))}`;
  }

  value(depth = 0) {
    if (depth > DEPTH_MAX) throw new RangeError("it is too deep");
    const [first] = this.take(1);
    if (first < 0x80) return first;
    if (first < 0x90) return this.map(first & 15, depth);
    if (first < 0xa0) return this.list(first & 15, depth);
    if (first < 0xc0) return this.string(first & 31);
    if (first >= 0xe0) return first - 256;
    return this.long(first, depth);
  }

  long(first, depth) {
    const size = (place) => this.number(["Uint8", "Uint16", "Uint32"][place], 1 << place);
    switch (first) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return `bytes: ${hex(this.take(size(first - 0xc4)))}`;
      case 0xc7: case 0xc8: case 0xc9: return this.extension(size(first - 0xc7));
      case 0xca: return this.number("Float32", 4);
      case 0xcb: return this.number("Float64", 8);
      case 0xcc: return this.number("Uint8", 1);
      case 0xcd: return this.number("Uint16", 2);
      case 0xce: return this.number("Uint32", 4);
      case 0xcf: return this.number("BigUint64", 8);
      case 0xd0: return this.number("Int8", 1);
      case 0xd1: return this.number("Int16", 2);
      case 0xd2: return this.number("Int32", 4);
      case 0xd3: return this.number("BigInt64", 8);
      case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return this.extension(1 << (first - 0xd4));
      case 0xd9: case 0xda: case 0xdb: return this.string(size(first - 0xd9));
      case 0xdc: case 0xdd: return this.list(size(first - 0xdc + 1), depth);
      case 0xde: case 0xdf: return this.map(size(first - 0xde + 1), depth);
      default: throw new RangeError(`0x${first.toString(16)} begins nothing`);
    }
  }
}

/** The value of all these bytes; anything else is none. */
export function unpacked(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value();
  if (reader.at !== bytes.length) throw new RangeError("something is behind it");
  return value;
}
