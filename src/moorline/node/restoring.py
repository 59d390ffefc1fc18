"""Room: node. A data folder, and its catalog, made anew out of a backup; never over anything.

    COPIED    the files are written, below a `format` that no program takes
    SYNCED    they are durable
    PROVEN    read again from the disk, they are those of the backup
    AHEAD     queues and streams go on far behind what they had: no number that was given since comes again
    CATALOG   the tables are loaded in one transaction, and proven
    DONE      `format` says that a node may start

Killed before DONE, the folder is nothing that a node would start on, and a restore begins anew in another. A
catalog that was given is whole or not there. Which process may have the identity is said by the catalog, as
ever: docs/design/backup.md.
"""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from moorline.catalog.copying import check_empty, home_there, load
from moorline.catalog.datafolder import ENVIRONMENT, binaries
from moorline.catalog.embedded import EmbeddedPostgres
from moorline.client.connecting import connect
from moorline.config.addresses import listen_address
from moorline.core.sets.digest import Digest
from moorline.errors import (
    BackupDamaged,
    BackupRefused,
    FormatTooNew,
    IdentityTaken,
    MoorlineError,
)
from moorline.ids import id_of
from moorline.journal.disk import FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.manifest import write_manifest
from moorline.journal.queues.offline import opened, raise_lsn
from moorline.journal.streams.layout import read_layout
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import BACKUP_ANSWER_MS_MAX, BACKUP_REACH_MS_MAX, NUMBERS_PER_S_MAX
from moorline.net.address_dial import is_listened_at
from moorline.net.clock import wall_ms, wall_us
from moorline.node.backup import CATALOG, OTHERS, CutFacts
from moorline.node.backup_folder import (
    DATA,
    AtStep,
    Manifest,
    Progress,
    Seen,
    Step,
    check_file,
    check_room,
    copied,
    listed,
    make_empty,
    read_manifest,
)
from moorline.node.data_format import NAME as FORMAT
from moorline.node.data_format import NEWEST, RESTORING, text_of_format
from moorline.node.folder import (
    IDENTITY,
    home_moves,
    home_number,
    is_held,
    note_home_moves,
    write_durably,
)


class Wanted(msgspec.Struct, frozen=True):
    """What is to be made of a backup."""

    backup: Path
    data: Path
    dsn: str = ""
    """Of a given Postgres; empty: the embedded one."""
    keeps_catalog: bool = False
    """The catalog lives, and is not loaded: the node comes back into its cluster."""
    is_trial: bool = False
    """The node that it is of may live: what is restored is only looked at."""


async def restore(wanted: Wanted, seen: Seen, at_step: AtStep = lambda _: None) -> Manifest:
    """Returns what was restored, when a node may start on it."""
    manifest = await asyncio.to_thread(read_manifest, wanted.backup)
    facts = manifest.of
    if facts.format > NEWEST:
        raise FormatTooNew(
            f"the data folder in {wanted.backup} is of a newer Moorline (format {facts.format}, this one "
            f"knows up to {NEWEST}): restore it with that one"
        )
    if not wanted.is_trial:
        await check_gone(facts)
    if wanted.dsn and not wanted.keeps_catalog:
        await check_empty(wanted.dsn)
    await asyncio.to_thread(_restore_files, wanted, manifest, seen, at_step)
    since_s = max(0, wall_us() - facts.time_us) // 1_000_000 + 1
    await asyncio.to_thread(_go_ahead, wanted.data, facts, since_s)
    at_step(Step.AHEAD)
    if wanted.keeps_catalog:
        await _fit_catalog(wanted, facts)
    else:
        await _restore_catalog(wanted, facts, since_s)
    at_step(Step.CATALOG)
    await asyncio.to_thread(FileDisk(wanted.data).sync_all)
    write_durably(wanted.data / FORMAT, text_of_format())
    at_step(Step.DONE)
    return manifest


async def check_gone(facts: CutFacts) -> None:
    """Refuses to make a double of a node that lives. One that has the same catalog is kept apart by that at
    its start; two that each have a catalog of their own know nothing of each other."""
    folder = Path(facts.data)
    with contextlib.suppress(OSError):
        same = (folder / IDENTITY).read_text("ascii").strip() == facts.id
        if same and is_held(folder):
            raise _alive(facts, f"runs on {folder}")
    for address in facts.addresses:
        if not await is_listened_at(listen_address(address), BACKUP_REACH_MS_MAX):
            continue
        try:
            async with asyncio.timeout(BACKUP_ANSWER_MS_MAX / 1_000):
                async with connect(address, reconnect=False) as moor:
                    told = await moor.describe()
        except (MoorlineError, TimeoutError) as error:
            # Somebody is there who does not talk to us, or not in time: it may be that node.
            raise _alive(facts, f"may be what answers at {address} ({error})") from error
        if told.home == facts.home:
            raise _alive(facts, f"answers at {address}")


