"""Room: cli. `moor cluster`: a cluster at a glance."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.node import label, span
from moorline.errors import CallFailed, ConfigError, Denied
from moorline.limits import CLUSTER_SECRET_OLD_MS_MAX, CLUSTER_SECRET_OLD_S
from moorline.wire.group import GroupFacts
from moorline.wire.node import NodeFacts

app = typer.Typer(
    no_args_is_help=True,
    help="See a cluster as a whole, or try one out on this machine.",
    epilog="Example: moor cluster status",
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
COLUMNS = ("node", "alive", "silent", "version", "clock", "homes", "groups led")
GROUPS_SHOWN_MAX = 20


class Status(msgspec.Struct, frozen=True):
    """What --json prints."""

    nodes: list[NodeFacts]
    alive: int
    versions: dict[str, int]
    """Of the nodes that live, with how many have each."""
    clocks_apart_ms: int | None
    """Between the nodes that live; null where fewer than two were compared."""
    groups: list[GroupFacts] | None
    """With their leaders; null where we may not list them."""


@app.callback()
def cluster() -> None:
    """See a cluster as a whole, or try one out on this machine."""


@app.command(epilog="Example: moor cluster status --json")
@with_node
def status(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """Who holds which homes, who leads which groups, which versions run, and how far clocks are apart.

    Clocks are compared with the catalog's, at the last sign of life of each node.
    """
    found = asyncio.run(_status(endpoint))
    output.emit(as_json, _facts(found), lambda: _show(found))


@app.command(epilog="Example: moor cluster secret --renew --old-for-s 60")
@with_node
def secret(
    endpoint: Endpoint,
    renew: Annotated[
        bool, typer.Option("--renew", help="Draw another secret, which nodes prove themselves by.")
    ] = False,
    old_for_s: Annotated[
        float,
        typer.Option(
            min=0,
            max=CLUSTER_SECRET_OLD_MS_MAX / 1_000,
            help="For so long the one before is taken too: for nodes whose catalog is away.",
        ),
    ] = CLUSTER_SECRET_OLD_S,
    as_json: AsJson = False,
) -> None:
    """Renew the secret of the cluster, which is in the catalog: whoever knows the old one is no node then.

    Behind the time of the old one the links between nodes that were proven by it are proven anew.
    """
    if not renew:
        raise ConfigError("moor cluster secret: give --renew; the secret itself is shown to nobody")

    async def run() -> None:
        async with endpoint.connect() as moor:
            await moor.access.renew_cluster_secret(old_for_s=old_for_s)

    asyncio.run(run())
    said = f"the secret was renewed; the one before is taken for {old_for_s:g} s"
    output.emit(as_json, {"old_for_s": old_for_s}, lambda: output.line(said))


async def _status(endpoint: Endpoint) -> Status:
    async with endpoint.connect() as moor:
        nodes = await moor.nodes()
        try:
            groups = sorted(await moor.groups(), key=lambda one: one.name)
        except CallFailed as error:
            if not isinstance(error, Denied):
                raise
            groups = None
    alive = [one for one in nodes if one.is_alive]
    return Status(
        nodes,
        len(alive),
        dict(Counter(one.version for one in alive)),
        _apart_ms([one.clock_ahead_ms for one in alive if one.clock_ahead_ms is not None]),
        groups,
    )


def _apart_ms(ahead_ms: Sequence[int]) -> int | None:
    return max(ahead_ms) - min(ahead_ms) if len(ahead_ms) > 1 else None


def _facts(found: Status) -> dict[str, object]:
    """Rows as objects: on the wire they are lists."""
    groups = found.groups
    return {
        **msgspec.structs.asdict(found),
        "nodes": [msgspec.structs.asdict(one) for one in found.nodes],
        "groups": None if groups is None else [msgspec.structs.asdict(one) for one in groups],
    }


def _show(found: Status) -> None:
    output.table(COLUMNS, [_row(one) for one in found.nodes])
    output.line("")
    if found.groups:
        shown = found.groups[:GROUPS_SHOWN_MAX]
        output.table(("group", "leader"), [(one.name, one.leader or "nobody") for one in shown])
        if len(found.groups) > len(shown):
            output.line(f"and {len(found.groups) - len(shown)} more: moor group list")
        output.line("")
    output.line(_summary(found))


def _row(one: NodeFacts) -> tuple[object, ...]:
    more = one.homes_count - len(one.homes)
    return (
        label(one),
        "yes" if one.is_alive else "no",
        span(one.silent_ms),
        one.version or None,
        None if one.clock_ahead_ms is None else f"{one.clock_ahead_ms:+} ms",
        ", ".join([*one.homes, *([f"{more} more"] if more else [])]) or None,
        one.groups_led,
    )


def _summary(found: Status) -> str:
    away = len(found.nodes) - found.alive
    parts = [
        f"{found.alive} of {len(found.nodes)} nodes alive" + (f", {away} away" if away else "")
    ]
    if len(found.versions) > 1:
        parts.append(f"{len(found.versions)} versions side by side")
    if found.clocks_apart_ms is not None:
        parts.append(f"clocks apart by {found.clocks_apart_ms} ms at most")
    if found.groups is None:
        parts.append("groups are not shown: that needs the right l at /groups")
    else:
        idle = sum(not one.leader for one in found.groups)
        parts.append(f"{len(found.groups)} groups, {idle} of them led by nobody now")
    return "; ".join(parts)
