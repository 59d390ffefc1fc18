// What the node pushes while somebody looks. A view is subscribed to once; its newest value is kept here, and
// whoever draws it is told of each that comes.

const RETRY_MS = 3_000;

export class Live {
  #link;
  #changed;
  #views = new Map(); // by path: what is known of each
  #paths = new Map(); // by the node's number of a view: its paths here
  #used = new Set();

  /** `changed()` hears that something which is drawn is another by now. */
  constructor(link, changed) {
    this.#link = link;
    this.#changed = changed;
    link.pushed = (message) => this.#pushed(message);
  }

  /** The newest value of a view; the first comes with the subscription. */
  async value(path) {
    this.#used.add(path);
    const known = this.#views.get(path);
    if (known && !(known.failedMs && performance.now() - known.failedMs > RETRY_MS)) return known.first.then(() => known.value);
    const one = { id: 0, value: null, failedMs: 0 };
    one.first = this.#subscribe(path, one);
    this.#views.set(path, one);
    await one.first;
    return one.value;
  }

  /** A drawing begins: what it does not ask for is not wanted any more at its end. */
  begin() {
    this.#used = new Set();
  }

  end() {
    for (const [path, one] of this.#views) if (!this.#used.has(path)) this.#leave(path, one);
  }

  /** Whether what is drawn is pushed. */
  get isUsed() {
    return this.#used.size > 0;
  }

  /** All of it anew: the page has changed something, or nobody looks. */
  leaveAll() {
    for (const [path, one] of this.#views) this.#leave(path, one);
  }

  /** The connection is another one, which knows nothing of them. */
  forgetAll() {
    this.#views.clear();
    this.#paths.clear();
  }

  async #subscribe(path, one) {
    try {
      const answer = await this.#link.call("SubscribeView", { view: path });
      const [{ id, value }] = answer.values;
      if (this.#views.get(path) !== one) {
        if (!this.#paths.has(id)) this.#unsubscribe(id); // it was left meanwhile
        return;
      }
      one.id = id;
      one.value = this.#link.unpacked(value);
      if (!this.#paths.has(id)) this.#paths.set(id, new Set());
      this.#paths.get(id).add(path);
    } catch (error) {
      one.failedMs = performance.now();
      throw error;
    }
  }

  #pushed(message) {
    let isDrawn = false;
    message.ids.forEach((id, at) => {
      for (const path of this.#paths.get(id) ?? []) {
        const one = this.#views.get(path);
        if (message.name === "ValuesEnded") this.#views.delete(path);
        else one.value = this.#link.unpacked(message.values[at]);
        isDrawn ||= this.#used.has(path);
      }
      if (message.name === "ValuesEnded") this.#paths.delete(id);
    });
    if (isDrawn) this.#changed();
  }

  #leave(path, one) {
    this.#views.delete(path);
    const paths = this.#paths.get(one.id);
    if (!paths) return;
    paths.delete(path);
    if (paths.size) return;
    this.#paths.delete(one.id);
    this.#unsubscribe(one.id);
  }

  #unsubscribe(id) {
    this.#link.call("UnsubscribeValues", { ids: [id] }).catch(() => {}); // away: then they are gone anyhow
  }
}
