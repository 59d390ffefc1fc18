"""A batch that no member answers: a proof that is not taken is never told as "unreachable" (T18)."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from tests.process.nodes import run_moor

from moorline.client.resolver import Resolver
from moorline.client.resolver_cluster import most_telling, with_address
from moorline.client.values.publisher import Publisher
from moorline.config.addresses import Address
from moorline.core.directory import read_batch
from moorline.errors import (
    CertificateExpired,
    ConnectionLost,
    KerberosError,
    MoorlineError,
    NotReady,
    Refused,
    RightsUnknown,
    TlsError,
    Unreachable,
    Unsupported,
    Untrusted,
)

DEAD = "tls://127.0.0.1:1"


@asynccontextmanager
async def of_another_authority(folder: Path) -> AsyncIterator[tuple[str, Path]]:
    """Somebody at an address, whose certificate is not of the authority that comes with it."""
    theirs, ours = trustme.CA(), trustme.CA()
    ca = folder / "ca.pem"
    ours.cert_pem.write_to_path(str(ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}", ca


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_batch, "READ_PAUSE_MS_MIN", 1)
    monkeypatch.setattr(read_batch, "READ_PAUSE_MS_MAX", 5)


@pytest.mark.usefixtures("without_pauses")
@pytest.mark.parametrize("others", [[], [DEAD]], ids=["alone", "beside-one-that-is-dead"])
async def test_t18_a_resolver_of_another_authority_is_untrusted(
    tmp_path: Path, others: list[str]
) -> None:
    async with of_another_authority(tmp_path) as (address, ca):
        for members in ([address, *others], [*others, address]):
            async with Resolver(members, ca=ca) as resolver:
                with pytest.raises(Untrusted, match=address):
                    await resolver.resolve("/a")


@pytest.mark.usefixtures("without_pauses")
async def test_who_is_only_away_is_unreachable() -> None:
    async with Resolver([DEAD, "tcp://127.0.0.1:1"]) as resolver:
        with pytest.raises(Unreachable, match=r"no resolver of tls://127\.0\.0\.1:1, tcp:") as told:
            await resolver.resolve("/a")
        assert not isinstance(told.value, TlsError)


def of(*errors: MoorlineError) -> type[MoorlineError] | None:
    found = most_telling(dict(enumerate(errors)))
    return type(found[1]) if found is not None else None


def test_t18_what_is_wrong_with_a_proof_is_told_before_anything_else() -> None:
    away, lost = Unreachable("away"), ConnectionLost("lost")
    expired, ticket = CertificateExpired("CERTIFICATE_EXPIRED", "ended"), KerberosError("AUTH", "x")
    assert of(away, expired, lost) is CertificateExpired
    assert of(away, ticket) is KerberosError
    assert of(NotReady("later"), Untrusted("whose?"), away) is Untrusted
    assert of(away, Refused("AUTH", "wrong password")) is Refused


def test_patience_is_told_before_absence() -> None:
    away = Unreachable("away")
    assert of(away, NotReady("later")) is NotReady
    assert of(away, RightsUnknown("later"), Unsupported("no")) is RightsUnknown


def test_what_only_some_say_is_said_beside_the_others() -> None:
    away = Unreachable("away")
    assert of(away, Unsupported("no")) is None
    assert of(away, ConnectionLost("lost")) is None
    assert of(Refused("BUSY", "later"), away) is None
    assert of(Unsupported("no"), Unsupported("no")) is Unsupported
    assert of() is None


def test_who_is_refused_hears_where() -> None:
    address = Address("tcp", "127.0.0.1", 7)
    error = with_address(Refused("AUTH", "wrong password"), address)
    assert str(error) == "AUTH: tcp://127.0.0.1:7: wrong password"
    told = KerberosError("AUTH", "tcp://127.0.0.1:7: no ticket")
    assert with_address(told, address) is told


@pytest.mark.process
async def test_t18_commands_say_the_class_of_it(tmp_path: Path) -> None:
    async with of_another_authority(tmp_path) as (address, ca):
        for command in (("resolve", "/a"), ("value", "get", "/a"), ("value", "publish", "/a", "1")):
            words = (*command, f"--address={address}", f"--ca={ca}")
            done = await asyncio.to_thread(run_moor, *words, timeout_s=90)
            assert done.stderr.startswith("moor: Untrusted: "), done.stderr
            assert done.returncode == Untrusted.exit_code


async def test_a_publisher_says_it_of_its_members(tmp_path: Path) -> None:
    async with (
        of_another_authority(tmp_path) as (address, ca),
        Publisher(address, listen="tcp://127.0.0.1:0", ca=ca, anonymous=True) as publisher,
    ):
        publisher.publish("/a", 1)
        async with asyncio.timeout(30):
            while not (member := publisher.members[0]).why:
                await asyncio.sleep(0.01)
        assert member.code == Untrusted.code
        assert isinstance(publisher.failure(), Untrusted)
