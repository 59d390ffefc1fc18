// Types of moorline-records.js. Those of a table's rows are printed by `moor records types TABLE`.

/** A value that a column is compared with. */
export type FilterValue = string | number | boolean | null;

/** A value, a list of values, or a range. All columns must match. */
export type Where = Record<
  string,
  FilterValue | FilterValue[] | { ">"?: FilterValue; ">="?: FilterValue; "<"?: FilterValue; "<="?: FilterValue }
>;

export interface RecordsOptions {
  /** Which rows; without it, all that may be seen. */
  where?: Where;
  /** Which columns; without it, all. Those of the key are always there. */
  columns?: string[];
  /** A token of the user, or what brings one: it is asked at each connection. */
  token?: string | (() => string | Promise<string>);
  /** Keeps the rows in IndexedDB, so that a page that is opened again shows them at once. Default: false. */
  cache?: boolean;
  /** Whose copy it is: tabs and cache are shared among equal ones. Default: the token, so a new token begins a new cache. */
  user?: string;
  /** Whether tabs with the same copy share one connection. Default: true. */
  share?: boolean;
}

export interface RecordChange<Row> {
  /** `record`: the row is there, or is another one. `deletion`: it is not there any more, for us; `row` is as it was. */
  kind: "record" | "deletion";
  key: string;
  row: Row;
  seq: number;
}

/**
 * `connecting` and `syncing` lead to `synced`: the rows are the table, proven by digest. `apart`: the connection is
 * lost, and the client comes back by itself. `refused`: the node does not serve it now, `details` says why.
 */
export type RecordsStatus = "connecting" | "syncing" | "synced" | "apart" | "refused" | "closed";

export interface RecordsDetails {
  /** How the last sync went: full, replay, digest, live. */
  how: string;
  /** Of a refusal or a lost connection. */
  code: string | number;
  why: string;
  /** How often the copy was found to differ from the node. */
  drifts: number;
  /** Whether this tab has the connection. */
  isLeading: boolean;
}

export interface RecordTable<Row> {
  /** By the text of the key; of a key of several columns, by a JSON list of their texts. */
  readonly rows: ReadonlyMap<string, Row>;
  readonly columns: readonly { name: string; type: string }[];
  readonly status: RecordsStatus;
  readonly details: Readonly<RecordsDetails>;
  /** Settled when the rows are proven for the first time. */
  readonly ready: Promise<RecordTable<Row>>;
  keyOf(row: Row): string;
  /** Hears changes in batches. The result ends it. */
  onchange(listener: (changes: RecordChange<Row>[], table: RecordTable<Row>) => void): () => void;
  onstatus(listener: (table: RecordTable<Row>) => void): () => void;
  /** Changes from now on; of a row that changed again before it was read, the latest. Ends with `close`. */
  changes(): AsyncGenerator<RecordChange<Row>, void, void>;
  close(): void;
}

/** A live copy of rows of a table. `url` is that of a node, such as `https://node:7412`. */
export function records<Row = Record<string, unknown>>(
  url: string,
  table: string,
  options?: RecordsOptions,
): RecordTable<Row>;

/** XXH3-128 of bytes with a seed of 64 bits: the hash of the digests. */
export function xxh3(bytes: Uint8Array, seed: bigint): bigint;
