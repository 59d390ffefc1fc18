"""Room: journal/queues. What a check tells of the log: what is bad in it, what it lacks, and what follows."""

from moorline.ids import text_of
from moorline.journal.queues.report import Report
from moorline.journal.queues.salvage import Cut


def tell_cuts(report: Report, cuts: list[Cut]) -> None:
    for cut in cuts:
        what = "ends in a torn batch" if cut.is_torn_end else "is damaged"
        text = f"{cut.file} {what} at byte {cut.offset}: {cut.lost_bytes} bytes are taken out"
        lost = cut.loss.changes
        if lost:
            text += f", up to {lost} changes are lost" if lost > 1 else ", one change is lost"
        report.found("log", text, lost_changes=lost, is_mended_by_a_start=cut.is_torn_end)


def tell_gaps(report: Report, gaps: list[range], cuts: list[Cut]) -> None:
    """Changes that are missing where nothing is bad: a file of the log is gone."""
    told = {cut.loss.behind for cut in cuts}
    for gap in gaps:
        if gap.stop not in told:
            text = (
                f"changes {gap.start} to {gap.stop - 1} are in no file, {len(gap)} in all: a file of the "
                "log is gone"
            )
            report.found("log", text, lost_changes=len(gap))


def tell_revived(report: Report, queue_ids: list[bytes]) -> None:
    """Queues that are known only by what came behind their making."""
    for queue_id in queue_ids:
        text = (
            "its making is lost, and not what came for it: it is nobody's now, for operators alone. Whose it "
            "was is not known, and whether it was closed, off, blocked or over its quota only as far as the "
            "log still says it. "
            f"`moor grant add /queues/{text_of(queue_id)} NAME slwa` gives it to somebody"
        )
        report.found("owner", text, queue_id)
