"""The audit trail of a disk, read from its beginning to its end."""

from collections.abc import Callable

from moorline.journal.audit import AuditCursor, Wanted, first_place, read_page
from moorline.journal.disk import Disk


def read_all_pages(
    disk: Disk, wanted: Wanted, seen: Callable[[list[bytes]], None]
) -> tuple[AuditCursor, int]:
    """All that is there now, page by page; where it ends, and how many lines could not be read."""
    place, unreadable = first_place(disk, wanted), 0
    while True:
        page = read_page(disk, place, wanted)
        seen(page.lines)
        unreadable += page.unreadable
        place = page.next
        if page.is_end:
            return place, unreadable
