"""Room: node. What somebody may watch at a node (console/views.py): nodes and what they do, groups, services;
lists are in node/list_views.py.

Of another node it is asked over the link to it, in the name of whoever watches: that one judges by its own
table. Its figures for a page are asked for here too, by `ReadFigures`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, heavy, needs
from moorline.cluster.links import Links
from moorline.console.figures import Figures
from moorline.console.views import Seen, Views, ViewSource, unnumbered
from moorline.core.access.right import LIST
from moorline.errors import NotFound
from moorline.groups.rights import Judge, originator_of, rights_of_originator
from moorline.ids import text_of
from moorline.limits import (
    FIGURES_STEP_MS,
    GROUP_ROWS_PER_PAGE_MAX,
    SILENT_SHOWN_MS,
    VIEW_GROUP_MS,
    VIEW_NODES_MS,
    VIEW_SERVICE_MS,
)
from moorline.metrics import Metrics
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.net.turns import Turns
from moorline.node.cluster import CLUSTER, ClusterView
from moorline.node.list_views import ListViews, serve_lists
from moorline.node.pipeline_runs import PipelineRuns
from moorline.node.subjects import Subjects
from moorline.node.topics import Topics
from moorline.services.operator import OperatorBroker
from moorline.wire.group import DescribeGroup, GroupDescribed, Originator
from moorline.wire.message import Answer
from moorline.wire.node import Describe, Described, ListNodes, NodesListed
from moorline.wire.service_operator import DescribeService, ListServices
from moorline.wire.view import FiguresRead, ReadFigures

NEWEST: Final = 5
"""Steps of a view of figures: who is told a little late misses none."""


class NodeViews:
    """Where the views of a node come from."""

    def __init__(
        self,
        home: str,
        metrics: Metrics,
        cluster: ClusterView,
        describe: Callable[[Session, Describe], Described],
        judge: Judge,
        demands: Demands,
    ) -> None:
        self.views = Views(demands)
        self.lists = ListViews(self.views)
        self.figures = Figures(metrics, home)
        self.links: Links | None = None
        self._home = home
        self._cluster = cluster
        self._describe = describe
        self._judge = judge
        self._known: dict[str, int] = {}
        """The newest step of each other node."""
        self._turns = Turns()
        serve = self.views.serve
        serve("nodes", ViewSource(self._nodes, VIEW_NODES_MS))
        serve("figures", ViewSource(self._newest, FIGURES_STEP_MS))

    def declared(self) -> Declarations:
        read = heavy(needs(LIST, lambda _: (CLUSTER,), self._turns.spawned(self._read)))
        return {ReadFigures: read, **self.views.declared()}

    def close(self) -> None:
        self.views.close()
        self._turns.close()

    async def keep_forever(self) -> None:
        while True:
            await self.figures.keep()
            self.views.changed("figures", self._home)
            await asyncio.sleep(FIGURES_STEP_MS / 1_000)

    # --- nodes ------------------------------------------------------------------------------------

    async def _nodes(self, session: Session, home: str) -> Seen:
        demand(session.rights, LIST, CLUSTER)
        if not home:
            return Seen("", _steady_nodes(await self._cluster.list(session, ListNodes(0))))
        if home == self._home:
            return Seen(home, _steady_node(self._describe(session, Describe(0))))
        asked_by = originator_of(session.rights)
        found = await self._links(home).ask(home, lambda call: Describe(call, asked_by), Described)
        return Seen(found.home, _steady_node(found))

    def rights_of(self, session: Session, originator: Originator) -> SessionRights:
        """Of whoever asks, at this node or through another one."""
        rights = session.rights
        if rights.is_node and originator.principal:
            return rights_of_originator(self._judge, originator, CLUSTER)
        return rights

    async def _read(self, session: Session, call: ReadFigures) -> Answer:
        rights = self.rights_of(session, call.originator)
        demand(rights, LIST, CLUSTER)
        if call.home in ("", self._home):
            return await self.figures.read(call.call, call.since)
        asked_by = originator_of(rights)
        answer = await self._links(call.home).ask(
            call.home,
            lambda number: ReadFigures(number, call.home, call.since, asked_by),
            FiguresRead,
        )
        return msgspec.structs.replace(answer, call=call.call)

    async def _newest(self, session: Session, home: str) -> Seen:
        demand(session.rights, LIST, CLUSTER)
        if home == self._home:
            found = await self.figures.read(0, max(0, self.figures.newest - NEWEST))
            return Seen(home, _newest_of(found))
        known = self._known.get(home, 0)
        asked_by = originator_of(session.rights)
        found = await self._links(home).ask(
            home,
            lambda call: ReadFigures(call, home, max(0, known - NEWEST), asked_by),
            FiguresRead,
        )
        self._known[home] = found.step
        return Seen(found.home, _newest_of(found))

    def _links(self, home: str) -> Links:
        if self.links is None:
            raise NotFound(f"this node has no role that knows the node {home!r}")
        return self.links

    # --- what is there by the role broker -----------------------------------------------------------

    def serve_groups(self, topics: Topics) -> None:
        views, broker = self.views, topics.operator

        async def look(session: Session, name: str) -> Seen:
            # In pages: a view is one message, however many streams there are.
            found = await broker.describe(
                session, DescribeGroup(0, name, count=GROUP_ROWS_PER_PAGE_MAX)
            )
            assert isinstance(found, GroupDescribed)
            return Seen(found.group.name, _steady_group(found))

        views.serve("groups", ViewSource(look, VIEW_GROUP_MS))
        topics.leaders.stirred = lambda row: views.stirred("groups", row.name)

    def serve_services(self, services: OperatorBroker) -> None:
        views = self.views

        async def look(session: Session, service: str) -> Seen:
            found = await services.describe(session, DescribeService(0, service))
            return Seen(text_of(found.facts.id), unnumbered(found))

        def moved(service: bytes) -> None:
            views.changed("services", text_of(service))
            self.lists.changed(ListServices)

        views.serve("services", ViewSource(look, VIEW_SERVICE_MS))
        services.compared = services.delivery.moved = moved


@contextlib.asynccontextmanager
async def open_views(
    made: NodeViews,
    subjects: Subjects,
    runs: PipelineRuns,
    metrics: Metrics,
    links: Links | None,
) -> AsyncIterator[NodeViews]:
    """Behind the subjects, of which there are those of the node's roles."""
    made.links = links
    serve_lists(made.lists, subjects, runs)
    if subjects.topics is not None:
        made.serve_groups(subjects.topics)
    if subjects.services is not None:
        made.serve_services(subjects.services)
    metrics.watch("views_watched", "Views that somebody watches now.", lambda: len(made.views))
    metrics.watch(
        "view_looks_total", "Looks at views, for all who watch.", lambda: made.views.looks
    )
    keeping = asyncio.create_task(made.keep_forever())
    try:
        yield made
    finally:
        keeping.cancel()
        made.close()


# --- what is the same though time goes on ---------------------------------------------------------


def _coarse(silent_ms: int) -> int:
    return silent_ms - silent_ms % SILENT_SHOWN_MS


def _steady_nodes(found: NodesListed) -> Any:
    nodes = tuple(
        one
        if one.silent_ms is None
        else msgspec.structs.replace(one, silent_ms=_coarse(one.silent_ms))
        for one in found.nodes
    )
    return unnumbered(found, nodes=nodes)


def _steady_node(found: Described) -> Any:
    return unnumbered(found, uptime_ms=_coarse(found.uptime_ms))


def _newest_of(found: FiguresRead) -> Any:
    return unnumbered(found, series=[one[-NEWEST:] for one in found.series])


def _steady_group(found: GroupDescribed) -> Any:
    members = [
        msgspec.structs.replace(one, silent_ms=_coarse(one.silent_ms)) for one in found.members
    ]
    return unnumbered(found, members=members)