def _alive(facts: CutFacts, where: str) -> IdentityTaken:
    return IdentityTaken(
        f"the node {facts.node!r} that this is a backup of {where}: two nodes of one identity would give "
        "the same numbers to different messages. Stop it first; to look at what was restored, where "
        "no client can reach it, give --trial"
    )


def _restore_files(wanted: Wanted, manifest: Manifest, seen: Seen, at_step: AtStep) -> None:
    data = wanted.data
    make_empty(data)
    check_room(data, manifest.bytes)
    write_durably(data / FORMAT, RESTORING)
    # Read, written, and read again: what was wrong in the backup, or on the way, is found in time.
    progress = Progress(seen, 3 * manifest.bytes)
    for kept in listed(wanted.backup):
        tree, _, path = kept.path.partition("/")
        if tree != DATA:
            check_file(wanted.backup / kept.path, kept, progress)
            continue
        found = copied(wanted.backup / kept.path, data / path, kept.size, progress)
        if found != kept.hash:
            raise BackupDamaged(f"{wanted.backup / kept.path} is not as it was written")
    at_step(Step.COPIED)
    FileDisk(data).sync_all()
    at_step(Step.SYNCED)
    digest = manifest_digest(wanted, progress)
    if digest != manifest.digest:
        raise BackupDamaged(f"{wanted.backup}: its list of files is not the one that was written")
    at_step(Step.PROVEN)


def manifest_digest(wanted: Wanted, progress: Progress) -> str:
    """Of what is in the restored folder, and of the backup's texts of the catalog."""
    digest = Digest.empty()
    for kept in listed(wanted.backup):
        tree, _, path = kept.path.partition("/")
        file = wanted.data / path if tree == DATA else wanted.backup / kept.path
        check_file(file, kept, progress)
        digest = digest.add(kept.encoded())
    return str(digest)


def _go_ahead(data: Path, facts: CutFacts, since_s: int) -> None:
    """What was stored behind the cut is gone, and its numbers are known to whoever read it."""
    margin = since_s * NUMBERS_PER_S_MAX + NUMBERS_PER_S_MAX
    if (data / "queues" / "layout.json").exists():
        disk = FileDisk(data / "queues")
        with opened(disk, StoreOptions(node=facts.id), wall_ms) as store:
            raise_lsn(store, max(store.next_lsn, facts.next_lsn) + margin)
            checkpoint.run(store, wall_ms)
            reached = store.next_lsn
        write_manifest(disk, facts.id, reached)
    if (data / "streams").is_dir():
        disk = FileDisk(data / "streams")
        shards = read_layout(disk)
        if shards:
            options = StreamOptions(shards=shards)
            streams = StreamStore(disk, facts.home, options, wall_us, owner=id_of(facts.id))
            streams.open()
            for shard in range(shards):
                streams.leap_to(shard, streams.end(shard) + margin)
            streams.leave()
            streams.close()


async def _fit_catalog(wanted: Wanted, facts: CutFacts) -> None:
    """A home that has moved since the cut comes back all the same, if where it went is no more: its folder is
    one of the moves that the catalog knows of. Whoever serves it there keeps it."""
    number = home_number(wanted.data)
    there = await home_there(wanted.dsn, number) if number else None
    if there is None or there.moves <= home_moves(wanted.data):
        return
    if there.is_held and not wanted.is_trial:
        raise _alive(facts, f"has moved since, and is served as {there.node!r}")
    note_home_moves(wanted.data, there.moves)


async def _restore_catalog(wanted: Wanted, facts: CutFacts, since_s: int) -> None:
    source = wanted.backup / CATALOG
    if wanted.dsn:
        await load(wanted.dsn, facts.catalog, source, since_s)
        return
    async with EmbeddedPostgres(wanted.data / CATALOG) as postgres:
        await load(postgres.dsn, facts.catalog, source, since_s)
        if (source / OTHERS).exists():
            await _load_others(postgres.dsn, source / OTHERS)


async def _load_others(dsn: str, file: Path) -> None:
    """Tables of users in the embedded Postgres. Those that are registered say by themselves that they come
    out of another one (`TableRestored`)."""
    loading = await asyncio.create_subprocess_exec(
        str(binaries() / "pg_restore"),
        *(f"--dbname={dsn}", "--exit-on-error", "--single-transaction", "--no-owner", str(file)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
    )
    _, said = await loading.communicate()
    if loading.returncode:
        words = said.decode("utf-8", "replace").strip()[-500:]
        raise BackupRefused(f"tables of the embedded Postgres could not be restored: {words}")
