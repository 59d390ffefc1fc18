"""Room: cli. `moor group`: groups that share the work of reading, seen, watched, moved and ended."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from moorline.cli import output
from moorline.cli.bodies import time_of
from moorline.cli.confirming import Yes, confirm
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.start import FORMS, HELP, start_of
from moorline.client.moor import Moor
from moorline.config.shown import escaped
from moorline.core.topic import shared_name
from moorline.limits import DELIVERIES_MAX, MEMBER_LENGTH_MAX
from moorline.wire.group import CursorFacts, GroupDescribed, GroupFacts

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    no_args_is_help=True,
    help="See, watch, move and end the groups that share the reading of topics. "
    "A group is named as '$shared/billing/orders/#', in single quotes for the shell.",
    epilog="Example: moor group show '$shared/billing/orders/#'",
)


def _valid(text: str) -> str:
    """A mistake in the name is told before a node is asked; `orders` alone is one, not a group."""
    if shared_name(text) is None:
        raise typer.BadParameter(
            "write '$shared/NAME/FILTER' or '$queue/NAME/FILTER', in single quotes"
        )
    return text


GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        show_default=False,
        callback=_valid,
        help="'$shared/NAME/FILTER' or '$queue/NAME/FILTER', in single quotes.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]


@app.command("list", epilog="Example: moor group list --json")
@with_node
def list_(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List all groups, with the nodes that lead them."""

    async def work(moor: Moor) -> None:
        groups = sorted(await moor.groups(), key=lambda one: one.name)
        if as_json:
            for one in groups:
                output.emit_json(_facts(one))
            return
        rows = [
            (one.name, one.leader or None, one.epoch, one.deliveries_max, time_of(one.created_us))
            for one in groups
        ]
        output.table(("group", "leader", "epoch", "deliveries max", "created"), rows)

    _run(endpoint, work)


@app.command(epilog="Example: moor group show '$shared/billing/orders/#' --json")
@with_node
def show(endpoint: Endpoint, group: GroupName, as_json: AsJson = False) -> None:
    """Show one group: its members, and its place and lag in every stream."""

    async def work(moor: Moor) -> None:
        told = await moor.group(group).info()
        output.emit(as_json, _described(told), lambda: _show(told))

    _run(endpoint, work)


def _show(told: GroupDescribed) -> None:
    facts = {
        **_facts(told.group),
        "leader": told.group.leader or None,
        "created": time_of(told.group.created_us),
        "lag": sum(cursor.lag for cursor in told.cursors),
        "lost": sum(cursor.lost for cursor in told.cursors),
    }
    del facts["created_us"]
    output.table(("what", "value"), [(_worded(name), value) for name, value in facts.items()])
    output.line("")
    members = [(one.member, one.borrower, one.streams, one.silent_ms) for one in told.members]
    output.table(("member", "borrower", "streams", "silent ms"), members)
    output.line("")
    places = [_row(cursor) for cursor in told.cursors]
    output.table(COLUMNS, places)


COLUMNS = ("stream", "offset", "end", "lag", "member", "status", "pending", "failing", "lost")


def _row(cursor: CursorFacts) -> tuple[object, ...]:
    return (
        f"{cursor.node}/{cursor.shard}",
        cursor.offset,
        cursor.end,
        cursor.lag,
        cursor.member or None,
        cursor.status,
        cursor.pending,
        cursor.failing,
        cursor.lost,
    )


