"""Room: client. A commit of a publisher: what was updated becomes one batch, encoded once, for its followers.

What cannot be sent is refused before anything is visible. Nobody waits for another's queue.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from moorline.client.values.follower import Follower
from moorline.client.values.frames import END, check_length, check_value, check_values, encode
from moorline.core.values.batch import Batch
from moorline.core.values.board import Board
from moorline.errors import BadValue, FrameTooLarge


class Commits:
    """Over the board of one publisher."""

    def __init__(self, board: Board[Follower]) -> None:
        self._board = board

    async def commit(self, timeout_s: float | None = None) -> int:
        """To all who follow something of it; returns how many got it."""
        batch = self._committed()
        if batch is None:
            return 0
        given = self._given(batch)
        late = [(follower, part) for follower, part in given if not follower.give(part)]
        if timeout_s is None:
            for follower, _ in late:
                follower.cut("this subscriber is slower than its publisher: ask for conflation")
            return len(given) - len(late)
        timeout_ms = round(timeout_s * 1_000)
        for follower, _ in given:
            if follower.is_late(timeout_ms):
                follower.cut(f"nothing was read for {timeout_ms} ms")
        waiting = [self._give_in_time(follower, part, timeout_ms) for follower, part in late]
        return len(given) - len(late) + sum(await asyncio.gather(*waiting))

    async def _give_in_time(self, follower: Follower, batch: Batch, timeout_ms: int) -> bool:
        try:
            if await follower.give_in_time(batch, timeout_ms):
                return True
        except asyncio.CancelledError:
            # The batch is committed, and this one would go on without it: no gap, so it begins anew.
            follower.cut("its publisher gave up to wait for room")
            raise
        follower.cut(f"nothing was read for {timeout_ms} ms")
        return False

    def _committed(self) -> Batch | None:
        """The batch, encoded. What cannot be sent is refused by name, and leaves the rest as it was."""
        ids, values = self._board.changed
        if not ids:
            return None
        try:
            check_values(values)
            encode(probe := Batch(ids, values))
        except (BadValue, FrameTooLarge, OverflowError, TypeError, ValueError):
            self._refuse_bad(ids, values)
            raise
        batch = self._board.commit()
        if batch is not None and batch.ids is ids:
            batch.frames, batch.size_bytes = probe.frames, probe.size_bytes
        return batch

    def _refuse_bad(self, ids: Sequence[int], values: Sequence[Any]) -> None:
        for place, value in enumerate(values):
            try:
                check_value(value)
                check_length(value)
            except BadValue as error:
                path = self._board.path_of(ids[place])
                self._board.take_back(place)
                raise BadValue(
                    f"{path}: {error}; this update is dropped, the others wait"
                ) from None

    def _given(self, batch: Batch) -> list[tuple[Follower, Batch]]:
        """Who gets what of it. Those who get the same share its bytes."""
        parts = self._board.parts(batch)
        if len(parts) == 1:
            followers, part = parts[0]
            encode(part)
            return [(follower, part) for follower in followers]
        for _, part in parts:
            encode(part, is_whole=False)
        mine: dict[Follower, list[int]] = {}
        for place, (followers, _) in enumerate(parts):
            for follower in followers:
                mine.setdefault(follower, []).append(place)
        joined: dict[tuple[int, ...], Batch] = {}
        given: list[tuple[Follower, Batch]] = []
        for follower, places in mine.items():
            key = tuple(places)
            if key not in joined:
                joined[key] = _joined([parts[place][1] for place in places])
            given.append((follower, joined[key]))
        return given


def _joined(parts: list[Batch]) -> Batch:
    """Several parts as the one batch that a subscriber gets."""
    joined = Batch(
        [one for part in parts for one in part.ids],
        [value for part in parts for value in part.values],
    )
    joined.frames = [frame for part in parts for frame in part.frames] + [END]
    joined.size_bytes = sum(part.size_bytes for part in parts) + len(END)
    return joined
