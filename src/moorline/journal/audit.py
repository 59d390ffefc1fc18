"""Room: journal. The files of the audit trail: JSON lines that are only ever added to.

    audit/00000001.jsonl        the oldest
    audit/00000002.jsonl        a file is full at a 64th of the bytes that the trail may take
    …                           and the oldest goes when there would be more than 64

A crash may leave a last line that is not whole. The next start ends it and counts it, and never removes it:
what is readable of it may be all that is known. Lines are written by one thread at a time; whoever reads,
another process included, takes whole lines up to the end that it finds.
"""

import itertools
import re
from typing import Final, NamedTuple

import msgspec

from moorline.core.access.audit import StoredLine, decoded
from moorline.errors import DiskFull
from moorline.journal.disk import Disk, DiskFile
from moorline.limits import (
    AUDIT_BYTES_MAX,
    AUDIT_FILES_MAX,
    AUDIT_LINE_BYTES_MAX,
    AUDIT_PAGE_BYTES_MAX,
    AUDIT_ROWS_PER_PAGE_MAX,
    AUDIT_SCAN_BYTES,
)

FOLDER: Final = "audit"
"""Of the data folder; a disk that is given here has it as its root."""

_NAME = re.compile(r"(\d{8,})\.jsonl")
_END: Final = b"\n"


class AuditFiles:
    """The end of the trail, to which lines are added."""

    def __init__(self, disk: Disk, *, sync: bool, bytes_max: int = AUDIT_BYTES_MAX) -> None:
        self._disk = disk
        self._sync = sync
        self._file_bytes_max = max(bytes_max // AUDIT_FILES_MAX, AUDIT_LINE_BYTES_MAX)
        self._file: DiskFile | None = None
        self._number = 0
        self._size = 0
        self._must_end_line = False
        self._must_begin_file = False
        self.torn = 0
        """Lines that were not whole when the trail was opened, or that a failure cut since."""

    def open(self) -> None:
        """Goes on at the end of the newest file."""
        numbers = numbers_in(self._disk)
        if not numbers:
            self._begin(1)
            return
        self._number = numbers[-1]
        self._file = self._disk.open(name_of(self._number), create=False)
        self._size = self._file.size()
        if self._size and self._file.read_at(self._size - 1, 1) != _END:
            self.torn += 1
            self._must_end_line = True

    def append(self, lines: list[bytes], *, durable: bool) -> None:
        """Adds them, all or none. With `durable` it returns when they survive what the node promises.

        Raises `DiskFull` or an `OSError`. What was not taken is not there, or is a torn line.
        """
        data = b"".join(lines)
        if self._must_begin_file or (self._size and self._size + len(data) > self._file_bytes_max):
            self._begin(self._number + 1)
        file = self._file
        assert file is not None, "the trail is not open"
        try:
            file.append(_END + data if self._must_end_line else data)
        except (DiskFull, OSError):
            self._cut_back(file)
            raise
        self._size += len(data) + self._must_end_line
        self._must_end_line = False
        if durable and self._sync:
            try:
                file.sync()
            except (DiskFull, OSError):
                # The system may have dropped what it could not write: nothing is added behind a hole.
                self._must_begin_file = True
                raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, number: int) -> None:
        file = self._disk.open(name_of(number), create=True)
        if self._sync:
            try:
                self._disk.sync_folder("")
            except (DiskFull, OSError):
                file.close()
                raise
        self.close()
        self._file, self._number, self._size = file, number, file.size()
        self._must_begin_file = self._must_end_line = False
        # Only now: a file that could not be begun costs no old one.
        for old in numbers_in(self._disk)[:-AUDIT_FILES_MAX]:
            self._disk.remove(name_of(old))

    def _cut_back(self, file: DiskFile) -> None:
        """Takes a part of a line away that a full disk still took."""
        try:
            if file.size() > self._size:
                file.truncate(self._size)
        except (DiskFull, OSError):
            self.torn += 1
            self._must_end_line = True
            self._size = max(self._size, _size_or_nothing(file))


# --- reading --------------------------------------------------------------------------------------


class AuditCursor(NamedTuple):
    """Where a reader of the trail is. The file may be gone by the next look; then the oldest follows."""

    file: int = 0
    offset: int = 0


