"""Room: client. Which calls may be made again where the link was lost before the answer.

A message that is not named here is a change: whoever forgets to name a question costs a program an
`OutcomeUnknown`, and no more. Design: docs/design/client.md.
"""

from collections.abc import Sequence

from moorline.core.staying import Kind
from moorline.net.caller import Make
from moorline.wire.access import (
    CheckGrant,
    DescribeQuotas,
    ExplainGrant,
    ListGrants,
    ListMembers,
    ListOwners,
    ListQuotas,
    ListUsers,
    WhoAmI,
)
from moorline.wire.audit import ReadAudit
from moorline.wire.group import DescribeGroup, ListGroups
from moorline.wire.message import Message
from moorline.wire.mqtt_client import ListMqttClients, ShowMqttClient
from moorline.wire.node import Describe, Echo, ListNodes
from moorline.wire.queue import DescribeQueue, Get, ListQueues, Subscribe
from moorline.wire.topic import DescribeStreams, ListTopics, OpenSession, Publish, SubscribeTopic

QUESTIONS: frozenset[type[Message]] = frozenset(
    {
        CheckGrant,
        Describe,
        DescribeGroup,
        DescribeQueue,
        DescribeQuotas,
        DescribeStreams,
        Echo,
        ExplainGrant,
        Get,
        ListGrants,
        ListGroups,
        ListMembers,
        ListMqttClients,
        ListNodes,
        ListOwners,
        ListQueues,
        ListQuotas,
        ListTopics,
        ListUsers,
        ReadAudit,
        ShowMqttClient,
        WhoAmI,
    }
)
"""They change nothing, and may be asked of any node."""


OF_A_LINK: frozenset[type[Message]] = frozenset({OpenSession, Subscribe, SubscribeTopic})
"""What they do ends with the link that they were made on, so to make them on the next is harmless."""


def kind_of(makes: Sequence[Make]) -> Kind:
    """Of calls that are made together: what may be done with the least of them."""
    found = Kind.QUESTION
    for make in makes:
        message = make(0)
        if isinstance(message, Publish) and message.producer:
            found = Kind.NUMBERED
        elif type(message) not in QUESTIONS and type(message) not in OF_A_LINK:
            return Kind.CHANGE
    return found
