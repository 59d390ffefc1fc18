"""Room: cli. `moor resolve` and `moor ls`: where paths are, and which there are."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorline.cli import output
from moorline.cli.asking import AsJson
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.named_errors import naming_errors
from moorline.core.access.right import letters_of
from moorline.core.directory.glob import is_glob
from moorline.core.directory.path import DEFAULT, WRITABLE

if TYPE_CHECKING:
    from moorline.client.resolution import Resolution
from moorline.client.resolver import ListedPath, Resolver

Row = dict[str, Any]
COLUMNS = ("rights", "flags", "publisher", "address", "priority", "takes", "error", "code")


def opened(endpoint: Endpoint) -> "Resolver":
    # Here: `moor --help` needs no client.
    from moorline.client.resolver import Resolver

    return Resolver(
        endpoint.address,
        proof=endpoint.proof(),
        ca=endpoint.ca,
        certificate=endpoint.certificate,
        key=endpoint.key,
    )


@with_node
@naming_errors
def resolve(
    endpoint: Endpoint,
    paths: Annotated[list[str], typer.Argument(show_default=False, help="Paths to look up.")],
    as_json: AsJson = False,
) -> None:
    """Ask where paths are: who publishes them, at which address, and what we may do there.

    A path that is not found, denied or not ready says so by its class, and the others are shown; the command
    then ends with the exit code of the first such error.
    """
    from moorline.errors import MoorlineError

    async def work() -> list["Resolution | MoorlineError"]:
        async with opened(endpoint) as resolver:
            return await resolver.resolve_all(paths)

    found = asyncio.run(work())
    rows = [row for path, one in zip(paths, found, strict=True) for row in _rows(path, one)]

    def show() -> None:
        output.table(
            ("path", *COLUMNS),
            [[str(cell) if cell else "-" for cell in row.values()] for row in rows],
        )

    output.emit(as_json, rows, show)
    failed = next((one for one in found if isinstance(one, MoorlineError)), None)
    if failed is not None:
        raise failed


def _rows(path: str, found: "Resolution | Exception") -> list[Row]:
    """One for each publisher of a path. No token is ever shown."""
    if isinstance(found, Exception):
        return [_row(path, error=type(found).__name__, code=getattr(found, "code", ""))]
    rights, flags = letters_of(found.permissions), _flags(found.flags)
    if not found.publishers:
        return [_row(path, rights, flags)]
    return [
        _row(
            path,
            rights,
            flags,
            publisher=one.principal,
            address=one.address,
            priority=str(one.priority),
            takes=", ".join(one.roles or one.mechanisms),
        )
        for one in found.publishers
    ]


def _row(path: str, rights: str = "", flags: str = "", **cells: str) -> Row:
    given = {"path": path, "rights": rights, "flags": flags} | cells
    return {name: given.get(name, "") for name in ("path", *COLUMNS)}


def _flags(bits: int) -> str:
    named = {DEFAULT: "default", WRITABLE: "writable"}
    return ",".join(name for bit, name in named.items() if bits & bit)


@with_node
@naming_errors
def ls(
    endpoint: Endpoint,
    glob: Annotated[
        str,
        typer.Argument(
            help="A path, whose children are listed; or a glob of published paths: * ? [ab] {a,b} within "
            "a level, ** over levels."
        ),
    ] = "/",
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on, and print what comes (+) and goes (-).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what is below a path, or the published paths that match a glob."""
    text = glob if glob == "/" else glob.rstrip("/")
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watched(endpoint, text, as_json=as_json))
        return
    if is_glob(text):
        _show_matched(asyncio.run(_matched(endpoint, text)), as_json=as_json)
    else:
        _show_children(asyncio.run(_children(endpoint, text)), as_json=as_json)


async def _matched(endpoint: Endpoint, glob: str) -> list[str]:
    async with opened(endpoint) as resolver:
        return await resolver.match(glob)


async def _children(endpoint: Endpoint, path: str) -> "list[ListedPath]":
    async with opened(endpoint) as resolver:
        return await resolver.children(path)


def _show_matched(paths: list[str], *, as_json: bool) -> None:
    def show() -> None:
        for path in paths:
            output.line(path)

    output.emit(as_json, paths, show)


def _show_children(children: "list[ListedPath]", *, as_json: bool) -> None:
    def show() -> None:
        for child in children:
            output.line(child.path + ("/" if child.has_below else ""))

    rows = [
        {"path": one.path, "is_published": one.is_published, "has_below": one.has_below}
        for one in children
    ]
    output.emit(as_json, rows, show)


async def _watched(endpoint: Endpoint, text: str, *, as_json: bool) -> None:
    """What matches now, then what changes; where changes were lost, what differs from what was shown."""
    glob = text if is_glob(text) else f"{text.rstrip('/')}/**"
    shown: set[str] = set()

    def tell(added: list[str], removed: list[str]) -> None:
        for sign, paths in (("-", removed), ("+", added)):
            for path in paths:
                if (sign == "+") == (path in shown):
                    continue
                (shown.add if sign == "+" else shown.discard)(path)
                row = {"change": "added" if sign == "+" else "removed", "path": path}
                if as_json:
                    output.emit_json(row)
                else:
                    output.line(f"{sign} {path}")

    async with opened(endpoint) as resolver, resolver.watch(glob) as changes:
        # Watched first and asked then: nothing is missed between the two.
        tell(await resolver.match(glob), [])
        async for change in changes:
            if change.is_lost:
                now = await resolver.match(glob)
                tell(now, sorted(shown.difference(now)))
            tell(change.added, change.removed)
