"""Room: cli. One question to a node and its answer, for commands that print what they hear."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from moorline.cli.endpoint import Endpoint

if TYPE_CHECKING:
    from moorline.client.access import Access

Heard = TypeVar("Heard")

AsJson = Annotated[bool, typer.Option("--json", help="JSON in place of a text.")]


def asked(endpoint: Endpoint, work: Callable[["Access"], Coroutine[Any, Any, Heard]]) -> Heard:
    async def connected() -> Heard:
        async with endpoint.connect() as moor:
            return await work(moor.access)

    return asyncio.run(connected())


def plain(row: msgspec.Struct) -> dict[str, Any]:
    """A row of an answer by its names; on the wire it has none."""
    return {
        name: [plain(one) if isinstance(one, msgspec.Struct) else one for one in value]
        if isinstance(value, (list, tuple))
        else value
        for name, value in msgspec.structs.asdict(row).items()
        if name != "call"
    }
