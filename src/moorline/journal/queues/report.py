"""Room: journal/queues. What a check or a repair of a store has found."""

import msgspec

from moorline.ids import text_of


class Problem(msgspec.Struct, frozen=True):
    """One thing that is not as it should be.

    `kind` is one of: layout, stray, log, index, manifest, state, record, missing, disagreement, doubled,
    aside, older, owner, foreign, orphan, quarantine.
    """

    kind: str
    text: str
    queue: str = ""
    lost: int = 0
    """Messages that are gone for good, as far as it is known."""
    lost_changes: int = 0
    """Of the log, at most: sends, acknowledgements, queues that were made or deleted."""
    is_loss_unknown: bool = False
    """More may be lost, and nothing says how much."""
    is_mended_by_a_start: bool = False
    """A node puts this right by itself, and nothing that it promised is lost."""

    @property
    def is_harmless(self) -> bool:
        """What a crash leaves: nothing is lost, and no message comes twice. A lost index or manifest is no
        such thing: whether something went with it cannot be told."""
        is_lossless = not self.lost and not self.lost_changes
        return self.is_mended_by_a_start and self.kind in ("state", "log") and is_lossless


class Report(msgspec.Struct):
    queues: int = 0
    messages: int = 0
    saved: int = 0
    """Messages read from queues that were set aside."""
    doubled: int = 0
    """Messages that may have been acknowledged and will come again."""
    aside: int = 0
    """Records that nothing accounted for, set aside beside their files."""
    problems: list[Problem] = []
    kept: list[str] = []
    """What was set aside and is on disk. It is no problem: whoever needs it no more removes it."""

    @property
    def lost(self) -> int:
        return sum(problem.lost for problem in self.problems)

    @property
    def lost_changes(self) -> int:
        """Of the log, at most; which of them were messages that waited cannot be told."""
        return sum(problem.lost_changes for problem in self.problems)

    @property
    def is_loss_unknown(self) -> bool:
        return any(problem.is_loss_unknown for problem in self.problems)

    def found(
        self,
        kind: str,
        text: str,
        queue: bytes = b"",
        *,
        lost: int = 0,
        lost_changes: int = 0,
        is_loss_unknown: bool = False,
        is_mended_by_a_start: bool = False,
    ) -> None:
        name = text_of(queue) if queue else ""
        self.problems.append(
            Problem(kind, text, name, lost, lost_changes, is_loss_unknown, is_mended_by_a_start)
        )
