"""The authenticators over a directory in memory, with the credentials of the calling end against them."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.access.directory import LIGHT, Directory, Visitor, certificate

from moorline.access.passwords import Cost
from moorline.access.proofs import (
    BUSY,
    EXCHANGES,
    NO_NODE,
    NOT_NOW,
    NOT_PRIVATE,
    WRONG,
    WRONG_TOKEN,
    Peer,
    PrincipalProofs,
    TokenRow,
)
from moorline.access.tokens import new_token, token_hash
from moorline.core.access import node_proof
from moorline.core.access.node_proof import NodeCall, NodeChallenge, mark_of
from moorline.core.access.principal import CertificateRules
from moorline.core.proof import ProofAccepted, ProofContinues, ProofRefused
from moorline.errors import Untrusted
from moorline.net.authentication import Exchange, Verdict
from moorline.net.credentials import NodeCredentials, PasswordCredentials, TokenCredentials

HERE = Visitor()
NOW_MS = 1_000_000


class Clock:
    """Moved by hand: what waits, waits for it."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


class World:
    def __init__(self, proofs: PrincipalProofs, directory: Directory, clock: Clock) -> None:
        self.proofs = proofs
        self.directory = directory
        self.clock = clock

    async def password(self, name: str, password: str, peer: Peer = HERE) -> Verdict:
        shown = await PasswordCredentials(name, password).first()
        return await self.begin("password", peer).check(shown)

    async def token(self, token: str, peer: Peer = HERE) -> Verdict:
        return await self.begin("token", peer).check(await TokenCredentials(token).first())

    async def node(self, credentials: NodeCredentials, peer: Peer = HERE) -> Verdict:
        """The whole conversation."""
        exchange = self.begin("node", peer)
        step = await exchange.check(await credentials.first())
        assert not credentials.is_content
        if isinstance(step, ProofContinues):
            answer = await credentials.answer(step.challenge)
            assert credentials.is_content
            return await exchange.check(answer)
        return step

    def begin(self, mechanism: str, peer: Peer = HERE) -> Exchange:
        return self.proofs.at_address().begin(mechanism, peer)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    directory, clock = Directory(), Clock()
    directory.add("alice", "right")
    directory.add("bob", "right", is_disabled=True)
    directory.add("carol")
    directory.nodes = {"home-1", "home-2"}
    async with PrincipalProofs(
        directory, "home-1", cost=LIGHT, clock_ms=clock, now_ms=lambda: NOW_MS
    ) as proofs:
        yield World(proofs, directory, clock)


# --- passwords ------------------------------------------------------------------------------------


async def test_the_right_password_is_its_user(world: World) -> None:
    assert await world.password("alice", "right") == ProofAccepted("alice")


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("alice", "wrong"),
        ("alice", "right "),
        ("bob", "right"),
        ("carol", "right"),
        ("nobody", "right"),
        ("ALICE", "right"),
        ("anonymous", "right"),
        ("$node/home-2", "right"),
        ("@everyone", "right"),
        ("a\nb", "right"),
        ("x" * 256, "right"),
        ("alice", "x" * 1_025),
        ("alice", "right\0"),
    ],
)
async def test_whatever_is_wrong_is_said_with_the_same_words(
    world: World, name: str, password: str
) -> None:
    assert await world.password(name, password) == WRONG


@pytest.mark.parametrize("proof", [b"", b"alice", b"alice\0", b"\0right", b"\xff\xfe\0right"])
async def test_what_is_no_name_and_password_is_wrong(world: World, proof: bytes) -> None:
    assert await world.begin("password").check(proof) == WRONG
    assert world.directory.asked == 0


async def test_what_is_proven_names_the_version_of_its_user(world: World) -> None:
    alice = world.directory.users["alice"]
    world.directory.users["alice"] = msgspec.structs.replace(alice, version=7)
    assert await world.password("alice", "right") == ProofAccepted("alice", user_version=7)
    token = new_token()
    world.directory.add_token(token, TokenRow("alice", version=8))
    found = await world.token(token)
    assert isinstance(found, ProofAccepted)
    assert found.user_version == 8


async def test_an_exchange_knows_whom_it_was_told(world: World) -> None:
    for mechanism, proof, claimed in (
        ("password", b"bob\0wrong", "bob"),
        ("password", b"a\nb\0wrong", ""),
        ("token", b"moor_?", ""),
        ("node", await of_node(own="home-7").first(), "$node/home-7"),
    ):
        exchange = world.begin(mechanism)
        await exchange.check(proof)
        assert exchange.claimed == claimed


