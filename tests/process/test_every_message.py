"""Every message that a node hears, with any values: never a mistake of ours, nor the end of the node."""

import asyncio
import contextlib
import functools
import os
import random
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import trustme
from tests.process.nodes import NodeProcess, run_moor
from tests.wire.any_message import Drawing

import moorline
from moorline.core.stream import SegmentPart
from moorline.limits import FRAME_BYTES_MAX
from moorline.net.tls import client_context
from moorline.wire.frame import LENGTH, Splitter, frame
from moorline.wire.link import PROTOCOL, Goodbye, Hello
from moorline.wire.message import Answer, Call, Failed, Message
from moorline.wire.node import Echo
from moorline.wire.protocol import HeardByNode, client_decoder
from moorline.wire.service import OpenService
from moorline.wire.staging import OpenStage, StageOpened
from moorline.wire.stream_file import ReadStreamFile
from moorline.wire.topic import SubscribeTopic

pytestmark = pytest.mark.process

SEED = int(os.environ.get("EVERY_MESSAGE_SEED", "20260714"))
ROUNDS = int(os.environ.get("EVERY_MESSAGE_ROUNDS", "12"))
KINDS: list[type[Message]] = sorted(get_args(HeardByNode), key=lambda kind: kind.__name__)
ANSWER_S_MAX = 60
GROUP = "$share/g/a/b"
PREPARED = 1 << 32
"""Number of the first call that is not drawn."""
LATE_S_MAX = 0.2
"""For a call whose answer may wait for something: it is heard later, and a mistake in it is in the log."""


FLAGS = (
    "--set=streams.shards=2",
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--listen=tls://127.0.0.1:0",
)


def certificates_flags(folder: Path) -> list[str]:
    """With a certificate a client is an operator, and may act for a service: it reaches more of the node."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    client = authority.issue_cert("client@example.org", common_name="billing")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    client.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    return [
        f"--tls-certificate={folder / 'server.pem'}",
        f"--tls-key={folder / 'server.pem'}",
        f"--tls-client-ca={folder / 'ca.pem'}",
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("every-message")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(folder / "data", *FLAGS, *certificates_flags(folder)) as node:
        made = run_moor("grant", "add", "/", "billing", "slwpdag", f"--address={node.address}")
        assert made.returncode == 0, made.stderr
        yield node
        assert "Traceback" not in node.errors
        assert [line for line in node.errors.splitlines() if " error " in line[:16]] == []


@functools.cache
def certificates_in(folder: Path) -> ssl.SSLContext | None:
    return client_context(folder / "ca.pem", folder / "client.pem", folder / "client.pem")


def tls_address(node: NodeProcess) -> str:
    found = re.search(r"tls://\S+", node.ready_line)
    assert found is not None
    return found[0]


class RawLink:
    """One connection that sends what it is given, and hears everything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = Splitter(FRAME_BYTES_MAX)
        self._calls = 0
        self.unanswered: set[int] = set()
        self.goodbye: Goodbye | None = None
        self.is_over = False

    @classmethod
    async def open(cls, node: NodeProcess) -> "RawLink":
        host, _, port = tls_address(node).removeprefix("tls://").rpartition(":")
        certificates = certificates_in(node.data.parent)
        link = cls(*await asyncio.open_connection(host, int(port), ssl=certificates))
        link._writer.write(bytes(frame([Hello(PROTOCOL, 1, 1)])))
        return link

    async def say(self, arrays: list[Any]) -> list[Answer]:
        """Sends them, and hears until all calls among them are answered, or are long in coming."""
        self._calls += 1
        fence = (1 << 40) + self._calls
        payload = msgspec.msgpack.encode([*arrays, Echo(fence, b"")])
        self._writer.write(LENGTH.pack(len(payload)) + payload)
        self.unanswered |= {one.call for one in arrays if isinstance(one, Call)} | {fence}
        answers: list[Answer] = []
        with contextlib.suppress(ConnectionError, TimeoutError):
            while self.unanswered:
                # Some wait for news that never come: behind the echo nobody waits for them.
                patience_s = ANSWER_S_MAX if fence in self.unanswered else LATE_S_MAX
                data = await asyncio.wait_for(self._reader.read(1 << 20), patience_s)
                if not data:
                    break
                answers += self._heard(data)
            else:
                return answers
            self.is_over = True
            return answers
        self.is_over = self._reader.at_eof() or self._reader.exception() is not None
        assert self.is_over or fence not in self.unanswered, "the node does not answer"
        return answers

    def _heard(self, data: bytes) -> list[Answer]:
        answers: list[Answer] = []
        for part in self._splitter.feed(data):
            for message in client_decoder.decode(part):
                if isinstance(message, Goodbye):
                    self.goodbye = message
                if isinstance(message, Answer):
                    self.unanswered.discard(message.call)
                    answers.append(message)
        return answers

    def close(self) -> None:
        self._writer.transport.abort()


