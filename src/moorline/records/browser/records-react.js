// A hook for React around moorline-records.js. React is passed in: this file imports nothing but its neighbour.
//
//     const { rows, status } = useRecords(React, "https://node:7412", "experiments", { where: { workspace_id: 1 } });

import { records } from "./moorline-records.js";

/**
 * The rows of a table as React shows them; drawn again when they change.
 * @param {any} React
 * @param {string} url
 * @param {string} table
 * @param {any} [options]
 */
export function useRecords(React, url, table, options = {}) {
  const [shown, show] = React.useState({ rows: new Map(), status: "connecting", why: "" });
  // Options are written anew at each drawing: the same text is the same subscription. A function that brings
  // tokens is none of the text, and the latest one is asked.
  const { token, ...others } = options;
  const latest = React.useRef(token);
  latest.current = token;
  const asked = JSON.stringify([others, typeof token === "function" ? true : token]);
  React.useEffect(() => {
    const current = () => (typeof latest.current === "function" ? latest.current() : latest.current);
    const opened = records(url, table, { ...others, token: typeof token === "function" ? current : token });
    let isWaiting = false;
    let isOver = false;
    // Once for all that came together: a first sync has many batches.
    const draw = () => {
      if (isWaiting) return;
      isWaiting = true;
      setTimeout(() => {
        isWaiting = false;
        if (!isOver) show({ rows: new Map(opened.rows), status: opened.status, why: opened.details.why });
      }, 0);
    };
    opened.onchange(draw);
    opened.onstatus(draw);
    draw();
    return () => {
      isOver = true;
      opened.close();
    };
  }, [url, table, asked]);
  return shown;
}
