"""Links between nodes: over TLS, to peers that are not what they seem, and nonsense in their place."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from tests.catalog.nodes import LEASE_MS, pretend
from tests.cluster.running import (
    PATIENT,
    SMALL,
    Got,
    Nodes,
    all_done,
    join,
    links_of,
    members,
    numbered,
)
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import until

import moorline
from moorline.catalog import Catalog
from moorline.config.addresses import listen_address
from moorline.core.delivery.progress import Cursor
from moorline.core.group.message import (
    BorrowerMessage,
    Disconnect,
    LeaderWanted,
    Ping,
    RevokeFinished,
    UpdateProgress,
)
from moorline.errors import CallFailed, ConfigError, NotFound
from moorline.limits import NODE_GONE_MS
from moorline.net.caller import Caller, open_caller
from moorline.wire.group import (
    FindOffsets,
    ForLeader,
    OffsetsFound,
    ReadStream,
    StreamRead,
)
from moorline.wire.message import Message

pytestmark = pytest.mark.process

GROUP = "$shared/billing/orders/#"


@pytest.fixture
async def catalog(nodes: Nodes) -> AsyncIterator[Catalog]:
    async with Catalog.open(nodes.dsn) as catalog:
        yield catalog


async def test_a_list_of_resolvers_says_where_the_others_are(nodes: Nodes, tmp_path: Path) -> None:
    """One node is there; two others are told of each other by it, and come by their certificates."""
    authority = trustme.CA()
    ca, shown = tmp_path / "ca.pem", tmp_path / "node.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued = authority.issue_cert("127.0.0.1", common_name="node")
    issued.private_key_and_cert_chain_pem.write_to_path(str(shown))
    flags = [
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={shown}",
        f"--tls-key={shown}",
        f"--tls-client-ca={ca}",
        "--set=anonymous=never",
    ]
    await nodes.start("a", settings=PATIENT, flags=flags)
    resolvers = _tls_address(nodes["a"]).replace("tls://", "moors://")
    told = [*flags, f"--resolvers={resolvers}", "--roles=broker"]
    await nodes.start("b", "c", settings=PATIENT, flags=told)
    b, c = nodes["b"], nodes["c"]
    # The one that tells is gone, and what is known goes on.
    nodes["a"].kill()
    await until(lambda: "where the other nodes are is not known" in b.errors, within_s=60)
    await until(lambda: links_of(b.errors) == {"c"}, what="the link that was lost")
    await until(lambda: links_of(c.errors) == {"b"}, what="the link that was lost")


async def test_links_over_tls(nodes: Nodes, tmp_path: Path) -> None:
    authority = trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    certificates = {name: tmp_path / f"{name}.pem" for name in ("a", "b", "olga")}
    for name, path in certificates.items():
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    for name in ("a", "b"):
        await nodes.start(
            name,
            settings=PATIENT,
            flags=[
                "--listen=tls://127.0.0.1:0",
                f"--tls-certificate={certificates[name]}",
                f"--tls-key={certificates[name]}",
                f"--tls-client-ca={ca}",
                # Nobody may come in over the other address, which is named first.
                "--set=anonymous=never",
            ],
        )
    await nodes.linked()
    addresses = [_tls_address(nodes[name]) for name in ("a", "b")]
    assert all(address.startswith("tls://") for address in addresses)
    async with (
        moorline.connect(
            addresses[0], ca=ca, certificate=certificates["olga"], reconnect=False
        ) as reader,
        moorline.connect(
            addresses[1], ca=ca, certificate=certificates["olga"], reconnect=False
        ) as writer,
    ):
        # What is below its own name is hers, and there is nobody here who could grant her more.
        subscription = await reader.subscribe("$shared/olga/olga/#")
        for body in numbered("m", 20):
            await writer.publish("olga/eu", body)
        got = []
        for _ in range(20):
            message = await subscription.get(10)
            assert message is not None
            got.append(message.body)
            await message.ack()
        assert got == numbered("m", 20)


def _tls_address(node: NodeProcess) -> str:
    found = re.search(r"tls://\S+", node.ready_line)
    assert found is not None, node.ready_line
    return found[0]


async def test_two_nodes_of_one_name_do_not_go_unnoticed(nodes: Nodes, tmp_path: Path) -> None:
    await nodes.start("a")
    refused = await asyncio.to_thread(
        run_moor,
        "serve",
        f"--data={tmp_path / 'other'}",
        "--node=a",
        "--listen=tcp://127.0.0.1:0",
        "--http=off",
        f"--catalog={nodes.dsn}",
    )
    assert refused.returncode == 3, refused.stderr
    assert "another node of this catalog is called 'a'" in refused.stderr
    assert "--node" in refused.stderr
    # The same node, killed and started again, is the same node.
    nodes["a"].kill()
    await nodes.start("a")


async def test_a_name_is_free_when_its_node_is_silent(dsn: str) -> None:
    async with Catalog.open(dsn) as catalog:
        await pretend(catalog, "a")
        with pytest.raises(ConfigError, match="another node of this catalog is called 'a'"):
            await pretend(catalog, "a", node_id=b"new")
        await catalog.execute("update moorline.node set seen_at = now() - interval '1 minute'")
        await pretend(catalog, "a", node_id=b"new")
        # It has the name, but not the other's streams and places.
        nodes = [(node.id, node.name, node.home) for node in await catalog.nodes()]
        assert nodes == [(b"a", "a", "a"), (b"new", "a", f"a-{b'new'.hex()}")]


async def test_links_to_strangers_do_not_pile_up(nodes: Nodes, catalog: Catalog) -> None:
    """A peer that hangs up, one that talks nonsense, and one that is somebody else."""
    a, b = await nodes.start("a", "b")
    accepted = {"mute": 0, "mad": 0}

    def server(name: str, words: bytes) -> asyncio.Future[asyncio.Server]:
        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted[name] += 1
            writer.write(words)
            writer.close()

        return asyncio.ensure_future(asyncio.start_server(accept, "127.0.0.1", 0))

    servers = [await server("mute", b""), await server("mad", b"HTTP/1.1 200 OK\r\n\r\n" * 9)]
    files = open_files(a)
    strangers = [await pretend(catalog, "ghost", addresses=[b.address])]
    for name, one in zip(accepted, servers, strict=True):
        address = f"tcp://127.0.0.1:{one.sockets[0].getsockname()[1]}"
        strangers.append(await pretend(catalog, name, addresses=[address]))

    async def are_tried() -> bool:
        for stranger in strangers:
            await stranger.renew(LEASE_MS, is_serving=True)
        return min(accepted.values()) >= 20  # of two nodes

    await until(are_tried, what="many attempts")
    await until(
        lambda: "no node of this cluster" in a.errors, what="the ghost is known for what it is"
    )
    assert links_of(a.errors) == {"b"}
    assert a.errors.count("no link") < 12, "a peer that is down is not worth a line each time"
    for one in servers:
        one.close()
    # A link that is just being tried is open at any time.
    await until(lambda: open_files(a) <= files + 2, what=f"{files} open files again")
    got = Got()
    async with (
        members(join(a, GROUP, got, "on a")),
        moorline.connect(b.address, reconnect=False) as moor,
    ):
        await moor.publish("orders/eu", b"m")
        await got.has([b"m"])


def open_files(node: NodeProcess) -> int:
    """But for sockets of the Unix family: those are of the catalog, whose pool grows within its bound."""
    folder = Path(f"/proc/{node.process.pid}")
    rows = (folder / "net" / "unix").read_text().splitlines()[1:]
    of_catalog = {f"socket:[{row.split()[6]}]" for row in rows}
    opened = 0
    for one in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            opened += str(one.readlink()) not in of_catalog
    return opened


async def test_a_node_that_is_gone_is_forgotten_and_comes_back(nodes: Nodes) -> None:
    a, b = await nodes.start("a", "b")
    got = Got()
    async with members(join(a, GROUP, got, "on a")):
        async with moorline.connect(b.address, reconnect=False) as moor:
            await moor.publish("orders/eu", b"first")
        await got.has([b"first"])
        await all_done(a, GROUP)
        b.kill()
        await until(
            lambda: "a node is gone" in a.errors,
            within_s=NODE_GONE_MS / 1_000 + 5,
            what="it is forgotten",
        )
        async with moorline.connect(a.address, reconnect=False) as moor:
            await moor.group(GROUP).seek("now")  # the streams of a node that is gone do not hinder
        (b,) = await nodes.start("b")
        async with moorline.connect(b.address, reconnect=False) as moor:
            await moor.publish("orders/eu", b"second")
        await got.has([b"second"])
    assert got.bodies() == [b"first", b"second"]


async def test_nonsense_from_a_client_is_harmless(nodes: Nodes) -> None:
    (a,) = await nodes.start("a", settings=PATIENT | {"groups.member_timeout_ms": 1_000})
    got = Got()
    async with members(join(a, GROUP, got, "on a")):
        caller = await open_caller(
            listen_address(a.address),
            lambda: Caller("nonsense", hello_timeout_ms=5_000, keepalive_ms=15_000),
            timeout_ms=5_000,
        )

        async def read(shard: int, generation: int, offset: int, wait_ms: int = 0) -> StreamRead:
            return await caller.call(
                lambda call: ReadStream(call, shard, generation, offset, 1_000, wait_ms), StreamRead
            )

        for shard, generation in ((10**9, 1), (0, 10**9), (4, 1)):
            with pytest.raises(NotFound, match="no stream"):
                await read(shard, generation, 0)
        beyond = await read(0, 1, 2**62, 20)
        assert (beyond.first, beyond.upto, beyond.frames) == (2**62, 2**62, b"")
        assert (await read(0, 0, 5)).frames == b""
        offsets = await caller.call(lambda call: FindOffsets(call, 2**62), OffsetsFound)
        assert len(offsets.offsets) == SMALL["streams.shards"]

        async with moorline.connect(a.address, reconnect=False) as moor:
            info = await moor.group(GROUP).info()
        borrower = info.members[0].borrower
        epoch = info.group.epoch
        strange: list[BorrowerMessage] = [
            LeaderWanted("stranger", "stranger", -5),
            Ping("nobody", 99, 1, b"?"),
            Ping("stranger", epoch, 2**62, b"?"),
            UpdateProgress("nobody", 99, 1, 1, Cursor(5), 5, True),
            UpdateProgress(borrower, epoch - 1, 2**40, 10**9, None, 0, True),
            RevokeFinished(borrower, epoch, 1, 10**9),
            Disconnect("nobody", epoch, ((1, Cursor(7)),)),
        ]
        messages: list[Message] = [
            ForLeader(reader, message) for message in strange for reader in (0, 1, 10**9, 2**62)
        ]
        caller.send_all(messages)
        # Behind them: they have been heard when this is answered.
        await caller.call(lambda call: FindOffsets(call, 0), OffsetsFound)
        with pytest.raises(CallFailed):
            await read(10**9, 1, 0)
        async with moorline.connect(a.address, reconnect=False) as moor:
            for body in numbered("m", 20):
                await moor.publish("orders/eu", body)
        await got.has(numbered("m", 20))
        await all_done(a, GROUP)
        caller.close("DONE", "enough")
    got.is_exactly(numbered("m", 20))
