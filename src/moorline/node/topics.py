"""Room: node. The topics of a node: their streams, opened, served and closed, and the groups it leads."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations
from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.catalog.operations import Tickets
from moorline.catalog.sessions import Sessions
from moorline.cluster.links import Links
from moorline.config.settings import Config, Streams
from moorline.errors import DiskFull, FolderUnusable
from moorline.groups.cursor_commits import CursorCommits
from moorline.groups.leader_host import LeaderHost
from moorline.groups.leaders import Leaders
from moorline.groups.operations import Operations
from moorline.groups.operator import GroupBroker
from moorline.groups.rights import Judge
from moorline.ids import text_of
from moorline.journal.begun_syncs import KernelSyncs
from moorline.journal.disk import Disk, FileDisk
from moorline.journal.disk_watch import DiskWatch
from moorline.journal.staging.store import queries_under_way
from moorline.journal.streams.layout import NO_OWNER, read_home, read_layout, read_owner
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import (
    SESSIONS_KEPT_MS,
    STAGE_FILES_OPEN_MAX,
    STREAM_SKIP_MARGIN,
    STREAM_SYNCS_MAX,
)
from moorline.metrics import Metrics
from moorline.net.span_export import SpanExport
from moorline.net.trusted_clock import TrustedClock
from moorline.node.folder import opening
from moorline.node.topic_deletion import TopicDeletion
from moorline.sessions.commands import SessionBroker
from moorline.sessions.context import Context
from moorline.staging.stages import Staging, open_staging
from moorline.topics.commands import TopicBroker
from moorline.topics.directory import StreamDirectory
from moorline.topics.stream_files import StreamFiles
from moorline.topics.streams import LocalStreams
from moorline.topics.traces import MessageTraces
from moorline.topics.upkeep import StreamUpkeep, log_problems

log = logging.getLogger("moorline.node")

FOLDER = "streams"
STAGING_FOLDER = "staging"


class Owner(NamedTuple):
    """The node that a data folder belongs to."""

    home: str
    id: bytes
    is_older_copy: bool = False
    """Whether a process ran under its identity since, on another folder."""


class Topics:
    """Everything of topics that a node runs."""

    staging: Staging

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        links: Links,
        store: StreamStore,
        judge: Judge,
        demands: Demands,
        clock: TrustedClock,
    ) -> None:
        groups = Groups(catalog)
        self.cursor_commits = CursorCommits(groups)
        self.streams = LocalStreams(store, links.node, clock)
        self.directory = StreamDirectory(self.streams, links)
        self.leaders = Leaders(groups, self.cursor_commits, self.directory, links, config.groups)
        self.broker = TopicBroker(self.streams, config.streams, demands)
        self.files = StreamFiles(self.streams, catalog, demands)
        self.context = Context(
            self.directory,
            links,
            self.leaders,
            self.cursor_commits,
            Sessions(catalog),
            config.groups,
        )
        self.sessions = SessionBroker(self.context, self.broker, config.groups, demands)
        operations = Operations(self.leaders, Tickets(catalog), config.groups, judge)
        self.operator = GroupBroker(self.leaders, operations, config.groups, judge, demands)
        self.deletion = TopicDeletion(self.broker, links, catalog, judge, demands)

    def declared(self) -> Declarations:
        parts = (
            *(self.broker, self.files, self.sessions, self.operator, self.staging),
            self.deletion,
        )
        return {kind: one for part in parts for kind, one in part.declared().items()}

    def judge_soon(self) -> None:
        """Behind a change of rights: what runs and is not granted any more ends. Stages are judged with
        each of their chunks, and all of them at their commit."""
        self.sessions.judge_soon()
        self.broker.judge_soon()

    async def keep_sessions_forever(self) -> None:
        while True:
            try:
                await self.sessions.durable.keep_up()
            except Exception:
                # Without this task durable sessions would expire while they are in use.
                log.exception("sessions were not looked after")
            await asyncio.sleep(SESSIONS_KEPT_MS / 1_000)

    async def close(self) -> None:
        """Leaders store what they know first, while the catalog and the links are there."""
        await self.leaders.close()
        await self.context.close()
        for part in (self.broker, self.files, self.sessions, self.operator, self.deletion):
            part.close()
        self.directory.close()
        await self.streams.close()


def options(settings: Streams) -> StreamOptions:
    return StreamOptions(
        sync=settings.sync == "power",
        shards=settings.shards,
        generation_bytes_max=settings.generation_bytes_max,
        generation_s=settings.generation_s,
        retention_s=settings.retention_s,
        retention_bytes=settings.retention_bytes,
    )


@contextlib.asynccontextmanager
async def open_topics(
    config: Config,
    data: Path,
    owner: Owner,
    catalog: Catalog,
    links: Links,
    judge: Judge,
    demands: Demands,
    clock: TrustedClock,
    *,
    stage_files_max: int = STAGE_FILES_OPEN_MAX,
    spans: SpanExport | None = None,
) -> AsyncIterator[Topics]:
    """The topics of a data folder; `Links.keep_forever` joins the cluster. `spans` is where traces go."""
    home = owner.home
    disk, staged = FileDisk(data / FOLDER), FileDisk(data / STAGING_FOLDER)
    shards = await asyncio.to_thread(_shards_of_this_run, data, disk, staged, config.streams.shards)
    syncs = ThreadPoolExecutor(STREAM_SYNCS_MAX, thread_name_prefix="moorline-sync")
    begun = KernelSyncs.of(data / FOLDER)
    chosen = msgspec.structs.replace(options(config.streams), shards=shards)
    store = StreamStore(
        disk,
        home,
        chosen,
        clock.stamp_us,
        syncs=syncs,
        expiry_us=clock.expiry_us,
        owner=owner.id,
        begun_syncs=begun,
    )
    with opening(data / FOLDER):
        check_owner(data, owner.id)
        await asyncio.to_thread(store.open)
    log_problems(store.problems, home)
    _log_other_shards(store.shards_before, shards)
    await _go_on_behind_readers(store, owner, Groups(catalog))
    topics = Topics(config, catalog, links, store, judge, demands, clock)
    if spans is not None:
        topics.streams.traces = MessageTraces(spans, home, config.trace.one_in)
    room = DiskWatch(disk, "streams", topics.streams)
    await room.look()
    if begun is not None:
        asyncio.get_running_loop().add_reader(begun.fileno(), begun.told)
    tasks = [
        asyncio.create_task(StreamUpkeep(topics.streams).keep_up_forever()),
        asyncio.create_task(room.forever()),
        asyncio.create_task(topics.leaders.renew_forever()),
        asyncio.create_task(topics.keep_sessions_forever()),
    ]
    try:
        async with contextlib.AsyncExitStack() as stack:
            with opening(data / STAGING_FOLDER):
                topics.staging = await stack.enter_async_context(
                    open_staging(staged, topics.broker, config.streams, stage_files_max, demands)
                )
            yield topics
    finally:
        for task in tasks:
            task.cancel()
        await topics.close()
        if begun is not None:
            asyncio.get_running_loop().remove_reader(begun.fileno())
            begun.close()
        store.close()
        syncs.shutdown()


def _log_other_shards(before: int, now: int) -> None:
    if before not in (0, now):
        log.warning(
            "the number of shards has changed: a publish from before that is tried again now may be stored "
            "twice, or passed over",
            extra={"before": before, "now": now},
        )


async def published(streams: LocalStreams, topic: str, body: bytes) -> None:
    """A message of the node itself, such as a line of the audit: nobody else writes to `$SYS`."""
    if streams.is_disk_full:
        raise DiskFull("the disk of the streams is nearly full")
    streams.store.append(topic, body, None, b"", 0, 0)
    await streams.commits.durable()


def check_owner(data: Path, node_id: bytes) -> None:
    """Refuses the streams of another node: their offsets mean other messages."""
    found = read_owner(FileDisk(data / FOLDER))
    if found is not None and found not in (node_id, NO_OWNER):
        raise FolderUnusable(
            f"{data / FOLDER} holds the streams of the node with the id {text_of(found)}, and "
            f"{data / 'node.id'} says {text_of(node_id)}: put this node's streams back, or move these away; "
            "if only node.id was lost, write that id into it. Nothing was changed"
        )


def home_of_streams(data: Path) -> str:
    """What the folder says that its streams are known by; empty if it has none, or nobody can tell."""
    if not (data / FOLDER).is_dir():
        return ""
    with opening(data / FOLDER):
        return read_home(FileDisk(data / FOLDER))


def _shards_of_this_run(data: Path, streams: Disk, staged: Disk, wanted: int) -> int:
    """The number that is set; but the one of the last run, while rows of a staged commit are half published.

    What is published of them is remembered shard by shard: in other shards they would be stored a second
    time. The layout has the number under which they were published, because it is written before a start
    publishes anything, and with another number only where no such commit is left.
    """
    with opening(data / FOLDER):
        before = read_layout(streams)
    if before == wanted:
        return wanted
    with opening(data / STAGING_FOLDER):
        queries = queries_under_way(staged)
    if not queries:
        return wanted
    if not before:
        log.warning(
            "nobody can tell how many shards there were: the file streams/layout is gone or damaged. Rows of "
            "a write of Spark that was cut short in the middle of its commit may be published twice",
            extra={"set": wanted, "writes": len(queries), "query": queries[0]},
        )
        return wanted
    log.warning(
        "streams.shards takes effect at the first start behind the end of a commit, not now: a write of "
        "Spark was cut short, and is published to its end with the number of shards that it began with",
        extra={"set": wanted, "now": before, "writes": len(queries), "query": queries[0]},
    )
    return before


async def _go_on_behind_readers(store: StreamStore, owner: Owner, groups: Groups) -> None:
    """Readers may be beyond the end of a shard whose last messages a power cut or a restored copy took.

    The catalog knows the places of groups and sessions. Plain subscriptions have none there, so an older copy
    leaves offsets out in every shard: they are told of a gap, and do not take what is new for what they had.
    """
    floors = await groups.floors(owner.home)
    for shard in range(store.shards):
        end, floor = store.end(shard), floors.get(shard, 0)
        if end < floor:
            log.error(
                "a shard has lost its last messages: it goes on behind what its readers had",
                extra={"shard": shard, "end": end, "readers_at": floor},
            )
        if end < floor or owner.is_older_copy:
            await asyncio.to_thread(store.skip_to, shard, max(end, floor) + STREAM_SKIP_MARGIN)


def watch(metrics: Metrics, topics: Topics) -> None:
    """Shows the topics' figures on /metrics."""
    counts, led = topics.broker.counts, topics.leaders
    streams, sessions = topics.streams, topics.sessions
    figures: dict[str, tuple[str, Callable[[], float]]] = {
        "topic_messages_published_total": ("Messages stored.", lambda: counts.published),
        "topic_duplicates_total": ("Messages that were stored before.", lambda: counts.duplicates),
        "topic_messages_refused_total": ("Messages refused.", lambda: counts.refused),
        "stream_files_open": (
            "Files of streams that are open now.",
            lambda: streams.store.disk.open_handles,
        ),
        "topic_sessions": ("Sessions with subscriptions.", lambda: len(list(sessions.sessions))),
        "staged_rows_total": (
            "Rows of staged writes that were published.",
            lambda: topics.staging.committed_rows,
        ),
        "staged_rows_aside_total": (
            "Rows of staged writes that their queues refused, and that went to a topic in place.",
            lambda: topics.staging.aside_rows,
        ),
        "stream_commits_total": ("Group commits of streams.", lambda: streams.commits.count),
        "stream_messages_dropped_total": (
            "Messages that retention took.",
            lambda: streams.dropped_messages,
        ),
        "stream_disk_full": (
            "1 while messages are refused because the disk is nearly full.",
            lambda: int(streams.is_disk_full),
        ),
        "groups_led": ("Groups that this node leads.", lambda: len(led.led)),
        "group_elections_total": ("Leaderships won.", lambda: led.counts.elections),
        "group_fenced_total": ("Leaderships lost to another.", lambda: led.counts.fenced),
        "group_lapsed_total": (
            "Leaderships whose lease ran out before it was renewed.",
            lambda: led.counts.lapsed,
        ),
        "group_commits_total": ("Commits of progress.", lambda: led.counts.commits),
        "group_messages_missed_total": (
            "Messages that were gone before a group had read them.",
            lambda: led.counts.messages_missed,
        ),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(name, help_text, read)
    _add_up(metrics, topics)
    streams.commits.commit_seconds = metrics.latency(
        "stream_commit_seconds", "Time from the start of a commit to its end, fsync included."
    )


def _add_up(metrics: Metrics, topics: Topics) -> None:
    """Figures of which each session, stream or group has a part."""
    led, sessions, store = topics.leaders, topics.sessions, topics.streams.store

    def leadings() -> list[LeaderHost]:
        return list(led.led.values())

    metrics.add_up(
        "topic_messages_delivered_total",
        "Deliveries to the sessions that are open.",
        lambda: (session.delivery.machine.delivered for session in list(sessions.sessions)),
    )
    metrics.add_up(
        "topic_windows_full",
        "Subscriptions whose window is full: their members are slower than their streams.",
        lambda: (
            subscription.window.out >= subscription.window.size
            for session in list(sessions.sessions)
            for subscription in list(session.subscriptions.values())
        ),
    )
    metrics.add_up("stream_messages_lost_total", "Messages that damage took.", store.lost_by_stream)
    metrics.add_up(
        "group_members",
        "Members of the groups led here.",
        lambda: (len(one.leader.borrowers) for one in leadings()),
    )
    metrics.add_up(
        "group_lag",
        "Messages that the groups led here have not done.",
        lambda: (lag.lag for one in leadings() for lag in one.leader.lags()),
    )
