"""Room: node. What is wrong with a node, for probes, people and `moor status`: one list, asked in three ways.

    ENDS        only a restart mends it                     /livez  /readyz  /healthz
    REFUSES     messages are refused, or not answered               /readyz  /healthz
    WANTS CARE  all is served; somebody should look at it                    /healthz

Every look reads what others have found out at their own intervals: a flood of requests asks no disk and no
catalog, and none of them waits.
"""

from collections.abc import Callable
from enum import IntEnum

from moorline.journal.disk_watch import FillsDisk
from moorline.limits import PROBLEM_CHARACTERS_MAX, PROBLEMS_TOLD_MAX
from moorline.metrics import Metrics

Look = Callable[[], str]
"""What is wrong just now, in one sentence; empty if nothing is."""


class Severity(IntEnum):
    WANTS_CARE = 1
    REFUSES = 2
    ENDS = 3


PAGES = {
    "livez": Severity.ENDS,
    "readyz": Severity.REFUSES,
    "healthz": Severity.WANTS_CARE,
}
"""What a page tells of: that, and what is worse."""


class Problems:
    """The looks of all parts of a node."""

    def __init__(self) -> None:
        self._looks: list[tuple[Severity, Look]] = []

    def watch(self, severity: Severity, look: Look) -> None:
        self._looks.append((severity, look))

    def add(self, severity: Severity, text: str) -> None:
        """Something that stays wrong as long as this process runs."""
        self._looks.append((severity, lambda: text))

    def found(self, least: Severity = Severity.WANTS_CARE) -> list[str]:
        """What is wrong and at least as severe, the worst first; one line each."""
        found = [(severity, look()) for severity, look in self._looks if severity >= least]
        wrong = sorted((-severity, place) for place, (severity, text) in enumerate(found) if text)
        texts = [" ".join(found[place][1].split()) for _, place in wrong]
        return [text[:PROBLEM_CHARACTERS_MAX] for text in texts[:PROBLEMS_TOLD_MAX]]


def full_disk(what: str, filling: FillsDisk) -> str:
    """The look at one that fills a disk."""
    if not filling.is_disk_full:
        return ""
    return f"the disk of the {what} is nearly full, less than its reserve is free: messages are refused"


def watch(metrics: Metrics, problems: Problems) -> None:
    """How many there are, for alerts; /healthz has their texts."""
    for name, help_text, least in (
        ("problems", "What is wrong with the node, as /healthz tells it.", Severity.WANTS_CARE),
        ("problems_refusing", "Of these: messages are refused or not answered.", Severity.REFUSES),
        ("problems_ending", "Of these: only a start mends it.", Severity.ENDS),
    ):
        metrics.watch(name, help_text, lambda least=least: len(problems.found(least)))  # type: ignore[misc]
