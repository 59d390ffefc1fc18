"""A second protocol, of lines of text, beside the native one: the same listeners, sessions and bounds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterator, Sequence

import msgspec

from moorline.client.connecting import connect
from moorline.config.addresses import Address
from moorline.core.accepting_link import AcceptingLink
from moorline.core.effects import Event, Say
from moorline.core.link import EndLink, GoodbyeHeard, HelloHeard, SayWelcome
from moorline.errors import FrameTooLarge, Malformed
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Handlers, Session
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Call, Failed, Message
from moorline.wire.node import Echo, Echoed

LINE_BYTES_MAX = 100


class Hi(Message, frozen=True):
    pass


class Bye(Message, frozen=True):
    why: str = ""


class Reverse(Call, frozen=True):
    text: str


class Reversed(Answer, frozen=True):
    text: str


class Mumble(Call, frozen=True):
    """What nobody answers."""


class LineEnd:
    """The node's end: `hi`, then `reverse TEXT` and `mumble`, in the end `bye`."""

    link_messages = frozenset[type[Message]]({Hi, Bye})

    def __init__(self, link: AcceptingLink) -> None:
        self.link = link
        self.was_opened = False
        self._tail = b""
        self._calls = 0

    def feed(self, data: bytes) -> Iterator[memoryview]:
        *lines, self._tail = (self._tail + data).split(b"\n")
        for line in lines:
            yield memoryview(line)
        if len(self._tail) > LINE_BYTES_MAX:
            raise FrameTooLarge("a long line")

    def decode(self, frame: memoryview) -> list[Message]:
        word, _, text = bytes(frame).decode().partition(" ")
        self._calls += 1
        match word:
            case "hi":
                return [Hi()]
            case "bye":
                return [Bye()]
            case "reverse":
                return [Reverse(self._calls, text)]
            case "mumble":
                return [Mumble(self._calls)]
        raise Malformed(f"no word {word}")

    def encode(self, messages: Sequence[Message]) -> tuple[list[bytes], list[Message]]:
        lines, unsendable = [], []
        for message in messages:
            match message:
                case Reversed(_, text) if len(text) < LINE_BYTES_MAX:
                    lines.append(f"reversed {text}\n".encode())
                case Failed(_, code):
                    lines.append(f"failed {code}\n".encode())
                case Hi():
                    lines.append(b"hi\n")
                case Bye(why):
                    lines.append(f"bye {why}\n".encode())
                case _:
                    unsendable.append(message)
        return lines, unsendable

    def opened(self) -> None:
        self.was_opened = True

    def meant(self, message: Message) -> Event | Message | None:
        return HelloHeard(1, 1) if isinstance(message, Hi) else GoodbyeHeard("DONE", "")

    def said(self, say: Say) -> Message | None:
        match say:
            case SayWelcome():
                return Hi()
            case EndLink(code):
                return Bye(code)
        return None  # it has no ping


class LineProtocol(msgspec.Struct, frozen=True):
    handlers: Handlers

    def accepting(
        self, name: str, *, hello_timeout_ms: int, keepalive_ms: int, mechanisms: Collection[str]
    ) -> LineEnd:
        assert not mechanisms, "it has no word for a proof"
        return LineEnd(
            AcceptingLink(name, hello_timeout_ms=hello_timeout_ms, keepalive_ms=keepalive_ms)
        )


def reverse(session: Session, calls: list[Reverse]) -> list[Answer]:  # noqa: ARG001
    return [Reversed(call.call, call.text[::-1]) for call in calls]


def blow_up(session: Session, calls: list[Reverse]) -> list[Answer]:  # noqa: ARG001
    return [Reversed(call.call, call.text * LINE_BYTES_MAX) for call in calls]


def echo(session: Session, calls: list[Echo]) -> list[Answer]:  # noqa: ARG001
    return [Echoed(call.call, call.body) for call in calls]


@contextlib.asynccontextmanager
async def both(lines: Handlers) -> AsyncIterator[tuple[Listeners, Address, Address]]:
    """Listeners with a native address and one of lines."""
    listeners = Listeners(Admission("loopback", 10, 300, 60_000))
    native = NativeProtocol(
        {Echo: echo},
        lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
    )
    anywhere = Address("tcp", "127.0.0.1", 0)
    (first,) = await listeners.open(anywhere, None, native)
    (second,) = await listeners.open(anywhere, None, LineProtocol(lines))
    try:
        yield listeners, first, second
    finally:
        await listeners.close()


async def said_to(address: Address, text: bytes) -> bytes:
    """All that the node says to these bytes until it hangs up."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(text)
    async with asyncio.timeout(30):
        said = await reader.read(-1)
    writer.close()
    return said


async def test_each_address_speaks_its_own_protocol_to_its_own_handlers() -> None:
    async with both({Reverse: reverse}) as (listeners, native, lines):
        reader, writer = await asyncio.open_connection(lines.host, lines.port)
        writer.write(b"hi\nreverse abc\nreverse xyz\nmumble\n")
        async with asyncio.timeout(30), connect(str(native)) as moor:
            said = [await reader.readline() for _ in range(4)]
            assert said == [b"hi\n", b"reversed cba\n", b"reversed zyx\n", b"failed UNSUPPORTED\n"]
            assert await moor.echo(b"beside it") == b"beside it"
            assert len(listeners.sessions) == 2
            writer.write(b"bye\n")
            assert await reader.read(-1) == b""
        writer.close()


async def test_what_breaks_a_protocol_is_answered_in_its_own_words() -> None:
    async with both({Reverse: reverse}) as (_, native, lines):
        assert await said_to(lines, b"what\n") == b"bye MALFORMED\n"
        assert await said_to(lines, b"reverse abc\n") == b"bye MALFORMED\n"
        assert await said_to(lines, b"x" * 2 * LINE_BYTES_MAX) == b"bye FRAME_TOO_LARGE\n"
        assert await said_to(lines, b"hi\nhi\n") == b"hi\nbye MALFORMED\n"
        assert await said_to(lines, b"h") == b"bye HELLO_TIMEOUT\n"
        assert b"FRAME_TOO_LARGE" in await said_to(native, b"hi\n\n\n\n")


async def test_an_answer_that_has_no_bytes_is_refused_in_its_place() -> None:
    async with both({Reverse: blow_up}) as (_, _, lines):
        reader, writer = await asyncio.open_connection(lines.host, lines.port)
        writer.write(b"hi\nreverse abc\n")
        async with asyncio.timeout(30):
            assert await reader.readline() == b"hi\n"
            assert await reader.readline() == b"failed TOO_LARGE\n"
        writer.close()


async def test_a_stop_says_goodbye_in_every_protocol() -> None:
    async with both({Reverse: reverse}) as (listeners, _, lines):
        reader, writer = await asyncio.open_connection(lines.host, lines.port)
        writer.write(b"hi\n")
        async with asyncio.timeout(30):
            assert await reader.readline() == b"hi\n"
            await listeners.close()
            assert await reader.read(-1) == b"bye STOPPING\n"
        writer.close()