Known = dict[str, list[Any]]


async def known_values(node: NodeProcess) -> Known:
    """What there is at the node, by the fields that name it: so calls reach more than a `not found`."""
    certificates = node.data.parent / "client.pem"
    async with moorline.connect(
        tls_address(node),
        ca=certificates.with_name("ca.pem"),
        certificate=certificates,
        key=certificates,
        reconnect=False,
    ) as moor:
        queues = [(await moor.create_queue()).id for _ in range(3)]
        for number in range(20):
            await moor.send(queues[0], b"waiting")
            await moor.publish("a/b", b"body", key=b"k", retain=number % 2 == 0)
    return {
        "queue": queues,
        "queues": [queues, [*queues, queues[0]], []],
        "topic": ["a/b"],
        "filter": ["a/b", "a/+", "#", GROUP, "$queue/q/#"],
        "group": [GROUP, "$share/other/#", "$queue/q/a/b"],
        "start": ["now", "beginning", "time:1", f"time:{(1 << 63) - 1}", "offset:0", "offset:3"],
        "service": ["billing"],
        "shard": [0, 1, 2],
        "generation": [1, 2],
        "offset": [0, 3, 10, 1_000],
        "number": list(range(24)),
    }


@pytest.fixture(scope="module")
def known(node: NodeProcess) -> Known:
    return asyncio.run(known_values(node))


async def prepared(
    node: NodeProcess, chance: random.Random, known: Known
) -> tuple[RawLink, Drawing]:
    """A link that has a service, a subscription and a stage open, or has none of them."""
    link = await RawLink.open(node)
    stages: list[bytes] = []
    if chance.random() < 0.5:
        opening = (
            OpenService(PREPARED),
            SubscribeTopic(PREPARED + 1, GROUP),
            OpenStage(PREPARED + 2, "q", 0, 0, 0),
        )
        answers = await link.say(list(opening))
        stages = [one.stage for one in answers if isinstance(one, StageOpened)]
    return link, Drawing(chance, known | {"stage": stages})


def check(link: RawLink, said: object, answers: list[Answer]) -> None:
    for answer in answers:
        assert not (isinstance(answer, Failed) and answer.code == "INTERNAL"), (said, answer)
    assert link.goodbye is None or link.goodbye.code != "INTERNAL", (said, link.goodbye)


async def walk(
    node: NodeProcess, known: Known, kind: type[Message], rounds: int, seed: int
) -> None:
    """Each in a frame of its own: what ends a link is to be known by its message."""
    chance = random.Random(f"{seed} {kind.__name__}")
    link, drawing = await prepared(node, chance, known)
    for number in range(rounds):
        if link.is_over or number % 10 == 9:
            link.close()
            link, drawing = await prepared(node, chance, known)
        said: Any = drawing.message(kind)
        if chance.random() < 0.15:
            said = drawing.wrong(kind, number)
        elif isinstance(said, Call):
            said = msgspec.structs.replace(said, call=number)
        check(link, said, await link.say([said]))
    link.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_no_message_is_a_mistake_of_ours(
    node: NodeProcess, known: Known, kind: type[Message]
) -> None:
    await walk(node, known, kind, ROUNDS, SEED)
    assert node.process.poll() is None


async def test_messages_of_all_kinds_on_one_link(node: NodeProcess, known: Known) -> None:
    """One session that has subscriptions, stages and a service open while the next thing is asked for."""
    chance = random.Random(SEED)
    kinds = [kind for kind in KINDS if kind not in (Hello, Goodbye)]
    for _ in range(ROUNDS):
        link, drawing = await prepared(node, chance, known)
        while not link.is_over and chance.random() < 0.9:
            said = [drawing.message(kind) for kind in chance.sample(kinds, 8)]
            check(link, said, await link.say(said))
        link.close()


@pytest.mark.parametrize("part", ["segment", "index", "dense"])
async def test_a_place_that_no_file_of_a_stream_has_is_refused_by_name(
    node: NodeProcess, known: Known, part: SegmentPart
) -> None:
    link = await RawLink.open(node)
    for position in (1 << 42, (1 << 63) - 1):
        answers = await link.say([ReadStreamFile(1, known["shard"][0], 1, part, position, 10)])
        (failed,) = [one for one in answers if isinstance(one, Failed)]
        assert (failed.code, str(position) in failed.text) == ("BAD_START", True)
    link.close()
