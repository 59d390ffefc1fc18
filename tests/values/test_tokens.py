"""What a publisher takes as a token, over a real connection of a subscriber that lies."""

import secrets
from typing import Any

import msgspec
import pytest
from tests.values.world import Values

from moorline.client.resolution import Grant
from moorline.client.values.door import TokenCheck
from moorline.client.values.link import LinkSettings, PublisherLink
from moorline.client.values.publisher import Publisher
from moorline.config.addresses import listen_address
from moorline.core.access.principal import Proof
from moorline.limits import CLAIMS_PER_CALL_MAX
from moorline.net.slices import done
from moorline.net.tls import Identity
from moorline.wire.resolver import Holder
from moorline.wire.value import SubscribeValues

SETTINGS = LinkSettings(5_000, 60_000, 60_000)


async def link_to(publisher: Publisher) -> PublisherLink:
    return await PublisherLink.open(
        listen_address(publisher.address),
        publisher.instance,
        SETTINGS,
        updated=lambda *_: None,
        ended=lambda *_: None,
        lost=lambda *_: None,
    )


async def granted(values: Values, path: str) -> Grant:
    subscriber = await values.subscriber()
    (found,) = await subscriber._resolver.resolve_all([path])
    assert not isinstance(found, Exception), found
    return found.publishers[0].grant


ALTERED: dict[str, Any] = {
    "resolver": secrets.token_bytes(16),
    "expires_s": 4_000_000_000,
    "permissions": 127 ^ 8,
    "token": b"",
}


async def test_t10_what_a_resolver_has_not_signed_is_denied(values: Values) -> None:
    """T10: another path, other permissions, another's secret, truncated, empty, a bit flipped: denied each,
    the connection stays usable, and nothing is said of what is there."""
    publisher = await values.publisher()
    publisher.publish_all([("/t/one", 1), ("/t/two", 2)])
    await publisher.replicated(10)
    grant = await granted(values, "/t/one")
    link = await link_to(publisher)
    flipped = bytes([grant.token[0] ^ 1, *grant.token[1:]])
    lies = [
        ("/t/two", grant),
        ("/t/nothing", grant),
        ("/t/one", msgspec.structs.replace(grant, token=flipped)),
        ("/t/one", msgspec.structs.replace(grant, token=grant.token[:63])),
        ("/t/one", msgspec.structs.replace(grant, token=secrets.token_bytes(64))),
        *(
            ("/t/one", msgspec.structs.replace(grant, **{field: value}))
            for field, value in ALTERED.items()
        ),
        (
            "/t/one",
            msgspec.structs.replace(
                grant, holder=msgspec.structs.replace(grant.holder, principal="alice")
            ),
        ),
    ]
    for lie in lies:
        (answer,) = await link.subscribe([lie])
        assert answer.code == "DENIED", lie
        assert (answer.id, answer.value) == (0, None)
    (answer,) = await link.subscribe([("/t/one", grant)])
    assert (answer.code, answer.value) == ("", 1)
    link.close()


async def test_a_token_of_one_publisher_is_no_use_at_another(values: Values) -> None:
    first, second = await values.publisher(), await values.publisher()
    first.publish("/t/one", 1)
    await first.replicated(10)
    grant = await granted(values, "/t/one")
    second.publish("/t/one", 2)
    await second.replicated(10)
    link = await link_to(second)
    (answer,) = await link.subscribe([("/t/one", grant)])
    assert answer.code == "DENIED"
    link.close()


async def test_t11_an_expired_token_is_denied(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T11: the clock of the publisher is moved; the pure half has the exact second."""
    publisher = await values.publisher()
    publisher.publish("/t/one", 1)
    await publisher.replicated(10)
    grant = await granted(values, "/t/one")
    link = await link_to(publisher)
    ends_ms = grant.expires_s * 1_000
    for now_ms, code in ((ends_ms - 1_000, ""), (ends_ms, "DENIED"), (0, "DENIED")):
        monkeypatch.setattr("moorline.client.values.door.wall_ms", lambda now_ms=now_ms: now_ms)
        (answer,) = await link.subscribe([("/t/one", grant)])
        assert answer.code == code, now_ms
    link.close()


async def test_a_resolver_that_is_named_twice_is_one_resolver(values: Values) -> None:
    """By two addresses: the second login has another secret, and the first one is of no use any more."""
    address = values.server.address
    publisher = await values.publisher(address, address.replace("127.0.0.1", "localhost"))
    publisher.publish("/t/one", 1)
    await publisher.current(30)
    subscriber = await values.subscriber()
    assert (await subscriber.subscribe("/t/one")).value == 1


def test_thousands_of_tokens_are_compared_in_steps() -> None:
    check = TokenCheck(bytes(16))
    claims = [(f"/a/{number}", 1, bytes(64)) for number in range(CLAIMS_PER_CALL_MAX)]
    holder = Holder("anonymous", "anonymous", True)
    call = SubscribeValues(1, claims=claims, resolver=bytes(16), holder=holder, expires_s=0)
    steps = check.judging(call, Identity("anonymous", Proof.NOTHING))
    assert len(list(steps)) >= 20
    steps = check.judging(call, Identity("anonymous", Proof.NOTHING))
    assert all(done(steps))
