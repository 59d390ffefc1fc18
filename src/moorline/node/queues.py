"""Room: node. The queues of a node: their folder, opened, served and closed."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from moorline.catalog import Catalog
from moorline.catalog.homes import Homes
from moorline.config.settings import Queues as Settings
from moorline.errors import DiskFull, MoorlineError
from moorline.ids import NO_HOME
from moorline.journal.begun_syncs import KernelSyncs
from moorline.journal.disk import FileDisk
from moorline.journal.disk_watch import DiskWatch
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.home_exceptions import HomeExceptions
from moorline.journal.queues.layout import check_layout
from moorline.journal.queues.manifest import check_owner, go_on_behind, write_manifest
from moorline.journal.queues.rebuild import rebuilt_index
from moorline.journal.queues.store import Store
from moorline.limits import FILES_LOOK_MS, HOMES_STOP_MS_MAX, OPEN_FILES_MAX
from moorline.metrics import Metrics
from moorline.net.trusted_clock import TrustedClock
from moorline.node.folder import opening
from moorline.queues.commands import QueueBroker
from moorline.queues.home_exceptions import ExceptionWriter
from moorline.queues.homes import QueueHomes
from moorline.queues.new_homes import NewHomes
from moorline.queues.traces import QueueTraces
from moorline.queues.upkeep import Upkeep
from moorline.services.commands import ServiceBroker

log = logging.getLogger("moorline.node")

FOLDER = "queues"


def options(
    settings: Settings, node: str = "", files_max: int = OPEN_FILES_MAX, home: bytes = NO_HOME
) -> StoreOptions:
    return StoreOptions(
        sync=settings.sync == "power",
        queue_messages_max=settings.max_queue_messages,
        file_messages_max=settings.max_file_messages,
        levels=settings.folder_levels,
        node=node,
        open_files_max=files_max,
        home=home,
    )


@contextlib.asynccontextmanager
async def open_queues(
    data: Path,
    settings: Settings,
    clock: TrustedClock | None = None,
    *,
    owner: str = "",
    files_max: int = OPEN_FILES_MAX,
    home: bytes = NO_HOME,
    traces: QueueTraces | None = None,
) -> AsyncIterator[QueueBroker]:
    """The broker of a data folder's queues, with its upkeep running.

    `owner` is the id of the node, `files_max` what it may have open of them, and `home` the number that the
    ids of new queues end with. `traces` are told of messages where a collector is set.
    """
    disk = FileDisk(data / FOLDER)
    clock = clock or TrustedClock()
    with opening(data / FOLDER):
        check_owner(disk, owner)
        check_layout(disk, settings.folder_levels)
        store = Store(disk, options(settings, owner, files_max, home), clock.stamp_ms)
        store.open(rebuilt_index)
        go_on_behind(store, clock.stamp_ms)
        _note(store, owner)
    begun = KernelSyncs.of(data / FOLDER) if store.options.sync else None
    if begun is not None:
        store.begun_syncs = begun
        asyncio.get_running_loop().add_reader(begun.fileno(), begun.told)
    broker = QueueBroker(store, settings, clock, traces)
    upkeep = Upkeep(broker)
    room = DiskWatch(disk, "queues", broker, broker.checkpoints.look_for_room)
    await room.look()
    tasks = [
        asyncio.create_task(upkeep.expire_forever()),
        asyncio.create_task(room.forever()),
        asyncio.create_task(_watch_log_forever(broker)),
    ]
    try:
        yield broker
    finally:
        for task in tasks:
            task.cancel()
        await broker.close()
        if begun is not None:
            asyncio.get_running_loop().remove_reader(begun.fileno())
            begun.close()
        if not broker.commits.failed.done():
            _note(store, owner)
        store.close()


def _note(store: Store, owner: str) -> None:
    """How far the log came. Also without a sync: what a power cut takes then is allowed, and told."""
    try:
        # What is not committed, because nobody might be answered any more, has no number for anybody.
        write_manifest(store.disk, owner, store.committed_lsn + 1)
    except DiskFull:
        log.warning("no room for the manifest of the queues: a later start can tell less")


async def _watch_log_forever(broker: QueueBroker) -> None:
    """A log that somebody removes would be missed at the next start only: what it has is saved at once."""
    store = broker.store
    while True:
        await asyncio.sleep(FILES_LOOK_MS / 1_000)
        if store.log.is_in_place or broker.commits.failed.done():
            continue
        log.error("the write-ahead log of the queues vanished: a checkpoint saves what was in it")
        try:
            await broker.checkpoints.checkpoint()
        except (OSError, MoorlineError):
            log.exception("the checkpoint failed")


@contextlib.asynccontextmanager
async def open_homes(catalog: Catalog, broker: QueueBroker) -> AsyncIterator[QueueHomes]:
    """Where queues of other nodes are; and the others learn which of ours have ids that do not say so."""
    number = broker.store.options.home
    homes = QueueHomes(Homes(catalog), number)
    writer = ExceptionWriter(Homes(catalog), number, HomeExceptions(broker.store))
    new = NewHomes(homes, broker.store, broker.refusal_now)
    broker.refusals.absence = homes.absence
    broker.refusals.may_be_new, broker.refusals.waits = new.may_be, new.waits
    broker.descriptions.whereabouts = homes.whereabouts
    tasks = [
        asyncio.create_task(homes.look_forever()),
        asyncio.create_task(writer.write_until_done()),
    ]
    try:
        yield homes
    finally:
        new.close()
        for task in tasks:
            task.cancel()
        # A question to a catalog that hangs is not given back when it is cancelled: the stop goes on without.
        await asyncio.wait(tasks, timeout=HOMES_STOP_MS_MAX / 1_000)


def watch(metrics: Metrics, broker: QueueBroker) -> None:
    """Shows the broker's figures on /metrics."""
    counts, store = broker.counts, broker.store
    figures = {
        "messages_stored_total": ("Messages taken from senders.", lambda: counts.stored),
        "messages_delivered_total": ("Deliveries to subscribers.", lambda: counts.delivered),
        "messages_acknowledged_total": ("Messages done with.", lambda: counts.acknowledged),
        "messages_expired_total": ("Messages that grew too old.", lambda: counts.expired),
        "messages_refused_by_quota_total": ("Sends refused.", lambda: counts.refused_by_quota),
        "messages_lost_total": ("Messages that damage took.", lambda: store.files.lost_messages),
        "messages_doubled_total": (
            "Messages that may come twice, after damage to a state and the index.",
            lambda: store.files.doubled_messages,
        ),
        "records_aside_total": (
            "Records set aside that nothing accounted for.",
            lambda: store.files.records_aside,
        ),
        "queue_changes_lost_total": (
            "Changes of queues that were in files of the log that are gone.",
            lambda: store.lost_changes,
        ),
        "queues": ("Queues that exist.", lambda: len(store)),
        "queues_live": ("Queues in memory as objects.", lambda: len(store.live)),
        "queues_quarantined_total": ("Queues set aside.", lambda: store.files.quarantined),
        "queue_files_open": ("Open files of queues.", lambda: len(store.files.handles)),
        "queue_log_bytes": ("Size of the write-ahead log.", lambda: store.log.size_bytes),
        "queue_commits_total": ("Group commits.", lambda: broker.commits.count),
        "queue_checkpoints_total": ("Checkpoints.", lambda: broker.checkpoints.count),
        "queue_disk_full": (
            "1 while messages are refused because the disk is nearly full.",
            lambda: int(broker.is_disk_full),
        ),
        "subscriptions": ("Queues with a subscriber.", lambda: len(broker.subscriptions)),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(name, help_text, read)
    broker.commits.commit_seconds = metrics.latency(
        "queue_commit_seconds", "Time from the start of a commit to its end, fsync included."
    )


def watch_services(metrics: Metrics, services: ServiceBroker) -> None:
    """Shows what verifies found on /metrics."""
    counts = services.counts
    metrics.watch("service_verifies_total", "SUBS answered.", lambda: counts.verifies)
    for kind in counts.drifts:
        metrics.watch(
            f"service_drifts_{kind}_total",
            f"Verifies at which this node had {kind} queues.",
            lambda kind=kind: counts.drifts[kind],  # type: ignore[misc]
        )
    metrics.watch(
        "service_repair_bytes_total", "Sketches and lists sent.", lambda: counts.payload_bytes
    )
    metrics.watch("service_repair_rounds_total", "Questions answered.", lambda: counts.rounds)
    metrics.watch(
        "service_put_right_total",
        "SUBS at which what was kept of a service was not what is there.",
        lambda: counts.put_right,
    )
    metrics.watch("service_scans_total", "Scans for a sketch.", lambda: services.sketches.scans)
