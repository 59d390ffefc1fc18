"""Room: node. Lists that somebody may watch, page by page: queues, topics, streams, groups, services, paths,
runs of the pipeline, tables; and one queue.

The view of a list is named by the call for it, as a page says it, and its value is the answer:

    list/[36,0,"",50,"waiting",true]        the first 50 queues in which something waits

So a page of a list has no format and no rights of its own either. Two who ask for the same page look at the
same, whatever they leave out; a list that is cut by what somebody may see is of those with the same rights
alone.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from moorline.access.guard import demand
from moorline.console.views import Seen, Views, ViewSource, unnumbered
from moorline.core.access.right import LIST
from moorline.errors import NotFound
from moorline.groups.rights import originator_of
from moorline.limits import VIEW_LIST_MS
from moorline.net.session import Session
from moorline.node.pipeline_runs import PipelineRuns, all_runs
from moorline.node.subjects import Subjects
from moorline.queues.commands import QueueBroker
from moorline.queues.owners import all_queues, path_of_call
from moorline.records.looking import paths_of as paths_of_tables
from moorline.services.rights import SERVICES
from moorline.topics.paths import all_groups, all_topics, topics_listed
from moorline.wire.group import ListGroups
from moorline.wire.message import Answer, Call
from moorline.wire.pipeline_run import ListRuns
from moorline.wire.queue import DescribeQueue, ListQueues
from moorline.wire.record_tables import ListRecordTables
from moorline.wire.resolver import ListPaths
from moorline.wire.service_operator import ListServices
from moorline.wire.topic import DescribeStreams, ListTopics

KIND: Final = "list"

_calls: Final = msgspec.json.Decoder(
    ListQueues
    | DescribeQueue
    | ListTopics
    | DescribeStreams
    | ListGroups
    | ListServices
    | ListPaths
    | ListRuns
    | ListRecordTables
)


def of_their_rights(_: Call) -> Iterable[str]:
    """Cut by what somebody may see: it refuses by itself whoever sees nothing of it."""
    return ()


def subtree_of(call: Call) -> str:
    """Of such a list: whoever has the right to list all below it sees it uncut."""
    match call:
        case ListServices():
            return SERVICES
        case ListPaths():
            return call.path
        case _:
            return ""


class ListViews:
    """Where the views of lists come from."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._answers: dict[type[Call], Callable[[Session, Any], Awaitable[Answer]]] = {}
        views.serve(KIND, ViewSource(self._look, VIEW_LIST_MS))

    def add(
        self,
        kind: type[Call],
        paths_of: Callable[[Any], Iterable[str]],
        answer: Callable[[Session, Any], Awaitable[Answer]],
    ) -> None:
        """`answer` is that of the handler of such calls, `paths_of` says where it needs the right to list."""

        async def granted(session: Session, call: Call) -> Answer:
            for path in paths_of(call):
                demand(session.rights, LIST, path)
            return await answer(session, call)

        self._answers[kind] = granted

    def changed(self, kind: type[Call]) -> None:
        self._views.changed_within(f"{KIND}/[{kind.__struct_config__.tag},")

    async def _look(self, session: Session, asked: str) -> Seen:
        # Behind a line of its own stands with whose rights a list is cut.
        try:
            call: Call = unnumbered(_calls.decode(asked.partition("\n")[0]))
        except msgspec.MsgspecError as error:
            raise NotFound(
                f"a view of a list is named by the call for it, as JSON: {error}"
            ) from None
        answer = self._answers.get(type(call))
        if answer is None:
            raise NotFound(f"this node has not the role that answers {type(call).__name__}")
        found = await answer(session, call)
        name = msgspec.json.encode(call).decode()
        if subtree_of(call) and not session.rights.everywhere(subtree_of(call)) & LIST:
            name += f"\n{msgspec.json.encode(originator_of(session.rights)).decode()}"
        return Seen(name, unnumbered(found))


def one_queue(broker: QueueBroker) -> Callable[[Session, Any], Awaitable[Answer]]:
    async def described(session: Session, call: DescribeQueue) -> Answer:
        demand(session.rights, LIST, path_of_call(call), broker.owners.of_call(call))
        return await broker.descriptions.describe(session, call)

    return described


def serve_lists(lists: ListViews, subjects: Subjects, runs: PipelineRuns) -> None:
    """Those of the roles of this node."""
    lists.add(ListRuns, all_runs, runs.list_runs)
    runs.told = lambda: lists.changed(ListRuns)
    if subjects.queues is not None:
        lists.add(ListQueues, all_queues, subjects.queues.descriptions.list)
        lists.add(DescribeQueue, of_their_rights, one_queue(subjects.queues))
    if subjects.services is not None:
        lists.add(ListServices, of_their_rights, subjects.services.list_services)
    if subjects.topics is not None:
        lists.add(ListTopics, topics_listed, subjects.topics.broker.list_topics)
        lists.add(DescribeStreams, all_topics, subjects.topics.broker.describe_streams)
        lists.add(ListGroups, all_groups, subjects.topics.operator.list_groups)
    if subjects.resolver is not None:
        lists.add(ListPaths, of_their_rights, subjects.resolver.list_paths)
    if subjects.record_tables is not None:
        lists.add(ListRecordTables, paths_of_tables, subjects.record_tables.list_tables)
