// What nodes did in the last minutes: kept by each of them, so that a plot is whole when the page opens. The
// newest steps are pushed; the page adds them to those that it has, and asks for all where some are missing.

const MOST = 300; // steps of a plot

const kept = new Map(); // by home

/** Steps of a node: `series` have the same steps, the newest last, and `now` is what it has. */
export async function figuresOf(page, home) {
  const newest = await page.live(`figures/${home}`);
  const known = kept.get(home);
  const first = newest.step - newest.series[0].length;
  let found;
  if (known && newest.step >= known.step && first <= known.step) {
    const more = newest.step - known.step;
    const series = known.series.map((points, at) => (more ? [...points, ...newest.series[at].slice(-more)].slice(-MOST) : points));
    found = { ...newest, series };
  } else {
    found = await page.link.call("ReadFigures", { home });
  }
  kept.set(home, found);
  return found;
}

/** Several nodes as one: rates add up, of times the worst counts; the newest steps lie on each other. */
export function together(all) {
  const length = Math.max(0, ...all.map((one) => one.series[0].length));
  const joined = (at, join) =>
    Array.from({ length }, (_, place) => {
      const points = all.map((one) => one.series[at]).map((points) => points[points.length - length + place]);
      return join(...points.filter((point) => point !== undefined));
    });
  const sum = (...points) => points.reduce((total, point) => total + point, 0);
  return { sum: (at) => joined(at, sum), worst: (at) => joined(at, Math.max), stepMs: all[0]?.step_ms ?? 0, length };
}

/** What they have together. */
export function total(all, name) {
  return all.reduce((sum, one) => sum + one.now[name], 0);
}
