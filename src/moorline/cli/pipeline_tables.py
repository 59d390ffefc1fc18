"""Room: cli. What `moor pipeline` prints of the reports of its jobs."""

from typing import TYPE_CHECKING, Any

from moorline.cli import output
from moorline.cli.bodies import time_of
from moorline.ids import ID_BYTES, text_of
from moorline.limits import PIPELINE_ROWS_SHOWN

if TYPE_CHECKING:
    from moorline.spark.jobs.archive import Archived
    from moorline.spark.jobs.audit import Audited
    from moorline.spark.jobs.clean import Cleaned
    from moorline.spark.jobs.diff import Found
    from moorline.spark.jobs.flows import FlowReport
    from moorline.spark.jobs.replay import Replayed
    from moorline.spark.jobs.verify_report import Report
    from moorline.wire.pipeline_run import RunFacts


def show_archived(done: "Archived") -> None:
    if done.lost:
        rows = [
            (one.shard, one.first, one.upto - 1, one.upto - one.first, one.why) for one in done.lost
        ]
        output.table(("shard", "first", "last", "messages", "lost because"), rows)
        output.line("")
    output.line(archived_in_words(done))


def archived_in_words(done: "Archived") -> str:
    parts = [f"{done.messages:,} messages archived in {_many(done.batches, 'batch', 'batches')}"]
    if done.lost:
        parts.append(f"{done.lost_messages:,} were gone")
    if done.compacted_files:
        parts.append(f"{done.compacted_files} small files merged into {done.compacted_into}")
    parts += [_many(done.files, "file", "files"), f"{done.seals} sealed streams known"]
    return "; ".join(parts)


def show_replayed(done: "Replayed") -> None:
    output.line(replayed_in_words(done))


def replayed_in_words(done: "Replayed") -> str:
    rate = "" if done.rate_kept is None else f" ({done.rate_kept:,.0f} a second)"
    return (
        f"{done.messages:,} messages published in {_many(done.steps, 'step', 'steps')} and "
        f"{done.seconds:.1f} s{rate}; {done.messages_in_all:,} by the replay {done.token} in all"
    )


def show_flows(reports: list["FlowReport"]) -> None:
    output.table(
        ("flow", "state", "messages", "batches", "verified", "in sink"),
        [
            (
                one.name,
                one.state.lower().replace("_", " "),
                one.messages,
                one.batches,
                one.verified,
                one.sink_count,
            )
            for one in reports
        ],
    )
    for one in reports:
        if one.over:
            output.line(f"the proof of {one.name} is over {one.over}")


def flows_in_words(reports: list["FlowReport"]) -> tuple[str, bool | None]:
    """With whether what was compared is equal; None where nothing was."""
    verdicts = [one.verified for one in reports if one.verified is not None]
    equal = f"{sum(verdicts)} of {len(verdicts)} copies proven equal" if verdicts else "no proofs"
    messages = sum(one.messages for one in reports)
    text = f"{_many(len(reports), 'flow', 'flows')}, {messages:,} messages; {equal}"
    return text, all(verdicts) if verdicts else None


def show_runs(runs: list["RunFacts"]) -> None:
    rows = [
        (
            time_of(one.started_us),
            one.kind,
            one.what,
            one.state,
            f"{one.done:,} of {one.total:,}" if one.total else f"{one.done:,}",
            {True: "yes", False: "NO", None: None}[one.is_proven],
            one.why or one.proof,
        )
        for one in runs
    ]
    output.table(("began", "job", "what", "state", "done", "proven", "outcome"), rows)


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


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
            output.table(("stream", "what", "first", "last"), ranges[:PIPELINE_ROWS_SHOWN])
            if len(ranges) > PIPELINE_ROWS_SHOWN:
                output.line(f"and {len(ranges) - PIPELINE_ROWS_SHOWN} ranges more: --json has them")
            output.line("")
    output.line(report_in_words(report))


def report_in_words(report: "Report") -> str:
    differing = report.differing
    by_reading = sum(1 for one in report.streams if one.is_equal and one.proof == "reading")
    proof = f", {by_reading} of them by reading their nodes" if by_reading else ""
    proven = len(report.streams) - len(differing)
    parts = [
        f"{proven} of {len(report.streams)} sealed streams are proven equal{proof}",
        f"{report.messages:,} messages",
    ]
    if report.lost:
        parts.append(f"{report.lost:,} were gone before they were archived, as was allowed")
    if report.fetched or report.removed:
        parts.append(f"repaired: {report.fetched:,} messages fetched, {report.removed:,} removed")
    if report.unsealed:
        parts.append(f"{report.unsealed:,} more are in streams that are not sealed yet")
    if report.behind:
        parts.append(f"{report.behind} sealed streams are not archived to their end yet")
    return "; ".join(parts)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "-"


def show_cleaned(found: "Cleaned") -> None:
    rows = [("file", path) for path in found.files]
    rows += [("entry that is gone", name) for name in found.missing]
    rows += [("entry that is not as written", name) for name in found.altered]
    if rows:
        output.table(("what", "name"), rows[:PIPELINE_ROWS_SHOWN])
        if len(rows) > PIPELINE_ROWS_SHOWN:
            output.line(f"and {len(rows) - PIPELINE_ROWS_SHOWN} more: --json has them")
        output.line("")
    files = _many(len(found.files), "file", "files")
    entries = _many(len(found.missing) + len(found.altered), "entry", "entries")
    if found.is_done:
        output.line(f"{files} removed, {entries} forgotten")
    elif rows:
        output.line(f"{files} and {entries} that nobody claims; nothing was removed")
    else:
        output.line("every file is claimed by an entry, and every entry is there")


def audit_facts(one: "Audited") -> dict[str, Any]:
    return {
        "service": one.service,
        "is_right": one.is_right,
        "count": one.recomputed.count,
        "kept": str(one.kept),
        "recomputed": str(one.recomputed),
        "client": None if one.client is None else str(one.client),
        "only_client": one.only_client,
        "only_node": one.only_node,
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
            None if one.client is None else one.is_client_right,
        )
        for one in found
    ]
    if rows:
        output.table(("service", "queues", "kept is true", "wrong hashes", "client agrees"), rows)
        output.line("")
    parts = [_share(sum(one.is_kept_right for one in found), len(found), "kept as it is")]
    compared = [one for one in found if one.client is not None]
    if compared:
        agreeing = sum(one.is_client_right for one in compared)
        parts.append(_share(agreeing, len(compared), "equal at client and node"))
    parts += [
        f"{one.service}: {one.only_client:,} ids only at the client, {one.only_node:,} only at the node"
        for one in compared
        if not one.is_client_right
    ][:PIPELINE_ROWS_SHOWN]
    output.line("; ".join(parts))


def _share(some: int, count: int, what: str) -> str:
    return f"{some} of {_many(count, 'service', 'services')} {what}"


def diff_facts(found: "Found") -> dict[str, Any]:
    left, right = found.comparison.left, found.comparison.right
    return {
        "is_equal": found.is_equal,
        "left": {
            "count": left.count,
            "digest": str(left),
            "without_id": found.comparison.without_left,
        },
        "right": {
            "count": right.count,
            "digest": str(right),
            "without_id": found.comparison.without_right,
        },
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
    without = found.comparison.without_left, found.comparison.without_right
    if any(without):
        output.line(
            f"left out, since they have no id: {without[0]:,} rows left, {without[1]:,} right"
        )
