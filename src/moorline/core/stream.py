"""Room: core. What a stream is called, how far it goes, and what it may lack.

A shard is named by its home, not by the node that has it now: a home moves to another node as a whole, and
then every cursor, lease and archive still means the same messages. The names are tuples: they are keys of
tables, and are sorted, which is a tuple's own.
"""

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from moorline.limits import CODE_LENGTH_MAX, NAME_CHARACTERS_MAX

HomeName = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]


class Shard(NamedTuple):
    """A row of streams, one generation after the other; offsets count on through all of them."""

    home: HomeName
    number: int

    def __str__(self) -> str:
        return f"{self.home}/{self.number}"


class Stream(NamedTuple):
    """One generation of a shard: what is granted, read in order, and finished."""

    home: HomeName
    shard_number: int
    generation: int

    @property
    def shard(self) -> Shard:
        return Shard(self.home, self.shard_number)

    def __str__(self) -> str:
        return f"{self.home}/{self.shard_number}/{self.generation}"


class Extent(NamedTuple):
    """A stream as its node knows it: offsets from `first` to before `end`; a sealed one grows no more."""

    stream: Stream
    first: int
    end: int
    sealed: bool


SegmentPart = Literal["segment", "index", "dense"]
"""The frames of a stream themselves, the sparse index, and the dense one that a sealed stream has."""

# Two reasons, because they ask for different things: retention is a setting, damage is for an operator.
RETENTION = "RETENTION"
DAMAGE = "DAMAGE"


class Gap(NamedTuple):
    """Messages `first` to before `upto` cannot be read any more: RETENTION or DAMAGE."""

    first: int
    upto: int
    reason: Annotated[str, Meta(max_length=CODE_LENGTH_MAX)]
