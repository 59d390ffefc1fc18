"""Room: staging. The chunks of a stage, read one ahead of what is needed, in the thread that owns them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager

from moorline.journal.staging.stage_file import Chunk

ChunksAhead = AbstractAsyncContextManager[AsyncIterator[Chunk]]


@contextlib.asynccontextmanager
async def chunks_ahead(
    thread: Executor, chunks: Generator[Chunk, None, None]
) -> AsyncIterator[AsyncIterator[Chunk]]:
    """The loop has its turn between two. `thread` is one: what it is given is done in that order."""
    loop = asyncio.get_running_loop()
    ahead = loop.run_in_executor(thread, next, chunks, None)

    async def each() -> AsyncIterator[Chunk]:
        nonlocal ahead
        while (chunk := await ahead) is not None:
            ahead = loop.run_in_executor(thread, next, chunks, None)
            yield chunk

    try:
        yield each()
    finally:
        # Whoever gives up in the middle leaves a read under way, and behind it a file that is open.
        ahead.cancel()
        try:
            thread.submit(chunks.close)
        except RuntimeError:
            chunks.close()  # the node stops, and the thread has ended
