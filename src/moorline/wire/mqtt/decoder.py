"""Room: wire/mqtt. Bytes to packets."""

from moorline.core.mqtt.packets import Packet


class Decoder:
    """One end's hearing. `level` is 0 until a CONNECT came; a client's end sets it."""

    def __init__(self, packet_bytes_max: int, level: int = 0) -> None:
        self.packet_bytes_max = packet_bytes_max
        """May be changed: small before CONNECT, larger when the client is known."""
        self.level = level

    def feed(self, data: bytes) -> list[Packet]:
        """All packets that are whole now. `Violation`, whose `before` has what was whole before it."""
        raise NotImplementedError

    @property
    def waiting_bytes(self) -> int:
        raise NotImplementedError
