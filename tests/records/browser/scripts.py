"""Scripts that tests run in pages, and what they wait for there."""

import json
from typing import Any

from tests.records.browser.chromium import Tab
from tests.records.browser.place import Place

HASHES = """(async () => {
  const { xxh3 } = await import("/records/client.js");
  const data = Uint8Array.from({ length: 5000 }, (_, at) => (at * 131 + 7) & 255);
  return LENGTHS.map((length) => SEEDS.map((seed) =>
    xxh3(data.subarray(0, length), BigInt(seed)).toString(16).padStart(32, "0")));
})()"""


OPEN = """(async () => {
  const { records } = await import(CLIENT);
  window.batches = [];
  window.table = records(URL, NAME, OPTIONS);
  table.onchange((changes) => batches.push(changes.map(({ kind, key }) => [kind, key])));
})()"""


def filled(script: str, **values: Any) -> str:
    for name, value in values.items():
        script = script.replace(name.upper(), json.dumps(value))
    return script


async def opened(
    place: Place, tab: Tab, workspace: int, table: str = "things", **options: Any
) -> None:
    options = {"where": {"workspace_id": workspace}, "token": place.token} | options
    client = f"{place.url}/records/client.js"
    await tab.run(filled(OPEN, client=client, url=place.url, name=table, options=options))


async def equal(place: Place, tab: Tab, workspace: int) -> None:
    """State equal: the page's rows are those of the table, and proven."""
    rows = await place.site.table(f"workspace_id = {workspace}")
    wanted = {key[0]: row for key, (_, row) in rows.items()}
    await tab.until(
        f"table.status === 'synced' && same(table.rows, {json.dumps(wanted)})".replace("same", SAME)
    )


SAME = """((rows, wanted) => rows.size === Object.keys(wanted).length && [...rows].every(
  ([key, row]) => key in wanted && Object.keys({ ...row, ...wanted[key] }).every(
    (name) => row[name] === wanted[key][name])))"""


async def rows_of(place: Place, workspace: int, count: int = 300) -> None:
    first = workspace * 1_000
    await place.site.execute(
        f"insert into things select n, {workspace}, 'NEW', 'n' || n "
        f"from generate_series({first}, {first + count - 1}) n"
    )


SHOW = """(() => {
  const form = document.querySelector("form");
  for (const [name, value] of Object.entries(VALUES)) form.elements[name].value = value;
  form.requestSubmit();
})()"""


LOSING = """const parse = JSON.parse;
JSON.parse = (text) => parse(text).filter(({ type }) => {
  const isLost = type === window.lost;
  if (isLost) window.lost = "";
  return !isLost;
}); 0"""


async def equal_count(tab: Tab, count: int) -> None:
    """Proven by digest; the rows themselves are too many to be sent through the test."""
    await tab.until(f"table.status === 'synced' && table.rows.size === {count}")


STORES = """(async () => {
  const opening = indexedDB.open("moorline-records", 1);
  const brought = (request) => new Promise((resolve) => (request.onsuccess = () => resolve(request.result)));
  const db = await brought(opening);
  const work = db.transaction(["copies", "rows"], "readwrite");
  const rows = work.objectStore("rows");
  const result = await (async () => { WORK })();
  await new Promise((resolve) => (work.oncomplete = resolve));
  db.close();
  return result;
})()"""


def in_cache(work: str) -> str:
    return STORES.replace("WORK", work)


async def cached(tab: Tab, count: int) -> None:
    """Until so many rows, and a cursor, are in the cache."""
    await tab.until(
        in_cache(
            "const [about] = await brought(work.objectStore('copies').getAll());"
            f"return about?.cursor !== '' && (await brought(rows.count())) === {count};"
        )
    )


CHECK = """const checkOf = (text) => { let sum = 0x811c9dc5;
  for (const one of text) sum = Math.imul(sum ^ one.charCodeAt(0), 0x01000193); return sum >>> 0; };"""


HIDE = """Object.defineProperty(document, "hidden", { get: () => ISHIDDEN, configurable: true });
document.dispatchEvent(new Event("visibilitychange")); 0"""


BLOCKED = """window.tried = 0;
window.WebSocket = class {
  static OPEN = 1;
  constructor() {
    window.tried += 1;
    setTimeout(() => this.onclose({ code: 1006, reason: "" }));
  }
  close() {}
}; 0"""


# What the hook uses of React, in few lines: states, references and effects of one component.
HOOKS = """(async () => {
  const { useRecords } = await import("/records/records-react.js");
  const kept = [];
  let at = 0;
  const slot = (first) => (kept[at++] ??= { current: first });
  const React = {
    useRef: slot,
    useState: (first) => {
      const state = slot(first);
      return [state.current, (value) => { state.current = value; draw(window.options); }];
    },
    useEffect: (effect, changed) => {
      const before = slot(null);
      const text = JSON.stringify(changed);
      if (before.text === text) return;
      before.end?.();
      before.text = text;
      queueMicrotask(() => (before.end = effect()));
    },
  };
  window.draw = (options) => {
    window.options = options;
    at = 0;
    window.shown = useRecords(React, location.origin, "things", { ...options });
  };
  draw(OPTIONS);
})()"""
