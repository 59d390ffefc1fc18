// The tree of the resolver, level by level, and who publishes a path.

import { badge, h, head, pages, table } from "./draw.js";

async function publishers(link, path) {
  const found = await link.call("ResolvePaths", { paths: [path] });
  const [one] = found.found;
  if (!one || one.code === "NOT_FOUND") return null; // a level, with nothing published at it
  if (one.code) return badge(one.code, "warn");
  return table(
    "Publishers",
    [
      { title: "address", isName: true, value: (row) => row.address },
      { title: "principal", isName: true, value: (row) => row.principal },
      { title: "priority", isNumber: true, value: (row) => row.priority },
      { title: "roles", value: (row) => row.roles.join(", ") || "–" },
    ],
    one.publishers.map(([at]) => found.publishers[at]),
  );
}

export const paths = {
  title: "Paths",
  of: "cluster",
  async draw({ link, list }, [path = "/", after = ""]) {
    const [listed, holders] = await Promise.all([
      list("ListPaths", { path, after }),
      path === "/" ? null : publishers(link, path).catch((error) => h("p", { class: "empty" }, `${error.code}: ${error.message}`)),
    ]);
    const levels = path.split("/").filter(Boolean);
    const crumbs = levels.map((level, at) => {
      const upto = `/${levels.slice(0, at + 1).join("/")}`;
      return [" / ", h("a", { href: `#/paths/${encodeURIComponent(upto)}` }, level)];
    });
    // Names of one level, each with whether something is published there, and whether something is below.
    const below = (name) => (name.startsWith("/") ? name : `${path === "/" ? "" : path}/${name}`);
    return [
      head("Paths", "The resolver's tree: everything has a path, and who publishes a path is found by it. A value goes straight from its publisher to its subscribers."),
      h("p", { class: "crumbs" }, h("a", { href: "#/paths" }, "all"), crumbs),
      holders && [h("h2", {}, "Who publishes it"), holders],
      h("h2", {}, "Below"),
      table(
        "Paths below",
        [
          { title: "path", isName: true, value: ([name]) => h("a", { href: `#/paths/${encodeURIComponent(below(name))}` }, name) },
          { title: "published", value: ([, isPublished]) => (isPublished ? badge("yes", "good") : "–") },
          { title: "below", value: ([, , hasMore]) => (hasMore ? "more" : "–") },
        ],
        listed.children,
        path === "/" ? "nothing is published yet" : "nothing is published below it",
      ),
      pages(after && `#/paths/${encodeURIComponent(path)}`, listed.next && `#/paths/${encodeURIComponent(path)}/${encodeURIComponent(listed.next)}`),
    ];
  },
};