@app.command(epilog="Example: moor group watch '$shared/billing/orders/#' --interval 0.5")
@with_node
def watch(
    endpoint: Endpoint,
    group: GroupName,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.05, max=3_600, help="Seconds between two looks.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after that many looks.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch a group until Ctrl-C: who reads which stream, how far it is, and how far behind.

    On a terminal it is a table that is drawn anew; in a pipe, or with --json, one JSON object a look.
    """

    async def work(moor: Moor) -> None:
        if as_json or not sys.stdout.isatty():
            await _looks(moor, group, interval_s, count, lambda told, rate: _emit(told, rate))
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
            await _looks(
                moor,
                group,
                interval_s,
                count,
                lambda told, rate: live.update(_drawn(told, rate), refresh=True),
            )

    _run(endpoint, work)


async def _looks(
    moor: Moor,
    group: str,
    interval_s: float,
    count: int | None,
    seen: Callable[[GroupDescribed, int | None], None],
) -> None:
    """Looks again and again; with each look how many messages a second were done since the last."""
    loop = asyncio.get_running_loop()
    done, looked_s, looks = 0, 0.0, 0
    while True:
        told = await moor.group(group).info()
        now_s = loop.time()
        done_now = sum(cursor.end - cursor.lag for cursor in told.cursors)
        # A seek goes back: then nobody knows a rate.
        rate = round((done_now - done) / (now_s - looked_s)) if looks and done_now >= done else None
        done, looked_s, looks = done_now, now_s, looks + 1
        seen(told, rate)
        if looks == count:
            return
        await asyncio.sleep(interval_s)


def _emit(told: GroupDescribed, rate: int | None) -> None:
    output.emit_json({**_described(told), "done_per_s": rate})


def _drawn(told: GroupDescribed, rate: int | None) -> "RenderableType":
    """Members one below the other, each with its streams; those that nobody reads stand last."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lag = sum(cursor.lag for cursor in told.cursors)
    leader = f"led by {told.group.leader}" if told.group.leader else "led by nobody"
    speed = "" if rate is None else f", {rate:,} a second"
    table = Table(
        title=Text(f"{escaped(told.group.name)}  {escaped(leader)}: {lag:,} behind{speed}"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in (
        "member",
        "stream",
        "offset",
        "end",
        "lag",
        "pending",
        "failing",
        "lost",
        "status",
    ):
        table.add_column(
            name, justify="left" if name in ("member", "stream", "status") else "right"
        )
    idle = {one.member for one in told.members} - {cursor.member for cursor in told.cursors}
    for member in sorted(idle):
        table.add_row(Text(escaped(member)), *["-"] * 8)
    before = None
    cursors = sorted(
        told.cursors, key=lambda one: (not one.member, one.member, one.node, one.shard)
    )
    for cursor in cursors:
        name = "" if cursor.member == before else cursor.member or "(nobody)"
        before = cursor.member
        cells = (
            name,
            f"{cursor.node}/{cursor.shard}",
            f"{cursor.offset:,}",
            f"{cursor.end:,}",
            f"{cursor.lag:,}",
            f"{cursor.pending:,}",
            f"{cursor.failing:,}",
            f"{cursor.lost:,}",
            cursor.status,
        )
        table.add_row(*(Text(escaped(cell)) for cell in cells))
    return table


@app.command(epilog="Example: moor group seek '$shared/billing/orders/#' --to beginning")
@with_node
def seek(
    endpoint: Endpoint,
    group: GroupName,
    to: Annotated[str, typer.Option(show_default=False, help=f"Where to: {FORMS}.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would come again, and change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move a group, running or not: its members go on from there. The operator's."""
    start = start_of(to)
    if dry_run:
        _run(endpoint, lambda moor: _planned(moor, group, start, as_json=as_json))
        return
    _run(endpoint, lambda moor: moor.group(group).seek(start))
    if as_json:
        output.emit_json({"group": group, "to": to})


async def _planned(moor: Moor, group: str, start: str | int | datetime, *, as_json: bool) -> None:
    plan = await moor.group(group).plan_seek(start)
    if as_json:
        output.emit_json({"group": group, **msgspec.to_builtins(msgspec.structs.asdict(plan))})
        return
    rows = [(f"{one.node}/{one.shard}", one.offset, one.target) for one in plan.steps]
    output.table(("stream", "offset", "would be"), rows)
    output.line(
        f"{plan.again:,} messages of these streams would come again, {plan.passed:,} unread ones would be "
        "passed over"
    )
    if plan.away:
        output.line(f"not counted, for their nodes do not answer: {', '.join(plan.away)}")


@app.command(epilog="Example: moor group create '$shared/billing/orders/#' --start beginning")
@with_node
def create(
    endpoint: Endpoint,
    group: GroupName,
    start: Annotated[str, typer.Option(help=HELP)] = "now",
    deliveries_max: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=DELIVERIES_MAX,
            show_default="groups.deliveries_max of the node",
            help="Failed deliveries before a message becomes a dead letter; 0 is never.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Declare a group before its first member: it misses nothing from then on. The operator's.

    A group that is there already stays as it is.
    """
    begin = start_of(start)

    async def work(moor: Moor) -> None:
        made = await moor.group(group).create(start=begin, deliveries_max=deliveries_max)
        words = "made" if made else "it was there already, and is as it was"
        output.emit(as_json, {"group": group, "is_new": made}, lambda: output.line(words))

    _run(endpoint, work)


@app.command(epilog="Example: moor group change '$shared/billing/orders/#' --deliveries-max 10")
@with_node
def change(
    endpoint: Endpoint,
    group: GroupName,
    deliveries_max: Annotated[
        int,
        typer.Option(
            min=0,
            max=DELIVERIES_MAX,
            show_default=False,
            help="Failed deliveries before a message becomes a dead letter; 0 is never.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Change the limits of a group, running or not. The operator's.

    Members of a `$shared` group finish what they have in hand, and go on with the new limit; those of a
    `$queue` group have it with the next messages that they take.
    """

    async def work(moor: Moor) -> None:
        await moor.group(group).change(deliveries_max=deliveries_max)
        if as_json:
            output.emit_json({"group": group, "deliveries_max": deliveries_max})

    _run(endpoint, work)


@app.command(epilog="Example: moor group delete '$shared/billing/orders/#' --yes")
@with_node
def delete(
    endpoint: Endpoint,
    group: GroupName,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End a group and forget its places, for good; its members are told. The operator's."""
    confirm(f"End {group} and forget where it is?", yes=yes)
    _run(endpoint, lambda moor: moor.group(group).delete())
    if as_json:
        output.emit_json({"group": group, "state": "deleted"})


@app.command(epilog="Example: moor group kick '$shared/billing/orders/#' node-1/session-7")
@with_node
def kick(
    endpoint: Endpoint,
    group: GroupName,
    member: Annotated[
        str, typer.Argument(show_default=False, help="A member or borrower, as `show` names it.")
    ],
    as_json: AsJson = False,
) -> None:
    """End the part of one member; what it held goes to the others. The operator's."""
    if not 0 < len(member) <= MEMBER_LENGTH_MAX:
        raise typer.BadParameter(f"a member's name has 1 to {MEMBER_LENGTH_MAX} characters")
    _run(endpoint, lambda moor: moor.group(group).kick(member))
    if as_json:
        output.emit_json({"group": group, "member": member, "state": "ended"})


# --- what they share ------------------------------------------------------------------------------


def _facts(one: GroupFacts) -> dict[str, Any]:
    facts = msgspec.structs.asdict(one)
    return {"group": facts.pop("name"), **facts}


def _described(told: GroupDescribed) -> dict[str, Any]:
    return {
        **_facts(told.group),
        "lag": sum(cursor.lag for cursor in told.cursors),
        "lost": sum(cursor.lost for cursor in told.cursors),
        "members": [msgspec.structs.asdict(one) for one in told.members],
        "streams": [dict(zip(COLUMNS, _row(cursor), strict=True)) for cursor in told.cursors],
    }


def _worded(name: str) -> str:
    return name.replace("_", " ")


def _run(endpoint: Endpoint, work: Callable[[Moor], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        async with endpoint.connect() as moor:
            await work(moor)

    asyncio.run(connected())
