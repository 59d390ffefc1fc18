"""Shared subscriptions are the durable groups: members of MQTT beside native ones."""

import asyncio
import time

import pytest
from tests.mqtt.conftest import Join
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess, run_moor

import moorline
from moorline.core.mqtt.packets import Disconnect, Puback, Publish, Subscription
from moorline.core.mqtt.reason import ReasonCode


def heard(client: WireClient) -> list[bytes]:
    """What has come until now, acknowledged."""
    client.is_silent(Publish)
    found = [packet for packet in client.heard if isinstance(packet, Publish)]
    for one in found:
        client.heard.remove(one)
        if one.qos:
            client.say(Puback(one.packet_id))
    return [one.payload for one in found]


def gathered(clients: list[WireClient], count: int) -> list[list[bytes]]:
    """All of them hear until they have so many together."""
    found: list[list[bytes]] = [[] for _ in clients]
    end = time.monotonic() + 30
    while sum(map(len, found)) < count:
        assert time.monotonic() < end, found
        for mine, client in zip(found, clients, strict=True):
            mine += heard(client)
    return found


@pytest.mark.parametrize("prefix", ["$share", "$shared", "$queue"])
def test_q30_members_share_what_is_published(
    join: Join, name: str, level: int, prefix: str
) -> None:
    members = [join(level=level) for _ in range(2)]
    for member in members:
        said = member.subscribe(f"{prefix}/{name}/{name}/#")
        assert said.reasons == (ReasonCode.GRANTED_QOS_1,)
    writer = join()
    for number in range(60):
        writer.publish(f"{name}/{number % 7}", b"%d" % number, 1)
    found = gathered(members, 60)
    assert sorted(int(one) for mine in found for one in mine) == list(range(60))


def test_q31_what_a_member_had_in_hand_goes_to_another(join: Join, name: str) -> None:
    first = join()
    first.subscribe(f"$share/{name}/{name}")
    writer = join()
    for number in range(5):
        writer.publish(name, b"%d" % number, 1)
    assert first.hear(Publish).payload == b"0"
    second = join()
    second.subscribe(f"$share/{name}/{name}")
    first.socket.close()
    (found,) = gathered([second], 5)
    assert sorted(map(int, found)) == list(range(5))


def test_q33_a_group_keeps_its_place_while_nobody_is_there(join: Join, name: str) -> None:
    member = join()
    member.subscribe(f"$share/{name}/{name}")
    member.say(Disconnect())
    assert member.is_closed()
    writer = join()
    for number in range(5):
        writer.publish(name, b"%d" % number, 1)
    other = join()
    other.subscribe(f"$share/{name}/{name}")
    (found,) = gathered([other], 5)
    assert sorted(map(int, found)) == list(range(5))


def test_no_local_is_refused_for_a_group(join: Join, name: str) -> None:
    client = join()
    from moorline.core.mqtt.packets import Subscribe

    client.say(Subscribe(1, (Subscription(f"$share/{name}/t", 1, no_local=True),)))
    assert client.hear(Disconnect).reason is ReasonCode.PROTOCOL_ERROR


def test_q34_a_puback_with_an_error_counts_until_the_message_is_a_dead_letter(
    node: NodeProcess, join: Join, name: str
) -> None:
    done = run_moor(
        "group",
        "create",
        f"$share/{name}/{name}",
        "--deliveries-max",
        "3",
        "--address",
        node.address,
    )
    assert done.returncode == 0, done.stderr
    graves, member = join(), join()
    graves.subscribe(f"$dead/{name}/#")
    member.subscribe(f"$share/{name}/{name}")
    join().publish(name, b"poison", 1)
    for _ in range(3):
        found = member.hear(Publish)
        member.say(Puback(found.packet_id, ReasonCode.UNSPECIFIED_ERROR))
    letter = graves.message()
    assert letter.payload == b"poison"
    assert ("dead-deliveries", "3") in letter.properties.user


def test_q31_what_goes_to_another_member_stays_in_order(join: Join, name: str) -> None:
    """Of each topic, which is the key of messages that name none; and it is counted as a second try."""
    first = join()
    first.subscribe(f"$share/{name}/{name}/#")
    writer = join()
    for number in range(60):
        writer.publish(f"{name}/{number % 3}", b"%d" % number, 1)
    held = [first.hear(Publish) for _ in range(60)]
    for one in held[:9]:
        first.say(Puback(one.packet_id))
    assert first.is_silent(Puback)
    first.socket.close()
    second = join()
    second.subscribe(f"$share/{name}/{name}/#")
    (found,) = gathered([second], 51)
    numbers = [int(one) for one in found]
    rest = {int(one.payload) for one in held[9:]}
    assert rest <= set(numbers)
    for topic in range(3):
        mine = [number for number in numbers if number % 3 == topic]
        assert mine == sorted(mine)


def test_q32_a_member_that_is_full_is_passed_over(join: Join, name: str) -> None:
    """One that takes a single message at a time, and says nothing to it, holds nobody up."""
    full, free = join(receive_max=1), join()
    for member in (full, free):
        member.subscribe(f"$queue/{name}/{name}/#")
    writer = join()
    count = 200
    for number in range(count):
        writer.publish(f"{name}/{number}", b"%d" % number, 1)
    stuck = full.hear(Publish)
    found: set[int] = set()
    end = time.monotonic() + 30
    # What was handed to the full one and waits there is the only thing that others do not get.
    while len(found) < count // 2:
        assert time.monotonic() < end, len(found)
        found |= {int(one) for one in heard(free)}
    assert full.is_silent(Publish)
    full.socket.close()
    while len(found) < count:
        assert time.monotonic() < end, sorted(set(range(count)) - found)
        found |= {int(one) for one in heard(free)}
    assert int(stuck.payload) in found


async def test_q30_a_native_member_and_one_of_mqtt_share_a_group(
    node: NodeProcess, join: Join, name: str
) -> None:
    member, writer = join(), join()
    member.subscribe(f"$queue/{name}/{name}/#")
    moor = await moorline.connect(node.address)
    try:
        native: list[bytes] = []
        subscription = await moor.subscribe(f"$queue/{name}/{name}/#", window=5)

        async def read() -> None:
            async for message in subscription:
                native.append(message.body)
                await message.ack()

        reading = asyncio.create_task(read())
        for number in range(100):
            writer.publish(f"{name}/{number}", b"%d" % number, 1)
        mine: list[bytes] = []
        async with asyncio.timeout(30):
            while len(native) + len(mine) < 100:
                mine += await asyncio.to_thread(heard, member)
        reading.cancel()
        assert native
        assert mine
        assert sorted(int(one) for one in native + mine) == list(range(100))
    finally:
        await moor.close()
