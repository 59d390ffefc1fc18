"""Room: cli. `moor backup` copies a running node, and proves the copy; `moor restore` makes a node of one."""

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.flags import with_settings
from moorline.cli.installed import need_server
from moorline.cli.progress import progress
from moorline.config.load import Loaded
from moorline.config.settings import Config
from moorline.errors import BackupRefused
from moorline.limits import BACKUP_LOOK_MS

if TYPE_CHECKING:
    from moorline.node.backup_folder import Manifest, Seen

Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@with_node
def backup(
    endpoint: Endpoint,
    folder: Annotated[
        Path,
        typer.Argument(show_default=False, help="A new folder for the backup, or an empty one."),
    ],
    as_json: Json = False,
) -> None:
    """Copy a running node: queues, streams and catalog as they were at one moment.

    To be run on the node's machine, as its account. Senders wait for some milliseconds while the moment is
    taken; then everything goes on, and what was stored by then is copied beside it. All that was written is
    read again from the disk and compared. The digest that is printed is that of the files: `moor restore`
    prints the same one. Interrupted, it leaves a folder that nothing takes for a backup.
    """
    need_server("moor backup")
    with progress("copying") as seen:
        made = asyncio.run(_backed_up(endpoint, folder, seen))
    _emit(as_json, made, f"the backup in {folder} is whole", folder)


async def _backed_up(endpoint: Endpoint, folder: Path, seen: "Seen") -> "Manifest":
    from moorline.node.backup_folder import write_backup

    is_given_up = threading.Event()
    async with endpoint.connect() as moor:
        held = await moor.cluster.back_up()
        while held.phase != "ready":
            await asyncio.sleep(BACKUP_LOOK_MS / 1_000)
            held = await moor.cluster.back_up(held.cut)
        if not await asyncio.to_thread(Path(held.folder).is_dir):
            raise BackupRefused(
                f"the node holds its files in {held.folder}, which cannot be seen here: run this on the "
                "machine of the node, as its account"
            )
        copying = asyncio.ensure_future(
            asyncio.to_thread(
                write_backup,
                Path(held.folder),
                folder,
                held.bytes,
                seen,
                lambda _: None,
                is_given_up.is_set,
            )
        )
        try:
            while not copying.done():
                await asyncio.wait([copying], timeout=1)
                # The node has it for us as long as we are there; and the other way round.
                await moor.cluster.back_up(held.cut)
        finally:
            is_given_up.set()
            await asyncio.wait([copying])
        made = copying.result()
        await moor.cluster.back_up(held.cut, is_over=True)
        return made


@with_settings
def restore(
    settings: Loaded[Config],
    folder: Annotated[Path, typer.Argument(show_default=False, help="A folder with a backup.")],
    keep_catalog: Annotated[
        bool,
        typer.Option(
            "--keep-catalog",
            help="The catalog given with --catalog lives: put only the folder back.",
        ),
    ] = False,
    trial: Annotated[
        bool,
        typer.Option(
            "--trial", help="Also while the node lives: to look, where no client reaches it."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Restore nothing: read the backup, and compare.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a data folder, and its catalog, out of a backup; never over anything that is there.

    The folder is the one of --data, which must be missing or empty; so must be the catalog, unless it is
    embedded. All bytes are compared with what was written. Then start the node as ever: it is the same node,
    and goes on far behind the numbers that it had, so that readers who know later messages are told of a gap.
    """
    need_server("moor restore")
    from moorline.node.backup_folder import check_backup

    config = settings.config
    if check:
        with progress("reading") as seen:
            found = check_backup(folder, seen)
        _emit(as_json, found, f"the backup in {folder} is whole", folder)
        return
    if keep_catalog and config.is_catalog_embedded:
        raise typer.BadParameter("--keep-catalog is for a catalog that is given: --catalog")
    with progress("restoring") as seen:
        found = asyncio.run(_restored(config, folder, keep_catalog, trial, seen))
    _emit(as_json, found, f"{config.data} is restored: start the node", folder)


async def _restored(
    config: Config, folder: Path, keep_catalog: bool, trial: bool, seen: "Seen"
) -> "Manifest":
    from moorline.catalog.location import catalog_address
    from moorline.node.restoring import Wanted, restore

    dsn = "" if config.is_catalog_embedded else catalog_address(config)
    return await restore(Wanted(folder, Path(config.data), dsn, keep_catalog, trial), seen)


def _emit(as_json: bool, made: "Manifest", text: str, folder: Path) -> None:
    facts: dict[str, Any] = {
        "folder": str(folder),
        "cut": made.of.cut,
        "node": made.of.node,
        "home": made.of.home,
        "software": made.of.software,
        "files": made.files,
        "bytes": made.bytes,
        "digest": made.digest,
    }
    output.emit(
        as_json,
        facts,
        lambda: output.line(
            f"{text}: cut {made.of.cut}, {output.counted(made.files, 'file')}, {made.bytes} bytes, "
            f"digest {made.digest}"
        ),
    )
