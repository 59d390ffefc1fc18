"""The flow of a subscription with Kerberos: subscriber, resolver and publisher, each proven to the other."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.kerberos.realm import Realm
from tests.kerberos.test_nodes import of_kerberos
from tests.process.nodes import MOOR, NodeProcess

import moorline
from moorline import KerberosCredentials, KerberosError
from moorline.client.credentials import ClientIdentity, ClientProof
from moorline.client.values.link import LinkSettings, PublisherLink
from moorline.client.values.publisher import Publisher
from moorline.client.values.subscriber import Subscriber
from moorline.config.addresses import listen_address
from moorline.errors import ConfigError, Denied, Refused

pytestmark = pytest.mark.process

SERVICE = "publisher/p1.moor@MOOR.TEST"


def proof_of(realm: Realm, name: str) -> ClientProof:
    return ClientProof(
        credentials=KerberosCredentials(keytab=realm.keytab(name), principal=f"{name}@MOOR.TEST")
    )


def publishing(realm: Realm, node: NodeProcess, name: str = "alice") -> Publisher:
    return Publisher(
        node.address,
        proof=proof_of(realm, name),
        keytab=realm.keytab("publisher/p1.moor"),
        service=SERVICE,
    )


async def test_t1_the_four_steps_with_kerberos(realm: Realm, tmp_path: Path) -> None:
    """T1: the resolver gives address and service name; the subscriber has a ticket for that service, and what
    passes is wrapped. Another principal is denied what is not its own."""
    with NodeProcess(tmp_path / "node", *of_kerberos(realm)) as node:
        async with (
            publishing(realm, node) as publisher,
            Subscriber(node.address, proof=proof_of(realm, "alice")) as subscriber,
            Subscriber(node.address, proof=proof_of(realm, "bob")) as other,
        ):
            path = "/values/alice@MOOR.TEST/tide"
            value = publisher.publish(path, 1)
            (facts,) = await publisher.replicated(30)
            assert facts.is_current, facts
            subscription = await subscriber.subscribe(path)
            assert subscription.value == 1
            for number in range(2, 50):
                value.update(number)
                await publisher.commit(10)
            async for event in subscription:
                if event.value == 49:
                    break
            with pytest.raises(Denied):
                await other.subscribe(path)


async def test_t13_a_publisher_of_kerberos_hears_nobody_who_proves_nothing(
    realm: Realm, tmp_path: Path
) -> None:
    """T13: an anonymous hello is refused before any request is read; a ticket for the node is none for it."""
    with NodeProcess(tmp_path / "node", *of_kerberos(realm)) as node:
        async with publishing(realm, node) as publisher:
            await publisher.replicated(30)
            address = listen_address(publisher.address)

            async def come(proof: ClientProof, service: str = "") -> PublisherLink:
                return await PublisherLink.open(
                    address,
                    publisher.instance,
                    LinkSettings(10_000, 60_000, 60_000, ClientIdentity(proof)),
                    updated=lambda *_: None,
                    ended=lambda *_: None,
                    lost=lambda *_: None,
                    service=service,
                )

            with pytest.raises(Refused, match="prove who you are"):
                await come(ClientProof())
            with pytest.raises(KerberosError):
                await come(proof_of(realm, "alice"), "moorline/127.0.0.1@MOOR.TEST")
            link = await come(proof_of(realm, "alice"), SERVICE)
            link.close()


async def test_a_token_is_of_the_one_that_the_ticket_names(realm: Realm, tmp_path: Path) -> None:
    """What alice was given, bob cannot use at a publisher that knows who is there."""
    with NodeProcess(tmp_path / "node", *of_kerberos(realm)) as node:
        async with (
            publishing(realm, node) as publisher,
            Subscriber(node.address, proof=proof_of(realm, "alice")) as subscriber,
        ):
            path = "/values/alice@MOOR.TEST/tide"
            publisher.publish(path, 1)
            await publisher.replicated(30)
            (found,) = await subscriber._resolver.resolve_all([path])
            assert not isinstance(found, moorline.MoorlineError), found
            grant = found.publishers[0].grant
            for name, code in (("bob", "DENIED"), ("alice", "")):
                link = await PublisherLink.open(
                    listen_address(publisher.address),
                    publisher.instance,
                    LinkSettings(10_000, 60_000, 60_000, ClientIdentity(proof_of(realm, name))),
                    updated=lambda *_: None,
                    ended=lambda *_: None,
                    lost=lambda *_: None,
                    service=found.publishers[0].service,
                )
                (answer,) = await link.subscribe([(path, grant)])
                assert answer.code == code
                link.close()
            await asyncio.sleep(0)


async def test_a_kerberos_publisher_by_flags_alone(realm: Realm, tmp_path: Path) -> None:
    """`moor value` names files and principals, and no secret."""
    path = "/values/alice@MOOR.TEST/tide"
    with NodeProcess(tmp_path / "node", *of_kerberos(realm)) as node:
        as_alice = (
            f"--address={node.address}",
            f"--keytab={realm.keytab('alice')}",
            "--kerberos-principal=alice@MOOR.TEST",
        )

        async def moor(*words: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                *MOOR, "value", *words, *as_alice, "--json",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip

        keys = f"--publisher-keytab={realm.keytab('publisher/p1.moor')}"
        alone = await moor("publish", path, "4.5", keys)
        assert b"go together" in (await alone.communicate())[1]
        publisher = await moor("publish", path, "4.5", keys, f"--publisher-service={SERVICE}")
        try:
            assert publisher.stdout is not None
            async with asyncio.timeout(60):
                told = msgspec.json.decode(await publisher.stdout.readline())
            assert told["path"] == path
            asked = await moor("get", path)
            out, err = await asyncio.wait_for(asked.communicate(), 60)
            assert msgspec.json.decode(out) == {"path": path, "value": 4.5}, err
            # Who proves nothing is not let in by the publisher.
            with pytest.raises(Refused):
                await PublisherLink.open(
                    listen_address(told["address"]),
                    bytes(16),
                    LinkSettings(10_000, 60_000, 60_000),
                    updated=lambda *_: None,
                    ended=lambda *_: None,
                    lost=lambda *_: None,
                )
        finally:
            publisher.terminate()
            await publisher.wait()


def test_values_of_spark_take_subscribers_by_kerberos(realm: Realm, tmp_path: Path) -> None:
    spark = pytest.importorskip("moorline.spark")
    path = "/values/alice@MOOR.TEST/tide"
    with NodeProcess(tmp_path / "node", *of_kerberos(realm)) as node:
        made = spark.ValuePublisher(
            node.address,
            keytab=str(realm.keytab("publisher/p1.moor")),
            service=SERVICE,
            keytabFile=str(realm.keytab("alice")),
            kerberosPrincipal="alice@MOOR.TEST",
        )
        with made as publisher:
            publisher.run(publisher._publish({path: 7}, is_all=False))

            async def read() -> object:
                async with Subscriber(node.address, proof=proof_of(realm, "alice")) as subscriber:
                    return (await subscriber.subscribe(path)).value

            assert asyncio.run(read()) == 7
        with pytest.raises(ConfigError, match="go together"):
            spark.ValuePublisher(node.address, keytab="somewhere")
