"""The bytes of a connection, as the protocol sees them: both directions, framing included."""

from moorline.net.caller import Caller


class Traffic:
    """Counts them, of one connection or of several."""

    def __init__(self, caller: Caller | None = None) -> None:
        self.bytes = 0
        if caller is not None:
            self.attach(caller)

    def attach(self, caller: Caller) -> None:
        """From now on those of this one too."""
        transport, received = caller._transport, caller.data_received  # noqa: SLF001 - a benchmark looks inside
        assert transport is not None
        write = transport.writelines

        def writelines(parts: list[bytearray]) -> None:
            self.bytes += sum(len(part) for part in parts)
            write(parts)

        def data_received(data: bytes) -> None:
            self.bytes += len(data)
            received(data)

        caller._transport = _Counting(transport, writelines)  # type: ignore[assignment]  # noqa: SLF001
        transport.set_protocol(_Hearing(caller, data_received))  # type: ignore[arg-type]


class _Counting:
    def __init__(self, transport: object, writelines: object) -> None:
        self._transport = transport
        self.writelines = writelines

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


class _Hearing:
    def __init__(self, protocol: object, data_received: object) -> None:
        self._protocol = protocol
        self.data_received = data_received

    def __getattr__(self, name: str) -> object:
        return getattr(self._protocol, name)
