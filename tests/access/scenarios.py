"""The scenarios of access, and which tests carry their names.

A test carries a name in its docstring; `python -m tests.access.scenarios` writes the table of
docs/testing.md.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/testing.md"
ROW = re.compile(r"^\| ([AT]\d\d) \| [^|]+ \| ([^|]*) \|$", re.MULTILINE)
NAMED = re.compile(r"\b[AT]\d\d\b")

SCENARIOS = {
    "A01": "anonymous has its row on this machine, over TLS too; elsewhere it is refused unless configured",
    "A02": "a renewed certificate owns what the old one owned",
    "A03": "the same common name under another rule is another principal",
    "A04": "a certificate that could be nobody's, or two, is refused, and the log has the reason",
    "A05": "certificates that are no proof any more, not yet or never; one that ends while connected",
    "A06": "passwords: wrong, right, changed while connected, a thousand wrong ones",
    "A07": "new files of TLS at SIGHUP, broken ones too; old links stay until their proof ends",
    "A08": "a listener takes nothing weaker than it names",
    "A09": "owners that were fingerprints: claimed, mapped, or the operators'",
    "A10": "what nodes say to each other, said by somebody else",
    "A11": "a node of another cluster, or one that left, is refused and cut",
    "A12": "a call that is passed on is judged by who asked, where it arrives",
    "A13": "one that comes after its deadline or for another epoch is refused",
    "A20": "each act with its right and without",
    "A21": "rows as a tree: deny and grant, deeper and higher, groups of users, `%u`, none at all",
    "A22": "a filter is granted only if all that it can match is",
    "A23": "a denial below a filter that runs cuts it within the bound",
    "A24": "whatever runs by a right that is taken away ends on every node, and nothing more arrives",
    "A25": "a right that is given works without a new connection",
    "A26": "`moor grant explain` names the row that decided",
    "A27": "the catalog away: known rights for a stated time, then none, then as before",
    "A28": "names of another: producer, query, session, group; the other notices nothing",
    "A29": "who knows the id of another's queue may send to it, and nothing else",
    "A30": "quotas: at the bound a typed error, below it again after release",
    "A31": "descriptors of sockets, stages and segments together stay below the limit",
    "A32": "every text and list of every message at its bound, and one above",
    "A33": "very many topics and retained messages: in pages, and the loop free",
    "A34": "a flood of refusals is counted and summed",
    "A40": "a line for each, with who, proof, address, act, path, verdict and time, and no secret",
    "A41": "a group reads the trail, and so does Spark",
    "A42": "the disk of the trail is full",
    "T14": "deny and grant, deeper and higher, groups, the own subtree, an empty table",
    "T15": "a permission that is taken away while subscribed",
    "T18": "proofs that do not hold: distinct errors, never that the node is unreachable",
}


@functools.cache
def carried() -> dict[str, set[str]]:
    """The files of tests that carry each name, from the root of the repository."""
    found: dict[str, set[str]] = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        for docstring in docstrings_of(path):
            for name in NAMED.findall(docstring):
                found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


def docstrings_of(path: Path) -> Iterator[str]:
    """Of the tests in a file; one that has no such name is not parsed."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text if NAMED.search(text) else "")):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                yield ast.get_docstring(node) or ""


def written(document: str) -> str:
    """The document with its rows as they are now."""
    files = carried()

    def row(found: re.Match[str]) -> str:
        name = found[1]
        shown = ", ".join(f"`{one}`" for one in sorted(files.get(name, ())))
        return f"| {name} | {SCENARIOS[name]} | {shown} |"

    return ROW.sub(row, document)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
