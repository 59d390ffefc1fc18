"""How workers share the tests: in groups, the longest first, so that all end at about the same time.

A file is a group: its tests may share a node. Files on Spark share a session, whose start takes seconds of
every core, so there are only few groups of them. `lengths.txt` says how long a file took; a run with
`--write-lengths` writes it anew.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
LENGTHS = ROOT / "tests/lengths.txt"
ASKS_FOR_SPARK = re.compile(r"\bspark: SparkSession\b")
"""A test that takes the session of its worker."""
LISTED_S_MIN = 1.0
SESSIONS_MAX = 4
"""A session takes a gigabyte of memory; with more of them the longest file is the length of a run anyway."""


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker one group after the other. xdist's own groups ride in the names of tests, which this
    pytest does not let it change."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._groups = groups_of_tests()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[file_of(nodeid)]


def groups_of_tests() -> dict[str, str]:
    """The group of each file of tests, in their order: the same in every process of a run."""
    known_s = read_lengths(LENGTHS.read_text())
    files = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("tests/**/test_*.py")}
    lengths_s = {file: known_s.get(file, 0.0) for file in sorted(files)}
    on_spark = [file for file in lengths_s if ASKS_FOR_SPARK.search(files[file].read_text())]
    return groups_of(lengths_s, on_spark, min(cores(), SESSIONS_MAX))


def file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def cores() -> int:
    return max(2, len(os.sched_getaffinity(0)))


def read_lengths(text: str) -> dict[str, float]:
    """Seconds of each file, by its path from the root of the repository."""
    lines = (line.split() for line in text.splitlines())
    return {path: float(length_s) for length_s, path in lines}


def lengths_text(lengths_s: Mapping[str, float]) -> str:
    """What a later run reads; what takes next to no time is not worth a line."""
    listed = sorted(lengths_s.items(), key=lambda one: (-one[1], one[0]))
    return "".join(f"{s:6.0f} {path}\n" for path, s in listed if s >= LISTED_S_MIN)


def dealt(lengths_s: Mapping[str, float], hands: int) -> dict[str, int]:
    """Deals files into so many hands of about one length: which hand each is in."""
    sums_s = [0.0] * hands
    found: dict[str, int] = {}
    for path in sorted(lengths_s, key=lambda one: (-lengths_s[one], one)):
        hand = sums_s.index(min(sums_s))
        sums_s[hand] += lengths_s[path]
        found[path] = hand
    return found


def groups_of(
    lengths_s: Mapping[str, float], on_spark: Iterable[str], hands: int
) -> dict[str, str]:
    """The name of each file's group, in the order in which the groups are to begin."""
    spark = dealt({path: lengths_s[path] for path in on_spark}, hands)
    names = {path: f"spark-{spark[path]}" if path in spark else path for path in lengths_s}
    sums_s: dict[str, float] = {}
    for path, name in names.items():
        sums_s[name] = sums_s.get(name, 0.0) + lengths_s[path]
    return {
        path: names[path]
        for path in sorted(names, key=lambda one: (-sums_s[names[one]], names[one], one))
    }