async def test_a_changed_password_counts_at_once(world: World) -> None:
    world.directory.add("alice", "newer")
    assert await world.password("alice", "right") == WRONG
    assert await world.password("alice", "newer") == ProofAccepted("alice")


async def test_a_password_is_not_taken_where_others_could_read_it(world: World) -> None:
    loud = Visitor(is_encrypted=False)
    assert await world.password("alice", "right", loud) == NOT_PRIVATE
    assert await world.token(new_token(), loud) == NOT_PRIVATE
    assert world.directory.asked == 0
    # On this machine nobody listens, unless a proxy stands between.
    local = Visitor("127.0.0.1", is_encrypted=False)
    assert await world.password("alice", "right", local) == ProofAccepted("alice")
    shown = await PasswordCredentials("alice", "right").first()
    behind = world.proofs.at_address(is_proxied=True)
    assert await behind.begin("password", local).check(shown) == NOT_PRIVATE


async def test_without_the_catalog_nobody_is_blamed_and_nobody_let_in(world: World) -> None:
    world.directory.is_away = True
    for _ in range(100):
        assert await world.password("alice", "right") == NOT_NOW
    assert await world.token(new_token()) == NOT_NOW
    assert await world.node(NodeCredentials(b"s" * 32, "home-2", "home-1")) == NOT_NOW
    world.directory.is_away = False
    assert await world.password("alice", "right") == ProofAccepted("alice")


async def test_a_thousand_wrong_passwords_are_slowed_and_others_are_not(world: World) -> None:
    """A06."""
    attacker = Visitor(address="198.51.100.7")
    assert await world.password("alice", "right") == ProofAccepted("alice")
    looked_at = 0
    for number in range(1_000):
        world.clock.ms += 60
        step = await world.password("alice", f"guess {number}", attacker)
        assert isinstance(step, ProofRefused)
        looked_at += step == WRONG
        if step != WRONG:
            assert step.text.startswith("too many wrong tries: try again in ")
        if number % 100 == 0:
            assert await world.password("alice", "right") == ProofAccepted("alice")
    assert looked_at <= 12
    # Also the right one is not looked at from there, for as long as was said.
    step = await world.password("alice", "right", attacker)
    assert isinstance(step, ProofRefused)
    world.clock.ms += 30_000
    assert await world.password("alice", "right", attacker) == ProofAccepted("alice")


async def test_names_that_are_nobodys_wait_as_those_of_users_do(world: World) -> None:
    said: dict[str, list[Verdict]] = {"alice": [], "nobody": []}
    for name, steps in said.items():
        for number in range(10):
            steps.append(await world.password(name, f"guess {number}", Visitor(address=name)))
    assert said["alice"] == said["nobody"]


async def test_many_links_of_one_program_are_one_check(world: World) -> None:
    many = [world.password("alice", "right") for _ in range(200)]
    assert await asyncio.gather(*many) == [ProofAccepted("alice")] * 200
    assert world.directory.asked == 1


async def test_many_guesses_at_once_are_many(world: World) -> None:
    many = [world.password("alice", f"guess {number}") for number in range(200)]
    steps = await asyncio.gather(*many)
    assert steps.count(WRONG) == 3


