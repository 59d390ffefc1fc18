"""Room: core/mqtt. What a client publishes: each answered when it is stored, and at qos 2 stored once."""

from collections.abc import Iterable, Mapping, Sequence

from moorline.core.effects import Effect
from moorline.core.mqtt.packets import Publish, Pubrel
from moorline.core.mqtt.reason import ReasonCode


class Inbound:
    """Of one session; it outlives its connections."""

    def __init__(self, kept: Mapping[int, int] | None = None, sequence: int = 0) -> None:
        """`kept` is packet id to sequence of what was not finished, `sequence` the highest ever kept."""
        raise NotImplementedError

    def connected(self, receive_max: int) -> None:
        """A new connection of the session; what was being stored of the last one has no answer any more."""
        raise NotImplementedError

    def hear(self, publishes: Sequence[Publish]) -> list[Effect]:
        """`Violation` where more are out than the client was told: RECEIVE_MAXIMUM_EXCEEDED."""
        raise NotImplementedError

    def stored(self, results: Iterable[tuple[int, ReasonCode]]) -> list[Effect]:
        """(number, reason) of what is durable, or could not be stored (and certainly is not)."""
        raise NotImplementedError

    def refused(self, results: Iterable[tuple[int, ReasonCode]]) -> list[Effect]:
        """(number, reason) of what was not let in: nothing of it was kept."""
        raise NotImplementedError

    def released(self, packets: Sequence[Pubrel]) -> list[Effect]:
        raise NotImplementedError

    def forgotten(self, packet_ids: Iterable[int]) -> list[Effect]:
        raise NotImplementedError

    def kept(self) -> dict[int, int]:
        """Packet id to sequence of what is not finished, as a restart takes it."""
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError
