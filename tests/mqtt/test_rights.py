"""Who may do what by MQTT: proofs, grants, quotas, and what the audit says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mqtt.wire_client import Closed, WireClient
from tests.process.nodes import NodeProcess, run_moor
from tests.waiting import eventually

from moorline.core.mqtt.packets import Puback, Publish, Unsuback, Unsubscribe, Will
from moorline.core.mqtt.reason import ReasonCode

PASSWORD = "a long enough password"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Whoever is on this machine may only what rows say; `ada` may read and write below `ours`."""
    folder = tmp_path_factory.mktemp("mqtt-rights")
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    with NodeProcess(folder / "data", "--set=access.revocation_ms=400") as node:
        moor(node, "user", "add", "ada", "--new-password-file", str(secret))
        moor(node, "grant", "add", "/topics/ours", "ada", "sw")
        moor(node, "grant", "add", "/sessions/mqtt", "ada", "p")
        yield node
        assert "Traceback" not in node.errors, node.errors


def moor(node: NodeProcess, *words: str) -> str:
    done = run_moor(*words, "--address", node.address)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ada(node: NodeProcess, name: str, level: int = 5, **how: object) -> WireClient:
    client = WireClient(node.mqtt, level, name)
    said = client.connect(user="ada", password=PASSWORD.encode(), **how)  # type: ignore[arg-type]
    assert said.reason is ReasonCode.SUCCESS, said
    return client


def test_a_wrong_password_is_refused_with_its_reason(node: NodeProcess) -> None:
    for level in (5, 4):
        client = WireClient(node.mqtt, level, "wrong")
        said = client.connect(user="ada", password=b"not this one")
        assert said.reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD
        assert client.is_closed()


def test_a_token_is_taken_for_a_password(node: NodeProcess) -> None:
    said = moor(node, "user", "token", "ada", "device")
    token = next(word for word in said.split() if word.startswith("moor_"))
    client = WireClient(node.mqtt, name="by-token")
    assert client.connect(user="whoever", password=token.encode()).reason is ReasonCode.SUCCESS
    assert client.publish("ours/a", b"x", 1) is ReasonCode.SUCCESS


def test_what_is_not_granted_is_refused_with_its_reason(node: NodeProcess) -> None:
    client = ada(node, "ada-1")
    assert client.publish("ours/a", b"x", 1) is ReasonCode.SUCCESS
    assert client.publish("theirs/a", b"x", 1) is ReasonCode.NOT_AUTHORIZED
    assert client.publish("theirs/a", b"x", 2) is ReasonCode.NOT_AUTHORIZED
    said = client.subscribe("ours/#", "theirs/#", "#")
    assert said.reasons == (
        ReasonCode.GRANTED_QOS_1,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.NOT_AUTHORIZED,
    )


def test_each_publish_of_a_run_is_judged(node: NodeProcess) -> None:
    """Also where its topic is known to the node, since others may publish there."""
    writer = WireClient(node.mqtt, name="anybody")
    writer.connect()
    for topic in ("theirs/known", "ours/known"):
        assert writer.publish(topic, b"x", 1) is ReasonCode.SUCCESS
    client, reader = ada(node, "ada-run"), ada(node, "ada-reads")
    reader.subscribe("ours/known")
    topics = ["ours/known"] * 8 + ["theirs/known", "ours/known", "theirs/fresh", "ours/fresh"]
    client.say(*(Publish(one, b"r", 1, packet_id=n + 1) for n, one in enumerate(topics)))
    for place, topic in enumerate(topics):
        said = client.hear(Puback)
        granted = topic.startswith("ours")
        assert said.packet_id == place + 1
        assert said.reason is (ReasonCode.SUCCESS if granted else ReasonCode.NOT_AUTHORIZED)
    assert [reader.message().payload for _ in range(9)] == [b"r"] * 9
    assert reader.is_silent(Publish)


def test_a_denied_publish_of_3_1_1_is_acknowledged_and_not_stored(node: NodeProcess) -> None:
    watcher = WireClient(node.mqtt, name="watcher")
    watcher.connect()
    watcher.subscribe("theirs/#")
    client = ada(node, "ada-old", 4)
    client.publish("theirs/a", b"denied", 1)
    client.publish("ours/a", b"granted", 1)
    assert watcher.is_silent(Publish)

    def is_told() -> bool:
        done = run_moor("audit", "show", "--json", f"--data={node.data}")
        return "/topics/theirs/a" in done.stdout

    eventually(is_told)


def test_a_right_that_is_taken_away_ends_what_a_filter_lets_through(node: NodeProcess) -> None:
    moor(node, "grant", "add", "/topics/passing", "ada", "sw")
    client, writer = ada(node, "ada-2"), WireClient(node.mqtt, name="writer")
    writer.connect()
    client.subscribe("passing/a", "ours/a")
    writer.publish("passing/a", b"before", 1)
    assert client.message().payload == b"before"
    moor(node, "grant", "remove", "/topics/passing", "ada")

    def is_refused() -> bool:
        return client.publish("passing/other", b"x", 1) is ReasonCode.NOT_AUTHORIZED

    eventually(is_refused)
    writer.publish("passing/a", b"behind", 1)
    writer.publish("ours/a", b"still", 1)
    assert client.message().payload == b"still"


