// The native protocol of a node, spoken as JSON over a WebSocket. A message is an array of its tag and its
// fields; shapes.json says which, so there is no list of messages in here.

const SUBPROTOCOL = "moorline.native.json";
const SOFTWARE = "moorline-console";
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 15_000;

/** What the node refused, with its code. */
export class CallFailed extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

/** What a socket says of its end: a code of ours before the text, or the number alone. */
function reason(event) {
  return event.reason || `the connection has ended (${event.code})`;
}

class Shapes {
  constructor(found) {
    this.found = found;
    this.answers = new Map(
      Object.entries(found.client).map(([name, shape]) => [shape.tag, { name, shape }]),
    );
  }

  /** The array of a message from an object of its fields; those that are not given have their defaults. */
  packed(name, fields) {
    const shape = this.found.node[name];
    if (!shape) throw new CallFailed("UNSUPPORTED", `this node knows no ${name}`);
    return [shape.tag, ...shape.fields.map((field) => fields[field.name] ?? field.default ?? null)];
  }

  /** The name of a message that came, and an object of its fields. */
  unpacked(message) {
    const { name, shape } = this.answers.get(message[0]) ?? {};
    return shape ? { name, ...this.#fields(shape, message, 1) } : { name: "" };
  }

  #fields(shape, values, first) {
    const made = {};
    shape.fields.forEach((field, at) => {
      made[field.name] = this.#value(field, values[first + at] ?? field.default ?? null);
    });
    return made;
  }

  #value(field, value) {
    if (!field.part || value === null) return value;
    const shape = this.found.parts[field.part];
    if (field.isList) return value.map((one) => this.#fields(shape, one, 0));
    return this.#fields(shape, value, 0);
  }
}

/** One node: connects, proves who looks, connects again. `changed(state, text)` hears of each step, where the
    state is one of: connecting, open, away, refused. */
export class Link {
  #shapes = null;
  #socket = null;
  #calls = new Map();
  #number = 0;
  #pause = FIRST_PAUSE_MS;
  #proof = null;
  #retry = 0;
  welcome = null;
  /** Hears what the node says unasked of what is subscribed to. */
  pushed = () => {};
  /** Hears what the node wants to have answered before its welcome, as base64. */
  challenged = () => {};

  constructor(url, changed) {
    this.url = url;
    this.changed = changed;
  }

  /** A proof is {mechanism, proof}: a pass, a token, a user and a password, or the word of an issuer. */
  async open(proof) {
    this.#proof = proof;
    clearTimeout(this.#retry);
    this.changed("connecting", "");
    try {
      if (!this.#shapes) {
        const answer = await fetch("shapes.json");
        if (!answer.ok) throw new Error(`shapes.json: ${answer.status}`);
        this.#shapes = new Shapes(await answer.json());
      }
    } catch (error) {
      this.#later(String(error.message ?? error));
      return;
    }
    this.#connect();
  }

  /** By this it comes back, when the connection has ended. */
  prove(proof) {
    this.#proof = proof;
  }

  /** No more tries: the proof is not taken, or nobody looks any more. */
  close() {
    clearTimeout(this.#retry);
    const socket = this.#socket;
    this.#socket = null;
    this.welcome = null;
    socket?.close();
    // Nobody waits for them any more: what was being drawn by them is not drawn.
    this.#calls.clear();
  }

  /** The answer to a call, by its fields. */
  call(name, fields = {}) {
    if (!this.welcome) return Promise.reject(new CallFailed("AWAY", "not connected"));
    const number = ++this.#number;
    let message;
    try {
      message = this.#shapes.packed(name, { ...fields, call: number });
    } catch (error) {
      return Promise.reject(error);
    }
    return new Promise((resolve, reject) => {
      this.#calls.set(number, { resolve, reject });
      this.#socket.send(JSON.stringify([message]));
    });
  }

  /** A message that is the value of something, with its fields by their names. */
  unpacked(message) {
    return this.#shapes.unpacked(message);
  }

  /** A call as it is said, without a number: by this a view of a list is named. */
  said(name, fields = {}) {
    return JSON.stringify(this.#shapes.packed(name, { ...fields, call: 0 }));
  }

  knows(name) {
    return Boolean(this.#shapes?.found.node[name]);
  }

  #connect() {
    const socket = new WebSocket(this.url, [SUBPROTOCOL]);
    this.#socket = socket;
    socket.onopen = () => {
      const { mechanism, proof } = this.#proof ?? { mechanism: "", proof: "" };
      const hello = {
        protocol: "moorline",
        version_min: 1,
        version_max: 1,
        software: SOFTWARE,
        mechanism,
        proof: toBase64(proof),
      };
      socket.send(JSON.stringify([this.#shapes.packed("Hello", hello)]));
    };
    socket.onmessage = (event) => {
      if (this.#socket === socket) this.#heard(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (this.#socket === socket) this.#ended(reason(event));
    };
  }

  #heard(messages) {
    for (const one of messages) {
      const message = this.#shapes.unpacked(one);
      switch (message.name) {
        case "Welcome":
          this.welcome = message;
          this.#pause = FIRST_PAUSE_MS;
          this.changed("open", "");
          break;
        case "Ping":
          this.#socket.send(JSON.stringify([this.#shapes.packed("Pong", { token: message.token })]));
          break;
        case "Challenge":
          this.challenged(message.proof);
          break;
        case "Goodbye":
          this.#goodbye(message);
          break;
        case "ValuesChanged":
        case "ValuesEnded":
          this.pushed(message);
          break;
        default:
          this.#answered(message);
      }
    }
  }

  #answered(message) {
    const waiting = this.#calls.get(message.call);
    if (!waiting) return;
    this.#calls.delete(message.call);
    if (message.name === "Failed") waiting.reject(new CallFailed(message.code, message.text));
    else waiting.resolve(message);
  }

  #goodbye({ code, text }) {
    if (code !== "AUTH" && code !== "EXPIRED" && code !== "DENIED") return; // the end of the socket follows
    this.close();
    this.welcome = null;
    this.changed("refused", text);
  }

  #ended(text) {
    this.#fail(text);
    this.welcome = null;
    if (/^(AUTH|EXPIRED)/.test(text)) this.changed("refused", text);
    else this.#later(text);
  }

  #later(text) {
    this.changed("away", text);
    const wait = this.#pause * (0.5 + Math.random());
    this.#pause = Math.min(this.#pause * 2, LAST_PAUSE_MS);
    this.#retry = setTimeout(() => this.open(this.#proof), wait);
  }

  #fail(text) {
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const { reject } of calls) reject(new CallFailed("AWAY", text));
  }
}

export function toBase64(text) {
  return bytesToBase64(new TextEncoder().encode(text));
}

export function bytesToBase64(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
