"""Room: client. `Moor`: a connection to a node, as a user of the library sees it.

async with moorline.connect("tcp://127.0.0.1:7411") as moor:
    print(await moor.describe())
"""

from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType

from moorline.config.addresses import Address, listen_address
from moorline.errors import ConfigError
from moorline.limits import HELLO_TIMEOUT_MS, KEEPALIVE_MS
from moorline.net.caller import Caller, open_caller
from moorline.version import SOFTWARE
from moorline.wire.message import Answer
from moorline.wire.node import Describe, Described, Echo, Echoed

DEFAULT_ADDRESS = "tcp://127.0.0.1:7411"


class Moor:
    """A connection to one node. Made by `connect`; closed by `close` or the end of `async with`."""

    def __init__(self, caller: Caller, address: Address) -> None:
        self.address = address
        self._caller = caller

    async def describe(self) -> Described:
        """What the node says of itself."""
        return await self._caller.call(Describe, Described)

    async def echo(self, body: bytes) -> bytes:
        """The same bytes, back from the node."""
        answer = await self._caller.call(lambda call: Echo(call, body), Echoed)
        return answer.body

    async def echo_all(self, bodies: Sequence[bytes]) -> list[Answer]:
        """Many at once, in as few frames as they need."""
        return await self._caller.call_all(
            [lambda call, body=body: Echo(call, body) for body in bodies]  # type: ignore[misc]
        )

    async def close(self) -> None:
        self._caller.close("DONE", "the client is done")


class Connecting:
    """What `connect` returns: `await` it for a `Moor`, or use it in `async with`."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_ms: int,
        ca: Path | None,
        certificate: Path | None,
        key: Path | None,
    ) -> None:
        self._address = address
        self._timeout_ms = timeout_ms
        self._ca, self._certificate, self._key = ca, certificate, key
        self._moor: Moor | None = None

    async def _connect(self) -> Moor:
        caller = await open_caller(
            self._address,
            lambda: Caller(
                f"{SOFTWARE} python",
                hello_timeout_ms=self._timeout_ms,
                keepalive_ms=KEEPALIVE_MS,
            ),
            timeout_ms=self._timeout_ms,
            ca=self._ca,
            certificate=self._certificate,
            key=self._key,
        )
        return Moor(caller, self._address)

    def __await__(self) -> Generator[object, None, Moor]:
        return self._connect().__await__()

    async def __aenter__(self) -> Moor:
        self._moor = await self._connect()
        return self._moor

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._moor is not None
        await self._moor.close()


def connect(
    address: str = DEFAULT_ADDRESS,
    *,
    timeout_ms: int = HELLO_TIMEOUT_MS,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Connecting:
    """Connects to a node: `tcp://HOST:PORT`, or `tls://HOST:PORT` with a CA and a certificate."""
    try:
        parsed = listen_address(address)
    except ValueError as error:
        raise ConfigError(f"{address!r} is not the address of a node: {error}") from error
    return Connecting(parsed, timeout_ms=timeout_ms, ca=ca, certificate=certificate, key=key)
