"""Room: cli. What commands read in to send it, and how what came from the network is shown."""

import asyncio
import contextlib
import os
import re
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from moorline.errors import TooLarge
from moorline.limits import KIB, MIB

BODY_BYTES_MAX = MIB
"""What is read of a file or a line before it is certainly more than any node takes."""

CHUNK_BYTES = 64 * KIB
"""What is read at once: all that a pipe holds."""

# No option begins so. One with a letter, as -x, or with two dashes is rather a slip than a message.
_TEXT_WITH_DASH = re.compile(r"-[^-A-Za-z]")


class TextCommand(TyperCommand):
    """A command with a message among its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes `-5` for the message that it is."""
        ctx.ignore_unknown_options = any(map(_TEXT_WITH_DASH.match, args))
        return super().parse_args(ctx, args)


async def bodies(
    text: str | None, file: Path | None, *, in_lines: bool
) -> AsyncIterator[list[bytes]]:
    """What is to be sent: all of it as one message, or the lines as they come in."""
    rest = b""
    async for chunk in _chunks(text, file):
        rest += chunk
        if in_lines:
            *whole, rest = rest.split(b"\n")
            yield [line.removesuffix(b"\r") for line in whole]
        if len(rest) > BODY_BYTES_MAX:
            raise TooLarge(f"more than {BODY_BYTES_MAX} bytes in one message: no node takes that")
    if rest or not in_lines:
        yield [rest]


async def _chunks(text: str | None, file: Path | None) -> AsyncIterator[bytes]:
    if text is not None and text != "-":
        yield text.encode("utf-8", "surrogateescape")
        return
    try:
        descriptor = sys.stdin.fileno() if file is None else os.open(file, os.O_RDONLY)
        while chunk := await _read_some(descriptor):
            yield chunk
        if file is not None:
            os.close(descriptor)
    except OSError as error:
        name = file or "stdin"
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}") from error


async def _read_some(descriptor: int) -> bytes:
    """Reads in a thread that nobody waits for at the end: a keyboard may never give another byte."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes | OSError] = loop.create_future()

    def read_once() -> None:
        result: bytes | OSError
        try:
            result = os.read(descriptor, CHUNK_BYTES)
        except OSError as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the command was stopped
            loop.call_soon_threadsafe(_settle, answer, result)

    threading.Thread(target=read_once, daemon=True).start()
    result = await answer
    if isinstance(result, OSError):
        raise result
    return result


def _settle(answer: "asyncio.Future[bytes | OSError]", result: bytes | OSError) -> None:
    if not answer.done():
        answer.set_result(result)


def text_of(body: bytes) -> str | None:
    """The body as text, if that is what it is."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def time_of(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
