"""Room: journal/streams. The newest blocks of a shard, in memory, for readers that keep up.

The loop adds; threads may look at the same time. So a look may find a list that has just been cut, and
checks what it found.
"""

from bisect import bisect_right
from typing import NamedTuple

from moorline.core.frames.block import Block
from moorline.core.stream import Gap
from moorline.limits import STREAM_TAIL_BLOCKS_MAX, STREAM_TAIL_BYTES_MAX


class ReadNow(NamedTuple):
    """What a read found in memory, and where its generation ends; None if that is gone."""

    found: Block | Gap | None
    end: int | None


class Tail:
    """Blocks without a hole between them, the oldest first."""

    __slots__ = ("_blocks", "_bytes", "_bytes_max", "_firsts")

    def __init__(self, bytes_max: int = STREAM_TAIL_BYTES_MAX) -> None:
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        self._bytes = 0
        self._bytes_max = bytes_max

    def add(self, block: Block) -> None:
        self._blocks.append(block)
        self._firsts.append(block.first)
        self._bytes += len(block.data)
        gone = 0
        while gone < len(self._blocks) - 1 and (
            self._bytes > self._bytes_max or len(self._blocks) - gone > STREAM_TAIL_BLOCKS_MAX
        ):
            self._bytes -= len(self._blocks[gone].data)
            gone += 1
        if gone:
            del self._firsts[:gone]
            del self._blocks[:gone]

    def find(self, offset: int) -> Block | None:
        """The block that has that message, if it is still here."""
        number = bisect_right(self._firsts, offset) - 1
        if number < 0:
            return None
        try:
            block = self._blocks[number]
        except IndexError:
            return None
        return block if block.first <= offset < block.upto else None

    def clear(self) -> None:
        self._firsts = []
        self._blocks = []
        self._bytes = 0
