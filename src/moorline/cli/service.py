"""Room: cli. `moor service`: services of a running node, seen, compared, repaired and switched.

What compares and repairs needs numpy and SQLite: it is imported by the commands that use it.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.progress import progress
from moorline.client.queue_homes import QueueCallers
from moorline.errors import DriftFound, Drifting
from moorline.ids import text_of
from moorline.net.caller import Caller
from moorline.wire import service_operator as wire
from moorline.wire.message import Message
from moorline.wire.service import (
    QUEUES_PER_BLOCK,
    ListServiceParts,
    PartFacts,
    ServicePartsListed,
)

app = typer.Typer(
    no_args_is_help=True,
    help="See, verify, repair and switch the services of a node. The operator's.",
    epilog="Example: moor service verify billing --client-file service.sqlite",
)


def _valid(text: str | None) -> str | None:
    """What a node takes as the name of a service."""
    if text is not None and not (0 < len(text) <= 256 and text.isprintable()):
        raise typer.BadParameter("the name of a service is 1 to 256 printable characters")
    return text


FINGERPRINT_SHORT = 16
"""Hex digits of a fingerprint in a table: 64 bits name one service among any number."""

FILE_OPTION = typer.Option(
    "--client-file",
    exists=True,
    dir_okay=False,
    show_default=False,
    help="The list that the client keeps of the service's queues.",
)
NAME_ARGUMENT = typer.Argument(
    metavar="SERVICE",
    show_default=False,
    help="Its name, its id, or the beginning of its fingerprint.",
    callback=_valid,
)
ServiceName = Annotated[str, NAME_ARGUMENT]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]


@app.command("list", epilog="Example: moor service list --json")
@with_node
def list_(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List all services: their queues, their digest, and whether they are subscribed at this node."""

    async def work(caller: Caller) -> None:
        services = [_facts(one) for one in await _all(caller)]
        if as_json:
            for facts in services:
                output.emit_json(facts)
            return
        columns = ("name", "id", "fingerprint", "queues", "hash", "is_enabled", "is_subscribed")
        for facts in services:
            facts["fingerprint"] = facts["fingerprint"][:FINGERPRINT_SHORT]
        rows = [[facts[name] for name in columns] for facts in services]
        output.table([_worded(name) for name in columns], rows)

    _run(endpoint, work)


@app.command(epilog="Example: moor service show billing --json")
@with_node
def show(endpoint: Endpoint, service: ServiceName, as_json: AsJson = False) -> None:
    """Show one service: who it is, how its queues spread, and whether its kept digest is right."""

    async def work(caller: Caller) -> None:
        found = await _describe(caller, service)
        parts = _part_rows(await _parts(caller, service))
        facts = _facts(found.facts) | {
            "sessions": found.sessions,
            "recomputed_queues": found.recomputed_count,
            "recomputed_hash": found.recomputed_hash.hex(),
            "is_digest_right": not (found.wrong_buckets or found.wrong_hashes),
            "wrong_buckets": found.wrong_buckets,
            "wrong_hashes": found.wrong_hashes,
            "buckets": found.buckets,
            "parts": parts,
        }
        least, most, empty = min(found.buckets), max(found.buckets), found.buckets.count(0)
        words = facts | {
            "created_s": datetime.fromtimestamp(found.facts.created_s, UTC).isoformat(),
            "wrong_buckets": len(found.wrong_buckets),
            "buckets": f"256 with {least} to {most} queues, {empty} of them empty",
            "parts": ", ".join(
                f"{part['queues']} at {part['home'] or 'no home'}"
                + ("" if part["is_alive"] else " (away)")
                for part in parts
            ),
        }
        _emit(as_json, facts, words)

    _run(endpoint, work)


