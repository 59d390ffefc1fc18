"""Room: journal/home_copy. The side that has a home: reads its files, says what the other side lacks.

    sending.begin_pass()
    while batch := sending.next_batch():
        …send it…
        sending.confirm(batch)
    sending.end_pass()

Files are read while they are written to. What is sent of one is what was read, block for block, so both
sides know alike what the other one has; that it is of no single moment does not matter before the last pass,
in which nobody writes. One thread at a time.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xxhash

from moorline.journal.home_copy.index import (
    HASH_BYTES,
    Blocks,
    FileIndex,
    FileSet,
    HomeFiles,
    read_blocks,
)
from moorline.limits import HOME_MOVE_CALL_BYTES_MAX, HOME_MOVE_PIECES_MAX


class Part(NamedTuple):
    """A part of a file from an offset on, and the size of the file with it."""

    path: str
    size: int
    offset: int
    data: bytes


class Batch(NamedTuple):
    """What one call brings to the other side."""

    parts: list[Part]
    gone: list[str]
    whole: list[tuple[str, Blocks]]
    """Files that the other side has as a whole with it."""

    @property
    def bytes(self) -> int:
        return sum(len(part.data) for part in self.parts)


class HomeSending:
    """One home, on its way."""

    def __init__(self, files: HomeFiles, index_file: Path) -> None:
        self.files = files
        self._index = FileIndex(index_file)
        self._steps: Iterator[Part | str | tuple[str, Blocks]] = iter(())
        self._left: Part | None = None

    def close(self) -> None:
        self._index.close()

    def stop(self) -> None:
        """From any thread."""
        self._index.is_stopped = True

    def begin(self, *, is_new: bool) -> int:
        """The bytes of all files as they are now. With `is_new` the other side has nothing."""
        if is_new:
            with self._index:
                self._index.forget_sent()
        return sum(status.st_size for _, status in self.files.walk())

    def begin_pass(self) -> None:
        self._steps, self._left = self._passed(), None

    def next_batch(self) -> Batch | None:
        """None at the end of the pass."""
        batch, held = Batch([], [], []), 0
        with self._index:
            if self._left is not None:
                batch.parts.append(self._left)
                held, self._left = len(self._left.data), None
            for step in self._steps:
                if isinstance(step, str):
                    batch.gone.append(step)
                elif isinstance(step, Part):
                    if batch.parts and held + len(step.data) > HOME_MOVE_CALL_BYTES_MAX:
                        self._left = step
                        break
                    batch.parts.append(step)
                    held += len(step.data)
                else:
                    batch.whole.append(step)
                if max(len(batch.parts), len(batch.gone), len(batch.whole)) >= HOME_MOVE_PIECES_MAX:
                    break
        return batch if any(batch) else None

    def confirm(self, batch: Batch) -> None:
        """The other side has written it."""
        with self._index:
            for path, blocks in batch.whole:
                self._index.note_sent(path, blocks)
            for path in batch.gone:
                self._index.remove(path)

    def is_copied(self, told: FileSet) -> bool:
        """Whether the other side has what it was sent. If not, it begins anew, and is sent all."""
        if self._index.all_sent() == told:
            return True
        with self._index:
            self._index.forget_sent()
        return False

    def look(self) -> FileSet:
        """The digest of the files as they are here."""
        with self._index:
            return self._index.look(self.files)

    def _passed(self) -> Iterator[Part | str | tuple[str, Blocks]]:
        for path, status in self.files.walk():
            self._index.check_going_on()
            sent, blocks = self._index.sent(path), self._index.current(path, status)
            if blocks is not None and blocks == sent:
                continue
            try:
                yield from self._read(path, status, sent)
            except FileNotFoundError:
                continue
        for path in self._index.paths():
            if not os.path.lexists(self.files.root / path):
                yield path

    def _read(
        self, path: str, status: os.stat_result, sent: Blocks | None
    ) -> Iterator[Part | tuple[str, Blocks]]:
        """The blocks of one file that the other side has otherwise."""
        hashed_ns, file_size = time.time_ns(), status.st_size
        hashes: list[bytes] = []
        size, is_told = 0, False
        for block in read_blocks(self.files.root / path):
            hash_here = xxhash.xxh3_128_digest(block)
            place = len(hashes) * HASH_BYTES
            if sent is None or sent.hashes[place : place + HASH_BYTES] != hash_here:
                if not is_told:
                    # Before it leaves: from here on nobody knows what the other side has of it.
                    self._index.note_sent(path, None)
                    is_told = True
                yield Part(path, max(file_size, size + len(block)), size, block)
            hashes.append(hash_here)
            size += len(block)
        blocks = Blocks(size, b"".join(hashes))
        self._index.note(path, status, hashed_ns, blocks)
        if blocks != sent:
            if not is_told:
                self._index.note_sent(path, None)
            # The size last: it may have grown or shrunk while it was read.
            yield Part(path, size, size, b"")
            yield path, blocks
