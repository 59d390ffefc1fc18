"""Room: cli. What `moor pipeline` prints of the reports of its jobs."""

from typing import TYPE_CHECKING, Any

from moorline.cli import output
from moorline.ids import ID_BYTES, text_of

if TYPE_CHECKING:
    from moorline.spark.jobs.audit import Audited
    from moorline.spark.jobs.diff import Found
    from moorline.spark.jobs.verify import Report

ROWS_SHOWN = 20
"""Ranges that a table shows; --json has them all, up to the job's own bound."""


def show_report(report: "Report") -> None:
    differing = report.differing
    if report.files:
        output.table(("file", "problem"), [(one.path, one.text) for one in report.files])
        output.line("")
    if differing:
        rows = [
            (one.stream, one.sealed, one.archived, _counted(one.counts), one.is_on_node)
            for one in differing
        ]
        output.table(("stream", "sealed", "archived", "what", "on node"), rows)
        output.line("")
        ranges = [
            (one.stream, at.kind, at.first, at.upto - 1)
            for one in differing
            for at in one.differences
        ]
        if ranges:
            output.table(("stream", "what", "first", "last"), ranges[:ROWS_SHOWN])
            if len(ranges) > ROWS_SHOWN:
                output.line(f"and {len(ranges) - ROWS_SHOWN} ranges more: --json has them")
            output.line("")
    by_reading = sum(1 for one in report.streams if one.is_equal and one.proof == "reading")
    proof = f", {by_reading} of them by reading their nodes" if by_reading else ""
    done = (
        f"; {report.fetched:,} messages fetched, {report.removed:,} removed"
        if report.fetched or report.removed
        else ""
    )
    proven = len(report.streams) - len(differing)
    output.line(
        f"{proven} of {len(report.streams)} sealed streams are proven equal{proof}; "
        f"{report.messages:,} messages; {report.behind} are not archived to their end yet{done}"
    )


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "-"


def audit_facts(one: "Audited") -> dict[str, Any]:
    return {
        "service": one.service,
        "is_right": one.is_right,
        "count": one.recomputed.count,
        "kept": str(one.kept),
        "recomputed": str(one.recomputed),
        "client": None if one.client is None else str(one.client),
        "wrong_hashes": one.wrong_hashes,
        "wrong_buckets": one.wrong_buckets,
    }


def show_audit(found: list["Audited"]) -> None:
    rows = [
        (
            one.service,
            one.recomputed.count,
            one.kept == one.recomputed and not one.wrong_buckets,
            one.wrong_hashes,
            None if one.client is None else one.client == one.recomputed,
        )
        for one in found
    ]
    output.table(("service", "queues", "kept is true", "wrong hashes", "client agrees"), rows)


def diff_facts(found: "Found") -> dict[str, Any]:
    left, right = found.comparison.left, found.comparison.right
    return {
        "is_equal": found.is_equal,
        "left": {"count": left.count, "digest": str(left)},
        "right": {"count": right.count, "digest": str(right)},
        "buckets_differing": found.comparison.buckets_differing,
        "only_left": found.only_left,
        "only_right": found.only_right,
        "ids": [{"id": id_text(one), "only": side} for one, side in found.ids],
    }


def id_text(one: bytes) -> str:
    """The id of a queue as people write it; another as the text that it is, or its bytes."""
    if len(one) == ID_BYTES:
        return text_of(one)
    text = one.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else one.hex()


def show_diff(found: "Found") -> None:
    if found.ids:
        output.table(("id", "only"), [(id_text(one), side) for one, side in found.ids])
        output.line("")
    left, right = found.comparison.left.count, found.comparison.right.count
    verdict = (
        "equal"
        if found.is_equal
        else f"{found.only_left:,} only left, {found.only_right:,} only right"
    )
    output.line(f"{left:,} ids left, {right:,} right: {verdict}")
