"""Room: wire. Homes: which there are, their moves from node to node, and what two nodes say to copy one."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import (
    HOME_ADDRESSES_MAX,
    HOME_MOVE_BLOCK_BYTES,
    HOME_MOVE_ID_BYTES,
    HOME_MOVE_PATH_LENGTH_MAX,
    HOME_MOVE_PIECES_MAX,
    HOMES_PER_PAGE_MAX,
)
from moorline.wire.bounds import Code, HashBytes, Name, Words
from moorline.wire.message import Answer, Call
from moorline.wire.node import AddressText

MoveId = Annotated[bytes, Meta(min_length=HOME_MOVE_ID_BYTES, max_length=HOME_MOVE_ID_BYTES)]
Count = Annotated[int, Meta(ge=0)]
FilePath = Annotated[str, Meta(min_length=1, max_length=HOME_MOVE_PATH_LENGTH_MAX)]


class MoveHome(Call, frozen=True, gc=False, tag=594):
    """The home goes to another node, with all that is in it. Asked again with the same node it goes on."""

    home: Name
    to: Name
    """The name or the home of the node that is to have it; empty where `is_over`."""
    is_over: bool = False
    """The home stays where it is."""


class HomeMoving(Answer, frozen=True, gc=False, tag=595):
    """It is noted, and begins; `ListHomes` tells how far it is."""

    home: Name
    to: Name


class HomeFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A home, and its move, if there ever was one."""

    name: Name
    number: Name
    """As 8 hexadecimal digits: what the ids of its queues end with."""
    node: Name
    """That has it; empty if that node is not of the cluster any more."""
    addresses: Annotated[tuple[AddressText, ...], Meta(max_length=HOME_ADDRESSES_MAX)]
    is_alive: bool
    moves: Count
    """How often it has moved."""
    move_state: Code = ""
    """Of the last move: asked, copying, handing, done, failed, cancelled; empty for none."""
    move_to: Name = ""
    move_text: Words = ""
    """What is in the way, for people."""
    move_files: Count = 0
    move_bytes: Count = 0
    """Of all its files, as of the last pass."""
    move_bytes_copied: Count = 0
    move_hash: HashBytes = b""
    """The digest of its files that both nodes had, with `move_files`."""
    standstill_ms: Count = 0
    """For how long it served nobody, by the catalog's clock."""


class ListHomes(Call, frozen=True, gc=False, tag=596):
    """The homes behind a name, in the order of names."""

    after: Name = ""


class HomesListed(Answer, frozen=True, gc=False, tag=597):
    homes: Annotated[tuple[HomeFacts, ...], Meta(max_length=HOMES_PER_PAGE_MAX)]
    is_last: bool


class BeginCopy(Call, frozen=True, gc=False, tag=598):
    """A node begins, or goes on, to copy the home that it has; so many bytes in all."""

    move: MoveId
    home: Name
    bytes: Count
    is_anew: bool = False
    """What is there by now is of no use, and goes: both sides do not know alike what it is."""


class CopyTold(Answer, frozen=True, gc=False, tag=599):
    """What the other node has of the home: its files, their bytes, and the XOR of the hashes of each."""

    files: Count = 0
    bytes: Count = 0
    hash: HashBytes = b""
    is_new: bool = False
    """It had nothing of it."""


class Piece(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A part of a file from an offset on, and the size that the file has with it."""

    path: FilePath
    size: Count
    offset: Count
    data: Annotated[bytes, Meta(max_length=HOME_MOVE_BLOCK_BYTES)]


class PutPieces(Call, frozen=True, gc=False, tag=600):
    """Write these, and remove those."""

    move: MoveId
    pieces: Annotated[tuple[Piece, ...], Meta(max_length=HOME_MOVE_PIECES_MAX)]
    gone: Annotated[tuple[FilePath, ...], Meta(max_length=HOME_MOVE_PIECES_MAX)] = ()


class SettleCopy(Call, frozen=True, gc=False, tag=601):
    """Sync what came, read it back, and tell what there is."""

    move: MoveId


class TakeHome(Call, frozen=True, gc=False, tag=602):
    """The catalog has what was proven: take the home, and serve it."""

    move: MoveId
    files: Count
    hash: HashBytes


COMMANDS = MoveHome | ListHomes | BeginCopy | PutPieces | SettleCopy | TakeHome
EVENTS = HomeMoving | HomesListed | CopyTold