async def test_who_hangs_up_takes_nobody_along(world: World) -> None:
    first = asyncio.create_task(world.password("alice", "right"))
    second = asyncio.create_task(world.password("alice", "right"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ProofAccepted("alice")
    assert first.cancelled()


async def test_strangers_beyond_number_hear_that_too_many_wait(world: World) -> None:
    many = [
        world.password(
            f"name {number}", "guess", Visitor(address=f"10.0.{number >> 8}.{number & 255}")
        )
        for number in range(300)
    ]
    steps = await asyncio.gather(*many)
    assert set(steps) == {WRONG, BUSY}
    assert await world.password("alice", "right") == ProofAccepted("alice")


@pytest.mark.slow
async def test_a_name_that_is_nobodys_takes_as_long_as_one_that_is() -> None:
    cost = Cost(cost=12, block=8, lanes=1)
    directory, clock = Directory(cost), Clock()
    directory.add("alice", "right")
    taken_s: dict[str, list[float]] = {"alice": [], "nobody": []}
    async with PrincipalProofs(directory, "home-1", cost=cost, clock_ms=clock) as proofs:
        for number in range(15):
            for name, times in taken_s.items():
                clock.ms += 3_600_000
                shown = await PasswordCredentials(name, f"guess {number}").first()
                exchange = proofs.at_address().begin("password", HERE)
                began = time.perf_counter()
                assert await exchange.check(shown) == WRONG
                times.append(time.perf_counter() - began)
    # The least of many: what else this machine does can only add to it.
    alice_s, nobody_s = (min(times) for times in taken_s.values())
    assert nobody_s > alice_s / 2, (alice_s, nobody_s, statistics.median(taken_s["nobody"]))


# --- tokens ---------------------------------------------------------------------------------------


async def test_a_token_is_its_user_until_it_ends(world: World) -> None:
    token, ending = new_token(), new_token()
    world.directory.add_token(token, TokenRow("alice"))
    world.directory.add_token(ending, TokenRow("alice", expires_ms=NOW_MS + 1))
    assert await world.token(token) == ProofAccepted("alice", token=token_hash(token) or b"")
    assert await world.token(ending) == ProofAccepted("alice", 1, token=token_hash(ending) or b"")


async def test_a_token_that_is_wrong_ended_or_taken_back(world: World) -> None:
    ended, disabled = new_token(), new_token()
    world.directory.add_token(ended, TokenRow("alice", expires_ms=NOW_MS))
    world.directory.add_token(disabled, TokenRow("alice", is_disabled=True))
    for token in (ended, disabled, new_token(), "moor_short"):
        assert await world.token(token) == WRONG_TOKEN
    for proof in (b"", b"\xff" * 48, b"moor_" + b"x" * 43 + b"\n"):
        assert await world.begin("token").check(proof) == WRONG_TOKEN


# --- nodes ----------------------------------------------------------------------------------------


def of_node(
    secret: bytes = b"s" * 32, own: str = "home-2", other: str = "home-1"
) -> NodeCredentials:
    return NodeCredentials(secret, own, other)


async def test_two_nodes_prove_themselves_to_each_other(world: World) -> None:
    credentials = of_node()
    for _ in range(2):  # one after the other, with new chance each time
        assert await world.node(credentials) == proven_by(b"s" * 32)


def proven_by(secret: bytes) -> ProofAccepted:
    return ProofAccepted("$node/home-2", token=mark_of(secret))


async def test_behind_a_renewal_the_secret_before_proves_a_node_until_its_time_is_over(
    world: World,
) -> None:
    """Also one that has yet to hear of the new one; and the new one a node that is called by the old."""
    old, new = world.directory.secret, b"n" * 32
    world.directory.secret, world.directory.secret_before = new, old
    heard = NodeCredentials(new, "home-2", "home-1", before=old)
    for credentials in (of_node(old), heard):
        assert await world.node(credentials) == proven_by(old)
        assert credentials.mark == mark_of(old)
    world.directory.secret_before = b""
    assert await world.node(heard) == proven_by(new)
    assert heard.mark == mark_of(new)
    assert await world.node(of_node(new)) == proven_by(new)
    with pytest.raises(Untrusted, match="does not know the cluster's secret"):
        await world.node(of_node(old))


@pytest.mark.parametrize(("own", "other"), [("home-2", "home-3"), ("home-1", "home-1")])
async def test_a_node_that_means_another_or_claims_to_be_us_is_refused(
    world: World, own: str, other: str
) -> None:
    assert await world.node(of_node(own=own, other=other)) == NO_NODE


async def test_a_node_that_left_the_cluster_is_refused_as_late_as_one_with_a_wrong_answer(
    world: World,
) -> None:
    exchange, gone = world.begin("node"), of_node(own="home-9")
    step = await exchange.check(await gone.first())
    assert isinstance(step, ProofContinues)
    assert await exchange.check(await gone.answer(step.challenge)) == NO_NODE


async def test_a_node_of_another_cluster_finds_out_first_and_tells_nothing(world: World) -> None:
    other = of_node(b"t" * 32)
    exchange = world.begin("node")
    step = await exchange.check(await other.first())
    assert isinstance(step, ProofContinues)
    with pytest.raises(Untrusted, match="not the node home-1 of this cluster"):
        await other.answer(step.challenge)
    assert not other.is_content
    # Without the secret there is no answer.
    assert await exchange.check(bytes(32)) == NO_NODE


async def test_what_was_heard_before_proves_nothing(world: World) -> None:
    credentials, first = of_node(), world.begin("node")
    begun = await credentials.first()
    step = await first.check(begun)
    assert isinstance(step, ProofContinues)
    answer = await credentials.answer(step.challenge)
    assert await first.check(answer) == proven_by(b"s" * 32)
    # On the same link, and on another one.
    assert await first.check(answer) == NO_NODE
    second = world.begin("node")
    again = await second.check(begun)
    assert isinstance(again, ProofContinues)
    assert await second.check(answer) == NO_NODE
    # The wrong answer was the only one: the right one comes too late.
    asked, call = node_proof.decode_challenge(again.challenge), node_proof.decode_call(begun)
    assert asked is not None
    assert call is not None
    assert await second.check(node_proof.caller_proof(b"s" * 32, call, asked.nonce)) == NO_NODE
    # The challenge of another conversation is not answered.
    await credentials.first()
    with pytest.raises(Untrusted):
        await credentials.answer(step.challenge)


async def test_what_the_acceptor_said_cannot_be_sent_back_to_it(world: World) -> None:
    """By one that has no secret and lets the node itself compute."""
    call = NodeCall("home-2", "home-1", b"c" * 32)
    victim = world.begin("node")
    challenged = await victim.check(node_proof.encoded(call))
    assert isinstance(challenged, ProofContinues)
    asked = node_proof.decode_challenge(challenged.challenge)
    assert asked is not None
    for nonce in (asked.nonce, call.nonce):
        begun = node_proof.encoded(NodeCall("home-2", "home-1", nonce))
        helped = await world.begin("node").check(begun)
        assert isinstance(helped, ProofContinues)
        said = node_proof.decode_challenge(helped.challenge)
        assert said is not None
        expected = node_proof.caller_proof(b"s" * 32, call, asked.nonce)
        assert expected not in (said.proof, asked.proof)
    assert await victim.check(asked.proof) == NO_NODE


async def test_a_node_without_the_certificate_of_one_is_refused_where_nodes_have_an_authority() -> (
    None
):
    directory = Directory()
    directory.nodes = {"home-1", "home-2"}
    async with PrincipalProofs(
        directory, "home-1", cost=LIGHT, node_rules=CertificateRules()
    ) as proofs:
        world = World(proofs, directory, Clock())
        for peer in (HERE, Visitor(certificate=certificate(is_node=False))):
            assert await world.node(of_node(), peer) == NO_NODE
        proven = Visitor(certificate=certificate(is_node=True))
        assert await world.node(of_node(), proven) == proven_by(b"s" * 32)
        # The certificate alone is no node.
        assert directory.asked == 2


async def test_a_certificate_of_a_node_makes_that_node_and_no_other() -> None:
    """A11: also with the secret of the cluster, and with a home that is in the catalog."""
    directory = Directory()
    directory.nodes = {"home-1", "home-2", "home-3"}
    rules = CertificateRules.parsed(["cn:home-*=home-{}"])
    shown = Visitor(certificate=certificate(is_node=True))
    for given in (CertificateRules(), rules):
        async with PrincipalProofs(directory, "home-1", cost=LIGHT, node_rules=given) as proofs:
            world = World(proofs, directory, Clock())
            assert await world.node(of_node(), shown) == proven_by(b"s" * 32)
            exchange = world.begin("node", shown)
            refused = await exchange.check(await of_node(own="home-3").first())
            assert isinstance(refused, ProofRefused)
            assert refused.code == "CERTIFICATE_MISUSED"
            assert "your certificate is of the node 'home-2'" in refused.text
            assert exchange.claimed == "$node/home-3"
    other = CertificateRules.parsed(["san:dns:*.example=home-{}"])
    async with PrincipalProofs(directory, "home-1", cost=LIGHT, node_rules=other) as proofs:
        refused = await World(proofs, directory, Clock()).node(of_node(), shown)
        assert isinstance(refused, ProofRefused)
        assert "your certificate names no node" in refused.text


@pytest.mark.parametrize(
    "said", [b"", b"\x00", node_proof.encoded(NodeChallenge(b"n" * 32, b"p" * 32))]
)
async def test_a_beginning_that_no_node_makes(world: World, said: bytes) -> None:
    assert await world.begin("node").check(said) == NO_NODE


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", EXCHANGES)
async def test_what_is_far_too_long_is_refused_unread(world: World, mechanism: str) -> None:
    step = await world.begin(mechanism).check(b"alice\0" + bytes(100_000))
    assert step in (WRONG, WRONG_TOKEN, NO_NODE)
    assert world.directory.asked == 0