def test_a_right_that_comes_back_works_without_a_word_of_the_client(node: NodeProcess) -> None:
    """A25: filters, and shared ones; but none that was left meanwhile."""
    moor(node, "grant", "add", "/topics/again", "ada", "sw")
    moor(node, "grant", "add", "/groups/again", "ada", "sp")
    client, writer = ada(node, "ada-3"), WireClient(node.mqtt, name="writer-3")
    writer.connect()
    client.subscribe(
        "again/a", "again/left", "$share/again/again/shared", "$share/again/again/over"
    )
    moor(node, "grant", "remove", "/topics/again", "ada")

    def is_refused() -> bool:
        return client.publish("again/other", b"x", 1) is ReasonCode.NOT_AUTHORIZED

    eventually(is_refused)
    client.say(Unsubscribe(98, ("again/left", "$share/again/again/over")))
    assert client.hear(Unsuback).reasons == (ReasonCode.SUCCESS,) * 2
    moor(node, "grant", "add", "/topics/again", "ada", "sw")
    heard: set[str] = set()

    def is_heard() -> bool:
        for name in ("a", "left", "shared", "over"):
            writer.publish(f"again/{name}", b"behind", 1)
        while not client.is_silent(Publish):
            heard.add(client.message().topic)
        return heard >= {"again/a", "again/shared"}

    eventually(is_heard)
    assert heard == {"again/a", "again/shared"}


def test_a_client_id_is_its_principals(node: NodeProcess) -> None:
    client = ada(node, "hers", clean=False, expiry_s=600)
    other = WireClient(node.mqtt, name="hers")
    assert other.connect().reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    client.socket.close()
    other = WireClient(node.mqtt, name="hers")
    assert other.connect(clean=False, expiry_s=60).reason in (
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.NOT_AUTHORIZED,
    )


def test_a_will_is_judged_by_the_rights_of_its_client(node: NodeProcess) -> None:
    """Q06."""
    watcher = WireClient(node.mqtt, name="watcher-2")
    watcher.connect()
    watcher.subscribe("theirs/#", "ours/#")
    for topic in ("theirs/will", "ours/will"):
        ada(node, "testator", will=Will(topic, b"gone", 1)).socket.close()
    assert watcher.message().topic == "ours/will"
    assert watcher.is_silent(Publish)


def test_a_quota_of_messages_a_second_has_its_reason(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path / "data", "--set=access.quotas=@everyone messages_per_s 5") as node,
        WireClient(node.mqtt, name="quick") as client,
    ):
        client.connect()
        said = {client.publish("t", b"x", 1) for _ in range(30)}
        assert said == {ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED}


def test_what_3_1_1_cannot_be_told_is_not_acknowledged(tmp_path: Path) -> None:
    """PUBACK means stored: a client that is over its quota is cut, and what it says again is stored."""
    with (
        NodeProcess(tmp_path / "data", "--set=access.quotas=@everyone messages_per_s 5") as node,
        WireClient(node.mqtt, name="reader") as reader,
    ):
        reader.connect()
        reader.subscribe("t")
        waiting, cuts = [b"%d" % number for number in range(12)], 0
        while waiting:
            with WireClient(node.mqtt, 4, "quick") as client:
                client.connect()
                try:
                    while waiting:
                        assert client.publish("t", waiting[0], 1) is ReasonCode.SUCCESS
                        del waiting[0]
                except (Closed, ConnectionError):
                    cuts += 1
        assert cuts
        assert [reader.message().payload for _ in range(12)] == [b"%d" % one for one in range(12)]


def test_filters_that_are_left_give_their_places_back(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--set=access.quotas=@everyone subscriptions 4") as node:
        with WireClient(node.mqtt, name="many") as client:
            client.connect(clean=False, expiry_s=600)
            for number in range(6):
                said = client.subscribe(f"t/{number}")
                assert said.reasons == (ReasonCode.GRANTED_QOS_1,)
                client.say(Unsubscribe(99, (f"t/{number}",)))
                assert client.hear(Unsuback).reasons == (ReasonCode.SUCCESS,)
            said = client.subscribe("a", "b", "c", "d", "e")
            assert said.reasons[:3] == (ReasonCode.GRANTED_QOS_1,) * 3
            assert said.reasons[-1] is ReasonCode.QUOTA_EXCEEDED
        # What the session had holds its places when it goes on, and gives them back when it ends.
        with WireClient(node.mqtt, name="many") as client:
            client.connect(clean=False, expiry_s=0)
            assert client.subscribe("f", "g").reasons[-1] is ReasonCode.QUOTA_EXCEEDED
        with WireClient(node.mqtt, name="other") as client:
            client.connect()
            assert client.subscribe("a", "b", "c").reasons == (ReasonCode.GRANTED_QOS_1,) * 3


def test_a_will_takes_of_the_quotas_of_its_principal(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path / "data", "--set=access.quotas=@everyone messages_per_s 2") as node,
        WireClient(node.mqtt, name="watcher") as watcher,
    ):
        watcher.connect()
        for number in range(20):
            client = WireClient(node.mqtt, name=f"leaves-{number}")
            client.connect(will=Will("wills/a", b"gone", 1))
            client.socket.close()

        def is_refused() -> bool:
            watcher.subscribe("$SYS/broker/publish/messages/dropped")
            return int(watcher.message().payload) > 0

        eventually(is_refused)
