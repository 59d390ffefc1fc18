"""Links by Kerberos, with a real KDC: who comes in and who does not, what is wrapped, and when it ends."""

import asyncio
import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.kerberos.realm import Realm
from tests.kerberos.serving import SERVICE, Between, KerberosServer, echo, entered, serving
from tests.net.proving import Raw
from tests.waiting import until

from moorline.config.addresses import Address
from moorline.errors import (
    ConfigError,
    ConnectionLost,
    KerberosError,
    Malformed,
    Refused,
    WireError,
)
from moorline.limits import PROOF_BYTES_MAX, PROOF_FRAME_BYTES_MAX, WRAPPED_AT_ONCE_BYTES
from moorline.net import kerberos
from moorline.net.caller import Caller
from moorline.net.kerberos import KerberosCall, library
from moorline.net.records import Records
from moorline.wire.frame import LENGTH, frame
from moorline.wire.link import PROTOCOL, Challenge, Goodbye, Hello, Response
from moorline.wire.node import Echo
from moorline.wire.protocol import client_decoder

pytestmark = pytest.mark.process

ALICE = "alice@MOOR.TEST"


def hello(token: bytes, mechanism: str = "gssapi") -> Hello:
    return Hello(PROTOCOL, 1, 1, "test", mechanism, token)


def alice(realm: Realm, **more: object) -> KerberosCall:
    return KerberosCall(SERVICE, keytab=realm.keytab("alice"), principal=ALICE, **more)  # type: ignore[arg-type]


def service(realm: Realm) -> Path:
    return realm.keytab("moorline/127.0.0.1")


async def test_a_ticket_proves_a_principal_and_the_link_is_wrapped_both_ways(realm: Realm) -> None:
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        between = Between(address)
        async with between.listening() as near:
            caller = await entered(near, alice(realm))
            assert await echo(caller, b"a secret word") == b"a secret word"
            (session,) = server.sessions
            assert session.identity.principal == ALICE
            assert session.identity.proof.value == "gssapi"
            assert session.is_encrypted
            caller.close("DONE", "")
            await until(lambda: not server.sessions)
        passed = b"".join(between.seen["to_node"] + between.seen["to_client"])
        assert b"a secret word" not in passed
        # Of the client a hello in clear, of the node a challenge; all else are records.
        assert len(between.seen["to_client"]) >= 3
        assert b"gssapi" in between.seen["to_node"][0]


async def test_the_default_cache_is_used_where_no_file_is_named(realm: Realm) -> None:
    realm.log_in("alice", realm.keytab("alice"), cache="ccache")
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        caller = await entered(address, KerberosCall(SERVICE))
        assert await echo(caller, b"x") == b"x"
        assert server.sessions[0].identity.principal == ALICE
        caller.close("DONE", "")


async def test_large_frames_and_many_small_ones_pass(realm: Realm) -> None:
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        caller = await entered(address, alice(realm))
        bodies = [os.urandom(size) for size in (0, 1, 65_479, 65_536, 65_537, 500_000, 1_000_000)]
        for body in bodies:
            assert await echo(caller, body) == body
        answers = await asyncio.gather(*(echo(caller, bytes([n % 256])) for n in range(3_000)))
        assert answers == [bytes([n % 256]) for n in range(3_000)]
        caller.close("DONE", "")


async def test_a_large_frame_is_wrapped_in_several_turns_of_the_loop(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = 0
    by_turn: Counter[tuple[int, int]] = Counter()
    wrapped = Records.wrapped

    def counted(self: Records, frames: Sequence[bytes | bytearray | memoryview]) -> list[bytes]:
        by_turn[id(self), turn] += sum(map(len, frames))
        return wrapped(self, frames)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Records, "wrapped", counted)
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        caller = await entered(address, alice(realm))
        counting = asyncio.create_task(count())
        bodies = [bytes([number]) * 1_000_000 for number in range(3)]
        answers = await asyncio.gather(*(echo(caller, body) for body in bodies))
        # Nothing has overtaken anything.
        assert answers == bodies
        over = [size for size in by_turn.values() if size > 2 * WRAPPED_AT_ONCE_BYTES]
        assert not over, by_turn
        # What is said last comes behind all of it, at once: there is no turn behind it.
        last = asyncio.create_task(echo(caller, b"x" * 1_000_000))
        await asyncio.sleep(0)
        caller.close("DONE", "the test is over")
        with pytest.raises((ConnectionLost, Refused)):
            await last
        await until(lambda: len(server.echoed) == 4)
        counting.cancel()
    assert sum(by_turn.values()) > 7_000_000


