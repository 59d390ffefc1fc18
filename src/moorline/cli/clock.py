"""Room: cli. `moor clock`: the wall clock of a node, after a jump."""

import asyncio
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.wire.node import ClockConfirmed

app = typer.Typer(
    no_args_is_help=True,
    help="Say that the clock of a node is right, after it has jumped.",
    epilog="Example: moor clock confirm",
)


AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.callback()
def clock() -> None:
    """Say that the clock of a node is right, after it has jumped."""


@app.command(epilog="Example: moor clock confirm --data ./moorline-data")
@with_node
def confirm(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """Let expiry and retention go by the wall clock again, although it has jumped. The operator's.

    `moor status` shows whether it has. What is too old by this clock is dropped from now on: look at the
    clock first. Ends with 0 also where there was nothing to confirm.
    """

    async def work() -> ClockConfirmed:
        async with endpoint.connect() as moor:
            return await moor.confirm_clock()

    done = asyncio.run(work())
    facts = {name: value for name, value in msgspec.structs.asdict(done).items() if name != "call"}
    text = "the clock had not jumped: nothing to confirm"
    if done.was_held:
        text = f"confirmed: the wall clock counts, {done.jump_ms / 1_000:+.0f} s from where it was expected"
    output.emit(as_json, facts, lambda: output.line(text))
