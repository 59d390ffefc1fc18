"""Room: cli. `moor console`: the address of a node's web page, with a pass to look at it as who asks."""

import asyncio
import webbrowser
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.errors import NotFound
from moorline.limits import PASS_LIFE_S
from moorline.wire.access import PassMade

MINUTES_MAX = PASS_LIFE_S // 60

AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
Open = Annotated[bool, typer.Option("--open", help="Open it in the browser of this machine.")]
Minutes = Annotated[
    int, typer.Option(min=1, max=MINUTES_MAX, help="For how long the address is good.")
]


@with_node
def console(
    endpoint: Endpoint,
    minutes: Minutes = MINUTES_MAX,
    open_it: Open = False,
    as_json: AsJson = False,
) -> None:
    """Print the address of the node's web page. Whoever has it acts as you, until its time is over."""
    url, made = asyncio.run(_asked(endpoint, minutes))
    ends = datetime.fromtimestamp(made.expires_us // 1_000_000, UTC)

    def show() -> None:
        output.line(url)
        output.line(f"good until {ends:%Y-%m-%d %H:%M} UTC; whoever has it acts as you")

    output.emit(as_json, {"url": url, "expires_us": made.expires_us}, show)
    if open_it:
        webbrowser.open(url)


async def _asked(endpoint: Endpoint, minutes: int) -> tuple[str, PassMade]:
    async with endpoint.connect() as moor:
        facts = await moor.describe()
        if "console" not in facts.roles or not facts.http:
            raise NotFound(
                "this node shows no page: it has no role console, no HTTP port, or none that you may know of"
            )
        made = await moor.access.make_pass(minutes * 60)
    where = urlsplit(facts.http)
    # The part behind the sign is never sent to a server, and so is in no log of one.
    return urlunsplit((where.scheme, where.netloc, "/console/", "", f"pass={made.text}")), made
