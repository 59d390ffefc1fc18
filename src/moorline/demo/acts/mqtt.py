"""Act: a device with MQTT. Its session outlives its connection; a native member shares a group with others.

The client here is a plain socket with the codec of the node, so that the demo needs no other program.
"""

import asyncio

import moorline
from moorline.core.mqtt.packets import (
    MQTT_5,
    Connack,
    Connect,
    Packet,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from moorline.demo.stage import Stage
from moorline.wire.mqtt.decoder import Decoder
from moorline.wire.mqtt.encoder import encode

TITLE = "a device with MQTT"

MESSAGES = 1_000
PATIENCE_S = 60
FILTER = "quay/#"


class Device:
    """A client of MQTT 5."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder = Decoder(1 << 20, MQTT_5, hears_server=True)
        self._heard: list[Packet] = []

    async def connect(self, host: str, port: int) -> Connack:
        self._reader, self._writer = await asyncio.open_connection(host, port)
        lasts = Properties(session_expiry_s=600)
        self.say(Connect(MQTT_5, self._name, False, 60, properties=lasts))
        said = await self.hear()
        assert isinstance(said, Connack)
        return said

    def say(self, *packets: Packet) -> None:
        self._writer.write(b"".join(encode(packet, MQTT_5) for packet in packets))

    async def hear(self) -> Packet:
        while not self._heard:
            data = await self._reader.read(1 << 16)
            assert data, "the node has closed the connection"
            self._heard += self._decoder.feed(data)
        return self._heard.pop(0)

    def lose(self) -> None:
        """Its network is gone."""
        self._writer.transport.abort()


async def play(stage: Stage) -> None:
    host, port = stage.mqtt
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = Device("lighthouse"), Device("buoy")
        await reader.connect(host, port)
        reader.say(Subscribe(1, (Subscription(FILTER, 1),)))
        assert isinstance(await reader.hear(), Suback)
        reader.lose()
        async with moorline.connect(stage.address) as moor:
            native = await moor.subscribe(FILTER)
            await writer.connect(host, port)
            for first in range(0, MESSAGES, 500):
                numbers = range(first, first + 500)
                writer.say(*(Publish("quay/depth", b"%d" % n, 1, packet_id=n + 1) for n in numbers))
                for _ in numbers:
                    assert isinstance(await writer.hear(), Puback)
            seen = 0
            async for message in native:
                await message.ack()
                seen += 1
                if seen == MESSAGES:
                    break
        again = Device("lighthouse")
        said = await again.connect(host, port)
        assert said.session_present, "its session is there"
        got: set[int] = set()
        while len(got) < MESSAGES:
            packet = await again.hear()
            if isinstance(packet, Publish):
                got.add(int(packet.payload))
                again.say(Puback(packet.packet_id))
    stage.tell(TITLE, "published with QoS 1, and stored", f"{MESSAGES:,}")
    stage.tell(TITLE, "a native reader got", f"{seen:,}")
    stage.tell(TITLE, "a client that was away meanwhile got", f"{len(got):,}")
    stage.claim(
        TITLE,
        "every client of MQTT is a client of Moorline, and its session outlives its connection",
        f"{len(got):,} of {MESSAGES:,} kept for it",
    )
    again.lose()
    writer.lose()
