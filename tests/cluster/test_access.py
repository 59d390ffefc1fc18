"""Nodes prove themselves to each other, and rights hold on all of them: with a node that leaves, and without
the catalog."""

import asyncio
import signal
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.catalog.nodes import pretend
from tests.cluster.proxy import CatalogProxy
from tests.cluster.running import SMALL, Got, Nodes, join, links_of, members
from tests.mqtt.wire_client import WireClient
from tests.net.authority import CLIENT, SERVER, Authority
from tests.process.nodes import NodeProcess
from tests.process.proving import audited, over, proven, read_audit, who
from tests.waiting import until

import moorline
from moorline.catalog import Catalog
from moorline.catalog.access import AccessCatalog
from moorline.catalog.users import Users
from moorline.core.access.right import EVERYTHING
from moorline.core.mqtt.packets import Disconnect
from moorline.core.mqtt.reason import ReasonCode
from moorline.errors import CertificateMisused, Denied, Refused, RightsUnknown
from moorline.net.credentials import NodeCredentials, PasswordCredentials

pytestmark = pytest.mark.process

QUICK = SMALL | {"access.revocation_ms": 400}


@pytest.fixture
async def catalog(dsn: str) -> AsyncIterator[Catalog]:
    async with Catalog.open(dsn) as opened:
        yield opened


async def test_a11_a_node_that_left_the_catalog_is_cut_and_comes_no_more(
    nodes: Nodes, catalog: Catalog
) -> None:
    """A11: also with the secret of the cluster."""
    (a,) = await nodes.start("a", settings=QUICK)
    secret = (await AccessCatalog(catalog).secrets()).current
    as_ghost = NodeCredentials(secret, "ghost", "a")
    with pytest.raises(Refused, match="AUTH: this is no node of this cluster"):
        async with proven(a.address, as_ghost):
            pass
    await pretend(catalog, "ghost", addresses=["tcp://127.0.0.1:1"])
    async with proven(a.address, as_ghost) as caller:
        found = await who(caller)
        assert (found.principal, found.proof) == ("$node/ghost", "node")
        assert found.groups == ("@everyone", "@nodes")
        await catalog.execute("delete from moorline.node where home = 'ghost'")
        assert "EXPIRED: this node is not of the cluster any more" in await over(caller)
    with pytest.raises(Refused, match="AUTH: this is no node of this cluster"):
        async with proven(a.address, as_ghost):
            pass


async def test_a11_a_link_to_a_node_that_left_is_cut(nodes: Nodes, catalog: Catalog) -> None:
    """A11: by the node that opened it."""
    a, b = await nodes.start("a", "b", settings=QUICK)
    # At once: also one that leaves before it was seen twice.
    await until(lambda: links_of(a.errors) == {"b"}, what="there is a link")
    # It would end by itself as soon as it learns of it, and then the link goes without a word of the other's.
    b.signal(signal.SIGSTOP)
    await catalog.execute("delete from moorline.node where home = 'b'")
    await until(lambda: "a node left the cluster" in a.errors, what="it is noticed")
    await until(lambda: links_of(a.errors) == set(), what="the link is cut")


async def test_a_right_that_is_taken_ends_on_every_node(nodes: Nodes) -> None:
    """A24, A25: also on one that heard of neither change itself."""
    a, b = await nodes.start("a", "b", settings=QUICK)
    async with moorline.connect(a.address, reconnect=False) as moor:
        await moor.access.add_user("anna", b"x")
        await moor.access.add_grant("/admin", "anna", "l")
        async with proven(b.address, PasswordCredentials("anna", "x")) as caller:

            async def may() -> bool:
                try:
                    await read_audit(caller)
                except Denied:
                    return False
                return True

            async def may_not() -> bool:
                return not await may()

            await until(may, what="it is heard of there")
            await moor.access.remove_grant("/admin", "anna", "l")
            await until(may_not, what="it is taken there")
            await moor.access.remove_user("anna")
            assert "EXPIRED: this user was changed" in await over(caller)


