"""Room: wire. Which messages each end may hear, and the decoders for them."""

from typing import Annotated

import msgspec

from moorline.limits import MESSAGES_PER_FRAME_MAX
from moorline.wire import (
    access,
    audit,
    browse,
    cluster,
    group,
    home_move,
    mqtt_client,
    pipeline_run,
    publication,
    pull,
    queue,
    queue_contents,
    record_tables,
    records,
    resolver,
    service,
    session_list,
    staging,
    stream_file,
    topic,
    topic_deletion,
    value,
    view,
)
from moorline.wire import service_operator as operator
from moorline.wire.decoder import MessageDecoder
from moorline.wire.link import Challenge, Goodbye, Hello, Ping, Pong, Response, Welcome
from moorline.wire.message import CallsGivenUp, Failed
from moorline.wire.node import (
    ClockConfirmed,
    ConfirmClock,
    Describe,
    Described,
    Echo,
    Echoed,
    ListNodes,
    NodesListed,
)

HeardByNode = (
    Hello
    | Response
    | Ping
    | Pong
    | Goodbye
    | Echo
    | Describe
    | ConfirmClock
    | ListNodes
    | CallsGivenUp
    | queue.COMMANDS
    | service.COMMANDS
    | operator.COMMANDS
    | topic.COMMANDS
    | topic_deletion.COMMANDS
    | group.COMMANDS
    | staging.COMMANDS
    | stream_file.COMMANDS
    | browse.COMMANDS
    | pipeline_run.COMMANDS
    | record_tables.COMMANDS
    | queue_contents.COMMANDS
    | pull.COMMANDS
    | access.COMMANDS
    | audit.COMMANDS
    | resolver.COMMANDS
    | records.RecordMessages
    | records.ResumeRecords
    | publication.COMMANDS
    | mqtt_client.COMMANDS
    | session_list.COMMANDS
    | cluster.COMMANDS
    | home_move.COMMANDS
    | view.COMMANDS
    | value.UnsubscribeValues
)
HeardByClient = (
    Welcome
    | Challenge
    | Ping
    | Pong
    | Goodbye
    | Failed
    | Echoed
    | Described
    | ClockConfirmed
    | NodesListed
    | queue.EVENTS
    | service.EVENTS
    | operator.EVENTS
    | topic.EVENTS
    | topic_deletion.EVENTS
    | group.EVENTS
    | staging.EVENTS
    | stream_file.EVENTS
    | browse.EVENTS
    | pipeline_run.EVENTS
    | record_tables.EVENTS
    | queue_contents.EVENTS
    | pull.EVENTS
    | access.EVENTS
    | audit.EVENTS
    | resolver.EVENTS
    | records.RecordMessages
    | records.RecordsUnchanged
    | publication.EVENTS
    | mqtt_client.EVENTS
    | session_list.EVENTS
    | cluster.EVENTS
    | home_move.EVENTS
    | view.EVENTS
    | value.ValuesSubscribed
    | value.ValuesUnsubscribed
    | value.ValuesChanged
    | value.ValuesEnded
)

_Batch = msgspec.Meta(max_length=MESSAGES_PER_FRAME_MAX)


node_decoder = MessageDecoder(Annotated[list[HeardByNode], _Batch])
client_decoder = MessageDecoder(Annotated[list[HeardByClient], _Batch])
