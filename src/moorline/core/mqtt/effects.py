"""Room: core/mqtt. What the machines of an MQTT client's connection and session want done.

Effects are of runs of packets, not of single ones. They are done in list order. Those that keep something are
answered when it is durable, and what depends on it is said only then:

    Authenticate       Connection.auth_continues, auth_accepted or auth_refused
    OpenSession        Connection.accepted or refused
    StorePublishes     Inbound.stored, or refused for what was not let in at all
    KeepReceived       Inbound.marked
    ForgetReceived     Inbound.forgotten
    KeepSent           Outbound.kept
    KeepReleased       Outbound.kept
    ForgetSent         Outbound.forgotten
    SetTimer           timer(name) of the machine that asked
"""

import msgspec

from moorline.core.effects import Effect
from moorline.core.mqtt.packets import (
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Will,
)
from moorline.core.mqtt.reason import ReasonCode
from moorline.core.stream import Shard

Ack = Puback | Pubrec | Pubrel | Pubcomp


# --- of a connection ------------------------------------------------------------------------------


class Authenticate(Effect, frozen=True):
    """Look at one step of an enhanced authentication; nothing else is heard meanwhile."""

    method: str
    data: bytes
    is_again: bool
    """The connection is open, and proves itself anew."""


class OpenSession(Effect, frozen=True):
    """Judge user name and password, take over whoever has the client id, find or make the session.

    `connect.client_id` is empty where one is to be assigned. `principal` is who an enhanced authentication
    found, None without one.
    """

    connect: Connect
    principal: str | None


class SayPacket(Effect, frozen=True):
    packet: Packet


class SayAcks(Effect, frozen=True):
    """In this order. The encoder has a short way for many that succeed (`wire.mqtt.encode_acks`)."""

    acks: list[Ack]


class TakePublishes(Effect, frozen=True):
    """For `Inbound.hear`; every topic is written out, whatever alias stood for it."""

    publishes: list[Publish]


class TakeAcks(Effect, frozen=True):
    """Pubrels are for `Inbound.released`, all others for `Outbound.answered`."""

    acks: list[Ack]


class TakeSubscribe(Effect, frozen=True):
    packet: Subscribe


class TakeUnsubscribe(Effect, frozen=True):
    packet: Unsubscribe


class EndConnection(Effect, frozen=True):
    """Write what was said, and close. The last effect of a connection.

    `is_normal`: the client said goodbye, and its will is dropped. `session_expiry_s` is what it may have
    changed with that.
    """

    reason: ReasonCode
    text: str
    is_normal: bool
    session_expiry_s: int


# --- of what a client publishes -------------------------------------------------------------------


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A PUBLISH that is to be stored; `number` is how it is answered.

    At qos 2 `sequence` is above 0: the pair (packet id, sequence) is kept durably first, unless `is_kept`
    says that it is already; then the message is stored under that sequence of the session's producer, so
    that it is stored once however often it is tried.
    """

    number: int
    publish: Publish
    sequence: int = 0
    is_kept: bool = False


class StorePublishes(Effect, frozen=True):
    incoming: list[Incoming]


class KeepReceived(Effect, frozen=True):
    """The messages of these packet ids of qos 2 are stored; PUBREC is said when that is known wherever the
    session may go on."""

    packet_ids: list[int]


class ForgetReceived(Effect, frozen=True):
    """These packet ids of qos 2 are over; said to the client only when that is durable, since it uses an id
    again as soon as it knows."""

    packet_ids: list[int]


# --- of what a client gets ------------------------------------------------------------------------


class MessagePosition(msgspec.Struct, frozen=True, gc=False):
    """Where a message that is in flight stands, so that it is known again after a restart.

    `source` is the group that it comes from, or empty for the session's own subscriptions.
    """

    source: str
    shard: Shard
    offset: int


class Sent(msgspec.Struct, frozen=True, gc=False):
    """One exchange of qos 1 or 2 that is not finished, as it is kept."""

    packet_id: int
    position: MessagePosition
    qos: int
    is_released: bool = False
    """The client has it, PUBREC came, and PUBREL is what it is waiting for."""


class SayPublishes(Effect, frozen=True):
    """For `wire.mqtt.PublishWriter`; what that finds too large goes to `Outbound.dropped`."""

    publishes: list[Publish]


class KeepSent(Effect, frozen=True):
    """Before a message of qos 2 is sent: after a crash it must come with the same id again."""

    sent: list[Sent]


class KeepReleased(Effect, frozen=True):
    """Before PUBREL is sent: then the client forgets the id, and would take the message for a new one."""

    packet_ids: list[int]


class MessagesDone(Effect, frozen=True):
    """(feed, offset) of what the client has: for `Delivery.ack`."""

    done: list[tuple[int, int]]


class MessagesFailed(Effect, frozen=True):
    """(feed, offset, reason): the client answered with a failure. For a group that is `Delivery.reject`, for
    a private subscription an acknowledgement like any other."""

    failed: list[tuple[int, int, ReasonCode]]


class ForgetSent(Effect, frozen=True):
    """In one commit with the cursor that passes these messages, or after it; never before it."""

    packet_ids: list[int]


# --- of wills and sessions ------------------------------------------------------------------------


class PublishWill(Effect, frozen=True):
    will: Will


class KeepWill(Effect, frozen=True):
    """Keep it with the session, and when it is due: it is published though the node restarts meanwhile.

    `due_ms` is by the clock of `now_ms`; None while the client is connected."""

    will: Will
    due_ms: int | None


class ForgetWill(Effect, frozen=True):
    pass


class EndSession(Effect, frozen=True):
    """Its time is over: subscriptions, places and unfinished exchanges go."""