async def test_a_handshake_of_more_rounds_ends_in_a_wrapped_link_too(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DCE's style of Kerberos has a third token, from the client: the node is the last to be complete."""
    wanted = [*kerberos._wanted_flags(), library().RequirementFlag.dce_style]
    monkeypatch.setattr(kerberos, "_wanted_flags", lambda: wanted)
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        between = Between(address)
        async with between.listening() as near:
            caller = await entered(near, alice(realm))
            assert await echo(caller, b"a secret word") == b"a secret word"
            caller.close("DONE", "")
            await until(lambda: not server.sessions)
    challenges = [
        message
        for frame_seen in between.seen["to_client"][:2]
        for message in client_decoder.decode(memoryview(frame_seen))
    ]
    assert [type(one) for one in challenges] == [Challenge, Challenge]
    assert b"a secret word" not in b"".join(between.seen["to_node"])


# --- who does not come in -------------------------------------------------------------------------


async def test_t13_a_kerberos_listener_refuses_an_anonymous_hello_before_any_request(
    realm: Realm,
) -> None:
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        for weaker in ("", "password", "token", "node"):
            raw = (await Raw.to(address)).say(hello(b"", weaker), Echo(1, b"x"))
            said = await raw.hear()
            assert isinstance(said, Goodbye)
            assert said.code == "AUTH"
            assert await raw.hear() is None
    assert server.echoed == []


async def test_t18_each_mistake_has_its_own_error(own_realm: Realm, tmp_path: Path) -> None:
    realm = own_realm
    keytab, other = service(realm), realm.keytab("other/127.0.0.1")
    realm.keytab("bob")
    short = realm.log_in("alice", realm.keytab("alice"), life="1s")
    server = KerberosServer(keytab)
    found: dict[str, str] = {}

    async def told(what: str, call: KerberosCall) -> None:
        with pytest.raises(KerberosError) as error:
            await entered(address, call)
        found[what] = str(error.value)

    async with serving(server) as address:
        await told(
            "another principal", KerberosCall(SERVICE, keytab=realm.keytab("bob"), principal=ALICE)
        )
        await told("no service", KerberosCall("nobody/x@MOOR.TEST", keytab=realm.keytab("alice")))
        await told("another service", KerberosCall("other/127.0.0.1", keytab=realm.keytab("alice")))
        await told("no cache", KerberosCall(SERVICE, ccache=str(tmp_path / "none")))
        await until(lambda: "Expired" in _listed(realm, short))
        await told("expired", KerberosCall(SERVICE, ccache=str(short)))
        carol = realm.keytab("carol")
        realm.renew("carol")
        await told("old keytab", KerberosCall(SERVICE, keytab=carol))
        realm.renew("moorline/127.0.0.1")
        await told("renewed service", KerberosCall(SERVICE, keytab=realm.keytab("bob")))
    assert "has no key for our principal" in found["another principal"]
    assert "does not know the service" in found["no service"]
    assert "is for another service" in found["another service"]
    assert "no ticket cache" in found["no cache"]
    assert "expired" in found["expired"]
    assert "was the key renewed" in found["old keytab"] or "was it renewed" in found["old keytab"]
    assert "key" in found["renewed service"]
    assert len(set(found.values())) == len(found)
    with pytest.raises(ConfigError, match="cannot be used for moorline"):
        await KerberosServer(other).open()
    with pytest.raises(ConfigError, match="No such file"):
        await KerberosServer(tmp_path / "none").open()


def _listed(realm: Realm, cache: Path) -> str:
    """`klist -s` ends with 1 for a cache whose ticket is over."""
    try:
        realm.run(["klist", "-s", f"FILE:{cache}"])
    except AssertionError:
        return "Expired"
    return ""


async def test_t18_a_clock_that_is_wrong_is_told_as_that(realm: Realm, tmp_path: Path) -> None:
    """The acceptor's own clock skew is small, and the request is old."""
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        call = alice(realm)
        await call.prepare()
        token = await call.first()
        # The same realm, with no patience for clocks.
        strict = tmp_path / "strict.conf"
        _rewrite(realm, strict)
        made_s = time.monotonic()
        await until(lambda: time.monotonic() - made_s > 2.1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KRB5_CONFIG", str(strict))
            said = await (await Raw.to(address)).say(hello(token)).hear()
    assert isinstance(said, Goodbye)
    assert said.code == "AUTH"
    assert "clocks of the two machines differ" in said.text


def _rewrite(realm: Realm, strict: Path) -> None:
    plain = Path(realm.environment["KRB5_CONFIG"]).read_text()
    strict.write_text(re.sub(r"clockskew = \d+", "clockskew = 1", plain))


async def _deaf(raw: Raw) -> None:
    """Hears on to the end, or to what it cannot read."""
    while await raw.hear() is not None:
        pass


async def _echo_thrice(caller: Caller) -> None:
    for _ in range(3):
        await echo(caller, b"after")


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ((), ALICE),
        (("*@MOOR.TEST={}",), "alice"),
        (("host/*@MOOR.TEST=host-{}", "alice@MOOR.TEST=boss"), "boss"),
        (("*@OTHER.TEST={}",), None),
        (("host/*@MOOR.TEST={}",), None),
    ],
)
async def test_rules_make_a_principal_of_a_name(
    realm: Realm, rules: tuple[str, ...], principal: str | None
) -> None:
    server = KerberosServer(service(realm), rules=rules)
    async with serving(server) as address:
        if principal is None:
            with pytest.raises(KerberosError, match=r"no rule of access\.kerberos"):
                await entered(address, alice(realm))
            assert server.refused[0].claimed == ALICE
            return
        caller = await entered(address, alice(realm))
        (session,) = server.sessions
        assert session.identity.principal == principal
        assert session.identity.proven_name == ALICE
        caller.close("DONE", "")


