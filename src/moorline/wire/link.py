"""Room: wire. The messages of a link itself: hello, challenge, response, welcome, ping, pong, goodbye."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.core.hidden_bytes import without_bytes
from moorline.limits import KEEPALIVE_MS, MECHANISM_LENGTH_MAX, PROOF_BYTES_MAX, ROLES_MAX
from moorline.wire.bounds import Code, Name, Words, cut
from moorline.wire.message import Message

Version = Annotated[int, Meta(ge=0, le=65_535)]
Roles = Annotated[tuple[Name, ...], Meta(max_length=ROLES_MAX)]
Mechanism = Annotated[str, Meta(max_length=MECHANISM_LENGTH_MAX)]
Proof = Annotated[bytes, Meta(max_length=PROOF_BYTES_MAX)]
"""A token of a mechanism: never shown, since it may be a password."""

PROTOCOL = "moorline"


class Hello(Message, frozen=True, gc=False, tag=1):
    """First message of the connecting end, in a frame of its own."""

    protocol: Name
    version_min: Version
    version_max: Version
    software: Name = ""
    mechanism: Mechanism = ""
    """By which it proves who it is; empty where its transport does, or nothing."""
    proof: Proof = b""
    can_leave: bool = False
    """Whether it goes to another node by itself where this one wants it to: it knows more than one."""

    __repr__ = without_bytes


class Welcome(Message, frozen=True, gc=False, tag=2):
    version: Version
    node: Name
    software: Name = ""
    roles: Roles = ()
    keepalive_ms: Annotated[int, Meta(ge=1)] = KEEPALIVE_MS
    home: Name = ""
    """What the node's streams are known by, whatever it is called now."""


class Ping(Message, frozen=True, gc=False, tag=3):
    token: int = 0


class Pong(Message, frozen=True, gc=False, tag=4):
    token: int = 0


class Goodbye(Message, frozen=True, gc=False, tag=5):
    code: Code
    text: Words

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "text", cut(self.text))


class Challenge(Message, frozen=True, gc=False, tag=11):
    """The node wants more of a proof before its welcome."""

    proof: Proof

    __repr__ = without_bytes


class Response(Message, frozen=True, gc=False, tag=12):
    """The answer to a challenge."""

    proof: Proof

    __repr__ = without_bytes
