// Moorline's records in a browser: a live copy of the rows of a Postgres table. An ES module without dependencies.
//
//     import { records } from "https://node:7412/records/client.js";
//     const table = records("https://node:7412", "experiments", { where: { workspace_id: 1 }, token, cache: true });
//     table.onchange(() => draw(table.rows));
//
//     xxh3, rowHash  XXH3-128 with a seed, as the node hashes keys and seqs
//     Copy           the rows and their digest; no socket in it
//     walk           finds what differs from the node, by ranges and lists of hashes
//     Link           one WebSocket, and when to come back; where it cannot be opened, requests that wait
//     Cache          rows and cursor in IndexedDB
//     Tabs           which tab has the link (Web Locks), and what it tells the others (BroadcastChannel)
//     RecordTable    what a page sees
//
// What is said between page and node: docs/protocols/records.md.

// --- bounds ---------------------------------------------------------------------------------------

/** A boot sends many away at once: they come back within this time, not together. */
const BOOT_PAUSE_MS = 5_000;
const PAUSE_MS_MIN = 250;
const PAUSE_MS_MAX = 30_000;
/** By digest a copy should heal at once. If it does not, it begins from nothing. */
const HEALS_MAX = 3;
/** As many prefixes as the node takes in one question, and rows in one fetch. */
const PREFIXES_MAX = 4_096;
/** A range of so few rows on both sides is listed, in place of divided. */
const LISTED_MAX = 24;
/** The high half of a hash has sixteen digits; fifteen leave nothing to divide. */
const DIGITS_MAX = 15;
/** Beyond so many ranges at once they are listed: our memory does not grow with what the node says. */
const WALKED_MAX = 65_536;
/** What waits to be written into the cache: of each row its latest state. */
const CACHE_ROWS_MAX = 5_000;
const CACHE_PAUSE_MS = 300;
/** Copies that nobody has used for so long are removed from the cache. */
const CACHE_LIFE_MS = 30 * 24 * 3_600_000;
/** Rows in one message to another tab. */
const TAB_ROWS_MAX = 2_000;

/** So often a WebSocket is not opened before requests are tried in its place. */
const OPEN_TRIES = 2;
/** Then it is tried again after this time. */
const POLLED_MS = 300_000;

const SUBPROTOCOL = "moorline.records.json";
const BEARER = "moorline.bearer.";
const HASH = "xxh3-128/8";
const BOOTED = 1012;
/** The reader lost its right, or the table is gone: nothing of it is kept. */
const LOST_RIGHTS = new Set(["NOT_GRANTED", "NO_SUCH_TABLE", "TABLE_GONE"]);

// --- the hash -------------------------------------------------------------------------------------

const MASK = (1n << 64n) - 1n;
const MASK_32 = 0xffffffffn;
const PRIME32 = [0x9e3779b1n, 0x85ebca77n, 0xc2b2ae3dn];
const PRIME64 = [0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n];
const MIX_1 = 0x165667919e3779f9n;
const MIX_2 = 0x9fb21c651e98df25n;
/** The constant secret of XXH3. */
const SECRET = viewOf(bytesOfHex(
  "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
  "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
  "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb" +
  "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"));