@app.command(epilog="Example: moor service queues billing --limit 10")
@with_node
def queues(
    endpoint: Endpoint,
    service: ServiceName,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stop after that many.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the ids of a service's queues, one a line, in the order of their hashes."""

    async def work(caller: Caller) -> None:
        after, done, end = b"", 0, limit or sys.maxsize
        while done < end:
            count = min(end - done, QUEUES_PER_BLOCK)
            ask = _asked(wire.ListServiceQueues, service, after, count)
            page = await caller.call(ask, wire.ServiceQueuesListed)
            if not page.queues:
                return
            ids = [text_of(queue) for queue in page.queues]
            lines = [f'{{"queue":"{one}"}}' for one in ids] if as_json else ids
            output.write("\n".join(lines) + "\n")
            after, done = page.queues[-1], done + len(ids)

    _run(endpoint, work)


@app.command(epilog="Example: moor service verify billing --client-file service.sqlite --json")
@with_node
def verify(
    endpoint: Endpoint,
    service: ServiceName,
    client_file: Annotated[Path | None, FILE_OPTION] = None,
    as_json: AsJson = False,
) -> None:
    """Compare what is kept with the associations, hashed anew, and these with the client's own list.

    Nothing is changed, neither on the node nor in the file. Ends with 0 if all are equal, else with 17; also
    if there is nothing to compare.
    """
    from moorline.cli import service_verdict as verdict
    from moorline.client.service_operator import Reconciler, copied

    async def work(callers: QueueCallers) -> None:
        caller = callers.here
        found = await _describe(caller, service)
        parts = await _parts(caller, service)
        rows = verdict.of_node(found)
        facts: dict[str, Any] = {"service": found.facts.name, "comparisons": rows}
        facts["away"] = [part.name for part in parts if part.count and not part.is_alive]
        if found.wrong_queues:
            facts["wrong_queues"] = [text_of(queue) for queue in found.wrong_queues]
        if client_file is not None:
            with copied(client_file) as own:
                check = await asyncio.to_thread(own.checked)
                verdict.check_homes(client_file, check, parts)
                rows += verdict.of_list(own.digest(), check, found)
                facts["set_aside"] = check.set_aside
                if rows[-1]["verdict"] != "equal" and not found.wrong_hashes:
                    side = Reconciler(callers, own, _named(endpoint, found), is_dry=True)
                    with contextlib.suppress(Drifting):  # then the counts must do
                        facts["missing"], facts["extra"] = await side.planned()
                        facts["extra"] += side.report.restored
        facts["is_equal"] = all(row["verdict"] == "equal" for row in rows)
        columns = list(rows[0])
        output.emit(
            as_json, facts, lambda: output.table(columns, [[*row.values()] for row in rows])
        )
        if not facts["is_equal"]:
            raise DriftFound(verdict.advice(facts))

    _run_at_all(endpoint, work)


@app.command(epilog="Example: moor service repair billing --client-file service.sqlite --dry-run")
@with_node
def repair(
    endpoint: Endpoint,
    service: ServiceName,
    client_file: Annotated[Path, FILE_OPTION],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be added and removed.")
    ] = False,
    bind: Annotated[
        bool,
        typer.Option(
            "--bind",
            help="The list is this node's from now on: its queues were moved here from another one.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the node's associations equal to the client's own list.

    An operator puts what the node keeps right first; the file is read only.
    With the service's own --certificate it is what the client does at its start: it takes the subscription
    over, a damaged list is mended, and queues that the node refuses leave it.
    Ends with 17 if the node refused queues, or if the file is damaged and was only read.
    """
    from moorline.cli import service_verdict as verdict
    from moorline.client.associations import Associations
    from moorline.client.service_operator import Reconciler, copied

    async def work(callers: QueueCallers) -> None:
        caller = callers.here
        # The node need not know the service for this: it is made anew where it is gone.
        is_own = _is_own(endpoint, service) and len(service) >= FINGERPRINT_SHORT
        found = None if is_own else await _describe(caller, service)
        named = None if found is None else _named(endpoint, found)
        facts: dict[str, Any] = {"service": service, "is_dry_run": dry_run}
        with contextlib.ExitStack() as stack:
            own = stack.enter_context(copied(client_file))  # refuses what is no list
            if named is None and not dry_run:
                own = stack.enter_context(contextlib.closing(Associations(client_file)))
            elif named is not None and not dry_run:
                ask = _asked(wire.RecomputeService, named)
                told = await caller.call(ask, wire.ServiceRecomputed)
                facts["is_digest_put_right"] = told.wrong_buckets > 0
                facts["wrong_hashes"] = told.wrong_hashes
            seen = stack.enter_context(progress("repairing"))
            side = Reconciler(callers, own, named, is_dry=dry_run, bind=bind, seen=seen)
            added, removed = await side.planned()
        report = side.report
        facts |= {
            "added": added if dry_run else report.associated,
            "removed": removed if dry_run else report.dissociated,
            "refused": [text_of(queue) for queue in report.lost],
            "away": report.away,
            "mended": report.mended,
            "restored": report.restored,
            "bytes_sent": report.bytes_sent,
            "bytes_received": report.bytes_received,
            "rounds": report.rounds,
        }
        _emit(as_json, facts, facts)
        is_file_damaged = report.mended > 0 and (dry_run or named is not None)
        refused = len(report.lost)
        if left := verdict.left(refused, report.away, is_file_damaged, is_own=named is None):
            raise DriftFound(left)

    _run_at_all(endpoint, work)


@app.command(epilog="Example: moor service recompute --all")
@with_node
def recompute(
    endpoint: Endpoint,
    service: Annotated[str | None, NAME_ARGUMENT] = None,
    all_: Annotated[bool, typer.Option("--all", help="All services.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hash the ids of all associations anew, put wrong hashes and digests right, and say which were wrong."""
    if (service is None) == (not all_):
        raise typer.BadParameter("name a SERVICE, or give --all")

    async def work(caller: Caller) -> None:
        rows: list[dict[str, Any]] = []
        names = [(service, service)] if service is not None else []
        if all_:
            names = [(one.name, text_of(one.id)) for one in await _all(caller)]
        with progress("recomputing") as seen:
            for name, text in names:
                ask = _asked(wire.RecomputeService, text)
                told = await caller.call(ask, wire.ServiceRecomputed)
                rows.append(
                    {
                        "service": name,
                        "queues": told.count,
                        "hash": told.hash.hex(),
                        "kept_queues": told.kept_count,
                        "kept_hash": told.kept_hash.hex(),
                        "wrong_buckets": told.wrong_buckets,
                        "wrong_hashes": told.wrong_hashes,
                        "wrong_queues": [text_of(queue) for queue in told.wrong_queues],
                        "was_wrong": told.wrong_buckets > 0 or told.wrong_hashes > 0,
                    }
                )
                seen(len(rows), len(names))
        if as_json:
            for row in rows:
                output.emit_json(row)
        else:
            columns = (
                *("service", "queues", "kept_queues"),
                *("wrong_buckets", "wrong_hashes", "was_wrong"),
            )
            output.table(
                [_worded(name) for name in columns],
                [[row[name] for name in columns] for row in rows],
            )

    _run(endpoint, work)


@app.command(epilog="Example: moor service disable billing")
@with_node
def disable(endpoint: Endpoint, service: ServiceName, as_json: AsJson = False) -> None:
    """Refuse a service from now on, and end the sessions that it has at this node."""
    _switch(endpoint, service, as_json, is_disabled=True)


@app.command(epilog="Example: moor service enable billing")
@with_node
def enable(endpoint: Endpoint, service: ServiceName, as_json: AsJson = False) -> None:
    """Let a disabled service come again. Its associations are as they were."""
    _switch(endpoint, service, as_json, is_disabled=False)


def _switch(endpoint: Endpoint, service: str, as_json: bool, *, is_disabled: bool) -> None:
    async def work(caller: Caller) -> None:
        ask = _asked(wire.SwitchService, service, is_disabled)
        told = await caller.call(ask, wire.ServiceSwitched)
        facts = {
            "service": service,
            "is_enabled": not is_disabled,
            "was_changed": told.changed,
            "sessions_ended": told.sessions_ended,
        }
        _emit(as_json, facts, facts)

    _run(endpoint, work)


# --- what they share ------------------------------------------------------------------------------


def _run(endpoint: Endpoint, work: Callable[[Caller], Coroutine[Any, Any, None]]) -> None:
    async def at_one(callers: QueueCallers) -> None:
        await work(callers.here)

    _run_at_all(endpoint, at_one)


def _run_at_all(
    endpoint: Endpoint, work: Callable[[QueueCallers], Coroutine[Any, Any, None]]
) -> None:
    """For what is done at all homes of a service."""
    from moorline.client.service_operator import calling

    async def connected() -> None:
        async with calling(
            endpoint.address, endpoint.ca, endpoint.certificate, endpoint.key, endpoint.proof()
        ) as callers:
            await work(callers)

    asyncio.run(connected())


async def _parts(caller: Caller, service: str) -> list[PartFacts]:
    """All homes, with what the service has at each."""
    found: list[PartFacts] = []
    while True:
        after = found[-1].home if found else b""
        page = await caller.call(_asked(ListServiceParts, service, after), ServicePartsListed)
        found += page.parts
        if page.is_last or not page.parts:
            return found


def _part_rows(parts: list[PartFacts]) -> list[dict[str, Any]]:
    """Of those that have queues."""
    return [
        {
            "home": part.name,
            "node": part.node,
            "queues": part.count,
            "hash": part.hash.hex(),
            "is_alive": part.is_alive,
        }
        for part in parts
        if part.count
    ]


async def _all(caller: Caller) -> list[wire.ServiceFacts]:
    found: list[wire.ServiceFacts] = []
    while page := (
        await caller.call(_asked(wire.ListServices, len(found)), wire.ServicesListed)
    ).services:
        found += page
    return found


async def _describe(caller: Caller, service: str) -> wire.ServiceDescribed:
    return await caller.call(_asked(wire.DescribeService, service), wire.ServiceDescribed)


def _asked(kind: Callable[..., Message], *values: object) -> Callable[[int], Message]:
    return lambda call: kind(call, *values)


def _facts(facts: wire.ServiceFacts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "id": text_of(facts.id),
        "fingerprint": facts.fingerprint.hex(),
        "queues": facts.count,
        "hash": facts.hash.hex(),
        "is_enabled": not facts.is_disabled,
        "is_subscribed": facts.is_subscribed,
        "created_s": facts.created_s,
    }


def _emit(as_json: bool, facts: dict[str, Any], words: dict[str, Any]) -> None:
    rows = [(_worded(name), value) for name, value in words.items()]
    output.emit(as_json, facts, lambda: output.table(("what", "value"), rows))


def _worded(name: str) -> str:
    return name.removeprefix("is_").removesuffix("_s").replace("_", " ")


def _named(endpoint: Endpoint, found: wire.ServiceDescribed) -> str | None:
    """How an operator names the service; None where our certificate is the service's own."""
    return None if _is_own(endpoint, found.facts.fingerprint.hex()) else text_of(found.facts.id)


def _is_own(endpoint: Endpoint, fingerprint: str) -> bool:
    """Whether the fingerprint of our certificate begins so."""
    from moorline.client.service_operator import fingerprint_of

    certificate = endpoint.certificate
    return certificate is not None and fingerprint_of(certificate).startswith(fingerprint.lower())
