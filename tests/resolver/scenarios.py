"""The scenarios of the resolver and of values, and which tests are called by their numbers.

`python -m tests.resolver.scenarios` writes the table of docs/testing.md.
"""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/testing.md"
FOLDERS = ("core/directory", "core/values", "kerberos", "net", "process", "resolver", "values")
"""Where they are; the scenarios of other subjects have numbers of their own."""
TABLE = re.compile(r"(<!-- scenarios of the resolver -->\n).*?(<!-- end -->)", re.DOTALL)
NUMBERED = re.compile(r"_t(\d+)(?=_)")

SCENARIOS = {
    1: "resolve, subscribe, updates: the four steps, in the clear, with certificates, with Kerberos",
    2: "unknown, gone and denied paths, each with its own error; one of a thousand fails no other",
    3: "a thousand subscribers are shared out evenly among two publishers",
    4: "two subscriptions to one path make one request",
    5: "a new subscriber sees a batch whole or not at all",
    6: "values are written back, with a receipt and without, with the right and without",
    8: "lists and matches follow what two publishers do, and empty branches vanish",
    10: "a token for another path, right or holder, cut, altered, of another secret",
    11: "the life of a token: just inside, just outside, from the future",
    13: "who takes Kerberos hears nobody who proves nothing",
    14: "deny and grant, deeper and higher, groups, the own subtree, an empty table",
    15: "a right that is taken away ends what runs by it, within its bound",
    16: "who claims another's address fails, and the other's entries stay",
    17: "behind a restart old tokens are denied, and durable subscriptions recover",
    18: "wrong principals, keytabs, tickets, clocks and certificates: distinct errors",
    19: "what was recorded, changed or reordered on a wrapped link is refused",
    20: "a publisher that hangs is left within its bound, and nothing stale comes behind",
    21: "one of two subscribers hangs: it is cut, the other is not stalled",
    22: "a resolver that hangs is left for another; all hang: an error, and then they are back",
    23: "a resolver that stood still, shortly or for long, loses nothing",
    24: "a KDC that hangs or is away: tickets that are there go on, others fail in their time",
    30: "a publisher is killed: an event, a backoff that grows, another publisher, a purge",
    31: "killed in the middle of batches: only whole ones are seen",
    32: "a publisher that stops leaves all resolvers first",
    33: "one of three resolvers is dead, and the others answer",
    34: "resolvers that restart empty are whole again, and what runs goes on",
    35: "a resolver is away for long: nothing fails, memory is bounded",
    36: "what is published while a resolver is away comes with it",
    37: "ten thousand durable subscriptions come back together, batched and jittered",
    40: "a publisher is cut from one resolver only",
    41: "a subscriber is cut from one publisher and not from the other",
    43: "packets are dropped, not reset: as a hang",
    50: "a million paths are published, resolved and purged beside others",
    51: "slow, half and huge hellos, garbage, ten thousand idle sockets",
    52: "subscriptions that come and go leave nothing behind",
}


@functools.cache
def carried() -> dict[int, list[str]]:
    """The tests of each number: their files and names."""
    found: dict[int, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            for name in names_in(path):
                for number in NUMBERED.findall(name):
                    where = path.relative_to(ROOT).as_posix()
                    found.setdefault(int(number), []).append(f"{where}::{name}")
    return found


def names_in(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name for node in nodes if isinstance(node, kinds) and node.name.startswith("test_")
    ]


def table() -> str:
    lines = ["| | what | tests |", "|---|---|---|"]
    for number, what in SCENARIOS.items():
        files = sorted({one.partition("::")[0] for one in carried().get(number, ())})
        lines.append(f"| `t{number}` | {what} | {', '.join(f'`{one}`' for one in files)} |")
    return "\n".join(lines) + "\n"


def written(document: str) -> str:
    """The document with its table as it is now."""
    return TABLE.sub(lambda found: found[1] + table() + found[2], document)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