/** @param {string} digits */
function bytesOfHex(digits) {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** @param {Uint8Array} bytes */
function viewOf(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

const read64 = (/** @type {DataView} */ view, /** @type {number} */ at) => view.getBigUint64(at, true);
const read32 = (/** @type {DataView} */ view, /** @type {number} */ at) => BigInt(view.getUint32(at, true));

function swap32(/** @type {bigint} */ word) {
  return ((word & 0xffn) << 24n) | ((word & 0xff00n) << 8n) | ((word >> 8n) & 0xff00n) | (word >> 24n);
}

function swap64(/** @type {bigint} */ word) {
  return (swap32(word & MASK_32) << 32n) | swap32(word >> 32n);
}

function avalanche(/** @type {bigint} */ word) {
  word ^= word >> 37n;
  word = (word * MIX_1) & MASK;
  return word ^ (word >> 32n);
}

function avalanche64(/** @type {bigint} */ word) {
  word = ((word ^ (word >> 33n)) * PRIME64[1]) & MASK;
  word = ((word ^ (word >> 29n)) * PRIME64[2]) & MASK;
  return word ^ (word >> 32n);
}

function folded(/** @type {bigint} */ left, /** @type {bigint} */ right) {
  const product = left * right;
  return (product & MASK) ^ (product >> 64n);
}

const joined = (/** @type {bigint} */ high, /** @type {bigint} */ low) => (high << 64n) | low;

/**
 * XXH3-128 of some bytes.
 * @param {Uint8Array} bytes
 * @param {bigint} seed 64 bits
 * @returns {bigint} 128 bits
 */
export function xxh3(bytes, seed) {
  const data = viewOf(bytes);
  if (bytes.length <= 16) return hashShort(data, bytes.length, seed);
  if (bytes.length <= 240) return hashMiddle(data, bytes.length, seed);
  return hashLong(data, bytes.length, seed);
}

function hashShort(/** @type {DataView} */ data, /** @type {number} */ length, /** @type {bigint} */ seed) {
  if (length > 8) return hash9To16(data, length, seed);
  if (length >= 4) return hash4To8(data, length, seed);
  if (length > 0) {
    const [first, middle, last] = [data.getUint8(0), data.getUint8(length >> 1), data.getUint8(length - 1)];
    const low = (BigInt(first) << 16n) | (BigInt(middle) << 24n) | BigInt(last) | (BigInt(length) << 8n);
    const swapped = swap32(low);
    const high = ((swapped << 13n) | (swapped >> 19n)) & MASK_32;
    const flipLow = ((read32(SECRET, 0) ^ read32(SECRET, 4)) + seed) & MASK;
    const flipHigh = ((read32(SECRET, 8) ^ read32(SECRET, 12)) - seed) & MASK;
    return joined(avalanche64(high ^ flipHigh), avalanche64(low ^ flipLow));
  }
  const low = seed ^ read64(SECRET, 64) ^ read64(SECRET, 72);
  const high = seed ^ read64(SECRET, 80) ^ read64(SECRET, 88);
  return joined(avalanche64(high), avalanche64(low));
}

function hash4To8(/** @type {DataView} */ data, /** @type {number} */ length, /** @type {bigint} */ seed) {
  seed ^= swap32(seed & MASK_32) << 32n;
  const input = read32(data, 0) | (read32(data, length - 4) << 32n);
  const flip = ((read64(SECRET, 16) ^ read64(SECRET, 24)) + seed) & MASK;
  const product = (input ^ flip) * (PRIME64[0] + (BigInt(length) << 2n));
  let low = product & MASK;
  const high = ((product >> 64n) + (low << 1n)) & MASK;
  low ^= high >> 3n;
  low ^= low >> 35n;
  low = (low * MIX_2) & MASK;
  low ^= low >> 28n;
  return joined(avalanche(high), low);
}

function hash9To16(/** @type {DataView} */ data, /** @type {number} */ length, /** @type {bigint} */ seed) {
  const flipLow = ((read64(SECRET, 32) ^ read64(SECRET, 40)) - seed) & MASK;
  const flipHigh = ((read64(SECRET, 48) ^ read64(SECRET, 56)) + seed) & MASK;
  let last = read64(data, length - 8);
  const product = (read64(data, 0) ^ last ^ flipLow) * PRIME64[0];
  let low = ((product & MASK) + (BigInt(length - 1) << 54n)) & MASK;
  last ^= flipHigh;
  const high = ((product >> 64n) + last + (last & MASK_32) * (PRIME32[1] - 1n)) & MASK;
  low ^= swap64(high);
  const second = low * PRIME64[1];
  return joined(avalanche(((second >> 64n) + high * PRIME64[1]) & MASK), avalanche(second & MASK));
}

function hashMiddle(/** @type {DataView} */ data, /** @type {number} */ length, /** @type {bigint} */ seed) {
  let low = (BigInt(length) * PRIME64[0]) & MASK;
  let high = 0n;
  const mixed = (/** @type {number} */ at, /** @type {number} */ secret, /** @type {bigint} */ by) =>
    folded(read64(data, at) ^ ((read64(SECRET, secret) + by) & MASK), read64(data, at + 8) ^ ((read64(SECRET, secret + 8) - by) & MASK));
  const mix = (/** @type {number} */ one, /** @type {number} */ other, /** @type {number} */ secret, by = seed) => {
    low = ((low + mixed(one, secret, by)) & MASK) ^ ((read64(data, other) + read64(data, other + 8)) & MASK);
    high = ((high + mixed(other, secret + 16, by)) & MASK) ^ ((read64(data, one) + read64(data, one + 8)) & MASK);
  };
  if (length <= 128) {
    for (let part = (length - 1) >> 5; part >= 0; part--) mix(16 * part, length - 16 * (part + 1), 32 * part);
  } else {
    for (let at = 0; at < 128; at += 32) mix(at, at + 16, at);
    low = avalanche(low);
    high = avalanche(high);
    for (let at = 128; at + 32 <= length; at += 32) mix(at, at + 16, at - 125);
    mix(length - 16, length - 32, 103, (MASK + 1n - seed) & MASK);
  }
  const mostly = low * PRIME64[0] + high * PRIME64[3] + ((BigInt(length) - seed) & MASK) * PRIME64[1];
  return joined((MASK + 1n - avalanche(mostly & MASK)) & MASK, avalanche((low + high) & MASK));
}

function hashLong(/** @type {DataView} */ data, /** @type {number} */ length, /** @type {bigint} */ seed) {
  const secret = new DataView(new ArrayBuffer(192));
  for (let at = 0; at < 192; at += 16) {
    secret.setBigUint64(at, read64(SECRET, at) + seed, true);
    secret.setBigUint64(at + 8, read64(SECRET, at + 8) - seed, true);
  }
  const sums = [PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0]];
  const stripe = (/** @type {number} */ at, /** @type {number} */ by) => {
    for (let lane = 0; lane < 8; lane++) {
      const word = read64(data, at + 8 * lane);
      const keyed = word ^ read64(secret, by + 8 * lane);
      sums[lane ^ 1] = (sums[lane ^ 1] + word) & MASK;
      sums[lane] = (sums[lane] + (keyed & MASK_32) * (keyed >> 32n)) & MASK;
    }
  };
  // Sixteen stripes of 64 bytes are a block; the last stripe may overlap the one before it.
  const stripes = Math.floor((length - 1) / 64);
  for (let number = 0; number < stripes; number++) {
    stripe(64 * number, 8 * (number % 16));
    if (number % 16 === 15) {
      for (let lane = 0; lane < 8; lane++) {
        sums[lane] = ((sums[lane] ^ (sums[lane] >> 47n) ^ read64(secret, 128 + 8 * lane)) * PRIME32[0]) & MASK;
      }
    }
  }
  stripe(length - 64, 121);
  const merged = (/** @type {bigint} */ sum, /** @type {number} */ by) => {
    for (let pair = 0; pair < 4; pair++) {
      sum += folded(sums[2 * pair] ^ read64(secret, by + 16 * pair), sums[2 * pair + 1] ^ read64(secret, by + 16 * pair + 8));
    }
    return avalanche(sum & MASK);
  };
  const size = BigInt(length);
  return joined(merged(((size * PRIME64[1]) & MASK) ^ MASK, 117), merged((size * PRIME64[0]) & MASK, 11));
}

const UTF8 = new TextEncoder();

/**
 * The hash of a row: of the texts of its key, each with its length before it, and its seq.
 * @param {bigint} salt
 * @param {string[]} key
 * @param {number} seq
 */
function rowHash(salt, key, seq) {
  const texts = key.map((text) => UTF8.encode(text));
  const bytes = new Uint8Array(texts.reduce((sum, text) => sum + 4 + text.length, 8));
  const view = viewOf(bytes);
  let at = 0;
  for (const text of texts) {
    view.setUint32(at, text.length);
    bytes.set(text, at + 4);
    at += 4 + text.length;
  }
  view.setBigUint64(at, BigInt(seq));
  return xxh3(bytes, salt);
}

/** Base64 of count (eight bytes) and XOR (sixteen): a digest as it travels. */
function digestText(/** @type {number} */ count, /** @type {bigint} */ mixed) {
  const digits = count.toString(16).padStart(16, "0") + mixed.toString(16).padStart(32, "0");
  return btoa(String.fromCharCode(...bytesOfHex(digits)));
}

// --- the copy -------------------------------------------------------------------------------------

/** By what a row is found in `rows`: the text of its key; of several columns, a JSON list of them. */
const nameOf = (/** @type {string[]} */ key) => (key.length === 1 ? key[0] : JSON.stringify(key));

/**
 * The rows, and what proves that they are the node's.
 * @typedef {{key: string[], seq: number, hash: bigint | null}} Version
 */
class Copy {
  /** @type {Map<string, any>} */ rows = new Map();
  /** @type {Map<string, Version>} */ versions = new Map();
  cursor = "";
  /** @type {string} */ salt = "";
  /** @type {string[]} */ key = [];
  /** @type {{name: string, type: string}[]} */ columns = [];
  /** Rows that are here have other columns: all of them are wanted anew, for their keys and seqs are the node's. */
  isStale = false;
  /** Who only listens to another tab needs no hashes: they are made when it takes over. */
  isHashing = false;
  #mixed = 0n;
  #seed = 0n;

  /** Those that all rows have; none while that is not so. */
  get heldColumns() {
    return this.isStale ? [] : this.columns;
  }

  /** @param {string} salt */
  hashBy(salt) {
    this.salt = salt;
    this.#seed = BigInt(`0x${salt || "0"}`);
    this.isHashing = true;
    this.#mixed = 0n;
    for (const version of this.versions.values()) {
      version.hash = rowHash(this.#seed, version.key, version.seq);
      this.#mixed ^= version.hash;
    }
  }

  digest() {
    return digestText(this.rows.size, this.#mixed);
  }

  /** @param {any} row @returns {string[]} */
  keyOf(row) {
    return this.key.map((name) => String(row[name]));
  }

  /** In the order of arrival, not of seqs: commits have another one. */
  put(/** @type {string[]} */ key, /** @type {number} */ seq, /** @type {any} */ row) {
    const name = nameOf(key);
    // Membership decides before XOR does: what comes twice is there once.
    this.#mixed ^= this.versions.get(name)?.hash ?? 0n;
    const hash = this.isHashing ? rowHash(this.#seed, key, seq) : null;
    this.#mixed ^= hash ?? 0n;
    this.versions.set(name, { key, seq, hash });
    this.rows.set(name, row);
    return name;
  }

  /** Whether it was there. */
  remove(/** @type {string} */ name) {
    const version = this.versions.get(name);
    if (version === undefined) return false;
    this.#mixed ^= version.hash ?? 0n;
    this.versions.delete(name);
    return this.rows.delete(name);
  }

  /** As it is now, null if it is gone. */
  held(/** @type {string} */ name) {
    const version = this.versions.get(name);
    return version === undefined ? null : { key: version.key, seq: version.seq, row: this.rows.get(name) };
  }

  /** The names and hashes at this moment, in the order of their hashes. */
  sorted() {
    const all = Array.from(this.versions, ([name, version]) => ({ name, hash: version.hash ?? 0n }));
    return all.sort((one, other) => (one.hash < other.hash ? -1 : one.hash > other.hash ? 1 : 0));
  }
}

/**
 * Asks the node until it is known what differs: what it lacks is removed here, what it has besides is fetched.
 *
 * @param {Copy} copy
 * @param {(message: object) => Promise<any>} ask sends a question, and brings its answer
 * @param {(message: object) => void} send sends what is answered by rows
 * @param {(name: string) => void} remove
 */
async function walk(copy, ask, send, remove) {
  const own = copy.sorted();
  const told = await ask({ type: "verify", digest: copy.digest(), sketches: false });
  if (told.digest !== copy.digest()) {
    const listed = await differing(own, ask);
    /** @type {string[]} */ const fetched = [];
    for (let at = 0; at < listed.length; at += PREFIXES_MAX) {
      const prefixes = listed.slice(at, at + PREFIXES_MAX);
      const answer = await ask({ type: "lists", prefixes });
      prefixes.forEach((prefix, place) => {
        const theirs = new Set(atob(answer.lists[place]).match(/[^]{8}/g)?.map(hexOf) ?? []);
        for (const { name, hash } of below(own, prefix)) {
          // Removed before rows are fetched: one that was updated is lacking in its old version.
          if (!theirs.delete(highOf(hash))) remove(name);
        }
        for (const high of theirs) fetched.push(high);
      });
    }
    for (let at = 0; at < fetched.length; at += PREFIXES_MAX) {
      send({ type: "fetch", prefixes: fetched.slice(at, at + PREFIXES_MAX) });
    }
  }
  send({ type: "fetch", prefixes: [] });
}

/** @typedef {{name: string, hash: bigint}} Hashed */

/** The ranges that differ and are small. */
async function differing(/** @type {Hashed[]} */ own, /** @type {(message: object) => Promise<any>} */ ask) {
  /** @type {string[]} */ const listed = [];
  let asked = digitsBelow("").flatMap(digitsBelow);
  while (asked.length > 0) {
    /** @type {string[]} */ const deeper = [];
    for (let at = 0; at < asked.length; at += PREFIXES_MAX) {
      const prefixes = asked.slice(at, at + PREFIXES_MAX);
      const answer = await ask({ type: "ranges", prefixes });
      prefixes.forEach((prefix, place) => {
        const [count, hash] = answer.ranges[place];
        const mine = below(own, prefix);
        if (count === mine.length && BigInt(`0x${hash || "0"}`) === mine.reduce((sum, { hash: one }) => sum ^ (one & MASK), 0n)) return;
        const isSmall = count + mine.length <= LISTED_MAX || prefix.length >= DIGITS_MAX || deeper.length >= WALKED_MAX;
        if (isSmall) listed.push(prefix);
        else deeper.push(...digitsBelow(prefix));
      });
    }
    asked = deeper;
  }
  return listed;
}

const digitsBelow = (/** @type {string} */ prefix) => Array.from("0123456789abcdef", (digit) => prefix + digit);
const highOf = (/** @type {bigint} */ hash) => (hash >> 64n).toString(16).padStart(16, "0");
const hexOf = (/** @type {string} */ bytes) => Array.from(bytes, (one) => one.charCodeAt(0).toString(16).padStart(2, "0")).join("");

/** Those whose hashes begin so. @param {Hashed[]} own @param {string} prefix */
function below(own, prefix) {
  const shift = BigInt(128 - 4 * prefix.length);
  const first = BigInt(`0x${prefix}`) << shift;
  return own.slice(placeOf(own, first), placeOf(own, first + (1n << shift)));
}

/** The place of the first that is not below it. */
function placeOf(/** @type {Hashed[]} */ own, /** @type {bigint} */ hash) {
  let [low, high] = [0, own.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (own[middle].hash < hash) low = middle + 1;
    else high = middle;
  }
  return low;
}

// --- the link -------------------------------------------------------------------------------------

/**
 * What the link tells of: changes of rows, a new state, a proof, and that all is to be forgotten.
 * @typedef {{changed: (changes: any[]) => void, became: (state: string, more?: object) => void,
 *   proven: (how: string) => void, drifted: () => void, vanished: () => void}} Listener
 * @typedef {{table: string, where: object, columns?: string[]}} Asked
 */
class Link {
  #address; #asked; #token; #copy; #listener;
  /** @type {WebSocket | null} */ #socket = null;
  /** @type {any} */ #timer;
  /** @type {any} */ #probe;
  /** @type {AbortController | null} */ #polling = null;
  /** @type {((answer: any) => void) | null} */ #answered = null;
  /** @type {Set<string> | null} In a full sync, what it has not brought so far. */ #unseen = null;
  /** @type {any[]} */ #changes = [];
  #sync = 0;
  #how = "";
  /** What comes is of a subscription that is over. */
  #isForeign = true;
  #isWalking = false;
  #mayHurry = false;
  #isOver = false;
  #heals = 0;
  #tries = 0;
  #heardAt = 0;
  /** WebSockets in a row that were never open. */
  #unopened = 0;
  #mayPoll = true;
  #isProven = false;
  #isPausing = false;
  /** Of attempts that wait for a token the last one counts. */
  #connecting = {};

  /**
   * @param {string} address @param {Asked} asked @param {() => Promise<string>} token
   * @param {Copy} copy @param {Listener} listener
   */
  constructor(address, asked, token, copy, listener) {
    this.#address = address;
    this.#asked = asked;
    this.#token = token;
    this.#copy = copy;
    this.#listener = listener;
    this.#connect();
  }

  close() {
    this.#isOver = true;
    this.#drop();
  }

  /** The tab is shown, or the net is back: no need to wait, and what was silent for long is asked whether it is there. */
  hurry() {
    if (this.#isOver) return;
    if (this.#socket === null) {
      if (this.#mayHurry && this.#polling === null) this.#connect();
    } else if (this.#socket.readyState === WebSocket.OPEN && Date.now() - this.#heardAt > 60_000) {
      const asked = this.#socket;
      this.#subscribe();
      this.#probe = setTimeout(() => {
        if (this.#socket === asked) this.#lost(0, "the node is silent");
      }, 10_000);
    }
  }

  async #connect() {
    this.#drop();
    // A WebSocket that is tried between two requests is no news.
    if (this.#unopened <= OPEN_TRIES && this.#mayPoll) this.#listener.became("connecting");
    const connecting = {};
    this.#connecting = connecting;
    try {
      const token = await this.#token();
      if (this.#isOver || this.#connecting !== connecting) return;
      if (this.#unopened >= OPEN_TRIES && this.#mayPoll) await this.#poll(token);
      else this.#openSocket(token);
    } catch (error) {
      this.#lost(0, String(error));
    }
  }

  #openSocket(/** @type {string} */ token) {
    const socket = new WebSocket(this.#address, [SUBPROTOCOL, ...(token ? [BEARER + base64Url(token)] : [])]);
    this.#socket = socket;
    this.#unopened += 1;
    this.#mayPoll = true;
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      this.#unopened = 0;
      this.#subscribe();
    };
    socket.onmessage = ({ data }) => socket === this.#socket && this.#heard(data);
    socket.onclose = ({ code, reason }) => {
      if (socket !== this.#socket) return;
      if (this.#unopened > OPEN_TRIES) this.#connect();
      else this.#lost(code, reason);
    };
  }

  /** One request for each sync, which the node answers when there is something to say. */
  async #poll(/** @type {string} */ token) {
    const polling = new AbortController();
    this.#polling = polling;
    const end = Date.now() + POLLED_MS;
    const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
    try {
      // The first answer shows that the node is there: then a WebSocket is tried once more.
      do {
        const body = JSON.stringify(this.#subscription(true));
        const answer = await fetch(`${this.#address.replace(/^ws/, "http")}/poll`, { method: "POST", headers, body, signal: polling.signal });
        const text = await answer.text();
        if (polling.signal.aborted) return;
        if (answer.status === 413) {
          // To come back sooner would bring the same: it goes on when there are fewer rows, or a WebSocket.
          this.#drop();
          this.#refused({ code: "TOO_LARGE", why: wordsOf(text) });
          return;
        }
        if (!answer.ok) {
          const isBoot = answer.status === 503 && text.includes('"RESTART"');
          this.#lost(isBoot ? BOOTED : answer.status, text.slice(0, 200));
          return;
        }
        this.#isProven = this.#isPausing = false;
        this.#heard(text);
        if (polling.signal.aborted || this.#isPausing) return;
        if (!this.#isProven) await new Promise((resolve) => setTimeout(resolve, pauseOf(this.#tries++)));
      } while (!polling.signal.aborted && this.#unopened > OPEN_TRIES && Date.now() < end);
    } catch (error) {
      if (polling.signal.aborted) return;
      // Not even that: the node is away, and nothing is said about WebSockets.
      this.#unopened = 0;
      this.#lost(0, String(error));
      return;
    }
    if (polling.signal.aborted) return;
    this.#mayPoll = false;
    this.#unopened = OPEN_TRIES;
    this.#connect();
  }

  #drop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#probe);
    this.#polling?.abort();
    this.#polling = null;
    const socket = this.#socket;
    this.#socket = null;
    this.#answered = null;
    this.#unseen = null;
    this.#isForeign = true;
    this.#isWalking = false;
    socket?.close();
  }

  /** All that was applied stays: the next sync goes on from it. */
  #lost(/** @type {number} */ code, /** @type {string} */ reason) {
    this.#drop();
    if (this.#isOver) return;
    this.#listener.became("apart", { code, why: reason });
    // A boot sends many away at once, and none of them may hurry back.
    this.#mayHurry = code !== BOOTED;
    const pause = code === BOOTED ? Math.random() * BOOT_PAUSE_MS : pauseOf(this.#tries++);
    this.#timer = setTimeout(() => this.#connect(), pause);
  }

  #send(/** @type {object} */ message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify([message]));
  }

  /** The next one, with what is known: what is of those before is not heard any more. */
  #subscription(takesPages = false) {
    clearTimeout(this.#timer);
    this.#sync += 1;
    this.#isForeign = true;
    this.#isWalking = false;
    this.#answered = null;
    this.#unseen = null;
    const { cursor, rows } = this.#copy;
    const known = this.#copy.isStale ? {} : { ...(cursor && { cursor }), ...(rows.size > 0 && { digest: this.#copy.digest() }) };
    return { type: "subscribe", sync: this.#sync, tables: [{ ...this.#asked, ...known, ...(takesPages && { pages: true }) }] };
  }

  #subscribe() {
    this.#send(this.#subscription());
  }

  /** Later; of polls, by a new one. */
  #askAgain(/** @type {number} */ pauseMs) {
    this.#isPausing = true;
    this.#timer = setTimeout(() => (this.#socket === null ? this.#connect() : this.#subscribe()), pauseMs);
  }

  #heard(/** @type {string} */ data) {
    this.#heardAt = Date.now();
    clearTimeout(this.#probe);
    try {
      for (const message of JSON.parse(data)) this.#take(message);
    } catch (error) {
      this.#lost(0, `a message that cannot be read: ${error}`);
    }
    this.#tell();
  }

  #tell() {
    const changes = this.#changes;
    this.#changes = [];
    if (changes.length > 0) this.#listener.changed(changes);
  }

  #take(/** @type {any} */ message) {
    switch (message.type) {
      case "sync_start":
        this.#isForeign = message.sync !== this.#sync;
        if (!this.#isForeign) this.#start(message);
        break;
      case "record":
        if (!this.#isForeign) this.#put(message.seq, message.row);
        break;
      case "deletion":
        if (!this.#isForeign) this.#remove(nameOf(message.key));
        break;
      case "answer":
        if (message.sync === this.#sync) this.#answered?.(message);
        break;
      case "sync_end":
        if (!this.#isForeign && message.sync === this.#sync) this.#end(message);
        break;
      case "refused":
        if (message.sync === this.#sync) this.#refused(message);
    }
  }

  #start(/** @type {any} */ message) {
    const copy = this.#copy;
    if (message.hash && message.hash !== HASH) throw new Error(`digests are made by ${message.hash}, and not by ${HASH}`);
    if (message.how !== "full" && this.#isOther(message.columns)) {
      copy.isStale = true;
      copy.cursor = "";
      this.#isForeign = true;
      this.#askAgain(0);
      return;
    }
    if (message.key?.length > 0) copy.key = message.key;
    if (message.columns?.length > 0) copy.columns = message.columns;
    if (message.salt && message.salt !== copy.salt) copy.hashBy(message.salt);
    this.#how = message.how;
    this.#unseen = message.how === "full" ? new Set(copy.versions.keys()) : null;
    const wasWalking = this.#isWalking;
    this.#isWalking = false;
    if (message.how === "live") return;
    this.#listener.became("syncing", { how: message.how });
    // Cut off within a replay, the cursor still leads on; what came and went shows in the digest.
    if (message.how === "replay") return;
    copy.cursor = "";
    if (message.how !== "digest") return;
    // It began anew in the middle of our questions, and answers to the old ones may still come.
    if (wasWalking) this.#subscribe();
    else this.#walk();
  }

  /** Whether these are other columns than those of the rows that are here. */
  #isOther(/** @type {{name: string, type: string}[] | undefined} */ columns) {
    const said = (/** @type {{name: string, type: string}[]} */ some) => JSON.stringify(some.map(({ name, type }) => [name, type]));
    return !!columns?.length && this.#copy.rows.size > 0 && said(columns) !== said(this.#copy.heldColumns);
  }

  #walk() {
    const sync = this.#sync;
    const about = { sync, table: this.#asked.table };
    const isOver = () => sync !== this.#sync || !this.#isWalking;
    this.#isWalking = true;
    const send = (/** @type {object} */ message) => {
      if (!isOver()) this.#send({ ...message, ...about });
    };
    const ask = (/** @type {object} */ message) => new Promise((resolve) => {
      this.#answered = resolve;
      send(message);
    });
    const remove = (/** @type {string} */ name) => {
      if (!isOver()) this.#remove(name);
    };
    walk(this.#copy, ask, send, remove).then(
      () => {
        if (isOver()) return;
        this.#isWalking = false;
        this.#tell();
      },
      (error) => {
        if (!isOver()) this.#lost(0, `an answer that cannot be read: ${error}`);
      },
    );
  }

  #put(/** @type {number} */ seq, /** @type {any} */ row) {
    const name = this.#copy.put(this.#copy.keyOf(row), seq, row);
    this.#unseen?.delete(name);
    this.#changes.push({ kind: "record", key: name, row, seq });
  }

  #remove(/** @type {string} */ name) {
    const row = this.#copy.rows.get(name);
    this.#unseen?.delete(name);
    if (this.#copy.remove(name)) this.#changes.push({ kind: "deletion", key: name, row, seq: 0 });
  }

  #end(/** @type {{cursor: string, digest: string, more?: boolean}} */ { cursor, digest, more }) {
    for (const name of [...(this.#unseen ?? [])]) this.#remove(name);
    this.#unseen = null;
    const copy = this.#copy;
    if (copy.digest() === digest) {
      copy.isStale = false;
      copy.cursor = cursor;
      this.#heals = 0;
      this.#tries = 0;
      this.#isProven = true;
      this.#tell();
      // A page: the rows up to its end are those of the node, and the next request brings the next one.
      if (!more) this.#listener.proven(this.#how);
      return;
    }
    this.#heals += 1;
    copy.cursor = "";
    this.#listener.drifted();
    if (this.#heals <= HEALS_MAX) {
      if (this.#polling === null) this.#subscribe();
      return;
    }
    // By digest it does not come to rest: from nothing, and not at once.
    for (const name of [...copy.versions.keys()]) this.#remove(name);
    this.#isForeign = true;
    this.#askAgain(Math.random() * BOOT_PAUSE_MS);
  }

  #refused(/** @type {any} */ { code, why, return_ms: returnMs = 0 }) {
    this.#isForeign = true;
    this.#isWalking = false;
    if (code === "TABLE_CHANGED") this.#copy.cursor = "";
    if (LOST_RIGHTS.has(code)) {
      this.#copy.cursor = "";
      for (const name of [...this.#copy.versions.keys()]) this.#remove(name);
      this.#tell();
      this.#listener.vanished();
    }
    this.#listener.became("refused", { code, why });
    const isPassing = code === "BUSY" || code === "NOT_READY" || code === "TABLE_CHANGED";
    const pause = isPassing ? returnMs + Math.random() * 1_000 : (0.5 + Math.random() / 2) * PAUSE_MS_MAX;
    this.#askAgain(pause);
  }
}

/** Those of a refusal of a request, `{code, text}`. */
function wordsOf(/** @type {string} */ refusal) {
  try {
    return String(JSON.parse(refusal).text);
  } catch {
    return refusal.slice(0, 200);
  }
}

/** Longer each time, and never that of others. */
function pauseOf(/** @type {number} */ tries) {
  return (0.5 + Math.random() / 2) * Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** tries);
}

function base64Url(/** @type {string} */ text) {
  return btoa(String.fromCharCode(...UTF8.encode(text))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// --- the cache ------------------------------------------------------------------------------------

/** A promise of what a request of IndexedDB brings. @param {IDBRequest} request @returns {Promise<any>} */
function brought(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Sees that a row was altered in the cache: the node's digest is of keys and seqs alone. It is against accidents. */
function checkOf(/** @type {string} */ text) {
  let sum = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) sum = Math.imul(sum ^ text.charCodeAt(at), 0x01000193);
  return sum >>> 0;
}

/**
 * Rows and cursor of copies, in one database of the page's origin:
 *     copies    id, cursor, salt, key, columns, at
 *     rows      copy, name, key, seq, text (the row in JSON), check
 */
class Cache {
  #db; #id; #copy;
  /** @type {Map<string, object | null>} */ #waiting = new Map();
  /** @type {any} */ #timer;
  #isWriting = false;
  #isOver = false;

  /** @param {IDBDatabase} db @param {string} id @param {Copy} copy */
  constructor(db, id, copy) {
    this.#db = db;
    this.#id = id;
    this.#copy = copy;
  }

  /** @param {string} id @param {Copy} copy */
  static async open(id, copy) {
    const opening = indexedDB.open("moorline-records", 1);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore("copies", { keyPath: "id" });
      opening.result.createObjectStore("rows", { keyPath: ["copy", "name"] });
    };
    /** @type {IDBDatabase} */ const db = await brought(opening);
    db.onversionchange = () => db.close();
    return new Cache(db, id, copy);
  }

  /** Into the copy: what is there, but for rows that were altered. */
  async load() {
    const reading = this.#db.transaction(["copies", "rows"], "readwrite");
    const copies = await brought(reading.objectStore("copies").getAll());
    for (const { id, at } of copies) {
      if (id !== this.#id && Date.now() - at > CACHE_LIFE_MS) this.#forget(reading, id);
    }
    const about = copies.find((/** @type {any} */ one) => one.id === this.#id);
    if (about === undefined) return [];
    const held = await brought(reading.objectStore("rows").getAll(rangeOf(this.#id)));
    const changes = [];
    Object.assign(this.#copy, { key: about.key, columns: about.columns, cursor: about.cursor, salt: about.salt });
    for (const { name, key, seq, text, check } of held) {
      if (checkOf(`${name} ${seq} ${text}`) !== check) continue;
      const row = JSON.parse(text);
      this.#copy.put(key, seq, row);
      changes.push({ kind: "record", key: name, row, seq });
    }
    return changes;
  }

  /** These have changed; they are written soon, with the cursor. */
  keep(/** @type {any[]} */ changes) {
    for (const { key: name } of changes) this.#waiting.set(name, this.#copy.held(name));
    this.write(this.#waiting.size >= CACHE_ROWS_MAX ? 0 : CACHE_PAUSE_MS);
  }

  write(pauseMs = CACHE_PAUSE_MS) {
    if (this.#isOver) return;
    if (pauseMs === 0) clearTimeout(this.#timer);
    else if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.flush(), pauseMs);
  }

  async flush() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#isOver) return;
    if (this.#isWriting) {
      this.write();
      return;
    }
    this.#isWriting = true;
    const batch = this.#waiting;
    this.#waiting = new Map();
    try {
      const writing = this.#db.transaction(["copies", "rows"], "readwrite");
      const { cursor, salt, key, heldColumns: columns } = this.#copy;
      writing.objectStore("copies").put({ id: this.#id, cursor, salt, key, columns, at: Date.now() });
      const rows = writing.objectStore("rows");
      for (const [name, held] of batch) this.#writeRow(rows, name, held);
      await new Promise((resolve, reject) => {
        writing.oncomplete = () => resolve(null);
        writing.onabort = () => reject(writing.error);
      });
    } catch (error) {
      // What is there is an older copy, and as good: the page goes on without writing.
      this.#isOver = true;
      console.warn("moorline: the cache cannot be written", error);
    } finally {
      this.#isWriting = false;
    }
  }

  #writeRow(/** @type {IDBObjectStore} */ rows, /** @type {string} */ name, /** @type {any} */ held) {
    if (held === null) {
      rows.delete([this.#id, name]);
      return;
    }
    const text = JSON.stringify(held.row);
    const check = checkOf(`${name} ${held.seq} ${text}`);
    rows.put({ copy: this.#id, name, key: held.key, seq: held.seq, text, check });
  }

  clear() {
    this.#waiting.clear();
    this.#forget(this.#db.transaction(["copies", "rows"], "readwrite"), this.#id);
  }

  #forget(/** @type {IDBTransaction} */ writing, /** @type {string} */ id) {
    writing.objectStore("copies").delete(id);
    writing.objectStore("rows").delete(rangeOf(id));
  }

  async close() {
    await this.flush();
    this.#isOver = true;
    this.#db.close();
  }
}

/** All rows of a copy: a list is behind every text. */
const rangeOf = (/** @type {string} */ id) => IDBKeyRange.bound([id], [id, []]);

// --- tabs -----------------------------------------------------------------------------------------

/**
 * One tab of those with the same id leads; the others hear what it says. When it goes, another one leads.
 * Without Web Locks, which pages over plain HTTP of another machine do not have, each tab leads for itself.
 */
class Tabs {
  /** @type {BroadcastChannel | null} */ #channel = null;
  #leaving = new AbortController();
  /** @type {() => void} */ #release = () => {};

  /** @param {string} id @param {boolean} isShared @param {() => void} lead @param {(message: any) => void} heard */
  constructor(id, isShared, lead, heard) {
    const name = `moorline-records ${id}`;
    if (!isShared || !globalThis.navigator?.locks || !globalThis.BroadcastChannel) {
      queueMicrotask(lead);
      return;
    }
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => heard(data);
    const held = new Promise((resolve) => (this.#release = () => resolve(null)));
    const leading = async () => {
      lead();
      await held;
    };
    navigator.locks.request(name, { signal: this.#leaving.signal }, leading).catch((error) => {
      if (error.name !== "AbortError") throw error;
    });
  }

  say(/** @type {object} */ message) {
    this.#channel?.postMessage(message);
  }

  close() {
    this.#leaving.abort();
    this.#release();
    this.#channel?.close();
    this.#channel = null;
  }
}

// --- the table ------------------------------------------------------------------------------------

const OPTIONS = new Set(["where", "columns", "token", "cache", "user", "share"]);

/** What a page sees: the types are in moorline-records.d.ts. */
class RecordTable {
  #copy = new Copy();
  #options; #address; #asked;
  /** @type {Tabs | null} */ #tabs = null;
  /** @type {Link | null} */ #link = null;
  /** @type {Cache | null} */ #cache = null;
  /** @type {Set<(changes: any[], table: any) => void>} */ #listeners = new Set();
  /** @type {Set<(table: any) => void>} */ #statusListeners = new Set();
  /** @type {Set<() => void>} */ #closers = new Set();
  #me = Math.random().toString(36).slice(2);
  #id = "";
  /** Counts what the leading tab says: who misses something asks for all. */
  #version = 0;
  #hasFollowers = false;
  #isJoining = false;
  #isStale = false;
  /** @type {Set<string>} */ #joined = new Set();
  /** @type {() => void} */ #becomeReady = () => {};
  status = "connecting";
  details = { how: "", code: "", why: "", drifts: 0, isLeading: false };
  /** Settled with the first proof. */
  ready = new Promise((resolve) => (this.#becomeReady = () => resolve(this)));

  /** @param {string} url @param {string} table @param {any} options */
  constructor(url, table, options) {
    if (typeof table !== "string" || table === "") throw new TypeError("records: the table is a name");
    for (const name of Object.keys(options)) {
      if (!OPTIONS.has(name)) throw new TypeError(`records: no option ${name}: there are ${[...OPTIONS].join(", ")}`);
    }
    this.#options = options;
    this.#address = addressOf(url);
    const columns = options.columns && [...options.columns].sort();
    this.#asked = { table, where: options.where ?? {}, ...(columns && { columns }) };
    this.#open().catch((error) => this.#became("refused", { code: "FAILED", why: String(error) }));
  }

  get rows() {
    return this.#copy.rows;
  }

  get columns() {
    return this.#copy.columns;
  }

  /** By what a row is found in `rows`. */
  keyOf(/** @type {any} */ row) {
    return nameOf(this.#copy.keyOf(row));
  }

  onchange(/** @type {(changes: any[], table: any) => void} */ listener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  onstatus(/** @type {(table: any) => void} */ listener) {
    this.#statusListeners.add(listener);
    return () => void this.#statusListeners.delete(listener);
  }

  /** One change behind the other; of a row that changed again before it was read, the latest. */
  changes() {
    /** @type {Map<string, any>} */ const waiting = new Map();
    let wake = () => {};
    const stop = this.onchange((changes) => {
      for (const change of changes) {
        waiting.delete(change.key);
        waiting.set(change.key, change);
      }
      wake();
    });
    const awake = () => wake();
    this.#closers.add(awake);
    const isClosed = () => this.status === "closed";
    const over = () => {
      stop();
      this.#closers.delete(awake);
    };
    return (async function* () {
      try {
        for (;;) {
          const [first] = waiting;
          if (first !== undefined) {
            waiting.delete(first[0]);
            yield first[1];
          } else if (isClosed()) {
            return;
          } else {
            await new Promise((resolve) => (wake = () => resolve(null)));
          }
        }
      } finally {
        over();
      }
    })();
  }

  close() {
    if (this.status === "closed") return;
    this.#became("closed");
    globalThis.document?.removeEventListener("visibilitychange", this.#shown);
    globalThis.removeEventListener?.("online", this.#shown);
    globalThis.removeEventListener?.("pagehide", this.#hidden);
    this.#link?.close();
    this.#cache?.close();
    this.#tabs?.close();
    for (const closer of this.#closers) closer();
  }

  // --- opening and leading

  async #token() {
    const { token = "" } = this.#options;
    return String((typeof token === "function" ? await token() : token) ?? "");
  }

  /** A page that cannot get its token now may get it later. */
  async #firstToken() {
    for (let tries = 0; this.status !== "closed"; tries++) {
      try {
        return await this.#token();
      } catch (error) {
        this.#became("apart", { code: "TOKEN", why: String(error) });
        await new Promise((resolve) => setTimeout(resolve, pauseOf(tries)));
      }
    }
    return "";
  }

  async #open() {
    // Copies of two users are two: neither tabs nor the cache show one what the other may see.
    const whose = this.#options.user ?? (await this.#firstToken());
    const asked = JSON.stringify([this.#address, this.#asked, whose], (_, value) => sortedByName(value));
    this.#id = xxh3(UTF8.encode(asked), 0n).toString(16).padStart(32, "0");
    if (this.status === "closed") return;
    globalThis.document?.addEventListener("visibilitychange", this.#shown);
    globalThis.addEventListener?.("online", this.#shown);
    globalThis.addEventListener?.("pagehide", this.#hidden);
    const isShared = this.#options.share !== false;
    const lead = () => void this.#lead().catch((error) => this.#became("refused", { code: "FAILED", why: String(error) }));
    this.#tabs = new Tabs(this.#id, isShared, lead, (message) => this.#heard(message));
    this.#join();
  }

  async #lead() {
    if (this.status === "closed") return;
    this.details.isLeading = true;
    await this.#openCache();
    if (/** @type {string} */ (this.status) === "closed") {
      this.#cache?.close();
      return;
    }
    this.#copy.hashBy(this.#copy.salt);
    this.#link = new Link(this.#address, this.#asked, () => this.#token(), this.#copy, {
      changed: (changes) => this.#changed(changes),
      became: (state, more) => this.#became(state, more),
      proven: (how) => this.#proven(how),
      drifted: () => this.#became("syncing", { drifts: this.details.drifts + 1 }),
      vanished: () => this.#cache?.clear(),
    });
    this.#tabs?.say({ type: "lead" });
  }

  async #openCache() {
    if (!this.#options.cache) return;
    try {
      const cache = await Cache.open(this.#id, this.#copy);
      // Who followed before has the rows already, and goes on from them.
      if (this.#copy.rows.size === 0) this.#emit(await cache.load());
      this.#cache = cache;
    } catch (error) {
      console.warn("moorline: there is no cache", error);
    }
  }

  #changed(/** @type {any[]} */ changes) {
    this.#cache?.keep(changes);
    if (this.#hasFollowers) {
      this.#version += 1;
      // As they are now, each once: a row may have changed twice in a batch.
      const told = [...new Set(changes.map(({ key }) => key))].map((name) => [name, this.#copy.held(name)]);
      this.#tabs?.say({ type: "changes", version: this.#version, changes: told, ...this.#facts() });
    }
    this.#emit(changes);
  }

  #proven(/** @type {string} */ how) {
    this.#cache?.write();
    this.#became("synced", { how, code: "", why: "" });
  }

  #became(/** @type {string} */ status, more = {}) {
    if (this.status === "closed") return;
    const isNews = status !== this.status || Object.keys(more).length > 0;
    this.status = status;
    Object.assign(this.details, more);
    if (status === "synced") this.#becomeReady();
    if (!isNews) return;
    if (this.#link !== null && this.#hasFollowers && status !== "closed") this.#tabs?.say({ type: "status", ...this.#facts() });
    for (const listener of this.#statusListeners) guarded(() => listener(this));
  }

  #emit(/** @type {any[]} */ changes) {
    if (changes.length === 0) return;
    for (const listener of this.#listeners) guarded(() => listener(changes, this));
  }

  #shown = () => {
    if (globalThis.document?.hidden) return;
    this.#link?.hurry();
    if (this.#isStale) this.#join();
  };

  #hidden = () => void this.#cache?.flush();

  // --- between tabs

  #facts() {
    const { cursor, salt, key, heldColumns: columns } = this.#copy;
    const { how, code, why, drifts } = this.details;
    return { copy: { cursor, salt, key, columns }, status: this.status, details: { how, code, why, drifts } };
  }

  #join() {
    if (this.details.isLeading) return;
    this.#isJoining = true;
    this.#isStale = false;
    this.#joined.clear();
    this.#tabs?.say({ type: "join", from: this.#me });
  }

  #heard(/** @type {any} */ message) {
    if (this.status === "closed") return;
    if (this.details.isLeading) {
      if (message.type === "join" && this.#link !== null) this.#tellAll(message.from);
    } else if (message.type === "lead") {
      this.#join();
    } else if (message.type === "rows" && message.to === this.#me && this.#isJoining) {
      this.#takeAll(message);
    } else if (message.type === "changes" && !this.#isJoining) {
      this.#takeChanges(message);
    } else if (message.type === "status" && !this.#isJoining) {
      this.#copy.cursor = this.#isStale ? this.#copy.cursor : message.copy.cursor;
      this.#became(message.status, message.details);
    }
  }

  /** All rows, to one that has joined. What changes behind them has higher versions. */
  #tellAll(/** @type {string} */ to) {
    this.#hasFollowers = true;
    /** @type {any[]} */ let rows = [];
    const say = (/** @type {boolean} */ isLast) => {
      this.#tabs?.say({ type: "rows", to, version: this.#version, rows, isLast, ...this.#facts() });
      rows = [];
    };
    for (const name of this.#copy.versions.keys()) {
      rows.push([name, this.#copy.held(name)]);
      if (rows.length >= TAB_ROWS_MAX) say(false);
    }
    say(true);
  }

  #takeAll(/** @type {any} */ message) {
    const copy = this.#copy;
    // In the midst of it the rows are of no cursor.
    Object.assign(copy, message.copy, { cursor: "" });
    const news = message.rows.filter((/** @type {any} */ [name, held]) => {
      this.#joined.add(name);
      return copy.versions.get(name)?.seq !== held.seq;
    });
    let changes = this.#apply(news);
    if (message.isLast) {
      const gone = [...copy.versions.keys()].filter((name) => !this.#joined.has(name));
      changes = changes.concat(this.#apply(gone.map((name) => [name, null])));
      copy.cursor = message.copy.cursor;
      this.#version = message.version;
      this.#isJoining = false;
      this.#joined.clear();
    }
    this.#emit(changes);
    if (message.isLast) this.#became(message.status, message.details);
  }

  #takeChanges(/** @type {any} */ message) {
    // A tab that nobody sees does no work; it asks for all when it is shown.
    if (globalThis.document?.hidden) this.#isStale = true;
    if (this.#isStale) return;
    if (message.version !== this.#version + 1) {
      this.#join();
      return;
    }
    this.#version = message.version;
    Object.assign(this.#copy, message.copy);
    this.#emit(this.#apply(message.changes));
  }

  #apply(/** @type {any[]} */ told) {
    const changes = [];
    for (const [name, held] of told) {
      const before = this.#copy.rows.get(name);
      if (held !== null) {
        this.#copy.put(held.key, held.seq, held.row);
        changes.push({ kind: "record", key: name, row: held.row, seq: held.seq });
      } else if (this.#copy.remove(name)) {
        changes.push({ kind: "deletion", key: name, row: before, seq: 0 });
      }
    }
    return changes;
  }
}

/** Names in one order, so that equal filters are equal texts. */
function sortedByName(/** @type {any} */ value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}

/** A listener that fails is the page's mistake: it is shown in the console, and the copy goes on. */
function guarded(/** @type {() => void} */ call) {
  try {
    call();
  } catch (error) {
    console.error(error);
  }
}

/** `https://node:7412`, or a path of the page's own origin, as the address of a WebSocket. */
function addressOf(/** @type {string} */ url) {
  const address = new URL(url, globalThis.location?.href);
  const scheme = { "http:": "ws:", "https:": "wss:", "ws:": "ws:", "wss:": "wss:" }[address.protocol];
  if (scheme === undefined) throw new TypeError(`records: the url begins with http: or https:, and not with ${address.protocol}`);
  const path = address.pathname.replace(/\/+$/, "");
  return `${scheme}//${address.host}${path.endsWith("/records") ? path : `${path}/records`}`;
}

/**
 * A live copy of those rows of a table that match a filter, and that may be seen.
 * @param {string} url of a node: `https://node:7412`
 * @param {string} table
 * @param {object} [options]
 */
export function records(url, table, options = {}) {
  return new RecordTable(url, table, options);
}
