"""Room: journal/queues. How many changes went with what is bad in the log.

Numbers rise by one from batch to batch: what a gap between two whole ones lacks is known. Behind the last
whole one a damaged batch says how many it had, if its head can be believed; else its bytes bound them.
"""

from typing import NamedTuple

from moorline.journal.queues.wal_batch import CHANGE
from moorline.journal.queues.wal_segment import NOWHERE, Survey


class Loss(NamedTuple):
    """What went with a stretch of a segment."""

    changes: int
    """At most so many."""
    behind: int
    """The number behind the last of them: those below it were given."""


class _Bad(NamedTuple):
    path: str
    start: int
    changes_max: int


def losses(surveys: list[Survey], stored: int) -> dict[tuple[str, int], Loss]:
    """By the path and the first byte of what is bad; of several in one gap only the first has an entry.

    Changes below `stored` are in the index and in the queues' files: they are not lost with the log.
    """
    found: dict[tuple[str, int], Loss] = {}
    gap: list[_Bad] = []
    behind = 0

    def close_gap(first: int) -> None:
        if gap:
            lost = max(0, first - max(behind, stored))
            found[gap[0].path, gap[0].start] = Loss(lost, first)
            gap.clear()

    for survey in surveys:
        if survey.first < NOWHERE and (survey.whole or survey.bad):
            # The head, or the name, says with which number it begins.
            close_gap(max(behind, survey.first))
            behind = max(behind, survey.first)
        bad = [] if survey.is_torn_end else [(at, None) for at in survey.bad]
        whole = zip(survey.whole, survey.numbers, strict=True)
        for (start, end), numbers in sorted([*bad, *whole], key=lambda one: one[0]):
            if numbers is None:
                gap.append(_Bad(survey.path, start, _changes_max(survey, start, end, behind)))
            else:
                close_gap(max(behind, numbers.start))
                behind = max(behind, numbers.stop)
    close_gap(behind + sum(one.changes_max for one in gap))
    return found


def _changes_max(survey: Survey, start: int, end: int, expected: int) -> int:
    """How many changes what is bad there can have had, if nothing whole follows that would tell."""
    if not start:
        # A damaged head is no batch.
        return 0
    most = (end - start) // CHANGE.size + 1
    said = survey.said.get(start, range(0))
    return len(said) if said.start == expected and 0 < len(said) <= most else most
