"""Room: cli. `moor status`: what a running node says of itself."""

import asyncio
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.wire.node import Described


@with_node
def status(
    endpoint: Endpoint,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Ask a node about itself: roles, addresses, catalog, uptime, connections."""
    described = asyncio.run(_describe(endpoint))
    facts = {
        name: value for name, value in msgspec.structs.asdict(described).items() if name != "call"
    }
    output.emit(as_json, facts, lambda: output.table(("what", "value"), [*_worded(facts).items()]))


async def _describe(endpoint: Endpoint) -> Described:
    async with endpoint.connect() as moor:
        return await moor.describe()


def _worded(facts: dict[str, object]) -> dict[str, object]:
    uptime_ms = facts.pop("uptime_ms")
    assert isinstance(uptime_ms, int)
    words: dict[str, object] = {"uptime": f"{uptime_ms / 1_000:.1f} s", **facts}
    for counted in ("connections", "descriptors"):
        words[counted] = f"{words[counted]} of {words.pop(f'{counted}_max')}"
    if not words["warnings"]:
        del words["warnings"]
    return {
        name: ", ".join(value) if isinstance(value, tuple) else str(value)
        for name, value in words.items()
    }
