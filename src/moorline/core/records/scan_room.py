"""Room: core/records. How many scans may begin at a step, of all and of one principal.

An *offer* is a scan of keys that stays for the questions of clients: it holds a snapshot, and so a
connection, for as long as strangers like. So offers have places of their own, and a first sync or a replay
waits for none of them.
"""

from collections.abc import Mapping

import msgspec

MANY = 1 << 30


class ScanRoom(msgspec.Struct, frozen=True):
    """What is free, and what each principal has of it already."""

    scans: int = MANY
    offers: int = MANY
    scans_each: int = MANY
    """Of one principal: less than all, so that none has them all."""
    offers_each: int = MANY
    scans_of: Mapping[str, int] = {}
    offers_of: Mapping[str, int] = {}


class RoomLeft:
    """Of a room, while scans begin in it."""

    def __init__(self, room: ScanRoom) -> None:
        self.scans = room.scans
        self._offers = room.offers
        self._room = room
        self._scans_of = dict(room.scans_of)
        self._offers_of = dict(room.offers_of)

    def has(self, principal: str, *, is_offer: bool) -> bool:
        if self.scans < 1 or self._scans_of.get(principal, 0) >= self._room.scans_each:
            return False
        is_below = self._offers_of.get(principal, 0) < self._room.offers_each
        return not is_offer or (self._offers >= 1 and is_below)

    def take(self, principal: str, *, is_offer: bool) -> None:
        self.scans -= 1
        self._scans_of[principal] = self._scans_of.get(principal, 0) + 1
        if is_offer:
            self._offers -= 1
            self._offers_of[principal] = self._offers_of.get(principal, 0) + 1