@pytest.mark.parametrize(
    "left_out", ["mutual_authentication", "replay_detection", "out_of_sequence_detection"]
)
async def test_a_context_that_lacks_something_is_refused(realm: Realm, left_out: str) -> None:
    names = {
        "mutual_authentication",
        "confidentiality",
        "integrity",
        "replay_detection",
        "out_of_sequence_detection",
    }
    gssapi = library()
    flags = [getattr(gssapi.RequirementFlag, name) for name in names - {left_out}]
    context = gssapi.SecurityContext(
        name=gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal),
        creds=gssapi.Credentials(
            usage="initiate",
            store={"client_keytab": str(realm.keytab("alice")), "ccache": "MEMORY:lacking"},
        ),
        mech=gssapi.MechType.kerberos,
        flags=flags,
        usage="initiate",
    )
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        said = await (await Raw.to(address)).say(hello(context.step())).hear()
    assert isinstance(said, Goodbye)
    assert left_out.replace("_", " ") in said.text


async def test_a_record_that_is_signed_and_not_encrypted_ends_the_link(realm: Realm) -> None:
    """The flags of a context always speak of confidentiality: what counts is what came."""
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        call = alice(realm)
        caller = await entered(address, call)
        assert await echo(caller, b"before") == b"before"
        assert caller._records is not None
        caller._records._wrap = lambda data: bytes(call._context.wrap(data, False).message)
        with pytest.raises(ConnectionLost, match="TAMPERED: what came is not encrypted"):
            await echo(caller, b"after")
    assert server.echoed == [b"before"]


# --- hostile peers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"garbage",
        os.urandom(1_000),
        b"\x60" + os.urandom(PROOF_BYTES_MAX - 1),
        bytes(PROOF_BYTES_MAX),
    ],
)
async def test_garbage_in_place_of_a_token_is_refused(realm: Realm, token: bytes) -> None:
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        said = await (await Raw.to(address)).say(hello(token)).hear()
        assert isinstance(said, Goodbye)
        assert said.code == "AUTH"
        caller = await entered(address, alice(realm))  # and others are served
        assert await echo(caller, b"x") == b"x"
        caller.close("DONE", "")


async def test_a_token_above_its_bound_is_refused_unread(realm: Realm) -> None:
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        raw = await Raw.to(address)
        raw.write(LENGTH.pack(PROOF_FRAME_BYTES_MAX + 1) + b"x")
        said = await raw.hear()
        assert isinstance(said, Goodbye)
        assert said.code == "FRAME_TOO_LARGE"
        raw = await Raw.to(address)
        encoded = bytearray(frame([hello(bytes(PROOF_BYTES_MAX))]))
        # One byte more in the token, in a frame that would still fit.
        longer = msgspec.msgpack.encode(
            [[1, PROTOCOL, 1, 1, "test", "gssapi", bytes(PROOF_BYTES_MAX + 1)]]
        )
        assert len(longer) < PROOF_FRAME_BYTES_MAX
        assert len(encoded) < PROOF_FRAME_BYTES_MAX
        raw.write(LENGTH.pack(len(longer)) + longer)
        said = await raw.hear()
        assert isinstance(said, Goodbye)
        assert said.code == "MALFORMED"


