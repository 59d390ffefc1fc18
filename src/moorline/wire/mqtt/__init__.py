"""Room: wire/mqtt. MQTT 5, 3.1.1 and 3.1: packets <-> bytes, incremental and bounded.

decoder = Decoder(packet_bytes_max)
packets = decoder.feed(data)                      raises Violation for anything hostile
data = encode(packet, level)                      any packet
data = encode_acks(acks, level)                   many at once
data, dropped = writer.write(publishes)           many PUBLISH in one buffer, aliases, maximum size
"""
