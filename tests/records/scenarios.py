"""The scenarios of records, and which tests are called by their numbers, each over a real Postgres.

`python -m tests.records.scenarios` writes the table of docs/testing.md.
"""

import functools
import re

from tests.resolver.scenarios import DOCUMENT, ROOT, names_in

FOLDERS = ("records", "client/records")
TABLE = re.compile(r"(<!-- scenarios of records -->\n).*?(<!-- end -->)", re.DOTALL)
NUMBERED = re.compile(r"_t(\d+)(?:_to_t(\d+))?(?=_)")

SCENARIOS = {
    1: "who took the earlier number and commits later is not missed",
    2: "8 writers, rollbacks: none missed, none invented; `seq > last` misses some",
    3: "numbers that were taken back stall nobody",
    4: "a savepoint that was taken back is not told",
    5: "a transaction that is open for long, also in another database",
    7: "very many rows in one transaction",
    8: "one row changed 1,000 times between two looks",
    10: "inserted and deleted in one batch",
    11: "fell in and out in one batch",
    12: "fell out and in ends present",
    13: "all pairs of two events for two subscribers",
    14: "child rows follow their parent",
    15: "deletion by cascade reaches those who filter by the parent",
    16: "an update that changes nothing sends nothing",
    17: "TRUNCATE",
    18: "writes from elsewhere are captured",
    20: "offline update of a known record",
    21: "offline deletion",
    22: "offline fallout by a column that changes",
    23: "offline appearance of an old record",
    24: "random mixes on 1,000 records",
    25: "reconnect to another server, the first one dead",
    26: "reconnect while writes go on",
    27: "cut at every message of a sync, and resumed",
    28: "a cursor older than the log goes by digest, and says so",
    29: "a cursor from before a restore, or of another cluster",
    31: "the subscription changes while old messages are in flight",
    32: "a reconnect behind a sync that is done subscribes again",
    33: "of quick subscribes the last wins",
    34: "one of three tables is unsubscribed",
    40: "equal sets: one round, below 100 bytes",
    41: "1, 10, 200, 10,000 and all rows of 1,000,000 differ",
    42: "equal ids, one stale version",
    43: "empty client, empty server, one id",
    45: "a repeated addition or deletion leaves the digest as it is",
    47: "ranges that are malformed, unsorted, overlapping or huge",
    48: "nothing is told of rows outside of the scope",
    50: "revoked while online",
    51: "granted while online",
    52: "revoked and granted while offline nets to nothing",
    53: "deletion and disappearance are the same bytes",
    54: "rights change while somebody subscribes",
    55: "the signal of a change of rights is lost",
    56: "10,000 clients are booted, and return at a rate",
    57: "a token that ends closes an idle stream",
    60: "a reader stops: bounded, then the latest, others unaffected",
    61: "a half-open socket is found by ping",
    62: "the server dies between reading and sending",
    63: "its connections to Postgres are lost and back",
    64: "Postgres restarts under load",
    67: "capture is stalled: writers go on",
    68: "a record of 1 MiB passes",
    69: "a column is added while clients are connected",
}


@functools.cache
def carried() -> dict[int, list[str]]:
    """The tests of each number: their files and names. `t20_to_t23` are four."""
    found: dict[int, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            where = path.relative_to(ROOT).as_posix()
            for name in names_in(path):
                for first, last in NUMBERED.findall(name):
                    for number in range(int(first), int(last or first) + 1):
                        found.setdefault(number, []).append(f"{where}::{name}")
    return found


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