async def test_t19_a_hello_that_was_recorded_is_refused_when_it_comes_again(realm: Realm) -> None:
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        call = alice(realm)
        await call.prepare()
        token = await call.first()
        first = (await Raw.to(address)).say(hello(token))
        assert isinstance(await first.hear(), Challenge)
        said = await (await Raw.to(address)).say(hello(token)).hear()
        assert isinstance(said, Goodbye)
        assert "seen before" in said.text


async def test_t19_without_a_replay_cache_the_thief_cannot_go_on(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5RCACHENAME", "none:")
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        between = Between(address)
        async with between.listening() as near:
            caller = await entered(near, alice(realm))
            await echo(caller, b"x")
            caller.close("DONE", "")
            await until(lambda: not server.sessions)
        for rest in ([], [between.seen["to_node"][1]], [bytes(frame([Response(b"")]))[4:]]):
            raw = await Raw.to(address)
            for one in (between.seen["to_node"][0], *rest):
                raw.write(LENGTH.pack(len(one)) + one)
            if rest:
                with pytest.raises(WireError):
                    await _deaf(raw)
            assert server.sessions == []
        assert server.echoed == [b"x"]


def _flipped(seen: list[bytes]) -> list[bytes]:
    changed = bytearray(seen[-1])
    changed[len(changed) // 2] ^= 1
    return [bytes(changed)]


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "flipped": _flipped,
    "repeated": lambda seen: [seen[-1], seen[-1]],
    "an older one": lambda seen: [seen[-2]],
    "in clear": lambda _: [bytes(frame([Echo(9, b"forged")]))[4:]],
    "cut": lambda seen: [seen[-1][:-1]],
    "empty": lambda _: [b""],
}


@pytest.mark.parametrize("what", list(CHANGES))
@pytest.mark.parametrize("direction", ["to_node", "to_client"])
async def test_t19_a_record_that_was_changed_ends_the_link(
    realm: Realm, what: str, direction: str
) -> None:
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        between = Between(address)
        async with between.listening() as near:
            caller = await entered(near, alice(realm))
            assert await echo(caller, b"before") == b"before"
            await echo(caller, b"before")
            setattr(between, direction, CHANGES[what])
            with pytest.raises((ConnectionLost, WireError)) as error:
                await _echo_thrice(caller)
            assert "TAMPERED" in str(error.value)
            await until(lambda: not server.sessions)
    assert b"forged" not in server.echoed
    if direction == "to_node" and what != "repeated":
        assert b"after" not in server.echoed


async def test_t19_two_records_that_changed_places_end_the_link(realm: Realm) -> None:
    server = KerberosServer(service(realm))
    held: list[bytes] = []

    def swapped(seen: list[bytes]) -> list[bytes]:
        held.append(seen[-1])
        return [] if len(held) < 2 else held[::-1]

    async with serving(server) as address:
        between = Between(address)
        async with between.listening() as near:
            caller = await entered(near, alice(realm))
            await echo(caller, b"before")
            between.to_node = swapped
            calls = [asyncio.create_task(echo(caller, b"first"))]
            await until(lambda: len(held) == 1)
            calls.append(asyncio.create_task(echo(caller, b"second")))
            for call in calls:
                with pytest.raises(ConnectionLost, match="TAMPERED"):
                    await call
    assert server.echoed == [b"before"]


@pytest.mark.parametrize("behind", ["in the frame", "in a frame of its own"])
async def test_what_is_said_in_clear_with_the_hello_is_never_heard(
    realm: Realm, behind: str
) -> None:
    """The switch is exact: a call that came before it, and is heard behind it, would be a stranger's."""
    server = KerberosServer(service(realm))
    async with serving(server) as address:
        call = alice(realm)
        await call.prepare()
        said = hello(await call.first())
        raw = await Raw.to(address)
        if behind == "in the frame":
            raw.say(said, Response(b""), Echo(1, b"forged"))
        else:
            raw.say(said).say(Response(b"")).say(Echo(1, b"forged"))
        with contextlib.suppress(
            WireError
        ):  # behind the challenge come records, which it cannot read
            await _deaf(raw)
        await until(lambda: not server.listeners.sessions)
    assert server.echoed == []


async def test_a_node_that_has_not_proven_itself_is_not_believed(realm: Realm) -> None:
    """Whoever has no keytab may answer what it likes: no word of the client's is for it."""
    answers = [
        [Challenge(b"\x01")],
        [Challenge(b"\x01garbage")],
        [Challenge(b"\x00")],
        [Challenge(b"")],
        [Challenge(b"\x02")],
    ]
    for answer in answers:

        async def pretend(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            answer: list[Challenge] = answer,
        ) -> None:
            await reader.readexactly(4)
            writer.write(bytes(frame(answer)))
            await writer.drain()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(pretend, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            near = Address("tcp", "127.0.0.1", port)
            with pytest.raises(KerberosError):
                await entered(near, alice(realm), timeout_ms=20_000)


async def test_half_handshakes_are_bounded_and_keep_nobody_out(realm: Realm) -> None:
    server = KerberosServer(service(realm), hello_timeout_ms=1_000)
    async with serving(server) as address:
        halves = []
        for _ in range(40):
            call = alice(realm)
            await call.prepare()
            halves.append((await Raw.to(address)).say(hello(await call.first())))
        for raw in halves:
            assert isinstance(await raw.hear(), Challenge)
        caller = await entered(address, alice(realm))
        assert await echo(caller, b"x") == b"x"
        await until(lambda: len(server.listeners.sessions) == 1)  # theirs have timed out
        caller.close("DONE", "")


# --- time -----------------------------------------------------------------------------------------


async def test_a_session_ends_with_its_ticket(own_realm: Realm) -> None:
    realm = own_realm
    server = KerberosServer(service(realm))
    cache = realm.log_in("alice", realm.keytab("alice"), life="3s")
    async with serving(server) as address:
        caller = await entered(address, KerberosCall(SERVICE, ccache=str(cache)))
        assert await echo(caller, b"x") == b"x"
        ends_ms = server.sessions[0].identity.expires_ms
        assert ends_ms is not None
        async with asyncio.timeout(20):
            lost = await asyncio.shield(caller.lost)
        assert "EXPIRED" in str(lost)
        assert time.time() * 1_000 >= ends_ms - 1_500
        assert not server.sessions


async def test_t24_a_kdc_that_is_away_or_hangs(own_realm: Realm) -> None:
    """Who has a ticket comes in, who has none hears it in time, and the loop goes on meanwhile."""
    realm = own_realm
    keytab = realm.keytab("alice")
    # Two of them: what the first has asked is answered when the KDC comes to itself, before it is stopped.
    newcomers = {realm.hang: realm.keytab("bob"), realm.stop: realm.keytab("carol")}
    server = KerberosServer(service(realm))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    async with serving(server) as address:
        caller = await entered(address, KerberosCall(SERVICE, keytab=keytab))
        counting = asyncio.create_task(count())
        for away, words in ((realm.hang, "no ticket within 1500 ms"), (realm.stop, "no KDC")):
            away()
            before = turns
            with pytest.raises(KerberosError, match=words) as error:
                await KerberosCall(SERVICE, keytab=newcomers[away], timeout_ms=1_500).prepare()
            assert not isinstance(error.value, ConnectionLost)
            if away == realm.hang:
                assert turns - before > 20  # of 150 that an idle machine has
            again = await entered(address, KerberosCall(SERVICE, keytab=keytab))
            assert await echo(again, b"x") == b"x"
            assert await echo(caller, b"x") == b"x"
            again.close("DONE", "")
        caller.close("DONE", "")
        counting.cancel()


async def test_a_keytab_that_everybody_may_read_is_refused(realm: Realm, tmp_path: Path) -> None:
    copy = tmp_path / "open.keytab"
    copy.write_bytes(realm.keytab("alice").read_bytes())
    copy.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        await KerberosCall(SERVICE, keytab=copy).prepare()
    with pytest.raises(ConfigError, match="chmod 600"):
        await KerberosServer(copy).open()


def test_errors_name_no_other_class() -> None:
    assert not issubclass(KerberosError, ConnectionLost)
    assert issubclass(KerberosError, Refused)
    assert not issubclass(KerberosError, Malformed)
