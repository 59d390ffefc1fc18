"""Room: records. Clients over the native protocol: a session becomes one of records with what it says."""

from collections.abc import Iterator

import msgspec

from moorline.access.guard import Declarations, each_by_itself
from moorline.access.trail import Acting
from moorline.errors import NotAuthorized
from moorline.limits import RECORD_PART_BYTES
from moorline.net.session import Session
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.records.form import NATIVE, Form
from moorline.records.session import RecordSession
from moorline.records.subscribing import Tables
from moorline.wire.message import Answer
from moorline.wire.records import (
    Login,
    RecordMessages,
    RecordsUnchanged,
    ResumeRecords,
    node_msgpack,
)

ASKED = "questions of records"
RESTART = "RESTART"
"""A client comes back with what it has."""


class NativeOutlet:
    form: Form = NATIVE
    is_entered = True
    """Its link has said who it is."""

    def __init__(self, session: Session, tables: Tables) -> None:
        self.records = RecordSession(tables, self)
        self._session = session
        self._tables = tables
        self._is_paused = False

    @property
    def acting(self) -> Acting:
        return self._session

    @property
    def rights(self) -> SessionRights:
        return self._session.rights

    @property
    def allowance(self) -> SessionAllowance | None:
        return self._session.allowance

    @property
    def is_writable(self) -> bool:
        return self._session.writable or not self._session.is_open

    def write(self, packet: RecordMessages | RecordsUnchanged, /) -> None:
        if isinstance(packet, RecordsUnchanged):
            self._session.push(packet, len(packet.cursor))
        else:
            for part in _parts(packet):
                self._session.push(part, len(part.messages))
        if not self._session.writable and not self._is_paused:
            self._is_paused = True
            self._tables.spawn(self._pause())

    async def login(self, said: Login) -> None:  # noqa: ARG002
        raise NotAuthorized("over the native protocol the link says who it is, and not a message")

    def hold_reading(self) -> None:
        self._session.hold_work(ASKED)

    def release_reading(self) -> None:
        self._session.release_work(ASKED)

    def close(self, code: str, text: str) -> None:
        self._session.close(code, text)

    def boot(self, why: str) -> None:  # noqa: ARG002
        # Not a word of why: a change of rights looks like any other end.
        if self._session.writable:
            self._session.close(RESTART, "come back with your cursor")
        else:
            self._session.abort()

    async def _pause(self) -> None:
        self.records.pause()
        await self._session.room_to_write()
        self._is_paused = False
        self.records.resume()


def _parts(packet: RecordMessages) -> Iterator[RecordMessages]:
    data = packet.messages
    if len(data) <= RECORD_PART_BYTES:
        yield packet
        return
    for start in range(0, len(data), RECORD_PART_BYTES):
        end = start + RECORD_PART_BYTES
        yield RecordMessages(data[start:end], end < len(data))


class NativeRecords:
    """The handler of what clients say."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._outlets: dict[Session, NativeOutlet] = {}

    def declared(self) -> Declarations:
        # Each table of a set is judged by itself, and refused by itself.
        return {
            RecordMessages: each_by_itself(self._heard),
            ResumeRecords: each_by_itself(self._resumed),
        }

    def _resumed(self, session: Session, resumes: list[ResumeRecords]) -> list[Answer]:
        self._outlet(session).records.heard(resumes)
        return []

    def _outlet(self, session: Session) -> NativeOutlet:
        outlet = self._outlets.get(session)
        if outlet is None:
            outlet = self._outlets[session] = NativeOutlet(session, self._tables)
            session.at_end(lambda: self._left(session))
        return outlet

    def _heard(self, session: Session, packets: list[RecordMessages]) -> list[Answer]:
        outlet = self._outlet(session)
        for packet in packets:
            if packet.is_part:
                session.close("MALFORMED", "what a client says of records fits a frame")
                break
            try:
                messages = node_msgpack.decode(packet.messages)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                session.close("MALFORMED", str(error))
                break
            outlet.records.heard(messages)
        return []

    def _left(self, session: Session) -> None:
        outlet = self._outlets.pop(session, None)
        if outlet is not None:
            outlet.records.closed()
