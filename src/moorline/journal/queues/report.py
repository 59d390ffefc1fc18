"""Room: journal/queues. What a check or a repair of a store has found."""

import msgspec

from moorline.ids import text_of


class Problem(msgspec.Struct, frozen=True):
    """One thing that is not as it should be.

    `kind` is one of: layout, stray, log, index, manifest, state, record, missing, disagreement, doubled,
    aside, older, foreign, orphan, quarantine.
    """

    kind: str
    text: str
    queue: str = ""
    lost: int = 0
    """Messages that are gone for good, as far as it is known."""
    is_mended_by_a_start: bool = False
    """A node puts this right by itself, and nothing that it promised is lost."""

    @property
    def is_harmless(self) -> bool:
        """What a crash leaves: nothing is lost, and no message comes twice. A lost index or manifest is no
        such thing: whether something went with it cannot be told."""
        return self.is_mended_by_a_start and self.kind in ("state", "log") and not self.lost


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

    def found(
        self,
        kind: str,
        text: str,
        queue: bytes = b"",
        *,
        lost: int = 0,
        is_mended_by_a_start: bool = False,
    ) -> None:
        name = text_of(queue) if queue else ""
        self.problems.append(Problem(kind, text, name, lost, is_mended_by_a_start))