class Wanted(msgspec.Struct, frozen=True):
    """Which lines; what is empty is any."""

    since: str = ""
    """A time, or the beginning of one, as the lines have it. A sum counts by its last act."""
    principal: str = ""
    verdict: str = ""
    kind: str = ""
    path: str = ""
    """This path, and all below it."""

    def takes(self, line: StoredLine) -> bool:
        return (
            (not self.since or (line.last or line.time) >= self.since)
            and self.principal in ("", line.principal)
            and self.verdict in ("", line.verdict)
            and self.kind in ("", line.kind)
            and (
                self.path in ("", "/", line.path)
                or line.path.startswith(f"{self.path.rstrip('/')}/")
            )
        )


class Page(NamedTuple):
    """What one look found; nothing is no reason to stop, `is_end` is."""

    lines: list[bytes]
    """As they are in the file, without their ends."""
    next: AuditCursor
    is_end: bool
    unreadable: int
    """Lines on the way that were torn or changed."""


def first_place(disk: Disk, wanted: Wanted) -> AuditCursor:
    """From where on to read: files that end before that time are passed over by their neighbours' heads."""
    numbers = numbers_in(disk)
    if not numbers:
        return AuditCursor()
    if not wanted.since:
        return AuditCursor(numbers[0], 0)
    for number, following in itertools.pairwise(numbers):
        head = _first_line(disk, following)
        if head is None or head.time >= wanted.since:
            return AuditCursor(number, 0)
    return AuditCursor(numbers[-1], 0)


def read_page(disk: Disk, place: AuditCursor, wanted: Wanted) -> Page:
    """Looks at AUDIT_SCAN_BYTES from there on, whatever is found in them."""
    numbers = [number for number in numbers_in(disk) if number >= place.file]
    if not numbers:
        return Page([], place, True, 0)
    number = numbers[0]
    offset = place.offset if number == place.file else 0
    try:
        file = disk.open(name_of(number), create=False)
    except FileNotFoundError:
        return Page([], AuditCursor(number + 1, 0), False, 0)
    try:
        data = file.read_at(offset, AUDIT_SCAN_BYTES)
    finally:
        file.close()
    is_last = len(numbers) == 1
    return _page(data, AuditCursor(number, offset), wanted, is_last=is_last)


def _page(data: bytes, place: AuditCursor, wanted: Wanted, *, is_last: bool) -> Page:
    """The lines among the bytes of a file, which may begin or end within one."""
    lines: list[bytes] = []
    room, unreadable, at = AUDIT_PAGE_BYTES_MAX, 0, 0
    is_file_end = len(data) < AUDIT_SCAN_BYTES
    while at < len(data):
        end = data.find(_END, at)
        if end < 0:
            if is_file_end and not is_last:
                unreadable += 1  # nothing is added to that file any more
                at = len(data)
            elif not is_file_end and at == 0:
                unreadable += 1  # no line of ours is that long
                at = len(data)
            break
        text = data[at:end]
        line = decoded(text) if text else None
        if line is None:
            unreadable += bool(text)
        elif wanted.takes(line):
            if len(lines) >= AUDIT_ROWS_PER_PAGE_MAX or len(text) > room:
                return Page(lines, AuditCursor(place.file, place.offset + at), False, unreadable)
            lines.append(text)
            room -= len(text)
        at = end + 1
    if is_file_end and not is_last:
        return Page(lines, AuditCursor(place.file + 1, 0), False, unreadable)
    return Page(lines, AuditCursor(place.file, place.offset + at), is_file_end, unreadable)


def numbers_in(disk: Disk) -> list[int]:
    """Of the files of the trail, the oldest first; other names are not ours."""
    found = (_NAME.fullmatch(name) for name in disk.list_folder(""))
    return sorted(int(match[1]) for match in found if match)


def name_of(number: int) -> str:
    return f"{number:08d}.jsonl"


def _first_line(disk: Disk, number: int) -> StoredLine | None:
    try:
        file = disk.open(name_of(number), create=False)
    except FileNotFoundError:
        return None
    try:
        head, end, _ = file.read_at(0, AUDIT_LINE_BYTES_MAX).partition(_END)
    finally:
        file.close()
    return decoded(head) if end else None


def _size_or_nothing(file: DiskFile) -> int:
    try:
        return file.size()
    except OSError:
        return 0
