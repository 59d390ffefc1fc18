"""Room: net. The dial by which a resolver finds out whether a publisher listens where it says.

    resolver                                        publisher's listener
    Hello("address", AddressQuestion)  ─►
                                       ◄─            Challenge(HMAC by the key of the login), and the end

Nothing is opened by it. Whoever answers need not be trusted by TLS: the key is what proves it.
"""

import asyncio
import contextlib
import ssl
from typing import Final

from moorline.config.addresses import Address
from moorline.core.link import VERSION_MAX, VERSION_MIN
from moorline.errors import Malformed
from moorline.limits import PROOF_FRAME_BYTES_MAX
from moorline.version import SOFTWARE
from moorline.wire.frame import LENGTH, frame
from moorline.wire.link import PROTOCOL, Challenge, Hello
from moorline.wire.protocol import client_decoder

BY_ADDRESS: Final = "address"
"""The mechanism of this dial. No node takes it as a proof of anybody."""


async def is_listened_at(address: Address, timeout_ms: int) -> bool:
    """Whether anybody takes connections there; the kernel says it, however busy that program is."""
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def answered_proof(address: Address, host: str, proof: bytes, timeout_ms: int) -> bytes:
    """What the other end answers to the proof; empty for whatever else happens: nobody is told more.

    `host` is the address that was looked up and found harmless; the name is not looked up again.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            return await _asked(address, host, proof)
    except (OSError, ssl.SSLError, EOFError, TimeoutError, Malformed, ValueError):
        return b""


async def _asked(address: Address, host: str, proof: bytes) -> bytes:
    context = _context() if address.scheme == "tls" else None
    name = address.host if context is not None else None
    reader, writer = await asyncio.open_connection(
        host, address.port, ssl=context, server_hostname=name, limit=PROOF_FRAME_BYTES_MAX
    )
    try:
        hello = Hello(PROTOCOL, VERSION_MIN, VERSION_MAX, SOFTWARE, BY_ADDRESS, proof)
        writer.write(frame([hello]))
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > PROOF_FRAME_BYTES_MAX:
            return b""
        for message in client_decoder.decode(memoryview(await reader.readexactly(length))):
            if isinstance(message, Challenge):
                return message.proof
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.CancelledError):
            writer.transport.abort()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