async def test_a27_without_the_catalog_known_rights_go_on_for_a_while(
    nodes: Nodes, dsn: str
) -> None:
    """A27: then they are refused, and with the catalog back they are as before."""
    settings = QUICK | {"access.stale_ms": 3_000}
    async with CatalogProxy(dsn) as proxy:
        (a,) = await nodes.start("a", settings=settings, dsn=proxy.dsn)
        async with moorline.connect(a.address, reconnect=False) as moor:
            await moor.access.add_user("anna", b"x")
            await moor.access.add_grant("/admin", "anna", "l")
            await moor.access.add_grant("/topics/t", "anna", "s")
        anna = PasswordCredentials("anna", "x")
        async with proven(a.address, anna) as caller:
            assert (await read_audit(caller)).call
            device = await asyncio.to_thread(device_of_anna, a)
            assert device is not None
            proxy.hold()
            assert (await read_audit(caller)).call, "what is known goes on"
            with pytest.raises(Refused, match="AUTH: it cannot be checked now"):
                async with proven(a.address, anna):
                    pass

            async def is_unknown() -> bool:
                try:
                    await read_audit(caller)
                except RightsUnknown:
                    return True
                return False

            await until(is_unknown, what="what is known has become too old")
            # A client of MQTT could not be told otherwise that nothing comes any more.
            ended = await asyncio.to_thread(device.hear, Disconnect)
            assert ended.reason is ReasonCode.SERVER_BUSY
            async with proven(a.address) as local:
                with pytest.raises(RightsUnknown):
                    await read_audit(local)
            proxy.release()

            async def is_known() -> bool:
                return not await is_unknown()

            await until(is_known, what="as before")

            async def is_back() -> bool:
                return await asyncio.to_thread(device_of_anna, a) is not None

            await until(is_back, what="its library connects again")


def device_of_anna(node: NodeProcess) -> WireClient | None:
    """Connected and subscribed, or None while it is not let in."""
    device = WireClient(node.mqtt, name="device")
    if device.connect(user="anna", password=b"x").reason is not ReasonCode.SUCCESS:
        device.socket.close()
        return None
    assert not device.subscribe("t/#").reasons[0].is_failure
    return device


async def test_a27_without_the_catalog_nodes_that_are_known_go_on_for_the_same_time(
    nodes: Nodes, dsn: str, catalog: Catalog
) -> None:
    settings = QUICK | {"access.stale_ms": 3_000}
    async with CatalogProxy(dsn) as proxy:
        (a,) = await nodes.start("a", settings=settings, dsn=proxy.dsn)
        await pretend(catalog, "ghost", addresses=["tcp://127.0.0.1:1"])
        as_ghost = NodeCredentials((await AccessCatalog(catalog).secrets()).current, "ghost", "a")
        async with proven(a.address, as_ghost):
            pass
        proxy.hold()
        async with proven(a.address, as_ghost) as caller:
            assert (await who(caller)).principal == "$node/ghost"
        as_stranger = NodeCredentials(
            (await AccessCatalog(catalog).secrets()).current, "stranger", "a"
        )
        with pytest.raises(Refused, match="AUTH: this is no node of this cluster"):
            async with proven(a.address, as_stranger):
                pass

        async def is_refused() -> bool:
            try:
                async with proven(a.address, as_ghost):
                    return False
            except Refused as error:
                return "it cannot be checked now" in str(error)

        await until(is_refused, what="what is known has become too old")
        proxy.release()

        async def is_taken() -> bool:
            return not await is_refused()

        await until(is_taken, what="as before")


async def test_operators_of_old_settings_get_their_row_once_and_the_log_warns(
    nodes: Nodes, catalog: Catalog
) -> None:
    # As the migration leaves a catalog that is older than rights.
    await catalog.execute("update moorline.access_state set is_upgraded = true")
    flags = ["--set=queues.operators=billing", "--set=groups.operators=billing"]
    (a,) = await nodes.start("a", flags=flags)
    assert "queues.operators and groups.operators are no settings any more" in a.errors
    assert "this catalog is older than rights" in a.errors
    users = Users(catalog)
    (entry,) = await users.grants("/", "billing", ("", ""), 10)
    assert (entry.row.path, entry.row.grants) == ("/", EVERYTHING)
    await users.remove_grant("/", "billing", EVERYTHING, made_by="test")
    await asyncio.to_thread(a.stop)
    await nodes.start("a", flags=flags)
    assert await users.grants("/", "billing", ("", ""), 10) == [], "what is removed stays so"


