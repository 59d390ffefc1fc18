"""Proofs over real sockets: authenticators that take their time, clients that do not wait, who comes in."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest
from tests.net.proving import (
    NONCE,
    PASSWORDS,
    Password,
    Raw,
    Server,
    Signature,
    echo,
    entered,
    hello,
    serving,
)
from tests.net.test_session import Certificates
from tests.waiting import until

from moorline.core.access.principal import Proof
from moorline.core.proof import ProofAccepted
from moorline.errors import ConfigError, ConnectionLost, Refused
from moorline.limits import (
    FRAMES_UNCHECKED_MAX,
    HELLO_FRAME_BYTES_MAX,
    MECHANISM_LENGTH_MAX,
    PROOF_BYTES_MAX,
    PROOF_ROUNDS_MAX,
)
from moorline.net.authentication import (
    BY_CERTIFICATE,
    BY_NOTHING,
    Authentication,
    Checks,
    Credentials,
    Verdict,
)
from moorline.net.caller import Caller, open_caller
from moorline.wire.frame import LENGTH, frame
from moorline.wire.link import Challenge, Goodbye, Ping, Pong, Response, Welcome
from moorline.wire.message import Message
from moorline.wire.node import Echo, Echoed

# --- who comes in ---------------------------------------------------------------------------------


async def test_a_password_opens_the_link_as_its_principal() -> None:
    async with serving(Server("password")) as (server, address):
        caller = await entered(address, Password("olga", b"swordfish"))
        assert await echo(caller, b"x" * 100_000) == b"x" * 100_000
        (session,) = server.listeners.sessions
        assert session.identity.name == "olga"
        assert session.identity.proof is not Proof.NOTHING
        assert session.identity.proof is Proof.PASSWORD
        assert session.identity.fingerprint == b"", "nothing but a certificate has one"
        ((mechanism, peer),) = server.passwords.begun
        assert (mechanism, peer.address, peer.is_encrypted) == ("password", "127.0.0.1", False)
        caller.close("DONE", "")


@pytest.mark.parametrize("rounds", [1, 3, PROOF_ROUNDS_MAX])
async def test_a_challenge_is_answered_in_any_number_of_rounds(rounds: int) -> None:
    async with serving(Server("password", "node")) as (server, address):
        server.passwords.rounds = rounds
        caller = await entered(address, Signature("olga", b"swordfish"))
        assert await echo(caller, b"in") == b"in"
        assert server.names == ["olga"]
        assert len(server.passwords.checked) == rounds + 1
        assert len(server.passwords.begun) == 1, "one exchange for all rounds"
        caller.close("DONE", "")


async def test_too_many_rounds_end_the_link() -> None:
    async with serving(Server("node")) as (server, address):
        server.passwords.rounds = PROOF_ROUNDS_MAX + 1
        with pytest.raises(Refused, match="AUTH: the proof has too many rounds"):
            await entered(address, Signature("olga", b"swordfish"))


@pytest.mark.parametrize(
    "credentials",
    [
        Password("olga", b"wrong"),
        Password("nobody", b"swordfish"),
        Signature("olga", b"wrong"),
        Signature("nobody", b"swordfish"),
    ],
)
async def test_a_wrong_proof_is_refused_the_same_whoever_there_is(credentials: Credentials) -> None:
    async with serving(Server("password", "node")) as (server, address):
        with pytest.raises(Refused) as refused:
            await entered(address, credentials)
        assert str(refused.value) == "AUTH: the proof is wrong"
        await until(lambda: not server.listeners.sessions)


@pytest.mark.parametrize(
    ("taken", "credentials", "text"),
    [
        (("node",), Password("olga", b"swordfish"), "it takes node"),
        (("node",), None, "this address takes node"),
        (("password", BY_CERTIFICATE), None, "this address takes password, certificate"),
        ((BY_CERTIFICATE, BY_NOTHING), Password("olga", b"swordfish"), "it takes no proofs"),
    ],
)
async def test_an_address_takes_what_it_names_and_nothing_weaker(
    taken: tuple[str, ...], credentials: Credentials | None, text: str
) -> None:
    """A08: also of several that it knows."""
    async with serving(Server(*taken)) as (server, address):
        with pytest.raises(Refused, match=f"AUTH: .*{text}"):
            await entered(address, credentials)
        assert server.passwords.checked == []


async def test_who_names_no_mechanism_is_judged_by_its_transport() -> None:
    async with serving(Server("password", BY_NOTHING)) as (server, address):
        caller = await entered(address)
        assert await echo(caller, b"anonymous") == b"anonymous"
        assert server.names == ["anonymous"]
        assert server.passwords.begun == []
        caller.close("DONE", "")


async def test_a_refused_client_learns_nothing_of_the_node() -> None:
    async with serving(Server("password")) as (_, address):
        raw = (await Raw.to(address)).say(hello())
        said = await raw.hear()
        assert isinstance(said, Goodbye), "and no welcome before it"
        assert said.code == "AUTH"
        assert await raw.hear() is None


async def test_a_certificate_and_encryption_are_shown_to_the_authenticator(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    client = certificates.folder / "client.pem"
    async with serving(Server("password"), certificates.context()) as (server, address):
        caller = await open_caller(
            address,
            lambda: Caller(
                "test",
                hello_timeout_ms=30_000,
                keepalive_ms=600_000,
                credentials=Password("olga", b"swordfish"),
            ),
            timeout_ms=30_000,
            ca=certificates.ca,
            certificate=client,
        )
        ((_, peer),) = server.passwords.begun
        assert peer.is_encrypted
        assert peer.certificate is not None
        assert peer.certificate.common_names == ("billing",)
        assert server.names == ["olga"], "the proof says who it is"
        caller.close("DONE", "")


# --- time, and what is said meanwhile -------------------------------------------------------------


async def test_nothing_is_handled_while_a_proof_is_checked() -> None:
    async with serving(Server("password")) as (server, address):
        server.passwords.may_answer.clear()
        raw = (await Raw.to(address)).say(hello("password", b"olga:swordfish"), Echo(1, b"same"))
        await until(lambda: bool(server.passwords.checked))
        raw.say(Echo(2, b"next")).say(Ping(7))
        async with asyncio.timeout(30):
            other = await Raw.to(address)  # the loop has gone round, and others are heard
            other.say(hello("token", b""))
            assert isinstance(await other.hear(), Goodbye)
        await until(lambda: len(server.listeners.sessions) == 1)
        (session,) = server.listeners.sessions
        assert "proof" in session._holds
        assert server.echoed == []
        server.passwords.may_answer.set()
        assert isinstance(await raw.hear(), Welcome)
        assert await raw.hear() == Echoed(1, b"same")
        assert await raw.hear() == Echoed(2, b"next")
        assert await raw.hear() == Pong(7)
        assert not session._holds
        raw.close()


async def test_what_a_refused_client_has_asked_meanwhile_is_never_done() -> None:
    async with serving(Server("password")) as (server, address):
        server.passwords.may_answer.clear()
        raw = (await Raw.to(address)).say(hello("password", b"olga:wrong"), Echo(1, b"same"))
        raw.say(Echo(2, b"next"))
        await until(lambda: bool(server.passwords.checked))
        server.passwords.may_answer.set()
        assert await raw.hear() == Goodbye("AUTH", "the proof is wrong")
        assert await raw.hear() is None
        assert server.echoed == []


@pytest.mark.parametrize(
    "words",
    [
        [Response(b"without a challenge")],
        [Echo(1, b"before the hello")],
        [hello("node", b"olga"), hello("node", b"olga")],
        [hello("node", b"olga"), Echo(1, b"before the welcome")],
        [hello("password", b"olga:swordfish"), Response(b"to a welcome")],
        [hello("password", b"olga:swordfish"), hello("password", b"olga:swordfish")],
    ],
)
@pytest.mark.parametrize("is_one_frame", [True, False])
async def test_what_is_out_of_place_ends_the_link(
    words: Sequence[Message], *, is_one_frame: bool
) -> None:
    async with serving(Server("password", "node")) as (server, address):
        raw = await Raw.to(address)
        for said in [words] if is_one_frame else [[word] for word in words]:
            raw.say(*said)
        heard: list[Message] = []
        while (message := await raw.hear()) is not None:
            heard.append(message)
        assert isinstance(heard[-1], Goodbye)
        assert heard[-1].code == "MALFORMED"
        assert all(isinstance(message, Challenge | Welcome) for message in heard[:-1])
        assert server.echoed == []
        assert server.passwords.at_once_max <= 1
        await until(lambda: not server.listeners.sessions)


async def test_one_timeout_is_for_all_rounds() -> None:
    async with serving(Server("node", hello_timeout_ms=200)) as (server, address):
        raw = (await Raw.to(address)).say(hello("node", b"olga"))
        assert await raw.hear() == Challenge(NONCE)
        assert await raw.hear() == Goodbye("HELLO_TIMEOUT", "no whole proof in time")
        # The same while the authenticator does not answer.
        server.passwords.may_answer.clear()
        raw = (await Raw.to(address)).say(hello("node", b"olga"))
        assert await raw.hear() == Goodbye("HELLO_TIMEOUT", "no whole proof in time")
        await until(lambda: not server.listeners.sessions)
        server.passwords.may_answer.set()
        caller = await entered(address, Signature("olga", b"swordfish"))
        assert await echo(caller, b"others are served") == b"others are served"
        caller.close("DONE", "")


async def test_very_many_small_frames_are_not_kept_for_a_stranger() -> None:
    async with serving(Server("password")) as (server, address):
        server.passwords.may_answer.clear()
        raw = await Raw.to(address)
        empty = bytes(frame([])) * (2 * FRAMES_UNCHECKED_MAX)
        raw.write(bytes(frame([hello("password", b"olga:swordfish")])) + empty)
        said = await raw.hear()
        assert said == Goodbye("MALFORMED", "too much is said before the welcome")
        await until(lambda: not server.listeners.sessions)


async def test_the_largest_proof_fits_and_a_larger_one_is_refused_here() -> None:
    async with serving(Server("password", "node")) as (server, address):
        caller = await entered(address, Password("ivan", PASSWORDS["ivan"]))
        assert server.names == ["ivan"]
        caller.close("DONE", "")
        raw = (await Raw.to(address)).say(hello("password", bytes(PROOF_BYTES_MAX)))
        assert await raw.hear() == Goodbye("AUTH", "the proof is wrong")
        raw = (await Raw.to(address)).say(hello("password", bytes(PROOF_BYTES_MAX + 1)))
        said = await raw.hear()
        assert isinstance(said, Goodbye)
        assert said.code == "MALFORMED"
        with pytest.raises(Refused, match="at most 65536 are taken"):
            await entered(address, Password("olga", bytes(PROOF_BYTES_MAX)))


async def test_where_no_proofs_are_taken_a_stranger_gets_little_memory() -> None:
    async with serving(Server(BY_NOTHING)) as (_, address):
        raw = await Raw.to(address)
        raw.write(LENGTH.pack(HELLO_FRAME_BYTES_MAX + 1))
        said = await raw.hear()
        assert isinstance(said, Goodbye)
        assert said.code == "FRAME_TOO_LARGE"


async def test_the_end_of_a_proof_ends_the_session() -> None:
    async with serving(Server("password")) as (server, address):
        server.passwords.expires_ms = 200
        caller = await entered(address, Password("olga", b"swordfish"))
        assert await echo(caller, b"in time") == b"in time"
        async with asyncio.timeout(30):
            lost = await caller.lost
        assert isinstance(lost, ConnectionLost)
        assert "EXPIRED" in str(lost)
        server.passwords.expires_ms = 0
        with pytest.raises(Refused, match="AUTH: the proof has expired"):
            await entered(address, Password("olga", b"swordfish"))


# --- mistakes -------------------------------------------------------------------------------------


async def test_an_authenticator_that_fails_lets_nobody_in_and_tells_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Server("password")) as (_, address):
        raw = (await Raw.to(address)).say(hello("password", b"bug"))
        said = await raw.hear()
        assert said == Goodbye("AUTH", "the proof cannot be checked now: try again later")
    (record,) = (one for one in caplog.records if one.levelno >= logging.ERROR)
    assert record.getMessage() == "a proof could not be checked"


async def test_a_client_leaves_a_node_that_is_not_the_one_that_is_meant() -> None:
    async with serving(Server("password", "node")) as (server, address):

        class Impostor(Signature):
            mechanism = "password"  # which welcomes without a challenge

            async def first(self) -> bytes:
                return b"olga:swordfish"

        with pytest.raises(Refused, match="AUTH: the node has not proved who it is"):
            await entered(address, Impostor("olga", b"swordfish"))

        class Unasked(Password):
            mechanism = "node"

        with pytest.raises(Refused, match="AUTH: no proof by node: no challenge is expected"):
            await entered(address, Unasked("olga", b"swordfish"))
        await until(lambda: not server.listeners.sessions)


@pytest.mark.parametrize("name", ["", "x" * (MECHANISM_LENGTH_MAX + 1), BY_NOTHING, BY_CERTIFICATE])
async def test_credentials_need_the_name_of_a_mechanism(name: str) -> None:
    credentials = Password("olga", b"")
    credentials.mechanism = name
    with pytest.raises(ConfigError, match=r"credentials: .* names no mechanism"):
        Caller("test", hello_timeout_ms=1, keepalive_ms=1, credentials=credentials)


def test_an_address_that_names_proofs_has_somebody_who_checks_them() -> None:
    with pytest.raises(AssertionError, match="nobody checks"):
        Authentication(("password",))


# --- how many at once -----------------------------------------------------------------------------


class InThread:
    """A check that keeps a thread busy until the test lets it go."""

    claimed = ""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.begun = 0

    async def check(self, proof: bytes) -> Verdict:  # noqa: ARG002
        self.begun += 1
        await asyncio.to_thread(self.may_end.wait, 30)
        return ProofAccepted("olga")


async def test_a_place_among_the_checks_is_free_when_its_thread_is() -> None:
    checks, exchange = Checks(at_once_max=2), InThread()
    asking = [asyncio.create_task(checks.verdict(exchange, b"")) for _ in range(4)]
    await until(lambda: exchange.begun == 2)
    # Two links end: one that has a place, whose thread goes on, and one that waits for one.
    for task in (asking[0], asking[3]):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert exchange.begun == 2
    exchange.may_end.set()
    async with asyncio.timeout(30):
        assert await asking[1] == await asking[2] == ProofAccepted("olga")
    assert exchange.begun == 3
    async with asyncio.timeout(30):
        assert await checks.verdict(exchange, b"") == ProofAccepted("olga")
