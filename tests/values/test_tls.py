"""The flow of a subscription over TLS: certificates prove both ends, at the resolver and at the publisher."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from tests.process.nodes import NodeProcess
from tests.waiting import until

from moorline.client.credentials import NO_PROOF, ClientIdentity
from moorline.client.values.link import LinkSettings, PublisherLink
from moorline.client.values.publisher import Publisher
from moorline.client.values.subscriber import Subscriber
from moorline.config.addresses import listen_address
from moorline.errors import ConfigError, Denied, Refused, Untrusted

pytestmark = pytest.mark.process


class Tls(NamedTuple):
    address: str
    ca: Path
    alice: Path
    bob: Path
    publisher: Path
    """Of alice too, for a listener."""


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    ca = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))

    def issued(name: str, *hosts: str) -> Path:
        path = folder / f"{name}.pem"
        made = authority.issue_cert(
            *(hosts or [f"{name}@example.org"]), common_name=name.split("-")[0]
        )
        made.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    server = issued("node", "127.0.0.1")
    with NodeProcess(
        folder / "node",
        "--listen=tls://127.0.0.1:0",
        f"--tls-certificate={server}",
        f"--tls-key={server}",
        f"--tls-client-ca={ca}",
    ) as node:
        (address,) = [one for one in node.ready_line.split() if one.startswith("tls://")]
        yield Tls(address, ca, issued("alice"), issued("bob"), issued("alice-p", "127.0.0.1"))


def publishing(tls: Tls) -> Publisher:
    return Publisher(tls.address, listen="tls://127.0.0.1:0", ca=tls.ca, certificate=tls.publisher)


async def test_t1_the_four_steps_with_certificates(tls: Tls) -> None:
    """T1: over TLS at both doors; and another user is denied what is not its own."""
    async with (
        publishing(tls) as publisher,
        Subscriber(tls.address, ca=tls.ca, certificate=tls.alice) as subscriber,
        Subscriber(tls.address, ca=tls.ca, certificate=tls.bob) as other,
    ):
        value = publisher.publish("/values/alice/tide", 1)
        (facts,) = await publisher.replicated(30)
        assert facts.is_current, facts
        subscription = await subscriber.subscribe("/values/alice/tide")
        assert subscription.value == 1
        value.update(2)
        await publisher.commit(10)
        await until(lambda: subscription.value == 2, "the update comes")
        with pytest.raises(Denied):
            await other.subscribe("/values/alice/tide")
        with pytest.raises(Denied):
            await other.subscribe("/values/alice/nothing")


async def test_who_shows_no_certificate_or_another_authority_is_told_so(tls: Tls) -> None:
    async with publishing(tls) as publisher:
        publisher.publish("/values/alice/x", 1)
        await publisher.replicated(30)

        async def come(ca: Path | None, certificate: Path | None) -> PublisherLink:
            return await PublisherLink.open(
                listen_address(publisher.address),
                publisher.instance,
                LinkSettings(10_000, 60_000, 60_000, ClientIdentity(NO_PROOF, ca, certificate)),
                updated=lambda *_: None,
                ended=lambda *_: None,
                lost=lambda *_: None,
            )

        with pytest.raises(Refused, match="prove who you are"):
            await come(tls.ca, None)
        with pytest.raises(Untrusted):
            await come(None, tls.alice)
        (await come(tls.ca, tls.alice)).close()


def test_a_publisher_that_could_take_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="certificate"):
        Publisher("moor://127.0.0.1", listen="tls://127.0.0.1:0")
    with pytest.raises(ConfigError, match="anonymous"):
        Publisher("moor://127.0.0.1", anonymous=False)
    with pytest.raises(ConfigError, match="keytab and service"):
        Publisher("moor://127.0.0.1", keytab=Path("x"))
    with pytest.raises(ConfigError, match="names no resolvers"):
        Publisher("http://127.0.0.1")
