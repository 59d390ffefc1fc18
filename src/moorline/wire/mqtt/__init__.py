"""Room: wire/mqtt. MQTT 5, 3.1.1 and 3.1: packets <-> bytes, incremental and bounded.

decoder = Decoder(packet_bytes_max)
packets = decoder.feed(data)                      raises Violation for anything hostile
data = encode(packet, level)                      any packet
data = encode_acks(acks, level)                   many at once
data, dropped = PublishWriter(level).write(some)  many PUBLISHes in one buffer
"""

from moorline.wire.mqtt.decoder import Decoder
from moorline.wire.mqtt.encoder import encode, encode_acks
from moorline.wire.mqtt.publish_writer import PublishWriter

__all__ = ["Decoder", "PublishWriter", "encode", "encode_acks"]
