"""Room: spark. What `verify` says of an archive: stream by stream, file by file, and whether all is well."""

import msgspec

from moorline.errors import DriftFound
from moorline.limits import SPARK_NAMES_TOLD_MAX
from moorline.spark.jobs.compare import LOST, Difference

BY_SEAL, BY_READING, BY_COUNT, UNPROVEN = "seal", "reading", "count", "none"
"""How a stream is proven: by the digest of its seal, by reading it from its node, or, where messages were
gone before they were archived and that was allowed, by the number that is left."""


class StreamReport(msgspec.Struct, frozen=True):
    """One sealed stream: what should be there, what is, and how that is known.

    `lost` were gone before they were archived. A node that does not answer may have the stream or not.
    """

    stream: str
    first: int
    end: int
    sealed: int
    archived: int
    is_equal: bool
    proof: str
    is_on_node: bool
    is_node_silent: bool = False
    lost: int = 0
    counts: dict[str, int] = {}
    differences: list[Difference] = []


class FileProblem(msgspec.Struct, frozen=True):
    """A file that is not as it was written, or that nobody wrote.

    An early one is of a stream that is not sealed, or not archived to its end yet: there is no digest that
    a repair could reach. One that is apart is no file of a stream, and no repair of messages mends it.
    """

    path: str
    text: str
    is_early: bool = False
    is_apart: bool = False


class Report(msgspec.Struct, frozen=True):
    """All streams by name. `behind` are sealed and not archived to their end yet; `unsealed` messages are in
    streams whose nodes have said no digest, mostly because they still grow."""

    streams: list[StreamReport]
    files: list[FileProblem]
    behind: int
    messages: int
    unsealed: int = 0
    fetched: int = 0
    removed: int = 0

    @property
    def differing(self) -> list[StreamReport]:
        return [one for one in self.streams if not one.is_equal]

    @property
    def lost(self) -> int:
        return sum(one.lost for one in self.streams)

    @property
    def is_equal(self) -> bool:
        """Nothing differs, and there is something that could have: over nothing there is no proof."""
        return not self.differing and not self.files and bool(self.streams)


def check(report: Report) -> None:
    """Raises if something differs or nothing is proven, with what to do next."""
    if report.is_equal:
        return
    if not report.streams and not report.files:
        raise DriftFound(_nothing(report))
    differing = report.differing
    silent = [one.stream for one in differing if one.is_node_silent]
    gone = [one.stream for one in differing if not one.is_on_node and not one.is_node_silent]
    unread = sum(one.counts.get(LOST, 0) for one in differing)
    parts = []
    if differing:
        parts.append(f"{len(differing)} of {len(report.streams)} streams differ from their seals")
    if report.files:
        first = report.files[0]
        parts.append(
            f"{_files(len(report.files))} not as written, the first: {first.path} {first.text}"
        )
    if silent:
        parts.append(f"{_named(silent)}: the node does not answer, start it")
    if gone:
        parts.append(f"{_named(gone)}: no node has it any more, so it cannot be repaired")
    if unread:
        parts.append(
            f"{unread} messages are not in the archive and cannot be read on their node: nobody has them"
        )
    early = [one for one in report.files if one.is_early]
    if early:
        parts.append(
            f"{_files(len(early))} of streams that are not sealed, or not archived to their end yet: "
            "when they are, --repair fetches what is missing; until then `moor pipeline archive` goes on"
        )
    is_late = any(not one.is_early and not one.is_apart for one in report.files)
    is_mendable = len(gone) + len(silent) < len(differing) or (is_late and not differing)
    if is_mendable and not unread:
        parts.append("--repair puts it right")
    raise DriftFound("; ".join(parts))


def _nothing(report: Report) -> str:
    """Why there is nothing to prove."""
    if report.behind:
        why = f"{report.behind} sealed streams are not archived to their end: run `moor pipeline archive`"
    elif report.unsealed:
        why = f"{report.unsealed} messages are archived, of streams that are not sealed yet"
    else:
        why = "nothing is archived yet"
    return f"nothing is proven: {why}"


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"


def _named(streams: list[str]) -> str:
    """The first of them, and how many more."""
    shown, more = ", ".join(streams[:SPARK_NAMES_TOLD_MAX]), len(streams) - SPARK_NAMES_TOLD_MAX
    return f"{shown} and {more} more" if more > 0 else shown
