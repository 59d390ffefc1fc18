// Runs of the pipeline on Spark: how far they are, and what they have proven.

import { badge, count, h, head, meter, moment, pages, span, table } from "./draw.js";

const PER_PAGE = 50;

function states(one) {
  const kind = { running: "good", done: "", failed: "bad", silent: "warn" }[one.state] ?? "";
  return badge(one.state, kind);
}

function proof(one) {
  if (one.is_proven === null) return "–";
  return one.is_proven ? badge("proven", "good") : badge("differs", "bad");
}

export const pipeline = {
  title: "Pipeline",
  of: "cluster",
  async draw({ list }, [before = "0"]) {
    const page = await list("ListRuns", { before_us: Number(before) || 0, count: PER_PAGE });
    return [
      head("Pipeline", "Jobs over all the data, on Spark: archive, verify, replay, materialize, and flows of your own. Each ends with what it has proven."),
      table(
        "Runs of the pipeline",
        [
          { title: "job", value: (one) => one.kind },
          { title: "of what", isName: true, value: (one) => one.what },
          { title: "state", value: states },
          { title: "progress", isNumber: true, value: (one) => (one.total ? meter(one.done, one.total) : one.done ? count(one.done) : "–") },
          { title: "proof", value: proof },
          { title: "outcome", isName: true, value: (one) => one.why || one.proof || "–" },
          { title: "began (UTC)", value: (one) => moment(one.started_us) },
          { title: "took", isNumber: true, value: (one) => span((one.told_us - one.started_us) / 1_000) },
          { title: "who", isName: true, value: (one) => one.principal },
        ],
        page.runs,
        "none yet: moor pipeline archive ./archive begins one",
      ),
      pages(before !== "0" && "#/pipeline", !page.is_last && page.runs.length > 0 && `#/pipeline/${page.runs.at(-1).started_us}`),
    ];
  },
};
