"""Room: wire. Calls that every node answers, whatever its roles."""

from moorline.wire.message import Answer, Call


class Echo(Call, frozen=True, gc=False, tag=7):
    """Answers with the same bytes: for tests, benchmarks and `is it there?`."""

    body: bytes


class Echoed(Answer, frozen=True, gc=False, tag=8):
    body: bytes


class Describe(Call, frozen=True, gc=False, tag=9):
    """Asks a node about itself: `moor status`."""


class Described(Answer, frozen=True, gc=False, tag=10):
    node: str
    software: str
    roles: tuple[str, ...]
    addresses: tuple[str, ...]
    http: str
    catalog: str
    catalog_version: int
    uptime_ms: int
    connections: int
    process: int
    warnings: tuple[str, ...] = ()
    """What the node does not do at the moment, and why; a handful of sentences at most."""
    home: str = ""
    """What its streams, places and leases are known by: the name that it had first."""


class ConfirmClock(Call, frozen=True, gc=False, tag=45):
    """The operator's: the node's wall clock is right, although it has jumped."""


class ClockConfirmed(Answer, frozen=True, gc=False, tag=46):
    """Whether it was held, and how far it was ahead (below 0: behind) of where it was expected."""

    was_held: bool
    jump_ms: int
