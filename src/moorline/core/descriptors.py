"""Room: core. The file descriptors of a process: how they are shared out, and who holds how many.

    RLIMIT_NOFILE
    ├── the node's own    journal, segments, catalog, links to other nodes, files that are open for a moment
    ├── QUEUE_FILES       the cache of the queues' files
    ├── STAGE_FILES       the cache of the stages' files
    ├── HTTP              sockets of the HTTP port
    ├── CONNECTIONS       sockets of clients
    └── TURNED_AWAY       sockets that are on their way out: too many, or cut for another's sake

Every use but the node's own is counted, and has a most. All of them together are the limit, so that whatever
peers do, a file of the node's own can be opened.

Invariants, looked at by `check`:

    N1  no use holds more than its share, nor less than nothing
    N2  all shares together, with the node's own, are no more than the limit
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from moorline.limits import (
    CATALOG_CONNECTIONS_MAX,
    CONNECTIONS_MIN,
    FILES_ALWAYS_OPEN,
    FILES_PER_SHARD,
    HTTP_CONNECTIONS_MAX,
    OPEN_FILES_MAX,
    STAGE_FILES_OPEN_MAX,
    TURNED_AWAY_MAX,
)


class Use(Enum):
    QUEUE_FILES = "queue files"
    STAGE_FILES = "stage files"
    HTTP = "HTTP"
    CONNECTIONS = "connections"
    TURNED_AWAY = "turned away"


class TooFew(Exception):
    """The limit is below what a node needs; `needed` says how many would do."""

    def __init__(self, limit: int, needed: int) -> None:
        super().__init__(f"{limit} file descriptors are too few: {needed} are needed")
        self.limit = limit
        self.needed = needed


class Shares(NamedTuple):
    """What each use may take at most. With `own` they are never more than the limit."""

    limit: int
    own: int
    passing: int
    """Those of `own` that are free except for moments: files that threads open, read and close."""
    most: Mapping[Use, int]


def shared_out(limit: int, connections_wanted: int, shards: int) -> Shares:
    """Small limits make small shares. What nobody else needs is the connections', as far as it is wanted."""
    shares = _shares(limit, connections_wanted, shards)
    if shares is None:
        raise TooFew(limit, _needed(limit, connections_wanted, shards))
    return shares


def _shares(limit: int, connections_wanted: int, shards: int) -> Shares | None:
    """None if they are too few."""
    passing = _part(limit, 8, 48, 128)
    links = _part(limit, 32, 8, 128)
    own = FILES_ALWAYS_OPEN + CATALOG_CONNECTIONS_MAX + FILES_PER_SHARD * shards + links + passing
    most = {
        Use.QUEUE_FILES: _part(limit, 8, 16, OPEN_FILES_MAX),
        Use.STAGE_FILES: _part(limit, 32, 8, STAGE_FILES_OPEN_MAX),
        Use.HTTP: _part(limit, 32, 8, HTTP_CONNECTIONS_MAX),
        Use.TURNED_AWAY: _part(limit, 32, 8, TURNED_AWAY_MAX),
    }
    # Last, from what is left: connections are what a node can do with fewer of, down to CONNECTIONS_MIN.
    left = limit - own - sum(most.values())
    if left < min(connections_wanted, CONNECTIONS_MIN):
        return None
    most[Use.CONNECTIONS] = min(left, connections_wanted)
    return Shares(limit, own, passing, most)


def _part(limit: int, of: int, least: int, most: int) -> int:
    return max(least, min(most, limit // of))


def _needed(limit: int, connections_wanted: int, shards: int) -> int:
    """The first limit above that is enough."""
    # By trying: the shares have bounds of their own, so the sum cannot be turned round. It only grows with
    # the limit, which is what a search by halves needs.
    too_few, enough = limit, 1 << 24
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if _shares(middle, connections_wanted, shards) is None:
            too_few = middle
        else:
            enough = middle
    return enough


class Descriptors:
    """The account: gives descriptors out, and takes them back."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self._held = dict.fromkeys(Use, 0)

    def held(self, use: Use) -> int:
        return self._held[use]

    def has_room(self, use: Use) -> bool:
        return self._held[use] < self.shares.most[use]

    def take(self, use: Use) -> None:
        assert self.has_room(use), f"{use.value}: {self._held[use]} are all there may be"
        self._held[use] += 1

    def give_back(self, use: Use) -> None:
        assert self._held[use] > 0, f"{use.value}: nothing is held"
        self._held[use] -= 1

    def move(self, source: Use, target: Use) -> None:
        """The same descriptor, now for another use."""
        # Taken first: if there is no room the assertion leaves the account as it was.
        self.take(target)
        self.give_back(source)

    def check(self) -> None:
        for use, count in self._held.items():
            most = self.shares.most[use]
            assert 0 <= count <= most, f"N1: {use.value}: {count} of {most} are held"
        shared = self.shares.own + sum(self.shares.most.values())
        assert shared <= self.shares.limit, f"N2: {shared} of {self.shares.limit} are shared out"

    def is_nearly_full(self, number: int) -> bool:
        """Whether a descriptor of that number shows that somebody took more than was planned.

        The system gives the lowest number that is free, so all below it are in use. Half of what passes is
        left out: so many may well be open just now.
        """
        return number >= self.shares.limit - self.shares.passing // 2
