"""The note of the clock: whole, whoever writes it at the same time."""

import logging
import threading
from pathlib import Path

import msgspec
import pytest

from moorline.node.clock import FILE, NodeClock, Note

WRITERS = 4
NOTES_EACH = 50


def test_notes_that_are_written_at_once_do_not_take_each_others_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop writes one at a change, and a thread one at intervals: both over the same new file."""
    clock = NodeClock(tmp_path)
    together = threading.Barrier(WRITERS)

    def write() -> None:
        together.wait()
        for _ in range(NOTES_EACH):
            clock.save()

    writers = [threading.Thread(target=write) for _ in range(WRITERS)]
    with caplog.at_level(logging.WARNING, "moorline.node"):
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert [record.message for record in caplog.records] == []
    assert msgspec.json.decode((tmp_path / FILE).read_bytes(), type=Note).boot_ms > 0
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