async def test_nodes_with_an_authority_of_their_own_link_and_users_are_no_nodes(
    nodes: Nodes, catalog: Catalog, tmp_path: Path
) -> None:
    """A11: a certificate of another authority makes no node."""
    of_nodes, of_users = Authority("nodes"), Authority("users")
    ca, users_ca = of_nodes.write(tmp_path / "nodes.pem"), of_users.write(tmp_path / "users.pem")
    own = {name: of_nodes.issue_node(name).write(tmp_path / f"{name}.pem") for name in "ab"}
    flags = [
        "--listen=tls://127.0.0.1:0",
        f"--tls-client-ca={users_ca}",
        f"--set=tls_node_ca={ca}",
        "--set=access.certificates=cn:user-*={}",
    ]
    for name, file in own.items():
        shows = [f"--tls-certificate={file}", f"--tls-key={file}"]
        await nodes.start(name, settings=SMALL, flags=[*flags, *shows])
    a, b = (nodes.alive()[name] for name in own)
    assert "does not name the home of this node" not in a.errors
    got = Got()
    async with (
        members(join(a, "$shared/billing/orders/#", got, "on a")),
        moorline.connect(b.address, reconnect=False) as moor,
    ):
        await moor.publish("orders/eu", b"m")
        await got.has([b"m"])
    address = a._found(r"(tls://\S+)")
    secret = (await AccessCatalog(catalog).secrets()).current
    shown = of_users.issue("user-alice").write(tmp_path / "alice.pem")
    async with proven(address, ca=ca, certificate=shown) as caller:
        assert (await who(caller)).principal == "alice"
    await pretend(catalog, "ghost", addresses=["tcp://127.0.0.1:1"])
    ghost = NodeCredentials(secret, "ghost", "a")
    for certificate in (shown, None):
        with pytest.raises(Refused, match="AUTH: this is no node of this cluster"):
            async with proven(address, ghost, ca=ca, certificate=certificate):
                pass
    with pytest.raises(Refused, match="AUTH: this is no node of this cluster"):
        async with proven(a.address, ghost):
            pass
    # A node that was taken over is that node still, and becomes no other.
    with pytest.raises(CertificateMisused, match="your certificate is of the node 'b'"):
        async with proven(address, ghost, ca=ca, certificate=own["b"]):
            pass
    wanted = ("node", "/admin/users/$node%2Fghost", "denied", "CERTIFICATE_MISUSED")
    await until(
        lambda: wanted in {(*told, line["detail"]["reason"]) for told, line in denied_logins(a)},
        what="it is in the audit",
    )


async def test_nodes_may_share_a_certificate_that_names_all_of_them(
    nodes: Nodes, catalog: Catalog, tmp_path: Path
) -> None:
    """A11: it is of the homes that it names, and makes nobody another one."""
    authority = Authority("nodes")
    ca = authority.write(tmp_path / "ca.pem")
    here = x509.IPAddress(ip_address("127.0.0.1"))
    names = [x509.DNSName(f"{home}.nodes.example") for home in "ab"]
    shared = authority.issue("cluster", uses=(SERVER, CLIENT), others=[here, *names])
    file = shared.write(tmp_path / "shared.pem")
    for home in "ab":
        await nodes.start(
            home,
            settings=SMALL,
            flags=[
                "--listen=tls://127.0.0.1:0",
                f"--tls-certificate={file}",
                f"--tls-key={file}",
                f"--set=tls_node_ca={ca}",
                "--set=access.node_certificates=san:dns:*.nodes.example={}",
            ],
        )
    a, b = nodes.alive()["a"], nodes.alive()["b"]
    assert "does not name the home of this node" not in a.errors + b.errors
    got = Got()
    async with (
        members(join(a, "$shared/billing/orders/#", got, "on a")),
        moorline.connect(b.address, reconnect=False) as moor,
    ):
        await moor.publish("orders/eu", b"m")
        await got.has([b"m"])
    secret = (await AccessCatalog(catalog).secrets()).current
    await pretend(catalog, "ghost", addresses=["tcp://127.0.0.1:1"])
    ghost = NodeCredentials(secret, "ghost", "a")
    with pytest.raises(CertificateMisused, match="your certificate is of the node 'a', 'b'"):
        async with proven(a._found(r"(tls://\S+)"), ghost, ca=ca, certificate=file):
            pass


async def test_a_node_whose_own_certificate_names_another_is_told_so(
    nodes: Nodes, tmp_path: Path
) -> None:
    authority = Authority("nodes")
    own = authority.issue_node("somebody").write(tmp_path / "own.pem")
    flags = [
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={own}",
        f"--tls-key={own}",
        f"--set=tls_node_ca={authority.write(tmp_path / 'ca.pem')}",
    ]
    (a,) = await nodes.start("a", settings=SMALL, flags=flags)
    assert "tls_certificate does not name the home of this node" in a.errors
    rule = "--set=access.node_certificates=cn:some*=a"
    await asyncio.to_thread(a.stop)
    (a,) = await nodes.start("a", settings=SMALL, flags=[*flags, rule])
    assert a.errors.count("does not name the home") == 1, "of the start before alone"


def denied_logins(node: NodeProcess) -> list[tuple[tuple[str, str, str], dict[str, Any]]]:
    return [
        ((line["proof"], line["path"], line["verdict"]), line)
        for line in audited(node)
        if line["kind"] == "login" and line["verdict"] == "denied"
    ]
