import type { RecordsOptions, RecordsStatus } from "./moorline-records.js";

/** What the hook needs of React. */
export interface ReactHooks {
  useState<Value>(first: Value): [Value, (value: Value) => void];
  useEffect(effect: () => void | (() => void), changed?: readonly unknown[]): void;
  useRef<Value>(first: Value): { current: Value };
}

export interface ShownRecords<Row> {
  /** A new map whenever something has changed. */
  rows: ReadonlyMap<string, Row>;
  status: RecordsStatus;
  why: string;
}

export function useRecords<Row = Record<string, unknown>>(
  React: ReactHooks,
  url: string,
  table: string,
  options?: RecordsOptions,
): ShownRecords<Row>;
